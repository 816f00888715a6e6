"""Waits that poll: what they read and raise, for consumers that imitate the methods of Kafka clients."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from confluent_kafka import TopicPartition

from fakebroker import Condition, ConfigError, FakeCluster, PollError, Polling, WaitTimeout, predicate
from fakebroker.server import waits
from fakebroker.server.fake_cluster import internals
from tests.support.server.pending_waits import remains_of_waits
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


def polls(count: int, *consumers: InSeconds) -> Condition[bool]:
    """Return the condition that consumers have been polled a number of times."""
    return predicate("polls", lambda: all(each.polls >= count for each in consumers))


NEVER = predicate("never", lambda: False)


def test_records_are_kept_in_the_order_of_the_polls(fake_cluster: FakeCluster) -> None:
    end = Message(Error("_PARTITION_EOF"))
    one, two = InSeconds("a", "b", end), InSeconds("c", None, "d")
    polled = Polling([one, two])
    assert fake_cluster.wait(polls(3, one, two), polling=polled) is True
    assert polled.records == ["a", "c", "b", end, "d"]
    assert one.threads == {threading.current_thread()}


def test_the_records_of_several_waits_are_kept(fake_cluster: FakeCluster) -> None:
    one = InSeconds("a", "b", "c", "d")
    polled = Polling([one])
    assert polled.consumers == [one]
    for count in (2, 3, 4):
        fake_cluster.wait(polls(count, one), polling=polled)
        assert len(polled.records) == count
    assert polled.records == ["a", "b", "c", "d"]


def test_a_list_of_consumers_is_polled_too(fake_cluster: FakeCluster) -> None:
    one = InSeconds("a")
    assert fake_cluster.wait(polls(2, one), polling=[one]) is True
    assert one.left == []


def test_consumers_with_milliseconds_are_polled_in_threads(fake_cluster: FakeCluster) -> None:
    """Without pauses: kafka-python discards a response to JoinGroup that arrives between two polls."""
    one, two = InMilliseconds("a"), InMilliseconds("b")
    polled = Polling([one, two])
    fake_cluster.wait(polls(5, one, two), polling=polled)
    assert sorted(polled.records) == ["a", "a", "b", "b"]
    assert len(one.threads | two.threads) == 2
    assert not any(thread.is_alive() for thread in one.threads | two.threads)


def test_functions_are_called(fake_cluster: FakeCluster) -> None:
    calls = iter([None, 1, [2, 3], (), {"a": [4]}])
    done: list[int] = []

    def poll() -> object:
        done.append(1)
        return next(calls, None)

    polled = Polling([poll])
    fake_cluster.wait(predicate("calls", lambda: len(done) >= 5), polling=polled)
    assert polled.records == [1, 2, 3, 4]


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_waits_for_every_kind_of_condition_poll(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    def seed() -> str:
        fake_cluster.group("g").seed(1, topics=["orders"], offsets={"orders-0": 0})
        fake_cluster.topic("late").create()
        return "seeded"

    stable, late = fake_cluster.group("g").stable(), fake_cluster.topic("late").exists()
    conditions: list[Condition[Any]] = [
        stable,
        fake_cluster.group("g").state(above=0),
        fake_cluster.group("g").committed("orders-0", at_least=0),
        late,
        stable & late,
        fake_cluster.requested() | late,
        ~fake_cluster.group("g").state("Dead"),
        predicate("holds", lambda: fake_cluster.holds(stable)),
        stable & predicate("holds", lambda: fake_cluster.holds(late)),
    ]
    for condition in conditions:
        with subtests.test(condition=str(condition)):
            fake_cluster.reset()
            polled = Polling([seed])
            fake_cluster.wait(condition, polling=polled)
            assert polled.records == ["seeded"]
            fake_cluster.wait(condition, polling=polled)  # It holds already.
            assert polled.records == ["seeded"]


def test_stays_polls(fake_cluster: FakeCluster) -> None:
    polled = Polling([InSeconds("a", "b")])
    fake_cluster.stays(fake_cluster.group("g").state("Dead"), 0.5, polling=polled)
    assert polled.records in (["a"], ["a", "b"])  # A busy machine may poll once in that time.
    with pytest.raises(PollError):
        fake_cluster.stays(fake_cluster.group("g").state("Dead"), TIMEOUT_S, polling=[InSeconds(ArithmeticError())])


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
        return "removed" if self._is_removed else self._cluster.group("g").describe().members[0].member_id

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
    fake_cluster.group("g").seed(1, topics=["orders"])
    one, two = kind(fake_cluster, is_removed=True), kind(fake_cluster)
    if kind is AssignedWithCoroutines:
        trio.run(lambda: fake_cluster.wait_async(fake_cluster.group("g").stable(), polling=[one, two]))
    else:
        fake_cluster.wait(fake_cluster.group("g").stable(), polling=[one, two])
    assert len(two.assignment()) == 4


class Late(InMilliseconds):
    """A consumer of kafka-python with a member id, which has its partitions as soon as `arrived` is set."""

    def __init__(self, member_id: str) -> None:
        super().__init__()
        self.id = member_id
        self.arrived = threading.Event()

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", number) for number in range(4)] if self.arrived.is_set() else []

    def group_metadata(self) -> SimpleNamespace:
        return SimpleNamespace(member_id=self.id)


def test_other_tasks_run_until_consumers_have_their_partitions() -> None:
    """All of its consumers are polled in threads, and the cluster runs in the same loop."""

    async def main() -> None:
        async with FakeCluster(topics={"orders": 4}) as cluster:
            cluster.group("g").seed(1, topics=["orders"])
            consumer = Late(cluster.group("g").describe().members[0].member_id)

            async def arrive() -> None:
                while not consumer.polls:
                    await trio.lowlevel.checkpoint()
                consumer.arrived.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(arrive)
                await cluster.wait_async(cluster.group("g").stable(), 1, polling=[consumer])

    trio.run(main)


@pytest.mark.fake_cluster(topics={"orders": 4})
def test_a_consumer_that_does_not_receive_its_partitions(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer without a member id may belong to no group, so it is waited for only for a while."""
    monkeypatch.setattr(waits, "SETTLE_S", 0.0)
    fake_cluster.group("g").seed(1, topics=["orders"])
    member_id = fake_cluster.group("g").describe().members[0].member_id
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait(fake_cluster.group("g").stable(), 0.1, polling=[Late(member_id)])
    assert str(caught.value).endswith(
        f"partitions that the group has assigned to them:\n  {member_id} has no partitions"
    )
    fake_cluster.wait(fake_cluster.group("g").stable(), 0.1, polling=[Late("")])


