"""Clocks of the brokers: real, manual, scaled and trio's.

Waits for clients (Fetch, incomplete requests) are in trio's time: real time, unless a test uses a trio `MockClock`.
"""

import re
import struct
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
import trio
import trio.testing

import fakebroker
from fakebroker import ConfigError, FakeCluster, Scaled
from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.server.clock import ManualClock, RealClock, ScaledClock
from fakebroker.server.fake_cluster import internals
from tests.support.client.connection import Connection
from tests.support.group_requests import join_request, sync_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID, heartbeat_to, join_and_sync
from tests.support.wire_client import WireClient, until

SESSION_S = 45.0


def fetch(max_wait_ms: int) -> FetchRequest:
    """Return a Fetch of a topic without records, whose response is therefore delayed by `max_wait_ms`."""
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=partitions)]
    )


def stable(cluster: FakeCluster, group_id: str = "g") -> str:
    """Make a stable group of one member, and close its connection."""
    with WireClient(cluster.group(group_id).coordinator()) as wire:
        return join_and_sync(wire, group_id, session_timeout_ms=45_000)


def beat(cluster: FakeCluster, member_id: str, group_id: str = "g") -> ErrorCode:
    return heartbeat_to(cluster.group(group_id).coordinator(), group_id, member_id)


# The manual clock


@pytest.mark.fake_cluster(clock="manual")
def test_only_sessions_without_heartbeats_expire(fake_cluster: FakeCluster) -> None:
    steady, silent = stable(fake_cluster, "steady"), stable(fake_cluster, "silent")
    fake_cluster.advance(30)
    assert beat(fake_cluster, steady, "steady") is ErrorCode.NONE
    assert sessions(fake_cluster) == {silent: 15.0, steady: SESSION_S}
    fake_cluster.advance(15)
    assert beat(fake_cluster, silent, "silent") is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(fake_cluster, steady, "steady") is ErrorCode.NONE


def sessions(cluster: FakeCluster) -> dict[str, float]:
    """Return the remaining seconds of each member's session, by member id."""
    return {each.member_ids[0]: each.in_s for each in cluster.deadlines() if each.kind == "session"}


@pytest.mark.fake_cluster(clock="manual")
def test_advance_from_one_deadline_to_the_next(fake_cluster: FakeCluster) -> None:
    assert fake_cluster.advance_to_next_deadline() is None
    member_ids = tuple(stable(fake_cluster, group_id) for group_id in ("a", "b"))
    happened = fake_cluster.advance_to_next_deadline() or []
    assert [(each.kind, each.in_s) for each in happened] == [("session", SESSION_S)] * 2
    assert {each.member_ids for each in happened} == {(member_id,) for member_id in member_ids}
    assert [group.state for group in fake_cluster.groups()] == ["Empty", "Empty"]
    happened = fake_cluster.advance_to_next_deadline() or []
    partitions = {internals(fake_cluster).cluster.offsets_partition_of(group_id).index for group_id in ("a", "b")}
    assert {each.partition for each in happened if each.kind == "offsets_expiry"} == partitions
    assert sorted(each.group_id or "" for each in happened if each.kind == "offsets_removal") == ["a", "b"]
    assert len(happened) == len(partitions) + 2
    assert fake_cluster.groups() == []
    assert fake_cluster.advance_to_next_deadline() is None


def test_deadlines_expire_in_a_stopped_cluster() -> None:
    with FakeCluster(clock="manual") as cluster:
        stable(cluster)
    assert [each.kind for each in cluster.advance_to_next_deadline() or []] == ["session"]
    assert cluster.group("g").describe().state == "Empty"


@pytest.mark.fake_cluster(topics={"orders": 1}, brokers=1, clock="manual")
def test_a_fetch_waits_in_real_time(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        answer = wire.ask(fetch(max_wait_ms=20), FetchResponse, LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest])
    assert [each.topic for each in answer.responses] == ["orders"]
    assert fake_cluster.deadlines() == []


