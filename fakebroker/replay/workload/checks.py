"""Checks across tables, each of which is valid by itself.

Each function raises a ValueError whose message begins with the path of the key.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.protocol.releases import Release
from fakebroker.replay.workload.behavior import Grow, Restart
from fakebroker.replay.workload.expectations import Expectation
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import Span, ends
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

_MAX_PER_MEMBER_S = 100
_STATIC_MEMBERS = Release(2, 3)
"""The first release that supports static members (KIP-345)."""

LEAVING = 0.1
"""The last share of the duration, in which the groups leave one after the other, each with all its members at once."""


def check_names(populations: Sequence[Groups]) -> None:
    """Check that there is a population, and that no two have the same name or the same source of group names."""
    if not populations:
        raise ValueError("groups: expected at least one [[groups]] table")
    seen: set[tuple[str, str]] = set()
    for index, population in enumerate(populations):
        names = ("from_file", population.from_file) if population.from_file else ("pattern", population.name_pattern)
        for key, value in (("name", population.name), names):
            if (key, value) in seen:
                raise ValueError(
                    f"groups[{index}].{key}: expected one of its own for each population, got {value!r} again"
                )
            seen.add((key, value))
    for index, population in enumerate(populations):
        for other in populations[:index]:
            if _may_meet(population, other):
                raise ValueError(
                    f"groups[{index}].pattern: expected names that no other population can have, got "
                    f"{population.name_pattern!r} beside {other.name_pattern!r}"
                )


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


def check_listed_names(listed: Mapping[int, Sequence[str]], populations: Sequence[Groups]) -> None:
    """Check that no name from a file is in another population's file, or is given by another's pattern.

    Args:
        listed: Names from files, by the index of their population.
        populations: All of them.
    """
    for index, names in listed.items():
        for other, population in enumerate(populations):
            if other in listed:
                met = set(names) & set(listed[other]) if other < index else set()
            else:
                made = _made_by(population.name_pattern, _number(population))
                met = {name for name in names if made.fullmatch(name)}
            if met:
                raise ValueError(
                    f"groups[{index}].from_file: expected names that no other population can have, got {min(met)!r}, "
                    f"which may be one of groups[{other}]"
                )


def check_rate(rate_per_s: float | None, populations: Sequence[Groups]) -> None:
    """Check that members can send at the rate; their intervals are whole milliseconds."""
    members = sum(population.member_count for population in populations)
    if rate_per_s is not None and rate_per_s > members * _MAX_PER_MEMBER_S:
        raise ValueError(
            f"pacing.rate_per_s: expected {_MAX_PER_MEMBER_S} for each of {members:,.0f} members at most, got "
            f"{rate_per_s:g}"
        )


def check_population(where: str, population: Groups, duration_s: float, heartbeat_interval_ms: float) -> None:
    """Check that all behaviors end before the groups leave, and that heartbeats are fast enough.

    Args:
        where: Path of the population, for the message.
        population: The population.
        duration_s: Duration of the workload, in seconds.
        heartbeat_interval_ms: The actual interval in milliseconds, which the pacing may set.
    """
    quiet_s = duration_s * (1 - LEAVING)
    if population.arrived_s >= quiet_s:
        raise ValueError(
            f"{where}.arrival: expected all members to start before the groups leave ({quiet_s:g} s), "
            f"got {population.arrived_s:g} s for the last one"
        )
    for key, at_s, over_s in _periods(population):
        if ends(at_s)[0] < population.arrived_s and key != "grow":
            raise ValueError(
                f"{where}.{key}.at_s: expected {population.arrived_s:g} or more, when all members have started, "
                f"got {ends(at_s)[0]:g}"
            )
        if over_s > quiet_s:
            raise ValueError(
                f"{where}.{key}: expected to be over before the groups leave ({quiet_s:g} s), got {over_s:g} s"
            )
    if heartbeat_interval_ms * (1 + population.jitter) >= population.session_timeouts_ms[0]:
        raise ValueError(
            f"pacing.rate_per_s: expected heartbeats faster than the session timeout of {where} "
            f"({population.session_timeouts_ms[0]:.0f} ms), got one in {heartbeat_interval_ms:.0f} ms"
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


def check_topic_names(topics: Iterable[str]) -> None:
    """Check that the names are legal in Kafka."""
    for name in topics:
        if not is_legal_name(name) or name in INTERNAL_TOPICS:
            expected = f"names other than {', '.join(INTERNAL_TOPICS)}, of {LEGAL_NAME}"
            raise ValueError(f"topics: expected {expected}, got {name!r}")


def check_topics(where: str, population: Groups, topics: Mapping[str, int]) -> None:
    """Check that the topics of a population exist."""
    for topic in population.topics:
        if topic not in topics:
            raise ValueError(f"{where}.topics: expected names out of {list(topics)}, got {topic!r}")


def check_hot_partitions(where: str, population: Groups, offsets_partitions: int) -> None:
    """Check that the hot partitions exist."""
    for partition in population.hot_partitions:
        if partition >= offsets_partitions:
            raise ValueError(f"{where}.hot_partitions: expected partitions under {offsets_partitions}, got {partition}")


def check_session(where: str, population: Groups, least_ms: int, most_ms: int) -> None:
    """Check that the cluster accepts the session timeouts."""
    for timeout_ms in population.session_timeouts_ms:
        if not least_ms <= timeout_ms <= most_ms:
            raise ValueError(
                f"{where}.session_timeout_ms: expected {least_ms} to {most_ms}, which is what the cluster takes "
                f"(group.min.session.timeout.ms, group.max.session.timeout.ms), got {timeout_ms:.0f}"
            )


def check_static(where: str, population: Groups, release: Release) -> None:
    """Check that the cluster supports static members, if there are any."""
    grows = population.grow is not None and population.grow.how == "static"
    if release < _STATIC_MEMBERS and (population.static or grows):
        key = "static" if population.static else "grow.how"
        raise ValueError(
            f"{where}.{key}: expected no static members with cluster.as_version {release}, which is too old"
        )


def check_load(
    where: str, load: Load, populations: Mapping[str, Groups], duration_s: float, proposals: Sequence[str]
) -> None:
    """Check that a load ends with the workload, and that its groups exist."""
    if load.at_s + (load.for_s or 0) > duration_s or load.at_s >= duration_s:
        until_s = load.at_s + (load.for_s or 0)
        key = "for_s" if load.at_s < duration_s else "at_s"
        raise ValueError(
            f"{where}.{key}: expected to be over within duration_s ({duration_s:g}), got an end at {until_s:g}"
        )
    _check_known(where, load.groups, populations)
    if load.kind != "add-members" or load.groups is None:
        return
    grow = populations[load.groups].grow
    if grow is None or grow.how != "static" or grow.instances < (load.instances or 0) or ends(grow.at_s)[0] < load.at_s:
        raise ValueError(
            f"{where}.instances: expected a population that has so many static members to grow by later than at_s "
            f"({load.at_s:g}), got {load.instances} for {load.groups!r}"
        )
    if "batch-join" not in proposals:
        raise ValueError(f"{where}.kind: expected 'batch-join' among cluster.proposals with add-members, got none")


def check_expectation(where: str, expectation: Expectation, populations: Mapping[str, Groups]) -> None:
    """Check that the population exists."""
    _check_known(where, expectation.groups, populations)


def _check_known(where: str, name: str | None, populations: Mapping[str, Groups]) -> None:
    if name is not None and name not in populations:
        raise ValueError(f"{where}.groups: expected the name of a population, out of {list(populations)}, got {name!r}")
