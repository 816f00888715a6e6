"""Commands that move the coordinators of groups and transactional ids."""

from collections.abc import Callable
from typing import Unpack

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.replication.coordinator_moves import Failover, FailoverOptions
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition
from fakebroker.errors import ConfigError


class CoordinatorCommands(CommandsBase):
    """Commands for failovers of coordinators."""

    @command
    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move the coordinator of a group to another broker.

        All groups in the same partition of __consumer_offsets move with it. The old coordinator resigns: its parked
        requests get NOT_COORDINATOR. The new coordinator loads the groups from the partition's log.

        Args:
            group_id: Id of the group.
            to: Node id of the new coordinator. None: the group has no coordinator (COORDINATOR_NOT_AVAILABLE) until it
                is moved again, or its previous coordinator restarts.
            how: Options of the failover. `load_ms`: how long the new coordinator loads, in milliseconds of the brokers'
                clock; None is until `finish_loading`. `load_fails`: it cannot load, and responds with NOT_COORDINATOR
                until the next move. `lose_tail`: how many of the newest records are lost. `lose_all`: all records are
                lost. `zombie`: the old coordinator keeps responding until `stop_zombies`. `stale_ms`: how long
                FindCoordinator still returns the old coordinator, in milliseconds of the brokers' clock.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """
        self.move_offsets_partition(self._cluster.offsets_partition_of(group_id).index, to, **how)

    @command
    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a partition of __consumer_offsets, and with it the coordinator of its groups, to another broker.

        See `move_coordinator`, which finds the partition of a group.

        Args:
            partition: Number of the partition.
            to: Node id of the new leader. None: the partition has no leader, as in `move_coordinator`.
            how: Options of the failover; see `move_coordinator`.

        Raises:
            ConfigError: The partition or broker does not exist, the broker is down, or an option is out of range or
                without effect.
        """

        def offsets_partition() -> Partition:
            self._cluster.first_use.finish(OFFSETS_TOPIC, self._now_ms())
            self._cluster.topics.show_offsets_topic()
            count = len(self._cluster.topics.offsets_topic.partitions)
            if not 0 <= partition < count:
                raise ConfigError.of("partition", partition, f"0 to {count - 1}")
            return self._cluster.offsets_partition(partition)

        self._move(offsets_partition, to, Failover(**how))

    @command
    def move_transaction_coordinator(
        self, transactional_id: str, to: int | None, **how: Unpack[FailoverOptions]
    ) -> None:
        """Move the coordinator of a transactional id to another broker.

        All ids in the same partition of __transaction_state move with it. The old coordinator resigns: requests whose
        records are held get NOT_COORDINATOR. The new coordinator loads the ids from the partition's log, and writes the
        markers of transactions that are prepared. If the log does not exist, it is created.

        Args:
            transactional_id: The transactional id, which need not exist.
            to: Node id of the new coordinator. None: the id has no coordinator (COORDINATOR_NOT_AVAILABLE) until it is
                moved again, or its previous coordinator restarts.
            how: Options of the failover; see `move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """

        def transactions_partition() -> Partition:
            self._cluster.first_use.finish(TRANSACTIONS_TOPIC, self._now_ms())
            return self._cluster.transactions_partition_of(transactional_id)

        self._move(transactions_partition, to, Failover(**how))

    def _move(self, find: Callable[[], Partition], to: int | None, how: Failover) -> None:
        """Change the leader of a partition of an internal topic, which `find` returns."""

        def move() -> None:
            leader_id = NO_LEADER if to is None else self._broker(to, up=True, field="to").node_id
            self._check_failover(how, (), has_successor=to is not None)
            self._cluster.controller.set_leader(find(), leader_id, self._now_ms(), how)

        self._change(move)

    @command
    def finish_loading(self) -> None:
        """Finish loading in all coordinators that are loading, even if their `load_ms` has not passed."""
        self._run(lambda: self._cluster.controller.finish_loading(self._now_ms()))

    @command
    def stop_zombies(self) -> None:
        """Make all zombies resign: coordinators that continue to answer after a failover with `zombie`."""
        self._run(lambda: self._cluster.controller.stop_zombies(self._now_ms()))

    @command
    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None:
        """Run a preferred leader election for all partitions.

        The first replica of each partition becomes its leader, if the broker is up. Coordinators of groups move with
        their partitions of __consumer_offsets. Use it after `start_broker` to move leaders back; with the broker
        setting `auto.leader.rebalance.enable` the brokers do so themselves, after a time.

        Args:
            how: Options of the failover of coordinators; see `move_coordinator`.

        Raises:
            ConfigError: An option is out of range or without effect.
        """
        options = Failover(**how)

        def elect() -> None:
            controller = self._cluster.controller
            partitions = (partition for topic in self._cluster.topics.all() for partition in topic.partitions)
            self._check_failover(options, filter(controller.can_lead_again, partitions))
            controller.elect_preferred(self._now_ms(), options)

        self._change(elect)
