"""Filters of faults by member, topic id, resource and fields of requests: in the cluster's process, and over HTTP."""

from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from fakebroker import ConfigError, FakeCluster, WaitTimeout
from fakebroker.control import Client
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.registry import api_of
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request
from tests.support.trio_runner import in_trio_with_sockets
from tests.support.wire_client import WireClient


@pytest.fixture
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(1, {"orders": 2, "news": 1}, clock="manual") as harness:
        yield harness


@pytest.fixture(params=["process", "HTTP"])
def cluster(request: pytest.FixtureRequest, control: ControlHarness) -> Any:
    return control.cluster if request.param == "process" else Client(control.server.url)


@pytest.fixture
def wire(control: ControlHarness) -> Iterator[WireClient]:
    with WireClient(control.cluster.brokers[0], "app") as wire:
        yield wire


def commit(wire: WireClient, offset: int, partition: int = 0, metadata: str = "") -> str:
    answer = wire.ask(commit_request(offset, partition, metadata=metadata), OffsetCommitResponse, 9)
    return ErrorCode(answer.topics[0].partitions[0].error_code).name


MATCHES: list[tuple[Any, str]] = [
    # "x" for each commit with the fault: 1 and 5 for partition 0, 5 with the metadata "late" for partition 1.
    (("topics.partitions.committed_offset", ">=", 5), "-xx"),
    (("topics.partitions.committed_offset", ">", 5), "---"),
    (("topics.partitions.committed_offset", "<", 5), "x--"),
    (("topics.partitions.committed_offset", "<=", 5), "xxx"),
    (("topics.partitions.committed_offset", "==", 1), "x--"),
    (("topics.partitions.committed_offset", "!=", 1), "-xx"),
    (("topics.partitions.committed_metadata", "contains", "at"), "--x"),
    (("topics.partitions.committed_metadata", "==", "late"), "--x"),
    (("group_instance_id", "==", None), "xxx"),
    (("group_instance_id", "!=", None), "---"),
    (("group_instance_id", "contains", "a"), "---"),
    (("topics.partitions.commit_timestamp", "==", -1), "---"),  # Version 9 lacks the field.
    ([("topics.partitions.partition_index", "==", 0), ("topics.partitions.committed_offset", "==", 5)], "-x-"),
    ([["group_id", "==", "g"]], "xxx"),
    (("topics.partitions.commit_timestamp", "!=", -1), "---"),
]


@pytest.mark.parametrize(("where", "expected"), MATCHES)
def test_fields_of_requests(cluster: FakeCluster, wire: WireClient, where: Any, expected: str) -> None:
    fault = cluster.inject_fault("OffsetCommit", where=where, error="NOT_COORDINATOR", may_miss=True)
    found = [commit(wire, 1), commit(wire, 5), commit(wire, 5, 1, "late")]
    assert "".join("x" if each == "NOT_COORDINATOR" else "-" for each in found) == expected
    assert fault.hits == expected.count("x")
    assert fault.describe().rule["where"] == (
        list(where) if isinstance(where, tuple) else [list(each) for each in where]
    )


