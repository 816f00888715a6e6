"""How a consumer of the rewrite design reacts to each error in a coordinator's response, as one table.

`proposals/consumer_rewrite/errors.py` has the document's names of the errors.
"""

from fakebroker.client.coordinators import COORDINATOR_MOVED
from fakebroker.client.member.effects import GroupResponse
from fakebroker.client.member.reactions import Reaction
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse

_COORDINATOR_MOVED = dict.fromkeys(COORDINATOR_MOVED, Reaction.REDISCOVER)
_RETRIED = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY}  # CoordinatorStartupNotComplete
_MEMBERSHIP = {
    **_COORDINATOR_MOVED,
    **_RETRIED,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER_ID,  # UnknownConsumer
}

REACTIONS: dict[type[GroupResponse], dict[ErrorCode, Reaction]] = {
    RewriteJoinGroupResponse: {
        **_COORDINATOR_MOVED,
        **_RETRIED,
        ErrorCode.INVALID_REQUEST: Reaction.RETRY,  # IllegalProtocolState
        ErrorCode.ILLEGAL_GENERATION: Reaction.RETRY,  # another JoinGroup with the same id has replaced this one
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER_ID,
    },
    HeartbeatResponse: _MEMBERSHIP,
    OffsetCommitResponse: _MEMBERSHIP,
    OffsetFetchResponse: {**_COORDINATOR_MOVED, **_RETRIED, ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY},
}
"""Reactions by response and error; for other errors see `OTHERWISE`."""

OTHERWISE: dict[type[GroupResponse], Reaction] = {
    RewriteJoinGroupResponse: Reaction.FATAL,
    HeartbeatResponse: Reaction.RETRY,
    OffsetCommitResponse: Reaction.REPORT,
    OffsetFetchResponse: Reaction.FATAL,
}
"""The reaction to errors that are not in `REACTIONS`: a consumer with another strategy than its group cannot join."""


def reaction_to(error: ErrorCode, response: GroupResponse) -> Reaction:
    """Return how a consumer reacts to an error in a response."""
    kind = type(response)
    return REACTIONS[kind].get(error, OTHERWISE[kind])
