"""What a group member wants done, and what it has to tell, as plain data for whoever drives it.

`scheduled_ms` is when the member wanted it, in milliseconds since the Unix epoch: the due time of a heartbeat, not the
time of the late tick that found it due. What is measured from there counts the waiting too.
"""

from dataclasses import dataclass, field

from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | LeaveGroupRequest
)
"""What a member sends to its coordinator."""

GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | LeaveGroupResponse
)
"""What it is answered."""


@dataclass(slots=True)
class Discover:
    """Find the group's coordinator; answered by `discovered` or `discovery_failed`."""

    scheduled_ms: float


@dataclass(slots=True)
class Send:
    """Send a request to the coordinator found last; answered by `answered` or `connection_lost`."""

    request: GroupRequest
    scheduled_ms: float


@dataclass(slots=True)
class FetchMetadata:
    """Find out how many partitions these topics have; answered by `metadata`, as often as the driver cares to."""

    topics: tuple[str, ...]
    scheduled_ms: float


@dataclass(slots=True)
class Assigned:
    """A generation is entered and these partitions are now the member's too. Without any where none are new."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int
    scheduled_ms: float


@dataclass(slots=True)
class Revoked:
    """These partitions are no longer the member's.

    Attributes:
        lost: Another member may have them already, as the coordinator no longer knows this member
            (`onPartitionsLost` in place of `onPartitionsRevoked`).
    """

    partitions: tuple[TopicPartition, ...]
    lost: bool
    scheduled_ms: float


@dataclass(slots=True)
class Revoking:
    """These partitions are about to go: the member waits for `revoked`, commits and goes on. Only where asked for.

    Until then they are its own, and commits for them are accepted.
    """

    partitions: tuple[TopicPartition, ...]
    scheduled_ms: float


@dataclass(slots=True)
class OffsetUnknown:
    """Nothing was ever committed for these partitions; the driver says where they start. Only where asked for."""

    partitions: tuple[TopicPartition, ...]
    scheduled_ms: float


@dataclass(slots=True)
class CommitFailed:
    """A commit was refused and is not tried again as it is."""

    error: ErrorCode
    scheduled_ms: float


@dataclass(slots=True)
class Fatal:
    """The member has stopped; the sentence says what was refused and why that cannot be mended.

    Attributes:
        who: Who it was; the coordinator may think that it still is.
    """

    error: ErrorCode
    sentence: str
    scheduled_ms: float
    who: Identity = field(compare=False)


Effect = Discover | Send | FetchMetadata | Assigned | Revoking | Revoked | OffsetUnknown | CommitFailed | Fatal
