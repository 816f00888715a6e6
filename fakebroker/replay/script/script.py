"""What one member of a replay does: a row of `members.parquet`. Plain data."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Action = Literal["start", "leave", "crash", "pause", "slow", "zombie"]
"""The actions of members.

start: Look up the coordinator and join; no effect on a member that is running.
leave: Commit, leave the group and stop. A static member sends no LeaveGroup (KIP-345).
crash: Stop at once; the connection is closed.
pause: Do nothing at all for `for_ms`, then go on as if no time had passed, as a stopped process or a long garbage
    collection does. The connection stays open.
slow: Do not poll for `for_ms`: heartbeats go on, joins do not. Past the rebalance timeout the member leaves until
    then, as Kafka's consumer does past `max.poll.interval.ms` (KIP-62).
zombie: Send nothing until the session is over, then send heartbeats and commits under the old member id for `for_ms`,
    whatever the answers are; then go on as usual.
"""


class Act(NamedTuple):
    """An action at a time.

    Attributes:
        at_ms: From the start of the replay.
        deed: The action.
        for_ms: How long, for actions that last; else 0.
    """

    at_ms: float
    deed: Action
    for_ms: float = 0.0


class Script(NamedTuple):
    """The script of one member.

    Attributes:
        population: The `name` of the `[[groups]]` table that the group belongs to.
        group: Group id.
        member: Its name in this replay, and its `client.id`; not the member id that the coordinator assigns.
        instance_id: `group.instance.id`; None for a dynamic member.
        commit_interval_ms: 0 for a member that never commits.
        consume_per_s: By how many records the position of each of its partitions advances in a second.
        acts: Ordered by time; the first one is a start.
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


DDL = (
    "population string, `group` string, member string, instance_id string, topics array<string>, assignor string, "
    "session_timeout_ms int, rebalance_timeout_ms int, heartbeat_interval_ms int, commit_interval_ms int, "
    "consume_per_s double, acts array<struct<at_ms: double, deed: string, for_ms: double>>"
)
"""The same schema for Spark."""


def script_of(row: Mapping[str, Any]) -> Script:
    """Return the script of a row of plain values, as Arrow gives them."""
    acts: Sequence[Mapping[str, Any]] = row["acts"]
    return Script(**{**row, "topics": tuple(row["topics"]), "acts": tuple(Act(**act) for act in acts)})
