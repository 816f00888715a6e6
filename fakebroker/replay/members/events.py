"""The rows of `events.parquet`: one request and its answer each, as a tuple, an Arrow schema and Spark's DDL.

Shared by the playing and the reporting side of a replay. Does not depend on Spark.
"""

from typing import NamedTuple

import pyarrow as pa

from fakebroker.errors import ErrorCode

ORDINARY_ERRORS = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED)
"""Answers of a healthy cluster: a rebalance is in progress, or the member is to join again with the id it was given."""

OFFSET = pa.struct([pa.field("partition", pa.string()), pa.field("offset", pa.int64())])
FOUND = pa.struct(
    [
        pa.field("key", pa.string()),
        pa.field("node", pa.int32()),
        pa.field("error", pa.int16()),
        pa.field("again", pa.bool_()),
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("scheduled_us", pa.int64(), nullable=False),
        pa.field("sent_us", pa.int64(), nullable=False),
        pa.field("latency_us", pa.int64()),
        pa.field("api", pa.string(), nullable=False),
        pa.field("version", pa.int16(), nullable=False),
        pa.field("broker", pa.int32(), nullable=False),
        pa.field("group", pa.string()),
        pa.field("member", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("error", pa.int16()),
        pa.field("lookups", pa.int32()),
        pa.field("assigned", pa.list_(pa.string())),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("until_us", pa.int64()),
        pa.field("lost", pa.bool_(), nullable=False),
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("members", pa.int32()),
        pa.field("offsets", pa.list_(OFFSET)),
        pa.field("found", pa.list_(FOUND)),
    ]
)

_SPARK_TYPES = {
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.list_(pa.string()): "array<string>",
    pa.list_(OFFSET): "array<struct<partition: string, offset: bigint>>",
    pa.list_(FOUND): "array<struct<key: string, node: int, error: smallint, again: boolean>>",
}

DDL = ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in SCHEMA)
"""The same schema for Spark."""


class Event(NamedTuple):
    """A request and its answer.

    Attributes:
        scheduled_us: When the member wanted to send it, in microseconds since the Unix epoch.
        sent_us: When it was sent, on the same clock.
        latency_us: From scheduled to answered; `None` if it never was.
        api: Kafka's name of what was asked, such as Heartbeat.
        version: The version of the request.
        broker: Node id of the broker; -1 for one that did not say.
        group: `None` where the request is not of one group: Metadata, and FindCoordinator for several at once.
        member: The member's name in its script; `None` where the members of a task ask together.
        generation: The group's generation that was asked about or, of a JoinGroup, entered.
        error: The first error in the answer, 0 if there is none; `None` without an answer.
        lookups: How many groups a FindCoordinator asks about.
        assigned: What a SyncGroup brought the member, as `topic-partition`.
        kind: "request"; or "act", something that a member did by its script: `api` is the deed then, `version` and
            `broker` are -1, and scheduled_us and sent_us when it was to be done and was.
        count: How many requests the row stands for: more than one where heartbeats without any event are folded into
            one row, which has the first one's times and the longest latency.
        until_us: When the last of several folded requests was sent; of one that is lost, when it was; else None.
        lost: Without an answer because the connection was lost, or the member stopped or gave up waiting; else an
            answer that is missing is owed.
        member_id: The coordinator's id of the member: the one in the request, or that a JoinGroup was answered.
        instance_id: Its `group.instance.id`.
        leader: Whom the answer to a JoinGroup named as the leader.
        protocol: What that answer named as the protocol.
        members: How many members that answer listed, for its leader; 0 for the others.
        offsets: What an OffsetCommit was acknowledged, or an OffsetFetch brought (-1: nothing is committed).
        found: What a FindCoordinator was answered, key by key; node is -1 with an error. `again` is true where somebody
            asked whom the coordinator may know already, and false where only loads did and dynamic members that start.
    """

    scheduled_us: int
    sent_us: int
    latency_us: int | None
    api: str
    version: int
    broker: int
    group: str | None = None
    member: str | None = None
    generation: int | None = None
    error: int | None = None
    lookups: int | None = None
    assigned: list[str] | None = None
    kind: str = "request"
    count: int = 1  # type: ignore[assignment]  # a column's name counts for more than the tuple's method
    until_us: int | None = None
    lost: bool = False
    member_id: str | None = None
    instance_id: str | None = None
    leader: str | None = None
    protocol: str | None = None
    members: int | None = None
    offsets: list[tuple[str, int]] | None = None
    found: list[tuple[str, int, int, bool]] | None = None
