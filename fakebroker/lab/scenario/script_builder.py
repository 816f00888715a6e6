"""The script of a run from a scenario and a seed. Equal arguments give equal scripts.

Each kind of behavior of each population draws from random numbers of its own, so that adding one does not change the
others.
"""

import random
from collections.abc import Iterator, Sequence
from math import log
from typing import Any

from msgspec.structs import fields

from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.scenario.groups import Groups, Losses, Pauses
from fakebroker.lab.scenario.scenario import Cluster, Event, Scenario
from fakebroker.lab.script import (
    BrokerDo,
    BrokerEvent,
    ClusterPlan,
    GroupPlan,
    MemberDo,
    MemberEvent,
    Script,
    TopicEvent,
)
from fakebroker.replay.workload.behavior import Behavior
from fakebroker.replay.workload.population import Arrival
from fakebroker.replay.workload.table import Span, ends

_BROKER_EVENTS: dict[str, BrokerDo] = {"stop_broker": "stop", "vanish_broker": "vanish", "start_broker": "start"}
_LOSSES: dict[str, tuple[MemberDo, ...]] = {
    "requests": ("lose_request",),
    "responses": ("lose_response",),
    "both": ("lose_request", "lose_response"),
}


def script_of(scenario: Scenario, seed: int) -> Script:
    """Return the script of a run.

    Args:
        scenario: The scenario.
        seed: The seed of all random choices.
    """
    groups: list[GroupPlan] = []
    events: list[MemberEvent | BrokerEvent | TopicEvent] = [_event(event) for event in scenario.event]
    first = 0
    for population in scenario.groups:
        plans = _groups(population, tuple(scenario.topics), first, _random(seed, population, "sizes"))
        groups += plans
        events += _member_events(population, plans, seed, scenario.duration_s)
        first = plans[-1].members.stop
    return Script(
        cluster=_cluster(scenario.cluster, scenario.topics),
        groups=tuple(groups),
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        duration_ms=scenario.duration_s * 1000,
        seed=seed,
    )


def _random(seed: int, population: Groups, what: str) -> random.Random:
    return random.Random(f"{seed} {population.name} {what}")


def _cluster(cluster: Cluster, topics: dict[str, int]) -> ClusterPlan:
    settings = {field.name: getattr(cluster, field.name) for field in fields(CoordinatorSettings)}
    plan: dict[str, Any] = {
        field.name: getattr(cluster, field.name) for field in fields(ClusterPlan) if hasattr(cluster, field.name)
    }
    return ClusterPlan(**plan, topics=topics, coordinator=CoordinatorSettings(**settings))


def _event(event: Event) -> BrokerEvent | TopicEvent:
    if event.topic is not None and event.partitions is not None:
        return TopicEvent(event.at_s * 1000, event.topic, event.partitions)
    assert event.node_id is not None
    return BrokerEvent(event.at_s * 1000, event.node_id, _BROKER_EVENTS[event.do])


def _groups(population: Groups, topics: tuple[str, ...], first: int, rng: random.Random) -> list[GroupPlan]:
    """Return the groups of a population, whose members are numbered from `first`."""
    sizes = [population.members] * population.count if isinstance(population.members, int) else []
    if not isinstance(population.members, int):
        weights = population.members.weights
        sizes = rng.choices(list(weights), list(weights.values()), k=population.count)
    digits = len(str(population.count - 1))
    topics = population.topics or topics
    plans = []
    for number, size in enumerate(sizes):
        plans.append(
            GroupPlan(
                group_id=f"{population.name}-{number:0{digits}}",
                topics=topics,
                members=range(first, first + size),
                session_timeout_ms=population.session_timeout_ms,
                heartbeat_interval_ms=population.heartbeat_interval_ms,
                rebalance_timeout_ms=population.rebalance_timeout_ms,
                commit_interval_ms=population.commit_interval_ms,
                retry_backoff_ms=population.retry_backoff_ms,
                assignor=population.assignor,
            )
        )
        first += size
    return plans


