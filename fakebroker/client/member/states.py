"""The states of a group member and the transitions between them.

The states come from Kafka's consumer rewrite design (0.9). Its state "stopped consumption" is divided into STOPPED
(the last commit), JOINING (JoinGroup) and SYNCING (SyncGroup).
"""

from enum import Enum


class MemberState(Enum):
    """State of a group member.

    DOWN: Not started, or stopped after leaving, a crash or a fatal error. Ends with `start`.
    DISCOVERING: Started; looks up the coordinator of its group. Ends with `discovered`, in JOINING.
    PART_OF_GROUP: Member of a generation with known partitions. Sends heartbeats and commits. Ends when a rebalance is
        needed or the coordinator is lost.
    STOPPED: A rebalance is in progress and consumption has stopped. With `awaits_revocation` the application first
        gives up partitions; then the last commit is in flight. Sends heartbeats. Ends with the response to that
        commit, or after the rebalance timeout, in JOINING.
    JOINING: A JoinGroup is in flight, held by the coordinator, or waiting for its back-off. No heartbeats. Eager
        members own no partitions, cooperative members keep theirs (KIP-429). Ends with the response, or when the
        coordinator is lost. It counts as lost after the rebalance timeout plus five seconds without a response.
    SYNCING: The generation is known. The leader requests partition counts and assigns, followers wait for the
        assignment. Sends heartbeats. Ends with the response to SyncGroup, or when the coordinator is lost, as in
        JOINING.
    REDISCOVERING: The coordinator is lost and is looked up again. Sends no requests to it, but keeps and consumes its
        partitions. Ends with `discovered`: in PART_OF_GROUP if the generation was complete, else in JOINING.
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
"""The states that may follow each state; every other transition is a bug."""
