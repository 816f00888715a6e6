"""Dry run of the `[[event]]` tables before a replay starts, on a cluster without members.

It finds mistakes in the file. Errors that depend on groups and members are reported by the replay.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fakebroker.cluster.events import checked, perform
from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.scheduler import VirtualClock
from fakebroker.replay.simulation.virtual_cluster import VirtualCluster, VirtualEnvironment
from fakebroker.replay.workload.timeline import WHEN, by_time, without_time
from fakebroker.replay.workload.workload import Cluster as ClusterSettings

OF_GROUPS = ("choose_leader", "delay_sync", "evict", "expire", "fence", "force_rebalance", "release_sync")
"""Events that need an existing group: only their arguments can be validated in advance."""

_OF_TIME = ("advance", "advance_to_next_deadline")
"""Events that need a manual clock."""

_OF_SOCKETS = ("reset", "set_broker")
_SOCKET_FAULTS = ("twice", "cut_bytes", "garble_bytes")
"""Events that need connections, and faults that change the bytes of a response."""


def rehearse(
    settings: ClusterSettings, topics: Mapping[str, int], events: Sequence[Mapping[str, Any]], *, in_memory: bool
) -> None:
    """Validate a cluster and the events that will happen to it.

    Args:
        settings: The cluster.
        topics: Names and partition counts.
        events: The tables of the file.
        in_memory: Whether the replay's cluster has no sockets.

    Raises:
        ConfigError: One is invalid; the message says which event, and what was expected.
    """
    clock = VirtualClock(0.0)
    environment = VirtualEnvironment(clock, lambda broker: None)
    cluster = VirtualCluster(settings, topics, 0, environment)
    for index, event in by_time(events):
        clock.moment_ms = event[WHEN] * 1000
        cluster.cluster.tick(clock.moment_ms)
        bare = without_time(event)
        environment.skips_steps = bare.get("do") in OF_GROUPS
        try:
            _check_means(bare, in_memory)
            perform(cluster.commands, bare)
        except ConfigError as error:
            raise error.within(f"event[{index}]") from None


def _check_means(event: Mapping[str, Any], in_memory: bool) -> None:
    """Check that a replay of this kind has what an event affects."""
    name, arguments = checked(event)
    if name in _OF_TIME:
        raise ConfigError.of("do", name, "an event that a replay allows, whose clock cannot be advanced")
    if in_memory and name in _OF_SOCKETS:
        raise ConfigError.of("do", name, "an event that does not need sockets, which a replay in memory lacks")
    for option in _SOCKET_FAULTS:
        if in_memory and name == "fail" and arguments.get(option):
            expected = "none: a replay in memory has no bytes that can be changed"
            raise ConfigError.of(option, arguments[option], expected)
