"""The states of a classic group, the answer to each request in each state, and the transitions between states."""

from collections.abc import Mapping
from enum import Enum

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The states of a classic group (Kafka's `ClassicGroupState`), named as Kafka names them to clients.

    In every state these faults are rejected: a member id that is unknown, or that is pending (UNKNOWN_MEMBER_ID; but
    JoinGroup and LeaveGroup accept pending ids); a member id other than the current one of its instance id
    (FENCED_INSTANCE_ID); another generation (ILLEGAL_GENERATION). The answers to requests without these faults are
    listed below. In any state the JoinGroup of a new dynamic member may be answered with MEMBER_ID_REQUIRED and a new
    id. This id is then pending, and the state is unchanged.

    A group that is held in PREPARING_REBALANCE or COMPLETING_REBALANCE (`GroupControls`) does not complete that state.
    If an answer depends on a record, it is sent when the append has completed.

    EMPTY: No members. Also the state of a group that only has offsets.
        JoinGroup: the request of a new member is parked, and the first rebalance starts.
        SyncGroup, Heartbeat: UNKNOWN_MEMBER_ID.
        LeaveGroup: UNKNOWN_MEMBER_ID, except for a pending id, which is removed.
        OffsetCommit: accepted without a generation.
        Transitions:
            A member is added -> PREPARING_REBALANCE.
            The group is deleted, expires or moves to another coordinator, or could not be stored when it was created
            -> DEAD.
    PREPARING_REBALANCE: Waiting for the members to join. The generation is still the previous one.
        JoinGroup: parked. The join phase also waits for the joins of pending ids.
        SyncGroup, Heartbeat: REBALANCE_IN_PROGRESS.
        LeaveGroup: the member is removed.
        OffsetCommit: accepted.
        Transitions:
            All members and pending ids have joined, or the join timer expires -> COMPLETING_REBALANCE, or EMPTY if no
            members are left.
            The group moves -> DEAD; parked joins get NOT_COORDINATOR.
    COMPLETING_REBALANCE: A new generation, waiting for the assignment by its leader.
        JoinGroup: answered at once for a member with unchanged protocols. Any other join that adds or changes a member
        is parked, and a new rebalance starts.
        SyncGroup: parked until the leader's SyncGroup, which ends the state.
        Heartbeat: NONE.
        LeaveGroup: the member is removed, and a new rebalance starts.
        OffsetCommit: REBALANCE_IN_PROGRESS.
        Transitions:
            The leader has assigned -> STABLE.
            A member is added, changed or removed, or did not sync in time -> PREPARING_REBALANCE; parked syncs get
            REBALANCE_IN_PROGRESS.
            The assignment could not be stored -> PREPARING_REBALANCE; parked syncs get the error of the append.
            The group moves -> DEAD; parked syncs get NOT_COORDINATOR.
    STABLE: The assignments are stored, and members can fetch them.
        JoinGroup: answered at once for a follower with unchanged protocols, and for a replaced static member as long as
        the group would select the same protocol. Any other join that adds or changes a member, and any join of the
        leader, is parked, and a new rebalance starts.
        SyncGroup: the stored assignment.
        Heartbeat: NONE.
        LeaveGroup: the member is removed, and a new rebalance starts.
        OffsetCommit: accepted.
        Transitions:
            A member is added, changed or removed, its session expires, or it did not sync in time; or the group was
            loaded with more members than `group.max.size` -> PREPARING_REBALANCE.
            The group moves -> DEAD.
    DEAD: Removed. Stale references are invalid. Never visible to clients. No transitions.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__  # That of `Enum` is a Python function; `transition_to` looks up a state.


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: Mapping[GroupState, tuple[GroupState, ...]] = {
    EMPTY: (PREPARING_REBALANCE, DEAD),
    PREPARING_REBALANCE: (COMPLETING_REBALANCE, EMPTY, DEAD),
    COMPLETING_REBALANCE: (STABLE, PREPARING_REBALANCE, DEAD),
    STABLE: (PREPARING_REBALANCE, DEAD),
    DEAD: (),
}
