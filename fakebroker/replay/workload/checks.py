"""Checks across tables of a workload, after each table by itself has been checked.

Each function yields the mistakes it finds; their fields are paths of keys, such as `groups[0].topics[1]`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from fakebroker.cluster.configs.settings import KIP_848, REBALANCE_PROTOCOLS, Config
from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.releases import Release
from fakebroker.replay.workload.behavior import Grow, Restart
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import MIGRATION_STEP_S, Groups
from fakebroker.replay.workload.table import Span, ends
from fakebroker.replay.workload.transaction import Transaction
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

_MAX_PER_MEMBER_S = 100
_STATIC_MEMBERS = Release(2, 3)
"""The first release that supports static members (KIP-345)."""

_BROKER_SETTINGS = {
    "assignor": "group.consumer.assignors",
    "session_timeout_ms": "group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
}
"""Keys that members of the protocol `consumer` do not have, and the settings of brokers in their place."""

MIGRATION_POLICY = "group.consumer.migration.policy"

_TRANSACTIONS = Release(0, 11)
"""The first release that supports transactions (KIP-98)."""

LEAVING = 0.1
"""Last share of the duration, in which the groups leave; all members of a group leave at once."""


def check_names(populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check that there is a population, and that no two can have groups of the same name."""
    if not populations:
        yield ConfigError.of("groups", [], "at least one [[groups]] table")
    taken: set[tuple[str, str | None]] = set()
    distinct: list[Groups] = []
    for index, population in enumerate(populations):
        key, value = (
            ("from_file", population.from_file) if population.from_file else ("pattern", population.name_pattern)
        )
        names = (("name", population.name), (key, value))
        twice = next((each for each in names if each in taken), None)
        taken.update(names)
        other = next((other for other in distinct if _may_overlap(population, other)), None)
        if twice is not None:
            yield ConfigError.of(f"groups[{index}].{twice[0]}", twice[1], "a value that no other population has")
        elif other is not None:
            expected = f"a pattern that never gives a name of {other.name_pattern!r} of population {other.name!r}"
            yield ConfigError.of(f"groups[{index}].pattern", population.name_pattern, expected)
        else:
            distinct.append(population)


def _may_overlap(one: Groups, other: Groups) -> bool:
    """Return whether the patterns of two populations can give the same name for any numbers."""
    if one.from_file or other.from_file:
        return False
    number = _number(one, other)
    fixed, free = sorted((one.name_pattern, other.name_pattern), key=lambda pattern: "{}" in pattern)
    if "{}" not in fixed:
        return "{}" in free and _name_expression(free, number).fullmatch(fixed) is not None
    (start, _, end), (free_start, _, free_end) = fixed.partition("{}"), free.partition("{}")
    return _differ_by_number(number, start, free_start) and _differ_by_number(number, end[::-1], free_end[::-1])


def _number(*populations: Groups) -> str:
    """Return a regular expression for the number in names of groups."""
    # Names of groups on hot partitions have a second number.
    return "[0-9-]+" if any(population.hot_partitions for population in populations) else "[0-9]+"


def _name_expression(pattern: str, number: str) -> re.Pattern[str]:
    """Return a regular expression that matches the names of a pattern."""
    return re.compile(number.join(map(re.escape, pattern.split("{}"))))


def _differ_by_number(number: str, one: str, other: str) -> bool:
    """Return whether the texts are equal, or the longer one is the shorter one followed by part of a number."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and re.fullmatch(f"({number})?", long.removeprefix(short)) is not None


def check_listed_names(listed: Mapping[int, Sequence[str]], populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check that no name from a file is in another population's file, or matches its pattern.

    Args:
        listed: Names from files, by the index of the population.
        populations: All populations.
    """
    for index, names in listed.items():
        for other, population in enumerate(populations):
            if other in listed:
                shared = set(names) & set(listed[other]) if other < index else set()
            elif population.from_file:
                shared = set()
            else:
                expression = _name_expression(population.name_pattern, _number(population))
                shared = {name for name in names if expression.fullmatch(name)}
            if shared:
                expected = f"names that no other population has; groups[{other}] may also have {min(shared)!r}"
                yield ConfigError.of(f"groups[{index}].from_file", populations[index].from_file, expected)


