"""Runs of the lab with one topic: scripts from few arguments, and all that a run has measured."""

from collections.abc import Iterable, Mapping
from typing import Any

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.designs import design_named
from fakebroker.lab.script import BrokerEvent, ClusterPlan, GroupPlan, MemberEvent, Script, TopicEvent
from fakebroker.lab.world.ownership import Rebalance
from fakebroker.lab.world.world import World

Event = MemberEvent | BrokerEvent | TopicEvent

TOPIC = "t"
BROKERS = 3


def starts(members: Iterable[int], *, every_ms: float = 100.0) -> list[Event]:
    """Return the start of each member, one after the other."""
    return [MemberEvent(number * every_ms, member, "start") for number, member in enumerate(members)]


def coordinator_of(group: int) -> int:
    """Return the first coordinator of a group."""
    return 1 + partition_for(f"g-{group}", CoordinatorSettings().offsets_partitions) % BROKERS


def play(
    design: str,
    events: Iterable[Event],
    *,
    groups: int = 1,
    size: int = 3,
    partitions: int = 6,
    duration_ms: float = 600_000.0,
    session_timeout_ms: int = 45_000,
    commit_interval_ms: int = 5_000,
    seed: int = 1,
    rests: bool = True,
) -> World:
    """Play events with groups "g-0", "g-1" ..., of which each has the next `size` members."""
    plans = tuple(
        GroupPlan(
            group_id=f"g-{number}",
            topics=(TOPIC,),
            members=range(number * size, (number + 1) * size),
            session_timeout_ms=session_timeout_ms,
            commit_interval_ms=commit_interval_ms,
        )
        for number in range(groups)
    )
    script = Script(
        cluster=ClusterPlan(brokers=BROKERS, topics={TOPIC: partitions}, metadata_max_age_ms=30_000.0),
        groups=plans,
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        duration_ms=duration_ms,
        seed=seed,
    )
    world = World(design_named(design), script, rests=rests)
    world.run()
    return world


def owners(world: World, group: int = 0) -> dict[int, list[tuple[str, int]]]:
    """Return the partitions of each running member at the end."""
    return {member: sorted(owned) for member, owned in world.ownership.groups[f"g-{group}"].owned.items()}


def is_complete(world: World, group: int = 0) -> bool:
    """Return whether each partition has one owner at the end, and no rebalance is in progress."""
    found = world.ownership.groups[f"g-{group}"]
    return found.is_complete and found.rebalance is None


def rebalances(world: World, after_ms: float) -> list[Rebalance]:
    """Return the rebalances that begin after a time from the start of the run."""
    return [each for each in world.ownership.rebalances if each.from_ms >= world.start_ms + after_ms]


def double_ms(world: World) -> float:
    """Return the partition-milliseconds with two owners."""
    return sum(group.double_ms for group in world.ownership.groups.values())


def measurements(world: World) -> Mapping[str, Any]:
    """Return all that a run has measured, except requests by second."""
    groups = world.ownership.groups
    return {
        "rebalances": [
            (each.group_id, each.cause, each.from_ms, each.until_ms, each.changes, each.messages, each.bytes)
            for each in world.ownership.rebalances
        ],
        "unowned": {group_id: group.unowned_ms for group_id, group in groups.items()},
        "double": {group_id: group.double_ms for group_id, group in groups.items()},
        "spans": {group_id: dict(group.spans) for group_id, group in groups.items()},
        "repeated and lost": world.ownership.repeated_and_lost(),
        "failures": (world.failures.mistakes, world.failures.noticed_ms, world.failures.errors),
        "traffic": {kind: (count.messages, count.bytes) for kind, count in world.traffic.by_kind.items()},
        "requests": {
            node_id: round(sum(counts)) for node_id, counts in world.traffic.requests_per_s().items() if sum(counts) > 0
        },
        "owners": {group_id: group.owned for group_id, group in groups.items()},
    }