@pytest.mark.fake_cluster(brokers=1, clock="manual", partial_frame_timeout_s=0.02)
def test_an_incomplete_request_times_out_in_real_time(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.socket.sendall(struct.pack(">i", 100) + b"half")
        assert wire.is_closed_by_broker()


# Real and scaled clocks


@pytest.mark.fake_cluster(clock=Scaled(1_000))
def test_a_session_expires_by_the_scaled_clock(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.group("g").coordinator()) as wire:
        assert (
            wire.ask(join_request(session_timeout_ms=45_000), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID).generation_id
            == 1
        )
    # The group may be deleted by now: the check of expired offsets runs every 0.6 s at this speed.
    until(lambda: "Empty" in [moment.state_to for moment in fake_cluster.group("g").timeline().moments], fake_cluster)


def test_a_scaled_clock_does_not_change_real_time() -> None:
    clock, real_s = ScaledClock(10), 100.0
    clock.wire.follow(lambda: real_s)
    broker_ms, wire_ms = clock.now_ms(), clock.wire.now_ms()
    real_s += 3
    assert clock.now_ms() - broker_ms == pytest.approx(30_000)
    assert clock.wire.now_ms() - wire_ms == pytest.approx(3_000)
    assert clock.seconds_until(clock.now_ms() + 45_000) == pytest.approx(4.5)
    assert clock.seconds_until(clock.now_ms() - 1) == 0


def test_a_scaled_clock_equals_real_time_at_its_start() -> None:
    clock, real_s = ScaledClock(), 100.0
    clock.wire.follow(lambda: real_s)
    assert clock.now_ms() == clock.wire.now_ms()
    start_ms = clock.wire.now_ms() + 2_000
    clock.run_from(start_ms, 10)
    assert clock.now_ms() == pytest.approx(start_ms - 20_000)
    real_s += 2
    assert clock.now_ms() == pytest.approx(start_ms)
    real_s += 1
    assert clock.now_ms() == pytest.approx(start_ms + 10_000)
    assert clock.seconds_until(inf) == inf


def test_a_real_clock_continues_with_another_clock() -> None:
    clock, other_s = RealClock(), 5.0
    before_ms = clock.now_ms()
    clock.follow(lambda: other_s)
    followed_ms = clock.now_ms()
    assert followed_ms >= before_ms
    other_s += 1.5
    assert clock.now_ms() - followed_ms == pytest.approx(1_500)


@pytest.mark.parametrize("clock", ["real", Scaled(2)])
def test_only_the_manual_clock_can_be_advanced(clock: Any) -> None:
    with FakeCluster(clock=clock) as cluster:
        member_id = stable(cluster)
        session, expiry = cluster.deadlines()
        assert (session.kind, session.member_ids, expiry.kind) == ("session", (member_id,), "offsets_expiry")
        assert 0 < session.in_s <= SESSION_S
        for move in (cluster.advance_to_next_deadline, lambda: cluster.advance(1)):
            with pytest.raises(
                ConfigError,
                match=r"^clock=.*: expected 'manual': other clocks cannot be advanced",
            ):
                move()


def test_invalid_clocks_and_seconds_are_rejected() -> None:
    for factor in (0, -1, float("inf"), float("nan"), "fast"):
        with pytest.raises(ConfigError, match=r"^Scaled: factor=.*: expected a (finite number|number > 0)$"):
            Scaled(factor)  # type: ignore[arg-type]  # The type is wrong on purpose.
    with pytest.raises(ConfigError, match=r"^clock='slow': expected one of real, manual or a table \(such as"):
        FakeCluster(clock="slow")  # type: ignore[arg-type]  # The value is wrong on purpose.
    for seconds, expected in (
        (-1, "a number from 0 to 1000000000"),
        (float("nan"), "a finite number"),
        (float("inf"), "a finite number"),
        (1e300, "a number from 0 to 1000000000"),
        (1.1e9, "a number from 0 to 1000000000"),
    ):
        with pytest.raises(ConfigError, match=rf"^seconds={re.escape(repr(seconds))}: expected {expected}$"):
            ManualClock().advance(seconds)


def test_a_manual_clock_stops_before_the_year_10000() -> None:
    clock = ManualClock()
    for _ in range(251):
        clock.advance(1e9)
    with pytest.raises(ConfigError, match=r"^seconds=1000000000\.0: expected a number from 0 to [0-9]{9}$"):
        clock.advance(1e9)
    assert datetime.fromtimestamp(clock.now_ms() / 1000, UTC).year > 9000


def test_scaled_is_public() -> None:
    assert fakebroker.Scaled is Scaled


# trio's clock


def in_mock_time(test: Any, **how: float) -> trio.testing.MockClock:
    """Run an async test with a `MockClock`.

    With sockets, `autojump_threshold` must be above 0: the clock jumps after this many seconds without activity.
    """
    clock = trio.testing.MockClock(**how)
    trio.run(test, clock, clock=clock)
    return clock


async def async_stable(cluster: FakeCluster, nursery: trio.Nursery) -> Connection:
    """Make a stable group of one member, in a trio task."""
    broker = cluster.group("g").coordinator()
    connection = await Connection.open(broker.host, broker.port, "app", nursery)
    rejected = await connection.request(join_request(session_timeout_ms=45_000))
    request = join_request(session_timeout_ms=45_000)
    request.member_id = rejected.member_id
    joined = await connection.request(request)
    assert (
        await connection.request(sync_request(joined.member_id, assignments={joined.member_id: b"all"}))
    ).assignment == b"all"
    return connection


@pytest.mark.parametrize("clock", ["real", Scaled(10)])
def test_a_session_expires_by_trios_clock(clock: Any) -> None:
    cluster = FakeCluster(clock=clock)
    real_s = SESSION_S if clock == "real" else SESSION_S / 10

    async def main(_: trio.testing.MockClock) -> None:
        async with cluster, trio.open_nursery() as nursery:
            connection = await async_stable(cluster, nursery)
            await trio.sleep(real_s * 0.99)
            assert cluster.group("g").describe().state == "Stable"
            await trio.sleep(real_s * 0.02)
            assert cluster.group("g").describe().state == "Empty"
            await connection.aclose()

    in_mock_time(main, autojump_threshold=0.02)
    assert cluster.group("g").describe().state == "Empty", "state can be read after the cluster stopped"
    assert [each.kind for each in cluster.deadlines()] == ["offsets_removal", "offsets_expiry"]


def test_a_test_moves_trios_clock() -> None:
    async def main(clock: trio.testing.MockClock) -> None:
        async with FakeCluster() as cluster, trio.open_nursery() as nursery:
            connection = await async_stable(cluster, nursery)
            (session, _) = cluster.deadlines()
            assert session.in_s == SESSION_S
            clock.jump(SESSION_S)
            await trio.testing.wait_all_tasks_blocked()
            assert cluster.group("g").describe().state == "Empty"
            await connection.aclose()

    in_mock_time(main)


def test_reading_state_does_not_wake_the_reactor(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    async def main(_: trio.testing.MockClock) -> None:
        async with FakeCluster() as cluster, trio.open_nursery() as nursery:
            connection = await async_stable(cluster, nursery)
            await trio.testing.wait_all_tasks_blocked()
            with monkeypatch.context() as patch:
                patch.setattr(cluster._server.reactor, "_turn", lambda: turns.append("turn"))
                assert cluster.group("g").describe().state == "Stable"
                await trio.testing.wait_all_tasks_blocked()
            assert turns == []
            await connection.aclose()

    in_mock_time(main)


@pytest.mark.parametrize("clock", ["real", "manual", Scaled(10)])
def test_a_fetch_waits_by_trios_clock(clock: Any) -> None:
    waited_s: list[float] = []

    async def main(_: trio.testing.MockClock) -> None:
        async with FakeCluster(brokers=1, topics={"orders": 1}, clock=clock) as cluster, trio.open_nursery() as nursery:
            connection = await Connection.open(cluster.brokers[0].host, cluster.brokers[0].port, "app", nursery)
            started_s = trio.current_time()
            await connection.request(fetch(max_wait_ms=500_000))
            waited_s.append(trio.current_time() - started_s)
            await connection.aclose()

    in_mock_time(main, autojump_threshold=0.02)
    assert waited_s == pytest.approx([500])
