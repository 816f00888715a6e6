"""What a heartbeat, a departure and an expired timer change in a consumer group: the records, and the response.

A heartbeat is a `Step` of its member, and so is a JoinGroup of a classic member (`classic_members`).
The functions do not change the group; see `ConsumerGroup.replay`. Order of checks and records as in Kafka's
`GroupMetadataManager.consumerGroupHeartbeat`, release 4.2.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.coordinator.group.modern.assignors.group_spec import (
    Assignor,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
)
from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupMember,
    Partitions,
    contains_all,
)
from fakebroker.coordinator.group.modern.reconciliation import Reconciliation
from fakebroker.coordinator.group.modern.records import (
    AssignmentEpochRecord,
    AssignmentEpochValue,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    CurrentAssignmentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberSubscriptionRecord,
    RegexRecord,
    SubscribedTopicsRecord,
    SubscriptionValue,
    TargetAssignmentRecord,
)
from fakebroker.coordinator.group.modern.requests import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.group.modern.scripted import scripted_target
from fakebroker.coordinator.group.modern.states import UNKNOWN, ConsumerGroupState
from fakebroker.coordinator.group.modern.subscription.subscriptions import InvalidRegexError, Matcher, Subscriptions
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage, TopicMetadata, metadata_hash
from fakebroker.errors import ErrorCode

_NONE = ErrorCode.NONE
NO_NAMES: Mapping[str, str] = {}


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat depends on besides group and request.

    Attributes:
        topics: The topics of the cluster.
        assignors: The assignors by name; the first one is the default.
        max_size: The most members that a group may have.
        heartbeat_interval_ms: The interval that responses have.
        compile_regex, regex_refresh_interval_ms, assignment_interval_ms, release: See `ConsumerGroupConfig`.
        now_ms: The time.
        controls: The manual settings of the group.
    """

    topics: TopicImage
    assignors: Mapping[str, Assignor]
    max_size: int
    heartbeat_interval_ms: int
    compile_regex: Callable[[str], Matcher]
    regex_refresh_interval_ms: int
    assignment_interval_ms: int
    release: tuple[int, ...]
    now_ms: float
    controls: GroupControls


class Outcome(msgspec.Struct):
    """The effect of a request: records to append and to replay, and the result if the append succeeds.

    Attributes:
        member: The member afterwards, whose timers restart; None if it is gone or on leave.
        checks_metadata: Whether the outcome has the current hash of the subscribed topics.
        restarts_rebalance_timer: Whether the current assignment has changed.
        cause: Describes the request, for the history.
        unacknowledged: The partitions that the member reports, while it is not believed to have given up others.
        is_scripted: Whether the target is that of `GroupControls.next_assignment`.
    """

    records: list[ConsumerGroupRecord]
    result: HeartbeatResult
    member: ConsumerGroupMember | None = None
    checks_metadata: bool = False
    restarts_rebalance_timer: bool = False
    cause: str = ""
    unacknowledged: Partitions | None = None
    is_scripted: bool = False


