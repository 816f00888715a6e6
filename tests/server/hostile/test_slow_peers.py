"""Peers that send too slowly, do not read, or disappear; and many of them."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from fakebroker import FakeCluster
from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import heartbeat_request, join_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID
from tests.support.server.bystander import MIB, unharmed
from tests.support.soak import examples, soak
from tests.support.wire_client import WireClient, until

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})


@contextmanager
def connections(cluster: FakeCluster, count: int) -> Iterator[list[WireClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(WireClient(cluster.brokers[0])) for _ in range(count)]


def test_a_byte_at_a_time(fake_cluster: FakeCluster) -> None:
    """The pieces of a request take little more memory than the request."""
    request = request_frame(heartbeat_request("g" * 20_000), 4, 1, "x")
    with unharmed(fake_cluster, max_peak_bytes=4 * MIB) as bystander, WireClient(fake_cluster.brokers[0]) as slow:
        slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(0, len(request), 2):
            slow.socket.sendall(request[index : index + 2])
            if index % 1000 == 0:
                bystander.check()
        assert struct.unpack(">i", slow.receive_frame()[:4]) == (1,)
        slow.socket.close()


@pytest.mark.fake_cluster(partial_frame_timeout_s=0.2)
def test_halves_of_requests(fake_cluster: FakeCluster) -> None:
    whole = request_frame(heartbeat_request(), 4, 1, "x")
    halves = [struct.pack(">i", 50 * MIB) + b"x", whole[:3], whole[:-1], whole + whole[:5]]
    with unharmed(fake_cluster) as bystander, connections(fake_cluster, 40) as peers:
        for index, peer in enumerate(peers):
            peer.socket.sendall(halves[index % len(halves)])
            bystander.check()
        for index, peer in enumerate(peers):
            if index % len(halves) == 3:
                assert peer.receive_frame()
            assert peer.is_closed_by_broker()
            peer.socket.close()


@soak
def test_connections_without_a_word(fake_cluster: FakeCluster) -> None:
    """They are closed after ten minutes, which pass for them here at once."""
    count = examples(100, soak=400)
    reactor = fake_cluster._server.reactor

    def let_time_pass() -> None:
        for connection in reactor.connections.values():
            connection.active_ms -= 600_000
        reactor._limits._timers.set(reactor._limits._next_check, 0.0)

    with unharmed(fake_cluster) as bystander, connections(fake_cluster, count) as silent:
        until(lambda: len(reactor.connections) == count + 1, fake_cluster)
        bystander.check()
        internals(fake_cluster).run(let_time_pass)
        bystander.check()
        assert all(peer.is_closed_by_broker() for peer in silent)
        for peer in silent:
            peer.socket.close()


@soak
def test_connections_that_are_opened_and_dropped(fake_cluster: FakeCluster) -> None:
    with unharmed(fake_cluster) as bystander:
        for index in range(examples(1000, soak=10_000)):
            with WireClient(fake_cluster.brokers[0]) as wire:
                if index % 3 == 0:  # Reset instead of closed.
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif index % 3 == 1:
                    wire.socket.sendall(b"\0")
            if index % 100 == 0:
                bystander.check()


@soak
def test_pipelined_requests_whose_responses_are_not_read(fake_cluster: FakeCluster) -> None:
    count = examples(10_000, soak=100_000)
    request = request_frame(heartbeat_request(), 4, 1, "x")
    with unharmed(fake_cluster) as bystander, WireClient(fake_cluster.brokers[0]) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(0, count, 1000):
            deaf.socket.sendall(request * 1000)
            bystander.check()
        for _ in range(count):
            assert len(deaf.receive_frame()) == 12
        deaf.socket.close()


@pytest.mark.fake_cluster(max_unsent_bytes=MIB)
def test_large_responses_that_are_not_read(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("orders").produce(["x" * 500_000])
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[partition])])
    with unharmed(fake_cluster) as bystander, WireClient(fake_cluster.brokers[0]) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(OSError):
            for _ in range(200):
                deaf.send(fetch, LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest])
                bystander.check()
        assert bystander.answers < 100, "the connection was not closed"
        deaf.socket.close()


@soak
def test_members_that_vanish_while_their_join_is_parked(fake_cluster: FakeCluster) -> None:
    """Their group gives them up after their session timeout; their connections and responses are gone at once."""
    count = examples(30, soak=1000)
    with unharmed(fake_cluster) as bystander, WireClient(fake_cluster.brokers[0]) as first:
        joined = first.ask(join_request(), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID)
        for index in range(count):
            with WireClient(fake_cluster.brokers[0]) as wire:
                wire.send(join_request(), JOIN_WITHOUT_MEMBER_ID)
                expected = index + 2
                until(lambda: len(fake_cluster.group("g").describe().members) == expected, fake_cluster)  # noqa: B023  # called here only
            bystander.check()
        assert first.ask(heartbeat_request("g", joined.member_id), HeartbeatResponse).error_code == 27
        first.socket.close()


@soak
def test_consumers_that_vanish_while_their_fetch_waits(fake_cluster: FakeCluster) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    fetch = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics)
    with unharmed(fake_cluster) as bystander:
        for _ in range(examples(100, soak=10_000)):
            with WireClient(fake_cluster.brokers[0]) as wire:
                wire.send(fetch, LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest])
                bystander.check()
        purgatory = internals(fake_cluster).cluster.purgatory
        until(lambda: internals(fake_cluster).run(lambda: len(purgatory)) == 0, fake_cluster)
