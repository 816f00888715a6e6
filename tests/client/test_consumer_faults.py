"""The consumer after each error and fault in each API that it uses: it still reads and commits everything."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import BrokerUnreachable, CommitFailed, ConsumerError
from fakebroker.client.versions import versions_of
from fakebroker.cluster.faults.error_catalog import PLACES
from fakebroker.cluster.faults.rule import Fault
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.topic_partition import TopicPartition
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, P1, committed, consumer, produce
from tests.support.client.consumer_simulation import ConsumerSimulation
from tests.support.trio_runner import in_trio_with_sockets

GROUP_APIS = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit")
APIS = ("Metadata", "ListOffsets", "Fetch", *GROUP_APIS)

# Errors, in virtual time


def errors_of(api: str) -> list[str]:
    """Return the errors that an API may return in the version that the consumer uses."""
    last = versions_of(API_BY_NAME[api].request).last
    return sorted({error.name for place in PLACES[api] if last in place.versions for error in place.errors})


@pytest.mark.parametrize("api", APIS)
def test_a_consumer_recovers_from_each_error(api: str, subtests: pytest.Subtests) -> None:
    for error in errors_of(api):
        with subtests.test(error=error):
            check_recovery_from_error(api, error)


def check_recovery_from_error(api: str, error: str) -> None:
    """Let the first two requests return an error, which polls may raise."""
    simulation = ConsumerSimulation(1, "range", 1, {"t": 2}, accepts_error=lambda _: True, commits_after_poll=True)
    simulation.produce()
    fault = simulation.cluster.faults.add(Fault(api=api, error=error, times=2), simulation.now_ms)
    simulation.start(0)
    simulation.run_until(lambda: fault.hits == 2 and simulation.is_consumed())
    simulation.produce()
    simulation.run_until(simulation.is_consumed)


# Other faults, over TCP

FAULTS: tuple[dict[str, Any], ...] = (
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
REQUEST_TIMEOUT_MS = 60


def settings_for(fault: dict[str, Any]) -> dict[str, int]:
    """Return settings of a consumer that meets a fault. Only a silent broker has to be given up soon."""
    request_timeout_ms = REQUEST_TIMEOUT_MS if "silent" in fault else 5_000
    return {"request_timeout_ms": request_timeout_ms, "heartbeat_interval_ms": 20, "session_timeout_ms": 1_000}


class RetryingApplication:
    """An application that reads and commits, and continues after errors."""

    def __init__(self, cluster: FakeCluster, reader: Consumer) -> None:
        self.cluster, self.reader = cluster, reader
        self.read: set[tuple[TopicPartition, int]] = set()
        self.log_ends = {P0: 0, P1: 0}

    def produce(self) -> None:
        for partition in self.log_ends:
            produce(self.cluster, partition, b"a", b"b")
            self.log_ends[partition] += 2

    def is_done(self) -> bool:
        """Return whether all records were read, and all offsets committed."""
        records = {(partition, offset) for partition, end in self.log_ends.items() for offset in range(end)}
        return self.read >= records and all(committed(self.cluster, each) == end for each, end in self.log_ends.items())

    async def poll(self) -> None:
        """Read and commit once."""
        with suppress(ConsumerError, BrokerUnreachable):
            records = await self.reader.poll(0.01)
            self.read |= {((record.topic, record.partition), record.offset) for record in records}
        with suppress(CommitFailed):
            await self.reader.commit(timeout=0.5)

    async def poll_until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(DEADLINE_S):
            while not condition():
                await self.poll()


def new_cluster() -> FakeCluster:
    return FakeCluster(2, {"orders": 2}, {"group.min.session.timeout.ms": 100}, seed=1)


async def check_recovery(api: str, fault: dict[str, Any]) -> None:
    # The request is not repeated after these faults: a second matching request would come late.
    if api == "ApiVersions" and "garble_bytes" in fault:
        # With few wrong bytes the list may decode, without JoinGroup: then no client can go on over this connection.
        fault = {"garble_bytes": 100}
    times = 1 if {"delay_s", "twice", "throttle_time_ms"} & fault.keys() else 2
    async with new_cluster() as cluster, consumer(cluster, **settings_for(fault)) as reader:
        application = RetryingApplication(cluster, reader)
        application.produce()
        handle = cluster.inject_fault(api, times=times, **fault)
        reader.subscribe(["orders"])
        await application.poll_until(lambda: handle.hits >= times and application.is_done())
        application.produce()
        await application.poll_until(application.is_done)


def combinations() -> Iterator[tuple[str, dict[str, Any]]]:
    for api in (*APIS, "ApiVersions"):
        for fault in FAULTS:
            # A consumer waits too long for the response to a JoinGroup, which may be parked for the rebalance timeout:
            # test_member_rebalance.py tests this case.
            if api != "JoinGroup" or "silent" not in fault:
                yield api, fault


def name(fault: dict[str, Any]) -> str:
    return "-".join(fault)


@in_trio_with_sockets
async def test_a_consumer_recovers_from_each_fault_in_one_api(subtests: pytest.Subtests) -> None:
    """A sample of the slow test below: each API once."""
    apis = ["Fetch", "SyncGroup", "OffsetCommit", "OffsetFetch", "FindCoordinator"]
    apis += ["Heartbeat", "JoinGroup", "Metadata", "ListOffsets"]
    for api, fault in zip(apis, FAULTS, strict=True):
        with subtests.test(api, fault=name(fault)):
            await check_recovery(api, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_a_consumer_recovers_from_each_fault_in_each_api(fault: dict[str, Any], subtests: pytest.Subtests) -> None:
    for api, each in combinations():
        if each == fault:
            with subtests.test(api=api):
                trio.run(check_recovery, api, fault)


@in_trio_with_sockets
async def test_a_consumer_recovers_from_a_stale_leader() -> None:
    async with new_cluster() as cluster, consumer(cluster) as reader:
        application = RetryingApplication(cluster, reader)
        reader.subscribe(["orders"])
        application.produce()
        await application.poll_until(application.is_done)
        fault = cluster.inject_fault("Metadata", stale=True, times=3)
        cluster.broker(cluster.brokers[0].node_id).restart()
        await application.poll_until(lambda: fault.hits > 0)
        application.produce()
        await application.poll_until(application.is_done)


@in_trio_with_sockets
async def test_a_consumer_recovers_from_a_stale_coordinator() -> None:
    async with new_cluster() as cluster, consumer(cluster) as reader:
        application = RetryingApplication(cluster, reader)
        reader.subscribe(["orders"])
        for _ in range(2):
            application.produce()
            await application.poll_until(application.is_done)
            fault = cluster.inject_fault("FindCoordinator", stale=True, times=3)
            cluster.broker(cluster.group("g").coordinator().node_id).restart()
            await application.poll_until(lambda fault=fault: fault.hits > 0)  # type: ignore[misc]  # no type
        application.produce()
        await application.poll_until(application.is_done)


@in_trio_with_sockets
async def test_a_consumer_closes_after_any_fault_in_leave_group(subtests: pytest.Subtests) -> None:
    for fault in FAULTS:
        with subtests.test(fault=name(fault)):
            async with new_cluster() as cluster:
                # No heartbeat is in flight on leaving: if it timed out, LeaveGroup would not be sent.
                settings = settings_for(fault) | {"heartbeat_interval_ms": 10_000, "session_timeout_ms": 30_000}
                async with consumer(cluster, **settings) as reader:
                    handle = cluster.inject_fault("LeaveGroup", **fault)
                    reader.subscribe(["orders"])
                    assert await reader.assignment() == (P0, P1)
                    assert await reader.position(P0) == 0
                await cluster.wait_async(cluster.requested("LeaveGroup"))
                assert handle.hits == 1


async def check_recovery_from_conditions(node_id: int, conditions: dict[str, Any]) -> None:
    async with new_cluster() as cluster, consumer(cluster, request_timeout_ms=REQUEST_TIMEOUT_MS) as reader:
        application = RetryingApplication(cluster, reader)
        reader.subscribe(["orders"])
        application.produce()
        await application.poll_until(application.is_done)
        cluster.broker(node_id).set_network(**conditions)
        for connection in list(reader._brokers._links):
            reader._brokers._transport.fail(connection, "closed by the test")
        application.produce()
        for _ in range(3):
            await application.poll()
        cluster.broker(node_id).set_network(accept="normal", round_trip_s=0)
        await application.poll_until(application.is_done)


@pytest.mark.slow
@pytest.mark.parametrize(
    "conditions",
    [
        {"accept": "refuse"},
        {"accept": "half_open"},
        {"accept": "slow", "accept_delay_s": 0.03},
        {"round_trip_s": 0.01},
    ],
    ids=str,
)
def test_a_consumer_recovers_when_a_broker_can_be_reached_again(
    conditions: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for node_id in (1, 2):
        with subtests.test(node_id=node_id):
            trio.run(check_recovery_from_conditions, node_id, conditions)
