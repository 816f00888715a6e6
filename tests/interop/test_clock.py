"""A session of 45 seconds ends without anybody waiting for it: the brokers' time is moved, the clients' runs on.

A jump of the clock ends every session that is shorter, for no client can send a heartbeat within it. So the member that
is to live on gets the time to send one between two steps; the other one is frozen meanwhile, as by a long pause of its
garbage collector.
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
from tests.support.kafka_clients.helpers import poll_until, shares

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
"""A consumer in a process of its own, which can be stopped."""


@pytest.fixture
def frozen(fake_cluster: FakeCluster) -> Iterator[subprocess.Popen[bytes]]:
    """A member that can be frozen; it is killed when the test is over."""
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
    """How long each client's session still lasts, in seconds."""
    clients = {member.member_id: member.client_id for member in cluster.group("g").members}
    pending = [each for each in cluster.pending_deadlines() if each.kind == "session"]
    return {clients[each.member_ids[0]]: each.in_s for each in pending}


def wait_for_shares(cluster: FakeCluster, steady: ConfluentConsumer, *partitions: int) -> None:
    """Until the members have so many partitions each, and the steady one knows."""

    def is_shared(_: list[Record]) -> bool:
        return len(steady.assignment()) == partitions[0] and shares(cluster, "g") == list(partitions)

    poll_until(cluster, f"shares of {partitions}", is_shared, steady)


def freeze(process: subprocess.Popen[bytes], steady: ConfluentConsumer) -> None:
    """Stop a process; what it has sent before has reached the brokers."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    steady.committed(("orders", 0))  # Brokers read in the order in which things come: this is answered later.


def test_one_member_is_expired_and_comes_back(
    fake_cluster: FakeCluster, steady: ConfluentConsumer, frozen: subprocess.Popen[bytes]
) -> None:
    wait_for_shares(fake_cluster, steady, 3, 3)
    freeze(frozen, steady)
    fake_cluster.advance(SESSION_S - 1)
    poll_until(fake_cluster, "a heartbeat", lambda _: sessions(fake_cluster)["steady"] == SESSION_S, steady)
    assert sessions(fake_cluster) == {"frozen": 1, "steady": SESSION_S}

    (expired,) = fake_cluster.advance_to_next_deadline() or []
    assert (expired.kind, expired.in_s) == ("session", 1)
    assert [member.client_id for member in fake_cluster.group("g").members] == ["steady"]
    wait_for_shares(fake_cluster, steady, 6)

    frozen.send_signal(signal.SIGCONT)
    wait_for_shares(fake_cluster, steady, 3, 3)
    errors = [call.response.error_code for call in fake_cluster.requests("Heartbeat", "frozen") if call.response]
    assert ErrorCode.UNKNOWN_MEMBER_ID in errors
