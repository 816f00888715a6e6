"""The states of a member of a consumer group, by the names of Kafka's `MemberState`, and their transitions."""

from enum import Enum


class ConsumerMemberState(Enum):
    """State of a member.

    A member looks up its coordinator without a state of its own for it. In JOINING, RECONCILING, ACKNOWLEDGING and
    STABLE the coordinator may be unknown: then the member sends no requests to the group until it is found.

    JOINING, RECONCILING, ACKNOWLEDGING and STABLE also end with `leave` or `expire`, in PREPARE_LEAVING; and with an
    error that is not retried, in FENCED or FATAL. A crash ends every state, in UNSUBSCRIBED.

    UNSUBSCRIBED: Not started, or stopped after leaving or a crash. Ends with `start`.
    JOINING: Owns no partitions. A full heartbeat with epoch 0 is in flight or due. Ends with the response, in
        RECONCILING.
    RECONCILING: The assignment of the coordinator differs from the partitions that the member has. The member looks up
        the names of topics, waits until the application has given up the revoked partitions, then commits. It sends
        heartbeats meanwhile. Ends when the commit is done, in ACKNOWLEDGING.
    ACKNOWLEDGING: The member has the partitions of an assignment, and reports them in a heartbeat as soon as no other
        heartbeat is in flight. Ends when that heartbeat is sent: in STABLE, or in RECONCILING if there is another
        assignment by then.
    STABLE: The member has its assignment. Sends heartbeats and commits. Ends with another assignment, in RECONCILING.
    FENCED: The coordinator does not know the member or its epoch any more; its partitions are lost. Ends at once, in
        JOINING with the same member id.
    PREPARE_LEAVING: Gives up its partitions in order to leave. Ends at once, in LEAVING.
    LEAVING: Sends the last heartbeat if the coordinator is known. The heartbeat has epoch -1, or -2 for a static member
        that may come back. Ends at once: in UNSUBSCRIBED, or in STALE if the application has not polled for too long.
    STALE: The application has not polled for too long; the member has left, and its partitions are lost. Ends with
        `start`, which a driver calls when the application polls again, or in UNSUBSCRIBED with `leave`.
    FATAL: The coordinator has rejected the member with an error that joining again does not resolve. Only `crash` ends
        this state: it stands for the end of the process.
    """

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    PREPARE_LEAVING = "prepare leaving"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"


_S = ConsumerMemberState

IN_GROUP = (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
"""The states in which the member joins, or is part of, its group."""

_ENDS = (_S.FENCED, _S.PREPARE_LEAVING, _S.FATAL, _S.UNSUBSCRIBED)

TRANSITIONS: dict[ConsumerMemberState, tuple[ConsumerMemberState, ...]] = {
    _S.UNSUBSCRIBED: (_S.JOINING,),
    _S.JOINING: (_S.RECONCILING, *_ENDS),
    _S.RECONCILING: (_S.ACKNOWLEDGING, *_ENDS),
    _S.ACKNOWLEDGING: (_S.STABLE, _S.RECONCILING, *_ENDS),
    _S.STABLE: (_S.RECONCILING, *_ENDS),
    _S.FENCED: (_S.JOINING,),
    _S.PREPARE_LEAVING: (_S.LEAVING,),
    _S.LEAVING: (_S.UNSUBSCRIBED, _S.STALE),
    _S.STALE: (_S.JOINING, _S.UNSUBSCRIBED),
    _S.FATAL: (_S.UNSUBSCRIBED,),
}
"""The states that may follow each state; every other transition is a bug. A crash leads to UNSUBSCRIBED."""
