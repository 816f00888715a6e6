"""What all commands share: the cluster that they change, and the environment with side effects and time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.environment import Environment
from fakebroker.cluster.emulation import Broker
from fakebroker.errors import ConfigError, one_of

T = TypeVar("T")


class CommandsBase:
    """The cluster and the environment of commands.

    Args:
        cluster: The cluster.
        environment: Side effects and time: real or simulated.
        new_cluster: Creates a cluster in the initial state of this one, with the same cluster id and the same
            sequence of generated ids; used by `reset`.
        default_broker: Release and versions of brokers that `add_broker` adds.
        proposals: Names of experimental proposals, such as "rewrite". A broker implements them after `add_broker` or
            `upgrade_broker`, if it has the newest release.
    """

    def __init__(
        self,
        cluster: Cluster,
        environment: Environment,
        *,
        new_cluster: Callable[[], Cluster],
        default_broker: Broker | None = None,
        proposals: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._environment = environment
        self._new_cluster = new_cluster
        self._default_broker = default_broker or Broker()
        self._proposals = tuple(proposals)

    def _run(self, step: Callable[[], T]) -> T:
        return self._environment.run(step)

    def _change(self, step: Callable[[], T], log_bytes: int = 0) -> T:
        """Run a step that changes what is stored.

        Args:
            step: The step.
            log_bytes: The size of the logs that it adds, unless they ask for space themselves.

        Raises:
            DiskFullError: There is no space to store it.
        """
        if self._cluster.storage is not None:
            self._cluster.storage.require_space(log_bytes=log_bytes)
        return self._run(step)

    def _now_ms(self) -> float:
        return self._environment.now_ms()

    def _broker(self, node_id: int, *, up: bool | None = None, field: str = "node_id") -> BrokerNode:
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            raise ConfigError.of(field, node_id, one_of(self._cluster.brokers))
        if up is not None and broker.up is not up:
            others = [each.node_id for each in self._cluster.brokers.values() if each.up is up]
            state = "up" if up else "down"
            raise ConfigError.of(field, node_id, f"a broker that is {state}: {one_of(others, none='there is none')}")
        return broker
