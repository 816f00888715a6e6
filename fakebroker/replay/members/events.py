"""The schema of `events.parquet`: a named tuple, an Arrow schema and Spark DDL. A row is a request with its response.

Used to record a replay and to report on it. Does not depend on Spark.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa

Source = Literal["members", "load"]
"""What sent a request: the members, including the look-ups of their coordinators, or the loads (`[[load]]`)."""

PARKED_APIS = ("JoinGroup", "SyncGroup")
"""The APIs whose responses a coordinator may hold back until a rebalance makes progress."""

OFFSET = pa.struct([pa.field("partition", pa.string()), pa.field("offset", pa.int64())])
FOUND = pa.struct(
    [
        pa.field("key", pa.string()),
        pa.field("node", pa.int32()),
        pa.field("error", pa.int16()),
        pa.field("again", pa.bool_()),
    ]
)
TRANSACTION = pa.struct(
    [
        pa.field("producer_id", pa.int64()),
        pa.field("epoch", pa.int16()),
        pa.field("number", pa.int32()),
        pa.field("committed", pa.bool_()),
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
        pa.field("missing", pa.string()),
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("members", pa.int32()),
        pa.field("offsets", pa.list_(OFFSET)),
        pa.field("found", pa.list_(FOUND)),
        pa.field("source", pa.string(), nullable=False),
        pa.field("transaction", TRANSACTION),
        pa.field("epoch", pa.int32()),
        pa.field("owned", pa.list_(pa.string())),
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
    TRANSACTION: "struct<producer_id: bigint, epoch: smallint, number: int, committed: boolean>",
}

DDL = ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in SCHEMA)
"""`SCHEMA` for Spark."""


class Event(NamedTuple):
    """A request with its response, or an action of a member.

    The fields are in the order of `SCHEMA`; `request_events` passes them by position.

    Attributes:
        scheduled_us: When the request was due, in microseconds since the Unix epoch.
        sent_us: When it was sent, in microseconds since the Unix epoch.
        latency_us: Time from `scheduled_us` to the response; `None` without a response.
        api: Kafka's name of the request, such as Heartbeat; the action if `kind` is "act".
        version: Version of the request; -1 if it was not sent.
        broker: Node id of the broker; -1 if it is unknown.
        group: Group id; `None` for requests about no group, or about several.
        member: Name of the member in its script; `None` for look-ups and loads.
        generation: Generation in the request; for a JoinGroup, in the response; for an action, the member's. With the
            consumer protocol, the member epoch; for a ConsumerGroupHeartbeat that is accepted, in the response.
        error: First error code in the response, 0 if there is none; `None` without a response.
        lookups: Number of groups, or of transactional ids, in a FindCoordinator; number of groups in an OffsetFetch or
            DescribeGroups of a load.
        assigned: Assignment in a SyncGroup or ConsumerGroupHeartbeat response, as `topic-partition`; `None` if the
            response has none, because it has not changed.
        kind: "request" for a request. "act" for an action of a script: `version` and `broker` are -1, and `sent_us` is
            when the action was done. "seen" for a part of a response, by API: with OffsetFetch, a group without an
            error in the response to a load's request about several (KIP-709). With Fetch, a batch of a transaction that
            the reader of committed records returns, or skips because it was aborted (`transaction.committed`). With
            ListTransactions, a transaction that is open, since `scheduled_us` at the latest.
        count: Number of requests in the row. It is more than 1 if heartbeats, or Fetch requests of the reader, are
            folded into one row. Such a row has the times of the first request and the longest latency.
        until_us: When the last of several folded requests was sent; without a response, when the connection was lost or
            the wait ended; else `None`. Also `None` for a request that is pending at the end of the replay.
        missing: Why there is no response: `lost`, because the connection was refused or closed; `unanswered`, because
            the client waited in vain for as long as it waits; or `cut off`, because the replay ended or the script
            stopped the member. `None` with a response, and for an action.
        member_id: Member id in the request; for a JoinGroup, in the response. In rows of the reader of committed
            records, its name.
        instance_id: `group.instance.id` of the member.
        leader: Member id of the leader in a JoinGroup response.
        protocol: Protocol in a JoinGroup response.
        members: Number of members in a JoinGroup response: 0 for members other than the leader.
        offsets: Offsets that an OffsetCommit or TxnOffsetCommit response accepts, or that an OffsetFetch response
            contains (-1: there is no committed offset); the base offset of a batch in a Produce response; the last
            stable offsets in a Fetch response.
        found: Coordinators in a FindCoordinator response by key; `node` is -1 with an error. `again` is true if the
            coordinator may already know a member that requested the look-up, and false if only loads and starting
            dynamic members requested it.
        source: "load" for requests of `[[load]]` tables and of the reader of committed records, else "members". A
            FindCoordinator that members and loads wait for is of the members.
        transaction: In requests of a transactional producer, and in rows about its transactions: its producer id and
            epoch (for an InitProducerId, from the response), the number of the transaction among the member's
            transactions, and whether it is committed or aborted, in an EndTxn and in batches that the reader has seen.
        epoch: Member epoch in a ConsumerGroupHeartbeat request: 0 to join, -1 to leave, -2 to leave for a while as a
            static member.
        owned: Partitions that the member has, in a ConsumerGroupHeartbeat request, as `topic-partition`; `None` if the
            request does not list them, because they have not changed.
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
    count: int = 1  # type: ignore[assignment]  # hides `tuple.count`, for the name of the column
    until_us: int | None = None
    missing: str | None = None
    member_id: str | None = None
    instance_id: str | None = None
    leader: str | None = None
    protocol: str | None = None
    members: int | None = None
    offsets: list[tuple[str, int]] | None = None
    found: list[tuple[str, int, int, bool]] | None = None
    source: Source = "members"
    transaction: tuple[int | None, int | None, int | None, bool | None] | None = None
    epoch: int | None = None
    owned: list[str] | None = None

    def with_folded(self, count: int, until_us: int | None, latency_us: int | None) -> "Event":
        """Return the row with these numbers of folded requests. Takes a third of the time of `_replace`."""
        row = list(self)
        row[_LATENCY_US], row[_COUNT], row[_UNTIL_US] = latency_us, count, until_us
        return event_of(row)


event_of: Callable[[Iterable[Any]], Event] = partial(tuple.__new__, Event)
"""Makes an event of all its fields, in their order. Takes a third of the time of `Event`, which has defaults."""

_LATENCY_US, _COUNT, _UNTIL_US = map(Event._fields.index, ("latency_us", "count", "until_us"))