class Step(msgspec.Struct):
    """A heartbeat in progress: the group's epochs and the member, as they will be.

    Attributes:
        former: The member before; a new one if it joins.
        group_epoch: The group epoch afterwards.
        checks_metadata, is_scripted: See `Outcome`.
        after: A cache of `subscriptions`.
    """

    group: ConsumerGroup
    request: ConsumerGroupHeartbeat
    context: Context
    former: ConsumerGroupMember
    member: ConsumerGroupMember
    records: list[ConsumerGroupRecord] = msgspec.field(default_factory=list)
    group_epoch: int = 0
    checks_metadata: bool = False
    is_scripted: bool = False
    after: Subscriptions | None = None

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of the group afterwards."""
        if self.after is None:
            self.after = self.group.subscriptions.after([self.former], [self.member])
        return self.after

    @property
    def names_changed(self) -> bool:
        return self.member.subscribed_topic_names != self.former.subscribed_topic_names

    @property
    def regex_changed(self) -> bool:
        return self.member.subscribed_topic_regex != self.former.subscribed_topic_regex

    @property
    def subscription_changed(self) -> bool:
        return self.names_changed or self.regex_changed

    @property
    def gets_resolved_regex(self) -> bool:
        """Whether the subscription changes to a regular expression whose topics the group knows already."""
        return self.regex_changed and self.member.subscribed_topic_regex in self.group.subscriptions.resolved


def heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context, new_id: Callable[[], str]
) -> Outcome:
    """Handle the heartbeat of a member that joins or stays.

    Args:
        group: The group; a new one if it does not exist.
        request: The request.
        context: Settings and topics.
        new_id: Returns the id of a member that joins without one.

    Raises:
        HeartbeatError: The request is rejected.
    """
    check_size(group, request.member_id, request.instance_id, context)
    member_id = request.member_id or new_id()
    records: list[ConsumerGroupRecord] = []
    if request.instance_id is None:
        former = _dynamic_member(group, member_id, request, context)
    else:
        former = _static_member(group, member_id, request.instance_id, request, records)
    step = begin(group, request, context, former, records)
    outcome = reconcile(step, *update_target(step))
    outcome.result.regexes_to_resolve = regexes_to_resolve(step)
    if outcome.records:
        outcome.cause = cause_of(step)
    return outcome


def cause_of(step: Step) -> str:
    """Describe the request for the history."""
    group, member = step.group, step.member
    replaced = _target_holder(step)
    cause = f"{'heartbeat' if member.classic is None else 'JoinGroup'} of {member.member_id}"
    if replaced != member.member_id:
        return f"{cause}, which replaces {replaced} as static {member.instance_id!r}"
    if member.member_id not in group.members:
        return f"{cause}, a new member"
    if step.subscription_changed:
        return f"{cause}, whose subscription has changed"
    return f"{cause} after a change of topics" if step.group_epoch > group.group_epoch else cause


# 1. The member


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None, context: Context) -> None:
    """Check that the group has room for a member.

    Raises:
        HeartbeatError: GROUP_MAX_SIZE_REACHED.
    """
    replaces = context.release >= (4, 4) and instance_id in group.static_members  # KAFKA-20601
    if len(group.members) >= context.max_size and member_id not in group.members and not replaces:
        text = f"The consumer group has reached its maximum capacity of {context.max_size} members."
        raise HeartbeatError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def begin(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    context: Context,
    former: ConsumerGroupMember,
    records: list[ConsumerGroupRecord],
) -> Step:
    """Update a member by its request, and the group epoch, if the subscription or the subscribed topics have changed.

    Args:
        group: The group.
        request: The request, which was checked.
        context: Settings and topics.
        former: The member before.
        records: The records so far, to which those of the step are added.
    """
    step = Step(group, request, context, former, _updated(former, request), records, group.group_epoch)
    if step.member != former:
        records.append(subscription_record(group.group_id, step.member))
    _change_regex(step)
    _bump_group_epoch(step)
    return step


def _dynamic_member(
    group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeat, context: Context
) -> ConsumerGroupMember:
    member = group.members.get(member_id)
    if member is None:
        if not request.is_joining:
            raise _unknown_member(group, member_id)
        member = ConsumerGroupMember(member_id=member_id)
    if context.release < (4, 2) or not request.is_joining:  # A member may join again in any state (KAFKA-19233).
        _check_epoch(member, request)
    return member


def _static_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    request: ConsumerGroupHeartbeat,
    records: list[ConsumerGroupRecord],
) -> ConsumerGroupMember:
    existing = group.static_member(instance_id)
    if not request.is_joining:
        existing = checked_instance(existing, member_id, instance_id)
        _check_epoch(existing, request)
        return existing
    if existing is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    if existing.member_epoch != LEAVING_STATIC_EPOCH and existing.classic is None:
        text = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {existing.member_id} member."
        )
        raise HeartbeatError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
    return replace_static_member(group, existing, member_id, records)


def replace_static_member(
    group: ConsumerGroup, existing: ConsumerGroupMember, member_id: str, records: list[ConsumerGroupRecord]
) -> ConsumerGroupMember:
    """Return a static member with a new id, which keeps its target and joins; add the records of the replacement."""
    member = existing.in_epoch(JOINING_EPOCH, existing.assigned, existing.pending_revocation)
    member = replace(member, member_id=member_id, previous_epoch=JOINING_EPOCH)
    records += removal_records(group.group_id, existing.member_id)
    records.append(subscription_record(group.group_id, member))
    target = group.target.get(existing.member_id, NO_PARTITIONS)
    records.append(TargetAssignmentRecord(group.group_id, member_id, target))
    records.append(current_assignment_record(group.group_id, member))
    return member


def checked_instance(existing: ConsumerGroupMember | None, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Return the member with an instance id.

    Raises:
        HeartbeatError: UNKNOWN_MEMBER_ID without one; FENCED_INSTANCE_ID if it has another member id.
    """
    if existing is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        raise HeartbeatError(ErrorCode.FENCED_INSTANCE_ID, text)
    return existing


