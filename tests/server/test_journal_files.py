"""Journal files: an exported journal is imported unchanged, and malformed files are errors."""

import copy
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from fakebroker import ConfigError, ErrorCode, FakeCluster
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.journal_queries import JournalQueries
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fakebroker.protocol.schema import Message, Struct
from fakebroker.server.fake_cluster import internals
from fakebroker.server.journal_files import plain, read_journal, restored
from tests.server.test_journal_queries import member, until_requests
from tests.support.cluster.cluster_harness import carried
from tests.support.groups_over_tcp import heartbeat as beat
from tests.support.message_versions import MESSAGE_VERSIONS, MESSAGES, NEWEST_VERSIONS, filled, message_subtest
from tests.support.soak import IS_SOAK, soak
from tests.support.strategies import check_drawn_messages
from tests.support.wire_client import WireClient


def contents(journal: JournalQueries) -> list[Any]:
    """Return the attributes of all answered calls, in the order of their responses."""
    return [
        (
            call.api, call.api_version, call.correlation_id, call.client_id, call.peer.client_host, call.connection_id,
            call.node_id, call.group_ids, call.member_ids, call.received_ms, call.handled_ms, call.answered_ms,
            call.latency_ms, call.action_errors, call.errors, call.has_response, call.response_version, call.fault,
            call.request, call.response and carried(call.response, call.response_version),
        )
        for call in journal.responses()
    ]  # fmt: skip


FAULTS = [
    Fault(api="Heartbeat", group="g", error="COORDINATOR_NOT_AVAILABLE", delay_s=(0.0, 0.0)),
    Fault(api="Heartbeat", group="silent", silent=True),
]


