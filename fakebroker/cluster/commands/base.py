"""What all commands share: the cluster that they change, and the environment with side effects and time."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.environment import Environment
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ConfigError, one_of
from fakebroker.topic_partition import format_partitions

T = TypeVar("T")


class CommandsBase:
    """The cluster and the environment of commands.

    Args:
        cluster: The cluster.
        environment: Side effects and time: real or simulated.
        new_cluster: Creates a cluster in the initial state of this one, with the same cluster id and the same
            sequence of generated ids; used by `reset`.
        default_broker: Release and versions of brokers that `add_broker` adds.
        proposals: Names of proposals (`fakebroker.proposals`) for the brokers of `add_broker` and `upgrade_broker`.
            Only brokers of the newest release implement proposals.
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

    def _check_failover(
        self, how: Failover, partitions: Iterable[Partition], *, stops: bool = False, has_successor: bool = True
    ) -> None:
        """Check that no option of a failover would be ignored, before anything changes.

        Args:
            how: The options.
            partitions: The partitions whose leaders change.
            stops: Whether the old coordinator stops.
            has_successor: Whether there may be a new coordinator.

        Raises:
            ConfigError: An option would have no effect.
        """
        if stops and how.zombie:
            raise ConfigError.of("zombie", value=True, expected="false, because the old coordinator stops")
        if not has_successor:
            for name, value in (("load_ms", how.load_ms), ("load_fails", how.load_fails)):
                if value != 0:
                    raise ConfigError.of(name, value, "no such option, because there is no new coordinator that loads")
        name = "lose_all" if how.lose_all else "lose_tail"
        if lost := getattr(how, name):
            for each in partitions:
                # Only logs of internal topics are truncated.
                if not each.topic.is_internal and each.log.log_end_offset > each.log.log_start_offset:
                    kept = format_partitions([(each.topic.name, each.index)])
                    expected = (
                        f"no such option, because {kept} gets another leader and its records cannot be lost; "
                        "move_coordinator and move_transaction_coordinator lose those of a coordinator"
                    )
                    raise ConfigError.of(name, lost, expected)
