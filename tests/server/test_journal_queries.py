"""Journal queries and assertions: filters, order of requests and responses, modes, limits."""

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from fakebroker import ConfigError, ErrorCode, FakeCluster
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import join_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID, heartbeat, join_and_sync
from tests.support.wire_client import WireClient, until


def member(wire: WireClient) -> str:
    """Make a stable group of one member, send one heartbeat, and return the member id."""
    member_id = join_and_sync(wire)
    assert heartbeat(wire, member_id=member_id) is ErrorCode.NONE
    return member_id


def names(calls: list[Any]) -> list[str]:
    return [call.api.name for call in calls]


@pytest.fixture
def filled() -> Any:
    """A cluster with a manual clock and requests of two clients: a is a member of group g, b is not a member."""
    with (
        FakeCluster(brokers=1, clock="manual", seed=1) as cluster,
        WireClient(cluster.brokers[0], "a") as a,
        WireClient(cluster.brokers[0], "b") as b,
    ):
        member(a)
        internals(cluster).server.clock.advance(1)
        assert heartbeat(b, "other") == ErrorCode.UNKNOWN_MEMBER_ID
        yield cluster


# Queries


def test_filters(filled: FakeCluster) -> None:
    joined = filled.journal.requests("JoinGroup")[0].response
    last_ms = internals(filled).server.clock.now_ms()
    every = ["JoinGroup", "SyncGroup", "Heartbeat", "Heartbeat"]
    assert names(filled.journal.requests()) == every
    assert names(filled.journal.requests(client_id="a")) == every[:3]
    assert names(filled.journal.requests(group="g")) == every[:3]
    assert names(filled.journal.requests(member=joined.member_id)) == every[:3]
    assert (
        names(filled.journal.requests(connection=filled.journal.requests(client_id="b")[0].connection_id)) == every[3:]
    )
    assert names(filled.journal.requests(broker=1)) == every
    assert names(filled.journal.requests(generation=joined.generation_id)) == every[1:]
    assert names(filled.journal.requests(error="UNKNOWN_MEMBER_ID")) == every[3:]
    assert names(filled.journal.requests(error=ErrorCode.UNKNOWN_MEMBER_ID)) == every[3:]
    assert names(filled.journal.requests(error="NONE")) == every[:3]
    assert names(filled.journal.requests(since=last_ms)) == every[3:]
    assert filled.journal.requests("Heartbeat", "a", error="UNKNOWN_MEMBER_ID") == []
    assert (
        filled.journal.count(),
        filled.journal.count("Heartbeat"),
        filled.journal.count("Heartbeat", group="nowhere"),
    ) == (4, 2, 0)


INVALID_FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"api": "Join"}, "api='Join': expected one of Produce, Fetch, .*; did you mean 'JoinGroup'"),
    ({"broker": 4}, "broker=4: expected one of 1, 2, 3$"),
    ({"broker": "1"}, "broker='1': expected one of 1, 2, 3$"),
    ({"error": "BAD"}, "error='BAD': expected one of UNKNOWN_SERVER_ERROR, NONE, "),
    ({"since": "now"}, "since='now': expected a number >= 0"),
    ({"epoch": 1}, "epoch=1: unknown filter; expected one of client_id, group, member, "),
    ({"topic": 1}, "topic=1: expected a string"),
    ({"instance_id": b"x"}, "instance_id=b'x': expected a string"),
    ({"member": 1}, "member=1: expected a string"),
    ({"version": "4"}, "version='4': expected an integer >= 0"),
    ({"connection": True}, "connection=True: expected an integer >= 0"),
    ({"fault": 1}, "fault=1: expected True or False"),
    ({"partition": "orders"}, "partition='orders': expected a topic and a number, such as 'orders-0'"),
    ({"partition": -1}, "partition=-1: expected an integer >= 0"),
    ({"partition": 1.5}, "partition=1.5: expected an integer >= 0"),
    ({"partition": "orders-0", "topic": "news"}, "partition='orders-0': expected a partition of topic 'news'"),
]


def test_unknown_filters_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    queries: list[Callable[..., Any]] = [
        fake_cluster.journal.requests,
        fake_cluster.journal.responses,
        fake_cluster.journal.count,
        fake_cluster.journal.assert_never,
    ]
    for filters, error in INVALID_FILTERS:
        for query in queries:
            with subtests.test(query=query.__name__, **filters), pytest.raises(ConfigError, match=error):
                query(**filters)


INVALID_STEPS: list[tuple[list[Any], str]] = [
    ([], r"steps=\(\): expected one or more"),
    (["Heartbeat", "Join"], "api='Join': expected"),
    ([("Heartbeat", {"client": "a"})], "client='a': unknown filter; expected one of client_id"),
    ([("Heartbeat", {"api": "Fetch"})], "api='Fetch': unknown filter; expected one of client_id"),
    ([7], "step=7: expected the name of an API, or a pair"),
    ([("Heartbeat", "a")], "step=.*: expected the name of an API, or a pair"),
]


