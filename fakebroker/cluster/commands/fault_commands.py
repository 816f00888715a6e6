"""Commands that let requests and appends to logs fail."""

from collections.abc import Callable
from typing import Unpack

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import check_type, checked_event, command, commands_of
from fakebroker.cluster.commands.handles import AppendFailureHandle, FaultHandle
from fakebroker.cluster.faults.actions import BoundAction
from fakebroker.cluster.faults.append_failures import AppendFailure, checked_error
from fakebroker.cluster.faults.injection import ActiveFault, bind_function, bound_actions
from fakebroker.cluster.faults.rule import Action, Fault, FaultOptions, checked_in_advance
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.validation import Positive


class FaultCommands(CommandsBase):
    """Commands for faults."""

    @command
    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> FaultHandle:
        """Inject a fault into requests: `fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Instead of a fault, or in addition, commands or functions can run before or after a request is handled:
        `fail("OffsetCommit", nth=3, then={"do": "stop_broker", "node_id": 1})`. Their errors are logged, and are in the
        journal and in `FaultHandle.errors`; the pytest plugin fails the test.

        A request can also be handled late: `fail("Heartbeat", client_id="a", nth=2, delay_before_s=60)` expires the
        session of a member, whose heartbeat then gets UNKNOWN_MEMBER_ID.

        If several faults match a request, only the oldest of them applies.

        Args:
            api: Name of the API, as in Kafka. None: all APIs.
            options: Which requests of the API match, and what happens to them; see `fakebroker.Fault`.

        Returns:
            A handle that counts the affected requests (`hits`) and removes the fault, also as a context manager.

        Raises:
            ConfigError: The fault could never take effect: an API, version, broker, error or option does not exist, or
                options contradict each other.
        """
        return self.add_fault(Fault(api=api, **options))

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Inject a fault, like `fail`.

        Args:
            fault: The fault.

        Returns:
            As `fail`.

        Raises:
            ConfigError: As `fail`.
        """
        check_type("fault", fault, Fault, "a Fault")
        return self._handle(self._run(lambda: self._cluster.faults.add(fault, self._now_ms(), self._bind)))

    def _bind(self, action: Action) -> BoundAction:
        """Check the action of a fault, and return it in a form that can be run."""
        if callable(action):
            return bind_function(action)
        name, arguments = checked_event(action, commands_of(type(self)))
        if name == "fail":
            checked_in_advance(Fault(**arguments))
        for field in ("before", "then"):
            bound_actions(field, arguments.get(field), self._bind)
        text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return BoundAction(f"{name}({text})", lambda call: getattr(self, name)(**arguments))

    @property
    def faults(self) -> list[FaultHandle]:
        """The faults that were not removed, oldest first, including those whose `times` are used up."""
        return [self._handle(fault) for fault in self._run(lambda: list(self._cluster.faults.active))]

    def _handle(self, fault: ActiveFault) -> FaultHandle:
        return FaultHandle(fault, lambda fault: self._run(lambda: self._cluster.faults.remove(fault)))

    def remove_fault(self, handle: FaultHandle) -> None:
        """Remove a fault, if it was not removed before.

        Args:
            handle: What `fail` or `add_fault` returned.
        """
        check_type("handle", handle, FaultHandle, "a FaultHandle")
        handle.remove()

    @command
    def fail_append(
        self, group_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a group fail. JoinGroup, SyncGroup and OffsetCommit append to this log.

        The log is the group's partition of __consumer_offsets; all groups of the partition are affected. Requests get
        the errors that Kafka returns. For NOT_ENOUGH_REPLICAS: OffsetCommit, and the JoinGroup that creates a group,
        get COORDINATOR_NOT_AVAILABLE; so does SyncGroup, and then the members rejoin. If the JoinGroup that creates a
        group gets MEMBER_ID_REQUIRED, as from most clients, its append fails after that response: the group is removed,
        and the member's next JoinGroup gets UNKNOWN_MEMBER_ID.

        Args:
            group_id: Id of the group, which need not exist.
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail. None: all, until the failure is removed.

        Returns:
            A handle that counts the failed appends (`hits`) and removes the failure, also as a context manager.
            `clear_faults` removes all failures.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        return self._fail_append(lambda: self._cluster.offsets_partition_of(group_id), error, times)

    @command
    def fail_transaction_append(
        self, transactional_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a transactional id fail: its transitions are not stored.

        The log is the id's partition of __transaction_state; all ids of the partition are affected. Requests get the
        errors that Kafka returns: for NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE. If the end of a transaction
        cannot be stored after its markers were written, the coordinator tries again.

        Args:
            transactional_id: The transactional id, which need not exist.
            error: As for `fail_append`.
            times: As for `fail_append`.

        Returns:
            As `fail_append`.

        Raises:
            ConfigError: As `fail_append`.
        """
        return self._fail_append(lambda: self._cluster.transactions_partition_of(transactional_id), error, times)

    def _fail_append(
        self, find: Callable[[], Partition], error: ErrorCode | str, times: int | None
    ) -> AppendFailureHandle:
        code = checked_error(error)

        def add() -> AppendFailure:
            partition = find()
            return self._cluster.append_failures.add(partition.topic.name, partition.index, code, times)

        remove = self._cluster.append_failures.remove
        return AppendFailureHandle(self._run(add), lambda failure: self._run(lambda: remove(failure)))

    @command
    def clear_faults(self) -> None:
        """Remove all faults, and failures of appends. Requests and responses that they delay still arrive when due."""

        def clear() -> None:
            self._cluster.faults.active.clear()
            self._cluster.append_failures.active.clear()

        self._run(clear)
