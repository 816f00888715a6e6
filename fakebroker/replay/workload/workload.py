"""The schema of a workload file, and its reader. Does not depend on Spark or sockets.

A workload is TOML. It defines the number of groups and how their members behave; the actions of each member follow
from it and a seed (`replay.script`). `scenarios/workloads/README.md` has all keys.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fakebroker.cluster.commands import COMMANDS
from fakebroker.cluster.configs.settings import Config, older_defaults
from fakebroker.cluster.topics import MAX_PARTITIONS
from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, Release, release
from fakebroker.replay.workload import checks
from fakebroker.replay.workload.expectations import Expectation, Promises
from fakebroker.replay.workload.group_names import names_in
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import Table
from fakebroker.replay.workload.timeline import check_events
from fakebroker.validation import Count, Rate, convert

_MAX_DURATION_S = 1_000_000


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

    def broken_rules(self) -> Iterator[ConfigError]:
        try:
            Config(self.config)
        except ConfigError as error:
            yield from (mistake.within("config") for mistake in error.mistakes)
        try:
            named = self.release
        except ConfigError as error:
            yield error
            return
        if self.proposals and named != NEWEST:
            yield ConfigError.of("proposals", list(self.proposals), f"none with as_version {named}")

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

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.closed_loop and self.rate_per_s is not None:
            yield ConfigError.of("rate_per_s", self.rate_per_s, "none in a closed loop")


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

    def broken_rules(self) -> Iterator[ConfigError]:
        """Yield the mistakes across tables; those of events are found by `load_workload`."""
        yield from checks.check_topic_names(self.topics)
        yield from checks.check_names(self.groups)
        yield from checks.check_rate(self.pacing.rate_per_s, self.groups)
        yield from self._check_populations()
        populations = {population.name: population for population in self.groups}
        for index, load in enumerate(self.load):
            yield from checks.check_load(f"load[{index}]", load, populations, self.duration_s, self.cluster.proposals)
        for index, expectation in enumerate(self.expect):
            yield from checks.check_population_name(f"expect[{index}]", expectation.groups, populations)

    def _check_populations(self) -> Iterator[ConfigError]:
        older = older_defaults(self.cluster.release)
        try:
            config = Config({**older, **self.cluster.config})
        except ConfigError as error:
            yield error.within("cluster.config")
            return
        least_ms, most_ms = map(config.number, ("group.min.session.timeout.ms", "group.max.session.timeout.ms"))
        for index, population in enumerate(self.groups):
            where = f"groups[{index}]"
            yield from checks.check_topics(where, population, self.topics)
            yield from checks.check_hot_partitions(where, population, self.offsets_partitions)
            yield from checks.check_session(where, population, least_ms, most_ms)
            yield from checks.check_static(where, population, self.cluster.release)
            yield from checks.check_times(where, population, self.duration_s)
            if self.pacing.rate_per_s is not None:
                interval_ms = self.heartbeat_interval_ms(population)
                yield from checks.check_pace(where, population, self.pacing.rate_per_s, interval_ms)

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
        """The `[[event]]` tables; those of commands that take options of a failover with `load_ms`."""
        load = {"load_ms": self.cluster.load_ms} if self.cluster.load_ms else {}
        failovers = {name for name, command in COMMANDS.items() if "load_ms" in command.arguments.__struct_fields__}
        return tuple({**(load if event["do"] in failovers else {}), **event} for event in self.event)

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
            file and up to ten mistakes, each with its key, the value and what was expected.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError.of("file", str(path), f"a file that can be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: expected TOML: {error}", expected="TOML") from None
    mistakes: list[ConfigError] = []
    try:
        workload = convert(raw, Workload)
    except ConfigError as error:
        mistakes += error.mistakes
    mistakes += _mistakes_of_events(raw, {mistake.field for mistake in mistakes})
    try:
        if not mistakes:
            return _with_names_counted(workload, path.parent)
    except ConfigError as error:
        mistakes += error.mistakes
    raise ConfigError.all_of(mistakes, where=str(path))


def _mistakes_of_events(raw: Mapping[str, Any], known: Collection[str | None]) -> list[ConfigError]:
    """Return the mistakes in the `[[event]]` tables, except those that are known already."""
    events, duration_s = raw.get("event"), raw.get("duration_s")
    limit_s = duration_s if isinstance(duration_s, int | float) else _MAX_DURATION_S
    found = check_events(events, limit_s) if isinstance(events, list) else ()
    return [mistake for mistake in found if mistake.field not in known]


def _with_names_counted(workload: Workload, directory: Path) -> Workload:
    """Read the names of groups in files; return the workload with absolute paths and actual counts.

    Raises:
        ConfigError: A file cannot be read, or its names are invalid; it has more groups than the rest of the workload
            allows, or groups of another population.
    """
    populations, listed, mistakes = list(workload.groups), {}, []
    for index, population in enumerate(populations):
        if population.from_file is None:
            continue
        file = (directory / population.from_file).resolve()
        try:
            listed[index] = names_in(file, population.from_column)[: population.count]
        except ConfigError as error:
            mistakes.append(error.within(f"groups[{index}]"))
            continue
        populations[index] = msgspec.structs.replace(population, from_file=str(file), count=len(listed[index]))
    mistakes += checks.check_listed_names(listed, populations)
    if mistakes:
        raise ConfigError.all_of(mistakes)
    return msgspec.structs.replace(workload, groups=tuple(populations))
