"""The types of a scenario file, and its reader. Does not depend on Spark.

A scenario is a TOML file that describes groups, what happens to their members and brokers, and the network.
`script_builder` makes the script of a run from it and a seed. `scenarios/lab/README.md` documents all keys.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from fakebroker.errors import ConfigError, one_of
from fakebroker.lab.scenario.groups import Groups
from fakebroker.replay.workload.mistakes import MAX_DURATION_S, all_mistakes
from fakebroker.replay.workload.table import Table, read_toml
from fakebroker.validation import Count, Positive, Rate, Seconds, convert

Partitions = Annotated[int, Meta(ge=1, le=100_000)]


class Cluster(Table, frozen=True):
    """The brokers, the network, and how long things take.

    Attributes:
        brokers: Number of brokers; their node ids are 1, 2 and so on.
        offsets_partitions: Number of partitions of the offsets topic.
        initial_rebalance_delay_ms: Kafka's `group.initial.rebalance.delay.ms`; classic only.
        max_session_timeout_ms: Members with longer session timeouts are rejected.
        rebalancer_threads: Number of threads that run the rebalances of one coordinator; options 1.b and 1.c only.
        rebalance_phase_timeout_ms: Time that a rebalancer waits for the responses of one phase; options 1.b and 1.c
            only.
        expired_heartbeats: Number of successive heartbeats without a response after which a consumer has failed;
            option 1.b only.
        latency_ms: Time of a message in one direction.
        connect_timeout_ms: Time after which a member gives up connecting to a host that is gone.
        request_timeout_ms: Time after which a look-up without an answer is repeated at another broker.
        append_ms: Time of an append to the offsets topic, until it is replicated.
        registry_ms: Time of an operation of the registry (ZooKeeper), there and back.
        detect_ms: Time until the controller notices that the host of a broker is gone.
        elect_ms: Time from then on, or from when a broker stops, until its partitions have new leaders.
        propagate_ms: Time from then on until brokers return the new coordinators.
        load_ms: Time to load an offsets partition.
        load_ms_per_group: Time to load each group in it.
        records_per_s: Number of records that are produced to each partition, per second.
        metadata_max_age_ms: Interval at which members refresh metadata, if their design relies on it.
    """

    brokers: Annotated[int, Meta(ge=1, le=1_000)] = 3
    offsets_partitions: Annotated[int, Meta(ge=1, le=100_000)] = 50
    initial_rebalance_delay_ms: Count = 3_000
    max_session_timeout_ms: Positive = 1_800_000
    rebalancer_threads: Positive = 4
    rebalance_phase_timeout_ms: Positive = 10_000
    expired_heartbeats: Positive = 1
    latency_ms: Rate = 0.5
    connect_timeout_ms: Rate = 10_000.0
    request_timeout_ms: Rate = 30_000.0
    append_ms: Rate = 2.0
    registry_ms: Rate = 5.0
    detect_ms: Seconds = 9_000.0
    elect_ms: Seconds = 50.0
    propagate_ms: Seconds = 20.0
    load_ms: Seconds = 100.0
    load_ms_per_group: Seconds = 0.05
    records_per_s: Seconds = 100.0
    metadata_max_age_ms: Rate = 300_000.0


class Event(Table, frozen=True):
    """An event of a broker or a topic.

    Attributes:
        at_s: When it happens.
        do: `stop_broker`: its process stops, and its connections are closed. `vanish_broker`: its host is gone.
            `start_broker`: its process starts. `set_partitions`: a topic is created, or gets more partitions.
        node_id: The broker.
        topic: The topic.
        partitions: The new number of partitions of the topic.
    """

    at_s: Seconds
    do: Literal["stop_broker", "vanish_broker", "start_broker", "set_partitions"]
    node_id: Positive | None = None
    topic: str | None = None
    partitions: Partitions | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        of_topic = self.do == "set_partitions"
        for key, is_needed, expected in (
            ("node_id", not of_topic, "a node id"),
            ("topic", of_topic, "the name of a topic"),
            ("partitions", of_topic, "a number of partitions"),
        ):
            value = getattr(self, key)
            if is_needed and value is None:
                yield ConfigError.missing(key, f"{expected} with {self.do}")
            elif not is_needed and value is not None:
                yield ConfigError.of(key, value, f"none with {self.do}")


class Scenario(Table, frozen=True, kw_only=True):
    """A scenario file.

    Attributes:
        duration_s: Length of a run. A rebalance that is not over then counts as one that never ended, so the last
            event should be early enough.
        topics: Number of partitions of each topic.
        steady_s: Beginning and end of a time in which nothing happens, for the traffic of the steady state.
        cluster: The brokers and the network.
        groups: The populations: `[[groups]]` tables.
        event: Events of brokers and topics: `[[event]]` tables.
    """

    duration_s: Annotated[float, Meta(gt=0, le=MAX_DURATION_S)]
    topics: dict[str, Partitions]
    steady_s: tuple[Seconds, Seconds] | None = None
    cluster: Cluster = Cluster()
    groups: tuple[Groups, ...]
    event: tuple[Event, ...] = ()

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.steady_s is not None and not self.steady_s[0] < self.steady_s[1] <= self.duration_s:
            expected = f"[beginning, end] up to duration_s ({self.duration_s:g})"
            yield ConfigError.of("steady_s", list(self.steady_s), expected)
        if not self.groups:
            yield ConfigError.of("groups", [], "at least one [[groups]] table")
        names: set[str] = set()
        for index, population in enumerate(self.groups):
            if population.name in names:
                yield ConfigError.of(f"groups[{index}].name", population.name, "a name that no other population has")
            names.add(population.name)
            yield from (mistake.within(f"groups[{index}]") for mistake in self._check_groups(population))
        for index, event in enumerate(self.event):
            yield from (mistake.within(f"event[{index}]") for mistake in self._check_event(event))

    def _check_groups(self, population: Groups) -> Iterator[ConfigError]:
        for index, topic in enumerate(population.topics):
            if topic not in self.topics:
                yield ConfigError.of(f"topics[{index}]", topic, one_of(self.topics, topic))
        if population.session_timeout_ms > self.cluster.max_session_timeout_ms:
            expected = f"at most cluster.max_session_timeout_ms ({self.cluster.max_session_timeout_ms})"
            yield ConfigError.of("session_timeout_ms", population.session_timeout_ms, expected)
        for key, time_s in population.times_s():
            if time_s >= self.duration_s:
                yield ConfigError.of(key, time_s, f"seconds < duration_s ({self.duration_s:g})")

    def _check_event(self, event: Event) -> Iterator[ConfigError]:
        if event.at_s >= self.duration_s:
            yield ConfigError.of("at_s", event.at_s, f"a number < duration_s ({self.duration_s:g})")
        if event.node_id is not None and event.node_id > self.cluster.brokers:
            yield ConfigError.of("node_id", event.node_id, f"a node id from 1 to {self.cluster.brokers}")
        if event.topic is not None and event.partitions is not None:
            before = self.topics.get(event.topic, 0)
            if event.partitions <= before:
                yield ConfigError.of("partitions", event.partitions, f"more than {before}, as Kafka removes none")

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return sum(population.count for population in self.groups)

    @property
    def member_count(self) -> int:
        """The expected number of members; sizes of groups may be random."""
        return round(sum(population.member_count for population in self.groups))


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: The file cannot be read or is invalid. The message has the path, the number of mistakes and up to
            ten of them, each with its key, its value and what was expected.
    """
    raw = read_toml(path)
    try:
        return convert(raw, Scenario)
    except ConfigError:
        raise ConfigError.all_of(all_mistakes(raw, Scenario), where=str(path)) from None
