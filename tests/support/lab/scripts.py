"""Scripts of one or a few small groups, whose members start at the beginning."""

from collections.abc import Sequence

from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.script import BrokerEvent, ClusterPlan, GroupPlan, MemberEvent, Script, TopicEvent

TOPIC = "orders"
SESSION_TIMEOUT_MS = 10_000


def script(
    *events: MemberEvent | BrokerEvent | TopicEvent,
    groups: int = 1,
    members: int = 3,
    duration_ms: float = 60_000,
    partitions: int = 4,
    start: bool = True,
    brokers: int = 2,
    seed: int = 1,
) -> Script:
    """Return a script.

    Args:
        events: What happens besides the starts, in any order.
        groups: Number of groups, named "g-0" and so on.
        members: Members of each group; they are numbered from 0 in the order of groups.
        duration_ms: The length of the run.
        partitions: Partitions of the topic.
        start: Whether all members start within the first second.
        brokers: Number of brokers.
        seed: The seed.
    """
    plans = tuple(
        GroupPlan(
            group_id=f"g-{number}",
            topics=(TOPIC,),
            members=range(number * members, (number + 1) * members),
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        for number in range(groups)
    )
    starts = [MemberEvent(100.0 + 37 * number % 900, number, "start") for number in range(groups * members)]
    settings = CoordinatorSettings(offsets_partitions=4, initial_rebalance_delay_ms=500)
    return Script(
        cluster=ClusterPlan(brokers=brokers, topics={TOPIC: partitions}, coordinator=settings),
        groups=plans,
        events=in_order([*(starts if start else ()), *events]),
        duration_ms=duration_ms,
        seed=seed,
    )


def in_order(
    events: Sequence[MemberEvent | BrokerEvent | TopicEvent],
) -> tuple[MemberEvent | BrokerEvent | TopicEvent, ...]:
    """Return events ordered by time."""
    return tuple(sorted(events, key=lambda event: event.at_ms))
