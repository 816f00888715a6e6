"""The states of a group member and the ways between them.

They are those of the consumer rewrite design, with its "stopped consumption" told apart into the last commit, the
JoinGroup and the SyncGroup.
"""

from enum import Enum


class MemberState(Enum):
    """Where a member stands.

    DOWN: Not started, or it left, crashed or failed. Out by `start`.
    DISCOVERING: Started; looks for the coordinator of its group. Out by `discovered`, to join.
    PART_OF_GROUP: In a generation, its partitions known. Heartbeats, commits. Out by whatever calls for a rebalance,
        and by the loss of the coordinator.
    STOPPED: A rebalance is on; consumption has stopped, the application has its say where the driver wants that, then
        the last commit is on its way. Heartbeats. Out by the answer to that commit, or when the rebalance timeout is
        over, to join.
    JOINING: A JoinGroup is on its way, parked, or waiting out a back-off. No heartbeats. Eager members hold no
        partitions, cooperative ones hold on to theirs (KIP-429). Out by its answer, and by the loss of the coordinator,
        which no answer within the rebalance timeout and five seconds counts as.
    SYNCING: The generation is known. The leader asks for partition counts and assigns, the others wait for that.
        Heartbeats. Out by the answer to the SyncGroup, and by the loss of the coordinator, as above.
    REDISCOVERING: The coordinator is lost and looked for again. No requests, but partitions are kept and consumed. Out
        by `discovered`: back into the generation, or to join if none was complete.
    """

    DOWN = "down"
    DISCOVERING = "discovering"
    PART_OF_GROUP = "part of group"
    STOPPED = "stopped"
    JOINING = "joining"
    SYNCING = "syncing"
    REDISCOVERING = "rediscovering"


_S = MemberState

TRANSITIONS: dict[MemberState, tuple[MemberState, ...]] = {
    _S.DOWN: (_S.DISCOVERING,),
    _S.DISCOVERING: (_S.JOINING, _S.DOWN),
    _S.PART_OF_GROUP: (_S.STOPPED, _S.JOINING, _S.REDISCOVERING, _S.DOWN),
    _S.STOPPED: (_S.JOINING, _S.REDISCOVERING, _S.DOWN),
    _S.JOINING: (_S.JOINING, _S.SYNCING, _S.REDISCOVERING, _S.DOWN),
    _S.SYNCING: (_S.JOINING, _S.PART_OF_GROUP, _S.REDISCOVERING, _S.DOWN),
    _S.REDISCOVERING: (_S.JOINING, _S.PART_OF_GROUP, _S.DOWN),
}
"""Where each state may lead. There are no other ways."""
