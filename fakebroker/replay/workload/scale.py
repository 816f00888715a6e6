"""Scaled-down workloads, for `--scale`. Depends on the types of workload files only.

A population gets fewer groups, down to `FEWEST_GROUPS`. If that is not few enough, its groups get fewer members, down
to `FEWEST_MEMBERS`. Rates follow, so that each group, or member, gets and sends as many requests per second as before.
Times, timeouts, intervals, shares, batches, topics, the cluster and its events stay as they are.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.expectations import COUNTS, Expectation
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Groups, Sizes
from fakebroker.replay.workload.workload import Workload

FEWEST_GROUPS = 20
"""Populations of more groups keep at least so many, so that the behaviors of a share of the members still occur."""

FEWEST_MEMBERS = 20
"""Groups with more members, including those that join later (`grow`), keep at least so many."""


def scaled(workload: Workload, factor: float, *, where: str = "") -> Workload:
    """Return a workload with fewer groups, or smaller ones.

    Args:
        workload: The workload.
        factor: Share of the members that remain, > 0 and <= 1; the actual share is larger for small workloads.
        where: Path of the file, for errors.

    Raises:
        ConfigError: The factor is out of range, or an expectation is about a number that depends on how many groups
            there are.
    """
    if not 0 < factor <= 1:
        raise ConfigError.of("--scale", factor, "a number > 0 and <= 1")
    if factor == 1:
        return workload
    if mistakes := [each for index, of in enumerate(workload.expect) for each in _mistakes(index, of)]:
        raise ConfigError.all_of(mistakes, where=where)
    populations = tuple(_scaled_groups(population, factor) for population in workload.groups)
    before = {population.name: population for population in workload.groups}
    after = {population.name: population for population in populations}
    pacing = workload.pacing
    if pacing.rate_per_s is not None:
        members = [sum(population.member_count for population in each) for each in (workload.groups, populations)]
        pacing = replace(pacing, rate_per_s=pacing.rate_per_s * members[1] / members[0])
    load = tuple(_scaled_load(each, before, after) for each in workload.load)
    return replace(workload, groups=populations, load=load, pacing=pacing)


def _mistakes(index: int, expectation: Expectation) -> list[ConfigError]:
    """Return an error for an expectation whose value would have to be scaled, too."""
    if expectation.value == 0 or expectation.per is not None or expectation.kind not in COUNTS:
        return []
    expected = f"'group' or 'member' with --scale, because {expectation.metric} depends on how many there are"
    return [ConfigError.missing(f"expect[{index}].per", expected)]


def _scaled_groups(population: Groups, factor: float) -> Groups:
    wanted, fewest = population.group_count * factor, min(population.group_count, FEWEST_GROUPS)
    count = max(fewest, round(wanted))
    smaller = _with_count(population, count)
    return _with_smaller_groups(smaller, wanted / count) if wanted < count == fewest else smaller


def _with_count(population: Groups, count: int) -> Groups:
    """Return a population with another number of groups, which start in the same time as before."""
    arrival = population.arrival
    if arrival.poisson_per_s is not None:
        arrival = replace(arrival, poisson_per_s=arrival.poisson_per_s * count / population.group_count)
    return replace(population, count=count, arrival=arrival)


def _with_smaller_groups(population: Groups, factor: float) -> Groups:
    """Return a population with smaller groups; unchanged if no group can have more than `FEWEST_MEMBERS` members."""
    grown = population.grow.instances if population.grow else 0
    most = population.max_members + grown
    if most <= FEWEST_MEMBERS:
        return population
    share = max(FEWEST_MEMBERS / most, factor)
    arrival = population.arrival
    smaller = replace(population, members=scaled_sizes(population.members, share))
    if arrival.poisson_per_s is not None and arrival.by == "member":
        rate_per_s = arrival.poisson_per_s * smaller.member_count / population.member_count
        arrival = replace(arrival, poisson_per_s=rate_per_s)
    grow = population.grow and replace(population.grow, instances=scaled_size(grown, share))
    return replace(smaller, arrival=arrival, grow=grow)


def scaled_sizes(members: int | Sizes, share: float) -> int | Sizes:
    """Return the size of groups, or its distribution, multiplied by a share."""
    if isinstance(members, int):
        return scaled_size(members, share)
    if members.uniform:
        fewest, most = (scaled_size(size, share) for size in members.uniform)
        return replace(members, uniform=(fewest, most))
    if members.max is not None:
        return replace(members, max=scaled_size(members.max, share))
    histogram: dict[str, float] = {}
    for size, weight in (members.histogram or {}).items():
        smaller = str(scaled_size(int(size), share))
        histogram[smaller] = histogram.get(smaller, 0) + weight
    return replace(members, histogram=histogram)


def scaled_size(size: int, share: float) -> int:
    """Return a number of members multiplied by a share, at least 1."""
    return max(1, round(size * share))


def _scaled_load(load: Load, before: Mapping[str, Groups], after: Mapping[str, Groups]) -> Load:
    """Return a load with a rate that is lower by the share of its groups that remain."""
    names = [load.groups] if load.groups is not None else list(before)
    rate_per_s, instances = load.rate_per_s, load.instances
    if rate_per_s is not None:
        groups = [sum(each[name].group_count for name in names) for each in (before, after)]
        rate_per_s *= groups[1] / groups[0]
    if instances is not None and load.groups is not None:
        grown, remaining = before[load.groups].grow, after[load.groups].grow
        if grown is not None and remaining is not None:
            instances = min(remaining.instances, scaled_size(instances, remaining.instances / grown.instances))
    return replace(load, rate_per_s=rate_per_s, instances=instances)
