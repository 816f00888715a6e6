"""Smaller scenarios, for `--scale`: fewer groups, and if those are few, smaller ones, as for workloads.

Times, timeouts, intervals, shares, topics, the cluster and its events stay as they are.
"""

from msgspec.structs import replace

from fakebroker.errors import ConfigError
from fakebroker.lab.scenario.groups import Groups
from fakebroker.lab.scenario.scenario import Scenario
from fakebroker.replay.workload.scale import FEWEST_GROUPS, FEWEST_MEMBERS, scaled_sizes


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """Return a scenario with fewer groups, or smaller ones.

    Args:
        scenario: The scenario.
        factor: Share of the members that remain, > 0 and <= 1; the actual share is larger for small scenarios.

    Raises:
        ConfigError: The factor is out of range.
    """
    if not 0 < factor <= 1:
        raise ConfigError.of("--scale", factor, "a number > 0 and <= 1")
    if factor == 1:
        return scenario
    return replace(scenario, groups=tuple(_scaled_groups(population, factor) for population in scenario.groups))


def _scaled_groups(population: Groups, factor: float) -> Groups:
    wanted, fewest = population.count * factor, min(population.count, FEWEST_GROUPS)
    count = max(fewest, round(wanted))
    members = population.members
    if wanted < count == fewest and population.max_members > FEWEST_MEMBERS:
        members = scaled_sizes(members, max(FEWEST_MEMBERS / population.max_members, wanted / count))
    arrival, smaller = population.arrival, replace(population, count=count, members=members)
    if arrival.poisson_per_s is not None:  # They start in the same time as before.
        before, after = population, smaller
        share = after.member_count / before.member_count if arrival.by == "member" else after.count / before.count
        smaller = replace(smaller, arrival=replace(arrival, poisson_per_s=arrival.poisson_per_s * share))
    return smaller
