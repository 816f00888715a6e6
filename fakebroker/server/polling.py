"""Polls the Kafka consumers of a test while the test waits, so that several consumers can share its thread.

Does not depend on any client: consumers are recognized by their methods.
"""

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fakebroker.cluster.inspect.views import GroupView
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.errors import ConfigError, PollError
from fakebroker.topic_partition import TopicPartition, format_partitions

STABLE = GroupState.STABLE.value
_ROUND_S = 0.02
"""How long consumers without a thread are polled, all together."""
_MIN_POLL_S = 0.001
_THREAD_POLL_S = 0.05
_MAX_JOIN_S = 5.0
SETTLE_S = 2.0
"""How long a Stable group is polled for consumers without a member id, and for another rebalance."""
_EXPECTED = "a consumer with a method poll or getmany, or a function without arguments"


class Assignment(NamedTuple):
    """The partitions that a consumer has.

    Attributes:
        member_id: Its member id, which may be one that the group has removed; "" if that is not known.
        partitions: The partitions.
    """

    member_id: str
    partitions: frozenset[TopicPartition]


Assignments = Sequence[Assignment]
"""The partitions of several consumers, as far as they are known."""


class Polling:
    """Consumers that waits poll, and the records that they have returned: `polled = Polling([one, two])`.

    Consumers are objects with `poll(seconds)` (confluent-kafka), `poll(timeout_ms=...)` (kafka-python), in `..._async`
    methods also with coroutines (`getmany` of aiokafka, `poll` of `fakebroker.Consumer`); or functions without
    arguments that poll in another way. They are polled in turn in the calling thread, with two exceptions: consumers of
    kafka-python, and in `..._async` methods all consumers without coroutines, each have a thread, which ends with the
    wait. If a consumer fails, the wait raises `PollError`.

    Args:
        consumers: The consumers.

    Attributes:
        consumers: The consumers.
        records: The records of all waits, in the order in which they were read: messages of confluent-kafka, records of
            other clients.
    """

    def __init__(self, consumers: Sequence[Any]) -> None:
        self.consumers = consumers
        self.records: list[Any] = []


class _Source:
    """One consumer or function to poll.

    Attributes:
        name: Its name in errors.
        polled: The consumer or function.
        is_async: Whether polls are coroutines.
        needs_thread: Whether it must be polled without pauses: kafka-python discards the response to a JoinGroup that
            arrives between two polls, and joins again.
        assignment: The consumer's partitions at the end of the last poll in its thread; None if they are not known.
    """

    def __init__(self, name: str, polled: Any, timeout_s: float) -> None:
        self.name = name
        self.polled = polled
        self.needs_thread = False
        self.assignment: Assignment | None = None
        method: Callable[..., Any]
        arguments: tuple[float, ...] = ()
        options: dict[str, int] = {}
        if callable(getattr(polled, "getmany", None)):  # aiokafka
            method, options = polled.getmany, {"timeout_ms": round(timeout_s * 1000)}
        elif callable(getattr(polled, "poll", None)):
            method, parameters = polled.poll, _parameters(polled.poll)
            self.needs_thread = "timeout_ms" in parameters
            if self.needs_thread:
                options = {"timeout_ms": round(_THREAD_POLL_S * 1000)}
            elif parameters:
                arguments = (timeout_s,)
        elif callable(polled):
            method = polled
        else:
            raise ConfigError.of(name, polled, _EXPECTED)
        self.is_async = inspect.iscoroutinefunction(method)
        self.poll: Callable[[], Any] = lambda: method(*arguments, **options)

    def prepare(self) -> None:
        """Make kafka-python fetch the number of partitions before it joins its group.

        A leader that gets them later joins again, and if a poll ends during that join, it never completes it.
        """
        if self.needs_thread and hasattr(self.polled, "partitions_for_topic"):
            for topic in self.polled.subscription() or ():
                self.polled.partitions_for_topic(topic)

    def find_assignment(self) -> Assignment | None:
        """Return the partitions that the consumer has; None if that is not known."""
        assignment = getattr(self.polled, "assignment", None)
        if assignment is None or inspect.iscoroutinefunction(assignment):
            return None
        try:
            member_id = _member_id(self.polled)
            return Assignment(member_id, frozenset((each.topic, each.partition) for each in assignment()))
        except Exception:  # The consumer is closed, or `assignment` means something else.
            return None


