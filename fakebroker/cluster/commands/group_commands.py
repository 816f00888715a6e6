"""Commands for groups and their members: hold a group in a state, start rebalances, remove and fence members."""

from collections.abc import Callable, Mapping, Sequence

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.commands.handles import Hold
from fakebroker.coordinator import controls
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer import controls as consumer_controls
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.transaction import controls as transaction_controls
from fakebroker.coordinator.transaction.transaction import TransactionState
from fakebroker.errors import ConfigError, one_of
from fakebroker.validation import Seconds

HeldState = GroupState | ConsumerGroupState | TransactionState

_HOLDABLE_STATES: Mapping[str, HeldState] = {
    **{state.value: state for state in controls.HOLDABLE_STATES},
    **{state.value: state for state in transaction_controls.HOLDABLE_STATES},
}
"""The states in which groups and transactional ids can be held, by Kafka's names, which differ."""


class GroupCommands(CommandsBase):
    """Commands for groups and members. `hold` and `release` also hold transactional ids."""

    @command
    def hold(self, group_id: str, state: str, member: str | None = None) -> Hold:
        """Hold a group in a state of a rebalance, or a transactional id before a state, until `release`.

        The hold of a group applies whenever the group is in this state; the group need not exist yet. In
        PreparingRebalance, the join phase does not end, even if its timer expires. In CompletingRebalance, the leader's
        SyncGroup is parked. Everything else works as usual. For example, a member that joins starts another rebalance,
        as does the expiry of a session. A session does not expire while a response to its member is pending, but a new
        member is removed when its first JoinGroup has waited for 300 s.

        A consumer group (KIP-848) is held in Assigning or Reconciling. In Assigning, the assignor does not run: members
        keep their targets, and new ones have none; but the first assignment of a group is not held. In Reconciling, the
        coordinator ignores reports that a member has given up partitions, so that the member keeps them. With `member`,
        it ignores only the reports of this member. Rebalance timers continue, and remove members when they expire.

        The hold of a transactional id delays its record with the state, before it is written to __transaction_state.
        The transition stays pending, its request is not answered, and other requests get CONCURRENT_TRANSACTIONS. A
        hold of PrepareCommit delays the decision. A hold of CompleteCommit delays the end, after all markers were
        written. If the coordinator moves meanwhile, the record is lost and the request gets NOT_COORDINATOR. Between
        the two states, the markers are written: `hold_markers` holds them.

        Args:
            group_id: Id of the group, or transactional id.
            state: "PreparingRebalance" or "CompletingRebalance" of a group, "Assigning" or "Reconciling" of a consumer
                group. Of a transactional id: "Empty" (InitProducerId), "Ongoing" (a partition is added),
                "PrepareCommit" or "PrepareAbort" (the outcome is decided), "CompleteCommit" or "CompleteAbort" (all
                markers were written), or "Dead" (the id expires).
            member: Member id, instance id or client id of the member that alone is held in Reconciling. None: all.

        Returns:
            A context manager that releases the group or the id.

        Raises:
            ConfigError: The state is none of these; or there is a member that does not exist, or a state in which
                members cannot be held.
        """
        held = _holdable_state(state, member)
        if member is not None:
            return self._hold_member(group_id, member)

        def hold() -> None:
            if isinstance(held, TransactionState):
                self._cluster.transactions.holds.setdefault(group_id, {})[held] = None
                return
            broker = self._cluster.coordinator_of(group_id)
            controls.hold(broker.coordinator if broker else None, group_id, self._controls_of(group_id), held)

        self._run(hold)
        return Hold(lambda: self._run(lambda: self._release(group_id, [held])))

    def _hold_member(self, group_id: str, member: str) -> Hold:
        held: list[str] = []
        self._control(
            group_id,
            lambda coordinator, group, now_ms: held.append(
                controls.hold_member(controls.consumer_group(group), self._controls_of(group_id), member)
            ),
        )
        return Hold(lambda: self._run(lambda: self._controls_of(group_id).held_members.pop(held[0], None)))

    def _controls_of(self, group_id: str) -> GroupControls:
        return self._cluster.group_controls.setdefault(group_id, GroupControls())

    @command
    def release(self, group_id: str, state: str | None = None, member: str | None = None) -> None:
        """Release a group or a transactional id that is held.

        Steps that the hold has prevented, such as the end of the join phase, are done when the command returns; those
        of a consumer group with the next heartbeats of its members.

        Args:
            group_id: Id of the group, or transactional id.
            state: The state in which it is held. None: any state.
            member: The member that alone is held, as in `hold`. None: the whole group, and all of its members.

        Raises:
            ConfigError: The group, id or member is not held, or not in this state.
        """
        if member is not None:
            _holdable_state(state or ConsumerGroupState.RECONCILING.value, member)
            self._run(lambda: self._release_member(group_id, member))
            return
        states = list(_HOLDABLE_STATES.values()) if state is None else [_holdable_state(state)]

        def release() -> None:
            held_states: list[tuple[str, HeldState]] = [
                *((key, each) for key, value in self._cluster.group_controls.items() for each in value.states()),
                *((key, each) for key, value in self._cluster.transactions.holds.items() for each in value),
            ]
            if not any((group_id, each) in held_states for each in states):
                held = [f"{key!r} in {each.value}" for key, each in held_states]
                where = f" in {state}" if state else ""
                known = one_of(held, none="but there is none")
                is_group = not isinstance(states[0], TransactionState)
                subject = "a group" if is_group else "a transactional id"
                raise ConfigError.of("group_id", group_id, f"{subject} that is held{where}, {known}")
            self._release(group_id, states)

        self._run(release)

    def _release_member(self, group_id: str, member: str) -> None:
        held = self._controls_of(group_id).held_members
        broker = self._cluster.coordinator_of(group_id)
        group = broker.coordinator.groups.consumer.get(group_id) if broker else None
        known = controls.member_names(group, member) if group else {member}
        if not known & held.keys():
            expected = one_of(held, member, none="a member that is held; there is none")
            raise ConfigError.of("member", member, expected, where=f"group {group_id!r}")
        for each in known:
            held.pop(each, None)

    def _release(self, group_id: str, states: Sequence[HeldState]) -> None:
        group_controls = self._cluster.group_controls.get(group_id, GroupControls())
        holds = self._cluster.transactions.holds.get(group_id, {})
        for state in states:
            if isinstance(state, TransactionState):
                holds.pop(state, None)
            else:
                group_controls.held_states.pop(state, None)
                if state is ConsumerGroupState.RECONCILING:
                    group_controls.held_members.clear()
        if group_id in self._cluster.transactions.holds:
            self._cluster.now_ms = self._now_ms()  # Records that were held are appended at this time.
        # Not only the coordinator has the group or the id: zombies may have it, too.
        for broker in self._cluster.brokers.values():
            group = broker.coordinator.groups.classic.get(group_id)
            if group is not None:
                controls.release(broker.coordinator, group, self._now_ms())
            broker.transaction_coordinator.release(group_id, self._now_ms())

    @command
    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance of a group without removing a member.

        Heartbeats of all members get REBALANCE_IN_PROGRESS. In a consumer group (KIP-848) the next epoch begins, and
        the next heartbeat of a member runs the assignor.

        Args:
            group_id: Id of the group.

        Raises:
            ConfigError: The group does not exist, or is in another state than Stable, CompletingRebalance and
                Reconciling.
        """
        self._control(group_id, controls.force_rebalance)

    @command
    def choose_leader(self, group_id: str, member: str) -> None:
        """Choose the leader of the next generation of a group.

        The member becomes the leader if it has joined by the end of the join phase.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a consumer group (KIP-848).
        """
        self._control(
            group_id,
            lambda coordinator, group, now_ms: controls.choose_leader(
                controls.classic_group(group), self._controls_of(group_id), member
            ),
        )

    @command
    def choose_assignment(self, group_id: str, assignment: Mapping[str, Sequence[str]]) -> None:
        """Choose the target assignment of a consumer group (KIP-848) that its assignor computes next.

        It runs with the next heartbeat after a change of members, subscriptions or topics, or after `force_rebalance`.

        Args:
            group_id: Id of the group, which need not exist yet.
            assignment: Partitions such as "orders-0" by member id, instance id or client id. Members that are not named
                get no partitions, and names of others are ignored.

        Raises:
            ConfigError: A partition is malformed, or is assigned to two members.
        """
        self._run(lambda: controls.choose_assignment(self._controls_of(group_id), assignment))

    @command
    def evict(self, group_id: str, member: str) -> None:
        """Remove a member from a group, as administrators can.

        The next response to the member is UNKNOWN_MEMBER_ID; the other members rebalance.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.evict(coordinator, group, member, now_ms))

    @command
    def expire(self, group_id: str, member: str) -> None:
        """Expire the session of a member now.

        Has no effect while a response is pending for the member, unless it is new: its first JoinGroup waits.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.expire(coordinator, group, member, now_ms))

    @command
    def fence(self, group_id: str, instance_id: str) -> None:
        """Fence a static member, as if another process had joined with its instance id.

        Requests of the fenced member get FENCED_INSTANCE_ID. The other process sends no further requests: the member
        that replaces the fenced one is removed when its session expires. In a consumer group (KIP-848) the member first
        leaves for a while, because its instance id cannot be used otherwise.

        Args:
            group_id: Id of the group.
            instance_id: The `group.instance.id` of the member.

        Raises:
            ConfigError: The group or instance id does not exist.
        """
        self._control(
            group_id, lambda coordinator, group, now_ms: controls.fence(coordinator, group, instance_id, now_ms)
        )

    @command
    def fence_epoch(self, group_id: str, member: str) -> None:
        """Fence a member of a consumer group (KIP-848): its next heartbeat gets FENCED_MEMBER_EPOCH.

        The coordinator forgets the epoch of the member, as one that has lost records. So the member has to give up all
        partitions and can rejoin. Others can get its partitions at once, unless it is a static member.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a classic group.
        """

        def fence(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            consumer_group = controls.consumer_group(group)
            consumer_controls.fence_epoch(
                coordinator, consumer_group, controls.member_of(consumer_group, member), now_ms
            )

        self._control(group_id, fence)

    @command
    def delay_sync(self, group_id: str, member: str, seconds: Seconds | None = None) -> None:
        """Delay the response to a member's parked SyncGroup, or to its next SyncGroup if none is parked.

        From the group's point of view the member has synced; responses to other members are not delayed.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.
            seconds: The delay by the brokers' clock. None: until `release_sync`.

        Raises:
            ConfigError: The group or member does not exist, or the delay is out of range.
        """
        delay_ms = None if seconds is None else seconds * 1000
        self._control(
            group_id,
            lambda coordinator, group, now_ms: self._cluster.sync_delays.delay(
                _sync_delay_key(controls.classic_group(group), member), delay_ms
            ),
        )

    @command
    def release_sync(self, group_id: str, member: str) -> None:
        """Send the SyncGroup response that `delay_sync` delays.

        If there is no response yet, the delay is canceled.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or `delay_sync` does not apply to the member.
        """

        def release(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            answers = self._cluster.sync_delays.release(_sync_delay_key(controls.classic_group(group), member))
            if answers is None:
                expected = "a member whose SyncGroup response is delayed"
                raise ConfigError.of("member", member, expected, where=f"group {group_id!r}")
            for call, response in answers:
                self._cluster.requests.answer(call, response, now_ms)

        self._control(group_id, release)

    def _control(self, group_id: str, action: Callable[[Coordinator, Group | ConsumerGroup, float], None]) -> None:
        """Run an action on an existing group at its coordinator, with the brokers' time in milliseconds."""

        def act() -> None:
            broker = self._cluster.coordinator_of(group_id)
            if broker is None:
                raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
            group = controls.group_of(broker.coordinator, group_id)
            action(broker.coordinator, group, self._now_ms())

        self._run(act)


def _holdable_state(name: str, member: str | None = None) -> HeldState:
    """Return a state that a group or a transactional id can be held in, by Kafka's name; or a member, if one is named.

    Raises:
        ConfigError: There is no such state.
    """
    states = _HOLDABLE_STATES if member is None else {ConsumerGroupState.RECONCILING.value: None}
    if name not in states:
        what = "" if member is None else ", in which members are held"
        raise ConfigError.of("state", name, one_of(states, name) + what)
    return _HOLDABLE_STATES[name]


def _sync_delay_key(group: Group, name: str) -> tuple[str, str]:
    """Return the group id, and the instance id of a member, or its member id if it has no instance id.

    Unlike a member id, an instance id remains the same when the client restarts.
    """
    member = controls.member_of(group, name)
    return group.group_id, member.instance_id or member.member_id
