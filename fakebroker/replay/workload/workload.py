"""The schema of a workload file, and its reader. Does not depend on Spark or sockets.

A workload is TOML. It defines the number of groups and how their members behave; the actions of each member follow
from it and a seed (`replay.script`). `scenarios/workloads/README.md` has all keys.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fakebroker.cluster.configs.settings import Config, older_defaults
from fakebroker.cluster.topics import MAX_PARTITIONS
from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, Release, release
from fakebroker.replay.workload import checks
from fakebroker.replay.workload.expectations import Expectation, Promises
from fakebroker.replay.workload.group_names import names_in
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.messages import not_finite, sentence
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import Count, Rate, Table
from fakebroker.replay.workload.timeline import check_events

_MAX_DURATION_S = 1_000_000

FAILOVERS = (
    "move_coordinator",
    "move_offsets_partition",
    "remove_broker",
    "restart_broker",
    "rolling_restart",
    "start_broker",
    "stop_broker",
    "upgrade_broker",
)
"""Events after which coordinators load groups."""


class Cluster(Table, frozen=True):
    """The embedded cluster; ignored when the workload is replayed against another one.

    Attributes:
        brokers: Number of brokers; their node ids are 1, 2, 3 ...
        as_version: The release of Kafka that the brokers emulate, such as "2.8"; the newest if not given.
        proposals: Experimental protocol extensions, in no release of Kafka, that the brokers implement.
        config: Broker settings under Kafka's names; those of `fakebroker serve`.
        load_ms: How long a coordinator loads after an `[[event]]` that does not set it itself.
    """

    brokers: Annotated[int, Meta(ge=1, le=100)] = 3
    as_version: str | None = None
    proposals: tuple[Literal["batch-join"], ...] = ()
    config: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    load_ms: Count = 0

    def __post_init__(self) -> None:
        try:
            Config(self.config)
        except ConfigError as error:
            raise ValueError(f"config: {error}") from None
        try:
            named = self.release
        except ConfigError as error:
            raise ValueError(f"as_version: {error}") from None
        if self.proposals and named != NEWEST:
            raise ValueError(f"proposals: expected none with as_version {named}, got {', '.join(self.proposals)}")

    @property
    def release(self) -> Release:
        """The release that the brokers emulate."""
        return NEWEST if self.as_version is None else release(self.as_version)


class Pacing(Table, frozen=True):
    """How fast members send.

    Attributes:
        rate_per_s: Open loop: heartbeats per second of all members together; overrides their own intervals.
        closed_loop: Each member sends its next heartbeat when the last one is answered.
        speed: Speed of the clocks of members and embedded cluster, as a multiple of real time; all times in the file
            and in the results are by these clocks.
    """

    rate_per_s: Rate | None = None
    closed_loop: bool = False
    speed: Annotated[float, Meta(gt=0, le=1000)] = 1.0

    def __post_init__(self) -> None:
        if self.closed_loop and self.rate_per_s is not None:
            raise ValueError(f"rate_per_s: expected none in a closed loop, got {self.rate_per_s:g}")


class Workload(Table, frozen=True, kw_only=True):
    """A whole file.

    Attributes:
        duration_s: From the start of the first member until the last has left. In the last tenth of it the groups
            leave, one after the other, each with all its members at once.
        topics: Number of partitions of each topic.
        seed: Seed of all random choices; `--seed` overrides it, and one is drawn if neither is given.
        cluster: The embedded cluster.
        groups: The populations: `[[groups]]` tables.
        load: Requests in addition to those of the members: `[[load]]` tables.
        event: Events of the embedded cluster: `[[event]]` tables with `at_s` (the time), `do` (the event), and its
            arguments.
        pacing: How fast members send.
        expect: Comparisons for the verdict: `[[expect]]` tables.
        promises: The promises that the verdict checks.
    """

    duration_s: Annotated[float, Meta(gt=0, le=_MAX_DURATION_S)]
    topics: dict[str, Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]]
    seed: int | None = None
    cluster: Cluster = Cluster()
    groups: tuple[Groups, ...]
    load: tuple[Load, ...] = ()
    event: tuple[dict[str, Any], ...] = ()
    pacing: Pacing = Pacing()
    expect: tuple[Expectation, ...] = ()
    promises: Promises = Promises()

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("topics: expected at least one topic with its number of partitions")
        checks.check_topic_names(self.topics)
        checks.check_names(self.groups)
        checks.check_rate(self.pacing.rate_per_s, self.groups)
        self._check_populations()
        populations = {population.name: population for population in self.groups}
        for index, load in enumerate(self.load):
            checks.check_load(f"load[{index}]", load, populations, self.duration_s, self.cluster.proposals)
        for index, expectation in enumerate(self.expect):
            checks.check_expectation(f"expect[{index}]", expectation, populations)
        try:
            check_events(self.event, self.duration_s)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def _check_populations(self) -> None:
        older = older_defaults(self.cluster.release)
        config = Config({**older, **self.cluster.config})
        least_ms, most_ms = map(config.number, ("group.min.session.timeout.ms", "group.max.session.timeout.ms"))
        for index, population in enumerate(self.groups):
            where = f"groups[{index}]"
            checks.check_topics(where, population, self.topics)
            checks.check_hot_partitions(where, population, self.offsets_partitions)
            checks.check_session(where, population, least_ms, most_ms)
            checks.check_static(where, population, self.cluster.release)
            checks.check_population(where, population, self.duration_s, self.heartbeat_interval_ms(population))

    @property
    def offsets_partitions(self) -> int:
        """The number of partitions of `__consumer_offsets` in the embedded cluster, to which hot partitions refer."""
        return Config(self.cluster.config).number("offsets.topic.num.partitions")

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return sum(population.group_count for population in self.groups)

    @property
    def member_count(self) -> int:
        """The approximate number of members, because sizes of groups may be random."""
        return round(sum(population.member_count for population in self.groups))

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        """The `[[event]]` tables; those of failovers with `load_ms`."""
        load = {"load_ms": self.cluster.load_ms} if self.cluster.load_ms else {}
        return tuple({**(load if event["do"] in FAILOVERS else {}), **event} for event in self.event)

    def topics_of(self, population: Groups) -> tuple[str, ...]:
        """Return the topics that the members of a population subscribe to."""
        return population.topics or tuple(self.topics)

    def heartbeat_interval_ms(self, population: Groups) -> float:
        """Return the heartbeat interval of a population, before jitter."""
        if self.pacing.rate_per_s is None:
            return population.heartbeat_interval_ms
        return 1000 * sum(each.member_count for each in self.groups) / self.pacing.rate_per_s


def load_workload(path: Path) -> Workload:
    """Read a workload file.

    Raises:
        ConfigError: The file, or a file that it names, cannot be read, is not TOML, or is invalid. The message has the
            file, the key, the value and what was expected.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None
    for mistake in not_finite(raw):
        raise ConfigError(f"{path}: {mistake}")
    try:
        workload = msgspec.convert(raw, Workload)
        return _with_names_counted(workload, path.parent)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {sentence(str(error), raw, Workload)}") from None
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _with_names_counted(workload: Workload, directory: Path) -> Workload:
    """Read the names of groups in files; return the workload with absolute paths and actual counts.

    Raises:
        ConfigError: A file cannot be read, or its names are invalid.
        ValueError: A file has more groups than the rest of the workload allows, or groups of another population.
    """
    populations, listed = list(workload.groups), {}
    for index, population in enumerate(populations):
        if population.from_file is None:
            continue
        file = (directory / population.from_file).resolve()
        try:
            listed[index] = names_in(file, population.from_column)[: population.count]
        except ConfigError as error:
            raise ConfigError(f"groups[{index}].from_file: {error}") from None
        populations[index] = msgspec.structs.replace(population, from_file=str(file), count=len(listed[index]))
    checks.check_listed_names(listed, populations)
    return msgspec.structs.replace(workload, groups=tuple(populations))
