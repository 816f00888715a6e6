"""Kafka's limits of connections and of queued requests, over sockets; rates and idleness in virtual time."""

import errno
import math
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest

from fakebroker import ConfigError, ErrorCode, FakeCluster
from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.listeners import PLAINTEXT_LISTENER
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from fakebroker.server.connections.connection import Connection
from fakebroker.server.connections.connection_limits import ConnectionLimits
from fakebroker.server.fake_cluster import internals
from fakebroker.server.reactor import Reactor
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import heartbeat_request
from tests.support.server.bystander import MIB, unharmed
from tests.support.wire_client import WireClient, until

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})

TWO_LISTENERS: Mapping[str, str] = {"PLAINTEXT": "PLAINTEXT", "CLIENTS": "PLAINTEXT"}
SMALL_REQUEST = request_frame(heartbeat_request(), 4, 1, "x")
_BROKER = 4


class ListenerAddress:
    """Where a listener of the only broker listens."""

    def __init__(self, cluster: FakeCluster, listener: str) -> None:
        address = cluster.bootstrap_servers_of(listener).split(",")[0]
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)


def ask(wire: WireClient) -> None:
    """Send a heartbeat, which any broker refuses: there is no such member."""
    errors = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR
    assert wire.ask(heartbeat_request(), HeartbeatResponse).error_code in errors


def open_connections(cluster: FakeCluster) -> int:
    return internals(cluster).run(lambda: len(reactor_of(cluster).connections))


def reactor_of(cluster: FakeCluster) -> Reactor:
    return cluster._server.reactor  # no public view shows connections


def fetch() -> FetchRequest:
    """Return a Fetch that waits for ten minutes."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    return FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics)


def alter(wire: WireClient, node_id: str = "", **configs: str) -> None:
    """Alter configs of one broker, or of all."""
    altered = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value) for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name=node_id, configs=altered)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = wire.ask(request, IncrementalAlterConfigsResponse).responses
    assert response.error_code == 0, response.error_message


@pytest.mark.fake_cluster(config={"max.connections.per.ip": 2})
def test_too_many_connections_from_one_address_are_closed_at_once(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with unharmed(fake_cluster) as bystander, WireClient(broker) as second:
        ask(second)
        for _ in range(10):
            with WireClient(broker) as third:
                assert third.is_closed_by_broker()
            bystander.check()
        alter(second, max_connections_per_ip_overrides="10.0.0.1:1, localhost:3")
        with WireClient(broker) as third, WireClient(broker) as fourth:
            ask(third)
            assert fourth.is_closed_by_broker()
        second.socket.close()
        until(lambda: open_connections(fake_cluster) == 1, fake_cluster)
        with WireClient(broker) as again:
            ask(again)


@pytest.mark.fake_cluster(config={"max.connections": 2})
def test_connections_beyond_the_maximum_wait(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with unharmed(fake_cluster) as bystander, WireClient(broker) as second:
        ask(second)
        with WireClient(broker) as third, WireClient(broker) as fourth:
            third.send(heartbeat_request())
            for _ in range(5):
                bystander.check()
            assert open_connections(fake_cluster) == 2
            second.socket.close()
            assert isinstance(third.receive(), HeartbeatResponse)
            fourth.send(heartbeat_request())
            alter(third, max_connections="3")  # Waiting connections notice it.
            assert isinstance(fourth.receive(), HeartbeatResponse)


def test_a_lower_maximum_closes_the_least_recently_used_connections(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = fake_cluster.brokers[0]
    with ExitStack() as stack:
        wires = [stack.enter_context(WireClient(broker)) for _ in range(6)]
        for index in (3, 0, 4, 2, 5, 1):
            ask(wires[index])
        before = fake_cluster.snapshot()
        alter(wires[1], max_connections="4")
        assert wires[3].is_closed_by_broker()
        assert wires[0].is_closed_by_broker()
        for index in (4, 2, 5, 1):
            ask(wires[index])
        assert open_connections(fake_cluster) == 4
        reason = "closed: max.connections is exceeded, and it was the least recently used"
        assert [each.getMessage().endswith(reason) for each in caplog.records] == [True, True]
        fake_cluster.restore(before)
        with WireClient(broker) as another:
            ask(another)


@pytest.mark.fake_cluster(brokers=2)
def test_a_lower_maximum_of_one_broker_closes_only_its_connections(fake_cluster: FakeCluster) -> None:
    one, two = fake_cluster.brokers
    with WireClient(one) as first, WireClient(one) as second, WireClient(two) as third, WireClient(two) as fourth:
        for wire in (first, second, third, fourth):
            ask(wire)
        alter(fourth, "2", max_connections="1")
        assert third.is_closed_by_broker()
        for wire in (first, second, fourth):
            ask(wire)


@pytest.mark.fake_cluster(listeners=TWO_LISTENERS)
def test_a_lower_maximum_closes_no_connection_of_brokers(fake_cluster: FakeCluster) -> None:
    """Neither does that of an address or a listener, as in Kafka: they count for new connections."""
    clients = ListenerAddress(fake_cluster, "CLIENTS")
    with WireClient(fake_cluster.brokers[0]) as one, WireClient(clients) as two, WireClient(clients) as three:
        for wire in (one, two, three):
            ask(wire)
        alter(one, max_connections_per_ip="1")
        alter(one, "1", listener_name_clients_max_connections="1")
        for wire in (one, two, three):
            ask(wire)
        alter(three, max_connections="1")
        assert two.is_closed_by_broker()
        assert three.is_closed_by_broker()
        ask(one)


@pytest.mark.fake_cluster(brokers=2, config={"max.connections": 1})
def test_a_broker_that_stops_while_connections_wait_leaves_the_reactor_asleep(fake_cluster: FakeCluster) -> None:
    reactor = reactor_of(fake_cluster)
    with WireClient(fake_cluster.brokers[0]), WireClient(fake_cluster.brokers[0]):
        until(lambda: internals(fake_cluster).run(lambda: reactor._acceptor.retry_ms) < math.inf, fake_cluster)
        fake_cluster.broker(1).stop()
        assert internals(fake_cluster).run(lambda: reactor._acceptor.retry_ms) == math.inf


class ExhaustedSocket:
    """A listening socket of a process that cannot open another file."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.is_exhausted = sock, True

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._sock.accept()

    def close(self) -> None:
        self._sock.close()


