"""One group as JSON, with its members, offsets and history. Read-only."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from fakebroker.cluster.inspect.deadlines import Deadline, deadlines_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.views import (
    AwaitedPartition,
    GroupType,
    GroupView,
    MemberView,
    view_group,
)
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.routes.views.group_rows import blocking_members, controls_of, find_any_group, row_of
from fakebroker.control.stats.group_index import AnyGroup
from fakebroker.coordinator.classic.states import PREPARING_REBALANCE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.history import DroppedMoments
from fakebroker.topic_partition import TopicPartition, format_partitions

MissingRequest = Literal["JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"]
"""A request that a group waits for."""


class OffsetRow(TypedDict):
    """One committed offset."""

    topic: str
    partition: int
    offset: int
    metadata: str
    leader_epoch: int
    commit_timestamp_ms: int


class PendingOffsetRow(TypedDict):
    """An offset that was committed in a transaction of a producer which has not ended."""

    producer_id: int
    topic: str
    partition: int
    offset: int


class MemberRow(TypedDict):
    """One member of a group; `assignment` and `metadata` are in base64, and decoded if it is a consumer, else null.

    `missing_request` is the request that the group waits for, if it waits for one of this member. Epochs, state,
    target and awaited partitions are those of a member of a consumer group; such a group waits for the heartbeat by
    which a member confirms that it has given up partitions, or learns of the target assignment. Members of the type
    classic do both with a JoinGroup. A member of a consumer group that `is_held` is not believed to have given up
    partitions.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    metadata: bytes
    protocol_type: str | None
    protocol_name: str | None
    is_expected: bool
    missing_request: MissingRequest | None
    assigned_partitions: list[str] | None
    subscribed_topics: list[str] | None
    owned_partitions: list[str] | None
    member_epoch: int | None
    previous_epoch: int | None
    state: str | None
    pending_revocation: list[str]
    target: list[str]
    awaited: list[AwaitedPartition]
    rack_id: str | None
    server_assignor: str | None
    subscribed_topic_regex: str
    type: GroupType
    is_held: bool


class GroupDetail(TypedDict):
    """One group with its members and offsets; `deadlines` are the next ones of the group, at most 20.

    `held_states` are the states in which the group is held, now or when it reaches them.
    """

    group_id: str
    type: GroupType | None
    assignment_epoch: int | None
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: list[MemberRow]
    since_ms: float | None
    rebalances: int
    why: str
    offsets: list[OffsetRow]
    pending_offsets: list[PendingOffsetRow]
    coordinator: int | None
    held_states: list[str]
    explanation: str
    deadlines: list[Deadline]


class TimelineView(TypedDict):
    """The history of a group; `text` and `svg` are null unless requested.

    `dropped` are earlier moments that are no longer kept. `names` has a short name for each member id in the moments.
    """

    group_id: str
    taken_ms: float
    moments: list[Moment]
    dropped: DroppedMoments
    names: dict[str, str]
    text: str | None
    svg: str | None


class FullGroup(TypedDict):
    """One group with its members and history."""

    group_id: str
    type: GroupType | None
    assignment_epoch: int | None
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: list[MemberRow]
    pending_offsets: list[PendingOffsetRow]
    moments: list[Moment]
    dropped: DroppedMoments


def _member_row(member: MemberView, missing: Mapping[str, MissingRequest], controls: GroupControls) -> MemberRow:
    topics = member.subscribed_topics
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "instance_id": member.instance_id,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "assignment": member.assignment,
        "metadata": member.metadata,
        "protocol_type": member.protocol_type,
        "protocol_name": member.protocol_name,
        "is_expected": member.is_expected,
        "missing_request": missing.get(member.member_id),
        "assigned_partitions": _names(member.assigned_partitions),
        "subscribed_topics": None if topics is None else list(topics),
        "owned_partitions": _names(member.owned_partitions),
        "member_epoch": member.member_epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state,
        "pending_revocation": _names(member.pending_revocation) or [],
        "target": _names(member.target) or [],
        "awaited": list(member.awaited),
        "rack_id": member.rack_id,
        "server_assignor": member.server_assignor,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "type": member.type,
        "is_held": member.member_epoch is not None
        and controls.holds_revocation_of(member.member_id, member.instance_id),
    }


def _missing_requests(group: AnyGroup | None) -> dict[str, MissingRequest]:
    """Return the requests that a group waits for, by member id."""
    if group is None:
        return {}
    if isinstance(group, ConsumerGroup):
        return {
            member.member_id: "ConsumerGroupHeartbeat" if member.classic is None else "JoinGroup"
            for member in blocking_members(group)
        }
    if group.state is PREPARING_REBALANCE:
        return {member_id: "JoinGroup" for member_id in group.members if member_id not in group.parked_joins}
    return dict.fromkeys(group.awaiting_sync, "SyncGroup")


def _names(partitions: Sequence[TopicPartition] | None) -> list[str] | None:
    return None if partitions is None else [format_partitions([each]) for each in partitions]


def full_group(served: ServedCluster, group_id: str) -> FullGroup:
    """Return a group with the fields of `GroupView`."""
    core = served.cluster.cluster
    view = view_group(core, group_id, served.cluster.clock.now_ms())
    missing, controls = _missing_requests(find_any_group(core, group_id)), controls_of(core, group_id)
    return {
        "group_id": view.group_id,
        "type": view.type,
        "assignment_epoch": view.assignment_epoch,
        "state": view.state,
        "generation_id": view.generation_id,
        "protocol_type": view.protocol_type,
        "protocol_name": view.protocol_name,
        "leader_id": view.leader_id,
        "members": [_member_row(member, missing, controls) for member in view.members],
        "pending_offsets": _pending_rows(view),
        "moments": list(core.history.of(group_id)),
        "dropped": core.history.dropped_of(group_id),
    }


def detail(served: ServedCluster, group_id: str, view: GroupView | None = None) -> GroupDetail:
    """Return the details of a group. The fields of a `GroupView` are those of `view`, by default the current ones."""
    core, now_ms = served.cluster.cluster, served.cluster.clock.now_ms()
    view, row = view or view_group(core, group_id, now_ms), row_of(served, group_id)
    broker, controls = core.coordinator_of(group_id), controls_of(core, group_id)
    missing = _missing_requests(find_any_group(core, group_id))
    return {
        "group_id": group_id,
        "type": view.type,
        "assignment_epoch": view.assignment_epoch,
        "state": view.state,
        "generation_id": view.generation_id,
        "protocol_type": view.protocol_type,
        "protocol_name": view.protocol_name,
        "leader_id": view.leader_id,
        "members": [_member_row(member, missing, controls) for member in view.members],
        "since_ms": row["since_ms"],
        "rebalances": row["rebalances"],
        "why": row["why"],
        "offsets": [
            {
                "topic": topic,
                "partition": index,
                "offset": committed.offset,
                "metadata": committed.metadata,
                "leader_epoch": committed.leader_epoch,
                "commit_timestamp_ms": committed.commit_timestamp_ms,
            }
            for (topic, index), committed in served.cluster.offsets(group_id).items()
        ],
        "pending_offsets": _pending_rows(view),
        "coordinator": None if broker is None else broker.node_id,
        "held_states": [state.value for state in controls.held_states],
        "explanation": explain(core, group_id, now_ms),
        "deadlines": deadlines_of(core, group_id, now_ms),
    }


def _pending_rows(view: GroupView) -> list[PendingOffsetRow]:
    return [
        {
            "producer_id": each.producer_id,
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
        }
        for each in view.pending_offsets
    ]
