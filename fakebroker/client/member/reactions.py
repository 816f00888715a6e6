"""How a group member reacts to each error in a coordinator's response, as one table.

`Member._on_error` carries out the reactions of members, `GroupOffsets.answered` those to the application's requests.
Sources: the response handlers in Kafka's `AbstractCoordinator` and `ConsumerCoordinator`.
"""

from enum import Enum, auto

from fakebroker.client.coordinators import COORDINATOR_MOVED
from fakebroker.client.errors import error_code
from fakebroker.client.member.effects import GroupResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse


class Reaction(Enum):
    """Reaction to an error.

    RETRY: Back off, then send the request again.
    REDISCOVER: Look up the coordinator again.
    REJOIN: Rejoin with the same member id and generation.
    FORGET_GENERATION: Partitions are lost; rejoin with the member id only.
    FORGET_MEMBER_ID: Partitions are lost; join as a new member.
    TAKE_MEMBER_ID: Join with the member id in the response (KIP-394).
    REPORT: Report the error to the application and continue.
    FATAL: Report the error to the application and stop.
    """

    RETRY = auto()
    REDISCOVER = auto()
    REJOIN = auto()
    FORGET_GENERATION = auto()
    FORGET_MEMBER_ID = auto()
    TAKE_MEMBER_ID = auto()
    REPORT = auto()
    FATAL = auto()


_COORDINATOR_MOVED = dict.fromkeys(COORDINATOR_MOVED, Reaction.REDISCOVER)
_MEMBERSHIP = _COORDINATOR_MOVED | {
    ErrorCode.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
}

REACTIONS: dict[type[GroupResponse], dict[ErrorCode, Reaction]] = {
    JoinGroupResponse: _COORDINATOR_MOVED
    | {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    },
    SyncGroupResponse: _MEMBERSHIP,
    HeartbeatResponse: _MEMBERSHIP,
    OffsetCommitResponse: _MEMBERSHIP
    | {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
    },
    OffsetFetchResponse: _COORDINATOR_MOVED
    | {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
    },
    LeaveGroupResponse: {},
}
"""Reactions by response and error; for other errors see `OTHERWISE`."""

OTHERWISE: dict[type[GroupResponse], Reaction] = {
    JoinGroupResponse: Reaction.FATAL,
    SyncGroupResponse: Reaction.FATAL,
    HeartbeatResponse: Reaction.RETRY,
    OffsetCommitResponse: Reaction.REPORT,
    OffsetFetchResponse: Reaction.FATAL,
    LeaveGroupResponse: Reaction.REPORT,
}
"""The reaction to errors that are not in `REACTIONS`."""

# Errors of single topics or partitions; other errors in the same response take precedence.
_OF_ONE_PARTITION = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSTABLE_OFFSET_COMMIT)

_NONE = ErrorCode.NONE  # A global is faster than an attribute of an enumeration.
_WITH_PARTITIONS = (OffsetCommitResponse, OffsetFetchResponse)


def reaction_to(error: ErrorCode, response: GroupResponse) -> Reaction:
    """Return how a member reacts to an error in a response."""
    kind = type(response)
    return REACTIONS[kind].get(error, OTHERWISE[kind])


def error_in(response: GroupResponse) -> ErrorCode:
    """Return the error of a response; of several, the first one, but those in `_OF_ONE_PARTITION` come last."""
    if not isinstance(response, _WITH_PARTITIONS):
        return error_code(response.error_code) if response.error_code else _NONE
    errors = [error_code(code) for code in _codes(response) if code]
    if not errors:
        return _NONE
    general = [error for error in errors if error not in _OF_ONE_PARTITION]
    return (general or errors)[0]


def _codes(response: OffsetCommitResponse | OffsetFetchResponse) -> list[int]:
    if isinstance(response, OffsetCommitResponse):
        return [partition.error_code for committed in response.topics for partition in committed.partitions]
    codes = [response.error_code]
    for group in response.groups:
        codes.append(group.error_code)
        codes += [partition.error_code for fetched in group.topics for partition in fetched.partitions]
    codes += [partition.error_code for topic in response.topics for partition in topic.partitions]
    return codes
