"""Checks across tables, each of which is valid by itself.

Each function yields its mistakes, whose fields are paths of keys.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.releases import Release
from fakebroker.replay.workload.behavior import Grow, Restart
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import Span, ends
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

_MAX_PER_MEMBER_S = 100
_STATIC_MEMBERS = Release(2, 3)
"""The first release that supports static members (KIP-345)."""

LEAVING = 0.1
"""The last share of the duration, in which the groups leave one after the other, each with all its members at once."""


def check_names(populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check that there is a population, and that no two have the same name or the same source of group names."""
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
        other = next((other for other in distinct if _may_meet(population, other)), None)
        if twice is not None:
            yield ConfigError.of(f"groups[{index}].{twice[0]}", twice[1], "one that no other population has")
        elif other is not None:
            expected = f"names that no other population can have, {other.name_pattern!r} can"
            yield ConfigError.of(f"groups[{index}].pattern", population.name_pattern, expected)
        else:
            distinct.append(population)


def _may_meet(one: Groups, other: Groups) -> bool:
    """Return whether some number gives a name by one pattern that some number gives by the other."""
    if one.from_file or other.from_file:
        return False
    number = _number(one, other)
    fixed, free = sorted((one.name_pattern, other.name_pattern), key=lambda pattern: "{}" in pattern)
    if "{}" not in fixed:
        return "{}" in free and _made_by(free, number).fullmatch(fixed) is not None
    (start, _, end), (free_start, _, free_end) = fixed.partition("{}"), free.partition("{}")
    return _differ_by(number, start, free_start) and _differ_by(number, end[::-1], free_end[::-1])


def _number(*populations: Groups) -> str:
    """Return a regular expression for the number in names of groups."""
    # For hot partitions, another number is appended.
    return "[0-9-]+" if any(population.hot_partitions for population in populations) else "[0-9]+"


def _made_by(pattern: str, number: str) -> re.Pattern[str]:
    """Return a regular expression for the names that a pattern gives."""
    return re.compile(number.join(map(re.escape, pattern.split("{}"))))


def _differ_by(number: str, one: str, other: str) -> bool:
    """Return whether the texts are equal, or one continues the other with what may be part of a number."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and re.fullmatch(f"({number})?", long.removeprefix(short)) is not None


def check_listed_names(listed: Mapping[int, Sequence[str]], populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check that no name from a file is in another population's file, or is given by another's pattern.

    Args:
        listed: Names from files, by the index of their population.
        populations: All of them.
    """
    for index, names in listed.items():
        for other, population in enumerate(populations):
            if other in listed:
                met = set(names) & set(listed[other]) if other < index else set()
            elif population.from_file:
                met = set()
            else:
                made = _made_by(population.name_pattern, _number(population))
                met = {name for name in names if made.fullmatch(name)}
            if met:
                expected = f"names that no other population can have, {min(met)!r} may be one of groups[{other}]"
                yield ConfigError.of(f"groups[{index}].from_file", populations[index].from_file, expected)


def check_rate(rate_per_s: float | None, populations: Sequence[Groups]) -> Iterator[ConfigError]:
    """Check that members can send at the rate; their intervals are whole milliseconds."""
    members = sum(population.member_count for population in populations)
    if rate_per_s is not None and rate_per_s > members * _MAX_PER_MEMBER_S:
        expected = f"{_MAX_PER_MEMBER_S} for each of {members:,.0f} members at most"
        yield ConfigError.of("pacing.rate_per_s", rate_per_s, expected)


def check_pace(
    where: str, population: Groups, rate_per_s: float, heartbeat_interval_ms: float
) -> Iterator[ConfigError]:
    """Check that heartbeats are fast enough.

    Args:
        where: Path of the population.
        population: The population.
        rate_per_s: The rate of all heartbeats.
        heartbeat_interval_ms: The interval of each member that follows, in milliseconds.
    """
    session_timeout_ms = population.session_timeouts_ms[0]
    if heartbeat_interval_ms * (1 + population.jitter) >= session_timeout_ms:
        expected = (
            f"heartbeats faster than the session timeout of {where} ({session_timeout_ms:.0f} ms), not one in "
            f"{heartbeat_interval_ms:.0f} ms"
        )
        yield ConfigError.of("pacing.rate_per_s", rate_per_s, expected)


def check_times(where: str, population: Groups, duration_s: float) -> Iterator[ConfigError]:
    """Check that all members have arrived, and all behaviors are over, before the groups leave.

    Args:
        where: Path of the population.
        population: The population.
        duration_s: Duration of the workload, in seconds.
    """
    quiet_s = duration_s * (1 - LEAVING)
    if population.arrived_s >= quiet_s:
        yield _late(f"{where}.arrival", population.arrived_s, quiet_s)
        return
    for key, at_s, over_s in _periods(population):
        if ends(at_s)[0] < population.arrived_s and key != "grow":
            expected = f"{population.arrived_s:g} or more, when all members have started"
            yield ConfigError.of(f"{where}.{key}.at_s", list(at_s) if isinstance(at_s, tuple) else at_s, expected)
        if over_s > quiet_s:
            yield _late(f"{where}.{key}", over_s, quiet_s)


