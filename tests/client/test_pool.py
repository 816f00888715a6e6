"""The pool of connections to the brokers of a cluster."""

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.connection import Connection
from fakebroker.client.errors import BrokerUnreachable, ConnectionLost
from fakebroker.client.pool import BrokerPool
from fakebroker.client.transport import addresses
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.trio_runner import in_trio_with_sockets


async def node_ids(connection: Connection) -> list[int]:
    """Request the node ids of all brokers."""
    metadata: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
    return [broker.node_id for broker in metadata.brokers]


def test_addresses_are_parsed_without_duplicates() -> None:
    assert addresses("a:1") == [("a", 1)]
    assert addresses("a:1, b:2,a:1") == [("a", 1), ("b", 2)]
    assert addresses(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    assert addresses("[::1]:9092") == [("::1", 9092)]


def test_invalid_addresses_are_rejected(subtests: pytest.Subtests) -> None:
    servers: str | list[str]
    for servers in ("", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:x", []):
        message = r"^bootstrap_servers=.*: expected HOST:PORT, or several with commas$"
        with subtests.test(servers=servers), pytest.raises(ConfigError, match=message):
            addresses(servers)


def test_an_ipv6_address_needs_brackets() -> None:
    message = (
        r"^bootstrap_servers='::1:9092': expected HOST:PORT with an IPv6 address in brackets, such as \[::1\]:9092$"
    )
    with pytest.raises(ConfigError, match=message):
        addresses("::1:9092")


@in_trio_with_sockets
async def test_there_is_one_connection_for_each_broker_and_lane() -> None:
    async with FakeCluster(brokers=2) as cluster, trio.open_nursery() as nursery:
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        any_broker = await pool.any()
        assert await node_ids(any_broker) == [1, 2]
        for broker in cluster.brokers:
            pool.learn(broker.node_id, broker.host, broker.port)
        assert await pool.to(1) is any_broker
        assert await pool.to(1, lane="join") is await pool.to(1, lane="join") is not any_broker
        assert await pool.to(2) is not any_broker
        assert await pool.any() is any_broker
        assert len(cluster.requests("ApiVersions", client_id="c")) == 3
        await pool.aclose()
        assert any_broker.is_lost


@in_trio_with_sockets
async def test_concurrent_tasks_get_the_same_connection() -> None:
    async with FakeCluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        pool, connections = BrokerPool(cluster.bootstrap_servers, "c", nursery), []

        async def connect() -> None:
            connections.append(await pool.any())

        async with trio.open_nursery() as connecting:
            for _ in range(5):
                connecting.start_soon(connect)
        assert len(connections) == 5
        assert all(each is connections[0] for each in connections)
        await pool.aclose()


@in_trio_with_sockets
async def test_a_lost_connection_is_replaced() -> None:
    async with FakeCluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        first = await pool.any()
        cluster.restart_broker(1)
        with pytest.raises(ConnectionLost):
            await node_ids(first)
        assert await node_ids(await pool.any()) == [1]
        await pool.aclose()


@in_trio_with_sockets
async def test_any_skips_brokers_that_are_down() -> None:
    async with FakeCluster(brokers=3) as cluster, trio.open_nursery() as nursery:
        cluster.stop_broker(1)
        cluster.stop_broker(2)
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        assert (await pool.any()).broker == f"broker 127.0.0.1:{cluster.brokers[2].port}"
        await pool.aclose()


@in_trio_with_sockets
async def test_any_uses_learned_brokers_when_bootstrap_servers_are_down() -> None:
    async with FakeCluster(brokers=2) as cluster, trio.open_nursery() as nursery:
        first, second = cluster.brokers
        pool = BrokerPool(f"{first.host}:{first.port}", "c", nursery)
        pool.learn(second.node_id, second.host, second.port)
        cluster.stop_broker(1)
        assert (await pool.any()).broker == f"broker {second.host}:{second.port}"
        await pool.aclose()


@in_trio_with_sockets
async def test_a_changed_address_closes_the_connection_to_the_old_one() -> None:
    async with FakeCluster(brokers=2) as cluster, trio.open_nursery() as nursery:
        first, second = cluster.brokers
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        pool.learn(7, first.host, first.port)
        before = await pool.to(7)
        pool.learn(7, first.host, first.port)
        assert await pool.to(7) is before
        pool.learn(7, second.host, second.port)
        assert await pool.to(7) is not before
        with pytest.raises(ConnectionLost):
            await node_ids(before)
        await pool.aclose()


@in_trio_with_sockets
async def test_the_error_of_an_unreachable_cluster_lists_all_addresses() -> None:
    async with trio.open_nursery() as nursery:
        pool = BrokerPool("127.0.0.1:1", "c", nursery)
        with pytest.raises(BrokerUnreachable, match=r"^broker 127\.0\.0\.1:1 cannot be reached: "):
            await pool.any()
        pool.learn(3, "127.0.0.1", 2)
        with pytest.raises(BrokerUnreachable, match=r"^brokers 127\.0\.0\.1:2, 127\.0\.0\.1:1 cannot be"):
            await pool.any()
        with pytest.raises(BrokerUnreachable, match=r"^broker 4 cannot be reached: its address is unknown$"):
            await pool.to(4)
