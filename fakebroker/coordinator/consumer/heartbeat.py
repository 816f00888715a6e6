"""The records and the response of a heartbeat, a departure or an expired timer in a consumer group.

Start with `heartbeat`, which follows Kafka's `GroupMetadataManager.consumerGroupHeartbeat` (release 4.4). Its steps are
below it, in the same order. A JoinGroup of a classic member uses some of these steps, too (`migration.py`). The
functions do not change the group: `ConsumerGroup.replay` applies the records.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.consumer.assignors import (
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
)
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
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
    assignment_epoch_record,
    current_assignment_record,
    group_epoch_record,
    regex_record,
    removal_records,
    subscription_record,
    target_assignment_record,
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
    Subscriptions,
    TopicImage,
    TopicMetadata,
    metadata_hash,
)
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import Assignment, GroupControls
from fakebroker.coordinator.records import CoordinatorRecord, KeyedRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

# The request by itself


_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


def is_joining(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch == JOINING_EPOCH


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH)


def is_bare(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a request reports no partitions, and changes neither the subscription nor a setting."""
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
    )


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Check a request by itself, in Kafka's order (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).

    Raises:
        HeartbeatError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    fault, wanted = next(_faults(request, api_version), None), request.server_assignor
    if fault is not None:
        raise HeartbeatError(ErrorCode.INVALID_REQUEST, fault)
    if wanted is not None and wanted not in assignors:
        known = ", ".join(assignors)
        text = f"ServerAssignor {wanted} is not supported. Supported assignors: {known}."
        raise HeartbeatError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _faults(request: ConsumerGroupHeartbeatRequest, api_version: int) -> Iterator[str]:
    # Since version 1, a joining member chooses its own id.
    needs_id = api_version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVING_EPOCH
    if needs_id and _is_blank(request.member_id):
        yield "MemberId can't be empty."
    if _is_blank(request.group_id):
        yield "GroupId can't be empty."
    if _is_blank(request.instance_id):
        yield "InstanceId can't be empty."
    if _is_blank(request.rack_id):
        yield "RackId can't be empty."
    if is_joining(request):
        if request.rebalance_timeout_ms == -1:
            yield "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            yield "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            yield "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif request.member_epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            yield "InstanceId can't be null."
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        yield "MemberEpoch is invalid."


def _is_blank(value: str | None) -> bool:
    return value is not None and not value.strip(_JAVA_WHITESPACE)


# The story of a heartbeat. Its steps follow, in sections.


class Step(msgspec.Struct, kw_only=True):
    """A heartbeat in progress, or a JoinGroup of a classic member: its inputs, and its results so far.

    The group does not change before the records are in the log (`ConsumerGroups`).

    Attributes:
        group: The group before the request. If the group does not exist, a new group.
        request: The request. A JoinGroup is represented by a heartbeat with the same content.
        client: The context of the request.
        config: The settings.
        controls: The manual settings of the group.
        now_ms: The time.
        heartbeat_interval_ms, assignment_interval_ms: The settings of this group.
        classic: The session timeout and the protocols of a classic member; else None.
        owned: The partitions that the member reports; None if it does not report them.
        former: The member before the request. If the member joins, a new member.
        member: The member after the steps so far. When the request is complete, its timers restart.
        group_epoch: The group epoch after the request.
        records: The records to append, and then to replay.
        checks_metadata: Whether the step has computed the hash of the subscribed topics.
        is_scripted: Whether `GroupControls.next_assignment` has set the target.
        has_moved: Whether the current assignment has changed. If it has changed, the rebalance timer restarts.
        unacknowledged: The partitions that the member reports during a hold. The report counts when the hold ends.
        unresolved: The regular expressions to resolve after this request: all of the group, or none.
        after: A cache of `subscriptions`.
    """

    group: ConsumerGroup
    request: ConsumerGroupHeartbeatRequest
    client: RequestContext
    config: ConsumerGroupConfig
    controls: GroupControls
    now_ms: float
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    classic: ClassicMemberMetadata | None = None
    owned: Partitions | None = None
    former: ConsumerGroupMember = msgspec.field(default_factory=lambda: ConsumerGroupMember(member_id=""))
    member: ConsumerGroupMember = msgspec.field(default_factory=lambda: ConsumerGroupMember(member_id=""))
    group_epoch: int = 0
    records: list[KeyedRecord] = msgspec.field(default_factory=list)
    checks_metadata: bool = False
    is_scripted: bool = False
    has_moved: bool = False
    unacknowledged: Partitions | None = None
    unresolved: Collection[str] = ()
    after: Subscriptions | None = None

    @property
    def release(self) -> tuple[int, ...]:
        """The release of Kafka whose behavior the coordinator has."""
        return self.config.release

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
    def target_holder(self) -> str:
        """The member id that has the target in the group: for a static member that is being replaced, the old id."""
        instance_id, member_id = self.member.instance_id, self.member.member_id
        return member_id if instance_id is None else self.group.static_members.get(instance_id, member_id)

    @property
    def cause(self) -> str:
        """Describes the request for the history."""
        group, member = self.group, self.member
        cause = f"{'heartbeat' if member.classic is None else 'JoinGroup'} of {member.member_id}"
        if self.target_holder != member.member_id:
            return f"{cause}, which replaces {self.target_holder} as static {member.instance_id!r}"
        if member.member_id not in group.members:
            return f"{cause}, a new member"
        if self.subscription_changed:
            return f"{cause}, whose subscription has changed"
        return f"{cause} after a change of topics" if self.group_epoch > group.group_epoch else cause


