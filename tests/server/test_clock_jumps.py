"""The wall clock is set while clients run, and the process stands still.

Kafka has two clocks: timers follow a monotonic one (`Time.hiResClockMs`), timestamps the wall clock. Here both follow a
monotonic clock, which equals the wall clock at the start: steps of the wall clock change nothing.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.server.clock import RealClock
from fakebroker.server.fake_cluster import internals
from tests.support.control.serve_process import serve_process
from tests.support.group_requests import heartbeat_request
from tests.support.groups_over_tcp import heartbeat, join_and_sync
from tests.support.kafka_clients.client import Record, Settings
from tests.support.kafka_clients.confluent_client import ConfluentConsumer, produce
from tests.support.kafka_clients.fakebroker_client import FakebrokerConsumer
from tests.support.kafka_clients.helpers import committed_total, numbered, poll_records, values
from tests.support.soak import soak_only
from tests.support.wire_client import TIMEOUT_S, WireClient, until

SESSION_S = 45.0
HOUR_S = 3600.0
STOPPED_S = 60.0
VALUES = [f"value {number}" for number in range(10)]


@contextmanager
def wall_clock_set(monkeypatch: pytest.MonkeyPatch, by_s: float) -> Iterator[None]:
    """Set the wall clock of this process forward or back."""
    wall_s = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: wall_s() + by_s)
        yield


@pytest.mark.fake_cluster(topics={"orders": 2}, brokers=1, config={"log.message.timestamp.type": "LogAppendTime"})
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_steps_of_the_wall_clock_change_nothing(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    settings = Settings(group_id="consumer", session_timeout_ms=int(SESSION_S * 1000))
    with (
        WireClient(fake_cluster.brokers[0]) as wire,
        closing(FakebrokerConsumer(fake_cluster.bootstrap_servers, settings)) as consumer,
    ):
        member_id = join_and_sync(wire, "g", session_timeout_ms=int(SESSION_S * 1000))
        consumer.subscribe("orders")
        fake_cluster.topic("orders").produce(VALUES)
        poll_records(fake_cluster, 10, consumer)
        before_ms = internals(fake_cluster).server.clock.now_ms()
        with wall_clock_set(monkeypatch, by_s):
            assert heartbeat(wire, "g", member_id) == ErrorCode.NONE
            (session,) = [each for each in fake_cluster.deadlines() if each.kind == "session" and each.group_id == "g"]
            assert 0 < session.in_s <= SESSION_S
            fake_cluster.topic("orders").produce(VALUES)
            received = poll_records(fake_cluster, 10, consumer)
            consumer.commit()
        assert len(received) == 10
        assert committed_total(fake_cluster, "consumer") == 20
        assert all(abs((each.timestamp_ms or 0) - before_ms) < HOUR_S / 2 * 1000 for each in received)
        assert fake_cluster.group("consumer").describe().generation_id == 1


@pytest.mark.fake_cluster(brokers=1)
def test_a_heartbeat_that_waits_while_the_process_stands_still_keeps_its_session(fake_cluster: FakeCluster) -> None:
    # In Kafka, too: the heartbeat cancels the timer, if it is handled first.
    clock, stood_still_s = internals(fake_cluster).server.clock, [0.0]
    assert isinstance(clock, RealClock)
    read_s = clock._read_s
    internals(fake_cluster).run(lambda: clock.follow(lambda: read_s() + stood_still_s[0]))
    with WireClient(fake_cluster.brokers[0]) as wire:
        alive = join_and_sync(wire, "alive", session_timeout_ms=int(SESSION_S * 1000))
        gone = join_and_sync(wire, "gone", session_timeout_ms=int(SESSION_S * 1000))

        def stand_still() -> None:
            wire.send(heartbeat_request("alive", alive))
            stood_still_s[0] = STOPPED_S
            has_stood_still.set()

        has_stood_still = threading.Event()
        # In the cluster's thread, which looks at its sockets before it looks at timers again.
        internals(fake_cluster).run(lambda: trio.lowlevel.current_trio_token().run_sync_soon(stand_still))
        assert has_stood_still.wait(TIMEOUT_S)
        beat = wire.receive()
        assert isinstance(beat, HeartbeatResponse)
        assert beat.error_code == ErrorCode.NONE
        until(lambda: fake_cluster.group("gone").describe().state == "Empty", fake_cluster)
        assert heartbeat(wire, "gone", gone) == ErrorCode.UNKNOWN_MEMBER_ID
        assert fake_cluster.group("alive").describe().state == "Stable"


@pytest.mark.slow
@soak_only("waits for a minute")
def test_members_come_back_after_the_process_was_stopped_for_a_minute() -> None:
    with serve_process("--topic", "orders:4") as server:
        servers = server.bootstrap_servers
        settings = Settings(group_id="g", session_timeout_ms=6_000)
        with closing(ConfluentConsumer(servers, settings)) as one, closing(ConfluentConsumer(servers, settings)) as two:
            for each in (one, two):
                each.subscribe("orders")
            exchange(servers, 0, one, two)
            server.process.send_signal(signal.SIGSTOP)
            os.waitpid(server.process.pid, os.WUNTRACED)
            threading.Event().wait(STOPPED_S)
            server.process.send_signal(signal.SIGCONT)
            exchange(servers, 60, one, two)
            assert len(one.assignment()) == len(two.assignment()) == 2
            assert sum(one.committed(("orders", index)) or 0 for index in range(4)) == 120


def exchange(servers: str, first: int, one: ConfluentConsumer, two: ConfluentConsumer) -> None:
    """Wait until both members have partitions; then produce records, which they receive once and commit."""
    deadline_s = time.monotonic() + 2 * STOPPED_S
    while not (len(one.assignment()) == len(two.assignment()) == 2 and _can_commit(one, two)):
        assert time.monotonic() < deadline_s
        assert one.poll() + two.poll() == []
    sent = numbered(range(first, first + 60))
    produce(servers, "orders", sent, None)
    received: list[Record] = []
    while len(received) < len(sent):
        assert time.monotonic() < deadline_s
        received += one.poll() + two.poll()
    assert values(received) == values(sent)
    for each in (one, two):
        each.commit()


def _can_commit(*members: ConfluentConsumer) -> bool:
    """Return whether all are members of the current generation."""
    try:
        for each in members:
            each.commit()
    except KafkaException as error:
        return int(error.args[0].code()) == KafkaError._NO_OFFSET
    return True
