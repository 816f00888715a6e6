"""A cluster in this process: the owner that runs commands and views of handles, and the moments that conditions see."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.handles.environment import Environment
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import NO_LEADER, Partition
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.errors import ConfigError, one_of
from fakebroker.topic_partition import format_partitions

T = TypeVar("T")


class Local:
    """A cluster in this process, with real or simulated side effects.

    Args:
        cluster: The cluster.
        environment: Side effects and time: real or simulated.
        seed: The seed of the cluster, for reports.
        new_cluster: Creates a cluster in the initial state of this one, with the same cluster id and the same
            sequence of generated ids; used by `reset`.
        default_broker: Release and versions of brokers that are added.
        proposals: Names of proposals (`fakebroker.proposals`) for brokers that are added or upgraded. Only brokers of
            the newest release implement proposals.
    """

    def __init__(
        self,
        cluster: Cluster,
        environment: Environment,
        *,
        seed: int = 0,
        new_cluster: Callable[[], Cluster],
        default_broker: Broker | None = None,
        proposals: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self.environment = environment
        self.seed = seed
        self.new_cluster = new_cluster
        self.default_broker = default_broker or Broker()
        self.proposals = tuple(proposals)

    def perform(self, handle: Any, definition: Any, arguments: dict[str, Any]) -> Any:
        """Run a command or a view. Its method uses `run` for what has to happen in the cluster's thread."""
        return definition.method(handle, **arguments)

    def run(self, step: Callable[[], T]) -> T:
        """Run a step in the cluster's thread, between two requests, and then process what is due."""
        return self.environment.run(step)

    def change(self, step: Callable[[], T], log_bytes: int = 0) -> T:
        """Run a step that changes what is stored.

        Args:
            step: The step.
            log_bytes: The size of the logs that it adds, unless they ask for space themselves.

        Raises:
            DiskFullError: There is no space to store it.
        """
        if self.cluster.storage is not None:
            self.cluster.storage.require_space(log_bytes=log_bytes)
        return self.run(step)

    def now_ms(self) -> float:
        """Return the brokers' time in milliseconds since the Unix epoch."""
        return self.environment.now_ms()

    def broker(self, node_id: int, *, up: bool | None = None, field: str = "node_id") -> BrokerNode:
        """Return a broker.

        Args:
            node_id: Its node id.
            up: Whether it has to be up; None if that does not matter.
            field: The name of the argument with the node id, for errors.

        Raises:
            ConfigError: There is no such broker, or it is not up or down as required.
        """
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            raise ConfigError.of(field, node_id, one_of(self.cluster.brokers))
        if up is not None and broker.up is not up:
            others = [each.node_id for each in self.cluster.brokers.values() if each.up is up]
            state = "up" if up else "down"
            raise ConfigError.of(field, node_id, f"a broker that is {state}: {one_of(others, none='there is none')}")
        return broker

    def check_failover(
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
                        "move_coordinator of a group or a transactional id loses the records of a coordinator"
                    )
                    raise ConfigError.of(name, lost, expected)

    def move_leader(self, find: Callable[[], Partition], to: int | None, how: Failover, *, field: str = "to") -> None:
        """Change the leader of a partition of an internal topic, which `find` returns.

        Args:
            find: Returns the partition.
            to: Node id of the new leader; None for none.
            how: Options of the failover.
            field: The name of the argument with the node id, for errors.

        Raises:
            ConfigError: The broker does not exist or is down, or an option would have no effect.
        """

        def move() -> None:
            leader_id = NO_LEADER if to is None else self.broker(to, up=True, field=field).node_id
            self.check_failover(how, (), has_successor=to is not None)
            self.cluster.controller.set_leader(find(), leader_id, self.now_ms(), how)

        self.change(move)


class Instant:
    """A moment in which conditions are evaluated: the present, or a moment of one group or transactional id.

    Attributes:
        local: The cluster. It may have changed since the moment.
        now_ms: The brokers' time, in milliseconds since the Unix epoch.
        condition: The condition that is being evaluated.
    """

    condition: object

    def __init__(
        self,
        local: Local,
        memory: dict[int, Any] | None = None,
        *,
        group: tuple[str, Moment] | None = None,
        transaction: tuple[str, TransactionMoment] | None = None,
    ) -> None:
        self.local = local
        self._memory = {} if memory is None else memory
        self._group, self._transaction = group, transaction

    @property
    def cluster(self) -> Cluster:
        return self.local.cluster

    @property
    def now_ms(self) -> float:
        return self.local.now_ms()

    def of_group(self, group_id: str) -> Moment | None:
        """Return the moment of a group's history; None if the group is as it is now."""
        return self._group[1] if self._group is not None and self._group[0] == group_id else None

    def of_transaction(self, transactional_id: str) -> TransactionMoment | None:
        """Return the moment of the history of a transactional id; None if it is as it is now."""
        found = self._transaction
        return found[1] if found is not None and found[0] == transactional_id else None

    def remembered(self, make: Callable[[], T]) -> T:
        """Return what `make` has returned when the condition was evaluated first in this wait."""
        key = id(self.condition)
        if key not in self._memory:
            self._memory[key] = make()
        found: T = self._memory[key]
        return found

    def forget(self) -> None:
        """Forget what `remembered` has returned for the condition, for example because the cluster was reset."""
        self._memory.pop(id(self.condition), None)