def heartbeat(step: Step, new_id: Callable[[], str]) -> ConsumerGroupHeartbeatResponse:
    """Handle the heartbeat of a member that joins or stays, in Kafka's order (`consumerGroupHeartbeat`).

    `check_request` has checked the request. `new_id` returns the id of a member that joins without one.

    Raises:
        HeartbeatError: The request is rejected.
    """
    group, request = step.group, step.request
    check_size(step)
    member_id, instance_id, joins = request.member_id or new_id(), request.instance_id, is_joining(request)
    if request.topic_partitions is not None:
        step.owned = _reported(request.topic_partitions)

    # The member before
    if instance_id is None:
        known = group.members.get(member_id)
        if known is None and not joins:
            raise _unknown_member(group, member_id)
        step.former = known or ConsumerGroupMember(member_id=member_id)
        if step.release < (4, 2) or not joins:  # Since 4.2, joining needs no epoch (KAFKA-19233).
            _check_epoch(step)
    else:
        known = group.static_member(instance_id)
        if not joins:
            step.former = checked_instance(known, member_id, instance_id)
            _check_epoch(step)
        elif known is None:
            step.former = group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
        elif known.member_epoch != LEAVING_STATIC_EPOCH and known.classic is None:
            text = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {known.member_id} member."
            )
            raise HeartbeatError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        else:
            replace_static_member(step, known, member_id)

    # Its subscription, the epoch of the group, and the target of all members
    update_member(step)
    bump_group_epoch(step)
    target, target_epoch = update_target(step)

    # Its way to the target, and the answer. A full request, as after an error, is answered with the assignment.
    reconcile(step, target, target_epoch)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    has_changed = step.member.assigned != step.former.assigned
    step.unresolved = regexes_to_resolve(step)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=step.member.member_id,
        member_epoch=step.member.member_epoch,
        heartbeat_interval_ms=step.heartbeat_interval_ms,
        assignment=HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in step.member.assigned.items()
            ]
        )
        if joins or is_full or has_changed
        else None,
    )


# 1. The member before


def check_size(step: Step) -> None:
    """Check that the group has room for the member that sends the request.

    Raises:
        HeartbeatError: GROUP_MAX_SIZE_REACHED.
    """
    group, request, max_size = step.group, step.request, step.config.max_size
    replaces = step.release >= (4, 4) and request.instance_id in group.static_members  # KAFKA-20601
    if len(group.members) >= max_size and request.member_id not in group.members and not replaces:
        text = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise HeartbeatError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def _reported(topics: Iterable[HeartbeatTopicPartitions]) -> Partitions:
    """Return the partitions that a member reports. A topic without partitions stays, because checks depend on it."""
    partitions: dict[bytes, frozenset[int]] = {}
    for each in topics:
        partitions[each.topic_id] = partitions.get(each.topic_id, _NO_INDEXES).union(each.partitions)
    return partitions


