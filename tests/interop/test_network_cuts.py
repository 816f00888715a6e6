"""The network between one member of a group and the brokers is cut, delayed and reset; another member goes on.

The brokers' clock is manual: the session of the member expires when the test says so. Each broker has two listeners,
and the network of one of them is cut.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from tests.support.kafka_clients.client import Consumer, GroupConsumer, Settings
from tests.support.kafka_clients.confluent_client import ConfluentConsumer, produce
from tests.support.kafka_clients.fakebroker_client import FakebrokerConsumer
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
)
from tests.support.network_proxy import PROXY_HOST, Proxy

PARTITIONS, SESSION_S = 6, 45
DIRECT, CUT = "DIRECT", "CUT"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason=f"{PROXY_HOST} exists on Linux only"),
    pytest.mark.fake_cluster(
        brokers=2,
        topics={"orders": PARTITIONS},
        clock="manual",
        advertised_host=PROXY_HOST,
        listeners={DIRECT: "PLAINTEXT", CUT: "PLAINTEXT"},
    ),
]


class Network:
    """The networks of both listeners of all brokers. The brokers' ports are those of the proxies."""

    def __init__(self, cluster: FakeCluster, stack: ExitStack) -> None:
        def proxies(listener: str) -> list[Proxy]:
            servers = cluster.bootstrap_servers_of(listener).split(",")
            return [stack.enter_context(Proxy(int(each.rpartition(":")[2]))) for each in servers]

        proxies(DIRECT)
        self.of_member = proxies(CUT)

    def cut(self) -> None:
        for each in self.of_member:
            each.cut()

    def heal(self) -> None:
        for each in self.of_member:
            each.heal()

    def reset(self) -> None:
        for each in self.of_member:
            each.reset()

    def delay(self, seconds: float) -> None:
        for each in self.of_member:
            each.delay_s = seconds


@pytest.fixture
def network(fake_cluster: FakeCluster) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(fake_cluster, stack)


@pytest.fixture
def steady(fake_cluster: FakeCluster, network: Network) -> Iterator[Consumer]:
    """A member whose network is never cut."""
    with closing(ConfluentConsumer(fake_cluster.bootstrap_servers_of(DIRECT), settings("steady"))) as consumer:
        consumer.subscribe("orders")
        yield consumer


@pytest.fixture(params=[ConfluentConsumer, FakebrokerConsumer])
def member(request: pytest.FixtureRequest, fake_cluster: FakeCluster, network: Network) -> Iterator[GroupConsumer]:
    """A member whose network can be cut."""
    consumer = request.param(fake_cluster.bootstrap_servers_of(CUT), settings("member"))
    with closing(consumer):
        consumer.subscribe("orders")
        yield consumer


def settings(client_id: str) -> Settings:
    return Settings(group_id="g", client_id=client_id, session_timeout_ms=SESSION_S * 1000)


def wait_for_partitions(cluster: FakeCluster, partitions: list[int], *members: GroupConsumer) -> None:
    """Wait until the members have these numbers of partitions, and know it."""
    poll_until(
        cluster,
        f"{partitions} partitions per member",
        lambda _: (
            partitions_per_member(cluster, "g") == partitions
            and sorted(len(each.assignment()) for each in members) == partitions
        ),
        *members,
    )


def session_s(cluster: FakeCluster, client_id: str) -> float:
    """Return the remaining seconds of the session of a client."""
    ids = [each.member_id for each in cluster.group("g").describe().members if each.client_id == client_id]
    pending = [each for each in cluster.deadlines() if each.kind == "session"]
    return next(each.in_s for each in pending if each.member_ids[0] in ids)


def exchange(cluster: FakeCluster, first: int, *members: GroupConsumer) -> None:
    """Produce 60 records, which the members receive once each and commit."""
    sent = numbered(range(first, first + 60))
    produce(cluster.bootstrap_servers_of(DIRECT), "orders", sent, None)
    received = poll_records(cluster, len(sent), *members)
    assert values(received) == values(sent)
    for each in members:
        each.commit()
    assert committed_total(cluster, "g") == first + 60


def test_a_member_without_network_loses_its_partitions_and_comes_back(
    fake_cluster: FakeCluster, network: Network, steady: Consumer, member: GroupConsumer
) -> None:
    wait_for_partitions(fake_cluster, [3, 3], steady, member)
    exchange(fake_cluster, 0, steady, member)

    network.cut()
    steady.committed(("orders", 0))  # Heartbeats that have passed the proxies before are handled before this request.
    fake_cluster.advance(SESSION_S - 1)
    poll_until(fake_cluster, "a heartbeat", lambda _: session_s(fake_cluster, "steady") == SESSION_S, steady)
    fake_cluster.advance_to_next_deadline()
    assert [each.client_id for each in fake_cluster.group("g").describe().members] == ["steady"]
    wait_for_partitions(fake_cluster, [6], steady)
    exchange(fake_cluster, 60, steady)

    network.heal()
    wait_for_partitions(fake_cluster, [3, 3], steady, member)
    exchange(fake_cluster, 120, steady, member)
    refused = [each for each in fake_cluster.journal.requests("Heartbeat", "member") if each.errors]
    assert any(ErrorCode.UNKNOWN_MEMBER_ID in each.errors for each in refused)


def test_resets_and_delays_cost_neither_membership_nor_commits(
    fake_cluster: FakeCluster, network: Network, steady: GroupConsumer, member: GroupConsumer
) -> None:
    wait_for_partitions(fake_cluster, [3, 3], steady, member)
    exchange(fake_cluster, 0, steady, member)
    before = fake_cluster.group("g").describe()

    network.reset()
    exchange(fake_cluster, 60, steady, member)
    network.delay(0.02)
    network.reset()
    exchange(fake_cluster, 120, steady, member)
    after = fake_cluster.group("g").describe()
    assert (after.generation_id, {each.member_id for each in after.members}) == (
        before.generation_id,
        {each.member_id for each in before.members},
    )
