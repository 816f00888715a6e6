"""Long names: connections that they close, error messages, and reports that stay short."""

import logging

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.registry import APIS
from fakebroker.server.response_frames import with_short_messages
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import join_request
from tests.support.groups_over_tcp import heartbeat
from tests.support.message_versions import filled, with_text
from tests.support.wire_client import WireClient

LONGEST = 32_767 - 37
"""The longest client id from which a member id can be made."""
LONG = "x" * 32_760


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_client_id_that_is_too_long_for_a_member_id_closes_its_connection(
    fake_cluster: FakeCluster, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    broker = fake_cluster.group("g").coordinator()
    for client_id in (LONG, "x" * (LONGEST + 1), "é" * (LONGEST // 2 + 1)):
        caplog.clear()
        with WireClient(broker, client_id) as wire:
            wire.send(join_request("g"), version)
            assert wire.is_closed_by_broker()
        (record,) = caplog.records
        assert record.exc_info is None
        assert record.getMessage().endswith(
            f"at broker {broker.node_id}>: client id or instance id is too long: expected at most {LONGEST} bytes"
        )
        assert len(record.getMessage()) < 500
    assert fake_cluster.group("g").describe().state == "Dead"
    with WireClient(broker, "x" * LONGEST) as wire:
        wire.send(join_request("g"), 4)
        response = wire.receive()
        assert isinstance(response, JoinGroupResponse)
        assert len(response.member_id) == 32_767


def test_other_requests_accept_a_long_client_id(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0], LONG) as wire:
        heartbeat(wire)
    assert fake_cluster.journal.count("Heartbeat", client_id=LONG) == 1
    assert len(fake_cluster.report()) < 3_000
    with pytest.raises(AssertionError) as caught:
        fake_cluster.journal.assert_never(client_id=LONG)
    assert len(str(caught.value)) < 3_000


def test_error_messages_with_long_names_are_shortened(fake_cluster: FakeCluster) -> None:
    topic = CreatableTopic(name=LONG, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with WireClient(fake_cluster.brokers[0]) as wire:
        (result,) = wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
    assert result.name == LONG
    assert result.error_message is not None
    assert result.error_message.startswith("topic name 'xxx")
    assert len(result.error_message) == 1_000


@pytest.mark.slow
def test_responses_to_long_strings_can_be_sent_with_short_messages(subtests: pytest.Subtests) -> None:
    for api in APIS:
        for version in range(api.versions.first, api.versions.last + 1):
            with subtests.test(api=api.name, version=version):
                request = with_text(filled(api.request, version), version, LONG)
                call = ClusterHarness().send(request, version)
                if call.response is not None:
                    assert response_frame(with_short_messages(call.response), call.response_version, 1)


def test_a_report_says_what_it_leaves_out() -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}, clock="manual") as cluster:
        cluster.group("first").seed(members=1, topics=["orders"])
        for number in range(30):
            cluster.advance(0.001)
            cluster.group(f"g{number}").seed(members=1, topics=["orders"])
        cluster.group("many").seed(members=50, topics=["orders"])
        with WireClient(cluster.brokers[0], "app") as wire:
            for _ in range(25):
                heartbeat(wire)
            wire.ask(HeartbeatRequest(group_id=LONG, generation_id=1, member_id=LONG), HeartbeatResponse)
        lines = cluster.report().splitlines()
    assert sum(": Stable" in line for line in lines) == 20
    assert "... and 12 more groups, which changed earlier" in lines
    assert not any(line.startswith("first:") for line in lines)
    assert any(line.startswith("g29:") for line in lines)
    many = lines.index(next(line for line in lines if line.startswith("many:")))
    assert lines[many + 21] == "  ... and 30 more members"
    (counted,) = [line for line in lines if line.startswith("  25 x ")]
    assert counted.split() == ["25", "x", "Heartbeat", "UNKNOWN_MEMBER_ID", "'app'", "g"]
    (head,) = (line for line in lines if line.startswith("the last 16 of 26 requests that were not idle"))
    last = lines[lines.index(head) :]
    assert sum("Heartbeat  UNKNOWN_MEMBER_ID" in line for line in last) == 16
    assert max(map(len, lines)) < 300


def test_a_report_cuts_long_lines() -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
        cluster.group("y" * 30_000).seed(members=1, topics=["orders"])
        lines = cluster.report().splitlines()
    head = next(line for line in lines if line.startswith("yyy"))
    assert head.startswith("y" * 200 + "... and 298")
    assert head.endswith(" more characters")


def test_a_timeline_cuts_long_names() -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
        cluster.group("y" * 30_000).seed(members=1, topics=["orders"])
        with WireClient(cluster.brokers[0], "x" * LONGEST) as wire:
            wire.send(join_request("g"), 3)
            cluster.wait(cluster.requested("JoinGroup"))
        assert len(str(cluster.group("y" * 30_000).timeline())) < 3_000
        assert len(str(cluster.group("g").timeline())) < 3_000
