"""What goes into a group coordinator and what comes out: requests and results as plain data.

Does not depend on wire formats and API versions: what a version changes is a flag here, or `None`.
"""

from dataclasses import dataclass

from fakebroker.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class JoinGroup:
    """One JoinGroup request.

    Attributes:
        member_id: "" from a member that has none yet.
        instance_id: `group.instance.id` of a static member (KIP-345).
        client_host: In Kafka's form, such as "/127.0.0.1".
        protocols: Names with metadata, the member's favorite first.
        requires_member_id: A dynamic member without an id first gets one with MEMBER_ID_REQUIRED (KIP-394; versions 4
            and up).
        supports_skip_assignment: A static leader that is replaced in a stable group may learn that it is the leader and
            need not assign (KIP-814; versions 9 and up).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_member_id: bool
    supports_skip_assignment: bool


@dataclass(slots=True)
class JoinedMember:
    """A member as its leader sees it; `metadata` is the one for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinResult:
    """The answer to a JoinGroup. Only the leader gets the members."""

    error: ErrorCode
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(slots=True, kw_only=True)
class SyncGroup:
    """One SyncGroup request. `None` for a protocol type or name means that the version does not carry it."""

    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class SyncResult:
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


ItemResults = tuple[ErrorCode, list[ErrorCode]]
"""The answer to a LeaveGroup or an OffsetDelete: an error of the whole request and no codes, or NONE and one code for
each member or partition, in order."""

Answer = tuple[object, object]
"""The token of a JoinGroup or SyncGroup, as the caller handed it in, and its result.

The result is a `JoinResult` or `SyncResult`, or for a request that is an extension's, what the extension documents.
"""


@dataclass(slots=True, kw_only=True)
class OffsetToCommit:
    """One partition of an OffsetCommit.

    Attributes:
        leader_epoch: -1 if none was given.
        metadata: `None` is stored as "".
        commit_timestamp_ms: Set by version 1 only; `None` means now.
        expire_timestamp_ms: When this offset expires, regardless of the retention of the broker; versions 2 to 4 only.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_timestamp_ms: int | None = None
    expire_timestamp_ms: int | None = None
