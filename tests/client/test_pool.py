"""The pool of connections, against fake clusters."""

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
    """A question that any broker answers."""
    metadata: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
    return [broker.node_id for broker in metadata.brokers]


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2,a:1", [("a", 1), ("b", 2)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses(servers: str | list[str], expected: list[tuple[str, int]]) -> None:
    assert addresses(servers) == expected


@pytest.mark.parametrize("servers", ["", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:x", []])
def test_what_is_no_address_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap_servers=.*: expected HOST:PORT, or several with commas$"):
        addresses(servers)


@in_trio_with_sockets
async def test_a_broker_has_one_connection_a_lane_and_shares_the_first_with_any() -> None:
    async with FakeCluster(brokers=2) as cluster, trio.open_nursery() as nursery:
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        some = await pool.any()
        assert await node_ids(some) == [1, 2]
        for broker in cluster.brokers:
            pool.learn(broker.node_id, broker.host, broker.port)
        assert await pool.to(1) is some
        assert await pool.to(1, lane="join") is await pool.to(1, lane="join") is not some
        assert await pool.to(2) is not some
        assert await pool.any() is some
        assert len(cluster.requests("ApiVersions", client_id="c")) == 3
        await pool.aclose()
        assert some.is_lost


@in_trio_with_sockets
async def test_tasks_that_want_a_broker_at_once_get_the_same_connection() -> None:
    async with FakeCluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        pool, got = BrokerPool(cluster.bootstrap_servers, "c", nursery), []

        async def want() -> None:
            got.append(await pool.any())

        async with trio.open_nursery() as wanting:
            for _ in range(5):
                wanting.start_soon(want)
        assert len(got) == 5
        assert all(each is got[0] for each in got)
        await pool.aclose()


@in_trio_with_sockets
async def test_a_lost_connection_is_opened_anew() -> None:
    async with FakeCluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        first = await pool.any()
        cluster.restart_broker(1)
        with pytest.raises(ConnectionLost):
            await node_ids(first)
        assert await node_ids(await pool.any()) == [1]
        await pool.aclose()


@in_trio_with_sockets
async def test_any_passes_over_brokers_that_are_down() -> None:
    async with FakeCluster(brokers=3) as cluster, trio.open_nursery() as nursery:
        cluster.stop_broker(1)
        cluster.stop_broker(2)
        pool = BrokerPool(cluster.bootstrap_servers, "c", nursery)
        assert (await pool.any()).broker == f"broker 127.0.0.1:{cluster.brokers[2].port}"
        await pool.aclose()


@in_trio_with_sockets
async def test_known_brokers_are_asked_when_those_of_the_bootstrap_are_gone() -> None:
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
async def test_nobody_there_is_said_with_every_address() -> None:
    async with trio.open_nursery() as nursery:
        pool = BrokerPool("127.0.0.1:1", "c", nursery)
        with pytest.raises(BrokerUnreachable, match=r"^broker 127\.0\.0\.1:1 cannot be reached: "):
            await pool.any()
        pool.learn(3, "127.0.0.1", 2)
        with pytest.raises(BrokerUnreachable, match=r"^none of the brokers 127\.0\.0\.1:2, 127\.0\.0\.1:1 cannot be"):
            await pool.any()
        with pytest.raises(BrokerUnreachable, match=r"^broker 4 cannot be reached: it is not known where it is$"):
            await pool.to(4)
