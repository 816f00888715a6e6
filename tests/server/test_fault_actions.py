"""Commands and functions that run before and after a request is handled, and requests that are handled late."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fakebroker import ConfigError, ErrorCode, FakeCluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.actions import MAX_ACTIONS, MAX_ERRORS
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.fake_cluster import internals
from fakebroker.server.journal_files import read_journal
from tests.support.group_requests import commit_request, heartbeat_request
from tests.support.groups_over_tcp import heartbeat, stable_group
from tests.support.wire_client import WireClient, until

two_brokers = pytest.mark.fake_cluster(brokers=2, topics={"orders": 1}, seed=1)
with_manual_clock = pytest.mark.fake_cluster(
    brokers=1, topics={"orders": 3}, seed=1, clock="manual", config={"group.initial.rebalance.delay.ms": 0}
)


def commit(cluster: FakeCluster, offset: int) -> bool:
    """Commit to the coordinator on a new connection. Return False if the connection is closed instead."""
    with WireClient(cluster.group("g").coordinator()) as wire:
        wire.send(commit_request(offset), 8)
        try:
            response = wire.receive()
        except ConnectionError:
            return False
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code == 0


def committed(cluster: FakeCluster) -> int | None:
    found = cluster.group("g").offsets().get(("orders", 0))
    return None if found is None else found.offset


@two_brokers
def test_the_coordinator_stops_after_the_third_commit(fake_cluster: FakeCluster) -> None:
    home = fake_cluster.group("g").coordinator().node_id
    rule = fake_cluster.inject_fault("OffsetCommit", nth=3, then={"do": "broker.stop", "node_id": home})
    assert [commit(fake_cluster, offset) for offset in (1, 2)] == [True, True]
    assert not commit(fake_cluster, 3), "the response is lost"
    assert (committed(fake_cluster), rule.hits) == (3, 1)
    assert fake_cluster.group("g").coordinator().node_id != home
    assert commit(fake_cluster, 4)


@two_brokers
def test_the_coordinator_stops_before_a_commit_is_handled(fake_cluster: FakeCluster) -> None:
    home = fake_cluster.group("g").coordinator().node_id
    fake_cluster.inject_fault("OffsetCommit", nth=2, before={"do": "broker.stop", "node_id": home})
    assert commit(fake_cluster, 1)
    assert not commit(fake_cluster, 2), "the request is lost"
    assert committed(fake_cluster) == 1
    (lost,) = fake_cluster.journal.requests("OffsetCommit")[1:]
    assert (lost.handled_ms, lost.answered_ms) == (None, None)


@two_brokers
def test_several_actions_run_in_order_with_an_error(fake_cluster: FakeCluster) -> None:
    seen: list[Any] = []

    def look(call: Call) -> None:
        seen.append((call.api.name, internals(fake_cluster).server.is_cluster_thread, committed(fake_cluster)))

    actions: list[Any] = [{"do": "topic.create", "topic": "more"}, look, {"do": "clear_faults"}]
    fake_cluster.inject_fault("OffsetCommit", before=look, error="NOT_COORDINATOR", then=actions)
    assert not commit(fake_cluster, 1)
    assert seen == [("OffsetCommit", True, None)] * 2
    assert fake_cluster.faults() == []
    assert commit(fake_cluster, 2)
    assert "more" in [topic.name for topic in internals(fake_cluster).cluster.topics]


@two_brokers
def test_a_coordinator_moves_between_the_request_and_its_handling(fake_cluster: FakeCluster) -> None:
    home = fake_cluster.group("g").coordinator().node_id
    fake_cluster.inject_fault(
        "OffsetCommit", times=1, before={"do": "group.move_coordinator", "group_id": "g", "to": 3 - home}
    )
    assert not commit(fake_cluster, 1)
    assert fake_cluster.journal.requests("OffsetCommit")[0].errors == (ErrorCode.NOT_COORDINATOR,)
    assert commit(fake_cluster, 2)


def test_actions_of_a_cluster_in_a_loop(subtests: pytest.Subtests) -> None:
    async def main(run_in_thread: Callable[..., Awaitable[bool]]) -> None:
        async with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
            in_thread: list[bool] = []
            then: list[Any] = [
                lambda call: in_thread.append(internals(cluster).server.is_cluster_thread),
                {"do": "clear_faults"},
            ]
            cluster.inject_fault("OffsetCommit", before={"do": "topic.create", "topic": "more"}, then=then)
            assert await run_in_thread(commit, cluster, 1)
            assert (in_thread, cluster.faults(), committed(cluster)) == ([True], [], 1)

    with subtests.test("trio"):
        trio.run(main, trio.to_thread.run_sync)
    with subtests.test("asyncio"):
        asyncio.run(main(asyncio.to_thread))


@pytest.mark.parametrize("where", ["before", "then"])
def test_actions_that_reset_or_restart(where: str, subtests: pytest.Subtests) -> None:
    events: list[dict[str, Any]] = [
        {"do": "reset"},
        {"do": "brokers.rolling_restart"},
        {"do": "broker.restart", "node_id": 1},
    ]
    for event in events:
        with subtests.test(event["do"]), FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
            cluster.inject_fault("OffsetCommit", nth=1, **{where: event})
            assert not commit(cluster, 1)
            # A reset deletes the offset that was committed; requests before a restart are lost.
            assert committed(cluster) == (1 if (where, event["do"] == "reset") == ("then", False) else None)
            assert commit(cluster, 2)
            assert cluster.action_errors() == []


# Errors


def test_errors_of_actions_are_shown(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    def fails(call: Call) -> None:
        raise RuntimeError("no luck")

    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
        rule = cluster.inject_fault("OffsetCommit", then=[{"do": "broker.start", "node_id": 1}, fails], times=1)
        assert commit(cluster, 1), "the request is handled and answered in spite of the errors"
        stop, function = rule.errors
        assert stop.startswith(
            "broker.start(node_id=1) at <OffsetCommit v8 from 'wire' at broker 1>: node_id=1: expected"
        )
        assert function.endswith(".fails at <OffsetCommit v8 from 'wire' at broker 1>: RuntimeError('no luck')")
        assert cluster.action_errors() == [stop, function]
        assert f"an action of a fault failed: {stop}" in cluster.report()
        cluster.journal.export(tmp_path / "journal.jsonl")
        for journal in (cluster.journal, read_journal(tmp_path / "journal.jsonl")):
            (call,) = journal.requests("OffsetCommit")
            assert call.action_errors == (stop, function)
            with pytest.raises(AssertionError, match=r"\(broker\.start\(node_id=1\) at "):
                journal.assert_never("OffsetCommit")
        logged = [(record.levelno, record.getMessage(), bool(record.exc_info)) for record in caplog.records]
        assert logged == [
            (logging.ERROR, f"action failed: {stop}", False),
            (logging.ERROR, f"action failed: {function}", True),
        ]
        cluster.reset()
        assert not cluster.action_errors()


def test_actions_that_cause_themselves_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
        count = 0

        def again(call: Call) -> None:
            nonlocal count
            count += 1
            core = internals(cluster).cluster
            copy = Call(call.peer, call.api, call.api_version, 0, call.client_id, call.request, call.size)
            core.requests.handle(copy, core.now_ms)

        cluster.inject_fault("OffsetCommit", then=again)
        with WireClient(cluster.brokers[0]) as wire:
            wire.send(commit_request(1), 8)
            assert isinstance(wire.receive(), OffsetCommitResponse)
        assert count == MAX_ACTIONS
        error = " ".join(cluster.action_errors())
        assert error.count("not run") == 1
        assert f"not run: expected at most {MAX_ACTIONS} actions at one request" in error
        assert len(cluster.action_errors()) <= MAX_ERRORS


def test_invalid_actions_are_rejected(subtests: pytest.Subtests) -> None:
    cluster = FakeCluster(brokers=1)
    cases: list[tuple[Any, str]] = [
        ("stop_broker", "fault: then='stop_broker': expected an event such as"),
        ({"node_id": 1}, "fault: then=.*: expected an event such as"),
        ([], "fault: then=.*: expected an event, a function, or a list of them"),
        ({"do": "stop"}, "^then.do='stop': expected one of acls.allow, "),
        ([{"do": "reset"}, {"do": "broker.stop"}], r"^then\[1\].node_id is missing"),
        ({"do": "inject_fault", "api": "Heartbeat", "then": {"do": "stop"}}, "^then.then.do='stop': expected one of"),
        ({"do": "inject_fault", "api": "Heartbeat"}, "^then: fault has no effect: set one of error"),
        ({"do": "inject_fault", "api": "Beat", "drop": True}, "^then: fault: api='Beat': expected one of"),
        (
            {"do": "inject_fault", "api": "Heartbeat", "delay_s": -1},
            r"^then: fault: delay_s=-1\.0: expected seconds >= 0",
        ),
    ]
    for then, error in cases:
        with subtests.test(error), pytest.raises(ConfigError, match=error):
            cluster.inject_fault("Heartbeat", then=then)
    with pytest.raises(ConfigError, match=r"delay_before_s=-1\.0: expected seconds >= 0"):
        cluster.inject_fault("Heartbeat", delay_before_s=-1)
    assert cluster.faults() == []
    with subtests.test("a broker that is added before"):
        later = {"do": "inject_fault", "api": "Heartbeat", "broker": 2, "drop": True}
        cluster.inject_fault("Heartbeat", then=[{"do": "brokers.add"}, later])


# Requests that are handled late


@with_manual_clock
def test_a_late_heartbeat_expires_the_session(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster)
    start_ms = internals(fake_cluster).server.clock.now_ms()
    fake_cluster.inject_fault("Heartbeat", delay_before_s=40, times=1)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(heartbeat_request("g", member_id))
        wire.send(MetadataRequest(topics=[]))
        until(lambda: len(fake_cluster.journal.requests("Heartbeat")) == 1, fake_cluster)
        fake_cluster.advance(29)
        assert fake_cluster.group("g").describe().state == "Stable"
        fake_cluster.advance(2)
        assert fake_cluster.group("g").describe().state == "Empty", "the session of 30 s has expired"
        assert fake_cluster.journal.requests("Heartbeat")[0].handled_ms is None
        assert fake_cluster.journal.requests("Metadata") == [], "later requests of the connection wait"
        assert [deadline.at_ms - start_ms for deadline in fake_cluster.deadlines()][:1] == [40_000]
        fake_cluster.advance(9)
        response = wire.receive()
        assert isinstance(response, HeartbeatResponse)
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert isinstance(wire.receive(), MetadataResponse)
    (call,) = fake_cluster.journal.requests("Heartbeat")
    assert (call.received_ms, call.handled_ms, call.answered_ms) == (start_ms, start_ms + 40_000, start_ms + 40_000)
    with pytest.raises(AssertionError, match=r"ms, handled \+\d+\.\d ms"):
        fake_cluster.journal.assert_never("Heartbeat")


@with_manual_clock
def test_late_requests_are_handled_at_their_time(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster)
    start_ms = internals(fake_cluster).server.clock.now_ms()
    fake_cluster.inject_fault("Heartbeat", delay_before_s=20, times=1)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(heartbeat_request("g", member_id))
        until(lambda: len(fake_cluster.journal.requests("Heartbeat")) == 1, fake_cluster)
        fake_cluster.advance(45)  # In one step: the heartbeat extends the session from 30 s to 50 s.
        response = wire.receive()
        assert isinstance(response, HeartbeatResponse)
        assert response.error_code == ErrorCode.NONE
        assert fake_cluster.journal.requests("Heartbeat")[0].handled_ms == start_ms + 20_000
        assert fake_cluster.group("g").describe().state == "Stable"
        fake_cluster.advance(5)
        assert fake_cluster.group("g").describe().state == "Empty"


@with_manual_clock
def test_a_late_request_of_a_closed_connection_is_handled(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("OffsetCommit", delay_before_s=5)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(commit_request(7), 8)
        until(lambda: len(fake_cluster.journal.requests("OffsetCommit")) == 1, fake_cluster)
    fake_cluster.advance(5)
    assert committed(fake_cluster) == 7


@with_manual_clock
def test_a_late_request_to_a_broker_that_stopped_is_lost(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("OffsetCommit", delay_before_s=5)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(commit_request(7), 8)
        until(lambda: len(fake_cluster.journal.requests("OffsetCommit")) == 1, fake_cluster)
        fake_cluster.broker(1).restart()
        assert wire.is_closed_by_broker()
    fake_cluster.advance(5)
    assert committed(fake_cluster) is None


@with_manual_clock
def test_an_action_advances_the_clock(fake_cluster: FakeCluster) -> None:
    """The advance handles a delayed request, whose own actions run afterwards."""
    order: list[str] = []
    fake_cluster.inject_fault("OffsetCommit", delay_before_s=5, then=lambda call: order.append("commit"))
    fake_cluster.inject_fault(
        "Heartbeat", then=[{"do": "advance", "seconds": 6}, lambda call: order.append("heartbeat")]
    )
    with WireClient(fake_cluster.brokers[0]) as late, WireClient(fake_cluster.brokers[0]) as wire:
        late.send(commit_request(7), 8)
        until(lambda: len(fake_cluster.journal.requests("OffsetCommit")) == 1, fake_cluster)
        assert heartbeat(wire) == ErrorCode.UNKNOWN_MEMBER_ID
        assert isinstance(late.receive(), OffsetCommitResponse)
    assert order == ["heartbeat", "commit"]