def test_invalid_steps_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for steps, error in INVALID_STEPS:
        with subtests.test(steps=steps), pytest.raises(ConfigError, match=error):
            fake_cluster.journal.assert_order(*steps)


def test_a_removed_broker_is_a_valid_filter(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[2]) as wire:
        heartbeat(wire)
    fake_cluster.broker(3).remove()
    assert fake_cluster.journal.count(broker=3) == 1


def test_responses_are_ordered_by_their_time() -> None:
    config = {"group.initial.rebalance.delay.ms": 3000}
    with FakeCluster(brokers=1, clock="manual", config=config) as cluster:
        with WireClient(cluster.brokers[0], "a") as a, WireClient(cluster.brokers[0], "b") as b:
            a.send(join_request("g"), JOIN_WITHOUT_MEMBER_ID)
            until_requests(cluster, 1)
            heartbeat(b)
            internals(cluster).server.clock.advance(3)
            a.receive()
            heartbeat(b)
        assert names(cluster.journal.requests()) == ["JoinGroup", "Heartbeat", "Heartbeat"]
        assert names(cluster.journal.responses()) == ["Heartbeat", "JoinGroup", "Heartbeat"]
        assert [call.latency_ms for call in cluster.journal.responses()] == [0, 3000, 0]


def test_responses_at_the_same_time_keep_their_order() -> None:
    with FakeCluster(brokers=1, clock="manual") as cluster:
        with WireClient(cluster.brokers[0], "a") as a, WireClient(cluster.brokers[0], "b") as b:
            first = a.ask(join_request("g"), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID).member_id
            b.send(join_request("g"), JOIN_WITHOUT_MEMBER_ID)  # Parked until the first member rejoins.
            until_requests(cluster, 2)
            assert names(cluster.journal.responses()) == ["JoinGroup"]
            leave = LeaveGroupRequest(group_id="g", member_id=first)
            assert a.ask(leave, LeaveGroupResponse, 1).error_code == 0
            b.receive()
        assert names(cluster.journal.requests()) == ["JoinGroup", "JoinGroup", "LeaveGroup"]
        assert names(cluster.journal.responses()) == ["JoinGroup", "LeaveGroup", "JoinGroup"]
        assert {call.latency_ms for call in cluster.journal.responses()} == {0}


def until_requests(cluster: FakeCluster, count: int) -> None:
    until(lambda: cluster.journal.count() == count, cluster)


# Assertions


def test_assertions_that_hold(filled: FakeCluster) -> None:
    filled.journal.assert_order("JoinGroup", "SyncGroup", "Heartbeat", group="g")
    filled.journal.assert_order("JoinGroup", ("Heartbeat", {"client_id": "b"}))
    filled.journal.assert_order("Heartbeat", "Heartbeat")
    filled.journal.assert_order(("Heartbeat", {"error": "NONE"}), ("Heartbeat", {"error": "UNKNOWN_MEMBER_ID"}))
    filled.journal.assert_never("LeaveGroup")
    filled.journal.assert_never("Heartbeat", "a", error="UNKNOWN_MEMBER_ID")


