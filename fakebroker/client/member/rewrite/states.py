"""The states of a consumer of the rewrite design, by the names of the document, and the transitions between them."""

from enum import Enum


class RewriteMemberState(Enum):
    """State of a consumer.

    DOWN: Not started, or stopped. Ends with `start`.
    DISCOVERING: Started; looks up the coordinator, then waits for the response to its first JoinGroup. If the
        coordinator is lost meanwhile, it is looked up again in this state. Ends with the response, in PART_OF_GROUP.
    PART_OF_GROUP: The consumer has an id, a generation and partitions, and consumes. Sends heartbeats and commits. Ends
        with IllegalGeneration, UnknownConsumer or a changed subscription, in STOPPED, or when the coordinator is lost.
    REDISCOVERING: The coordinator is lost and is looked up again. Partitions are consumed as before, unless consumption
        had been stopped. Ends with `discovered`: in PART_OF_GROUP with a heartbeat at once, or in STOPPED.
    STOPPED: Consumption is stopped. The last commit, then a JoinGroup, waits for its response. No heartbeats. Ends with
        the response to JoinGroup, in PART_OF_GROUP, or when the coordinator is lost. It counts as lost if the commit
        is not answered within the session timeout, or the JoinGroup within the join timeout.
    """

    DOWN = "Down"
    DISCOVERING = "Start up & discover co-ordinator"
    PART_OF_GROUP = "Part of a group"
    REDISCOVERING = "Re-discover co-ordinator"
    STOPPED = "Stopped consumption"


_S = RewriteMemberState

TRANSITIONS: dict[RewriteMemberState, tuple[RewriteMemberState, ...]] = {
    _S.DOWN: (_S.DISCOVERING,),
    _S.DISCOVERING: (_S.PART_OF_GROUP, _S.DOWN),
    _S.PART_OF_GROUP: (_S.STOPPED, _S.REDISCOVERING, _S.DOWN),
    _S.REDISCOVERING: (_S.PART_OF_GROUP, _S.STOPPED, _S.DOWN),
    _S.STOPPED: (_S.PART_OF_GROUP, _S.REDISCOVERING, _S.DOWN),
}
"""The states that may follow each state; every other transition is a bug."""