def replace_static_member(step: Step, existing: ConsumerGroupMember, member_id: str) -> None:
    """Replace a static member by a joining member with another member id, which takes over the target.

    Sets `step.former` to the existing member under the new id, and adds the records of the replacement.
    """
    group_id, group = step.group.group_id, step.group
    member = existing.in_epoch(JOINING_EPOCH, existing.assigned, existing.pending_revocation)
    step.former = member = replace(member, member_id=member_id, previous_epoch=JOINING_EPOCH)
    step.records += removal_records(group_id, existing.member_id)
    step.records.append(subscription_record(group_id, member))
    target = group.target.get(existing.member_id, NO_PARTITIONS)
    step.records.append(target_assignment_record(group_id, member_id, target))
    step.records.append(current_assignment_record(group_id, member, group.release))


def checked_instance(existing: ConsumerGroupMember | None, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Return the member with an instance id.

    Raises:
        HeartbeatError: UNKNOWN_MEMBER_ID if the instance id is unknown; FENCED_INSTANCE_ID if its member has another
            member id.
    """
    if existing is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        raise HeartbeatError(ErrorCode.FENCED_INSTANCE_ID, text)
    return existing


def _check_epoch(step: Step) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is current.

    The previous epoch is accepted, too, if the member reports only partitions that it has: the last response may be
    lost.
    """
    member, sent, known = step.former, step.request.member_epoch, step.former.member_epoch
    if sent == known:
        return
    was_lost = sent == member.previous_epoch and step.owned is not None
    if sent < known and was_lost and contains_all(member.assigned, step.owned or NO_PARTITIONS):
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


# 2. Its subscription


def update_member(step: Step) -> None:
    """Update the member from the request. Fields of the request that are null or -1 change nothing.

    Raises:
        HeartbeatError: INVALID_REGULAR_EXPRESSION.
    """
    group, request, former = step.group, step.request, step.former
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms, assignor = request.rebalance_timeout_ms, request.server_assignor
    step.member = replace(
        former,
        instance_id=former.instance_id if request.instance_id is None else request.instance_id,
        rack_id=former.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=former.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=former.server_assignor if assignor is None else assignor,
        subscribed_topic_names=former.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=former.subscribed_topic_regex if regex is None else regex,
        client_id=step.client.client_id,
        client_host=step.client.client_host,
        classic=step.classic,
    )
    if step.member != former:
        step.records.append(subscription_record(group.group_id, step.member))
    if step.regex_changed:
        before, after = former.subscribed_topic_regex, step.member.subscribed_topic_regex
        if group.subscriptions.regexes.get(before) == 1:  # No member has it any more.
            step.records.append(regex_record(group.group_id, before, None))
        if after and after not in group.subscriptions.regexes:
            try:
                step.config.compile_regex(after)
            except InvalidRegexError as error:
                raise HeartbeatError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def regexes_to_resolve(step: Step) -> Collection[str]:
    """Return the regular expressions to resolve after this heartbeat: all of the group, or none."""
    subscriptions, config = step.group.subscriptions, step.config
    regexes = tuple((step.subscriptions if step.regex_changed else subscriptions).regexes)
    created, interval_ms = config.topics.created_version, config.regex_refresh_interval_ms
    return regexes if subscriptions.must_refresh(regexes, step.now_ms, created, interval_ms) else ()


# 3. The group epoch and the target assignment


def bump_group_epoch(step: Step) -> None:
    """Add a record of the next group epoch, if the subscription, the subscribed topics or the assignor have changed.

    A new regular expression does not raise the epoch. Its resolution does.
    """
    group, topics = step.group, step.config.topics
    step.group_epoch = group.group_epoch
    # Before 4.3, a group begins with epoch 0, and its first heartbeat raises it (KAFKA-20268).
    must_bump = group.group_epoch == 0 or step.names_changed
    if step.regex_changed:
        regex = step.member.subscribed_topic_regex
        # Its topics may be known already. A classic member has no regular expression, so nothing has to be resolved.
        must_bump |= regex in group.subscriptions.resolved or step.classic is not None
        must_bump |= not regex and step.release >= (4, 1)  # KAFKA-19891
    if step.release >= (4, 4):  # KAFKA-20434
        must_bump |= _preferred_after(step) != preferred_assignor(group.votes, step.config.assignors)
    if not must_bump and group.metadata_version == topics.version:
        return
    hash_ = metadata_hash(step.subscriptions.topics(), topics)
    step.checks_metadata = True
    if must_bump or hash_ != group.metadata_hash:
        step.group_epoch += 1
        step.records.append(group_epoch_record(group.group_id, step.group_epoch, hash_))
    if group.has_subscribed_topics_record:
        step.records.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None))


