"""What a workload file may say, and reading one. Knows nothing of Spark, sockets or brokers.

A workload is TOML. It says how many groups there are and how their members behave; what they do in detail follows from
it and a seed (scripts.py).
"""

import re
import tomllib
from collections.abc import Callable
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from fakebroker.errors import ConfigError
from fakebroker.replay.timeline import check_events

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]

Metric = Literal[
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "p99_9_ms",
    "rebalances",
    "rebalance_p99_ms",
    "unexpected_errors",
    "broker_share",
]
Comparison = Literal["<", "<=", "==", ">=", ">"]
Api = Literal[
    "FindCoordinator", "Metadata", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "LeaveGroup"
]

COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, "==": eq, ">=": ge, ">": gt}
METRICS_OF_AN_API = ("requests_per_s", "p50_ms", "p99_ms", "p99_9_ms")


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file: a key that is not known is a mistake."""


class Cluster(_Table, frozen=True):
    """The embedded cluster; means nothing when the workload is played against another one.

    Attributes:
        config: Broker settings under Kafka's names.
    """

    brokers: Annotated[int, Meta(ge=1, le=100)] = 3
    config: dict[str, str | int | float | bool] = {}


class Groups(_Table, frozen=True):
    """How many groups, of which size.

    Attributes:
        members: The fewest and the most members that a group has.
        name: Of each group; `{}` stands for its number.
    """

    count: Positive = 200
    members: tuple[Positive, Positive] = (1, 8)
    name: str = "group-{}"

    def __post_init__(self) -> None:
        if self.members[0] > self.members[1]:
            raise ValueError(f"members: expected [fewest, most], got {list(self.members)}")
        if self.name.count("{}") != 1:
            raise ValueError(f"name: expected one {{}} for the number of the group, got {self.name!r}")


class Members(_Table, frozen=True):
    """How each member behaves, in Kafka's words where it has them.

    Attributes:
        topics: What it subscribes to; every topic of the workload if not given.
        jitter: By how much of its length an interval may be longer or shorter, from member to member.
        commit_interval_ms: 0 for a member that never commits.
    """

    topics: tuple[str, ...] = ()
    assignor: Literal["range", "roundrobin", "sticky", "cooperative-sticky"] = "range"
    session_timeout_ms: Positive = 45_000
    rebalance_timeout_ms: Positive = 300_000
    heartbeat_interval_ms: Positive = 3_000
    commit_interval_ms: Annotated[int, Meta(ge=0)] = 5_000
    jitter: Annotated[float, Meta(ge=0, lt=1)] = 0.1

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms * (1 + self.jitter) >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms: expected less than session_timeout_ms ({self.session_timeout_ms}) "
                f"even with jitter, got {self.heartbeat_interval_ms}"
            )


class Arrival(_Table, frozen=True):
    """When the members start: all at once, or spread evenly over the first seconds."""

    kind: Literal["ramp", "all-at-once"] = "all-at-once"
    over_s: Annotated[float, Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        if (self.kind == "ramp") != (self.over_s > 0):
            raise ValueError(f"over_s: expected more than 0 for a ramp and 0 otherwise, got {self.over_s:g}")


class Expectation(_Table, frozen=True):
    """One number of the summary that the verdict looks at.

    Attributes:
        api: For the metrics that there are per API; all APIs together if not given.
    """

    metric: Metric
    comparison: Comparison
    value: float
    api: Api | None = None

    def __post_init__(self) -> None:
        if self.api is not None and self.metric not in METRICS_OF_AN_API:
            raise ValueError(f"api: expected with {', '.join(METRICS_OF_AN_API)} alone, got metric {self.metric!r}")

    def __str__(self) -> str:
        return f"{self.metric}{f' of {self.api}' if self.api else ''} {self.comparison} {self.value:g}"


class Workload(_Table, frozen=True):
    """A whole file.

    Attributes:
        topics: How many partitions each topic has.
        duration_s: From the start of the first member until all leave.
        event: What happens to the embedded cluster: `at_s` when, `do` what (see `fakebroker.server.events`), and how.
    """

    duration_s: Seconds
    topics: dict[str, Positive]
    seed: int | None = None
    cluster: Cluster = Cluster()
    groups: Groups = Groups()
    members: Members = Members()
    arrival: Arrival = Arrival()
    event: tuple[dict[str, Any], ...] = ()
    expect: tuple[Expectation, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_events(self.event, self.duration_s)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if not self.topics:
            raise ValueError("topics: expected at least one topic with its number of partitions")
        if unknown := [topic for topic in self.members.topics if topic not in self.topics]:
            raise ValueError(f"members.topics: expected names out of {list(self.topics)}, got {unknown[0]!r}")
        if self.arrival.over_s >= self.duration_s:
            raise ValueError(f"arrival.over_s: expected less than duration_s, got {self.arrival.over_s:g}")

    @property
    def subscribed_topics(self) -> tuple[str, ...]:
        return self.members.topics or tuple(self.topics)


def load_workload(path: Path) -> Workload:
    """Read a workload file.

    Raises:
        ConfigError: It cannot be read, is not TOML, or says something that it must not. The sentence names the file,
            the key, the value and what was expected.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None
    try:
        return msgspec.convert(raw, Workload)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_sentence(str(error), raw)}") from None


def _sentence(mistake: str, raw: dict[str, Any]) -> str:
    """msgspec's message, which names path and expectation, with the value found at that path."""
    what, _, where = mistake.partition(" - at ")
    path = [int(step) if step.isdigit() else step for step in re.findall(r"[^.`$\[\]]+", where)]
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        known = ", ".join(get_type_hints(_type_at(path)))
        key = unknown[1]
        return f"{f'{dotted}.{key}'.lstrip('.')} = {_at(raw, [*path, key])!r}: no such key; expected one of {known}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{f'{dotted}.{missing[1]}'.lstrip('.')} is missing"
    if what.startswith("Expected"):
        return f"{dotted} = {_at(raw, path)!r}: {what[0].lower()}{what[1:]}".replace("`", "")
    if what.startswith("Invalid enum value"):
        choices = ", ".join(repr(choice) for choice in get_args(_type_at(path)))
        return f"{dotted} = {_at(raw, path)!r}: expected one of {choices}"
    return f"{dotted}.{what}".lstrip(".")


def _at(raw: Any, path: list[str | int]) -> Any:
    for step in path:
        raw = raw[step]
    return raw


def _type_at(path: list[str | int]) -> Any:
    """The declared type of what stands at a path; `Optional` and arrays are seen through."""
    found: Any = Workload
    for step in path:
        found = get_args(found)[0] if isinstance(step, int) else get_type_hints(found)[step]
        found = get_args(found)[0] if type(None) in get_args(found) else found
    return found