def table(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_wrong_order_is_shown(filled: FakeCluster) -> None:
    with pytest.raises(AssertionError) as caught:
        filled.journal.assert_order("JoinGroup", "Heartbeat", "SyncGroup", group="g")
    assert str(caught.value) == table(
        """
        no SyncGroup with group='g' after #3, step 3 of: JoinGroup, Heartbeat, SyncGroup:
             #  api           client  connection  broker  error  came     answered
          1  1  JoinGroup v3  'a'     0           1       -      +0.0 ms  after 0.0 ms
             2  SyncGroup v2  'a'     0           1       -      +0.0 ms  after 0.0 ms
          2  3  Heartbeat v4  'a'     0           1       -      +0.0 ms  after 0.0 ms
        """
    )


def test_a_wrong_order_shows_requests_that_match_no_step(filled: FakeCluster) -> None:
    with pytest.raises(AssertionError) as caught:
        filled.journal.assert_order("SyncGroup", ("Heartbeat", {"client_id": "c"}), error="NONE")
    assert "no Heartbeat with error='NONE', client_id='c' after #2, step 2 of: SyncGroup, Heartbeat with" in str(
        caught.value
    )
    assert "     3  Heartbeat v4" in str(caught.value)


def test_an_order_without_matches_shows_the_last_requests(filled: FakeCluster) -> None:
    with pytest.raises(AssertionError) as caught:
        filled.journal.assert_order("JoinGroup", group="nowhere")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no JoinGroup with group='nowhere', step 1 of: JoinGroup:"
    assert [line.split()[1] for line in lines[2:]] == ["JoinGroup", "SyncGroup", "Heartbeat", "Heartbeat"]


def test_unexpected_requests_are_shown_with_their_neighbors(filled: FakeCluster) -> None:
    with WireClient(filled.brokers[0], "c") as wire:
        for _ in range(6):
            heartbeat(wire)
    with pytest.raises(AssertionError) as caught:
        filled.journal.assert_never("JoinGroup", client_id="a")
    assert str(caught.value) == table(
        """
        expected no JoinGroup with client_id='a', there are 1:
             #  api           client  connection  broker  error  came     answered
          >  1  JoinGroup v3  'a'     0           1       -      +0.0 ms  after 0.0 ms
             2  SyncGroup v2  'a'     0           1       -      +0.0 ms  after 0.0 ms
             3  Heartbeat v4  'a'     0           1       -      +0.0 ms  after 0.0 ms
        """
    )
    with pytest.raises(AssertionError, match="there are 7:") as caught:
        filled.journal.assert_never(error="UNKNOWN_MEMBER_ID")
    assert "  >  4   Heartbeat v4  'b'     1           1       UNKNOWN_MEMBER_ID  +1000.0 ms" in str(caught.value)


def test_gaps_and_long_tables_are_abbreviated() -> None:
    with (
        FakeCluster(brokers=1) as cluster,
        WireClient(cluster.brokers[0], "a") as wire,
        WireClient(cluster.brokers[0], "b") as b,
    ):
        for number in range(60):
            heartbeat(b if number in (5, 50) else wire)
        with pytest.raises(AssertionError) as caught:
            cluster.journal.assert_never(client_id="b")
        lines = str(caught.value).splitlines()
        assert [line.split()[0] for line in lines[2:]] == [
            "4", "5", ">", "7", "8", "...", "49", "50", ">", "52", "53",
        ]  # fmt: skip
        with pytest.raises(AssertionError) as caught:
            cluster.journal.assert_never(client_id="a")
        lines = str(caught.value).splitlines()
        assert (len(lines), lines[-1]) == (33, "  ... and 30 more")


def test_a_pending_response_is_shown() -> None:
    config = {"group.initial.rebalance.delay.ms": 60_000}
    with FakeCluster(brokers=1, config=config) as cluster, WireClient(cluster.brokers[0], "a") as wire:
        wire.send(join_request("g"), JOIN_WITHOUT_MEMBER_ID)
        until_requests(cluster, 1)
        assert cluster.journal.responses() == []
        assert cluster.journal.count("JoinGroup", error="NONE") == 0
        with pytest.raises(AssertionError, match=r"-      \+0.0 ms  not yet$"):
            cluster.journal.assert_never("JoinGroup")


# Modes and limits


@pytest.mark.parametrize("journal", ["full", "headers"])
def test_dropped_requests_are_mentioned(journal: Any) -> None:
    with FakeCluster(brokers=1, journal=journal, journal_calls=3) as cluster, WireClient(cluster.brokers[0]) as wire:
        for _ in range(5):
            heartbeat(wire)
        assert (cluster.journal.dropped, len(cluster.journal.requests())) == (2, 3)
        dropped = "The journal has dropped 2 older requests: journal_calls and journal_bytes limit it."
        shown = r"  3  Heartbeat v4 .*\n.*\n.*  5  Heartbeat v4 .*\n" + dropped
        with pytest.raises(AssertionError, match=shown):
            cluster.journal.assert_never("Heartbeat")
        with pytest.raises(AssertionError, match=shown):
            cluster.journal.assert_order("JoinGroup")
        assert cluster.report().endswith(dropped)


def test_queries_work_without_messages() -> None:
    with FakeCluster(brokers=1, journal="headers") as cluster, WireClient(cluster.brokers[0], "a") as wire:
        member_id = member(wire)
        cluster.journal.assert_order("JoinGroup", "SyncGroup", "Heartbeat", group="g", member=member_id, error="NONE")
        assert [call.request for call in cluster.journal.responses()] == [None] * 3


def test_queries_are_rejected_if_the_journal_is_off() -> None:
    with FakeCluster(brokers=1, journal="off") as cluster, WireClient(cluster.brokers[0]) as wire:
        heartbeat(wire)
        for query in (
            cluster.journal.requests,
            cluster.journal.responses,
            cluster.journal.count,
            cluster.journal.assert_never,
        ):
            with pytest.raises(ConfigError, match="journal='off': expected full or headers, because"):
                query()
        with pytest.raises(ConfigError, match="journal='off': expected full or headers, because"):
            cluster.journal.assert_order("Heartbeat")
        with pytest.raises(ConfigError, match="journal='off': expected full or headers, because"):
            cluster.journal.export("never.jsonl")
        assert cluster.report().endswith("no requests: the journal is off")


def test_a_report_shows_the_last_requests(filled: FakeCluster) -> None:
    lines = [line.split() for line in filled.report().splitlines()]
    assert ["1", "x", "Heartbeat", "UNKNOWN_MEMBER_ID", "'b'", "other"] in lines
    assert ["'b'", "1", "Heartbeat", "UNKNOWN_MEMBER_ID", "other"] in [line[2:] for line in lines]


def test_an_unknown_mode_is_rejected() -> None:
    with pytest.raises(ConfigError, match="journal='some': expected one of off, headers, full"):
        FakeCluster(journal="some")  # type: ignore[arg-type]  # wrong on purpose
