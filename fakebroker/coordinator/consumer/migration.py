"""Members of the classic protocol in consumer groups, and groups that change from one protocol to the other.

A classic group is upgraded when a member with the consumer protocol joins it. A consumer group is downgraded when its
last member with the consumer protocol leaves or is replaced (`group.consumer.migration.policy`). Source:
`GroupMetadataManager`, `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`, release 4.2.

A member with the classic protocol is reconciled like other members. Its JoinGroup is handled as a heartbeat that
reports everything, and its generation is its member epoch. The coordinator assigns the partitions, so no member is the
leader. The checks are in the order of `classicGroupJoinToConsumerGroup`, `classicGroupSyncToConsumerGroup` and
`classicGroupHeartbeatToConsumerGroup`.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from fakebroker.coordinator.classic.group import Group, Member, join_error, protocols_of, shared_assignment
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE
from fakebroker.coordinator.consumer import heartbeat
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import Step
from fakebroker.coordinator.consumer.member import (
    FREE,
    JOINING_EPOCH,
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    HeartbeatError,
    Partitions,
)
from fakebroker.coordinator.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    group_epoch_record,
    subscription_record,
    target_assignment_record,
)
from fakebroker.coordinator.consumer.states import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from fakebroker.coordinator.consumer.subscriptions import TopicImage, metadata_hash
from fakebroker.coordinator.records import KeyedRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.schema import replaced
from fakebroker.utf8 import decode_utf8

# Subscriptions and assignments in the bytes of the classic protocol (Kafka's `ConsumerProtocol`).
# `protocol/consumer_protocol.py` does the same for clients, and this package must not import it. Bytes after the last
# field are ignored, and versions above 3 are read as 3, as in Kafka.

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NEWEST_VERSION = 3


class MalformedProtocolError(Exception):
    """Bytes that are not a subscription or an assignment.

    Attributes:
        is_schema_error: Whether Kafka finds this itself (`SchemaException`): the bytes end early, or the version is
            negative. Other faults are unexpected in Kafka.
    """

    def __init__(self, message: str, *, is_schema_error: bool) -> None:
        super().__init__(message)
        self.is_schema_error = is_schema_error


class EmbeddedSubscription(msgspec.Struct, frozen=True):
    """The metadata of a member: its topics, the partitions that it owns, and its rack or None."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    rack_id: str | None


class EmbeddedAssignment(msgspec.Struct, frozen=True):
    """The assignment of a member. `user_data` comes from assignors other than Kafka's."""

    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes


def parse_subscription(data: bytes) -> EmbeddedSubscription:
    """Parse the metadata of a member.

    Raises:
        MalformedProtocolError: The bytes are not a subscription.
    """
    reader = _Reader(data)
    version = reader.version()
    topics = tuple(reader.text() for _ in range(reader.count()))
    reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.int32()  # The generation in which the member owned them.
    return EmbeddedSubscription(topics, owned, (reader.nullable_text() or None) if version >= 3 else None)


def parse_assignment(data: bytes) -> EmbeddedAssignment:
    """Parse the assignment of a member.

    Raises:
        MalformedProtocolError: The bytes are not an assignment.
    """
    reader = _Reader(data)
    reader.version()
    return EmbeddedAssignment(reader.partitions(), reader.nullable_bytes())


def encode_assignment(partitions: Partitions, topics: TopicImage, metadata: bytes) -> bytes:
    """Encode an assignment, without partitions of topics that do not exist now.

    Args:
        partitions: The partitions.
        topics: The topics of the cluster.
        metadata: The metadata of the member: the assignment has its version.

    Raises:
        MalformedProtocolError: The metadata has no valid version.
    """
    version = _Reader(metadata).version()
    named = [(name, sorted(indexes)) for topic_id, indexes in partitions.items() if (name := topics.name_of(topic_id))]
    parts = [_INT16.pack(version), _INT32.pack(len(named))]
    for name, indexes in named:
        encoded = name.encode()
        parts += [_INT16.pack(len(encoded)), encoded, struct.pack(f">{1 + len(indexes)}i", len(indexes), *indexes)]
    return b"".join([*parts, _INT32.pack(-1)])


