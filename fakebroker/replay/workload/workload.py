"""The types of a workload file, and its reader. Does not depend on Spark or sockets.

A workload is a TOML file that defines groups and the behavior of their members. `replay.script` computes the actions of
each member from it and a seed. `scenarios/workloads/README.md` documents all keys.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.emulation import NodeId
from fakebroker.cluster.handles.definition import commands
from fakebroker.cluster.topics import MAX_PARTITIONS
from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, Release, release
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.workload import checks
from fakebroker.replay.workload.expectations import Expectation, Promises
from fakebroker.replay.workload.group_names import names_in
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.mistakes import MAX_DURATION_S, all_mistakes
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import Table, read_toml
from fakebroker.replay.workload.timeline import check_events
from fakebroker.validation import Count, Rate, convert

_REQUESTS_TO_JOIN = 10
"""Requests of a member besides heartbeats and commits, in an undisturbed replay."""

_REQUESTS_PER_TRANSACTION = 8
"""Events of a transaction: its requests, and the batches that a reader of the records gets."""


class Cluster(Table, frozen=True):
    """The embedded cluster; ignored when the workload is replayed against another cluster.

    Attributes:
        brokers: Number of brokers.
        first_node_id: Node id of the first broker; the other brokers have the next ids.
        as_version: Release of Kafka that the brokers emulate, such as "2.8"; the newest if not given.
        proposals: Experimental protocol extensions that the brokers implement; they are not in any release of Kafka.
        config: Broker settings by their names in Kafka, as for `fakebroker serve --config`.
        load_ms: Time that a coordinator takes to load after a failover, unless the `[[event]]` itself has `load_ms`.
    """

    brokers: Annotated[int, Meta(ge=1, le=100)] = 3
    first_node_id: NodeId = 1
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
            yield ConfigError.of("proposals", list(self.proposals), f"no proposals with as_version {named}")

    @property
    def release(self) -> Release:
        """The release that the brokers emulate."""
        return NEWEST if self.as_version is None else release(self.as_version)


class Pacing(Table, frozen=True):
    """The rate at which members send.

    Attributes:
        rate_per_s: Heartbeats per second of all members together (open loop); overrides `heartbeat_interval_ms`.
        closed_loop: Whether each member sends its next heartbeat as soon as the previous one is answered.
        speed: Speed of the clocks of the members and the embedded cluster, as a multiple of real time. All times in
            the file and in the results are by these clocks.
    """

    rate_per_s: Rate | None = None
    closed_loop: bool = False
    speed: Annotated[float, Meta(gt=0, le=1000)] = 1.0

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.closed_loop and self.rate_per_s is not None:
            yield ConfigError.of("rate_per_s", self.rate_per_s, "no rate with closed_loop")


class Workload(Table, frozen=True, kw_only=True):
    """A workload file.

    Attributes:
        duration_s: Time from the start of the first member until the last one has left. In its last tenth the groups
            leave one after the other, each with all its members at once.
        topics: Number of partitions of each topic.
        seed: Seed of all random choices; `--seed` overrides it. If neither is given, it is random.
        measure_from_s: Beginning of the steady state, in seconds from the start. In the report, latencies and rates of
            requests sent before it are apart. By default, it begins when all members have joined for the first time.
            Expectations are about the whole replay.
        cluster: The embedded cluster.
        groups: The populations: `[[groups]]` tables.
        load: Requests of administrative tools: `[[load]]` tables.
        event: Events of the embedded cluster: `[[event]]` tables with `at_s` (the time), `do` (the command) and its
            arguments.
        pacing: The rate at which members send.
        expect: Comparisons for the verdict: `[[expect]]` tables.
        promises: The promises that the verdict checks.
    """

    duration_s: Annotated[float, Meta(gt=0, le=MAX_DURATION_S)]
    topics: dict[str, Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]]
    seed: int | None = None
    measure_from_s: Annotated[float, Meta(ge=0)] | None = None
    cluster: Cluster = Cluster()
    groups: tuple[Groups, ...]
    load: tuple[Load, ...] = ()
    event: tuple[dict[str, Any], ...] = ()
    pacing: Pacing = Pacing()
    expect: tuple[Expectation, ...] = ()
    promises: Promises = Promises()

    def broken_rules(self) -> Iterator[ConfigError]:
        """Yield the mistakes across tables, except those in events, which `load_workload` finds."""
        if self.measure_from_s is not None and self.measure_from_s >= self.duration_s:
            yield ConfigError.of("measure_from_s", self.measure_from_s, f"a number < duration_s ({self.duration_s:g})")
        yield from checks.check_topic_names(self.topics)
        yield from checks.check_names(self.groups)
        yield from checks.check_rate(self.pacing.rate_per_s, self.groups)
        paces = {"rate_per_s": self.pacing.rate_per_s, "closed_loop": self.pacing.closed_loop or None}
        given = {key: value for key, value in paces.items() if value is not None}
        yield from checks.check_pace_of_brokers(self.groups, given)
        yield from self._check_populations()
        populations = {population.name: population for population in self.groups}
        for index, load in enumerate(self.load):
            yield from checks.check_load(f"load[{index}]", load, populations, self.duration_s, self.cluster.proposals)
        for index, expectation in enumerate(self.expect):
            yield from checks.check_population_name(f"expect[{index}]", expectation.groups, populations)
            yield from checks.check_source(f"expect[{index}]", expectation.source, self.load)

    def _check_populations(self) -> Iterator[ConfigError]:
        try:
            config = Config(self.cluster.config).of_release(self.cluster.release)
        except ConfigError as error:
            yield error.within("cluster.config")
            return
        least_ms, most_ms = map(config.number, ("group.min.session.timeout.ms", "group.max.session.timeout.ms"))
        for index, population in enumerate(self.groups):
            where = f"groups[{index}]"
            yield from checks.check_topics(where, population, self.topics)
            yield from checks.check_hot_partitions(where, population, self.offsets_partitions)
            yield from checks.check_session(where, population, least_ms, most_ms)
            yield from checks.check_protocol(where, population, config, self.cluster.release)
            yield from checks.check_static(where, population, self.cluster.release)
            yield from checks.check_times(where, population, self.duration_s)
            if population.transaction is not None:
                longest_ms = config.number("transaction.max.timeout.ms")
                yield from checks.check_transaction(
                    where, population, population.transaction, self.topics, self.cluster.release, longest_ms
                )
            if self.pacing.rate_per_s is not None:
                interval_ms = self.heartbeat_interval_ms(population)
                yield from checks.check_pace(where, population, self.pacing.rate_per_s, interval_ms)

    @property
    def offsets_partitions(self) -> int:
        """The number of partitions of `__consumer_offsets` in the embedded cluster."""
        return Config(self.cluster.config).number("offsets.topic.num.partitions")

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return sum(population.group_count for population in self.groups)

    @property
    def member_count(self) -> int:
        """The expected number of members; sizes of groups may be random."""
        return round(sum(population.member_count for population in self.groups))

    def event_count(self, *, folds: bool) -> float:
        """Return a rough estimate of the number of recorded requests, infinite in closed loop. It selects settings.

        Args:
            folds: Whether heartbeats are folded (`EventRecorder`).
        """
        if self.pacing.closed_loop:
            return math.inf
        of_loads = (load.request_count(self.group_count) for load in self.load)
        return sum(self._event_count(population, folds) for population in self.groups) + sum(of_loads)

    def _event_count(self, population: Groups, folds: bool) -> float:
        """Return the estimated number of recorded requests of a population's members."""
        commits_per_ms = 1 / population.commit_interval_ms if population.commit_interval_ms else 0.0
        if population.transactional:
            commits_per_ms *= _REQUESTS_PER_TRANSACTION
        heartbeats_per_ms = 0.0 if folds else 1 / self.heartbeat_interval_ms(population)
        events_per_ms = heartbeats_per_ms + commits_per_ms
        return population.member_count * (_REQUESTS_TO_JOIN + 1000 * self.duration_s * events_per_ms)

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        """The `[[event]]` tables, with `cluster.load_ms` as the default of commands that have such an argument."""
        load = {"load_ms": self.cluster.load_ms} if self.cluster.load_ms else {}
        failovers = {name for name, command in commands().items() if "load_ms" in command.arguments.__struct_fields__}
        return tuple({**(load if event["do"] in failovers else {}), **event} for event in self.event)

    def topics_of(self, population: Groups) -> tuple[str, ...]:
        """Return the topics that the members of a population subscribe to."""
        if population.topics:
            return population.topics
        target = population.transaction and population.transaction.to
        return tuple(topic for topic in self.topics if topic != target)

    @property
    def is_transactional(self) -> bool:
        """Whether members of any population use transactions."""
        return any(population.transactional for population in self.groups)

    def heartbeat_interval_ms(self, population: Groups) -> float:
        """Return the heartbeat interval of a population, before jitter."""
        if self.pacing.rate_per_s is None:
            return population.heartbeat_interval_ms
        return 1000 * sum(each.member_count for each in self.groups) / self.pacing.rate_per_s