def check_rate(rate_per_s: float | None, populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check the rate of each member: intervals are whole milliseconds, so very short ones would be inexact."""
    members = sum(population.member_count for population in populations)
    if rate_per_s is not None and rate_per_s > members * _MAX_PER_MEMBER_S:
        expected = f"a number <= {members * _MAX_PER_MEMBER_S:g}: {_MAX_PER_MEMBER_S} per second and member"
        yield ConfigError.of("pacing.rate_per_s", rate_per_s, expected)


def check_pace(
    where: str, population: Groups, rate_per_s: float, heartbeat_interval_ms: float
) -> Iterator[ConfigError]:
    """Check that the heartbeat interval is below the session timeout.

    Args:
        where: Path of the population.
        population: The population.
        rate_per_s: The rate of all heartbeats.
        heartbeat_interval_ms: The resulting interval of each member, in milliseconds, before jitter.
    """
    session_timeout_ms = population.session_timeouts_ms[0]
    if heartbeat_interval_ms * (1 + population.jitter) >= session_timeout_ms:
        expected = (
            f"a higher rate: with an interval of {heartbeat_interval_ms:.0f} ms, heartbeats may be later than the "
            f"session timeout of {where} ({session_timeout_ms:.0f} ms)"
        )
        yield ConfigError.of("pacing.rate_per_s", rate_per_s, expected)


def check_times(where: str, population: Groups, duration_s: float) -> Iterator[ConfigError]:
    """Check that all members have started, and all behaviors have ended, before the groups leave.

    Args:
        where: Path of the population.
        population: The population.
        duration_s: Duration of the workload, in seconds.
    """
    leaving_s = duration_s * (1 - LEAVING)
    if population.arrived_s >= leaving_s:
        yield _too_late(f"{where}.arrival", population.arrived_s, leaving_s)
        return
    for key, at_s, over_s in _periods(population):
        if ends(at_s)[0] < population.arrived_s and key != "grow":
            expected = f"a time >= {population.arrived_s:g}, when all members have started"
            field = key if key == "migrate_at_s" else f"{key}.at_s"
            yield ConfigError.of(f"{where}.{field}", _plain(at_s), expected)
        if over_s > leaving_s:
            yield _too_late(f"{where}.{key}", over_s, leaving_s)


def _too_late(field: str, over_s: float, leaving_s: float) -> ConfigError:
    expected = f"an end before {leaving_s:g} s, when the groups begin to leave"
    return ConfigError(
        f"{field} ends at {over_s:g} s: expected {expected}", field=field, value=over_s, expected=expected
    )


def _periods(population: Groups) -> Iterator[tuple[str, Span, float]]:
    """Yield the key of each behavior, its start, and its end for the last member, in seconds."""
    for action, behavior in population.behaviors.items():
        silent_s = population.session_timeouts_ms[1] / 1000 if action == "zombie" else 0.0
        yield action, behavior.at_s, ends(behavior.at_s)[1] + behavior.lasts_s + silent_s
    if restart := population.restart:
        yield "restart", restart.at_s, _last_s(restart, population.max_members) + ends(restart.return_after_s)[1]
    if (migrate_at_s := population.migrate_at_s) is not None:
        yield "migrate_at_s", migrate_at_s, ends(migrate_at_s)[1] + population.max_members * MIGRATION_STEP_S
    if grow := population.grow:
        yield "grow", grow.at_s, _last_s(grow, grow.instances)


def _last_s(series: Restart | Grow, members: int) -> float:
    """Return the latest time at which the last of some members stops, or starts."""
    return ends(series.at_s)[1] + (members - 1) * series.every_s


def check_topic_names(topics: Collection[str]) -> Iterator[ConfigError]:
    """Check that there are topics, with names that are legal in Kafka."""
    if not topics:
        yield ConfigError.of("topics", {}, "at least one topic with its number of partitions")
    for name in topics:
        if not is_legal_name(name) or name in INTERNAL_TOPICS:
            expected = f"{LEGAL_NAME}, and other than {', '.join(INTERNAL_TOPICS)}"
            yield ConfigError.of("topics", name, expected)


def check_topics(where: str, population: Groups, topics: Mapping[str, int]) -> Iterator[ConfigError]:
    """Check that the topics of a population exist."""
    for index, topic in enumerate(population.topics):
        if topic not in topics:
            yield ConfigError.of(f"{where}.topics[{index}]", topic, one_of(topics, topic))


def check_transaction(
    where: str,
    population: Groups,
    transaction: Transaction,
    topics: Mapping[str, int],
    release: Release,
    longest_ms: int,
) -> Iterator[ConfigError]:
    """Check that the members can consume and produce in transactions.

    Args:
        where: Path of the population.
        population: The population.
        transaction: Its transactions.
        topics: Partition counts by topic.
        release: The release that the cluster emulates.
        longest_ms: The longest timeout that the cluster accepts, in milliseconds.
    """
    if release < _TRANSACTIONS:
        expected = f"no transactions in a cluster that emulates {release}; they need {_TRANSACTIONS} or newer"
        yield ConfigError.of(f"{where}.transactional", True, expected)
    if transaction.timeout_ms > longest_ms:
        expected = f"at most {longest_ms}, the limit of the cluster (transaction.max.timeout.ms)"
        yield ConfigError.of(f"{where}.transaction.timeout_ms", transaction.timeout_ms, expected)
    if transaction.to not in topics:
        yield ConfigError.of(f"{where}.transaction.to", transaction.to, one_of(topics, transaction.to))
    elif transaction.to in population.topics or set(topics) == {transaction.to}:
        expected = "a topic that the members do not subscribe to"
        yield ConfigError.of(f"{where}.transaction.to", transaction.to, expected)


def check_hot_partitions(where: str, population: Groups, offsets_partitions: int) -> Iterator[ConfigError]:
    """Check that the hot partitions exist."""
    for index, partition in enumerate(population.hot_partitions):
        if partition >= offsets_partitions:
            expected = f"an integer < {offsets_partitions}, the number of partitions of __consumer_offsets"
            yield ConfigError.of(f"{where}.hot_partitions[{index}]", partition, expected)


def check_session(where: str, population: Groups, least_ms: int, most_ms: int) -> Iterator[ConfigError]:
    """Check that the cluster accepts the session timeouts."""
    if not population.has_classic_members:
        return
    if population.session_timeouts_ms[0] < least_ms or population.session_timeouts_ms[1] > most_ms:
        expected = (
            f"{least_ms} to {most_ms}, timeout_jitter included: the limits of the cluster "
            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )
        yield ConfigError.of(f"{where}.session_timeout_ms", population.session_timeout_ms, expected)


def check_protocol(where: str, population: Groups, config: Config, release: Release) -> Iterator[ConfigError]:
    """Check that the cluster supports the protocols of the members, and a migration between them.

    Args:
        where: Path of the population.
        population: The population.
        config: The settings of the cluster.
        release: The release that it emulates.
    """
    if not population.has_consumer_members:
        return
    field, value, what = f"{where}.protocol", _plain(population.protocol), "no members of the protocol 'consumer'"
    if population.protocol == "classic":
        field, value, what = f"{where}.migrate_at_s", _plain(population.migrate_at_s), "no migration to 'consumer'"
    supported = config.items(REBALANCE_PROTOCOLS)
    if release < KIP_848:
        yield ConfigError.of(field, value, f"{what} with cluster.as_version {release}; they need {KIP_848} or later")
    elif "consumer" not in supported:
        expected = f"{what} in a cluster with {REBALANCE_PROTOCOLS} = {','.join(supported)!r}"
        yield ConfigError.of(field, value, expected)
    elif population.migrate_at_s is not None:
        needed = "downgrade" if population.protocol == "consumer" else "upgrade"
        policy = (config.text(MIGRATION_POLICY) or "").lower()
        if policy not in (needed, "bidirectional"):
            expected = f"none in a cluster with {MIGRATION_POLICY} = {policy!r}; it needs {needed!r} or 'bidirectional'"
            yield ConfigError.of(f"{where}.migrate_at_s", _plain(population.migrate_at_s), expected)


def check_protocol_keys(groups: Sequence[object]) -> Iterator[ConfigError]:
    """Check that populations of the protocol `consumer` have no keys about settings that only brokers have.

    Args:
        groups: The `[[groups]]` tables as in the file, of any type: a key with its default is a mistake, too.
    """
    for index, table in enumerate(groups):
        if not isinstance(table, Mapping) or table.get("protocol") != "consumer" or "migrate_at_s" in table:
            continue
        for key, setting in _BROKER_SETTINGS.items():
            if key in table:
                expected = f"none with protocol = 'consumer': the brokers decide it ({setting})"
                yield ConfigError.of(f"groups[{index}].{key}", table[key], expected)


def check_pace_of_brokers(populations: Sequence[Groups], pacing: Mapping[str, object]) -> Iterator[ConfigError]:
    """Check that the workload does not set the pace of members whose heartbeat interval comes from the broker.

    Args:
        populations: All populations.
        pacing: The keys of `[pacing]` that set a pace, without those that are off.
    """
    for key, value in pacing.items() if any(each.has_consumer_members for each in populations) else ():
        expected = "none with members of the protocol 'consumer', whose heartbeat interval comes from the broker"
        yield ConfigError.of(f"pacing.{key}", value, expected)


def _plain(value: object) -> object:
    """Return a value as in the file: spans are lists."""
    return list(value) if isinstance(value, tuple) else value


def check_static(where: str, population: Groups, release: Release) -> Iterator[ConfigError]:
    """Check that the cluster supports the static members of a population."""
    grows = population.grow is not None and population.grow.how == "static"
    if release < _STATIC_MEMBERS and (population.static or grows):
        key, value = ("static", population.static) if population.static else ("grow.how", "static")
        expected = f"no static members with cluster.as_version {release}; they require {_STATIC_MEMBERS} or later"
        yield ConfigError.of(f"{where}.{key}", value, expected)


def check_load(
    where: str, load: Load, populations: Mapping[str, Groups], duration_s: float, proposals: Sequence[str]
) -> Iterator[ConfigError]:
    """Check that a load ends by the end of the workload, and that its population exists and fits the load."""
    until_s = load.at_s + (load.for_s or 0)
    if load.at_s >= duration_s:
        yield ConfigError.of(f"{where}.at_s", load.at_s, f"a number < duration_s ({duration_s:g})")
    elif until_s > duration_s:
        expected = f"an end by duration_s ({duration_s:g}), not at {until_s:g}"
        yield ConfigError.of(f"{where}.for_s", load.for_s, expected)
    yield from check_population_name(where, load.groups, populations)
    if load.kind != "add-members" or load.groups is None or load.groups not in populations:
        return
    grow = populations[load.groups].grow
    if grow is None or grow.how != "static" or grow.instances < (load.instances or 0) or ends(grow.at_s)[0] < load.at_s:
        expected = (
            f"at most `grow.instances` of population {load.groups!r}, whose `grow` must have how = 'static' and "
            f"at_s >= {load.at_s:g}"
        )
        yield ConfigError.of(f"{where}.instances", load.instances, expected)
    if "batch-join" not in proposals:
        yield ConfigError.of(f"{where}.kind", load.kind, "'batch-join' in cluster.proposals")


def check_source(where: str, source: str | None, loads: Sequence[Load]) -> Iterator[ConfigError]:
    """Check that there are loads if an expectation is about their requests."""
    if source == "load" and not loads:
        yield ConfigError.of(f"{where}.source", source, "'members', because there is no [[load]] table")


def check_population_name(where: str, name: str | None, populations: Mapping[str, Groups]) -> Iterator[ConfigError]:
    """Check that a population exists."""
    if name is not None and name not in populations:
        yield ConfigError.of(f"{where}.groups", name, one_of(populations, name))