@pytest.mark.parametrize("mode", ["full", "headers"])
def test_faults_are_reported_and_exported(mode: Any, tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with FakeCluster(brokers=1, journal=mode) as cluster, WireClient(cluster.brokers[0], "a") as wire:
        for fault in FAULTS:
            internals(cluster).cluster.faults.add(fault, internals(cluster).server.clock.now_ms())
        assert beat(wire) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        beat(wire, "other")
        wire.send(HeartbeatRequest(group_id="silent", generation_id=1, member_id="m"))
        until_requests(cluster, 3)
        cluster.journal.export(file)
        for journal in (cluster.journal, read_journal(file)):
            assert [call.fault for call in journal.requests()] == [FAULTS[0], None, FAULTS[1]]
            with pytest.raises(AssertionError, match=r" ms \(fault\)\n.* ms\n.*  not yet \(fault\)$"):
                journal.assert_never("Heartbeat")


@pytest.mark.parametrize("mode", ["full", "headers"])
def test_an_imported_journal_equals_the_exported_one(mode: Any, tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with FakeCluster(brokers=2, journal=mode, journal_calls=4) as cluster:
        with WireClient(cluster.group("g").coordinator(), "a") as wire:
            beat(wire)
            member_id = member(wire)
            beat(wire, "g", "grüße")
        cluster.journal.export(file)
        read = read_journal(file)
        assert contents(read) == contents(cluster.journal)
        assert (read.mode, read.dropped, read.node_ids) == (mode, 1, (1, 2))
        read.assert_order("JoinGroup", "SyncGroup", ("Heartbeat", {"error": "NONE"}), member=member_id)
        assert (len(read.requests(broker=1) + read.requests(broker=2)), len(read.requests(member="grüße"))) == (4, 1)
        with pytest.raises(ConfigError, match=r"broker=3: expected one of 1, 2$"):
            read.count(broker=3)
        messages = []
        for journal in (cluster.journal, read):
            with pytest.raises(AssertionError) as caught:
                journal.assert_never("JoinGroup")
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        second_file = tmp_path / "second.jsonl"
        read.export(second_file)
        assert second_file.read_bytes() == file.read_bytes()


def test_lines_are_json_with_names_of_fields_and_errors(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with FakeCluster(brokers=1) as cluster, WireClient(cluster.brokers[0]) as wire:
        member(wire)
        beat(wire, "other")
        cluster.journal.export(file)
    head, joined, *_, last = [json.loads(line) for line in file.read_text().splitlines()]
    assert head == {"format": 1, "mode": "full", "dropped": 0, "brokers": [1]}
    assert (last["api"], last["version"], last["errors"]) == ("Heartbeat", 4, ["UNKNOWN_MEMBER_ID"])
    assert last["request"] == {"group_id": "other", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    assert last["response"] == {"throttle_time_ms": 0, "error_code": "UNKNOWN_MEMBER_ID"}
    assert joined["request"]["protocols"] == [{"name": "range", "metadata": "cg=="}]
    assert plain(SyncGroupRequestAssignment(member_id="m", assignment=b"x"), 0) == {
        "member_id": "m",
        "assignment": "eA==",
    }


SECRETS = ("salt", "salted_password", "auth_bytes", "hmac")


def without_secrets(value: Any) -> Any:
    """Return a copy of a message in which the fields with secrets are empty."""
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    if not isinstance(value, Struct):
        return value
    emptied = copy.copy(value)
    for field in value.FIELDS:
        setattr(emptied, field.name, b"" if field.name in SECRETS else without_secrets(getattr(value, field.name)))
    return emptied


def assert_survives_json(cls: type[Message], version: int, message: Message) -> None:
    assert restored(cls, json.loads(json.dumps(plain(message, version))), version) == without_secrets(message)


def test_secrets_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"SALT", salted_password=b"PASS"
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    with FakeCluster(brokers=1) as cluster, WireClient(cluster.brokers[0]) as wire:
        wire.ask(request, AlterUserScramCredentialsResponse)
        wire.ask(SaslAuthenticateRequest(auth_bytes=b"AUTH"), SaslAuthenticateResponse)
        cluster.journal.export(file)
        text = file.read_text() + cluster.report() + str(cluster.journal.requests())
    for secret in (b"SALT", b"PASS", b"AUTH"):
        assert secret.decode() not in text
        assert b64encode(secret).decode() not in text
    assert read_journal(file).requests()[0].request == without_secrets(request)


def test_messages_with_a_value_in_each_field_survive_export_and_import(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            assert_survives_json(cls, version, filled(cls, version))


@soak
def test_any_message_survives_export_and_import(subtests: pytest.Subtests) -> None:
    versions = MESSAGE_VERSIONS if IS_SOAK else NEWEST_VERSIONS
    for cls in MESSAGES:
        check_drawn_messages(subtests, cls, assert_survives_json, among=versions, unknown_tags=True, sample=3, soak=50)


HEAD = '{"format":1,"mode":"full","dropped":0,"brokers":[1]}\n'
LINE = (
    '{"api":"Heartbeat","version":0,"correlation_id":1,"client_id":"","client_host":"h","connection":1,"broker":1,'
    '"groups":[],"members":[],"size":9,"received_ms":1,"handled_ms":1,"answered_ms":null,"answered_after":0,"has_response":false,'
    '"response_version":0,"errors":[],"fault":null,"action_errors":[],"request":null,"response":null}\n'
)


def changed(field: str, value: object) -> str:
    """Return a file with one request, in which a field has another value."""
    return f"{HEAD}{json.dumps(json.loads(LINE) | {field: value})}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_an_error_and_costs_nothing_else(tmp_path: Path) -> None:
    with FakeCluster(brokers=1) as cluster, WireClient(cluster.brokers[0]) as wire:
        beat(wire)
        with pytest.raises(OSError, match="No space left on device"):
            cluster.journal.export("/dev/full")
        beat(wire)
        cluster.journal.export(tmp_path / "journal.jsonl")
    assert len(read_journal(tmp_path / "journal.jsonl").requests("Heartbeat")) == 2


def test_malformed_files_are_errors(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, error in (
        ("", "empty, expected a journal"),
        ("no json\n", "line 1: expected JSON: "),
        ("[]\n", "line 1: \\[\\]: expected a table"),
        ("\xff\n", "line 1: expected JSON: "),
        ('{"format":2}\n', "line 1: 4 errors\\n  format=2: expected one of 1\\n"),
        ('{"format":1,"mode":"off"}\n', "mode='off': expected one of full, headers"),
        (HEAD + '{"api":"Join"}\n', "line 2: the first 10 errors"),
        (HEAD + LINE.replace("Heartbeat", "Heartbeats"), "line 2: api='Heartbeats': expected one of .*'Heartbeat'"),
        (changed("errors", ["X"]), "line 2: errors='X': expected an error of Kafka, one of "),
        (changed("fault", {"api": 5}), "line 2: fault.api=5: expected a string or none$"),
        (changed("fault", {"api": None, "error": "X"}), "line 2: fault.error='X': expected an error of Kafka, one of "),
        (changed("request", {"group_id": "g"}), "line 2: request: HeartbeatRequest v0 with group_id: expected "),
        (changed("response", {"error_code": "X"}), "line 2: response.error_code='X': expected an error of Kafka"),
        (changed("response", {"error_code": 7}), "line 2: response.error_code=7: expected an error of Kafka, one of "),
    ):
        with subtests.test(error):
            (file := tmp_path / "journal.jsonl").write_text(text, "latin-1")
            with pytest.raises(ConfigError, match=error):
                read_journal(file)


HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


def test_malformed_messages_are_errors(subtests: pytest.Subtests) -> None:
    cases: list[tuple[type[Message], dict[str, Any], str]] = [
        (HeartbeatRequest, {"group_id": "g"}, "v0 with group_id: expected group_id, generation_id, member_id"),
        (HeartbeatRequest, {**HEARTBEAT, "more": 1}, "with group_id, .*, more: expected"),
        (SyncGroupRequest, {**HEARTBEAT, "assignments": "x"}, r"^message\.assignments='x': expected a list$"),
        (SyncGroupRequest, {**HEARTBEAT, "assignments": ["x"]}, r"^message\.assignments='x': expected a table$"),
        (
            SyncGroupRequest,
            {**HEARTBEAT, "assignments": [{"member_id": "m", "assignment": "?"}]},
            r"^message\.assignments\.assignment='\?': expected base64$",
        ),
        (
            SyncGroupRequest,
            {**HEARTBEAT, "assignments": [{"member_id": "m", "assignment": 5}]},
            r"^message\.assignments\.assignment=5: expected base64$",
        ),
        (HeartbeatRequest, {**HEARTBEAT, "unknown_tags": 5}, r"^message\.unknown_tags=5: expected a list$"),
        (
            HeartbeatRequest,
            {**HEARTBEAT, "unknown_tags": [["x", ""]]},
            r"^message\.unknown_tags\[0\]\[0\]='x': expected an integer$",
        ),
        (HeartbeatRequest, {**HEARTBEAT, "unknown_tags": [[1, "?"]]}, r"^message\.unknown_tags='\?': expected base64$"),
    ]
    for cls, fields, error in cases:
        with subtests.test(error), pytest.raises(ConfigError, match=error):
            restored(cls, fields, 0)
