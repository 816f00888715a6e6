"""The transaction coordinators of a cluster: their log `__transaction_state`, their moves, and the markers they send.

The markers of a transaction are written to the leader of each partition at once if it can take them, else as soon as it
can (Kafka's `TransactionMarkerChannelManager`, without requests between brokers). Does not depend on requests.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Protocol

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.log_config import LogConfig, log_config
from fakebroker.cluster.configs.resolution import ConfigHolder
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.faults.append_failures import AppendFailures
from fakebroker.cluster.features import TRANSACTION_VERSION, Features
from fakebroker.cluster.logs.coordinator_records import append_records, read_transaction_records
from fakebroker.cluster.logs.log_manager import LogManager
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.replication.coordinator_moves import CoordinatorMoves
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition, Topic, Topics
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import TransactionEnd
from fakebroker.coordinator.timers import Rank, TimedValue, TimerEntry, TimerQueue, Timers
from fakebroker.coordinator.transaction.coordinator import RETRY_MS, TransactionCoordinator
from fakebroker.coordinator.transaction.history import TransactionHistory
from fakebroker.coordinator.transaction.transaction import (
    KIP_890,
    Markers,
    Transaction,
    TransactionConfig,
    TransactionRecord,
    TransactionState,
    TransactionValue,
    transaction_record,
)
from fakebroker.errors import DiskFullError, ErrorCode
from fakebroker.protocol.releases import Release
from fakebroker.protocol.transaction_markers import encode_marker
from fakebroker.topic_partition import TopicPartition

_CHECKS_PENDING_FIRST, _REFUSES_EQUAL_EPOCHS = Release(4, 0), Release(4, 2)
"""The first releases that check a pending transition first, and that refuse equal epochs of markers (KIP-890)."""

_FORGETS_MARKERS = _ROTATES_WHEN_FENCED = Release(4, 3)
"""The first release that ends transactions without markers for partitions without leaders, and that gives a fenced
producer without an epoch left another producer id (KAFKA-20090)."""

_FINAL_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
"""The results of a marker after which it is not sent again, except that of a deleted partition."""


class CoordinatedCluster(ConfigHolder, Protocol):
    """What transaction coordinators need of a cluster."""

    brokers: dict[int, BrokerNode]
    topics: Topics
    features: Features
    log_manager: LogManager
    timers: TimerQueue[Any]
    append_failures: AppendFailures
    now_ms: float

    @property
    def storage(self) -> object | None: ...

    def leader_of(self, partition: Partition) -> BrokerNode | None: ...

    def has_enough_replicas(self, partition: Partition, config: LogConfig) -> bool: ...

    def new_producer_id(self) -> int: ...

    def expire_producers(self, log: PartitionLog, broker: BrokerNode) -> None: ...


class Attempt(TimerEntry, Protocol):
    """A Produce that asks a transaction coordinator again later."""

    def attempt(self, due_ms: float) -> None:
        """Try again. `due_ms` is the time for which this was scheduled."""
        ...

    def give_up(self) -> None:
        """End without another attempt."""
        ...


@dataclass(slots=True)
class WaitingMarker:
    """A marker that its partition cannot take yet.

    Attributes:
        coordinator: The coordinator that has sent it.
        markers: The marker, with the other markers of its transaction.
        place: The topic and the index of the partition.
        retry_ms: When to try again at the earliest, in milliseconds; 0 at the next change.
    """

    coordinator: TransactionCoordinator
    markers: Markers
    place: TopicPartition
    retry_ms: float = 0.0


def transaction_config(config: Config, release: Release, version: int, partition_count: int) -> TransactionConfig:
    """Return the settings of a transaction coordinator.

    Args:
        config: The settings of the cluster; defaults depend on the release.
        release: The release that the broker emulates.
        version: The finalized level of the feature `transaction.version`.
        partition_count: The number of partitions of `__transaction_state`.
    """
    config = config.of_release(release)
    return TransactionConfig(
        partition_count=partition_count,
        max_timeout_ms=config.number("transaction.max.timeout.ms"),
        id_expiration_ms=config.number("transactional.id.expiration.ms"),
        abort_check_interval_ms=config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiration_check_interval_ms=config.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        version=version,
        checks_pending_first=release >= _CHECKS_PENDING_FIRST,
        rotates_when_fenced=release >= _ROTATES_WHEN_FENCED,
    )


class Transactions:
    """The transaction coordinators of all brokers, as a service of one cluster.

    Args:
        cluster: The cluster.
        wake: Called with a partition and a number of bytes after an append, to answer delayed Fetch requests.
        keeps_history: Whether `history` records the transitions of transactional ids.

    Attributes:
        history: The transitions of all transactional ids, including those that have expired.
        holds: The states whose records are held, by transactional id. Shared by all coordinators.
        held_markers: The markers that are held: transactional ids with a partition, or with None for all partitions.
        moves: The moves of the coordinators with the leaders of `__transaction_state`.
        waiting: The markers that wait for their partitions, in the order in which they were sent.
        verifications: The Produce requests that ask a coordinator again.
        is_used: Whether `__transaction_state` exists.
    """

    def __init__(
        self, cluster: CoordinatedCluster, wake: Callable[[Partition, int], None], *, keeps_history: bool = True
    ) -> None:
        self._cluster = cluster
        self._wake = wake
        self._keeps_history = keeps_history
        self.history = TransactionHistory()
        self.holds: dict[str, dict[TransactionState, None]] = {}
        self.held_markers: dict[tuple[str, TopicPartition | None], None] = {}
        self.waiting: list[WaitingMarker] = []
        self._retry_timer = TimedValue("markers")
        self._retries: Timers[TimedValue[str]] = cluster.timers.service(Rank.MARKERS, self._retry)
        self.verifications: Timers[Attempt] = cluster.timers.service(
            Rank.VERIFICATIONS, lambda attempt, due_ms, now_ms: attempt.attempt(due_ms)
        )
        self.is_used = False
        self.moves = CoordinatorMoves(
            cluster.brokers,
            self._partition,
            lambda broker: broker.transaction_coordinator,
            _load,
            cluster.timers,
            number=2,
        )

    # Coordinators

    def new_coordinator(self, node_id: int, release: Release) -> TransactionCoordinator:
        """Return the coordinator of a new broker."""
        cluster = self._cluster
        coordinator = TransactionCoordinator(
            self.config_for(release),
            cluster.new_producer_id,
            lambda markers: self._send(coordinator, markers),
            partial(self._append, node_id),
            cluster.now_ms,
            partial(self._record_history, node_id),
            self.holds,
            cluster.timers,
            node_id,
        )
        return coordinator

    def _record_history(
        self, node_id: int, transaction: Transaction, state_from: str, state_to: str, cause: str, now_ms: float
    ) -> None:
        if self._keeps_history:
            self.history.record(transaction, state_from, state_to, cause, now_ms, node_id)

    def config_for(self, release: Release) -> TransactionConfig:
        """Return the settings of a broker's coordinator."""
        cluster = self._cluster
        topic = cluster.topics.get(TRANSACTIONS_TOPIC)
        count = (
            cluster.config.number("transaction.state.log.num.partitions") if topic is None else len(topic.partitions)
        )
        return transaction_config(cluster.config, release, cluster.features.level(TRANSACTION_VERSION), count)

    def configure(self) -> None:
        """Give all coordinators the current settings: feature levels and the number of partitions may have changed."""
        for broker in self._cluster.brokers.values():
            broker.transaction_coordinator.configure(self.config_for(broker.release))

    def lead(self, topic: Topic) -> None:
        """Make the leaders of the new topic `__transaction_state` the coordinators of its partitions, without ids."""
        self.is_used = True
        self.moves.clear()
        self.configure()
        for partition in topic.partitions:
            leader = self._cluster.leader_of(partition)
            if leader is not None:
                leader.transaction_coordinator.lead(partition.index, partition.leader_epoch, self._cluster.now_ms)

    def load(self) -> None:
        """Load all partitions into the coordinators of their leaders, at once, after a restore."""
        self.waiting.clear()
        self._schedule_next_retry()
        self.configure()
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        self.is_used = topic is not None
        for partition in () if topic is None else topic.partitions:
            leader = self._cluster.leader_of(partition)
            if leader is not None:
                leader.transaction_coordinator.start_loading(partition.index)
                _load(leader.transaction_coordinator, partition, self._cluster.now_ms)

    def partition_of(self, transactional_id: str) -> Partition | None:
        """Return the partition of `__transaction_state` of a transactional id; None if the topic does not exist."""
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        return None if topic is None else topic.partitions[partition_for(transactional_id, len(topic.partitions))]

    def coordinator_of(self, transactional_id: str) -> BrokerNode | None:
        """Return the broker that coordinates a transactional id: the leader of its partition. None without a leader."""
        partition = self.partition_of(transactional_id)
        return None if partition is None else self._cluster.leader_of(partition)

    def all(self) -> Iterator[tuple[BrokerNode, Transaction]]:
        """Yield all transactional ids with their coordinators, ordered by broker. Skips the ids of zombies."""
        for node_id, broker in self._cluster.brokers.items():
            for transaction in broker.transaction_coordinator.transactions():
                if self._partition(transaction.partition).leader_id == node_id:
                    yield broker, transaction

    def _partition(self, index: int) -> Partition:
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        assert topic is not None, f"{TRANSACTIONS_TOPIC} does not exist"
        return topic.partitions[index]

    def _append(self, node_id: int, index: int, records: Sequence[TransactionRecord]) -> ErrorCode:
        """Write a coordinator's records to their partition, before they take effect. Return NONE or the error."""
        cluster, partition = self._cluster, self._partition(index)
        if partition.leader_id != node_id:
            # The broker is a zombie: the replicas that would have to store the record follow another leader. If it had
            # success, a producer could believe that its transaction, which the new coordinator aborts, is committed.
            return ErrorCode.REQUEST_TIMED_OUT
        if not cluster.has_enough_replicas(partition, log_config(cluster, cluster.brokers[node_id], partition.topic)):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        failure = cluster.append_failures.pick(partition.topic.name, index)
        if failure is not None:
            failure.hits += 1
            return failure.error
        size_bytes = partition.log.size_bytes
        level = cluster.features.level(TRANSACTION_VERSION)
        try:
            append_records(partition.log, records, partition.leader_epoch, cluster.now_ms, transaction_version=level)
        except DiskFullError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._wake(partition, max(1, partition.log.size_bytes - size_bytes))
        return ErrorCode.NONE

    def store(self, transactional_id: str, value: TransactionValue) -> ErrorCode:
        """Write the record of a new transactional id, which has a coordinator; return the error of the log, or NONE."""
        partition = self.partition_of(transactional_id)
        assert partition is not None
        return self._append(partition.leader_id, partition.index, [transaction_record(transactional_id, value)])

    # Time

    def give_up(self) -> None:
        """End all requests that would ask a coordinator again, for a reset."""
        for each, _ in list(self.verifications):
            self.verifications.cancel(each)
            each.give_up()

    def next_attempt(self) -> float | None:
        """Return when something is tried again next: a marker, or the verification of a Produce; None if nothing is."""
        found = [due_ms for _, due_ms in (*self._retries, *self.verifications)]
        return min(found, default=None)

    # Markers

    def _send(self, coordinator: TransactionCoordinator, markers: Markers) -> None:
        for place in markers.partitions:
            self._write_or_wait(WaitingMarker(coordinator, markers, place))

    def _retry(self, timer: object, due_ms: float, now_ms: float) -> None:
        self.retry()

    def retry(self) -> None:
        """Write the waiting markers whose partitions can take them now. Drop markers of resigned coordinators.

        Called when something that markers wait for may have changed, and again `RETRY_MS` after a failure that ends
        without an event.
        """
        waiting, self.waiting = self.waiting, []
        blocked: set[TopicPartition] = set()  # Of many markers for a partition, only the first is tried.
        for each in waiting:
            if each.place in blocked or each.retry_ms > self._cluster.now_ms:
                self.waiting.append(each)
            elif each.coordinator.awaits(each.markers) and not self._write_or_wait(each):
                blocked.add(each.place)
        self._schedule_next_retry()

    def schedule_retry(self, now_ms: float) -> None:
        """Write the waiting markers when the timers run next, because they may no longer have to wait."""
        self._retries.schedule(self._retry_timer, now_ms)

    def _schedule_next_retry(self) -> None:
        retries_ms = [each.retry_ms for each in self.waiting if each.retry_ms]
        self._retries.set(self._retry_timer, min(retries_ms, default=inf))

    def is_marker_held(self, transactional_id: str, place: TopicPartition) -> bool:
        """Return whether the marker of a transaction for a partition is held."""
        return bool({(transactional_id, place), (transactional_id, None)} & self.held_markers.keys())

    def _write_or_wait(self, marker: WaitingMarker) -> bool:
        """Write a marker unless it is held. Return False if its partition cannot take it."""
        is_held = bool(self.held_markers) and self.is_marker_held(marker.markers.transactional_id, marker.place)
        result = None if is_held else self.write(marker.markers, marker.place)
        if result is None:
            # Failures of appends that a test has requested end without an event, when they have occurred. So does a
            # full disk.
            has_failures = bool(self._cluster.append_failures.active) or self._cluster.storage is not None
            is_retried = not is_held and has_failures
            marker.retry_ms = self._cluster.now_ms + RETRY_MS if is_retried else 0.0
            self.waiting.append(marker)
            self._retries.schedule(self._retry_timer, marker.retry_ms or inf)
            return is_held
        marker.coordinator.marker_written(marker.markers, marker.place, result, self._cluster.now_ms)
        return True

    def write(self, markers: Markers, place: TopicPartition) -> ErrorCode | None:
        """Write a marker to a partition.

        Returns:
            NONE or the final error, see `SendMarkers`; None if the partition cannot take the marker at the moment.
        """
        cluster = self._cluster
        name, index = place
        topic = cluster.topics.get(name)
        partition = None if topic is None else topic.partition(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = cluster.leader_of(partition)
        if leader is None:
            # Since 4.3, Kafka takes a partition without a leader for one that was deleted: the transaction ends without
            # its marker, and its records stay open (KRaftMetadataCache.getPartitionLeaderEndpoint).
            sender = self.coordinator_of(markers.transactional_id)
            forgets = sender is not None and sender.release >= _FORGETS_MARKERS
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if forgets else None
        error = self.write_at(leader, partition, markers)
        return error if error in _FINAL_ERRORS else None

    def write_at(self, leader: BrokerNode, partition: Partition, markers: Markers) -> ErrorCode:
        """Write a marker to the log of a partition at its leader. Group coordinators write to __consumer_offsets.

        Returns:
            NONE or the error of WriteTxnMarkers.
        """
        cluster = self._cluster
        is_of_groups = partition.topic.name == OFFSETS_TOPIC
        if is_of_groups and not leader.coordinator.leads(partition.index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it is loading the partition, or has failed to
        config = log_config(cluster, leader, partition.topic)
        if not cluster.has_enough_replicas(partition, config):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.expire_producers(partition.log, leader)
        raises_epoch = markers.version >= KIP_890 and leader.release >= _REFUSES_EQUAL_EPOCHS
        error = partition.log.producers.marker_error(
            markers.producer_id, markers.epoch, markers.coordinator_epoch, raises_epoch=raises_epoch
        )
        if error:
            return error
        if is_of_groups:
            end = TransactionEnd(markers.producer_id, markers.epoch, markers.is_commit, markers.coordinator_epoch)
            if error := leader.coordinator.offsets.end_transaction(partition.index, end):
                return error
        else:
            try:
                self._append_marker(partition, markers)
            except DiskFullError:
                return ErrorCode.KAFKA_STORAGE_ERROR
            cluster.log_manager.appended(config, cluster.now_ms)
        # Readers of committed records get all records of the transaction at once.
        self._wake(partition, partition.log.size_bytes)
        return ErrorCode.NONE

    def _append_marker(self, partition: Partition, markers: Markers) -> None:
        data = encode_marker(
            markers.producer_id,
            markers.epoch,
            is_commit=markers.is_commit,
            coordinator_epoch=markers.coordinator_epoch,
            now_ms=self._cluster.now_ms,
        )
        partition.log.append(data, partition.leader_epoch)


def _load(coordinator: TransactionCoordinator, partition: Partition, now_ms: float) -> None:
    records = read_transaction_records(partition.log, partition.index)
    coordinator.finish_loading(partition.index, records, partition.leader_epoch, now_ms)