def load_workload(path: Path, protocol: GroupProtocol | None = None) -> Workload:
    """Read a workload file.

    Args:
        path: The file.
        protocol: The protocol of all populations, instead of those in the file.

    Raises:
        ConfigError: The file, or a file with names of groups, cannot be read or is invalid. The message has the path,
            the number of mistakes and up to ten of them, each with its key, its value and what was expected.
    """
    raw = read_toml(path)
    groups = [*tables] if isinstance(tables := raw.get("groups"), list) else []
    if protocol is not None:
        raw["groups"] = groups = [{**each, "protocol": protocol} if isinstance(each, dict) else each for each in groups]
    mistakes = [*checks.check_protocol_keys(groups)]
    try:
        workload = convert(raw, Workload)
    except ConfigError:
        mistakes += all_mistakes(raw, Workload)
    mistakes += _mistakes_of_events(raw, {mistake.field for mistake in mistakes})
    try:
        if not mistakes:
            return _with_group_names(_with_broker_timeouts(workload), path.parent)
    except ConfigError as error:
        mistakes += error.mistakes
    raise ConfigError.all_of(mistakes, where=str(path))


def _with_broker_timeouts(workload: Workload) -> Workload:
    """Return the workload with the timeouts that the brokers decide, for members of the protocol `consumer`."""
    config = Config(workload.cluster.config).of_release(workload.cluster.release)
    session_ms, heartbeat_ms = map(
        config.number, ("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms")
    )
    return msgspec.structs.replace(
        workload,
        groups=tuple(
            each
            if each.has_classic_members
            else msgspec.structs.replace(each, session_timeout_ms=session_ms, heartbeat_interval_ms=heartbeat_ms)
            for each in workload.groups
        ),
    )


def _mistakes_of_events(raw: Mapping[str, Any], known: Collection[str | None]) -> list[ConfigError]:
    """Return the mistakes in the `[[event]]` tables, except those in fields that are known to be wrong."""
    events, duration_s = raw.get("event"), raw.get("duration_s")
    limit_s: float = MAX_DURATION_S
    if isinstance(duration_s, int | float) and "duration_s" not in known and math.isfinite(duration_s):
        limit_s = duration_s
    found = check_events(events, limit_s) if isinstance(events, list) else ()
    return [mistake for mistake in found if mistake.field not in known]


def _with_group_names(workload: Workload, directory: Path) -> Workload:
    """Read the files with names of groups; return the workload with their absolute paths and actual counts.

    Raises:
        ConfigError: A file cannot be read, or its names are invalid; the workload is invalid with the actual number of
            groups; or another population may have the same names.
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
