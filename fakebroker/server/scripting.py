"""Rebalances by a test's hand: what Kafka does by itself at some time, done or held back at the time that a test needs.

Finds the coordinator of a group and calls `fakebroker.coordinator.group.controls` on it.
"""

from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Self

from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.errors import ConfigError
from fakebroker.server.lifecycle import RunningCluster


class Hold:
    """A hold that is set already; as a context manager it is released at the end, unless it has been before."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()


class Scripting(RunningCluster):
    """Rebalances by hand. Members are named by member id, by instance id, or by client id if only one has it."""

    # Holding

    def hold(self, group_id: str, state: str) -> Hold:
        """Keep a group in a state until `release`: from now on, or from when it gets there; it need not exist yet.

        While it is held in PreparingRebalance the join phase does not end, by its timer neither; in CompletingRebalance
        the leader's SyncGroup waits. Everything else goes on as in that state: a member that comes, or whose session
        ends while no answer is owed to it, begins another round.

        Args:
            group_id: The group.
            state: "PreparingRebalance" or "CompletingRebalance".

        Returns:
            A context manager that releases it.

        Raises:
            ConfigError: The state is another one.
        """
        held = controls.holdable_state(state)

        def hold() -> None:
            broker = self.cluster.coordinator_of(group_id)
            wanted = self.cluster.group_controls.setdefault(group_id, GroupControls())
            controls.hold(broker.coordinator if broker else None, group_id, wanted, held)

        self._call(hold)
        return Hold(lambda: self._call(lambda: self._release(group_id, [held])))

    def release(self, group_id: str, state: str | None = None) -> None:
        """Let a group go on that is held; what has been due is done when this returns.

        Args:
            group_id: The group.
            state: The state that it is held in; by default any.

        Raises:
            ConfigError: It is not held.
        """
        states = controls.HOLDABLE_STATES if state is None else [controls.holdable_state(state)]

        def release() -> None:
            wanted = self.cluster.group_controls
            if group_id not in wanted or not any(each in wanted[group_id].held_states for each in states):
                held = [f"{key!r} in {each.value}" for key, value in wanted.items() for each in value.held_states]
                where = f" in {state}" if state else ""
                raise ConfigError(f"group {group_id!r} is not held{where}: held are {', '.join(held) or 'none'}")
            self._release(group_id, states)

        self._call(release)

    def _release(self, group_id: str, states: "list[GroupState] | tuple[GroupState, ...]") -> None:
        wanted = self.cluster.group_controls.get(group_id, GroupControls())
        for state in states:
            wanted.held_states.pop(state, None)
        # An old coordinator that still answers has the group as well.
        for broker in self.cluster.brokers.values():
            group = broker.coordinator.group(group_id)
            if group is not None:
                controls.release(broker.coordinator, group, self.clock.now_ms())

    # Rounds

    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance as the end of a session does, but all members stay: heartbeats tell them to join again.

        Raises:
            ConfigError: There is no such group, or it is neither Stable nor CompletingRebalance.
        """
        self._script(group_id, controls.force_rebalance)

    def choose_leader(self, group_id: str, member: str) -> None:
        """Let a member lead the next generation, if it has joined when the join phase ends.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._script(
            group_id,
            lambda coordinator, group, now_ms: controls.choose_leader(
                group, self.cluster.group_controls.setdefault(group_id, GroupControls()), member
            ),
        )

    # Members

    def evict(self, group_id: str, member: str) -> None:
        """Remove a member, as an administrator does: UNKNOWN_MEMBER_ID is what it gets next; the others rebalance.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._script(group_id, lambda coordinator, group, now_ms: controls.evict(coordinator, group, member, now_ms))

    def expire(self, group_id: str, member: str) -> None:
        """Let a member's session run out at this moment. While an answer is owed to a member that has no effect.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._script(group_id, lambda coordinator, group, now_ms: controls.expire(coordinator, group, member, now_ms))

    def fence(self, group_id: str, instance_id: str) -> None:
        """Replace a static member as another process with its instance id does: FENCED_INSTANCE_ID is what it gets.

        The other process is heard of no more: the member that it became is removed when its session ends.

        Raises:
            ConfigError: There is no such group or instance id.
        """
        self._script(
            group_id, lambda coordinator, group, now_ms: controls.fence(coordinator, group, instance_id, now_ms)
        )

    # Answers

    def delay_sync(self, group_id: str, member: str, seconds: float | None = None) -> None:
        """Let the answer to a member's next SyncGroup come late; one that waits for the leader counts as the next.

        For the group the member has synced, and the other members get their answers.

        Args:
            group_id: The group.
            member: The member.
            seconds: How late, in the brokers' time; None is until `release_sync`.

        Raises:
            ConfigError: There is no such group or member, or the time is negative.
        """
        if seconds is not None and not 0 <= seconds < inf:
            raise ConfigError(f"seconds={seconds}: expected 0 or more, or None for until release_sync")
        delay_ms = None if seconds is None else seconds * 1000
        self._script(
            group_id,
            lambda coordinator, group, now_ms: self.cluster.sync_delays.delay(_lasting_name(group, member), delay_ms),
        )

    def release_sync(self, group_id: str, member: str) -> None:
        """Let a member have its answer now that `delay_sync` keeps from it, and the next ones in time.

        Raises:
            ConfigError: There is no such group or member, or nothing is kept from it.
        """

        def release(coordinator: Coordinator, group: Group, now_ms: float) -> None:
            answers = self.cluster.sync_delays.release(_lasting_name(group, member))
            if answers is None:
                raise ConfigError(f"member {member!r} of group {group_id!r}: expected one whose sync is delayed")
            for call, response in answers:
                self.cluster.answer(call, response, now_ms)

        self._script(group_id, release)

    def _script(self, group_id: str, action: Callable[[Coordinator, Group, float], None]) -> None:
        """Do something to a group that there is, at its coordinator."""

        def act() -> None:
            broker = self.cluster.coordinator_of(group_id)
            if broker is None:
                raise ConfigError(f"group {group_id!r} has no coordinator now")
            group = controls.group_of(broker.coordinator, group_id)
            action(broker.coordinator, group, self.clock.now_ms())

        self._call(act)


def _lasting_name(group: Group, name: str) -> tuple[str, str]:
    """A member under the name that it keeps for longest."""
    member = controls.member_of(group, name)
    return group.group_id, member.instance_id or member.member_id
