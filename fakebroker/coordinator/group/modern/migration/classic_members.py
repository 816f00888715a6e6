"""JoinGroup, SyncGroup and Heartbeat of members that use the classic protocol in a consumer group.

Such a member is reconciled as the others are: its JoinGroup is a heartbeat with everything that it has, and its
generation is its member epoch. The coordinator assigns, so no member leads. Order of checks as in Kafka's
`GroupMetadataManager`, release 4.2 (`classicGroupJoinToConsumerGroup`, `classicGroupSyncToConsumerGroup`,
`classicGroupHeartbeatToConsumerGroup`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fakebroker.coordinator.group.api import JoinGroup, JoinResult, SyncGroup, SyncResult
from fakebroker.coordinator.group.classic.states import CONSUMER_PROTOCOL_TYPE
from fakebroker.coordinator.group.modern import heartbeat
from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.heartbeat import Context, Outcome
from fakebroker.coordinator.group.modern.member import (
    JOINING_EPOCH,
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroupMember,
)
from fakebroker.coordinator.group.modern.migration.embedded_protocol import (
    MalformedProtocolError,
    encode_assignment,
    parse_subscription,
    with_topic_ids,
)
from fakebroker.coordinator.group.modern.reconciliation import FREE
from fakebroker.coordinator.group.modern.records import ConsumerGroupRecord
from fakebroker.coordinator.group.modern.requests import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.group.modern.states import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage
from fakebroker.errors import ErrorCode


@dataclass(slots=True)
class Join:
    """The effect of a JoinGroup.

    Attributes:
        outcome: The records and the result, if the group stays a consumer group.
        member: The member afterwards.
        replaced: Set if the group becomes a classic group: the last member that used the consumer protocol, which this
            one replaces.
        rebalances: Whether this classic group rebalances, because its members do not have the target of the last epoch.
    """

    outcome: Outcome
    member: ConsumerGroupMember
    replaced: ConsumerGroupMember | None = None
    rebalances: bool = False


def join(
    group: ConsumerGroup, request: JoinGroup, context: Context, new_id: Callable[[], str], *, may_downgrade: bool
) -> Join | JoinResult:
    """Handle a JoinGroup to a consumer group with members.

    Args:
        group: The group.
        request: The request.
        context: Settings and topics.
        new_id: Returns the id of a member that joins without one.
        may_downgrade: Whether settings and size of the group allow it to become a classic group.

    Returns:
        The effect; MEMBER_ID_REQUIRED with a new id, which the group does not remember.

    Raises:
        HeartbeatError: The request is rejected.
    """
    heartbeat.check_size(group, request.member_id, request.instance_id, context)
    if not _supports(group, request):
        raise HeartbeatError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or new_id()
    if not request.member_id and request.instance_id is None and request.requires_member_id:
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    records: list[ConsumerGroupRecord] = []
    replaced = None if request.instance_id is None else group.static_member(request.instance_id)
    former = _former(group, request, member_id, records)
    report = _report(group.group_id, request, member_id, context)
    step = heartbeat.begin(group, report, context, former, records)
    if not may_downgrade or not _is_last_consumer(group, replaced):
        outcome = heartbeat.reconcile(step, *heartbeat.update_target(step))
        outcome.result.regexes_to_resolve = heartbeat.regexes_to_resolve(step)  # KAFKA-19720
        outcome.cause = heartbeat.cause_of(step)
        return Join(outcome, outcome.member or step.member)
    is_stale = step.group_epoch > group.assignment_epoch and context.release >= (4, 3)  # KAFKA-20273
    rebalances = step.subscription_changed or is_stale
    if rebalances:
        outcome = Outcome(records, HeartbeatResult(ErrorCode.NONE))
    else:
        outcome = heartbeat.reconcile(step, *heartbeat.current_target(step))
    outcome.cause = heartbeat.cause_of(step)
    return Join(outcome, outcome.member or step.member, replaced, rebalances)


def _supports(group: ConsumerGroup, request: JoinGroup) -> bool:
    """Whether all classic members support one of the protocols."""
    return request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        group.classic_protocols.get(name, 0) == group.classic_count for name, _ in request.protocols
    )


def _former(
    group: ConsumerGroup, request: JoinGroup, member_id: str, records: list[ConsumerGroupRecord]
) -> ConsumerGroupMember:
    """Return the member before, a new one if it joins; add the records if it replaces a static member."""
    existing = None if request.instance_id is None else group.static_member(request.instance_id)
    if request.instance_id is not None and request.member_id:
        return heartbeat.checked_instance(existing, member_id, request.instance_id)
    if existing is not None:
        return heartbeat.replace_static_member(group, existing, member_id, records)
    return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)


def _report(group_id: str, request: JoinGroup, member_id: str, context: Context) -> ConsumerGroupHeartbeat:
    """Return the heartbeat that says the same as a JoinGroup. Any protocol has the subscription; Kafka takes the first.

    Raises:
        HeartbeatError: INCONSISTENT_GROUP_PROTOCOL: the subscription is malformed; UNKNOWN_SERVER_ERROR before 4.2 and
            in 4.3.
    """
    try:
        subscription = parse_subscription(request.protocols[0][1])
    except MalformedProtocolError:  # KAFKA-20662, in 4.2.2 and 4.4.0, but not in 4.3.1
        is_older = context.release < (4, 2) or (4, 3) <= context.release < (4, 4)
        error = ErrorCode.UNKNOWN_SERVER_ERROR if is_older else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        raise HeartbeatError(error) from None
    return ConsumerGroupHeartbeat(
        group_id=group_id,
        member_id=member_id,
        member_epoch=JOINING_EPOCH,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex="",
        owned=with_topic_ids(subscription.owned, context.topics),
        classic=ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
    )


def _is_last_consumer(group: ConsumerGroup, member: ConsumerGroupMember | None) -> bool:
    """Whether a member is the only one that uses the consumer protocol."""
    return member is not None and member.classic is None and group.classic_count == len(group.members) - 1


def join_result(member: ConsumerGroupMember, regexes_to_resolve: Collection[str]) -> JoinResult:
    """Return the result of a member that has joined: it has no leader."""
    assert member.classic is not None
    return JoinResult(
        ErrorCode.NONE,
        member.member_epoch,
        CONSUMER_PROTOCOL_TYPE,
        member.classic.protocols[0][0],
        member_id=member.member_id,
        regexes_to_resolve=regexes_to_resolve,
    )


def sync(group: ConsumerGroup, request: SyncGroup, topics: TopicImage, now_ms: float) -> SyncResult:
    """Handle a SyncGroup: return what the member may use now. The session starts over, and the sync timer stops.

    Raises:
        HeartbeatError: The request is rejected; with REBALANCE_IN_PROGRESS, the join timer of the member starts.
    """
    member, classic = _classic_member(group, request.member_id, request.instance_id, request.generation_id)
    name, metadata = classic.protocols[0]
    is_wrong_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if is_wrong_type or request.protocol_name not in (None, name):
        raise HeartbeatError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that has to give up partitions has rejoined: it learns from the assignment what it may keep.
    if _newest_epoch(group) > member.member_epoch and member.state is not UNREVOKED_PARTITIONS:
        group.arm_join(member, now_ms)
        raise HeartbeatError(ErrorCode.REBALANCE_IN_PROGRESS)
    try:
        assignment = encode_assignment(member.assigned, topics, metadata)
    except MalformedProtocolError:
        raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    group.sync_deadlines.pop(member.member_id, None)
    group.arm_session(member.member_id, now_ms + classic.session_timeout_ms)
    return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)


def beat(group: ConsumerGroup, generation_id: int, member_id: str, instance_id: str | None, now_ms: float) -> ErrorCode:
    """Handle a Heartbeat; return NONE, or REBALANCE_IN_PROGRESS if the member can make progress by rejoining.

    Then its join timer starts. The session starts over in any case.

    Raises:
        HeartbeatError: The request is rejected.
    """
    member, classic = _classic_member(group, member_id, instance_id, generation_id)
    group.arm_session(member_id, now_ms + classic.session_timeout_ms)
    if (
        member.member_epoch >= _newest_epoch(group)
        and member.state is not UNREVOKED_PARTITIONS
        and not (member.state is UNRELEASED_PARTITIONS and _is_target_free(group, member))
    ):
        return ErrorCode.NONE
    group.arm_join(member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    """Return the member that sends a request.

    Raises:
        HeartbeatError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
    """
    member = heartbeat.known_member(group, member_id, instance_id)
    if member.classic is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation_id != member.member_epoch:
        raise HeartbeatError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _newest_epoch(group: ConsumerGroup) -> int:
    """Return the epoch that classic members have to reach: since KAFKA-20272, one with a target."""
    return group.assignment_epoch if group.release >= (4, 3) else group.group_epoch


def _is_target_free(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether no other member has a partition of the member's target."""
    return all(
        group.partition_epoch(topic_id, index) == FREE
        for topic_id, indexes in group.target.get(member.member_id, NO_PARTITIONS).items()
        for index in indexes - member.assigned.get(topic_id, frozenset())
    )