def current_target(step: Step) -> tuple[Partitions, int]:
    """Return the target of the member, and its epoch."""
    group, member = step.group, step.member
    if member.instance_id is not None and member.instance_id not in group.static_members:
        # Kafka looks for the target of a static member by its instance id alone (`ConsumerGroup.targetAssignment`). A
        # member that rejoins with a new instance id gets none before the next epoch.
        return NO_PARTITIONS, group.assignment_epoch
    return group.target.get(step.target_holder, NO_PARTITIONS), group.assignment_epoch


def update_target(step: Step) -> tuple[Partitions, int]:
    """Run the assignor if the group epoch is newer than the assignment; return the member's target and its epoch.

    Raises:
        HeartbeatError: UNKNOWN_SERVER_ERROR: the assignor has failed. No record is stored.
    """
    group, member, controls = step.group, step.member, step.controls
    # The first target is never held: without it, a member would get epoch 0.
    is_held = ConsumerGroupState.ASSIGNING in controls.held_states and group.assignment_epoch > 0
    # KIP-1263: no timer runs; the next heartbeat after the interval computes the target.
    is_early = step.now_ms < group.next_target_ms(step.assignment_interval_ms)
    if step.group_epoch <= group.assignment_epoch or is_held or is_early:
        return current_target(step)
    members = {**group.members, member.member_id: member}
    if step.target_holder != member.member_id:
        del members[step.target_holder]
    if controls.next_assignment is not None:
        target: Mapping[str, Partitions] = scripted_target(controls.next_assignment, members, step.config.topics)
        step.is_scripted = True
    else:
        # If several assignors have one vote each, the vote of the requesting member decides. So the assignor can differ
        # from the group's. Since KAFKA-20434, each heartbeat of such a member then begins a new epoch.
        assignor = step.config.assignors[_preferred_after(step)]
        try:
            target = assignor(_group_spec(step, members))
        except PartitionAssignorError as error:
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    for member_id in members:
        partitions = target.get(member_id, NO_PARTITIONS)
        if group.target.get(member_id) != partitions:
            step.records.append(target_assignment_record(group.group_id, member_id, partitions))
    # At least 1, because 0 means that the time is not known.
    timestamp_ms = max(1, int(step.now_ms)) if step.release >= (4, 3) else 0
    step.records.append(assignment_epoch_record(group.group_id, step.group_epoch, timestamp_ms))
    return target.get(member.member_id, NO_PARTITIONS), step.group_epoch


def _group_spec(step: Step, members: Mapping[str, ConsumerGroupMember]) -> GroupSpec:
    group = step.group
    topics: dict[str, TopicMetadata | None] = {}
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    for member in members.values():
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        if subscription not in ids:
            names = group.subscriptions.topics_of(member)
            topics |= {name: step.config.topics.named(name) for name in names if name not in topics}
            ids[subscription] = frozenset(found.topic_id for name in names if (found := topics[name]) is not None)
    counts = {found.topic_id: found.partition_count for found in topics.values() if found is not None}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        member = members[member_id]
        holder = member_id if member_id != step.member.member_id else step.target_holder
        topic_ids = ids[member.subscribed_topic_names, member.subscribed_topic_regex]
        specs[member_id] = MemberSpec(member.instance_id, topic_ids, group.target.get(holder, NO_PARTITIONS))
    # If the epoch was not checked, the old type of subscription counts. `uniform` may then give a new member without
    # topics the topics of the first member.
    subscriptions, size = (
        (step.subscriptions, len(members)) if step.checks_metadata else (group.subscriptions, len(group.members))
    )
    return GroupSpec(specs, counts, subscriptions.is_homogeneous(size))


def _preferred_after(step: Step) -> str:
    """Return the assignor that most members vote for after the step; without votes, the default.

    If several assignors have one vote each, the vote of the requesting member decides: Kafka puts it at the head of a
    Java hash map (`ConsumerGroup.computePreferredServerAssignor`).
    """
    votes, own = step.group.votes.copy(), step.member.server_assignor
    if step.former.server_assignor is not None:
        votes[step.former.server_assignor] -= 1
    if own is not None:
        votes[own] += 1
        if votes[own] == max(votes.values()) == 1:
            return own
    return preferred_assignor(votes, step.config.assignors)