def test_connections_wait_while_there_are_too_many_open_files(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    acceptor, broker = reactor_of(fake_cluster)._acceptor, fake_cluster.brokers[0]

    def exhaust() -> ExhaustedSocket:
        ((fd, (sock, *owner)),) = acceptor._listening.items()
        listening = ExhaustedSocket(sock)
        cast("dict[int, Any]", acceptor._listening)[fd] = (listening, *owner)
        return listening

    with WireClient(broker) as first, WireClient(broker) as second:
        ask(first)
        ask(second)
        listening = internals(fake_cluster).run(exhaust)
        with WireClient(broker) as third:
            third.send(heartbeat_request())
            for _ in range(2):
                until(lambda: internals(fake_cluster).run(lambda: bool(acceptor._waiting)), fake_cluster)
                internals(fake_cluster).run(acceptor.resume)
                ask(first)
            listening.is_exhausted = False
            second.socket.close()
            assert isinstance(third.receive(), HeartbeatResponse)
    assert [each.getMessage() for each in caplog.records] == [
        "new connections are not accepted until files are closed: Too many open files (raise the limit of open files)"
    ]


@pytest.mark.fake_cluster(listeners=TWO_LISTENERS, config={"listener.name.clients.max.connections": 1})
def test_the_maximum_of_a_listener_is_its_own(fake_cluster: FakeCluster) -> None:
    clients = ListenerAddress(fake_cluster, "CLIENTS")
    with unharmed(fake_cluster) as bystander, WireClient(clients) as first, WireClient(clients) as second:
        ask(first)
        second.send(heartbeat_request())
        with WireClient(fake_cluster.brokers[0]) as other:
            ask(other)
        bystander.check()
        assert open_connections(fake_cluster) <= 3
        first.socket.close()
        assert isinstance(second.receive(), HeartbeatResponse)
        second.socket.close()


@pytest.mark.fake_cluster(listeners=TWO_LISTENERS, config={"max.connections": 3})
def test_the_listener_of_brokers_replaces_the_least_recently_used_connection_of_another(
    fake_cluster: FakeCluster,
) -> None:
    clients = ListenerAddress(fake_cluster, "CLIENTS")
    with unharmed(fake_cluster) as bystander, WireClient(clients) as first, WireClient(clients) as second:
        ask(second)
        ask(first)
        with WireClient(fake_cluster.brokers[0]) as broker:
            ask(broker)
            assert second.is_closed_by_broker()
            ask(first)
            bystander.check()
        first.socket.close()
        second.socket.close()


@pytest.mark.fake_cluster(config={"socket.request.max.bytes": MIB, "queued.max.request.bytes": MIB})
def test_requests_wait_for_the_memory_of_incomplete_ones(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    request = request_frame(heartbeat_request("g" * 30_000), 4, 1, "x")
    with unharmed(fake_cluster) as bystander, WireClient(broker) as greedy, WireClient(broker) as patient:
        greedy.socket.sendall(struct.pack(">i", MIB) + b"x" * 1000)
        until(lambda: held_bytes(fake_cluster) == 1004, fake_cluster)
        patient.socket.sendall(request[:1000])
        until(lambda: held_bytes(fake_cluster) == 2004, fake_cluster)
        patient.socket.sendall(request[1000:])
        for _ in range(10):
            bystander.check()  # Whole requests need no memory.
        assert held_bytes(fake_cluster) == 2004
        greedy.socket.close()
        assert struct.unpack(">i", patient.receive_frame()[:4]) == (1,)
        patient.socket.close()


@pytest.mark.fake_cluster(config={"socket.request.max.bytes": MIB, "queued.max.request.bytes": MIB})
@pytest.mark.parametrize("first", [b"\0", SMALL_REQUEST[:5]], ids=["a byte of a size", "a small request"])
def test_memory_is_counted_for_each_request_when_its_size_is_known(fake_cluster: FakeCluster, first: bytes) -> None:
    """A connection cannot begin with a request that needs little, and go on with one that needs much."""
    broker, large = fake_cluster.brokers[0], struct.pack(">i", MIB) + b"x" * 1000
    rest = large[1:] if first == b"\0" else SMALL_REQUEST[len(first) :] + large
    with WireClient(broker) as greedy, WireClient(broker) as sly:
        sly.socket.sendall(first)
        until(lambda: held_bytes(fake_cluster) == len(first), fake_cluster)
        greedy.socket.sendall(large)
        until(lambda: held_bytes(fake_cluster) == len(first) + 1004, fake_cluster)
        sly.socket.sendall(rest)
        until(lambda: held_bytes(fake_cluster) == 2008, fake_cluster)
        reactor = reactor_of(fake_cluster)
        waiting = [each for each in reactor.connections.values() if reactor._incomplete.is_waiting(each)]
        assert [each.frames.held_bytes for each in waiting] == [1004]
        greedy.socket.close()
        until(lambda: not reactor._incomplete.is_waiting(waiting[0]), fake_cluster)


def held_bytes(cluster: FakeCluster) -> int:
    reactor = reactor_of(cluster)
    return internals(cluster).run(lambda: sum(each.frames.held_bytes for each in reactor.connections.values()))


@pytest.mark.fake_cluster(config={"queued.max.requests": 3})
def test_a_connection_with_many_waiting_requests_is_not_read(fake_cluster: FakeCluster) -> None:
    """Requests wait for the response to an earlier one, such as a Fetch; the rest stays in the socket."""
    request = request_frame(heartbeat_request("g" * 30_000), 4, 1, "x")
    with unharmed(fake_cluster) as bystander, WireClient(fake_cluster.brokers[0]) as hasty:
        hasty.send(fetch(), LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest])
        hasty.socket.setblocking(False)
        sent_bytes = 0
        with suppress(BlockingIOError):
            while sent_bytes < 100 * MIB:
                sent_bytes += hasty.socket.send(request[sent_bytes % len(request) :])
                bystander.check()
        assert sent_bytes < 100 * MIB
        queued = internals(fake_cluster).run(
            lambda: max(len(c.queued) for c in reactor_of(fake_cluster).connections.values())
        )
        assert 3 <= queued <= 3 + 1024 * 1024 / len(request)
        hasty.socket.settimeout(20)
        fake_cluster.topic("orders").produce(["x"])
        assert isinstance(hasty.receive(), FetchResponse)
        for _ in range(sent_bytes // len(request)):
            assert len(hasty.receive_frame()) == 12
        hasty.socket.close()


LIMITS = {
    "connections.max.idle.ms": "600000",
    "max.connection.creation.rate": "2147483647",
    "max.connections": "7",
    "max.connections.per.ip": "2147483647",
    "max.connections.per.ip.overrides": "",
    "queued.max.request.bytes": "-1",
    "queued.max.requests": "500",
    "listener.name.plaintext.max.connections": "5",
}


@pytest.mark.fake_cluster(config={"max.connections": 7, "listener.name.plaintext.max.connections": 5})
def test_describe_configs_shows_the_limits(fake_cluster: FakeCluster) -> None:
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name="1", configuration_keys=None)
    with WireClient(fake_cluster.brokers[0]) as wire:
        (result,) = wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    values = {config.name: config.value for config in result.configs}
    assert {name: values[name] for name in LIMITS} == LIMITS


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"connections.max.idle.ms": 100}, "connections.max.idle.ms=100: expected an integer > connection.failed."),
        ({"queued.max.request.bytes": 1000}, "queued.max.request.bytes=1000: expected an integer >= socket.request."),
        ({"max.connections.per.ip": 0}, "max.connections.per.ip=0: expected an integer >= 1, unless "),
        ({"max.connections.per.ip.overrides": "a"}, "max.connections.per.ip.overrides='a': expected addresses and"),
        ({"max.connections.per.ip.overrides": "h:" + "1" * 5000}, "max.connections.per.ip.overrides='h:11"),
        ({"listener.name.x.max.connections.per.ip": 1}, "listener.name.x.max.connections.per.ip"),
        ({"listener.name.x.max.connections": -1}, "listener.name.x.max.connections=-1: expected"),
    ],
)
def test_limits_are_checked(config: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(config)
    assert message in str(caught.value)


class StubSocket:
    """A socket that is connected to a host."""

    def __init__(self, host: str) -> None:
        self._host = host

    def getpeername(self) -> tuple[str, int]:
        return self._host, 1


class Limits:
    """The limits of a cluster with one broker, in virtual time."""

    def __init__(self, **config: object) -> None:
        harness = ClusterHarness(brokers=1, config={name.replace("_", "."): value for name, value in config.items()})
        self.broker = harness.cluster.brokers[1]
        self.limits = ConnectionLimits(harness.cluster, lambda now_ms: None)
        self.connections: list[Connection] = []

    def wait_ms(self, now_ms: float) -> float:
        return self.limits.wait_ms(self.broker, PLAINTEXT_LISTENER, now_ms)

    def open(self, now_ms: float, host: str = "10.0.0.1") -> str | None:
        sock: Any = StubSocket(host)
        connection = Connection(sock, self.broker, PLAINTEXT_LISTENER, len(self.connections), 1000)
        self.connections.append(connection)
        return self.limits.opened(connection, now_ms)


def test_new_connections_wait_while_their_rate_is_too_high() -> None:
    """Like other quotas, the rate is that of about the last ten seconds."""
    limits = Limits(max_connection_creation_rate=2)
    accepted, now_ms = 0, 1_000_000.0
    for _ in range(100):
        wait_ms = limits.wait_ms(now_ms)
        assert 0 <= wait_ms <= 1000
        if not wait_ms:
            limits.open(now_ms)
            accepted += 1
        now_ms += wait_ms
        if accepted == 60:
            break
    assert accepted == 60
    assert 20_000 <= now_ms - 1_000_000 <= 25_000


def test_a_rate_of_zero_accepts_no_connection() -> None:
    assert Limits(max_connection_creation_rate=0).wait_ms(0) > 0


@pytest.mark.parametrize(
    ("overrides", "host", "limit"),
    [
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("10.0.0.2:1", "10.0.0.1", 2),
        ("10.0.0.2:1, 10.0.0.1:3", "10.0.0.1", 3),
        ("localhost:1", "127.0.0.1", 1),
        ("localhost:1", "::1", 1),
        ("::1:1", "::1", 1),
        ("0:0:0:0:0:0:0:1:1", "::1", 1),
        ("10.0.0.1:0", "10.0.0.1", 0),
        ("some.host:1", "10.0.0.1", 2),
    ],
)
def test_the_maximum_of_an_address(overrides: str, host: str, limit: int) -> None:
    limits = Limits(max_connections_per_ip=2, max_connections_per_ip_overrides=overrides)
    assert [limits.open(0, host) is None for _ in range(4)] == [index < limit for index in range(4)]
    limits.limits.closed(limits.connections[-1])
    assert limits.open(0, host) is not None
    for _ in range(4):
        limits.limits.closed(limits.connections.pop())
    assert (limits.open(0, host) is None) == (limit > 0)


def test_idle_connections_are_closed_the_least_recently_used_first() -> None:
    limits = Limits(connections_max_idle_ms=1600)
    assert limits.limits.next_check_ms == float("inf")
    for now_ms in (0, 100, 200, 300):
        limits.open(now_ms)
    assert limits.limits.next_check_ms == 1600
    first, second, third, fourth = limits.connections
    first.read_ms = 1000.0  # A request was handled.
    third.active_ms = 90.0
    assert limits.limits.idle(limits.connections, 1700) == [third, second]
    assert limits.limits.next_check_ms == 1900
    assert limits.limits.idle([first, fourth], 1899) == []
    assert limits.limits.next_check_ms == 1899 + 100  # Not more often than 16 times in this time.
    assert limits.limits.idle([first, fourth], 1999) == [fourth]
    assert limits.limits.idle([first], 2600) == [first]
    assert limits.limits.next_check_ms == float("inf")


def test_connections_may_be_idle_forever() -> None:
    limits = Limits(connections_max_idle_ms=-1)
    limits.open(0)
    assert limits.limits.next_check_ms == float("inf")


def test_defaults_are_those_of_kafka() -> None:
    """Apart from the idle time, nothing is limited."""
    limits = Limits()
    for now_ms in range(2000):
        assert limits.wait_ms(now_ms) == 0
        assert limits.open(now_ms) is None
    assert limits.limits.next_check_ms == 600_000
