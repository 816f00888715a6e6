"""The effects of a group member, as plain data: requests to send and events to report, for its driver to carry out.

`scheduled_ms` is when an effect was due, in milliseconds since the Unix epoch. For a heartbeat it is the deadline, even
if `tick` was called later, so that latencies measured from it include the delay. The drivers are
`ConsumerCore._handle`, `ScriptedMember._execute_effects` and `EffectsMember._act`. They ignore kinds of effects that
they do not name, so a new kind must be considered in each.
"""

import msgspec

from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest, RewriteJoinGroupResponse
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition

GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
    | RewriteJoinGroupRequest
)
"""A request of a member to its coordinator; the last one only of members of the proposal `rewrite`."""

GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | LeaveGroupResponse
    | ConsumerGroupHeartbeatResponse
    | RewriteJoinGroupResponse
)
"""A coordinator's response."""


class Discover(msgspec.Struct, frozen=True):
    """Look up the group's coordinator. The driver calls `GroupMember.discovered` or `discovery_failed` then."""

    scheduled_ms: float


class Send(msgspec.Struct, frozen=True):
    """Send a request to the coordinator. The driver calls `GroupMember.answered` or `connection_lost` then."""

    request: GroupRequest
    scheduled_ms: float


class FetchMetadata(msgspec.Struct, frozen=True):
    """Look up these topics, all if there are none. The driver passes them, and changes, to `GroupMember.metadata`."""

    topics: tuple[str, ...]
    scheduled_ms: float


class Assigned(msgspec.Struct, frozen=True):
    """The member entered a generation, or has reconciled an assignment (KIP-848).

    The partitions are those newly assigned, possibly none.
    """

    partitions: tuple[TopicPartition, ...]
    generation_id: int
    scheduled_ms: float


class Revoked(msgspec.Struct, frozen=True):
    """These partitions are no longer assigned to the member.

    Attributes:
        lost: Other members may own them already, because this member was removed from the group
            (`onPartitionsLost` instead of `onPartitionsRevoked`).
    """

    partitions: tuple[TopicPartition, ...]
    lost: bool
    scheduled_ms: float


class Revoking(msgspec.Struct, frozen=True):
    """These partitions will be revoked: the member waits for `GroupMember.revoked`, then commits and continues.

    Until then the member owns them, and commits for them are accepted. Emitted only with the setting
    `awaits_revocation`.
    """

    partitions: tuple[TopicPartition, ...]
    scheduled_ms: float


class OffsetUnknown(msgspec.Struct, frozen=True):
    """No offset is committed for these partitions; the driver chooses the start.

    Emitted only if `starts_at_zero` is False in the settings.
    """

    partitions: tuple[TopicPartition, ...]
    scheduled_ms: float


class CommitRejected(msgspec.Struct, frozen=True):
    """A commit was rejected and is not retried."""

    error: ErrorCode
    scheduled_ms: float


class HeartbeatRejected(msgspec.Struct, frozen=True):
    """A heartbeat was rejected because the member may not read a topic. The member goes on, and repeats it."""

    error: ErrorCode
    message: str
    scheduled_ms: float


class Fatal(msgspec.Struct, frozen=True):
    """The member has stopped because of an error that rejoining does not resolve.

    Attributes:
        identity: The member's identity before it stopped; the coordinator may still list it as a member.
    """

    error: ErrorCode
    message: str
    scheduled_ms: float
    identity: Identity


Effect = (
    Discover
    | Send
    | FetchMetadata
    | Assigned
    | Revoking
    | Revoked
    | OffsetUnknown
    | CommitRejected
    | HeartbeatRejected
    | Fatal
)
