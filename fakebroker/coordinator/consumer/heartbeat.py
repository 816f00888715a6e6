"""What a heartbeat, a departure and an expired timer change in a consumer group: the records, and the response.

A heartbeat is a `Step` of its member, and so is a JoinGroup of a classic member (`migration.py`).
The functions do not change the group; see `ConsumerGroup.replay`. Order of checks and records as in Kafka's
`GroupMetadataManager.consumerGroupHeartbeat`, release 4.2.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.consumer.assignors import (
    Assignor,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
)
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import (
    FREE,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    HeartbeatError,
    Partitions,
    contains_all,
    overlap,
)
from fakebroker.coordinator.consumer.records import (
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
from fakebroker.coordinator.consumer.states import (
    STABLE,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerGroupState,
)
from fakebroker.coordinator.consumer.subscriptions import (
    InvalidRegexError,
    Matcher,
    Subscriptions,
    TopicImage,
    TopicMetadata,
    metadata_hash,
)
from fakebroker.coordinator.group_controls import Assignment, GroupControls
from fakebroker.errors import ErrorCode

# A request, its result, and the checks that do not depend on the group


_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


class ConsumerGroupHeartbeat(msgspec.Struct, kw_only=True):
    """One ConsumerGroupHeartbeat request (KIP-848). `None` and -1 mean that a value has not changed.

    Attributes:
        member_epoch: That of the member; 0 to join, -1 to leave, -2 to leave for a while as a static member.
        client_host: In Kafka's form, such as "/127.0.0.1".
        subscribed_topic_regex: A regular expression for names of topics, in addition to those in
            `subscribed_topic_names`; "" for none.
        owned: The partitions that the member has.
        may_describe: Whether the client may describe a topic; None if it may describe all. Regular expressions do not
            find other topics.
        requires_member_id: Whether also a member that joins has to give its id (versions 1 and up).
        classic: Set if the request is a JoinGroup (`classic_members.join`).
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    may_describe: Callable[[str], bool] | None = None
    requires_member_id: bool = False
    classic: ClassicMemberMetadata | None = None

    @property
    def is_joining(self) -> bool:
        return self.member_epoch == JOINING_EPOCH

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member reports everything, as it does after an error: then the response has its assignment."""
        return self.rebalance_timeout_ms != -1 and self.has_subscription and self.owned is not None

    @property
    def has_subscription(self) -> bool:
        """Whether the request has names of topics, or a regular expression."""
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None


class HeartbeatResult(msgspec.Struct):
    """The result of a ConsumerGroupHeartbeat.

    Attributes:
        message: The message of an error.
        assignment: What the member may use; None if it has not changed.
        regexes_to_resolve: All regular expressions of the group, if they are to be resolved next, in a step of its own.
    """

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    regexes_to_resolve: Collection[str] = ()


def check_request(request: ConsumerGroupHeartbeat, assignors: Collection[str]) -> None:
    """Check a request by itself, in Kafka's order (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).

    Raises:
        HeartbeatError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    fault = next(_faults(request), None)
    if fault is not None:
        raise HeartbeatError(ErrorCode.INVALID_REQUEST, fault)
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        known = ", ".join(assignors)
        text = f"ServerAssignor {wanted} is not supported. Supported assignors: {known}."
        raise HeartbeatError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _faults(request: ConsumerGroupHeartbeat) -> Iterator[str]:
    needs_id = request.requires_member_id or request.member_epoch > 0 or request.member_epoch == LEAVING_EPOCH
    if needs_id and _is_blank(request.member_id):
        yield "MemberId can't be empty."
    if _is_blank(request.group_id):
        yield "GroupId can't be empty."
    if _is_blank(request.instance_id):
        yield "InstanceId can't be empty."
    if _is_blank(request.rack_id):
        yield "RackId can't be empty."
    if request.is_joining:
        if request.rebalance_timeout_ms == -1:
            yield "RebalanceTimeoutMs must be provided in first request."
        if request.owned is None or request.owned:
            yield "TopicPartitions must be empty when (re-)joining."
        if not request.has_subscription:
            yield "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif request.member_epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            yield "InstanceId can't be null."
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        yield "MemberEpoch is invalid."


def _is_blank(value: str | None) -> bool:
    return value is not None and not value.strip(_JAVA_WHITESPACE)


# The next step of one member towards its target (Kafka's `CurrentAssignmentBuilder`). A partition moves in two steps:
# its owner confirms that it has given it up, then another member gets it.


