"""The states of a classic group: what each request gets in each of them, and the transitions between them."""

from collections.abc import Mapping
from enum import Enum

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The states of a classic group (Kafka's `ClassicGroupState`), named as Kafka names them to clients.

    In every state a member that the group does not know, or knows only as pending, gets UNKNOWN_MEMBER_ID; a member id
    that is not the current one of its instance id FENCED_INSTANCE_ID; a wrong generation ILLEGAL_GENERATION. Below is
    what a request without such a fault gets. A new dynamic member may get its id with MEMBER_ID_REQUIRED first, which
    never changes the state. A group that is held in PREPARING_REBALANCE or COMPLETING_REBALANCE (`GroupControls`) does
    not complete that. An answer that depends on a record that is appended is given when the append has completed.

    EMPTY: No members. Also the state of a group that only keeps offsets.
        JoinGroup: a new member is parked and the first rebalance starts; a dynamic one may get its id first.
        SyncGroup, Heartbeat: UNKNOWN_MEMBER_ID. LeaveGroup: the same, but a pending id is removed.
        OffsetCommit: accepted without a generation.
        Out: a member is added -> PREPARING_REBALANCE; the group is deleted, has expired or moves to another
        coordinator, or its creation could not be stored -> DEAD.
    PREPARING_REBALANCE: Waiting for the members to join. The generation is still the last one.
        JoinGroup: parked (a new dynamic member may get its id first, and is then waited for). Heartbeat and SyncGroup:
        REBALANCE_IN_PROGRESS. LeaveGroup: removed. OffsetCommit: accepted.
        Out: all members and pending ids have joined, or the time is up -> COMPLETING_REBALANCE, or EMPTY without
        members; moves -> DEAD, parked joins get NOT_COORDINATOR.
    COMPLETING_REBALANCE: A new generation waits for its leader to assign.
        JoinGroup: a known member with unchanged protocols is answered at once; any other join that adds or changes a
        member starts a new rebalance. SyncGroup: parked; the leader's ends the state. Heartbeat: NONE. LeaveGroup:
        removed, and a new rebalance. OffsetCommit: REBALANCE_IN_PROGRESS.
        Out: the leader assigned -> STABLE; a member is added, changed, removed, or did not sync in time ->
        PREPARING_REBALANCE, parked syncs get REBALANCE_IN_PROGRESS; what the leader assigned could not be stored -> the
        same, they get the error of storing; moves -> DEAD, they get NOT_COORDINATOR.
    STABLE: Every member can have its assignment.
        JoinGroup: a follower with unchanged protocols is answered at once, and so is a replaced static member as
        long as the group would choose the same protocol; any other join that adds or changes a member, and any join of
        the leader, starts a new rebalance. SyncGroup: the stored assignment. Heartbeat: NONE. LeaveGroup: removed, and
        a new rebalance. OffsetCommit: accepted.
        Out: as above, or a member's session expires, or one did not sync in time, or the group was loaded with more
        members than it may have -> PREPARING_REBALANCE; moves -> DEAD.
    DEAD: Removed. Stale references are invalid. Never visible to clients. No way out.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


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