def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is current, or the response with the current one may be lost."""
    sent, known = request.member_epoch, member.member_epoch
    if sent == known:
        return
    was_lost = sent == member.previous_epoch and request.owned is not None
    if sent < known and was_lost and contains_all(member.assigned, request.owned or NO_PARTITIONS):
        return
    size = "greater" if sent > known else "smaller"
    text = (
        f"The consumer group member has a {size} member epoch ({sent}) than the one known by the group coordinator "
        f"({known}). The member must abandon all its partitions and rejoin."
    )
    raise HeartbeatError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _unknown_member(group: ConsumerGroup, member_id: str) -> HeartbeatError:
    text = f"Member {member_id} is not a member of group {group.group_id}."
    return HeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID, text)


def _updated(member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=request.classic,
    )


def _change_regex(step: Step) -> None:
    """Delete the topics of a regular expression that no member has any more, and check one that is new."""
    if not step.regex_changed:
        return
    counts, before, after = step.group.subscriptions.regexes, step.former, step.member
    if counts.get(before.subscribed_topic_regex) == 1:
        step.records.append(RegexRecord(step.group.group_id, before.subscribed_topic_regex, None))
    if after.subscribed_topic_regex and after.subscribed_topic_regex not in counts:
        try:
            step.context.compile_regex(after.subscribed_topic_regex)
        except InvalidRegexError as error:
            raise HeartbeatError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def regexes_to_resolve(step: Step) -> Collection[str]:
    """Return the regular expressions of the group after this heartbeat, if they are to be resolved now."""
    if step.group.is_resolving:
        return ()
    subscriptions, context = step.group.subscriptions, step.context
    regexes = tuple((step.subscriptions if step.regex_changed else subscriptions).regexes)
    created, interval_ms = context.topics.created_version, context.regex_refresh_interval_ms
    return regexes if subscriptions.must_refresh(regexes, context.now_ms, created, interval_ms) else ()


# 2. The group epoch and the target assignment


def _bump_group_epoch(step: Step) -> None:
    """Add a record of the next group epoch, if the subscription or the subscribed topics have changed.

    Not yet for a regular expression that is not resolved: resolving it will.
    """
    group = step.group
    # Since 4.3, a group begins with epoch 1 (KAFKA-20268): then only a subscription is a reason.
    must_bump = group.group_epoch == 0 or step.names_changed or step.gets_resolved_regex
    if step.regex_changed and not step.member.subscribed_topic_regex and step.context.release >= (4, 1):
        must_bump = True  # KAFKA-19891
    if step.context.release >= (4, 4):  # KAFKA-20434
        before = preferred_assignor(group.votes, step.context.assignors)
        must_bump = must_bump or _preferred_after(step) != before
    if step.member.classic is not None:  # It has no regular expression: nothing is to be resolved first.
        must_bump = must_bump or step.regex_changed
    if not must_bump and group.metadata_version == step.context.topics.version:
        return
    hash_ = metadata_hash(step.subscriptions.topics(), step.context.topics)
    step.checks_metadata = True
    if must_bump or hash_ != group.metadata_hash:
        step.group_epoch = group.group_epoch + 1
        step.records.append(GroupEpochRecord(group.group_id, GroupEpochValue(step.group_epoch, hash_)))
    if group.has_subscribed_topics_record:
        step.records.append(SubscribedTopicsRecord(group.group_id, None))


def current_target(step: Step) -> tuple[Partitions, int]:
    """Return the target of the member, and its epoch."""
    group, member = step.group, step.member
    if member.instance_id is not None and member.instance_id not in group.static_members:
        # Kafka looks for the target of a static member by its instance id alone (`ConsumerGroup.targetAssignment`). A
        # member that rejoins with a new instance id gets none before the next epoch.
        return NO_PARTITIONS, group.assignment_epoch
    return group.target.get(_target_holder(step), NO_PARTITIONS), group.assignment_epoch


def update_target(step: Step) -> tuple[Partitions, int]:
    """Run the assignor if the group epoch is newer than the assignment; return the member's target and its epoch.

    A hold in Assigning does not apply if the group has no assignment epoch: the member would have no epoch.

    Raises:
        HeartbeatError: UNKNOWN_SERVER_ERROR: the assignor has failed. Nothing is stored.
    """
    group, member, controls = step.group, step.member, step.context.controls
    is_held = ConsumerGroupState.ASSIGNING in controls.held_states and group.assignment_epoch > 0
    # KIP-1263: no timer runs; the next heartbeat after the interval computes the target.
    is_early = step.context.now_ms < group.next_target_ms(step.context.assignment_interval_ms)
    if step.group_epoch <= group.assignment_epoch or is_held or is_early:
        return current_target(step)
    members = {**group.members, member.member_id: member}
    if (replaced := _target_holder(step)) != member.member_id:
        del members[replaced]
    if controls.next_assignment is not None:
        target: Mapping[str, Partitions] = scripted_target(controls.next_assignment, members, step.context.topics)
        step.is_scripted = True
    else:
        try:
            target = _assignor(step)(_group_spec(step, members))
        except PartitionAssignorError as error:
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    for member_id in members:
        partitions = target.get(member_id, NO_PARTITIONS)
        if group.target.get(member_id) != partitions:
            step.records.append(TargetAssignmentRecord(group.group_id, member_id, partitions))
    # 0 would be a time that is not known.
    timestamp_ms = max(1, int(step.context.now_ms)) if step.context.release >= (4, 3) else 0
    epoch = AssignmentEpochValue(step.group_epoch, timestamp_ms)
    step.records.append(AssignmentEpochRecord(group.group_id, epoch))
    return target.get(member.member_id, NO_PARTITIONS), step.group_epoch


def _target_holder(step: Step) -> str:
    """Return the id under which the group has the target of the member: that of the member it replaces, if any."""
    member = step.member
    if member.instance_id is None:
        return member.member_id
    return step.group.static_members.get(member.instance_id, member.member_id)


def _group_spec(step: Step, members: Mapping[str, ConsumerGroupMember]) -> GroupSpec:
    topics: dict[str, TopicMetadata | None] = {}
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    for member in members.values():
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        if subscription not in ids:
            names = step.group.subscriptions.topics_of(member)
            topics |= {name: step.context.topics.named(name) for name in names if name not in topics}
            ids[subscription] = frozenset(found.topic_id for name in names if (found := topics[name]) is not None)
    counts = {found.topic_id: found.partition_count for found in topics.values() if found is not None}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        member = members[member_id]
        holder = member_id if member_id != step.member.member_id else _target_holder(step)
        topic_ids = ids[member.subscribed_topic_names, member.subscribed_topic_regex]
        specs[member_id] = MemberSpec(member.instance_id, topic_ids, step.group.target.get(holder, NO_PARTITIONS))
    # A heartbeat that cannot raise the group epoch takes the type of subscription from before. Then `uniform` gives all
    # members the topics of the first one, also a member that joins without topics.
    group = step.group
    subscriptions, size = (
        (step.subscriptions, len(members)) if step.checks_metadata else (group.subscriptions, len(group.members))
    )
    return GroupSpec(specs, counts, subscriptions.is_homogeneous(size))


def _assignor(step: Step) -> Assignor:
    """Return the assignor that most members vote for; without votes, the default.

    Of several with one vote each, it is the one that the member of the request votes for: its vote gets to the head of
    a Java hash map (`ConsumerGroup.computePreferredServerAssignor`). Kafka's Describe may name another one. So since
    KAFKA-20434, each heartbeat of such a member begins a new epoch.
    """
    return step.context.assignors[_preferred_after(step)]


def _preferred_after(step: Step) -> str:
    votes, assignors = step.group.votes.copy(), step.context.assignors
    if step.former.server_assignor is not None:
        votes[step.former.server_assignor] -= 1
    if step.member.server_assignor is not None:
        votes[step.member.server_assignor] += 1
    own = step.member.server_assignor
    if own is not None and votes[own] == max(votes.values()) == 1:
        return own
    return preferred_assignor(votes, assignors)


def preferred_assignor(votes: Mapping[str, int], assignors: Collection[str]) -> str:
    """Return the name with the most votes; without votes, the first of the assignors.

    In Kafka the order of a hash map decides between equal votes; for its two assignors, `uniform` comes first.
    """
    named = [name for name in sorted(assignors, key=lambda name: (name != "uniform", name)) if votes.get(name, 0) > 0]
    return max(named, key=lambda name: votes[name], default=next(iter(assignors)))


# 3. The member's assignment


def reconcile(step: Step, target: Partitions, target_epoch: int) -> Outcome:
    """Move the member towards its target, which it has in the epoch of the target."""
    group, request, member = step.group, step.request, step.member
    after, is_moved = member, False
    owned, unacknowledged = _reported(step)
    if step.subscription_changed or not member.is_reconciled_to(target_epoch):
        found = (step.context.topics.named(name) for name in group.subscriptions.topics_of(member))
        step_to_target = Reconciliation(
            target=target,
            target_epoch=target_epoch,
            subscribed_topic_ids=frozenset(topic.topic_id for topic in found if topic is not None),
            # Before KAFKA-19431, a member keeps topics that it has dropped until the next target.
            subscription_changed=step.subscription_changed and step.context.release >= (4, 1),
            owned=owned,
            epoch_of=group.partition_epoch,
            raises_epoch=step.context.release < (4, 2),
            sets_previous_epoch=step.context.release >= (4, 3),
        )
        after = step_to_target.next_state(member)
        is_moved = after != member
        if is_moved:
            step.records.append(current_assignment_record(group.group_id, after))
    has_changed = after.assigned != step.former.assigned
    assignment = after.assigned if request.is_joining or request.is_full or has_changed else None
    result = HeartbeatResult(
        _NONE, None, after.member_id, after.member_epoch, step.context.heartbeat_interval_ms, assignment
    )
    return Outcome(
        step.records,
        result,
        after,
        step.checks_metadata,
        is_moved,
        unacknowledged=unacknowledged,
        is_scripted=step.is_scripted,
    )


def _reported(step: Step) -> tuple[Partitions | None, Partitions | None]:
    """Return the partitions that the member reports, as far as it is believed, and those to remember.

    A member reports them once. So the last report during a hold is remembered, and counts when the hold has ended.
    """
    member, owned = step.member, step.request.owned
    report = step.group.unacknowledged.get(member.member_id) if owned is None else owned
    if step.context.controls.holds_revocation_of(member.member_id, member.instance_id) and member.state is not UNKNOWN:
        return None, report
    return report, None


# Leaving


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Return the member that sends a request.

    Raises:
        HeartbeatError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if the instance id has another member id.
    """
    if instance_id is not None:
        return checked_instance(group.static_member(instance_id), member_id, instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise _unknown_member(group, member_id)
    return member


def leave_for_a_while(group: ConsumerGroup, member: ConsumerGroupMember) -> list[ConsumerGroupRecord]:
    """Return the record of a static member that keeps its partitions while it is away."""
    return [current_assignment_record(group.group_id, member.in_epoch(LEAVING_STATIC_EPOCH, member.assigned))]


def remove(group: ConsumerGroup, member_ids: Collection[str], topics: TopicImage) -> list[ConsumerGroupRecord]:
    """Return the records that remove members, at least one, and start the next group epoch."""
    records: list[ConsumerGroupRecord] = []
    for member_id in member_ids:
        records += removal_records(group.group_id, member_id)
    before = group.subscriptions
    after = before.after([group.members[member_id] for member_id in member_ids], [])
    records += (RegexRecord(group.group_id, regex, None) for regex in before.regexes if regex not in after.regexes)
    epoch = group.group_epoch + 1
    records.append(GroupEpochRecord(group.group_id, GroupEpochValue(epoch, metadata_hash(after.topics(), topics))))
    if len(member_ids) == len(group.members) and group.release >= (4, 4):
        # The next member that joins gets its target at once (KAFKA-20442).
        records.append(AssignmentEpochRecord(group.group_id, AssignmentEpochValue(epoch)))
    return records


# Records


def subscription_record(group_id: str, member: ConsumerGroupMember) -> MemberSubscriptionRecord:
    """Return the record of what a member has reported about itself."""
    value = SubscriptionValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic=member.classic,
    )
    return MemberSubscriptionRecord(group_id, member.member_id, value)