def preferred_assignor(votes: Mapping[str, int], assignors: Collection[str]) -> str:
    """Return the name with the most votes; without votes, the first of the assignors.

    In Kafka the order of a hash map decides between equal votes; for its two assignors, `uniform` comes first.
    """
    named = [name for name in sorted(assignors, key=lambda name: (name != "uniform", name)) if votes.get(name, 0) > 0]
    return max(named, key=lambda name: votes[name], default=next(iter(assignors)))


# 4. The next step of the member towards its target. A partition moves in two steps: first its owner confirms that it no
# longer has the partition, then another member gets the partition.


_NO_INDEXES: frozenset[int] = frozenset()


def reconcile(step: Step, target: Partitions, target_epoch: int) -> None:
    """Move the member one step towards its target. It reaches the target in `target_epoch`."""
    group, member = step.group, step.member
    # A member reports its partitions once. So the last report during a hold is remembered, and counts after the hold.
    owned = group.unacknowledged.get(member.member_id) if step.owned is None else step.owned
    if step.controls.holds_revocation_of(member.member_id, member.instance_id) and member.state is not UNKNOWN:
        owned, step.unacknowledged = None, owned
    if not step.subscription_changed and member.is_reconciled_to(target_epoch):
        return
    found = (step.config.topics.named(name) for name in group.subscriptions.topics_of(member))
    step.member = next_assignment(
        member,
        target=target,
        target_epoch=target_epoch,
        subscribed_topic_ids=frozenset(topic.topic_id for topic in found if topic is not None),
        subscription_changed=step.subscription_changed,
        owned=owned,
        epoch_of=group.partition_epoch,
        release=step.release,
    )
    step.has_moved = step.member != member
    if step.has_moved:
        step.records.append(current_assignment_record(group.group_id, step.member, group.release))


def next_assignment(
    member: ConsumerGroupMember,
    *,
    target: Partitions,
    target_epoch: int,
    subscribed_topic_ids: Collection[bytes],
    subscription_changed: bool,
    owned: Partitions | None,
    epoch_of: Callable[[bytes, int], int],
    release: tuple[int, ...],
) -> ConsumerGroupMember:
    """Return a member after its heartbeat; the member itself if nothing changes (Kafka's `CurrentAssignmentBuilder`).

    Args:
        member: The member before.
        target: The target assignment of the member.
        target_epoch: The epoch of the target assignment.
        subscribed_topic_ids: The existing topics that the member subscribes to.
        subscription_changed: Whether this heartbeat changed the subscription.
        owned: The partitions that the member reports in this heartbeat, or None if it does not report them.
        epoch_of: Returns the epoch of a partition's owner, or `FREE`.
        release: The release of Kafka.

    Raises:
        HeartbeatError: FENCED_MEMBER_EPOCH: the state of the member is unknown, and it has not given up everything.
    """
    # Before KAFKA-19431, a member keeps topics that it has dropped until the next target.
    drops_topics = subscription_changed and release >= (4, 1)

    def still_owns(revoked: Partitions) -> bool:
        return owned is None or overlap(owned, revoked)

    def without_unsubscribed() -> ConsumerGroupMember:
        """Take away the partitions of topics that the member is not subscribed to, without regard to the target."""
        kept = {topic: indexes for topic, indexes in member.assigned.items() if topic in subscribed_topic_ids}
        if len(kept) == len(member.assigned):
            return member
        revoked = dict(member.pending_revocation)
        for topic, indexes in member.assigned.items():
            if topic not in kept:
                revoked[topic] = revoked.get(topic, _NO_INDEXES) | indexes
        if not still_owns(revoked):
            return replace(member, assigned=kept)
        moved = member.moved_to(UNREVOKED_PARTITIONS, member.member_epoch, kept, revoked)
        # Since 4.3, the present epoch is also the previous one.
        return moved if release >= (4, 3) else replace(moved, previous_epoch=member.previous_epoch)

    def advance(epoch: int) -> ConsumerGroupMember:
        """Return the member one step nearer to the target. If it first has to give up partitions, it gets `epoch`."""
        kept: dict[bytes, frozenset[int]] = {}
        revoked: dict[bytes, frozenset[int]] = {}
        added: dict[bytes, frozenset[int]] = {}
        is_blocked = False
        for topic in dict.fromkeys([*target, *member.assigned]):
            wanted = target.get(topic, _NO_INDEXES) if topic in subscribed_topic_ids else _NO_INDEXES
            assigned = member.assigned.get(topic, _NO_INDEXES)
            # A partition that the member itself is giving up is free for this member.
            own = member.pending_revocation.get(topic, _NO_INDEXES)
            free = frozenset(index for index in wanted - assigned if index in own or epoch_of(topic, index) == FREE)
            is_blocked = is_blocked or len(free) < len(wanted - assigned)
            for sets, indexes in ((kept, assigned & wanted), (revoked, assigned - wanted), (added, free)):
                if indexes:
                    sets[topic] = indexes
        if revoked and still_owns(revoked):
            return member.moved_to(UNREVOKED_PARTITIONS, epoch, kept, revoked)
        for topic, indexes in added.items():
            kept[topic] = kept.get(topic, _NO_INDEXES) | indexes
        return member.moved_to(UNRELEASED_PARTITIONS if is_blocked else STABLE, target_epoch, kept, NO_PARTITIONS)

    if member.state is STABLE:
        if member.member_epoch != target_epoch:
            return advance(member.member_epoch)
        return without_unsubscribed() if drops_topics else member
    if member.state is UNREVOKED_PARTITIONS:
        if still_owns(member.pending_revocation):
            return without_unsubscribed() if drops_topics else member
        if release >= (4, 2):
            return advance(member.member_epoch)
        # Before KAFKA-19974, a member that has given up partitions, and has to give up others, got the next epoch. If
        # the subscription changed before there was a new target, the epoch must not pass the epoch of the target.
        return advance(min(member.member_epoch + 1, target_epoch))
    if member.state is UNRELEASED_PARTITIONS:
        return advance(member.member_epoch)
    assert member.state is UNKNOWN
    if owned is None or owned:
        text = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        raise HeartbeatError(ErrorCode.FENCED_MEMBER_EPOCH, text)
    return advance(target_epoch)


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


