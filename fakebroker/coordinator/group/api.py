"""What goes into a coordinator and what comes out: requests, results and settings as plain data.

Knows no wire formats and no API versions: what a version changes stands here as a flag or as `None`.
"""

from dataclasses import dataclass

from fakebroker.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class CoordinatorConfig:
    """The broker settings a group coordinator obeys, under Kafka's names and with Kafka's defaults.

    Sessions outside the two session bounds are refused. The initial delay is what the first round of an empty group
    waits for more members; at 0 the first member is a generation of its own at once. The metadata limit counts UTF-16
    units. Kafka gives the retention of offsets in minutes (`offsets.retention.minutes`).

    Attributes:
        is_before_kip_848: The coordinator decides as that of Kafka before 4.0 does (`kafka.coordinator.group`).
        expects_instances: The coordinator goes on expecting the instances that the log says are expected (KAFKA-8397).
        is_before_kip_211: Every commit expires so long after it was made, whoever is in the group; before Kafka 2.1.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    is_before_kip_848: bool = False
    is_before_kip_211: bool = False
    expects_instances: bool = True


@dataclass(slots=True, kw_only=True)
class JoinGroup:
    """One JoinGroup request.

    Attributes:
        member_id: "" from a member that has none yet.
        instance_id: `group.instance.id` of a static member (KIP-345).
        client_host: In Kafka's form, such as "/127.0.0.1".
        protocols: Names with metadata, the member's favorite first.
        requires_member_id: A dynamic member without an id is first told one (KIP-394; versions 4 and up).
        supports_skip_assignment: A static leader replaced in a stable group may be told that it is the leader and need
            not assign (KIP-814; versions 9 and up).
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
    """A member as its leader is told of it; `metadata` is the one for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinResult:
    """The answer to a JoinGroup. Only the leader is told the members."""

    error: ErrorCode
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(slots=True, kw_only=True)
class BatchMember:
    """One member of a batch; without protocols it does not join, but is to be expected."""

    member_id: str
    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, kw_only=True)
class BatchJoin:
    """One JoinGroup request that is that of many (KAFKA-8397). What is said once holds for each of its members."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    members: tuple[BatchMember, ...]


@dataclass(slots=True)
class BatchResult:
    """The answer to a batch.

    Attributes:
        generation: What those are told that have joined a generation; it tells the members if the leader is among them.
            Without anybody who has joined, one without a generation.
        members: The members that were asked for.
        results: What each of them is told, in that order.
    """

    generation: JoinResult
    members: tuple[BatchMember, ...]
    results: tuple[JoinResult, ...]


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


# The token of a parked or just answered request, as the caller handed it in, and the answer to it.
Answer = tuple[object, JoinResult | SyncResult | BatchResult]


@dataclass(slots=True, kw_only=True)
class OffsetToCommit:
    """One partition of an OffsetCommit.

    Attributes:
        leader_epoch: -1 if none was given.
        metadata: `None` is stored as "".
        commit_timestamp_ms: Set by version 1 only; `None` means now.
        expire_timestamp_ms: When this offset expires, whatever the retention of the broker; versions 2 to 4 only.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_timestamp_ms: int | None = None
    expire_timestamp_ms: int | None = None
