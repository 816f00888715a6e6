"""Waits that poll: what they return and raise, for consumers that imitate the methods of Kafka clients."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from confluent_kafka import TopicPartition

from fakebroker import ConfigError, FakeCluster, Polled, PollError, WaitTimeout
from tests.support.wire_client import TIMEOUT_S


class Error:
    """An error of confluent-kafka."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def __str__(self) -> str:
        return f"KafkaError{{{self._name}}}"


class Message:
    """A message of confluent-kafka."""

    def __init__(self, error: Error | None = None) -> None:
        self._error = error

    def error(self) -> Error | None:
        return self._error


class InSeconds:
    """Returns records one by one, then nothing, as confluent-kafka does. Exceptions among them are raised."""

    def __init__(self, *records: object) -> None:
        self.left = list(records)
        self.threads: set[threading.Thread] = set()
        self.polls = 0

    def poll(self, timeout: float) -> object:
        assert 0 < timeout < 0.1
        self.polls += 1
        self.threads.add(threading.current_thread())
        record = self.left.pop(0) if self.left else None
        if isinstance(record, Exception):
            raise record
        return record


class InMilliseconds(InSeconds):
    """Returns lists of records by partition, as kafka-python does."""

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[str, list[object]]:  # type: ignore[override]
        assert timeout_ms >= 1
        record = super().poll(0.01)
        return {} if record is None else {"orders-0": [record, record]}

    def subscription(self) -> set[str]:
        return {"orders"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        assert (topic, self.polls) == ("orders", 0)
        return {0}


class WithCoroutines(InMilliseconds):
    """Has `getmany`, as aiokafka."""

    async def getmany(self, *, timeout_ms: int = 0) -> dict[str, list[object]]:
        return super().poll(timeout_ms)


def until(count: int, *consumers: InSeconds) -> Callable[[object], bool]:
    """Return a predicate that consumers have been polled a number of times."""
    return lambda _: all(each.polls >= count for each in consumers)


def test_records_are_returned_in_the_order_of_the_polls(fake_cluster: FakeCluster) -> None:
    end = Message(Error("_PARTITION_EOF"))
    one, two = InSeconds("a", "b", end), InSeconds("c", None, "d")
    polled = fake_cluster.wait_until("polls", until(3, one, two), polling=[one, two])
    assert polled == (True, ["a", "c", "b", end, "d"])
    assert isinstance(polled, Polled)
    assert polled.value is True
    assert one.threads == {threading.current_thread()}


def test_consumers_with_milliseconds_are_polled_in_threads(fake_cluster: FakeCluster) -> None:
    """Without pauses: kafka-python discards a response to JoinGroup that arrives between two polls."""
    one, two = InMilliseconds("a"), InMilliseconds("b")
    _, records = fake_cluster.wait_until("polls", until(5, one, two), polling=[one, two])
    assert sorted(records) == ["a", "a", "b", "b"]
    assert len(one.threads | two.threads) == 2
    assert not any(thread.is_alive() for thread in one.threads | two.threads)


def test_functions_are_called(fake_cluster: FakeCluster) -> None:
    calls = iter([None, 1, [2, 3], (), {"a": [4]}])
    done: list[int] = []

    def poll() -> object:
        done.append(1)
        return next(calls, None)

    _, read = fake_cluster.wait_until("calls", lambda _: len(done) >= 5, polling=[poll])
    assert read == [1, 2, 3, 4]


def test_every_wait_polls(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    def seed() -> str:
        fake_cluster.seed_group("g", 1, topics=["orders"], offsets={"orders-0": 0})
        return "seeded"

    waits: dict[str, Callable[[list[Any]], Any]] = {
        "state": lambda polling: fake_cluster.wait_for_state("g", "Stable", polling=polling),
        "generation": lambda polling: fake_cluster.wait_for_generation("g", above=0, polling=polling),
        "commit": lambda polling: fake_cluster.wait_for_commit("g", "orders-0", at_least=0, polling=polling),
    }
    for name, wait in waits.items():
        with subtests.test(wait=name):
            fake_cluster.reset()
            fake_cluster.create_topic("orders")
            polled = wait([seed])
            assert polled.records == ["seeded"]
            assert type(polled.value).__name__ == ("CommittedOffset" if name == "commit" else "GroupView")
            assert wait([seed]) == (polled.value, [])  # It holds already.
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_request(polling=[lambda: 1], timeout_s=0)
    assert caught.value.records == [1]  # Each is polled once.


class Assigned(InSeconds):
    """A consumer of confluent-kafka that gets its partitions in its 50th poll; with `is_removed`, it had them before.

    It is the only member of the group "g". With `is_removed`, the group has removed it and it does not know.
    """

    def __init__(self, cluster: FakeCluster, *, is_removed: bool = False) -> None:
        super().__init__()
        self._cluster, self._is_removed = cluster, is_removed

    def assignment(self) -> list[TopicPartition]:
        partitions = [TopicPartition("orders", number) for number in range(4)]
        return partitions if self._is_removed or self.polls >= 50 else []

    @property
    def id(self) -> str:
        return "removed" if self._is_removed else self._cluster.group("g").members[0].member_id

    def memberid(self) -> str:
        return self.id


class AssignedInThread(Assigned, InMilliseconds):
    """The same of kafka-python."""

    memberid: Any = property()  # It has none.

    def group_metadata(self) -> SimpleNamespace:
        return SimpleNamespace(member_id=self.id)


class AssignedWithCoroutines(Assigned, WithCoroutines):
    """The same of aiokafka."""

    memberid: Any = property()

    @property
    def _coordinator(self) -> SimpleNamespace:
        return SimpleNamespace(member_id=self.id)


@pytest.mark.parametrize("kind", [Assigned, AssignedInThread, AssignedWithCoroutines])
@pytest.mark.fake_cluster(topics={"orders": 4})
def test_a_removed_member_with_the_same_partitions_does_not_end_a_wait(
    fake_cluster: FakeCluster, kind: type[Assigned]
) -> None:
    fake_cluster.seed_group("g", 1, topics=["orders"])
    one, two = kind(fake_cluster, is_removed=True), kind(fake_cluster)
    if kind is AssignedWithCoroutines:
        trio.run(partial(fake_cluster.wait_for_state_async, "g", "Stable", polling=[one, two]))
    else:
        fake_cluster.wait_for_state("g", "Stable", polling=[one, two])
    assert len(two.assignment()) == 4


def test_errors_of_consumers_are_raised_with_the_records(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    failure = ArithmeticError("fenced")
    for kind in (InSeconds, InMilliseconds):
        with subtests.test(kind=kind), pytest.raises(PollError) as caught:
            fake_cluster.wait_until("never", lambda _: None, polling=[kind("a", failure)])
        error = caught.value
        assert str(error) == f"polling[0], a tests.server.test_polling.{kind.__name__}, failed: ArithmeticError: fenced"
        assert error.error is error.__cause__ is failure
        assert set(error.records) == {"a"}
    failed = Error("_MAX_POLL_EXCEEDED")
    with pytest.raises(PollError, match=r"failed: KafkaError\{_MAX_POLL_EXCEEDED\}$") as caught:
        fake_cluster.wait_until("never", lambda _: None, polling=[InSeconds("a", Message(failed))])
    assert (caught.value.error, caught.value.records) == (failed, ["a"])


def test_a_timeout_has_the_records(fake_cluster: FakeCluster) -> None:
    one, two = InSeconds("a"), InMilliseconds("b")
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_state("g", "Stable", polling=[one, two], timeout_s=0)
    assert sorted(caught.value.records) == ["a", "b", "b"]


def test_what_cannot_be_polled_is_rejected(fake_cluster: FakeCluster) -> None:
    wrong: Any = InSeconds()
    with pytest.raises(ConfigError, match=r"^polling=<.*>: expected a list of consumers$"):
        fake_cluster.wait_for_state("g", "Dead", polling=wrong)
    with pytest.raises(
        ConfigError, match=r"^polling\[1\]=3: expected a consumer with a method poll or getmany, or a fu"
    ):
        fake_cluster.wait_for_state("g", "Dead", polling=[InSeconds(), 3])
    with pytest.raises(
        ConfigError, match=r"^polling\[0\]=<.*>: expected a consumer without coroutines, or an _async m"
    ):
        fake_cluster.wait_for_state("g", "Dead", polling=[WithCoroutines()])


def test_a_function_must_not_return_an_awaitable(fake_cluster: FakeCluster) -> None:
    async def poll() -> None: ...

    with pytest.raises(PollError, match=r"failed: it returned an awaitable: expected records, or an async function$"):
        fake_cluster.wait_for_state("g", "Stable", polling=[lambda: poll()])


def test_a_poll_that_does_not_end_is_an_error(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakebroker.server.waits.polling._MAX_JOIN_S", 0.01)
    has_ended = threading.Event()

    class Endless(InSeconds):
        def poll(self, timeout_ms: float) -> object:
            self.polls += 1
            has_ended.wait(TIMEOUT_S)
            return None

    consumer = Endless()
    with pytest.raises(PollError, match=r"failed: its poll has not ended after 0\.01 s$"):
        fake_cluster.wait_until("a poll", until(1, consumer), polling=[consumer])
    has_ended.set()


def run_in_each_loop(subtests: pytest.Subtests, main: Callable[[FakeCluster], Coroutine[Any, Any, None]]) -> None:
    """Run a function under asyncio, under trio with a cluster in a thread, and under trio with one in the loop."""

    async def with_cluster() -> None:
        async with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
            await main(cluster)

    async def in_thread() -> None:
        with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
            await main(cluster)

    for body in (with_cluster, in_thread):
        with subtests.test(loop="asyncio", cluster=body.__name__):
            asyncio.run(body())
        with subtests.test(loop="trio", cluster=body.__name__):
            trio.run(body)


def test_waits_in_a_loop_poll(subtests: pytest.Subtests) -> None:
    async def main(cluster: FakeCluster) -> None:
        one, two, three = InSeconds("a"), InMilliseconds("b"), WithCoroutines("c")
        consumers = [one, two, three]
        _, records = await cluster.wait_until_async("polls", until(3, *consumers), polling=consumers)
        assert sorted(records) == ["a", "b", "b", "c", "c"]
        assert three.threads == {threading.current_thread()}
        assert len(one.threads | two.threads | three.threads) == 3
        with pytest.raises(PollError) as failed:
            await cluster.wait_for_state_async("g", "Stable", polling=[WithCoroutines("a", ArithmeticError())])
        assert failed.value.records == ["a", "a"]
        with pytest.raises(PollError):
            await cluster.wait_for_state_async("g", "Stable", polling=[InSeconds("a", ArithmeticError())])
        with pytest.raises(WaitTimeout) as late:
            await cluster.wait_for_state_async("g", "Stable", polling=[WithCoroutines("a")], timeout_s=0)
        assert late.value.records == ["a", "a"]
        assert await cluster.wait_for_state_async("g", "Dead", polling=[one]) == (cluster.group("g"), [])

    run_in_each_loop(subtests, main)


def test_a_canceled_wait_ends_its_polls(subtests: pytest.Subtests) -> None:
    async def main(cluster: FakeCluster) -> None:
        consumer = InMilliseconds()

        async def wait() -> None:
            await cluster.wait_until_async("never", lambda _: False, polling=[consumer], timeout_s=TIMEOUT_S)

        if trio.lowlevel.in_trio_task():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                with trio.fail_after(TIMEOUT_S):
                    while not consumer.polls:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        else:
            task = asyncio.create_task(wait())
            async with asyncio.timeout(TIMEOUT_S):
                while not consumer.polls:
                    await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not any(thread.is_alive() for thread in consumer.threads)
        assert await cluster.call_async(lambda: cluster._server.reactor.watchers) == []

    run_in_each_loop(subtests, main)