def with_topic_ids(partitions: Mapping[str, tuple[int, ...]], topics: TopicImage) -> Partitions:
    """Return partitions by topic id. Topics that do not exist, or have no partitions here, are left out."""
    found = ((topics.named(name), indexes) for name, indexes in partitions.items() if indexes)
    return {topic.topic_id: frozenset(indexes) for topic, indexes in found if topic is not None}


class _Reader:
    """Reads values one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def version(self) -> int:
        version = self._number(_INT16)
        if version < 0:
            raise MalformedProtocolError(f"version={version}: expected at least 0", is_schema_error=True)
        return min(version, _NEWEST_VERSION)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self) -> int:
        """Return the length of an array."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise MalformedProtocolError(f"an array of {count} elements", is_schema_error=False)
        return count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise MalformedProtocolError("a name is null", is_schema_error=False)
        return text

    def nullable_text(self) -> str | None:
        length = self._number(_INT16)
        return None if length < 0 else decode_utf8(self._bytes(length))

    def nullable_bytes(self) -> bytes:
        """Return nullable bytes; b"" for null."""
        return self._bytes(max(self.int32(), 0))

    def partitions(self) -> dict[str, tuple[int, ...]]:
        return {self.text(): tuple(self.int32() for _ in range(self.count())) for _ in range(self.count())}

    def _number(self, layout: struct.Struct) -> int:
        try:
            (number,) = layout.unpack_from(self._data, self._position)
        except struct.error:
            raise MalformedProtocolError(f"{len(self._data)} bytes end too early", is_schema_error=True) from None
        self._position += layout.size
        return int(number)

    def _bytes(self, length: int) -> bytes:
        start, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise MalformedProtocolError(f"{length} bytes at {start} end too early", is_schema_error=False)
        return self._data[start : self._position]


# Upgrade


def check_upgrade(group: Group, config: ConsumerGroupConfig) -> None:
    """Check that a classic group with members may become a consumer group (Kafka's `validateOnlineUpgrade`).

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND.
    """
    if not config.migration_policy.allows_upgrade:
        raise _not_upgraded(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > config.max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")


def upgrade(group: Group, partition: int, config: ConsumerGroupConfig) -> tuple[ConsumerGroup, list[KeyedRecord]]:
    """Return the consumer group that a classic group becomes, and its records. The classic group stays as it is.

    Generation and assignments become epochs and targets. Members with the classic protocol stay in the group.

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND: a subscription or an assignment is malformed, or has data of an assignor
            that is not Kafka's. UNKNOWN_SERVER_ERROR where Kafka fails unexpectedly: the group has had no generation,
            or two members have the same partition.
    """
    topics = config.topics
    members = [_consumer_member(group, member, topics) for member in group.members.values()]
    group_id, epoch = group.group_id, group.generation_id
    names = {name for member in members for name in member.subscribed_topic_names}
    records: list[KeyedRecord] = [
        *(subscription_record(group_id, member) for member in members),
        group_epoch_record(group_id, epoch, metadata_hash(names, topics)),
        *(target_assignment_record(group_id, member.member_id, member.assigned) for member in members),
        assignment_epoch_record(group_id, epoch),
        *(current_assignment_record(group_id, member, config.release) for member in members),
    ]
    if _have_common_partitions(member.assigned for member in members):
        raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
    upgraded = ConsumerGroup(group_id, partition, config.release)
    for record in records:
        upgraded.replay(record)
    upgraded.offsets = group.offsets
    upgraded.continue_history(group.state.value, group.state_since_ms, group.members.snapshot())
    return upgraded, records


def _consumer_member(group: Group, member: Member, topics: TopicImage) -> ConsumerGroupMember:
    try:
        assigned = _assigned(group, member.assignment, topics)
        if group.protocol_name is None or not member.supports([group.protocol_name]):
            # The first join phase has no protocol yet; in a later one, new members need not support the last one.
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
        subscription = parse_subscription(member.metadata_for(group.protocol_name))
    except MalformedProtocolError as error:
        if not error.is_schema_error:
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=assigned,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


def _assigned(group: Group, assignment: bytes, topics: TopicImage) -> Partitions:
    if not assignment:  # The member has not been assigned anything yet.
        return NO_PARTITIONS
    parsed = parse_assignment(assignment)
    if parsed.user_data:
        reason = (
            "an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
        )
        raise _not_upgraded(group, reason)
    return with_topic_ids(parsed.partitions, topics)


def _have_common_partitions(each: Iterable[Partitions]) -> bool:
    places = [(topic, index) for partitions in each for topic, indexes in partitions.items() for index in indexes]
    return len(set(places)) < len(places)


def _not_upgraded(group: Group, reason: str) -> HeartbeatError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, text)