def test_errors_of_consumers_are_raised(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    failure = ArithmeticError("fenced")
    for kind in (InSeconds, InMilliseconds):
        polled = Polling([kind("a", failure)])
        with subtests.test(kind=kind), pytest.raises(PollError) as caught:
            fake_cluster.wait(NEVER, polling=polled)
        error = caught.value
        assert str(error) == f"polling[0], a tests.server.test_polling.{kind.__name__}, failed: ArithmeticError: fenced"
        assert error.error is error.__cause__ is failure
        assert set(polled.records) == {"a"}
    failed = Error("_MAX_POLL_EXCEEDED")
    polled = Polling([InSeconds("a", Message(failed))])
    with pytest.raises(PollError, match=r"failed: KafkaError\{_MAX_POLL_EXCEEDED\}$") as caught:
        fake_cluster.wait(NEVER, polling=polled)
    assert (caught.value.error, polled.records) == (failed, ["a"])


def test_records_are_kept_after_a_timeout(fake_cluster: FakeCluster) -> None:
    for condition in (fake_cluster.group("g").stable(), NEVER):
        polled = Polling([InSeconds("a"), InMilliseconds("b")])
        with pytest.raises(WaitTimeout):
            fake_cluster.wait(condition, polling=polled, timeout_s=0.5)
        assert sorted(polled.records) == ["a", "b", "b"]


def test_what_cannot_be_polled_is_rejected(fake_cluster: FakeCluster) -> None:
    wrong: Any = InSeconds()
    with pytest.raises(ConfigError, match=r"^polling=<.*>: expected a list of consumers$"):
        fake_cluster.wait(fake_cluster.group("g").state("Dead"), polling=wrong)
    with pytest.raises(
        ConfigError, match=r"^polling\[1\]=3: expected a consumer with a method poll or getmany, or a fu"
    ):
        fake_cluster.wait(fake_cluster.group("g").state("Dead"), polling=[InSeconds(), 3])
    with pytest.raises(
        ConfigError, match=r"^polling\[0\]=<.*>: expected a consumer without coroutines, or an _async m"
    ):
        fake_cluster.wait(fake_cluster.group("g").state("Dead"), polling=[WithCoroutines()])


def test_a_function_must_not_return_an_awaitable(fake_cluster: FakeCluster) -> None:
    async def poll() -> None: ...

    with pytest.raises(PollError, match=r"failed: it returned an awaitable: expected records, or an async function$"):
        fake_cluster.wait(fake_cluster.group("g").stable(), polling=[lambda: poll()])


def test_a_poll_that_does_not_end_is_an_error(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakebroker.server.polling._MAX_JOIN_S", 0.01)
    has_ended = threading.Event()

    class Endless(InSeconds):
        def poll(self, timeout_ms: float) -> object:
            self.polls += 1
            has_ended.wait(TIMEOUT_S)
            return None

    consumer = Endless()
    with pytest.raises(PollError, match=r"failed: its poll has not ended after 0\.01 s$"):
        fake_cluster.wait(polls(1, consumer), polling=[consumer])
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
        polled = Polling([one, two, three])
        assert await cluster.wait_async(polls(3, one, two, three), polling=polled) is True
        assert sorted(polled.records) == ["a", "b", "b", "c", "c"]
        assert three.threads == {threading.current_thread()}
        assert len(one.threads | two.threads | three.threads) == 3
        for kind in (WithCoroutines, InSeconds):
            failing = Polling([kind("a", ArithmeticError())])
            with pytest.raises(PollError):
                await cluster.wait_async(cluster.group("g").stable(), polling=failing)
            assert set(failing.records) == {"a"}
        late = Polling([WithCoroutines("a")])
        with pytest.raises(WaitTimeout):
            await cluster.wait_async(cluster.group("g").stable(), polling=late, timeout_s=0.5)
        assert late.records == ["a", "a"]
        holds = cluster.group("g").state("Dead")
        assert await cluster.wait_async(holds, polling=[one]) == cluster.group("g").describe()
        staying = Polling([WithCoroutines("a")])
        await cluster.stays_async(holds, 0.5, polling=staying)
        assert staying.records == ["a", "a"]

    run_in_each_loop(subtests, main)


def test_a_canceled_wait_ends_its_polls(subtests: pytest.Subtests) -> None:
    async def main(cluster: FakeCluster) -> None:
        consumer = InMilliseconds()

        async def wait() -> None:
            await cluster.wait_async(NEVER, polling=[consumer], timeout_s=TIMEOUT_S)

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
        assert await internals(cluster).server.run_async(lambda: remains_of_waits(cluster)) == []

    run_in_each_loop(subtests, main)
