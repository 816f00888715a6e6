"""The consumer under every kind of fault, on every API that it uses: after it, all is read and committed."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import CommitFailed, ConsumerError
from fakebroker.client.versions import versions_of
from fakebroker.cluster.faults.error_catalog import PLACES
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.topic_partition import TopicPartition
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, P1, committed, consumer, produce
from tests.support.trio_runner import in_trio_with_sockets

IN_GROUPS = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit")
APIS = ("Metadata", "ListOffsets", "Fetch", *IN_GROUPS)
KINDS: tuple[dict[str, Any], ...] = (
    {"delay_s": 0.03},
    {"drop": True},
    {"drop": True, "handles": True},
    {"silent": True},
    {"silent": True, "handles": True},
    {"twice": True},
    {"cut_bytes": 5},
    {"garble_bytes": 2},
    {"throttle_time_ms": 30},
)


def errors() -> Iterator[tuple[str, str]]:
    for api in APIS:
        last = versions_of(API_BY_NAME[api].request).last
        places = [place for place in PLACES[api] if last in place.versions]
        yield from ((api, name) for name in sorted({error.name for place in places for error in place.errors}))


class Application:
    """Reads, commits after each poll, and takes no error for the last word."""

    def __init__(self, cluster: FakeCluster, reader: Consumer) -> None:
        self.cluster, self.reader = cluster, reader
        self.read: set[tuple[TopicPartition, int]] = set()
        self.written = {P0: 0, P1: 0}

    def produce(self) -> None:
        for place in self.written:
            produce(self.cluster, place, b"a", b"b")
            self.written[place] += 2

    def is_done(self) -> bool:
        everything = {(place, offset) for place, end in self.written.items() for offset in range(end)}
        return self.read >= everything and all(
            committed(self.cluster, place) == end for place, end in self.written.items()
        )

    async def work(self) -> None:
        """Read and commit once."""
        with suppress(ConsumerError):
            records = await self.reader.poll(0.01)
            self.read |= {((record.topic, record.partition), record.offset) for record in records}
        with suppress(CommitFailed):
            await self.reader.commit(timeout=0.5)


def new_cluster() -> FakeCluster:
    return FakeCluster(2, {"orders": 2}, {"group.min.session.timeout.ms": 100}, seed=1)


async def recover(cluster: FakeCluster, api: str, times: int = 2, **fault: Any) -> None:
    # After UNKNOWN_MEMBER_ID the group still waits for who it was, until its session is over.
    settings = {"request_timeout_ms": 60, "heartbeat_interval_ms": 20, "session_timeout_ms": 1_000}
    async with consumer(cluster, **settings) as reader:
        application = Application(cluster, reader)
        application.produce()
        handle = cluster.fail(api, times=times, **fault)
        reader.subscribe(["orders"])
        with trio.fail_after(DEADLINE_S):
            while handle.hits < times or not application.is_done():
                await application.work()
            application.produce()
            while not application.is_done():
                await application.work()


@pytest.mark.parametrize(("api", "error"), list(errors()))
@in_trio_with_sockets
async def test_errors(api: str, error: str) -> None:
    async with new_cluster() as cluster:
        await recover(cluster, api, error=error)


def other_faults() -> Iterator[Any]:
    for api in (*APIS, "ApiVersions"):
        for fault in KINDS:
            # A JoinGroup may be parked for the rebalance timeout and longer; test_rebalance.py has one without end.
            if api != "JoinGroup" or "silent" not in fault:
                yield pytest.param(api, fault, id="-".join([api, *fault]))


@pytest.mark.parametrize(("api", "fault"), list(other_faults()))
@in_trio_with_sockets
async def test_other_faults(api: str, fault: dict[str, Any]) -> None:
    async with new_cluster() as cluster:
        is_asked_again = not {"delay_s", "twice", "throttle_time_ms"} & fault.keys()
        await recover(cluster, api, times=2 if is_asked_again else 1, **fault)


@pytest.mark.parametrize("api", ["Metadata", "FindCoordinator"])
@in_trio_with_sockets
async def test_old_news(api: str) -> None:
    async with new_cluster() as cluster, consumer(cluster) as reader:
        application = Application(cluster, reader)
        reader.subscribe(["orders"])
        with trio.fail_after(DEADLINE_S):
            for _ in range(1 + (api == "FindCoordinator")):
                application.produce()
                while not application.is_done():
                    await application.work()
                fault = cluster.fail(api, stale=True, times=3)
                broker = cluster.coordinator_of("g") if api == "FindCoordinator" else cluster.brokers[0]
                cluster.restart_broker(broker.node_id)
                while not fault.hits:
                    await application.work()
            application.produce()
            while not application.is_done():
                await application.work()


@pytest.mark.parametrize("fault", KINDS, ids=lambda fault: "-".join(fault))
@in_trio_with_sockets
async def test_leaving_ends_whatever_happens_to_it(fault: dict[str, Any]) -> None:
    async with new_cluster() as cluster:
        async with consumer(cluster, request_timeout_ms=60 if "silent" in fault else 5_000) as reader:
            handle = cluster.fail("LeaveGroup", **fault)
            reader.subscribe(["orders"])
            assert await reader.assignment() == (P0, P1)
        assert handle.hits == 1


@pytest.mark.parametrize("node_id", [1, 2])
@pytest.mark.parametrize(
    "reach",
    [
        {"accept": "refuse"},
        {"accept": "half_open"},
        {"accept": "slow", "accept_delay_s": 0.03},
        {"round_trip_s": 0.01},
    ],
    ids=str,
)
@in_trio_with_sockets
async def test_brokers_that_are_hard_to_reach(node_id: int, reach: dict[str, Any]) -> None:
    async with (
        new_cluster() as cluster,
        consumer(cluster, request_timeout_ms=60) as reader,
    ):
        application = Application(cluster, reader)
        reader.subscribe(["orders"])
        application.produce()
        with trio.fail_after(DEADLINE_S):
            while not application.is_done():
                await application.work()
            cluster.set_broker(node_id, **reach)
            for connection in list(reader._pool._connections.values()):
                await connection.aclose()
            application.produce()
            for _ in range(3):
                await application.work()
            cluster.set_broker(node_id, accept="normal", round_trip_s=0)
            while not application.is_done():
                await application.work()