_NO_INDEXES: frozenset[int] = frozenset()


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What the next step of a member depends on.

    Attributes:
        target: The target assignment of the member.
        target_epoch: The epoch of the target assignment.
        subscribed_topic_ids: The topics that the member is subscribed to, of those that exist.
        subscription_changed: Whether this heartbeat changed the subscription.
        owned: The partitions that the member reports in this heartbeat, or None if it does not report them.
        epoch_of: Returns the epoch of a partition's owner, or `FREE`.
        raises_epoch: Whether a member that has given up partitions, and has to give up others, gets the next epoch,
            as before KAFKA-19974.
        sets_previous_epoch: Whether a member that gives up unsubscribed topics has its present epoch as the previous
            one, too, as since 4.3.
    """

    target: Partitions
    target_epoch: int
    subscribed_topic_ids: Collection[bytes]
    subscription_changed: bool
    owned: Partitions | None
    epoch_of: Callable[[bytes, int], int]
    raises_epoch: bool = False
    sets_previous_epoch: bool = True

    def next_state(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Return the member after this heartbeat; the member itself if nothing changes.

        Raises:
            HeartbeatError: FENCED_MEMBER_EPOCH: the state of the member is unknown, and it has not given up everything.
        """
        if member.state is STABLE:
            if member.member_epoch != self.target_epoch:
                return self._advance(member, member.member_epoch)
            return self._without_unsubscribed(member) if self.subscription_changed else member
        if member.state is UNREVOKED_PARTITIONS:
            if self._still_owns(member.pending_revocation):
                return self._without_unsubscribed(member) if self.subscription_changed else member
            # If the subscription changed before there was a new target, the epoch must not pass that of the target.
            next_epoch = min(member.member_epoch + 1, self.target_epoch)
            return self._advance(member, next_epoch if self.raises_epoch else member.member_epoch)
        if member.state is UNRELEASED_PARTITIONS:
            return self._advance(member, member.member_epoch)
        assert member.state is UNKNOWN
        if self.owned is None or self.owned:
            text = (
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin."
            )
            raise HeartbeatError(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return self._advance(member, self.target_epoch)

    def _still_owns(self, revoked: Partitions) -> bool:
        return self.owned is None or overlap(self.owned, revoked)

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Take away the partitions of topics that the member is not subscribed to, without regard to the target."""
        kept = {topic: indexes for topic, indexes in member.assigned.items() if topic in self.subscribed_topic_ids}
        if len(kept) == len(member.assigned):
            return member
        revoked = dict(member.pending_revocation)
        for topic, indexes in member.assigned.items():
            if topic not in kept:
                revoked[topic] = revoked.get(topic, _NO_INDEXES) | indexes
        if self._still_owns(revoked):
            moved = member.moved_to(UNREVOKED_PARTITIONS, member.member_epoch, kept, revoked)
            return moved if self.sets_previous_epoch else replace(moved, previous_epoch=member.previous_epoch)
        return replace(member, assigned=kept)

    def _advance(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        """Return the member on its way to the target; `epoch` is its epoch if it first has to give up partitions."""
        kept: dict[bytes, frozenset[int]] = {}
        revoked: dict[bytes, frozenset[int]] = {}
        added: dict[bytes, frozenset[int]] = {}
        is_blocked = False
        for topic in dict.fromkeys([*self.target, *member.assigned]):
            is_subscribed = topic in self.subscribed_topic_ids
            target = self.target.get(topic, _NO_INDEXES) if is_subscribed else _NO_INDEXES
            assigned = member.assigned.get(topic, _NO_INDEXES)
            wanted = target - assigned
            # What the member itself is giving up is free for it.
            own = member.pending_revocation.get(topic, _NO_INDEXES)
            free = frozenset(index for index in wanted if index in own or self.epoch_of(topic, index) == FREE)
            is_blocked = is_blocked or len(free) < len(wanted)
            for sets, indexes in ((kept, assigned & target), (revoked, assigned - target), (added, free)):
                if indexes:
                    sets[topic] = indexes
        if revoked and self._still_owns(revoked):
            return member.moved_to(UNREVOKED_PARTITIONS, epoch, kept, revoked)
        for topic, indexes in added.items():
            kept[topic] = kept.get(topic, _NO_INDEXES) | indexes
        state = UNRELEASED_PARTITIONS if is_blocked else STABLE
        return member.moved_to(state, self.target_epoch, kept, NO_PARTITIONS)


# A target assignment that a test has chosen, instead of the assignor's result


def scripted_target(
    assignment: Assignment, members: Mapping[str, ConsumerGroupMember], topics: TopicImage
) -> dict[str, Partitions]:
    """Return the target of members, by member id.

    Args:
        assignment: The chosen partitions by member id, instance id, or client id if it is unique. Names of others are
            ignored, and so are topics that do not exist.
        members: The members of the group, by member id.
        topics: The topics.
    """
    clients = Counter(member.client_id for member in members.values())
    named = {member.client_id: member.member_id for member in members.values() if clients[member.client_id] == 1}
    named |= {member.instance_id: member.member_id for member in members.values() if member.instance_id is not None}
    named |= {member_id: member_id for member_id in members}
    target: dict[str, dict[bytes, set[int]]] = {}
    for name, partitions in assignment.items():
        for topic, index in partitions:
            found = topics.named(topic)
            if name in named and found is not None and index < found.partition_count:
                target.setdefault(named[name], {}).setdefault(found.topic_id, set()).add(index)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
        for member_id, partitions in target.items()
    }


# Heartbeats


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