# Downgrade


def may_downgrade(config: ConsumerGroupConfig, member_count: int) -> bool:
    """Whether the settings allow a consumer group to become a classic group with this number of members."""
    return config.migration_policy.allows_downgrade and member_count <= config.classic_max_size


def is_downgraded_without(group: ConsumerGroup, leaving: Collection[str], config: ConsumerGroupConfig) -> bool:
    """Whether a group becomes a classic group when members leave (`validateOnlineDowngradeWithFencedMembers`)."""
    classic_leaving = sum(group.members[member_id].classic is not None for member_id in leaving)
    remaining = len(group.members) - len(leaving)
    return 0 < remaining == group.classic_count - classic_leaving and may_downgrade(config, remaining)


def downgrade(
    group: Group,
    former: ConsumerGroup,
    members: Iterable[ConsumerGroupMember],
    topics: TopicImage,
    renamed: Mapping[str, str],
) -> None:
    """Set the contents of the classic group that a consumer group becomes, which was just created as Stable.

    Each member gets its target as its assignment, and the group epoch becomes the generation.

    Args:
        group: The classic group.
        former: The consumer group. It stays as it is, except for its offsets, which both have then.
        members: The members of the classic group, which all use the classic protocol.
        topics: The topics of the cluster.
        renamed: The new ids of members that were replaced, by the ids in `former`.

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND: the metadata of a member is malformed. UNKNOWN_SERVER_ERROR: there is no
            common protocol.
    """
    for member in members:
        assert member.classic is not None
        group.add(_classic_member(member, member.classic), CONSUMER_PROTOCOL_TYPE)
    group.generation_id = former.group_epoch
    name = group.protocol_name = group.select_protocol()
    if name is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
    targets = {renamed.get(member_id, member_id): target for member_id, target in former.target.items()}
    try:
        for classic in group.members.values():
            target = targets.get(classic.member_id, NO_PARTITIONS)
            classic.assignment = shared_assignment(encode_assignment(target, topics, classic.metadata_for(name)))
    except MalformedProtocolError as error:
        text = f"Cannot downgrade the classic group {group.group_id}: {error}."
        raise HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, text) from None
    group.subscribed_topics = group.compute_subscribed_topics()
    group.offsets = former.offsets


def _classic_member(member: ConsumerGroupMember, classic: ClassicMemberMetadata) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        is_new=False,
    )


class Join(msgspec.Struct):
    """The effect of a JoinGroup on the group. The step has the member and the records.

    Attributes:
        replaced: Set if the group becomes a classic group: the last member that used the consumer protocol, which the
            member of the step replaces.
        rebalances: Whether this classic group rebalances, because its members do not have the target of the last epoch.
    """

    replaced: ConsumerGroupMember | None = None
    rebalances: bool = False


