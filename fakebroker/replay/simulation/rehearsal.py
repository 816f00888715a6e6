"""The `[[event]]` tables tried out before anything starts, on a cluster that nobody is in.

What can be known then is a mistake of the file; what depends on groups and members is for the replay to tell.
"""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from fakebroker.cluster.broker import BrokerNode
from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.virtual_cluster import VirtualClock, VirtualCluster
from fakebroker.replay.workload.timeline import WHEN, by_time, without_time
from fakebroker.replay.workload.workload import Cluster as ClusterSettings
from fakebroker.server.events import checked, perform

OF_GROUPS = ("choose_leader", "delay_sync", "evict", "expire", "fence", "force_rebalance", "release_sync")
"""Events that need a group that there is: what is known of them beforehand is little."""

_OF_TIME = ("advance", "advance_to_next_deadline")
"""Events that need a clock that stands still by itself."""

_OF_SOCKETS = ("reset", "set_broker")
_SOCKET_FAULTS = ("twice", "cut_bytes", "garble_bytes")
"""What is done to connections, and faults that are done to the bytes of an answer."""


class _Stage(VirtualCluster):
    """A cluster without groups and connections, which is not held against an event."""

    def __init__(self, settings: ClusterSettings, topics: Mapping[str, int], clock: VirtualClock) -> None:
        super().__init__(settings, topics, 0, clock, lambda broker: None)
        self._reactor = cast(Any, SimpleNamespace(detours=SimpleNamespace(reach={})))  # all that `set_broker` needs

    def _keep_records(self) -> None:
        """A log like any other will do; a reset makes such."""

    def _refuse(self, broker: BrokerNode, refuses: bool) -> None:
        """There is no port."""

    def _script(self, group_id: str, action: Callable[..., None]) -> None:
        """There is no group yet."""


def rehearse(
    settings: ClusterSettings, topics: Mapping[str, int], events: Sequence[Mapping[str, Any]], *, in_memory: bool
) -> None:
    """Look whether a cluster and what is to happen to it can be.

    Args:
        settings: The cluster.
        topics: Names and partition counts.
        events: As they stand in the file.
        in_memory: Whether it is a cluster without sockets.

    Raises:
        ConfigError: It cannot; the sentence says which event, and what was expected.
    """
    clock = VirtualClock(0.0)
    stage = _Stage(settings, topics, clock)
    for index, event in by_time(events):
        clock.moment_ms = event[WHEN] * 1000
        stage.cluster.tick(clock.moment_ms)
        bare = without_time(event)
        try:
            _check_means(bare, in_memory)
            perform(stage, bare)
        except ConfigError as error:
            raise ConfigError(f"event[{index}]: {error}") from None
        except Exception as error:
            # What is in a list or a table is looked at by the event's method alone, and not by each of them.
            raise ConfigError(
                f"event[{index}]: {bare}: expected lists and tables as {bare['do']} takes them: {error!r}"
            ) from error


def _check_means(event: Mapping[str, Any], in_memory: bool) -> None:
    """Look whether there is in this replay what an event is done to."""
    name, arguments = checked(event)
    if name in _OF_TIME:
        raise ConfigError(f"{name}: expected one that can be done in a replay, whose time runs by itself")
    if in_memory and name in _OF_SOCKETS:
        raise ConfigError(f"{name}: expected one that can be done in memory, without sockets")
    for option in _SOCKET_FAULTS:
        if in_memory and name == "fail" and arguments.get(option):
            raise ConfigError(f"fail: {option}={arguments[option]!r} is done to bytes, which memory has none of")