def test_a_function_of_the_call(fake_cluster: FakeCluster) -> None:
    fault = fake_cluster.inject_fault(
        "OffsetCommit", where=lambda call: call.request.topics[0].name == "orders", drop=True
    )
    fails = fake_cluster.inject_fault("Metadata", where=lambda call: 1 / 0, drop=True, may_miss=True)
    fake_cluster.topic("orders").create()
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        wire.send(commit_request(1), 9)
        with pytest.raises(ConnectionError):
            wire.receive()
    assert (fault.hits, fails.hits) == (1, 0)
    assert "ZeroDivisionError" in fails.errors[0]
    fails.remove()


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"where": ("group", "==", "g")}, r"where='group': expected a path in OffsetCommit, one of group_id, "),
    ({"where": ("topics.partition", "==", 1)}, r"expected a path in OffsetCommit, one of .*did you mean 'partitions'"),
    ({"where": ("topics", "==", 1)}, r"where='topics': expected one of its fields, one of topics\.name, "),
    ({"where": ("group_id.name", "==", 1)}, "expected a path in OffsetCommit, without further fields"),
    ({"where": ("group_id", "=", "g")}, "where='=': expected one of ==, !=, "),
    ({"where": ("group_id", "<", "g")}, "where='<': expected == or !=, because group_id is no number"),
    ({"where": ("group_id", "==", 5)}, "where=5: expected text, which group_id of OffsetCommit has"),
    ({"where": ("group_id", "==", ["g"])}, r"where=\['g'\]: expected text, a number, a boolean or null as the value"),
    ({"where": ("retention_time_ms", "==", True)}, "where=True: expected a number, which retention_time_ms"),
    ({"where": ("retention_time_ms", "contains", 1)}, "another operator, because retention_time_ms is no text"),
    ({"where": ("retention_time_ms", "<", None)}, "where='<': expected a number"),
    ({"where": ("group_id", "==")}, "expected a path, an operator and a value, such as "),
    ({"where": []}, "expected a path, an operator and a value, such as "),
    ({"where": "group_id == 'g'"}, "expected a path, an operator and a value, such as "),
    ({"where": [(5, "==", "g")]}, r"where=\[5, '==', 'g'\]: expected a path, an operator and a value"),
    ({"where": [("group_id", "==", "g"), 5]}, "where=5: expected a path, an operator and a value"),
    ({"api": None, "where": ("group_id", "==", "g")}, "api=None: expected the API whose requests have the field 'grou"),
    ({"topic_id": "orders"}, "topic_id='orders': expected the 22 characters of `TopicView.topic_id`"),
    ({"topic_id": "a" * 22, "topic": "orders"}, "topic_id=.*: expected none with topic: they contradict each other"),
    (
        {"api": "DescribeConfigs", "resource": "orders"},
        "resource='orders': expected a type and a name, such as",
    ),
    ({"resource": "topic:orders"}, "OffsetCommit has no resource"),
    ({"api": "Fetch", "member": "a"}, "Fetch has no member"),
]


def test_filters_that_cannot_match_are_errors(cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for fields, error in INVALID:
        with subtests.test(fields=fields), pytest.raises(ConfigError, match=error):
            cluster.inject_fault(**{"api": "OffsetCommit", "drop": True, **fields})


def test_functions_are_not_sent(control: ControlHarness) -> None:
    with pytest.raises(ConfigError, match="functions cannot be sent to another process"):
        Client(control.server.url).inject_fault("Fetch", drop=True, where=lambda call: True)


@pytest.mark.parametrize("member", ["a", "i", "app"])
def test_a_member_has_three_names(cluster: FakeCluster, wire: WireClient, member: str) -> None:
    cluster.inject_fault("LeaveGroup", member=member, error="FENCED_INSTANCE_ID")
    members = [MemberIdentity(member_id="a", group_instance_id="i"), MemberIdentity(member_id="b")]
    answer = wire.ask(LeaveGroupRequest(group_id="g", members=members), LeaveGroupResponse, 5)
    found = [ErrorCode(each.error_code).name for each in answer.members]
    of_all = ["FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID"]
    assert found == (of_all if member == "app" else ["FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID"])


def test_a_topic_by_its_id(cluster: FakeCluster, wire: WireClient) -> None:
    """A client that still has the id of a topic that was created again."""
    old = cluster.topic("orders").describe().topic_id
    cluster.topic("orders").delete()
    cluster.topic("orders").create()
    new = cluster.topic("orders").describe().topic_id
    assert new != old
    cluster.inject_fault("OffsetCommit", topic_id=old, error="REQUEST_TIMED_OUT", times=1)
    cluster.inject_fault("OffsetCommit", topic_id=new, error="COORDINATOR_LOAD_IN_PROGRESS", times=1)
    cluster.inject_fault("OffsetCommit", where=("topics.topic_id", "==", new), error="INVALID_GROUP_ID", times=1)
    found = []
    for topic_id in (old, new, old, new, new):
        request = commit_request(1)
        request.topics[0].topic_id = urlsafe_b64decode(f"{topic_id}==")
        answer = wire.ask(request, OffsetCommitResponse, 10)
        found.append(ErrorCode(answer.topics[0].partitions[0].error_code).name)
    assert found == [
        "REQUEST_TIMED_OUT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNKNOWN_TOPIC_ID",
        "INVALID_GROUP_ID",
        "NONE",
    ]


RESOURCES: list[tuple[Any, type[Any], str, dict[str, int]]] = [
    (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="orders", configuration_keys=None),
                DescribeConfigsResource(resource_type=32, resource_name="orders", configuration_keys=None),
                DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
            ]
        ),
        DescribeConfigsResponse,
        "results",
        {"topic:orders": 0, "group:orders": 1, "broker:1": 2},
    ),
    (
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
                )
                for entity in ([("user", "alice"), ("client-id", "app")], [("user", None)])
            ],
            validate_only=False,
        ),
        AlterClientQuotasResponse,
        "entries",
        {"user:alice": 0, "client-id:app": 0, "user:<default>": 1},
    ),
    (
        AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(
                    name=name, mechanism=1, iterations=4096, salt=b"x" * 8, salted_password=b"y" * 32
                )
                for name in ("alice", "bob")
            ],
        ),
        AlterUserScramCredentialsResponse,
        "results",
        {"user:alice": 0, "user:bob": 1},
    ),
]


