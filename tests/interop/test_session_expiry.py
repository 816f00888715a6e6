"""A session of 45 seconds expires by the manual clock of the brokers, while clients use real time.

Advancing the clock expires all shorter sessions, because no heartbeat is handled meanwhile. So it is advanced in two
steps: between them the steady member sends a heartbeat, the other one is frozen, as in a long garbage collection.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from tests.support.kafka_clients.client import Record, Settings
from tests.support.kafka_clients.confluent_client import ConfluentConsumer
from tests.support.kafka_clients.helpers import partitions_per_member, poll_until

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")]

SESSION_S = 45

FROZEN = """
import sys
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": sys.argv[1],
    "group.id": "g",
    "client.id": "frozen",
    "session.timeout.ms": 45000,
    "heartbeat.interval.ms": 200,
    "fetch.wait.max.ms": 100,
})
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.05)
"""
"""A consumer in another process, which SIGSTOP freezes."""


@pytest.fixture
def frozen(fake_cluster: FakeCluster) -> Iterator[subprocess.Popen[bytes]]:
    """A member that can be frozen; killed after the test."""
    with subprocess.Popen([sys.executable, "-c", FROZEN, fake_cluster.bootstrap_servers]) as process:
        yield process
        process.kill()


@pytest.fixture
def steady(fake_cluster: FakeCluster) -> Iterator[ConfluentConsumer]:
    """A member in this process."""
    settings = Settings(group_id="g", client_id="steady", session_timeout_ms=SESSION_S * 1000)
    consumer = ConfluentConsumer(fake_cluster.bootstrap_servers, settings, {"heartbeat.interval.ms": 200})
    consumer.subscribe("orders")
    yield consumer
    consumer.close()


def sessions(cluster: FakeCluster) -> dict[str, float]:
    """Return the remaining seconds of each session, by client id."""
    clients = {member.member_id: member.client_id for member in cluster.group("g").describe().members}
    pending = [each for each in cluster.deadlines() if each.kind == "session"]
    return {clients[each.member_ids[0]]: each.in_s for each in pending}


def wait_for_partitions(cluster: FakeCluster, steady: ConfluentConsumer, *partitions: int) -> None:
    """Wait until the members have these numbers of partitions, and the steady one knows."""

    def is_shared(_: list[Record]) -> bool:
        return len(steady.assignment()) == partitions[0] and partitions_per_member(cluster, "g") == list(partitions)

    poll_until(cluster, f"{partitions} partitions per member", is_shared, steady)


def freeze(process: subprocess.Popen[bytes], steady: ConfluentConsumer) -> None:
    """Freeze a process, and wait until the brokers have handled its earlier requests."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    steady.committed(("orders", 0))  # Brokers handle requests in the order of arrival.


def test_an_expired_member_rejoins(
    fake_cluster: FakeCluster, steady: ConfluentConsumer, frozen: subprocess.Popen[bytes]
) -> None:
    wait_for_partitions(fake_cluster, steady, 3, 3)
    freeze(frozen, steady)
    fake_cluster.advance(SESSION_S - 1)
    poll_until(fake_cluster, "a heartbeat", lambda _: sessions(fake_cluster)["steady"] == SESSION_S, steady)
    assert sessions(fake_cluster) == {"frozen": 1, "steady": SESSION_S}

    (expired,) = fake_cluster.advance_to_next_deadline() or []
    assert (expired.kind, expired.in_s) == ("session", 1)
    assert [member.client_id for member in fake_cluster.group("g").describe().members] == ["steady"]
    wait_for_partitions(fake_cluster, steady, 6)

    frozen.send_signal(signal.SIGCONT)
    wait_for_partitions(fake_cluster, steady, 3, 3)
    errors = [
        call.response.error_code for call in fake_cluster.journal.requests("Heartbeat", "frozen") if call.response
    ]
    assert ErrorCode.UNKNOWN_MEMBER_ID in errors


def test_a_member_whose_heartbeat_arrives_late_expires_and_rejoins(
    fake_cluster: FakeCluster, steady: ConfluentConsumer
) -> None:
    wait_for_partitions(fake_cluster, steady, 6)
    fault = fake_cluster.inject_fault("Heartbeat", delay_before_s=SESSION_S + 15, times=1)
    poll_until(fake_cluster, "the late heartbeat", lambda _: fault.hits == 1, steady)
    fake_cluster.advance(SESSION_S)
    assert fake_cluster.group("g").describe().state == "Empty"
    fake_cluster.advance(15)
    wait_for_partitions(fake_cluster, steady, 6)
    (late,) = [call for call in fake_cluster.journal.requests("Heartbeat") if call.fault is not None]
    assert late.errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert late.handled_ms == late.received_ms + (SESSION_S + 15) * 1000
