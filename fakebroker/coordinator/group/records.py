"""What a coordinator writes to `__consumer_offsets`, and the groups that can be read back from it.

Records as plain data; how they look as bytes is not known here. Per key the last record wins, and one without a value
is a tombstone. Only what is written survives a coordinator: no round under way, no pending id, no session clock, and of
each member's protocols only the one that was chosen.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fakebroker.coordinator.group.batch_join.gathering import expect
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.offsets import CommittedOffset, OffsetStore
from fakebroker.errors import ErrorCode


@dataclass(slots=True)
class MemberValue:
    """One member in the record of its group; `subscription` is its metadata for the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class ExpectedValue:
    """One instance that is expected, in the record of its group (KAFKA-8397)."""

    instance_id: str
    member_id: str
    rebalance_timeout_ms: int


@dataclass(slots=True)
class GroupValue:
    """A classic group (Kafka's `GroupMetadataValue`).

    Attributes:
        protocol_type: "" if the group has none.
        state_timestamp_ms: Time of the last transition before the record was written; -1 if unknown.
    """

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]
    expected: tuple[ExpectedValue, ...] = ()


@dataclass(slots=True)
class GroupRecord:
    """The group as a whole; without a value it is gone."""

    group_id: str
    value: GroupValue | None


@dataclass(slots=True)
class OffsetRecord:
    """One committed offset; without a value it is gone."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


Record = GroupRecord | OffsetRecord

# Appends records, all or none, to a partition of `__consumer_offsets`. NONE means that they are in the log; anything
# else is what clients are told: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or UNKNOWN_SERVER_ERROR.
Append = Callable[[int, tuple[Record, ...]], ErrorCode]


# Writing


def group_value(group: Group) -> GroupValue:
    """The group as it is now, but for who is expected."""
    members = tuple(_member_value(member, group.protocol_name or "") for member in group.members.values())
    return GroupValue(
        protocol_type=group.protocol_type or "",
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        state_timestamp_ms=int(group.state_since_ms),
        members=members,
    )


def _member_value(member: Member, protocol_name: str) -> MemberValue:
    return MemberValue(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata_for(protocol_name),
        assignment=member.assignment,
    )


def new_group_value(group: Group) -> GroupValue:
    """A group that a join has just created, as if it had not begun its first round (`newEmptyGroupMetadataRecord`)."""
    return GroupValue("", 0, None, None, int(group.state_since_ms), ())


def group_record(group: Group, value: GroupValue) -> GroupRecord:
    """The record of a group: this value, with who is expected now."""
    expected = tuple(
        ExpectedValue(each.instance_id, each.member_id, each.rebalance_timeout_ms)
        for each in group.expected.instances.values()
    )
    return GroupRecord(group.group_id, replace(value, expected=expected) if expected else value)


def tombstones(group: Group) -> tuple[Record, ...]:
    """What deletes the group: a tombstone for each of its offsets, then its own."""
    offsets = [OffsetRecord(group.group_id, topic, partition, None) for topic, partition, _ in group.offsets]
    return *offsets, GroupRecord(group.group_id, None)


# Reading

LoadedGroups = Mapping[str, tuple[GroupValue, OffsetStore]]
"""Groups and their offsets, by group id."""

_SIMPLE_GROUP = GroupValue("", 0, None, None, -1, ())


def replay(records: Iterable[Record]) -> LoadedGroups:
    """What is left of a partition's records: groups and their offsets, in the order they appear.

    A group that only has offsets is made up as a simple one (Kafka's `OffsetMetadataManager.replay`).
    """
    values: dict[str, GroupValue] = {}
    offsets: dict[str, OffsetStore] = {}
    for record in records:
        group_id = record.group_id
        if isinstance(record, OffsetRecord):
            offsets.setdefault(group_id, OffsetStore()).apply(record.topic, record.partition, record.value)
            if record.value is not None:
                values.setdefault(group_id, _SIMPLE_GROUP)
        elif record.value is not None:
            values[group_id] = record.value
        else:
            values.pop(group_id, None)
    return {group_id: (value, offsets.get(group_id) or OffsetStore()) for group_id, value in values.items()}


def restore(group: Group, value: GroupValue, offsets: OffsetStore, now_ms: float) -> None:
    """Fills a group that has just been made, and is Stable if the value has members.

    No round is under way, and all sessions start anew, in full (Kafka's `GroupMetadataManager.replay` and `onLoaded`).
    So does the time of those who are expected, as many as there are places for.
    """
    group.offsets = offsets
    group.state_since_ms = value.state_timestamp_ms
    group.generation_id = value.generation_id
    group.protocol_name = value.protocol_name
    group.protocol_type = value.protocol_type or None
    for stored in value.members:
        member = _member(stored, value.protocol_name or "")
        group.add(member, value.protocol_type)
        group.arm_session(member, member.session_timeout_ms, now_ms)
    group.leader_id = value.leader
    group.stored = replace(value, expected=())
    places = max(0, group.config.group_max_size - len(group.members)) if group.config.expects_instances else 0
    for each in value.expected[:places]:
        expect(group, each.instance_id, each.member_id, each.rebalance_timeout_ms, now_ms)
    group.subscribed_topics = group.compute_subscribed_topics()
    group.begin("loaded from the log", now_ms)


def _member(stored: MemberValue, protocol_name: str) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=((protocol_name, stored.subscription),),
        is_new=False,
        assignment=stored.assignment,
    )
