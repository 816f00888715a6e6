"""Requests and results of a group coordinator, as plain data.

Does not depend on wire formats or API versions: differences between versions are flags, or fields that may be `None`.
"""

from collections.abc import Callable, Collection

import msgspec

from fakebroker.errors import ErrorCode


class JoinGroup(msgspec.Struct, frozen=True):
    """One JoinGroup request.

    Attributes:
        member_id: "" if the member has no id yet.
        instance_id: `group.instance.id` of a static member (KIP-345).
        client_host: In Kafka's form, such as "/127.0.0.1".
        protocols: Pairs of name and metadata, in order of the member's preference.
        requires_member_id: Whether a dynamic member without an id gets the error MEMBER_ID_REQUIRED with a new id, and
            has to join again with this id (KIP-394; versions 4 and up).
        supports_skip_assignment: Whether a static leader that is replaced in a stable group is returned as the leader,
            with `skip_assignment` set (KIP-814; versions 9 and up).
        may_describe: As in `ConsumerGroupHeartbeat`.
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
    may_describe: Callable[[str], bool] | None = None


class JoinedMember(msgspec.Struct, frozen=True):
    """A member in the leader's JoinGroup response, with the member's metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(msgspec.Struct):
    """The result of a JoinGroup. Only the leader's result has `members`.

    Attributes:
        regexes_to_resolve: As in `HeartbeatResult`, if the group is a consumer group.
    """

    error: ErrorCode
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False
    regexes_to_resolve: Collection[str] = ()


class SyncGroup(msgspec.Struct, frozen=True):
    """One SyncGroup request. The protocol type and name are `None` in versions that do not have them.

    Attributes:
        assignments: Pairs of member id and assignment; empty except from the leader.
    """

    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class SyncResult(msgspec.Struct, frozen=True):
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


ItemResults = tuple[ErrorCode, list[ErrorCode]]
"""The result of a LeaveGroup or OffsetDelete: (NONE, one error code for each member or partition, in the order of the
request), or (error of the whole request, empty list)."""

Answer = tuple[object, object]
"""The token of a JoinGroup or SyncGroup, as passed by the caller, and the result of the request.

The result is a `JoinResult` or `SyncResult`. A protocol extension may add other types, such as `BatchResult`.
"""


class OffsetToCommit(msgspec.Struct, frozen=True):
    """One partition of an OffsetCommit.

    Attributes:
        leader_epoch: -1 if unknown.
        metadata: `None` is stored as "".
        commit_timestamp_ms: Set by version 1 only; `None` means now.
        expire_timestamp_ms: When the offset expires. `None`: after the broker's retention. Set by versions 2 to 4 only.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_timestamp_ms: int | None = None
    expire_timestamp_ms: int | None = None
