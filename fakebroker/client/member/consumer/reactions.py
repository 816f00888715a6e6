"""How a member of a consumer group reacts to each error in a coordinator's response, as one table.

Sources: `AbstractHeartbeatRequestManager.onErrorResponse`, `ConsumerHeartbeatRequestManager` and `CommitRequestManager`
in Kafka 4.2. Of `Reaction`, FORGET_GENERATION is Kafka's fencing: partitions are lost; the member joins with epoch 0.
"""

from fakebroker.client.coordinators import COORDINATOR_MOVED
from fakebroker.client.member.effects import GroupResponse
from fakebroker.client.member.reactions import Reaction
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse

_COORDINATOR_MOVED = dict.fromkeys(COORDINATOR_MOVED, Reaction.REDISCOVER)
_RETRIED = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY}

REACTIONS: dict[type[GroupResponse], dict[ErrorCode, Reaction]] = {
    ConsumerGroupHeartbeatResponse: {
        **_COORDINATOR_MOVED,
        **_RETRIED,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.FORGET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_GENERATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.REPORT,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction.FATAL,
        ErrorCode.INVALID_REGULAR_EXPRESSION: Reaction.FATAL,
        ErrorCode.INVALID_REQUEST: Reaction.FATAL,
        ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.FATAL,
        ErrorCode.UNSUPPORTED_ASSIGNOR: Reaction.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: Reaction.FATAL,
    },
    OffsetCommitResponse: {
        **_COORDINATOR_MOVED,
        **_RETRIED,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
        ErrorCode.STALE_MEMBER_EPOCH: Reaction.RETRY,  # with the epoch that the member has by then
    },
    OffsetFetchResponse: {
        **_COORDINATOR_MOVED,
        **_RETRIED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
        ErrorCode.STALE_MEMBER_EPOCH: Reaction.RETRY,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RETRY,  # the next heartbeat fences the member
    },
}
"""Reactions by response and error; for other errors see `OTHERWISE`."""

OTHERWISE: dict[type[GroupResponse], Reaction] = {
    ConsumerGroupHeartbeatResponse: Reaction.FATAL,
    OffsetCommitResponse: Reaction.REPORT,
    OffsetFetchResponse: Reaction.FATAL,
}
"""The reaction to errors that are not in `REACTIONS`."""


def reaction_to(error: ErrorCode, response: GroupResponse) -> Reaction:
    """Return how a member reacts to an error in a response."""
    kind = type(response)
    return REACTIONS[kind].get(error, OTHERWISE[kind])
