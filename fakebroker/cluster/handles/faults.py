"""The handles of faults, and of appends that fail: they count the affected requests or appends, and end the fault."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.faults.actions import BoundAction
from fakebroker.cluster.faults.append_failures import AppendFailure, checked_error
from fakebroker.cluster.faults.injection import ActiveFault, bind_function, bound_actions, plain_fault
from fakebroker.cluster.faults.rule import Action, Fault, checked_in_advance
from fakebroker.cluster.handles.conditions import DEFAULT_TIMEOUT_S, Condition, condition
from fakebroker.cluster.handles.definition import Handle, Owner, check_type, checked_event, command, perform, view
from fakebroker.cluster.handles.local import Instant, Local
from fakebroker.cluster.inspect.journal_queries import view_journal
from fakebroker.cluster.inspect.phrases import counted
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ConditionNotMet, ConfigError, ErrorCode, nearest, one_of
from fakebroker.validation import Positive

T = TypeVar("T")

SHOWN_REQUESTS = 20
"""How many of the last requests the error of a wait has."""
_KNOWN = 100
"""How many groups and transactional ids, those that changed last, are compared with a misspelled name."""


class WaitingOwner(Protocol):
    """An owner that can wait."""

    def wait(self, condition: Condition[T], timeout_s: float) -> T:
        """Wait like `FakeCluster.wait`."""
        ...

    async def wait_async(self, condition: Condition[T], timeout_s: float) -> T:
        """Wait like `FakeCluster.wait_async`."""
        ...


class FaultView(msgspec.Struct, frozen=True):
    """A fault that was added.

    Attributes:
        id: Its id.
        rule: Its settings other than defaults.
        hits: How many requests it was applied to.
        is_over: Whether it applies to no further request because its `times`, `nth` or `for_s` have passed.
        errors: The first errors of its actions (`before` and `then`), as text.
        missed: An error message if it was applied to no request so far, with the nearest name; "" with `may_miss`.
    """

    id: str
    rule: dict[str, Any]
    hits: int
    is_over: bool
    errors: tuple[str, ...]
    missed: str = ""


class AppendFailureView(msgspec.Struct, frozen=True):
    """Appends to a partition of __consumer_offsets or __transaction_state that fail.

    Attributes:
        id: Its id.
        topic: The topic.
        partition: The number of the partition.
        error: The error of the log, by Kafka's name.
        times: How many appends fail; None for all.
        hits: How many have failed.
    """

    id: str
    topic: str
    partition: int
    error: str
    times: int | None
    hits: int


class _Removable(Handle):
    _keys = ("id",)

    def __init__(self, owner: Owner, id: str) -> None:  # noqa: A002  # the name in HTTP
        super().__init__(owner)
        check_type("id", id, str, "a string")
        self.id = id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        missed = ""
        with suppress(ConfigError):  # The cluster was reset meanwhile.
            missed = self._missed() if kind is None else ""
            self.remove()
        if missed:
            raise ConditionNotMet(missed)

    def remove(self) -> None:
        raise NotImplementedError

    def _missed(self) -> str:
        return ""


class FaultHandle(_Removable):
    """A fault that `inject_fault` has added. As a context manager, it removes the fault on exit.

    Attributes:
        id: Its id.
    """

    _kind = "fault"
    _path = "faults"

    @view
    def describe(self) -> FaultView:
        """Return the fault, also if it was removed, until the cluster is reset.

        Raises:
            ConfigError: There is no such fault.
        """
        local = self._local
        return local.run(lambda: fault_view(local, self._active()))

    @property
    def hits(self) -> int:
        """Number of requests that the fault has affected."""
        return self.describe().hits

    @property
    def errors(self) -> tuple[str, ...]:
        """The first errors of its actions (`before` and `then`), as a tuple of texts."""
        return self.describe().errors

    @condition(after_requests=True)
    def hit(self, at: Instant, at_least: Positive = 1) -> FaultView | None:
        """The fault was applied to at least this many requests: `cluster.wait(fault.hit(2))`, or `fault.wait(hits=2)`.

        Args:
            at_least: The number of requests.
        """
        active = _active(at.cluster, self.id)
        return fault_view(at.local, active) if active.hits >= at_least else None

    def wait(self, hits: int = 1, timeout_s: float = DEFAULT_TIMEOUT_S) -> FaultView:
        """Wait until the fault was applied to at least this many requests.

        Args:
            hits: The number of requests.
            timeout_s: Maximum wait in wall-clock seconds.

        Raises:
            WaitTimeout: It was not. The message has the last requests.
        """
        return cast(WaitingOwner, self._owner).wait(self.hit(hits), timeout_s)

    async def wait_async(self, hits: int = 1, timeout_s: float = DEFAULT_TIMEOUT_S) -> FaultView:
        """Wait like `wait`, in a task of trio or asyncio."""
        return await cast(WaitingOwner, self._owner).wait_async(self.hit(hits), timeout_s)

    def _state_text(self, at: Instant) -> str:
        active = _active(at.cluster, self.id)
        hits, seen = counted(active.hits, "request"), counted(active.seen, "request")
        matched = f"fault {self.id} was applied to {hits}; {seen} matched its filters"
        return f"{matched}\n{view_journal(at.cluster).report(SHOWN_REQUESTS)}"

    @command
    def remove(self) -> None:
        """Remove the fault, if it was not removed before. Responses that it delays are still sent when they are due."""
        local = self._local
        local.run(lambda: local.cluster.faults.remove(self._active()))

    def _missed(self) -> str:
        return self.describe().missed

    def _active(self) -> ActiveFault:
        return _active(self._local.cluster, self.id)


class AppendFailureHandle(_Removable):
    """Appends that `fail_append` lets fail. As a context manager, it lets no more appends fail on exit.

    Attributes:
        id: Its id.
    """

    _kind = "append_failure"
    _path = "append_failures"

    @view
    def describe(self) -> AppendFailureView:
        """Return the failure, also if it was removed, until the cluster is reset.

        Raises:
            ConfigError: There is no such failure.
        """
        return self._local.run(lambda: append_failure_view(self._failure()))

    @property
    def hits(self) -> int:
        """Number of appends that have failed."""
        return self.describe().hits

    @command
    def remove(self) -> None:
        """Let no more appends fail."""
        local = self._local
        local.run(lambda: local.cluster.append_failures.remove(self._failure()))

    def _failure(self) -> AppendFailure:
        known = self._local.cluster.append_failures.by_id
        if self.id not in known:
            raise ConfigError.of("id", self.id, one_of(known, none="a failure: there is none"))
        return known[self.id]


def _active(cluster: Cluster, fault_id: str) -> ActiveFault:
    known = cluster.faults.by_id
    if fault_id not in known:
        raise ConfigError.of("id", fault_id, one_of(known, none="a fault: there is none"))
    return known[fault_id]


def add_fault(local: Local, fault: Fault) -> FaultHandle:
    """Add a fault to a cluster.

    Raises:
        ConfigError: The fault could never take effect.
    """

    def bind(action: Action) -> BoundAction:
        """Check an action of the fault, and return it in a form that can be run."""
        if callable(action):
            return bind_function(action)
        definition, key, arguments = checked_event(action)
        if definition.name == "inject_fault":
            checked_in_advance(Fault(**arguments))
        for field in ("before", "then"):
            bound_actions(field, arguments.get(field), bind)
        text = ", ".join(f"{name}={value!r}" for name, value in {**key, **arguments}.items())
        return BoundAction(f"{definition.name}({text})", lambda call: perform(local, action))

    return FaultHandle(local, local.run(lambda: local.cluster.faults.add(fault, local.now_ms(), bind)).id)


def _missed(cluster: Cluster, active: ActiveFault, rule: Mapping[str, Any]) -> str:
    """Return the message of `FaultView.missed`; `rule` has the settings of the fault."""
    if active.hits or active.fault.may_miss:
        return ""
    known: dict[str, Iterable[str]] = {
        "group": cluster.history.newest(_KNOWN),
        "topic": [each.name for each in cluster.topics],
        "transactional_id": cluster.transactions.history.newest(_KNOWN),
    }
    hints = [
        f"; nearest {name}: {near!r}"
        for name, names in known.items()
        if name in rule and rule[name] not in (listed := list(names)) and (near := nearest(rule[name], listed))
    ]
    filters = ", ".join(f"{name}={value!r}" for name, value in rule.items())
    return (
        f"inject_fault({filters}) was applied to no request; {counted(active.seen, 'request')} matched its "
        f"filters{''.join(hints)}. With may_miss=True, that is no error"
    )


def fault_view(local: Local, fault: ActiveFault) -> FaultView:
    """Return the view of a fault."""
    rule, is_over = plain_fault(fault.fault), fault.is_over(local.now_ms())
    missed = _missed(local.cluster, fault, rule)
    return FaultView(fault.id, rule, fault.hits, is_over, tuple(fault.errors), missed)


def append_failure_view(failure: AppendFailure) -> AppendFailureView:
    """Return the view of appends that fail."""
    error = failure.error.name
    return AppendFailureView(failure.id, failure.topic, failure.partition, error, failure.times, failure.hits)


def add_append_failure(
    local: Local, find: Callable[[], Partition], error: ErrorCode | str, times: int | None
) -> AppendFailureHandle:
    """Let the next appends to a partition of an internal topic, which `find` returns, fail.

    Raises:
        ConfigError: Appends do not fail with this error.
    """
    code = checked_error(error)

    def add() -> AppendFailure:
        partition = find()
        return local.cluster.append_failures.add(partition.topic.name, partition.index, code, times)

    return AppendFailureHandle(local, local.run(add).id)
