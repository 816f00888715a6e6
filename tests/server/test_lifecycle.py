"""FakeCluster: entering and leaving it, under trio and asyncio; what it answers before the start and after the end."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import trio

from fakebroker import Condition, FakebrokerError, FakeCluster, ListenError
from fakebroker.cluster.handles.definition import DEFINITIONS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.releases import NEWEST
from fakebroker.server.fake_cluster import internals
from fakebroker.server.lifecycle import bound, start_listening
from tests.support.cluster.method_arguments import call_of, new_cluster
from tests.support.groups_over_tcp import stable_group
from tests.support.wire_client import TIMEOUT_S, WireClient

ENTERED = "expected a new FakeCluster, because each can be entered once"
NOT_STARTED = "the cluster is not running: expected a use within 'with' or 'async with'; it has not been started"
STOPPED = "the cluster is not running: expected a use within 'with' or 'async with'; it has stopped"


def beat(cluster: FakeCluster) -> None:
    """Ask the first broker something."""
    with WireClient(cluster.brokers[0]) as wire:
        wire.ask(HeartbeatRequest(group_id="g", generation_id=0, member_id=""), HeartbeatResponse)


# Entering


def test_a_running_cluster_cannot_be_entered_again() -> None:
    with FakeCluster(brokers=1) as cluster:
        with pytest.raises(FakebrokerError, match=f"^the cluster runs already: {ENTERED}$"), cluster:
            pass
        beat(cluster)
    with pytest.raises(FakebrokerError, match=f"^the cluster has stopped: {ENTERED}$"), cluster:
        pass


def test_one_of_several_threads_enters_a_cluster() -> None:
    cluster, together, refused = FakeCluster(brokers=1), threading.Barrier(4), []

    def enter() -> None:
        together.wait(TIMEOUT_S)
        try:
            cluster.__enter__()
        except FakebrokerError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=enter) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    with ExitStack() as stack:
        stack.push(cluster.__exit__)
        assert refused == [f"the cluster runs already: {ENTERED}"] * 3
        beat(cluster)


def test_a_cluster_cannot_be_entered_again_in_a_loop(subtests: pytest.Subtests) -> None:
    async def main() -> None:
        async with FakeCluster(brokers=1) as cluster:
            with pytest.raises(FakebrokerError, match=f"^the cluster runs already: {ENTERED}$"):
                await cluster.__aenter__()
            assert cluster.group("g").describe().state == "Dead"
        with pytest.raises(FakebrokerError, match=f"^the cluster has stopped: {ENTERED}$"):
            await cluster.__aenter__()

    for loop in (trio, asyncio):
        with subtests.test(loop=loop.__name__):
            loop.run(main()) if loop is asyncio else trio.run(main)


def test_a_start_without_a_free_port_can_be_tried_again() -> None:
    with FakeCluster(brokers=1) as other:
        cluster = FakeCluster(brokers=1, port=other.brokers[0].port)
        with pytest.raises(ListenError, match="the port is in use"), cluster:
            pass
    with cluster:
        beat(cluster)


def test_a_port_that_two_processes_have_bound_is_in_use_for_the_second_to_listen() -> None:
    with bound("127.0.0.1", 0) as first, bound("127.0.0.1", first.getsockname()[1]) as second:
        start_listening(first, 1)
        with pytest.raises(ListenError, match=r"^cannot listen on 127.0.0.1:\d+: the port is in use$"):
            start_listening(second, 1)


def test_leaving_a_cluster_that_was_not_entered_is_an_error() -> None:
    cluster = FakeCluster(brokers=1)
    with pytest.raises(FakebrokerError, match=NOT_STARTED):
        cluster.__exit__(None, None, None)


def test_an_internal_error_of_the_loop_is_raised_at_the_end() -> None:
    async def fail() -> None:
        raise ArithmeticError("broken")

    stack = ExitStack()
    cluster = stack.enter_context(FakeCluster(brokers=1))
    thread = next(each for each in threading.enumerate() if each.name == "fakebroker")
    internals(cluster).server.start_task(fail)
    thread.join(TIMEOUT_S)
    with pytest.raises(FakebrokerError, match=r"the cluster has stopped because of an internal error: .*broken"):
        stack.close()


# Errors in the body


class MineError(Exception):
    """An error of the user."""


def test_an_error_of_the_body_is_raised_as_it_is(subtests: pytest.Subtests) -> None:
    async def main() -> None:
        async with FakeCluster(brokers=1):
            raise MineError("mine")

    for loop in (trio, asyncio):
        with subtests.test(loop=loop.__name__), pytest.raises(MineError, match=r"^mine$"):
            loop.run(main()) if loop is asyncio else trio.run(main)
    with subtests.test(loop=None), pytest.raises(MineError), FakeCluster(brokers=1):
        raise MineError("mine")


def test_a_group_of_errors_of_the_body_is_raised_as_it_is() -> None:
    raised = ExceptionGroup("several", [MineError("one"), MineError("two")])

    async def main() -> None:
        async with FakeCluster(brokers=1):
            raise raised

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(main)
    assert caught.value is raised


def test_an_error_of_the_cluster_and_one_of_the_body_are_both_raised() -> None:
    async def fail() -> None:
        raise ArithmeticError("broken")

    async def main() -> None:
        async with FakeCluster(brokers=1) as cluster:
            internals(cluster).server.start_task(fail)
            try:
                await trio.sleep_forever()
            finally:
                raise MineError("mine")

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main)
    assert caught.group_contains(MineError)
    assert caught.group_contains(ArithmeticError)


def test_canceling_the_body_stops_the_cluster() -> None:
    async def main() -> None:
        with trio.move_on_after(TIMEOUT_S) as scope:
            async with FakeCluster(brokers=1) as cluster:
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with pytest.raises(FakebrokerError, match=STOPPED):
            internals(cluster).server.start_task(trio.sleep_forever)

    trio.run(main)


def test_a_canceled_start_stops_the_cluster() -> None:
    async def main() -> None:
        cluster = FakeCluster(brokers=1)
        with trio.CancelScope() as scope:
            scope.cancel()
            async with cluster:
                raise AssertionError("the start was canceled")
        assert scope.cancelled_caught

    async def main_of_asyncio() -> None:
        cluster = FakeCluster(brokers=1)
        entering = asyncio.ensure_future(cluster.__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    trio.run(main)
    asyncio.run(main_of_asyncio())  # Waits for the threads of the loop, but not for that of the cluster.
    for thread in threading.enumerate():
        if thread.name == "fakebroker":
            thread.join(TIMEOUT_S)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


# asyncio


def test_a_cluster_in_asyncio_does_not_block_its_loop() -> None:
    async def main() -> str:
        async with FakeCluster(topics={"orders": 6}) as cluster:
            assert not internals(cluster).server.is_cluster_thread
            reader, writer = await asyncio.open_connection(cluster.brokers[0].host, cluster.brokers[0].port)
            assert await internals(cluster).server.run_async(
                lambda: len(internals(cluster).server.reactor.connections.values())
            ) in (0, 1)
            writer.close()
            await writer.wait_closed()
            assert await reader.read() == b""
            await asyncio.to_thread(stable_group, cluster, "g")
        return cluster.group("g").describe().state

    threads = threading.active_count()
    assert asyncio.run(main()) == "Stable"
    assert threading.active_count() == threads


def test_aiokafka_works_with_a_cluster_in_the_same_loop() -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def main() -> list[bytes | None]:
        async with (
            FakeCluster(topics={"orders": 2}) as cluster,
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
            AIOKafkaConsumer(
                "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer,
        ):
            await producer.send_and_wait("orders", b"one")
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value]

    assert asyncio.run(main()) == [b"one"]


# Before the start, and after the end

RUNS_ONLY = {
    "broker.remove", "broker.restart", "broker.set_network", "broker.stop", "broker.upgrade", "brokers.add",
    "brokers.renew_certificates", "brokers.rolling_restart",
}  # fmt: skip
"""Commands that need a running cluster."""

HAS_STARTED = {
    "bootstrap_servers", "bootstrap_servers_of", "broker.describe", "brokers.describe", "group.coordinator",
    "transaction.coordinator",
}  # fmt: skip
"""What needs a cluster that has been started, and may have stopped since: ports."""

OTHERS: dict[str, Callable[[FakeCluster], object]] = {
    "bootstrap_servers": lambda cluster: cluster.bootstrap_servers,
    "bootstrap_servers_of": lambda cluster: cluster.bootstrap_servers_of("PLAINTEXT"),
    "journal": lambda cluster: (cluster.journal.requests(), cluster.journal.count(), cluster.journal.dropped),
    "snapshot": FakeCluster.snapshot,
    "tls": lambda cluster: cluster.tls,
}
"""What a cluster has apart from commands, views and conditions."""

NAMES = [*DEFINITIONS, *OTHERS]


def use(cluster: FakeCluster, name: str) -> object:
    """Run a command or a view, look at a condition, or use something else of the cluster."""
    if name in OTHERS:
        return OTHERS[name](cluster)
    definition = DEFINITIONS[name]
    key, arguments = call_of(definition)
    found = getattr(definition.of(internals(cluster), key), definition.method.__name__)(**arguments)
    return (cluster.holds(found), cluster.wait(found, timeout_s=0)) if isinstance(found, Condition) else found


def error_of(cluster: FakeCluster, name: str) -> str | None:
    """Use the cluster, and return the first line of the error, or None. Other exceptions are bugs."""
    try:
        use(cluster, name)
    except FakebrokerError as error:
        return str(error).partition("\n")[0]
    return None


def test_before_the_start_what_needs_ports_says_so(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            error = error_of(new_cluster(), name)
            if name in RUNS_ONLY | HAS_STARTED:
                assert error == NOT_STARTED
            else:
                assert error is None or NOT_STARTED not in error


def test_an_error_before_the_start_changes_nothing(subtests: pytest.Subtests) -> None:
    for name in RUNS_ONLY:
        with subtests.test(name=name):
            cluster = new_cluster()
            error_of(cluster, name)
            with cluster:
                assert [(broker.node_id, broker.up) for broker in cluster.brokers] == [(1, True), (2, True), (3, True)]
                assert {str(broker.release) for broker in internals(cluster).cluster.brokers.values()} == {str(NEWEST)}
                assert cluster.group("stable").describe().state == "Stable"


def test_what_is_prepared_before_the_start_is_there() -> None:
    cluster = new_cluster()
    cluster.topic("more").create(2)
    fault = cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR")
    with cluster:
        beat(cluster)
        assert cluster.group("stable").describe().state == "Stable"
        assert fault.hits == 1


def test_after_the_end_state_can_be_read(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster:
        servers = cluster.bootstrap_servers
        fault, hold = (
            cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR", may_miss=True),
            cluster.group("stable").hold("PreparingRebalance"),
        )
        cluster.broker(2).stop()
    with hold, fault:
        pass
    assert cluster.bootstrap_servers == servers
    assert [broker.up for broker in cluster.brokers] == [True, False, True]
    assert cluster.group("stable").describe().state == "Stable"
    assert "stable: Stable" in cluster.report()
    for name in NAMES:
        with subtests.test(name=name):
            error = error_of(cluster, name)
            if name in {*RUNS_ONLY, "broker.start", "reset"}:
                assert error == STOPPED
            else:
                assert error is None or STOPPED not in error