def current_assignment_record(group_id: str, member: ConsumerGroupMember) -> CurrentAssignmentRecord:
    """Return the record of what a member has."""
    value = CurrentAssignmentValue(
        member_epoch=member.member_epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
        older_epochs=member.older_epochs,
    )
    return CurrentAssignmentRecord(group_id, member.member_id, value)


def removal_records(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a member."""
    return [
        CurrentAssignmentRecord(group_id, member_id, None),
        TargetAssignmentRecord(group_id, member_id, None),
        MemberSubscriptionRecord(group_id, member_id, None),
    ]


def tombstones(group: ConsumerGroup, renamed: Mapping[str, str] = NO_NAMES) -> list[ConsumerGroupRecord]:
    """Return the records that delete a group, as `ConsumerGroup.createGroupTombstoneRecords` orders them.

    Args:
        group: The group.
        renamed: The new ids of members that earlier records of the batch replace, by member id.
    """
    group_id, members = group.group_id, [renamed.get(member_id, member_id) for member_id in group.members]
    return [
        *(CurrentAssignmentRecord(group_id, member_id, None) for member_id in members),
        *(TargetAssignmentRecord(group_id, member_id, None) for member_id in members),
        AssignmentEpochRecord(group_id, None),
        *(MemberSubscriptionRecord(group_id, member_id, None) for member_id in members),
        *(RegexRecord(group_id, regex, None) for regex in group.subscriptions.resolved),
        SubscribedTopicsRecord(group_id, None),
        GroupEpochRecord(group_id, None),
    ]