def _late(field: str, over_s: float, quiet_s: float) -> ConfigError:
    expected = f"an end before the groups leave, at {quiet_s:g} s"
    return ConfigError(
        f"{field} ends at {over_s:g} s: expected {expected}", field=field, value=over_s, expected=expected
    )


def _periods(population: Groups) -> Iterator[tuple[str, Span, float]]:
    """Yield the behaviors: the key, when it begins, and when it ends for the last member, in seconds."""
    for action, behavior in population.behaviors.items():
        silent_s = population.session_timeouts_ms[1] / 1000 if action == "zombie" else 0.0
        yield action, behavior.at_s, ends(behavior.at_s)[1] + behavior.lasts_s + silent_s
    if restart := population.restart:
        yield "restart", restart.at_s, _last_s(restart, population.max_members) + ends(restart.return_after_s)[1]
    if grow := population.grow:
        yield "grow", grow.at_s, _last_s(grow, grow.instances)


def _last_s(series: Restart | Grow, members: int) -> float:
    return ends(series.at_s)[1] + (members - 1) * series.every_s


def check_topic_names(topics: Collection[str]) -> Iterator[ConfigError]:
    """Check that there are topics, with names that are legal in Kafka."""
    if not topics:
        yield ConfigError.of("topics", {}, "at least one topic with its number of partitions")
    for name in topics:
        if not is_legal_name(name) or name in INTERNAL_TOPICS:
            yield ConfigError.of("topics", name, f"names other than {', '.join(INTERNAL_TOPICS)}, of {LEGAL_NAME}")


def check_topics(where: str, population: Groups, topics: Mapping[str, int]) -> Iterator[ConfigError]:
    """Check that the topics of a population exist."""
    for index, topic in enumerate(population.topics):
        if topic not in topics:
            yield ConfigError.of(f"{where}.topics[{index}]", topic, one_of(topics, topic))


def check_hot_partitions(where: str, population: Groups, offsets_partitions: int) -> Iterator[ConfigError]:
    """Check that the hot partitions exist."""
    for index, partition in enumerate(population.hot_partitions):
        if partition >= offsets_partitions:
            expected = f"an integer < {offsets_partitions}, the number of partitions of __consumer_offsets"
            yield ConfigError.of(f"{where}.hot_partitions[{index}]", partition, expected)


def check_session(where: str, population: Groups, least_ms: int, most_ms: int) -> Iterator[ConfigError]:
    """Check that the cluster accepts the session timeouts."""
    if population.session_timeouts_ms[0] < least_ms or population.session_timeouts_ms[1] > most_ms:
        expected = (
            f"{least_ms} to {most_ms} even with timeout_jitter, which is what the cluster accepts "
            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )
        yield ConfigError.of(f"{where}.session_timeout_ms", population.session_timeout_ms, expected)


def check_static(where: str, population: Groups, release: Release) -> Iterator[ConfigError]:
    """Check that the cluster supports static members, if there are any."""
    grows = population.grow is not None and population.grow.how == "static"
    if release < _STATIC_MEMBERS and (population.static or grows):
        key, value = ("static", population.static) if population.static else ("grow.how", "static")
        expected = f"no static members with cluster.as_version {release}, which is too old"
        yield ConfigError.of(f"{where}.{key}", value, expected)


def check_load(
    where: str, load: Load, populations: Mapping[str, Groups], duration_s: float, proposals: Sequence[str]
) -> Iterator[ConfigError]:
    """Check that a load ends with the workload, and that its groups exist."""
    until_s = load.at_s + (load.for_s or 0)
    if load.at_s >= duration_s:
        yield ConfigError.of(f"{where}.at_s", load.at_s, f"a number < duration_s, which is {duration_s:g}")
    elif until_s > duration_s:
        expected = f"an end within duration_s, which is {duration_s:g}, not at {until_s:g}"
        yield ConfigError.of(f"{where}.for_s", load.for_s, expected)
    yield from check_population_name(where, load.groups, populations)
    if load.kind != "add-members" or load.groups is None or load.groups not in populations:
        return
    grow = populations[load.groups].grow
    if grow is None or grow.how != "static" or grow.instances < (load.instances or 0) or ends(grow.at_s)[0] < load.at_s:
        expected = (
            f"a population that has so many static members to grow by later than at_s ({load.at_s:g}), {load.groups!r} "
            "has not"
        )
        yield ConfigError.of(f"{where}.instances", load.instances, expected)
    if "batch-join" not in proposals:
        yield ConfigError.of(f"{where}.kind", load.kind, "'batch-join' among cluster.proposals with it")


def check_population_name(where: str, name: str | None, populations: Mapping[str, Groups]) -> Iterator[ConfigError]:
    """Check that a population exists."""
    if name is not None and name not in populations:
        yield ConfigError.of(f"{where}.groups", name, one_of(populations, name))
