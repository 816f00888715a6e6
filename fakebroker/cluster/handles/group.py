"""The handle of a group: its views, commands and conditions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fakebroker.cluster.handles.conditions import condition
from fakebroker.cluster.handles.definition import NONE, Handle, Owner, check_type, command, holding, view
from fakebroker.cluster.handles.faults import AppendFailureHandle, add_append_failure
from fakebroker.cluster.handles.local import Instant
from fakebroker.cluster.inspect.commits import CommitView, commits_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.phrases import listed
from fakebroker.cluster.inspect.timelines import Timeline
from fakebroker.cluster.inspect.views import (
    BrokerView,
    GroupView,
    MemberView,
    committed_offsets,
    find_group,
    timeline_of,
    view_group,
    view_moment,
)
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed, seed_groups
from fakebroker.cluster.topics import OFFSETS_TOPIC, Partition
from fakebroker.coordinator import controls
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer import controls as consumer_controls
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.states import ConsumerGroupState, MemberState
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.group_history import MemberChange, Moment
from fakebroker.coordinator.history import DEAD, BoundedHistory
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.errors import ConfigError, ErrorCode, nearest, one_of, printable
from fakebroker.topic_partition import PartitionMap, PartitionName, TopicPartition, parse_partition, partition_name
from fakebroker.validation import Count, Positive, Seconds

if TYPE_CHECKING:
    NewOffsets = Mapping[str, int | None] | Mapping[TopicPartition, int | None]
else:  # msgspec supports one mapping in a union; keys are validated as names of partitions.
    NewOffsets = Mapping[Any, Count | Literal["none"] | None]

HeldState = GroupState | ConsumerGroupState

_HOLDABLE_STATES: Mapping[str, HeldState] = {state.value: state for state in controls.HOLDABLE_STATES}
"""The states in which groups can be held, by Kafka's names."""

_STATES = dict.fromkeys(each.value for each in (*GroupState, *ConsumerGroupState))
_MEMBER_STATES = [each.name for each in MemberState]

_SHOWN = 20
"""Maximum number of groups, or of committed offsets, in the error of a wait."""


def _check_state(state: str | None = None, members: int | None = None, above: int | None = None) -> None:
    if state is None and members is None and above is None:
        raise ConfigError.missing("state", f"{one_of(_STATES)}, or members or above")
    if state is not None and state not in _STATES:
        raise ConfigError.of("state", state, one_of(_STATES, state))


def _check_member(member: str, state: str | None = None, above: int | None = None) -> None:
    if state is not None and state not in _MEMBER_STATES:
        raise ConfigError.of("state", state, one_of(_MEMBER_STATES, state))


def _check_commit(partition: PartitionName, at_least: int) -> None:
    parse_partition(partition)