def heartbeat_of(request: JoinGroupRequest) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat that says the same as a JoinGroup, except for its subscription, which `join` adds."""
    return ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=JOINING_EPOCH,
        instance_id=request.group_instance_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_regex="",
    )


def join(
    step: Step, request: JoinGroupRequest, new_id: Callable[[], str], *, may_downgrade: bool
) -> Join | JoinGroupResponse:
    """Handle a JoinGroup to a consumer group with members.

    Args:
        step: A step of the group, with the `heartbeat_of` the request.
        request: The request.
        new_id: Returns the id of a member that joins without one.
        may_downgrade: Whether settings and size of the group allow it to become a classic group.

    Returns:
        The effect; MEMBER_ID_REQUIRED with a new id, which the group does not remember.

    Raises:
        HeartbeatError: The request is rejected.
    """
    group, instance_id, client = step.group, request.group_instance_id, step.client
    heartbeat.check_size(step)
    if not _supports(group, request):
        raise HeartbeatError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or new_id()
    if not request.member_id and instance_id is None and client.api_version >= 4:
        return join_error(client, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    existing = None if instance_id is None else group.static_member(instance_id)
    if instance_id is not None and request.member_id:
        step.former = heartbeat.checked_instance(existing, member_id, instance_id)
    elif existing is not None:
        heartbeat.replace_static_member(step, existing, member_id)
    else:
        step.former = group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    _add_subscription(step, request)
    heartbeat.update_member(step)
    heartbeat.bump_group_epoch(step)
    if not may_downgrade or not _is_last_consumer(group, existing):
        heartbeat.reconcile(step, *heartbeat.update_target(step))
        step.unresolved = heartbeat.regexes_to_resolve(step)  # KAFKA-19720
        return Join()
    is_stale = step.group_epoch > group.assignment_epoch and step.release >= (4, 3)  # KAFKA-20273
    if step.subscription_changed or is_stale:
        return Join(existing, rebalances=True)
    heartbeat.reconcile(step, *heartbeat.current_target(step))
    return Join(existing)


def _supports(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether all classic members support one of the protocols."""
    return request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        group.classic_protocols.get(each.name, 0) == group.classic_count for each in request.protocols
    )


def _add_subscription(step: Step, request: JoinGroupRequest) -> None:
    """Add the subscription of a JoinGroup to the step. Any protocol has it; Kafka takes the first.

    Raises:
        HeartbeatError: INCONSISTENT_GROUP_PROTOCOL: the subscription is malformed; UNKNOWN_SERVER_ERROR before 4.2 and
            in 4.3.
    """
    try:
        subscription = parse_subscription(request.protocols[0].metadata)
    except MalformedProtocolError:  # KAFKA-20662, in 4.2.2 and 4.4.0, but not in 4.3.1
        is_older = step.release < (4, 2) or (4, 3) <= step.release < (4, 4)
        error = ErrorCode.UNKNOWN_SERVER_ERROR if is_older else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        raise HeartbeatError(error) from None
    step.request = replaced(
        step.request, rack_id=subscription.rack_id, subscribed_topic_names=list(subscription.topics)
    )
    step.owned = with_topic_ids(subscription.owned, step.config.topics)
    step.classic = ClassicMemberMetadata(request.session_timeout_ms, protocols_of(request))


def _is_last_consumer(group: ConsumerGroup, member: ConsumerGroupMember | None) -> bool:
    """Whether a member is the only one that uses the consumer protocol."""
    return member is not None and member.classic is None and group.classic_count == len(group.members) - 1


def join_response(member: ConsumerGroupMember) -> JoinGroupResponse:
    """Return the response to a member that has joined: the group has no leader."""
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
        leader="",
        member_id=member.member_id,
        members=[],
    )


def sync(group: ConsumerGroup, request: SyncGroupRequest, topics: TopicImage, now_ms: float) -> SyncGroupResponse:
    """Handle a SyncGroup: return what the member may use now. The session starts over, and the sync timer stops.

    Raises:
        HeartbeatError: The request is rejected; with REBALANCE_IN_PROGRESS, the join timer of the member starts.
    """
    member, classic = _known_classic_member(group, request)
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
    return SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )


def beat(group: ConsumerGroup, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
    """Handle a Heartbeat; return NONE, or REBALANCE_IN_PROGRESS if the member can make progress by rejoining.

    Then its join timer starts. The session starts over in any case.

    Raises:
        HeartbeatError: The request is rejected.
    """
    member, classic = _known_classic_member(group, request)
    group.arm_session(member.member_id, now_ms + classic.session_timeout_ms)
    if (
        member.member_epoch >= _newest_epoch(group)
        and member.state is not UNREVOKED_PARTITIONS
        and not (member.state is UNRELEASED_PARTITIONS and _is_target_free(group, member))
    ):
        return ErrorCode.NONE
    group.arm_join(member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _known_classic_member(
    group: ConsumerGroup, request: HeartbeatRequest | SyncGroupRequest
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    """Return the member that sends a request.

    Raises:
        HeartbeatError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
    """
    member = heartbeat.known_member(group, request.member_id, request.group_instance_id)
    if member.classic is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.generation_id != member.member_epoch:
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
