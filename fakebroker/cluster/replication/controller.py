"""`Controller`: leader elections, reassignments, and stops and starts of brokers.

In Kafka the controller decides and brokers follow; here both happen in one call. Coordinators move with the leaders of
their partitions (`coordinator_moves.py`). Depends on brokers, topics and delayed Fetch requests; not on `Cluster` or
requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.fetch_purgatory import FetchPurgatory
from fakebroker.cluster.replication.coordinator_moves import CoordinatorMoves, Failover
from fakebroker.cluster.replication.replica_copies import Copy, ReplicaCopies
from fakebroker.cluster.topics import NO_LEADER, Partition, Topics
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.protocol.releases import Release


class LeaderBalance(msgspec.Struct, frozen=True):
    """When preferred leaders are elected automatically (`auto.leader.rebalance.enable`).

    Attributes:
        interval_ms: Time from the moment when a partition gets another leader than its preferred one, its first
            replica, to the election. While there are such partitions, elections are repeated at this interval.
        percentage: In releases before 4.0, which could have a controller with ZooKeeper: a broker becomes the leader
            of the partitions that prefer it only if more than this percentage of them have another leader.
    """

    interval_ms: float
    percentage: int


FIRST_RELEASE_WITHOUT_ZOOKEEPER = Release(4, 0)


@dataclass(slots=True)
class Controller:
    """Elects leaders and moves replicas and coordinators.

    Coordinators that resign reject their parked requests; the caller sends these answers with `RequestPath.settle`.

    Attributes:
        brokers: The brokers of the cluster, by node id.
        topics: The topics of the cluster.
        purgatory: The delayed Fetch requests, which are completed when a leader changes.
        copies: The copies of reassignments in progress.
        moves: The moves of coordinators, by the names of their internal topics.
        queue: The timers of the cluster.
        balance: When preferred leaders are elected automatically; None if they are not.
    """

    brokers: Mapping[int, BrokerNode]
    topics: Topics
    purgatory: FetchPurgatory
    copies: ReplicaCopies
    moves: Mapping[str, CoordinatorMoves[Any]]
    queue: TimerQueue[Any]
    balance: LeaderBalance | None = None
    _balance_timer: TimedValue[str] = field(default_factory=lambda: TimedValue("preferred leaders"))
    _balance_timers: Timers[TimedValue[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.copies.timers = self.queue.service(Rank.CONTROLLER, self._end_copies)
        self._balance_timers = self.queue.service(Rank.LEADER_BALANCE, self._balance_leaders)

    # Leaders

    def set_leader(self, partition: Partition, node_id: int, now_ms: float, how: Failover) -> None:
        """Change the leader of a partition and increment its leader epoch.

        With NO_LEADER the partition has no leader until its last leader starts. If the new leader is not a replica, it
        becomes one in place of the first target replica, and a reassignment in progress ends with the target replicas.
        It also ends if it only waited for this leader. The coordinator of an internal topic's partition moves with it.
        """
        old_id, partition.leader_id = partition.leader_id, node_id
        partition.leader_epoch += 1
        partition.log.producers.forget_verifications()
        partition.awaits_last_leader = node_id == NO_LEADER
        if node_id != NO_LEADER:
            partition.last_leader_id = node_id
            if node_id not in partition.replicas:
                self.topics.set_replicas(partition, (*partition.target_replicas[1:], node_id))
                partition.adding = partition.removing = partition.copying = ()
            partition.copying = tuple(copying for copying in partition.copying if copying != node_id)
            self.copies.keep(partition)
        self.topics.record(partition.topic)
        self.copies.reschedule(now_ms)
        self.purgatory.release(partition)
        self._schedule_balance(partition, now_ms)
        if (moves := self.moves.get(partition.topic.name)) is not None:
            moves.move(partition, old_id, now_ms, how)
        if partition.is_reassigning:
            self._finish_reassignment(partition, now_ms, how)

    def elect(self, partition: Partition, now_ms: float, how: Failover) -> None:
        """Elect the first replica that is eligible. If none is, the first one that starts will become the leader."""
        eligible = self.eligible(partition)
        self.set_leader(partition, eligible[0] if eligible else NO_LEADER, now_ms, how)
        partition.awaits_last_leader = False

    def eligible(self, partition: Partition) -> list[int]:
        """Return the node ids of the replicas that may lead: those that are up and do not copy the log any more."""
        return [
            node_id for node_id in partition.replicas if self.brokers[node_id].up and node_id not in partition.copying
        ]

    # Reassignments

    def reassign(self, partition: Partition, target: Sequence[int], now_ms: float, how: Failover) -> None:
        """Move a partition to the brokers `target`: immediately, or when all of them are up and have copied the log.

        A partition that awaits its last leader is moved after that leader has started, because new replicas copy from
        the leader.
        """
        in_sync = [node_id for node_id in partition.replicas if node_id not in partition.copying]
        current = partition.replicas
        new = {*target}.difference(current).union(partition.adding, partition.copying)
        partition.adding = tuple(node_id for node_id in target if node_id in new)
        partition.removing = tuple(node_id for node_id in sorted(current) if node_id not in target)
        self.topics.set_replicas(partition, (*target, *partition.removing))
        partition.copying = tuple(node_id for node_id in partition.replicas if node_id not in in_sync)
        self.copies.keep(partition)
        self.copies.reschedule(now_ms)
        self._finish_copies(self.copies.due(now_ms), now_ms, how)
        self._finish_reassignment(partition, now_ms, how)

    def cancel_reassignment(self, partition: Partition, now_ms: float, how: Failover) -> None:
        """Restore the replicas that a partition had before its reassignment."""
        kept = [node_id for node_id in partition.replicas if node_id not in partition.adding]
        self._place(partition, kept, now_ms, how)

    def hold_copies(self, topic: str, now_ms: float) -> None:
        """Make the copies of a topic wait for `release_copies`."""
        self.copies.held_topics.add(topic)
        self.copies.reschedule(now_ms)

    def release_copies(self, topic: str, now_ms: float) -> None:
        """Let the copies of a topic continue."""
        self.copies.held_topics.discard(topic)
        self.copies.reschedule(now_ms)
        self._finish_copies(self.copies.due(now_ms), now_ms, Failover())

    def finish_copies(self, topic: str, now_ms: float) -> None:
        """Finish the copies of a topic, except those that wait for a broker or a leader."""
        copies = [each for each in self.copies if each.partition.topic.name == topic and self.copies.can_run(each)]
        self._finish_copies(copies, now_ms, Failover())

    def _finish_copies(self, copies: Sequence[Copy], now_ms: float, how: Failover) -> None:
        """Finish copies, and the reassignments whose last copies they are."""
        for copy in copies:
            partition = copy.partition
            partition.copying = tuple(node_id for node_id in partition.copying if node_id != copy.node_id)
            self.topics.record(partition.topic)
            self.copies.keep(partition)
        if copies:
            self.copies.reschedule(now_ms)
        for partition in {id(copy.partition): copy.partition for copy in copies}.values():
            if partition.is_reassigning:
                self._finish_reassignment(partition, now_ms, how)

    def _finish_reassignment(self, partition: Partition, now_ms: float, how: Failover) -> None:
        target = partition.target_replicas
        if not partition.awaits_last_leader and set(target) <= set(self.eligible(partition)):
            self._place(partition, target, now_ms, how)

    def _place(self, partition: Partition, replicas: Sequence[int], now_ms: float, how: Failover) -> None:
        """Set the replicas of a partition. As in Kafka, the leader epoch is incremented if a replica is removed.

        A leader is elected if the current one is not among the replicas. A partition that awaits its last leader elects
        a leader only if its last leader is no longer a replica.
        """
        gone = [node_id for node_id in partition.replicas if node_id not in replicas]
        self.topics.set_replicas(partition, replicas)
        partition.adding = partition.removing = partition.copying = ()
        self.copies.keep(partition)
        self.copies.reschedule(now_ms)
        if partition.awaits_last_leader:
            needs_leader = partition.last_leader_id in gone
        else:
            needs_leader = partition.leader_id not in replicas
        if needs_leader:
            self.elect(partition, now_ms, how)
        elif gone:
            partition.leader_epoch += 1
            self.purgatory.release(partition)
        self._schedule_balance(partition, now_ms)

    # Preferred leaders

    def can_lead_again(self, partition: Partition) -> bool:
        """Whether the preferred leader of a partition is not its leader, but is eligible."""
        preferred = partition.replicas[0]
        return partition.leader_id != preferred and preferred in self.eligible(partition)

    def elect_preferred(self, now_ms: float, how: Failover) -> None:
        """Make each eligible preferred leader the leader of its partition."""
        for topic in self.topics.all():
            for partition in topic.partitions:
                if self.can_lead_again(partition):
                    self.set_leader(partition, partition.replicas[0], now_ms, how)

    def schedule_balance(self, now_ms: float) -> None:
        """Schedule an automatic election if a partition has another leader than its preferred one."""
        if self.balance is not None:
            for topic in self.topics.all():
                for partition in topic.partitions:
                    self._schedule_balance(partition, now_ms)

    def _schedule_balance(self, partition: Partition, now_ms: float) -> None:
        if self.balance is not None and partition.leader_id != partition.replicas[0]:
            self._balance_timers.schedule(self._balance_timer, now_ms + self.balance.interval_ms)

    @property
    def balance_due_ms(self) -> float | None:
        """When the next automatic election is due; None if all partitions have their preferred leader."""
        due_ms = self._balance_timer.scheduled_ms
        return None if due_ms == inf else due_ms

    def forget_balance(self) -> None:
        """Cancel the next automatic election, for a reset."""
        self._balance_timers.cancel(self._balance_timer)

    def _balance_leaders(self, timer: object, due_ms: float, now_ms: float) -> None:
        """Elect preferred leaders and schedule the next election.

        Since 4.0, all preferred leaders are elected (ReplicationControlManager.maybeBalancePartitionLeaders).

        Before 4.0, a broker is elected only if more than `balance.percentage` percent of the partitions that prefer it
        have another leader (KafkaController.checkAndTriggerAutoLeaderRebalance).
        """
        balance = self.balance
        assert balance is not None
        by_preferred: dict[int, list[Partition]] = {}
        for topic in self.topics.all():
            for partition in topic.partitions:
                by_preferred.setdefault(partition.replicas[0], []).append(partition)
        controller = next((broker for broker in self.brokers.values() if broker.up), None)
        elects_all = controller is not None and controller.release >= FIRST_RELEASE_WITHOUT_ZOOKEEPER
        for node_id, preferring in by_preferred.items():
            lost = [partition for partition in preferring if partition.leader_id != node_id]
            if elects_all or 100 * len(lost) > balance.percentage * len(preferring):
                for partition in lost:
                    # The other replicas of a partition that awaits its last leader are not in sync.
                    if self.can_lead_again(partition) and not partition.awaits_last_leader:
                        self.set_leader(partition, node_id, now_ms, Failover())
        self.schedule_balance(now_ms)

    # Coordinators

    def finish_loading(self, now_ms: float) -> None:
        """Finish loading in all coordinators, regardless of their remaining time."""
        for moves in self.moves.values():
            moves.finish_loading(now_ms)

    def stop_zombies(self, now_ms: float) -> None:
        """Make all brokers resign the partitions that they coordinate without leading them."""
        for moves in self.moves.values():
            moves.stop_zombies(now_ms)

    # Brokers

    def stop_broker(self, broker: BrokerNode, now_ms: float, how: Failover, *, elect: bool = True) -> None:
        """Stop a broker. Its partitions elect other leaders, or with `elect=False` have none until it starts again.

        Its coordinators resign all partitions, so that the broker does not become a zombie.
        """
        broker.up = False
        broker.log_levels = {}
        broker.stops += 1
        for partition in self.topics.led_by(broker.node_id):
            if elect:
                self.elect(partition, now_ms, how)
            else:
                self.set_leader(partition, NO_LEADER, now_ms, how)
        for moves in self.moves.values():
            moves.resign_all(broker, now_ms)
        self.copies.reschedule(now_ms)

    def start_broker(self, broker: BrokerNode, now_ms: float, how: Failover) -> None:
        """Start a broker. It becomes the leader of partitions without one, except those that await their last leader.

        Partitions that have elected another leader keep it. Reassignments that waited for this broker are completed.
        """
        broker.up = broker.registered = broker.registered_as_controller = True
        for partition in self.topics.led_by(NO_LEADER):
            if broker.node_id not in partition.replicas or broker.node_id in partition.copying:
                continue
            if not partition.awaits_last_leader:
                self.elect(partition, now_ms, how)
            elif broker.node_id == partition.last_leader_id:
                self.set_leader(partition, broker.node_id, now_ms, how)
        self.copies.reschedule(now_ms)
        self._finish_copies(self.copies.due(now_ms), now_ms, how)
        for topic in self.topics.all():
            for partition in topic.partitions:
                if partition.is_reassigning:
                    self._finish_reassignment(partition, now_ms, how)
        self.schedule_balance(now_ms)

    def evacuate(self, broker: BrokerNode, now_ms: float, how: Failover) -> None:
        """Take all replicas from a broker that will be removed.

        Each replica moves to another broker that has no replica of the partition; without such a broker, it is removed.
        Brokers that are up are preferred, because only their replicas are in sync and can become the leader.
        """
        others = [node_id for node_id in self.brokers if node_id != broker.node_id]
        for topic in self.topics.all():
            for partition in topic.partitions:
                if broker.node_id not in partition.replicas:
                    continue
                kept = [node_id for node_id in partition.target_replicas if node_id != broker.node_id]
                free = [node_id for node_id in others if node_id not in kept]
                free = [node_id for node_id in free if self.brokers[node_id].up] or free
                is_short = len(kept) < len(partition.target_replicas)
                replacement = free[partition.index % len(free) :][:1] if free and is_short else []
                self._place(partition, [*kept, *replacement], now_ms, how)

    # Time

    def _end_copies(self, timer: object, due_ms: float, now_ms: float) -> None:
        self._finish_copies(self.copies.due(now_ms), now_ms, Failover())

    def is_due(self, now_ms: float) -> bool:
        """Return whether leaders or coordinators change at a time: an election, the end of a copy or of loading."""
        due_ms = (self.copies.end_ms, self._balance_timer.scheduled_ms, *(each.end_ms for each in self.moves.values()))
        return min(due_ms) <= now_ms