def leave_for_a_while(group: ConsumerGroup, member: ConsumerGroupMember) -> list[KeyedRecord]:
    """Return the record of a static member that keeps its partitions while it is away."""
    away = member.in_epoch(LEAVING_STATIC_EPOCH, member.assigned)
    return [current_assignment_record(group.group_id, away, group.release)]


NO_NAMES: Mapping[str, str] = {}


def remove(group: ConsumerGroup, member_ids: Collection[str], topics: TopicImage) -> list[KeyedRecord]:
    """Return the records that remove members, at least one, and start the next group epoch."""
    records: list[KeyedRecord] = []
    for member_id in member_ids:
        records += removal_records(group.group_id, member_id)
    before = group.subscriptions
    after = before.after([group.members[member_id] for member_id in member_ids], [])
    records += (regex_record(group.group_id, regex, None) for regex in before.regexes if regex not in after.regexes)
    epoch = group.group_epoch + 1
    records.append(group_epoch_record(group.group_id, epoch, metadata_hash(after.topics(), topics)))
    if len(member_ids) == len(group.members) and group.release >= (4, 4):
        # The next member that joins gets its target at once (KAFKA-20442).
        records.append(assignment_epoch_record(group.group_id, epoch))
    return records


def tombstones(group: ConsumerGroup, renamed: Mapping[str, str] = NO_NAMES) -> list[KeyedRecord]:
    """Return the records that delete a group, as `ConsumerGroup.createGroupTombstoneRecords` orders them.

    Args:
        group: The group.
        renamed: New member ids by old id. Earlier records of the batch have renamed these members.
    """
    group_id, members = group.group_id, [renamed.get(member_id, member_id) for member_id in group.members]
    resolved = group.subscriptions.resolved
    keys = (
        *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=each) for each in members),
        *(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each) for each in members),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=each) for each in members),
        *(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=each) for each in resolved),
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupMetadataKey(group_id=group_id),
    )
    return [CoordinatorRecord(key, None) for key in keys]


# A target assignment that a test has chosen, instead of the assignor's result


def scripted_target(
    assignment: Assignment, members: Mapping[str, ConsumerGroupMember], topics: TopicImage
) -> dict[str, Partitions]:
    """Return the target of members, by member id.

    Args:
        assignment: The chosen partitions by member id, instance id, or unique client id. Other names, and topics that
            do not exist, are ignored.
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