def _member_events(
    population: Groups, groups: Sequence[GroupPlan], seed: int, duration_s: float
) -> Iterator[MemberEvent]:
    members = range(groups[0].members.start, groups[-1].members.stop)
    for at_s, number in _starts(population.arrival, groups, _random(seed, population, "arrival")):
        yield MemberEvent(at_s * 1000, number, "start")
    if population.restart is not None:
        rng, restart = _random(seed, population, "restart"), population.restart
        for group in groups:
            first_s = _drawn(restart.at_s, rng)
            for place, number in enumerate(group.members):
                at_s = first_s + place * restart.every_s
                yield MemberEvent(at_s * 1000, number, "leave")
                yield MemberEvent((at_s + _drawn(restart.return_after_s, rng)) * 1000, number, "start")
    behaviors: dict[MemberDo, Behavior | None] = {
        "leave": population.leave,
        "crash": population.crash,
        "vanish": population.vanish,
        "cut": population.cut,
        "slow": population.slow,
    }
    for do, behavior in behaviors.items():
        if behavior is not None:
            yield from _once(do, behavior, members, _random(seed, population, do))
    if population.pause is not None:
        yield from _pauses(population.pause, members, duration_s, _random(seed, population, "pause"))
    if population.lose is not None:
        yield from _losses(population.lose, members, duration_s, _random(seed, population, "lose"))


def _drawn(span: Span, rng: random.Random) -> float:
    """Return a number of seconds in a span."""
    return rng.uniform(*ends(span))


def _starts(arrival: Arrival, groups: Sequence[GroupPlan], rng: random.Random) -> Iterator[tuple[float, int]]:
    """Yield each member with its start, in seconds. The order of starts is random."""
    units = [group.members for group in groups]
    if arrival.by == "member":
        units = [range(number, number + 1) for members in units for number in members]
    if arrival.poisson_per_s is not None or arrival.ramp_s is not None or arrival.bursts is not None:
        rng.shuffle(units)
    at_s = arrival.at_s
    for unit in units:
        start_s = arrival.at_s
        if arrival.poisson_per_s is not None:
            at_s += rng.expovariate(arrival.poisson_per_s)
            start_s = at_s
        elif arrival.ramp_s is not None:
            start_s += rng.uniform(0, arrival.ramp_s)
        elif arrival.bursts is not None and arrival.every_s is not None:
            start_s += rng.randrange(arrival.bursts) * arrival.every_s
        yield from ((start_s, number) for number in unit)


def _chosen(share: float, members: Sequence[int], rng: random.Random) -> list[int]:
    """Return a share of members, at least one if it is not 0, in their order."""
    count = min(len(members), max(1, round(share * len(members)))) if share else 0
    return sorted(rng.sample(members, count))


def _once(do: MemberDo, behavior: Behavior, members: Sequence[int], rng: random.Random) -> Iterator[MemberEvent]:
    for_s, return_after_s = getattr(behavior, "for_s", 0.0), getattr(behavior, "return_after_s", None)
    extra_ms = getattr(behavior, "extra_ms", 0.0)
    for number in _chosen(behavior.share, members, rng):
        at_s = _drawn(behavior.at_s, rng)
        yield MemberEvent(at_s * 1000, number, do, _drawn(for_s, rng) * 1000, extra_ms)
        if return_after_s is not None:
            yield MemberEvent((at_s + _drawn(return_after_s, rng)) * 1000, number, "start")


def _pauses(pauses: Pauses, members: Sequence[int], duration_s: float, rng: random.Random) -> Iterator[MemberEvent]:
    until_s, location = duration_s if pauses.until_s is None else pauses.until_s, log(pauses.median_ms)
    for number in _chosen(pauses.share, members, rng):
        at_s = pauses.from_s + rng.expovariate(1 / pauses.every_s)
        while at_s < until_s:
            for_ms = min(rng.lognormvariate(location, pauses.sigma), pauses.max_ms)
            yield MemberEvent(at_s * 1000, number, "pause", for_ms)
            at_s += for_ms / 1000 + rng.expovariate(1 / pauses.every_s)


def _losses(losses: Losses, members: Sequence[int], duration_s: float, rng: random.Random) -> Iterator[MemberEvent]:
    until_s = duration_s if losses.until_s is None else losses.until_s
    for number in _chosen(losses.share, members, rng):
        at_s = losses.from_s + rng.expovariate(1 / losses.every_s)
        while at_s < until_s:
            yield MemberEvent(at_s * 1000, number, rng.choice(_LOSSES[losses.of]))
            at_s += rng.expovariate(1 / losses.every_s)
