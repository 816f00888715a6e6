"""What one member of a replay is to do: a row of the scripts. Plain data, which both ends of a replay share."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Deed = Literal["start", "leave", "crash", "pause", "slow", "zombie"]
"""What a member may be told to do.

start: Look for the coordinator and join; nothing for a member that is there.
leave: Commit, say good-bye and stop. A static member says no good-bye (KIP-345).
crash: Stop without a word; its connection is closed.
pause: Do nothing at all for `for_ms`, then go on as if no time had passed: a stopped process, a long collection of
    garbage. The connection stays open.
slow: Poll nothing for `for_ms`: heartbeats go on, joins do not. Past the rebalance timeout it leaves until then, as
    Kafka's consumer does past `max.poll.interval.ms` (KIP-62).
zombie: Go silent until the session is over, then send heartbeats and commits as the member it was for `for_ms`,
    whatever they are answered; then go on as usual.
"""


class Act(NamedTuple):
    """Something that a member does at a moment.

    Attributes:
        at_ms: From the start of the replay.
        for_ms: How long, for those that last; else 0.
    """

    at_ms: float
    deed: Deed
    for_ms: float = 0.0


class Script(NamedTuple):
    """What one member is to do.

    Attributes:
        population: The `[[groups]]` table of the workload that the group is of, by its `name`.
        member: Its name in this replay, and its `client.id`; the id that the coordinator gives it is another.
        instance_id: `group.instance.id`; None for a dynamic member.
        commit_interval_ms: 0 for a member that never commits.
        consume_per_s: By how many records the position of each of its partitions moves on in a second.
        acts: In the order of their times; the first one is a start.
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
"""The same in Spark's words."""


def script_of(row: Mapping[str, Any]) -> Script:
    """A script from a row of plain values, as Arrow gives them."""
    acts: Sequence[Mapping[str, Any]] = row["acts"]
    return Script(**{**row, "topics": tuple(row["topics"]), "acts": tuple(Act(**act) for act in acts)})