class GroupHandle(Handle):
    """A group, which need not exist yet: `cluster.group("billing")`.

    A member is named by its member id, its instance id, or its client id if only one member has it.

    Attributes:
        group_id: The id of the group.
    """

    _kind = "group"
    _keys = ("group_id",)
    _path = "groups"

    def __init__(self, owner: Owner, group_id: str) -> None:
        super().__init__(owner)
        check_type("group_id", group_id, str, "a string")
        self.group_id = group_id

    # Views

    @view
    def describe(self) -> GroupView:
        """Return the current state of the group, with its members and its history.

        Its `type` is "classic" or, with the protocol of KIP-848, "consumer". Members that are consumers have
        `assigned_partitions`, `owned_partitions` and `subscribed_topics`. For other members, such as Connect workers,
        these are None; `assignment` and `metadata` contain the bytes. In a group of type "consumer", members also have
        `member_epoch`, `state`, `target` and `pending_revocation`. Their `awaited` has the partitions that other
        members still hold. A group that does not exist is Dead, as in a DescribeGroups response.
        """
        local = self._local
        return local.run(lambda: view_group(local.cluster, self.group_id, local.now_ms()))

    @view
    def offsets(self) -> PartitionMap[CommittedOffset]:
        """Return the committed offsets by partition: `offsets()["orders-0"].offset`, `offsets()["orders", 0]`."""
        local = self._local
        return local.run(lambda: committed_offsets(local.cluster, self.group_id))

    @view
    def commits(self, partition: PartitionName | None = None, *, refused: bool = False) -> list[CommitView]:
        """Return the commits of the group that the coordinator has accepted, oldest first, from the journal.

        A commit whose response was lost is among them; so is one in an open transaction. Commits of `set_offsets` are
        not: no client has sent them.

        Args:
            partition: The partition; None for all.
            refused: Whether commits with an error, and commits of aborted transactions, are among them.

        Raises:
            ConfigError: The journal keeps no messages.
        """
        place = None if partition is None else parse_partition(partition)
        local = self._local
        return local.run(lambda: commits_of(local.cluster, self.group_id, place, refused=refused))

    @view
    def lag(self, *, committed: bool = False) -> PartitionMap[int]:
        """Return the lag by partition: the log end offset minus the committed offset, as `kafka-consumer-groups.sh`.

        It has the partitions with a committed offset. Partitions of deleted topics are missing.

        Args:
            committed: Whether the consumers have `isolation.level=read_committed`: the lag is the last stable offset
                minus the committed offset. With either value, markers of transactions count, as in Kafka.
        """
        local = self._local
        return local.run(lambda: lag_of(local.cluster, self.group_id, committed=committed))

    @view
    def timeline(self) -> Timeline:
        """Return the state transitions of the group with their causes; `str()` of the result is a text diagram.

        The timeline of a consumer group (KIP-848) has all changes of its members: their epochs, their partitions,
        and the partitions that they have to give up.

        The history has the newest changes: up to 256 of a group, fewer if the group is large, and 20,000 in all.
        `Timeline.dropped` counts the changes that were dropped; the diagram mentions them.
        """
        local = self._local
        return local.run(lambda: timeline_of(local.cluster, self.group_id, local.now_ms()))

    @view
    def explain(self) -> str:
        """Explain in a few sentences why the group is in its state, which members it waits for, and until when."""
        local = self._local
        return local.run(lambda: explain(local.cluster, self.group_id, local.now_ms()))

    @view
    def coordinator(self) -> BrokerView:
        """Return the broker that coordinates the group.

        Raises:
            ConfigError: The group has no coordinator now.
        """
        local = self._local
        broker = local.run(lambda: local.cluster.coordinator_of(self.group_id))
        if broker is None:
            raise ConfigError.of("group_id", self.group_id, "a group that has a coordinator now")
        return BrokerView.of(broker)

    # Conditions

    @condition()
    def stable(self, at: Instant, members: Count | None = None, *, above: int | None = None) -> GroupView | None:
        """The group is Stable. A wait with `polling` ends when the polled consumers also have their partitions.

        Args:
            members: The number of its members; None for any.
            above: Its generation is above this number; None for any.
        """
        return self._in_state(at, GroupState.STABLE.value, members, above)

    @condition(_check_state)
    def state(
        self, at: Instant, state: str | None = None, *, members: Count | None = None, above: int | None = None
    ) -> GroupView | None:
        """The group is in a state.

        Args:
            state: Kafka's name of the state, such as "PreparingRebalance"; "Dead" if there is no such group. None for
                any but Dead.
            members: The number of its members. None: any number; but if only `above` is given, one or more.
            above: Its generation, or group epoch, is above this number; None for any.
        """
        return self._in_state(at, state, members, above)

    @condition(_check_member)
    def member(
        self, at: Instant, member: str, state: str | None = None, *, above: int | None = None
    ) -> GroupView | None:
        """A member of a consumer group (KIP-848) is in a state.

        Args:
            member: Member id, instance id or client id.
            state: Kafka's name of the member's state: STABLE, UNREVOKED_PARTITIONS (it has to give up partitions),
                UNRELEASED_PARTITIONS (it waits for partitions of others), UNKNOWN. None for any.
            above: Its member epoch is above this number; None for any.
        """

        def is_in_state(each: MemberView | MemberChange) -> bool:
            return (
                each.member_epoch is not None
                and state in (None, each.state)
                and (above is None or each.member_epoch > above)
            )

        def is_meant(each: MemberView | MemberChange) -> bool:
            return member in (each.member_id, each.instance_id, each.client_id)

        moment = self._moment(at)
        changes = [] if moment is None else [each for each in moment.changes if is_meant(each)]
        if moment is not None and changes:
            found = any(map(is_in_state, changes))
            return view_moment(at.cluster, self.group_id, moment, at.now_ms) if found else None
        # A moment has only the members that have changed. The others are as they are now.
        view = view_group(at.cluster, self.group_id, at.now_ms)
        return view if any(is_meant(each) and is_in_state(each) for each in view.members) else None

    @condition(_check_commit, after_requests=True)
    def committed(self, at: Instant, partition: PartitionName, *, at_least: Count) -> CommittedOffset | None:
        """The committed offset of a partition is at least a number.

        Args:
            partition: The partition: "orders-0" or ("orders", 0).
            at_least: The number.
        """
        broker = at.cluster.coordinator_of(self.group_id)
        offsets = broker.coordinator.offsets.of(self.group_id)[1] if broker else None
        found = offsets.get(*parse_partition(partition)) if offsets else None
        return found if found is not None and found.offset >= at_least else None

    def _in_state(self, at: Instant, state: str | None, members: int | None, above: int | None) -> GroupView | None:
        def holds(name: str, generation_id: int, size: int) -> bool:
            return state_matches(name, generation_id, size, state=state, members=members, above=above)

        moment = self._moment(at)
        if moment is not None:
            found = holds(moment.state_to, moment.generation_id, len(moment.members))
            return view_moment(at.cluster, self.group_id, moment, at.now_ms) if found else None
        group = find_group(at.cluster, self.group_id)
        if group is not None and not holds(group.state.value, group.generation_id, len(group.members)):
            return None  # Most evaluations end here, without a view.
        view = view_group(at.cluster, self.group_id, at.now_ms)
        size = len(view.members) if group is None else len(group.members)  # Expected instances are not members yet.
        return view if holds(view.state, view.generation_id, size) else None

    def _moment(self, at: Instant) -> Moment | None:
        """Return the moment of the group's history that is evaluated. None: the present, also for a zombie's moment."""
        moment, coordinator = at.of_group(self.group_id), at.cluster.coordinator_of(self.group_id)
        if moment is None or coordinator is None or moment.coordinator_id == coordinator.node_id:
            return moment
        return None

    def _state_text(self, at: Instant) -> str:
        timeline = timeline_of(at.cluster, self.group_id, at.now_ms)
        # The cluster of a simulation keeps no history.
        shown = f"\n\n{timeline}" if timeline.moments or timeline.dropped else ""
        offsets = [
            f"{topic}-{index} at {each.offset}"
            for (topic, index), each in committed_offsets(at.cluster, self.group_id).items()
        ]
        committed = f"committed by {self.group_id}: {listed(offsets[:_SHOWN]) if offsets else 'nothing'}"
        text = f"{explain(at.cluster, self.group_id, at.now_ms)}{shown}\n{printable(committed)}"
        return text + others(at.cluster.history, self.group_id, "group")

    # Commands

    @command
    def seed(self, /, members: int | Sequence[MemberSeed | str] = 0, **options: Annotated[Any, GroupSeed]) -> None:
        """Create the group in a given state, as if clients had created it.

        The group is written to __consumer_offsets and loaded from there. In PreparingRebalance, no member has rejoined
        yet; in CompletingRebalance, all members have joined, and the leader's SyncGroup is missing.

        Args:
            members: A number, or a list with one entry per member, leader first. An entry is a client id, a
                `fakebroker.MemberSeed`, or a mapping with its fields. The sessions of the members start now.
            options: Subscription, state, offsets, lag, assignment, and type "consumer" for a group of KIP-848; see
                `fakebroker.GroupSeed`.

        Raises:
            ConfigError: The group exists already, or the arguments contradict each other.
        """
        local = self._local
        seeds = [GroupSeed(group_id=self.group_id, members=members, **options)]
        local.change(lambda: seed_groups(local.cluster, seeds, local.now_ms()))

    @command
    def set_offsets(self, offsets: NewOffsets, *, force: bool = False) -> None:
        """Commit and delete offsets, as an administrator: `set_offsets({"orders-0": 5, "orders-1": None})`.

        As in Kafka, the group must have no members, or not exist yet. Offsets of topics to which no member subscribes
        can be deleted in any group. With `force`, a group with members gets the offsets, too; its consumers learn of
        them when they fetch committed offsets again.

        Args:
            offsets: The new offset by partition. None, which is "none" in TOML, deletes the offset.
            force: Set the offsets although the group has members.

        Raises:
            ConfigError: A partition does not exist, or the group does not accept the offsets; the error names Kafka's
                error. Nothing was changed then.
        """
        local = self._local
        given: Iterable[tuple[PartitionName, Any]] = offsets.items()
        places = {parse_partition(name, "offsets"): None if offset == NONE else offset for name, offset in given}

        def set_offsets() -> None:
            for topic, index in places:
                if (found := local.cluster.topics.get(topic)) is None or index >= len(found.partitions):
                    raise ConfigError.of("offsets", f"{topic}-{index}", "a partition that exists")
            broker = local.cluster.coordinator_of(self.group_id)
            if broker is None:
                raise ConfigError.of("group_id", self.group_id, "a group that has a coordinator now")
            errors = broker.coordinator.offsets.set(self.group_id, places, local.now_ms(), is_forced=force)
            for place, error in errors.items():
                expected = {
                    ErrorCode.UNKNOWN_MEMBER_ID: "a group without members, or force=True",
                    ErrorCode.NON_EMPTY_GROUP: "a group without members, or force=True",
                    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a topic to which no member subscribes, or force=True",
                    ErrorCode.GROUP_ID_NOT_FOUND: "an existing group",
                }.get(error, "a group with a loaded coordinator, whose log accepts records")
                where = f"group {self.group_id!r}"
                raise ConfigError.of("offsets", partition_name(place), f"{expected} ({error.name})", where=where)

        local.change(set_offsets)

    @command
    def delete(self) -> None:
        """Delete the group and its offsets, as DeleteGroups does.

        Raises:
            ConfigError: The group does not exist, has members, or has no coordinator that has loaded it.
        """
        local = self._local

        def delete() -> None:
            broker = local.cluster.coordinator_of(self.group_id)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if broker is not None:
                error = broker.coordinator.delete_groups([self.group_id], local.now_ms())[self.group_id]
            if error:
                expected = {
                    ErrorCode.GROUP_ID_NOT_FOUND: "an existing group",
                    ErrorCode.NON_EMPTY_GROUP: "a group without members",
                }.get(error, "a group with a loaded coordinator")
                raise ConfigError.of("group_id", self.group_id, f"{expected} ({error.name})")

        local.change(delete)

    @command
    def move_coordinator(self, /, to: int | None, **how: Annotated[Any, Failover]) -> None:
        """Move the coordinator of the group to another broker.

        All groups in the same partition of __consumer_offsets move with it. The old coordinator resigns: its parked
        requests get NOT_COORDINATOR. The new coordinator loads the groups from the partition's log.

        Args:
            to: Node id of the new coordinator. None: the group has no coordinator (COORDINATOR_NOT_AVAILABLE) until it
                is moved again, or its previous coordinator restarts.
            how: Options of the failover. `load_ms`: how long the new coordinator loads, in milliseconds of the brokers'
                clock; None is until `brokers.finish_loading`. `load_fails`: it cannot load, and responds with
                NOT_COORDINATOR until the next move. `lose_tail`: how many of the newest records are lost. `lose_all`:
                all records are lost. `zombie`: the old coordinator keeps responding until `brokers.stop_zombies`.
                `stale_ms`: how long FindCoordinator still returns the old coordinator, in milliseconds of the brokers'
                clock.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """
        local = self._local

        def offsets_partition() -> Partition:
            local.cluster.first_use.finish(OFFSETS_TOPIC, local.now_ms())
            local.cluster.topics.show_offsets_topic()
            return local.cluster.offsets_partition_of(self.group_id)

        local.move_leader(offsets_partition, to, Failover(**how))

    @command
    def fail_append(
        self, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of the group fail. JoinGroup, SyncGroup and OffsetCommit append to this log.

        The log is the group's partition of __consumer_offsets; all groups of the partition are affected. Requests get
        the errors that Kafka returns. For NOT_ENOUGH_REPLICAS: OffsetCommit, and the JoinGroup that creates a group,
        get COORDINATOR_NOT_AVAILABLE; so does SyncGroup, and then the members rejoin. If the JoinGroup that creates a
        group gets MEMBER_ID_REQUIRED, as from most clients, its append fails after that response: the group is removed,
        and the member's next JoinGroup gets UNKNOWN_MEMBER_ID.

        Args:
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail. None: all, until the failure is removed.

        Returns:
            A handle that counts the failed appends (`hits`) and removes the failure, also as a context manager.
            `clear_faults` removes all failures.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        local = self._local
        return add_append_failure(local, lambda: local.cluster.offsets_partition_of(self.group_id), error, times)

    @holding("release")
    def hold(self, state: str, member: str | None = None) -> None:
        """Hold the group in a state of a rebalance, until `release`.

        The hold applies whenever the group is in this state; the group need not exist yet. In PreparingRebalance, the
        join phase does not end, even if its timer expires. In CompletingRebalance, the leader's SyncGroup is parked.
        Everything else works as usual. For example, a member that joins starts another rebalance, as does the expiry of
        a session. A session does not expire while a response to its member is pending, but a new member is removed when
        its first JoinGroup has waited for 300 s.

        A consumer group (KIP-848) is held in Assigning or Reconciling. In Assigning, the assignor does not run: members
        keep their targets, and new ones have none; but the first assignment of a group is not held. In Reconciling, the
        coordinator ignores reports that a member has given up partitions, so that the member keeps them. With `member`,
        it ignores only the reports of this member. Rebalance timers continue, and remove members when they expire.

        Args:
            state: "PreparingRebalance" or "CompletingRebalance"; of a consumer group, "Assigning" or "Reconciling".
            member: Member id, instance id or client id of the member that alone is held in Reconciling. None: all.

        Returns:
            A context manager that releases the group.

        Raises:
            ConfigError: The state is none of these; or there is a member that does not exist, or a state in which
                members cannot be held.
        """
        held = _holdable_state(state, member)
        if member is not None:

            def hold_member(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
                controls.hold_member(controls.consumer_group(group), self._controls, member)

            self._control(hold_member)
            return
        local = self._local

        def hold() -> None:
            broker = local.cluster.coordinator_of(self.group_id)
            controls.hold(broker.coordinator if broker else None, self.group_id, self._controls, held)

        local.run(hold)

    @property
    def _controls(self) -> GroupControls:
        return self._local.cluster.group_controls.setdefault(self.group_id, GroupControls())

    @command
    def release(self, state: str | None = None, member: str | None = None) -> None:
        """Release a held group.

        Steps that the hold has prevented, such as the end of the join phase, are done when the command returns; the
        steps of a consumer group with the next heartbeats of its members.

        Args:
            state: The state in which it is held. None: any state.
            member: The member that alone is held, as in `hold`. None: the whole group, and all of its members.

        Raises:
            ConfigError: The group or the member is not held, or not in this state.
        """
        local = self._local
        if member is not None:
            _holdable_state(state or ConsumerGroupState.RECONCILING.value, member)
            local.run(lambda: self._release_member(member))
            return
        states = list(_HOLDABLE_STATES.values()) if state is None else [_holdable_state(state)]

        def release() -> None:
            held = [(key, each) for key, value in local.cluster.group_controls.items() for each in value.states()]
            if not any((self.group_id, each) in held for each in states):
                known = one_of([f"{key!r} in {each.value}" for key, each in held], none="but there is none")
                where = f" in {state}" if state else ""
                raise ConfigError.of("group_id", self.group_id, f"a group that is held{where}, {known}")
            for each in states:
                self._controls.held_states.pop(each, None)
                if each is ConsumerGroupState.RECONCILING:
                    self._controls.held_members.clear()
            # Not only the coordinator has the group: zombies may have it, too.
            for broker in local.cluster.brokers.values():
                group = broker.coordinator.groups.classic.get(self.group_id)
                if group is not None:
                    controls.release(broker.coordinator, group, local.now_ms())

        local.run(release)

    def _release_member(self, member: str) -> None:
        cluster, held = self._local.cluster, self._controls.held_members
        broker = cluster.coordinator_of(self.group_id)
        group = broker.coordinator.groups.consumer.get(self.group_id) if broker else None
        known = controls.member_names(group, member) if group else {member}
        if not known & held.keys():
            expected = one_of(held, member, none="a member that is held; there is none")
            raise ConfigError.of("member", member, expected, where=f"group {self.group_id!r}")
        for each in known:
            held.pop(each, None)

    @command
    def rebalance(self) -> None:
        """Start a rebalance of the group without removing a member.

        Heartbeats of all members get REBALANCE_IN_PROGRESS. In a consumer group (KIP-848) the next epoch begins, and
        the next heartbeat of a member runs the assignor.

        Raises:
            ConfigError: The group does not exist, or is in another state than Stable, CompletingRebalance and
                Reconciling.
        """
        self._control(controls.force_rebalance)

    @command
    def choose_leader(self, member: str) -> None:
        """Choose the leader of the next generation of a group.

        The member becomes the leader if it has joined by the end of the join phase.

        Args:
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a consumer group (KIP-848).
        """
        self._control(
            lambda coordinator, group, now_ms: controls.choose_leader(
                controls.classic_group(group), self._controls, member
            ),
        )

    @command
    def choose_assignment(self, assignment: Mapping[str, Sequence[PartitionName]]) -> None:
        """Choose the target assignment of a consumer group (KIP-848) that its assignor computes next.

        It runs with the next heartbeat after a change of members, subscriptions or topics, or after `rebalance`.

        Args:
            assignment: Partitions, "orders-0" or ("orders", 0), by member id, instance id or client id. Members that
                are not named get no partitions, and names of others are ignored.

        Raises:
            ConfigError: A partition is malformed, or is assigned to two members.
        """
        names = {
            member: [partition_name(parse_partition(each, "assignment")) for each in partitions]
            for member, partitions in assignment.items()
        }
        self._local.run(lambda: controls.choose_assignment(self._controls, names))

    @command
    def evict(self, member: str) -> None:
        """Remove a member from a group, as administrators can.

        The next response to the member is UNKNOWN_MEMBER_ID; the other members rebalance.

        Args:
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(lambda coordinator, group, now_ms: controls.evict(coordinator, group, member, now_ms))

    @command
    def expire(self, member: str) -> None:
        """Expire the session of a member now.

        Has no effect while a response is pending for the member, unless it is new: its first JoinGroup waits.

        Args:
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(lambda coordinator, group, now_ms: controls.expire(coordinator, group, member, now_ms))

    @command
    def fence_instance(self, instance_id: str) -> None:
        """Fence a static member, as if another process had joined with its instance id.

        Requests of the fenced member get FENCED_INSTANCE_ID. The other process sends no further requests: the member
        that replaces the fenced one is removed when its session expires. In a group of KIP-848, the fenced member first
        counts as having left for a while. Otherwise its instance id would not be free.

        Args:
            instance_id: The `group.instance.id` of the member.

        Raises:
            ConfigError: The group or the static member does not exist.
        """
        self._control(
            lambda coordinator, group, now_ms: controls.fence(coordinator, group, instance_id, now_ms),
        )

    @command
    def fence_epoch(self, member: str) -> None:
        """Forget the epoch of a member of a consumer group (KIP-848), as a coordinator that has lost records.

        The next heartbeat of the member gets FENCED_MEMBER_EPOCH. So it has to give up all partitions, and can rejoin.
        The partitions of a dynamic member are free at once; a static member's partitions are kept for it.

        Args:
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a classic group.
        """

        def fence(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            consumer_group = controls.consumer_group(group)
            found = controls.member_of(consumer_group, member)
            consumer_controls.fence_epoch(coordinator, consumer_group, found, now_ms)

        self._control(fence)

    @holding("release_sync")
    def delay_sync(self, member: str, seconds: Seconds | None = None) -> None:
        """Delay the response to a member's parked SyncGroup, or to its next SyncGroup if none is parked.

        From the group's point of view the member has synced; responses to other members are not delayed.

        Args:
            member: Member id, instance id or client id.
            seconds: The delay by the brokers' clock. None: until `release_sync`.

        Raises:
            ConfigError: The group or member does not exist, or the delay is out of range.
        """
        delay_ms = None if seconds is None else seconds * 1000
        self._control(
            lambda coordinator, group, now_ms: self._local.cluster.sync_delays.delay(
                _sync_delay_key(controls.classic_group(group), member), delay_ms
            ),
        )

    @command
    def release_sync(self, member: str) -> None:
        """Send the SyncGroup response that `delay_sync` delays.

        If there is no response yet, the delay is canceled.

        Args:
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or `delay_sync` does not apply to the member.
        """

        def release(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            answers = self._local.cluster.sync_delays.release(_sync_delay_key(controls.classic_group(group), member))
            if answers is None:
                expected = "a member whose SyncGroup response is delayed"
                raise ConfigError.of("member", member, expected, where=f"group {self.group_id!r}")
            for call, response in answers:
                self._local.cluster.requests.answer(call, response, now_ms)

        self._control(release)

    def _control(self, action: Callable[[Coordinator, Group | ConsumerGroup, float], None]) -> None:
        """Run an action on an existing group at its coordinator, with the brokers' time in milliseconds."""
        local = self._local

        def act() -> None:
            broker = local.cluster.coordinator_of(self.group_id)
            if broker is None:
                raise ConfigError.of("group_id", self.group_id, "a group that has a coordinator now")
            group = controls.group_of(broker.coordinator, self.group_id)
            action(broker.coordinator, group, local.now_ms())

        local.run(act)


def state_matches(
    name: str, generation_id: int, size: int, *, state: str | None, members: int | None, above: int | None
) -> bool:
    """Return whether a group fulfills the arguments of the condition `GroupHandle.state`.

    Args:
        name: The state of the group, "Dead" if there is none.
        generation_id: Its generation or group epoch.
        size: The number of its members.
        state, members, above: The arguments.
    """
    return (
        (name == state if state is not None else name != DEAD)
        and members in (None, size)
        and (size > 0 or state is not None or members is not None)
        and (above is None or (name != DEAD and generation_id > above))
    )


def _holdable_state(name: str, member: str | None = None) -> HeldState:
    """Return a state that a group can be held in, by Kafka's name; or a member, if one is named.

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


def lag_of(cluster: Any, group_id: str, *, committed: bool = False) -> PartitionMap[int]:
    """Return the lag of a group by topic and partition; see `GroupHandle.lag`."""
    lag: PartitionMap[int] = PartitionMap()
    for (name, index), each in committed_offsets(cluster, group_id).items():
        topic = cluster.topics.get(name)
        if topic is not None and index < len(topic.partitions):
            log = topic.partitions[index].log
            lag[name, index] = max(0, (log.last_stable_offset if committed else log.log_end_offset) - each.offset)
    return lag


def others(history: BoundedHistory[Any, Any], key: str, kind: str) -> str:
    """Return a line with the keys that have a history, if this one has none: it may be mistyped."""
    known = history.newest(_SHOWN)
    if history.count_of(key) or not known:
        return ""
    near = nearest(key, known)
    hint = f"; nearest: `{near}`" if near else ""
    return f"\n{printable(f'no {kind} `{key}`{hint}; others: {listed(known)}')}"
