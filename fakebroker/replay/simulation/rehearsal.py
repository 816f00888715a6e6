"""Validates the `[[event]]` tables of a workload before a replay, by running them on a virtual cluster without members.

Errors that depend on groups and members are found by the replay only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fakebroker.cluster.handles.conditions import condition_of
from fakebroker.cluster.handles.definition import perform
from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.scheduler import VirtualClock
from fakebroker.replay.simulation.virtual_cluster import VirtualCluster, VirtualEnvironment
from fakebroker.replay.workload.timeline import CONDITION_EVENTS, WHEN, actions_of, by_time, without_time
from fakebroker.replay.workload.workload import Cluster as ClusterSettings

GROUP_EVENTS = tuple(
    f"group.{name}"
    for name in (
        *("choose_leader", "delay_sync", "delete", "evict", "expire", "fence_epoch", "fence_instance", "rebalance"),
        *("release_sync", "set_offsets"),
    )
)
"""Events that need an existing group: a rehearsal validates their arguments only, as those of `CONDITION_EVENTS`."""

_CLOCK_EVENTS = ("advance", "advance_to_next_deadline")
"""Events that need a manual clock."""

_SOCKET_EVENTS = ("reset", "broker.set_network")
"""Events that need TCP connections."""

_BYTE_FAULTS = ("twice", "cut_bytes", "garble_bytes")
"""Options of faults that change the bytes of a response."""


def rehearse(
    settings: ClusterSettings, topics: Mapping[str, int], events: Sequence[Mapping[str, Any]], *, in_memory: bool
) -> None:
    """Validate the cluster's settings and the events of a workload.

    Args:
        settings: The cluster's settings.
        topics: Partition counts by name.
        events: The tables of the workload.
        in_memory: Whether the replay runs in memory, without sockets.

    Raises:
        ConfigError: Values are invalid. The message names each with its event, as `event[0].node_id=9: expected ...`.
    """
    clock = VirtualClock(0.0)
    environment = VirtualEnvironment(clock, lambda broker: None)
    cluster = VirtualCluster(settings, topics, 0, environment)
    mistakes: list[ConfigError] = []
    for index, event in by_time(events):
        clock.moment_ms = event[WHEN] * 1000
        cluster.cluster.tick(clock.moment_ms)
        bare = without_time(event)
        environment.skips_steps = bare.get("do") in (*GROUP_EVENTS, *CONDITION_EVENTS)
        try:
            _check_supported(bare, in_memory)
            perform(cluster.owner, bare)
            if in_memory:
                _check_conditions(bare, cluster)
        except ConfigError as error:
            mistakes += (mistake.within(f"event[{index}]") for mistake in error.mistakes)
    if mistakes:
        raise ConfigError.all_of(mistakes)


def _check_supported(event: Mapping[str, Any], in_memory: bool) -> None:
    """Check that replays of this kind support an event."""
    for action in actions_of(event):
        _check_supported(action, in_memory)
    name = event.get("do")
    if name in _CLOCK_EVENTS:
        raise ConfigError.of("do", name, "another event: the clock of a replay cannot be advanced")
    if in_memory and name in _SOCKET_EVENTS:
        raise ConfigError.of("do", name, "another event: a replay in memory has no sockets")
    for option in _BYTE_FAULTS:
        if in_memory and name == "inject_fault" and event.get(option):
            expected = "no value: a replay in memory does not encode responses"
            raise ConfigError.of(option, event[option], expected)


def _check_conditions(event: Mapping[str, Any], cluster: VirtualCluster) -> None:
    """Check that one simulation can evaluate the conditions of an event and of its fault's actions."""
    if "condition" in event:
        cluster.check_condition(event)
    for action in actions_of(event):
        if "condition" not in action:
            continue
        if event.get("group") is None and cluster.partitions_of(action):
            expected = (
                "no groups, unless the fault has `group`: a replay in memory simulates each partition of "
                "__consumer_offsets apart, with the faults of its requests"
            )
            raise ConfigError.of("condition", str(condition_of(action["condition"])), expected)
        cluster.check_condition(action, event.get("group"))
