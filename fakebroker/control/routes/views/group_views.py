"""One group as JSON, with its members, offsets and history. Read-only."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from fakebroker.cluster.handles.group import lag_of
from fakebroker.cluster.inspect.base import without_history
from fakebroker.cluster.inspect.deadlines import Deadline, deadlines_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.timelines import Timeline
from fakebroker.cluster.inspect.views import GroupDescription, GroupView, MemberView, view_group
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.routes.views.group_rows import blocking_members, controls_of, find_any_group, row_of
from fakebroker.control.stats.group_index import AnyGroup
from fakebroker.coordinator.classic.states import PREPARING_REBALANCE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.history import DroppedMoments
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.topic_partition import partition_names

MissingRequest = Literal["JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"]
"""A request that a group waits for."""


class Committed(msgspec.Struct, frozen=True):
    """A committed offset."""

    offset: int
    metadata: str
    leader_epoch: int
    commit_timestamp_ms: int

    @classmethod
    def of(cls, committed: CommittedOffset, **place: Any) -> Self:
        """Return a committed offset, with the fields of a subclass for its `place`."""
        return cls(**{name: getattr(committed, name) for name in Committed.__struct_fields__}, **place)


class OffsetRow(Committed, frozen=True, kw_only=True):
    """One committed offset; `lag` is the number of later records, null if the partition does not exist."""

    topic: str
    partition: int
    lag: int | None


class MemberRow(MemberView, frozen=True, kw_only=True):
    """One member of a group; `assignment` and `metadata` are in base64, and decoded if it is a consumer, else null.

    `missing_request` is the request of this member that the group waits for, else null. Epochs, state, target and
    awaited partitions are for members of consumer groups. A consumer group waits for the heartbeat by which a member
    confirms that it has given up partitions, or learns of the target assignment. Members of the type classic do both
    with a JoinGroup. A member of a consumer group that `is_held` is not believed to have given up
    partitions.
    """

    missing_request: MissingRequest | None
    assigned_names: tuple[str, ...] | None = msgspec.field(name="assigned_partitions")
    topic_names: tuple[str, ...] | None = msgspec.field(name="subscribed_topics")
    owned_names: tuple[str, ...] | None = msgspec.field(name="owned_partitions")
    is_held: bool


class GroupDetail(GroupDescription, frozen=True, kw_only=True):
    """One group with its members and offsets; `deadlines` are the next ones of the group, at most 20.

    `held_states` are the states in which the group is held, now or when it reaches them.
    """

    members: tuple[MemberRow, ...]
    since_ms: float | None
    rebalances: int
    why: str
    offsets: list[OffsetRow]
    coordinator: int | None
    held_states: list[str]
    explanation: str
    deadlines: list[Deadline]


class TimelineView(Timeline, frozen=True, kw_only=True):
    """The history of a group; `text` and `svg` are null unless requested.

    `dropped` are earlier moments that are no longer kept. `names` has a short name for each member id in the moments.
    """

    names: dict[str, str]
    drawn_text: str | None = msgspec.field(name="text")
    drawn_svg: str | None = msgspec.field(name="svg")


class FullGroup(GroupDescription, frozen=True, kw_only=True):
    """One group with its members and history."""

    members: tuple[MemberRow, ...]
    moments: tuple[Moment, ...]
    dropped: DroppedMoments


def _description(served: ServedCluster, view: GroupView) -> dict[str, Any]:
    """Return the fields of a `GroupDescription`, with rows of the members."""
    core = served.core
    missing, controls = _missing_requests(find_any_group(core, view.group_id)), controls_of(core, view.group_id)
    return {**without_history(view), "members": tuple(_member_row(each, missing, controls) for each in view.members)}


def _member_row(member: MemberView, missing: Mapping[str, MissingRequest], controls: GroupControls) -> MemberRow:
    is_held = member.member_epoch is not None and controls.holds_revocation_of(member.member_id, member.instance_id)
    assigned, owned = member.assigned_partitions, member.owned_partitions
    return MemberRow(
        **msgspec.structs.asdict(member),
        missing_request=missing.get(member.member_id),
        assigned_names=None if assigned is None else partition_names(assigned),
        topic_names=member.subscribed_topics,
        owned_names=None if owned is None else partition_names(owned),
        is_held=is_held,
    )


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


def full_group(served: ServedCluster, group_id: str) -> FullGroup:
    """Return a group with the fields of `GroupView`."""
    view = view_group(served.core, group_id, served.now_ms())
    return FullGroup(**_description(served, view), moments=view.history.moments, dropped=view.history.dropped)


def detail(served: ServedCluster, group_id: str, view: GroupView | None = None) -> GroupDetail:
    """Return the details of a group. The fields of `GroupView` are from `view`, by default a current view."""
    core, now_ms = served.core, served.now_ms()
    view, row = view or view_group(core, group_id, now_ms), row_of(served, group_id)
    broker, controls = core.coordinator_of(group_id), controls_of(core, group_id)
    lag = lag_of(core, group_id)
    return GroupDetail(
        **_description(served, view),
        since_ms=row["since_ms"],
        rebalances=row["rebalances"],
        why=row["why"],
        offsets=[
            OffsetRow.of(committed, topic=topic, partition=index, lag=lag.get((topic, index)))
            for (topic, index), committed in served.cluster.group(group_id).offsets().items()
        ],
        coordinator=None if broker is None else broker.node_id,
        held_states=[state.value for state in controls.held_states],
        explanation=explain(core, group_id, now_ms),
        deadlines=deadlines_of(core, group_id, now_ms),
    )
