"""The script of a member: a row of `members.parquet`, as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fakebroker.replay.options import GroupProtocol

Action = Literal["start", "leave", "migrate", "crash", "pause", "slow", "zombie"]
"""The actions of members.

start: Look up the coordinator and join. No effect on a running member.
leave: Commit, leave the group and stop. A static member sends no LeaveGroup (KIP-345).
migrate: Like leave; from then on, the member uses the other protocol when it starts.
crash: Stop and close the connection without a request.
pause: Do nothing for `for_ms`, like a stopped process or a long garbage collection. The connection stays open.
slow: Do not poll for `for_ms`: only heartbeats are sent. If this exceeds the rebalance timeout, the member leaves the
    group then, and rejoins at the end, like Kafka's consumer at `max.poll.interval.ms` (KIP-62).
zombie: Send nothing until the session has expired, then send heartbeats and commits with the old member id for
    `for_ms` and ignore their errors; then continue normally.
"""


class Act(NamedTuple):
    """An action of a script.

    Attributes:
        at_ms: When it is due, in milliseconds from the start of the replay.
        action: The action.
        for_ms: Duration of "pause", "slow" and "zombie"; else 0.
    """

    at_ms: float
    action: Action
    for_ms: float = 0.0


class Transactions(NamedTuple):
    """The transactions of a script.

    Attributes:
        topic: Topic that the records are produced to.
        records: Number of records that a transaction consumes and produces.
        interval_ms: Time between the beginnings of two transactions.
        timeout_ms: `transaction.timeout.ms`.
        abort: Share of the transactions that are aborted.
        crash: Share of the transactions in which the producer stops.
        return_ms: Minimum and maximum time from a crash until another producer starts.
        seed: Seed of the member's random choices.
    """

    topic: str
    records: int
    interval_ms: int
    timeout_ms: int
    abort: float
    crash: float
    return_ms: tuple[float, float]
    seed: int


class Script(NamedTuple):
    """The script of one member. `DDL` and the columns of `generator` have the same names.

    Attributes:
        population: The `name` of the `[[groups]]` table that the group belongs to.
        group: Group id.
        member: Name of the member in the replay, and its `client.id`; not the member id that the coordinator assigns.
        instance_id: `group.instance.id`; None for a dynamic member.
        topics: Subscribed topics.
        assignor: Name of the assignor of the classic protocol, such as "range".
        session_timeout_ms: `session.timeout.ms`; with the protocol `consumer`, the brokers' session timeout.
        rebalance_timeout_ms: `max.poll.interval.ms`.
        heartbeat_interval_ms: `heartbeat.interval.ms`; with the protocol `consumer`, the brokers' interval.
        commit_interval_ms: `auto.commit.interval.ms`; 0 for a member that never commits.
        consume_per_s: Records consumed per second and partition.
        acts: The actions, ordered by time; the first one is a start.
        transactions: The transactions; None for a member that commits without transactions.
        protocol: `group.protocol` at first: "classic" or "consumer".
    """

    population: str
    group: str
    member: str
    instance_id: str | None
    topics: tuple[str, ...]
    assignor: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    commit_interval_ms: int
    consume_per_s: float
    acts: tuple[Act, ...]
    transactions: Transactions | None = None
    protocol: GroupProtocol = "classic"


DDL = (
    "population string, `group` string, member string, instance_id string, topics array<string>, assignor string, "
    "session_timeout_ms int, rebalance_timeout_ms int, heartbeat_interval_ms int, commit_interval_ms int, "
    "consume_per_s double, acts array<struct<at_ms: double, action: string, for_ms: double>>, "
    "transactions struct<topic: string, records: int, interval_ms: int, timeout_ms: int, "
    "abort: double, crash: double, return_ms: array<double>, seed: bigint>, protocol string"
)
"""The schema of `Script` for Spark."""


def script_of(row: Mapping[str, Any]) -> Script:
    """Return the script in a row of plain values, as from Arrow's `to_pylist`."""
    acts: Sequence[Mapping[str, Any]] = row["acts"]
    found: Mapping[str, Any] | None = row["transactions"]
    transactions = found and Transactions(**{**found, "return_ms": tuple(found["return_ms"])})
    return Script(
        **{
            **row,
            "topics": tuple(row["topics"]),
            "acts": tuple(Act(**act) for act in acts),
            "transactions": transactions,
        }
    )