@pytest.mark.parametrize(("request_", "kind", "parts", "expected"), RESOURCES)
def test_resources(
    cluster: FakeCluster,
    wire: WireClient,
    request_: Any,
    kind: Any,
    parts: str,
    expected: dict[str, int],
    subtests: pytest.Subtests,
) -> None:
    for resource, index in expected.items():
        with subtests.test(resource=resource):
            with cluster.inject_fault(api_of(request_).name, resource=resource, error="CLUSTER_AUTHORIZATION_FAILED"):
                answer = wire.ask(request_, kind)
            errors = [each.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED for each in getattr(answer, parts)]
            assert errors == [each == index for each in range(len(errors))]
    with cluster.inject_fault(api_of(request_).name, resource="user:nobody", drop=True, may_miss=True) as fault:
        wire.ask(request_, kind)
    assert fault.hits == 0


def test_resources_of_requests_without_errors_of_parts(cluster: FakeCluster, wire: WireClient) -> None:
    quotas = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="user", match_type=0, match="alice")], strict=False
    )
    users = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")])
    for api, request, kind in (
        ("DescribeClientQuotas", quotas, DescribeClientQuotasResponse),
        ("DescribeUserScramCredentials", users, DescribeUserScramCredentialsResponse),
    ):
        error = "CLUSTER_AUTHORIZATION_FAILED"
        cluster.inject_fault(api, resource="user:bob", error=error, may_miss=True)
        cluster.inject_fault(api, resource="user:alice", error=error, times=1)
        found = [wire.ask(request, kind).error_code for _ in range(2)]  # type: ignore[attr-defined]
        assert found[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED != found[1]


def test_waiting_for_a_fault(cluster: FakeCluster, wire: WireClient) -> None:
    fault = cluster.inject_fault("OffsetCommit", error="NOT_COORDINATOR", times=2)
    commit(wire, 1)
    assert fault.wait().hits == 1
    assert cluster.holds(fault.hit())
    with pytest.raises(
        WaitTimeout, match=r"fault\('1'\)\.hit\(at_least=2\)\nfault 1 was applied to 1 request; 1 request "
    ):
        fault.wait(hits=2, timeout_s=0)
    commit(wire, 1)
    assert cluster.wait(fault.hit(2)).is_over
    with pytest.raises(ConfigError, match=r"at_least=0: expected an integer >= 1"):
        fault.wait(hits=0)


@in_trio_with_sockets
async def test_waiting_for_a_fault_in_a_task(fake_cluster: FakeCluster) -> None:
    fault = fake_cluster.inject_fault("Metadata", delay_s=0.001)
    async with trio.open_nursery() as nursery:

        def ask() -> None:
            with WireClient(fake_cluster.brokers[0]) as wire:
                wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)

        nursery.start_soon(trio.to_thread.run_sync, ask)
        assert (await fault.wait_async()).hits == 1


def test_bytes_of_requests_are_compared_as_text(cluster: FakeCluster, wire: WireClient) -> None:
    where = ("assignments.assignment", "contains", "part")
    fault = cluster.inject_fault("SyncGroup", where=where, error="REBALANCE_IN_PROGRESS")
    for assignment in (b"\xffpart", b"other"):
        assigned = SyncGroupRequestAssignment(member_id="m", assignment=assignment)
        wire.ask(
            SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[assigned]), SyncGroupResponse, 5
        )
    assert fault.hits == 1


def test_entries_of_a_null_array_have_no_fields(cluster: FakeCluster, wire: WireClient) -> None:
    fault = cluster.inject_fault("Metadata", where=("topics.name", "!=", "x"), delay_s=0.001)
    wire.ask(MetadataRequest(topics=None), MetadataResponse, 9)
    assert fault.hits == 0
    null = cluster.inject_fault("Metadata", where=("topics.name", "==", None), delay_s=0.001, may_miss=True)
    wire.ask(MetadataRequest(topics=None), MetadataResponse, 9)
    assert null.hits == 0
    wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
    assert fault.wait().hits == 1