def _member_id(consumer: Any) -> str:
    """Return the member id of a consumer; "" if it has none, or does not tell it."""
    if hasattr(consumer, "memberid"):  # confluent-kafka
        return consumer.memberid() or ""
    if hasattr(consumer, "group_metadata"):  # kafka-python
        return consumer.group_metadata().member_id or ""
    return getattr(getattr(consumer, "_coordinator", None), "member_id", "")  # aiokafka


def _parameters(poll: Any) -> Iterable[str]:
    """Return the names of the parameters of `poll`. A method written in C counts as having one, `timeout`."""
    try:
        return tuple(inspect.signature(poll).parameters)
    except (TypeError, ValueError):
        return ("timeout",)


class ConsumerPoller:
    """Polls consumers, and collects the records that the polls return. `close` ends its threads.

    Args:
        polling: The consumers; see `Polling`.
        is_async: Whether coroutines can be awaited. If so, all other consumers are polled in threads.

    Attributes:
        records: The records that were read so far.

    Raises:
        ConfigError: An entry is none of these, or a coroutine function that cannot be awaited.
    """

    def __init__(self, polling: Polling | Sequence[Any], *, is_async: bool) -> None:
        polled = polling if isinstance(polling, Polling) else Polling(polling)
        polling = polled.consumers
        if isinstance(polling, str | bytes | Mapping) or not isinstance(polling, Iterable):
            raise ConfigError.of("polling", polling, "a list of consumers")
        consumers = list(polling)
        timeout_s = max(_MIN_POLL_S, _ROUND_S / max(1, len(consumers)))
        sources = [_Source(f"polling[{at}]", each, timeout_s) for at, each in enumerate(consumers)]
        for source in sources:
            if source.is_async and not is_async:
                raise ConfigError.of(source.name, source.polled, "a consumer without coroutines, or an _async method")
        self.records = polled.records
        self._in_turn = [each for each in sources if (each.is_async if is_async else not each.needs_thread)]
        self._in_threads = [each for each in sources if each not in self._in_turn]
        self._threads: dict[_Source, threading.Thread] = {}
        self._is_over = False
        self._errors: list[PollError] = []

    def close(self) -> None:
        """End the threads as soon as their polls end, but at most after `_MAX_JOIN_S`."""
        self._is_over = True
        until_s = time.monotonic() + _MAX_JOIN_S
        for source, thread in self._threads.items():
            thread.join(max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                self._errors.append(self._error(source, f"its poll has not ended after {_MAX_JOIN_S:g} s"))

    def check(self) -> None:
        """Raise the error of a consumer in a thread, if one has failed.

        Raises:
            PollError: A consumer failed, or its poll has not ended when the poller was closed.
        """
        if self._errors:
            raise self._errors[0]

    def poll(self, is_over: Callable[[], bool]) -> None:
        """Poll each consumer without a thread once, until the wait is over. The first call starts the threads.

        Raises:
            PollError: A consumer failed, also one in a thread.
        """
        self._start_threads()
        for source in self._in_turn:
            if is_over():
                break
            self._poll(source)
        self.check()

    async def poll_async(self, is_over: Callable[[], bool]) -> None:
        """Poll like `poll`."""
        self._start_threads()
        for source in self._in_turn:
            if is_over():
                break
            try:
                result = await source.poll()
            except Exception as error:
                raise self._error(source, error) from error
            self._add(source, result)
        self.check()

    def assignments(self) -> Assignments:
        """Return the partitions that the consumers have, as far as that is known."""
        found = [source.find_assignment() for source in self._in_turn]
        found += [source.assignment if self._threads else source.find_assignment() for source in self._in_threads]
        return [assignment for assignment in found if assignment is not None]

    def assignments_text(self) -> str:
        """Return a line for each consumer whose partitions are known."""
        return "\n".join(
            f"  {each.member_id or 'a consumer without a member id'} has "
            + (format_partitions(sorted(each.partitions)) if each.partitions else "no partitions")
            for each in self.assignments()
        )

    def _start_threads(self) -> None:
        if self._threads:
            return
        for source in self._in_threads:
            source.assignment = source.find_assignment()
            # A daemon, because a poll that never ends must not keep the process.
            thread = threading.Thread(target=self._poll_on, args=(source,), name=source.name, daemon=True)
            self._threads[source] = thread
        for thread in self._threads.values():
            thread.start()

    def _poll_on(self, source: _Source) -> None:
        """Poll a consumer until the wait is over, in a thread."""
        try:
            source.prepare()
            while not self._is_over:
                self._poll(source)
                source.assignment = source.find_assignment()
        except PollError as error:
            self._errors.append(error)
        except Exception as error:
            self._errors.append(self._error(source, error))

    def _poll(self, source: _Source) -> None:
        try:
            result = source.poll()
        except Exception as error:
            raise self._error(source, error) from error
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise self._error(source, "it returned an awaitable: expected records, or an async function")
        self._add(source, result)

    def _add(self, source: _Source, result: Any) -> None:
        """Add what a poll has returned to the records: nothing, one record, or several."""
        found = _flattened(result)
        errors = [error for record in found if (error := _error_of(record)) is not None]
        self.records.extend(record for record in found if _error_of(record) is None)
        if errors:
            raise self._error(source, errors[0])

    def _error(self, source: _Source, error: object) -> PollError:
        kind = type(source.polled)
        name = f"{type(error).__name__}: " if isinstance(error, Exception) else ""
        what = f"{source.name}, a {kind.__module__}.{kind.__qualname__}, failed: {name}{error}"
        return PollError(what, error=error)


@contextmanager
def collecting(poller: ConsumerPoller | None) -> Iterator[None]:
    """Close a poller at the end of a wait.

    Raises:
        PollError: A consumer in a thread failed.
    """
    try:
        yield
    finally:
        if poller is not None:
            poller.close()
    if poller is not None:
        poller.check()


def have_received(group: GroupView, assignments: Assignments, *, has_topics: bool = True) -> bool:
    """Return whether consumers have received the partitions that a group has assigned to them.

    A consumer whose member id is not in the group does not count: it belongs to another group, or the group has
    removed it.

    Some consumers do not report a member id. They are compared by their partitions with the members that no consumer
    names. Either each of these members must have the same partitions as one of these consumers, or each of these
    consumers the same as one of these members. Members without a consumer may be in other processes.

    Args:
        group: The group now.
        assignments: The partitions of the consumers.
        has_topics: Whether topics exist to which members may be subscribed.
    """
    if not assignments or group.state == GroupState.DEAD.value:
        return True
    if group.state != STABLE:
        return False
    assigned = {each.member_id: each.assigned_partitions for each in group.members if not each.is_expected}
    if None in assigned.values():  # Not a group of consumers.
        return True
    members = {member_id: frozenset(partitions or ()) for member_id, partitions in assigned.items()}
    if has_topics and not any(members.values()):
        return False  # The leader did not know the topics yet, as with kafka-python. It is about to rejoin.
    if any(members.get(each.member_id, each.partitions) != each.partitions for each in assignments):
        return False
    unknown = Counter(each.partitions for each in assignments if not each.member_id)
    others = Counter(members[each] for each in members.keys() - {each.member_id for each in assignments})
    return others <= unknown or unknown <= others


def _flattened(result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, Mapping):  # Lists by partition, as in kafka-python and aiokafka.
        return [record for records in result.values() for record in records]
    return list(result) if isinstance(result, list | tuple) and not hasattr(result, "_fields") else [result]


def _error_of(record: Any) -> Any:
    """Return the error that a message of confluent-kafka contains, except the end of a partition, which is none."""
    error = getattr(record, "error", None)
    found = error() if callable(error) else None
    is_end = found is not None and callable(getattr(found, "name", None)) and found.name() == "_PARTITION_EOF"
    return None if is_end else found
