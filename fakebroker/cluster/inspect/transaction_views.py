"""Views of transactional ids, of the markers that they wait for, and of hanging transactions: immutable values."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Any, TypedDict, Unpack

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.inspect.base import View
from fakebroker.cluster.inspect.timelines import TransactionTimeline, transaction_timeline_of
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.coordinator.transaction.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    STORED_STATES,
    Transaction,
)
from fakebroker.errors import ConfigError, and_more, check_integer, check_number, one_of, printable
from fakebroker.topic_partition import (
    PartitionTuple,
    TopicPartition,
    parse_partition,
    parse_partitions,
    partition_name,
    partition_names,
)

STATES = [state.value for state in STORED_STATES]
"""The states of transactional ids that exist, by Kafka's names."""

LATE_MS = 300_000
"""A transaction is late when so much time has passed since its last record, besides the longest possible timeout."""

_MOST_LISTED = 20


class AwaitedMarker(msgspec.Struct, frozen=True):
    """A marker that was not written yet.

    Attributes:
        partition_name: The name of `partition`, such as "orders-0"; in JSON it is `partition`.
        reason: Why, as a clause: "whose leader broker 2 is down".
    """

    partition_name: str = msgspec.field(name="partition")
    reason: str

    @property
    def partition(self) -> TopicPartition:
        """The topic and the index of the partition."""
        return parse_partition(self.partition_name)


class TransactionDescription(View, frozen=True, kw_only=True):
    """One transactional id without its history.

    Attributes:
        transactional_id: The id.
        state: Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort; Dead if there
            is no such id.
        pending_state: The state that follows when its record is stored, or when all markers are written; None if no
            transition is pending.
        producer_id: The producer id.
        producer_epoch: The producer epoch.
        timeout_ms: `transaction.timeout.ms` of the producer.
        start_ms: When the transaction, or the last one, began, by the brokers' clock, in milliseconds since the Unix
            epoch; None if there was none.
        last_update_ms: When the state changed last, in the same form.
        partition_names: The names of `partitions`, such as "orders-0"; in JSON they are `partitions`.
        coordinator: The node id of the coordinator; None if there is no such id.
        is_held: Whether the record of the pending transition is held; see `hold`.
        awaited_markers: The markers that are still to be written.
        deadline_ms: When the transaction is aborted because of its timeout; without a transaction, when the id expires;
            None if no timer is running.
    """

    transactional_id: str
    state: str
    pending_state: str | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    last_update_ms: int
    partition_names: tuple[str, ...] = msgspec.field(name="partitions")
    coordinator: int | None
    is_held: bool
    awaited_markers: tuple[AwaitedMarker, ...]
    deadline_ms: float | None

    @property
    def partitions(self) -> PartitionTuple:
        """The partitions of the transaction, in the order in which they were added; none after its end."""
        return parse_partitions(self.partition_names)


class TransactionView(TransactionDescription, frozen=True, kw_only=True):
    """One transactional id.

    Attributes:
        history: Its timeline.
    """

    history: TransactionTimeline

    def timeline(self) -> TransactionTimeline:
        """Return the transitions with their causes; `str()` draws them as text."""
        return self.history

    def __str__(self) -> str:
        return self.text()

    def text(self, max_markers: int | None = None) -> str:
        """Describe the id in a line, and each awaited marker, or the first `max_markers`, in another one."""
        pending = f", {self.pending_state} is pending" if self.pending_state else ""
        partitions = f", partitions {', '.join(self.partition_names)}" if self.partition_names else ""
        producer = f"producer {self.producer_id} in epoch {self.producer_epoch}"
        head = f"{self.transactional_id}: {self.state}{pending}, {producer}{partitions}"
        shown = self.awaited_markers[:max_markers]
        lines = [f"  no marker in {each.partition_name}, {each.reason}" for each in shown]
        more = and_more(len(self.awaited_markers), len(lines), "partitions without a marker")
        return "\n".join(map(printable, [head, *lines, *(f"  {line}" for line in more)]))


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that is open in a partition, and that no transaction coordinator knows (KIP-664).

    Attributes:
        topic, partition: The partition.
        producer_id: The producer id.
        producer_epoch: The producer epoch.
        first_offset: The offset of its first record, at which the last stable offset stays.
        last_timestamp_ms: The timestamp of its last record.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


def find_transaction(cluster: Cluster, transactional_id: str) -> tuple[BrokerNode, Transaction] | None:
    """Return a transactional id with its coordinator; None if there is no such id, or no coordinator."""
    broker = cluster.transactions.coordinator_of(transactional_id)
    found = None if broker is None else broker.transaction_coordinator.transaction(transactional_id)
    return None if broker is None or found is None else (broker, found)


def view_transaction(cluster: Cluster, transactional_id: str, now_ms: float) -> TransactionView:
    """Return the view of a transactional id at this time.

    Raises:
        ConfigError: There is no such id, or it has no coordinator now.
    """
    found = find_transaction(cluster, transactional_id)
    if found is None:
        raise _unknown(cluster, transactional_id)
    return _view(cluster, *found, now_ms)


def view_or_dead(cluster: Cluster, transactional_id: str, now_ms: float) -> TransactionView:
    """Return the view of a transactional id at this time, in state Dead if its coordinator does not know it."""
    found = find_transaction(cluster, transactional_id)
    if found is not None:
        return _view(cluster, *found, now_ms)
    return TransactionView(
        transactional_id=transactional_id,
        state=DEAD,
        pending_state=None,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        timeout_ms=0,
        start_ms=None,
        last_update_ms=0,
        partition_names=(),
        coordinator=None,
        is_held=False,
        awaited_markers=(),
        deadline_ms=None,
        history=transaction_timeline_of(cluster, transactional_id, now_ms),
    )


def view_of_moment(
    cluster: Cluster, transactional_id: str, moment: TransactionMoment, now_ms: float
) -> TransactionView:
    """Return the view of a transactional id at a moment of its history, as far as it is known.

    State, producer and partitions are as at that moment. If the id has changed since, the view has nothing pending.
    """
    view = view_or_dead(cluster, transactional_id, now_ms)
    names = ("producer_id", "producer_epoch", "partition_names")
    values = {name: getattr(moment, name) for name in names}
    if view.state == moment.state_to and all(getattr(view, name) == values[name] for name in names):
        return view
    gone: dict[str, Any] = {"pending_state": None, "is_held": False, "awaited_markers": (), "deadline_ms": None}
    return msgspec.structs.replace(view, state=moment.state_to, **values, **gone)


def _unknown(cluster: Cluster, transactional_id: str) -> ConfigError:
    partition = cluster.transactions.partition_of(transactional_id)
    broker = cluster.transactions.coordinator_of(transactional_id)
    if partition is not None and broker is None:
        expected = f"an id that has a coordinator now; {partition.topic.name}-{partition.index} has no leader"
    elif broker is not None and (error := broker.transaction_coordinator.error_for(transactional_id)):
        expected = f"an id that was loaded; broker {broker.node_id} answers {error.name}"
    else:
        ids = (each.transactional_id for _, each in cluster.transactions.all())
        expected = one_of(ids, transactional_id, none="an existing id; there is none", most=_MOST_LISTED)
    return ConfigError.of("transactional_id", transactional_id, expected)


def view_transactions(
    cluster: Cluster, now_ms: float, **filters: Unpack["TransactionFilters"]
) -> list[TransactionView]:
    """Return the views of the transactional ids that match all filters; see `matching_transactions`."""
    return [_view(cluster, *found, now_ms) for found in matching_transactions(cluster, now_ms, **filters)]


def matching_transactions(
    cluster: Cluster,
    now_ms: float,
    *,
    state: str | None = None,
    producer_id: int | None = None,
    longer_than_ms: float | None = None,
) -> list[tuple[BrokerNode, Transaction]]:
    """Return the transactional ids that match all filters, with their coordinators, ordered by broker.

    Args:
        cluster: The cluster.
        now_ms: The time.
        state: Only ids in this state, by Kafka's name.
        producer_id: Only the id with this producer id.
        longer_than_ms: Only ids with a transaction that has not ended since, in milliseconds.
    """
    return [
        (broker, each)
        for broker, each in cluster.transactions.all()
        if state in (None, each.state.value)
        and producer_id in (None, each.value.producer_id)
        and (longer_than_ms is None or (is_open(each) and now_ms - each.value.start_ms > longer_than_ms))
    ]


class TransactionFilters(TypedDict, total=False):
    """The filters of `matching_transactions`."""

    state: str | None
    producer_id: int | None
    longer_than_ms: float | None


def checked_filters(state: str | None, producer_id: int | None, longer_than_s: float | None) -> TransactionFilters:
    """Validate filters of transactional ids.

    Raises:
        ConfigError: There is no such state, or a number has the wrong type or is negative.
    """
    if state is not None and state not in STATES:
        raise ConfigError.of("state", state, one_of(STATES, state))
    if producer_id is not None:
        check_integer("producer_id", producer_id, least=0)
    if longer_than_s is not None:
        check_number("longer_than_s", longer_than_s, least=0)
    longer_than_ms = None if longer_than_s is None else longer_than_s * 1000
    return {"state": state, "producer_id": producer_id, "longer_than_ms": longer_than_ms}


def is_open(transaction: Transaction) -> bool:
    """Return whether a transaction has begun and not ended."""
    return transaction.state is ONGOING or transaction.state in PREPARED


def _view(cluster: Cluster, broker: BrokerNode, transaction: Transaction, now_ms: float) -> TransactionView:
    value = transaction.value
    return TransactionView(
        transactional_id=transaction.transactional_id,
        state=value.state.value,
        pending_state=None if transaction.pending is None else transaction.pending.value,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        timeout_ms=value.timeout_ms,
        start_ms=None if value.start_ms < 0 else value.start_ms,
        last_update_ms=value.last_update_ms,
        partition_names=partition_names(value.partitions),
        coordinator=broker.node_id,
        is_held=transaction.held is not None,
        awaited_markers=tuple(awaited_markers(cluster, transaction)),
        deadline_ms=None if transaction.scheduled_ms == inf else transaction.scheduled_ms,
        history=transaction_timeline_of(cluster, transaction.transactional_id, now_ms),
    )


def awaited_markers(cluster: Cluster, transaction: Transaction) -> Iterator[AwaitedMarker]:
    """Yield the markers that are still to be written for a transaction, with reasons."""
    for place in transaction.awaits_markers or ():
        yield AwaitedMarker(partition_name(place), _why_awaited(cluster, transaction, place))


def _why_awaited(cluster: Cluster, transaction: Transaction, place: TopicPartition) -> str:
    if place in transaction.refused_markers:
        return "which has refused the marker; it is written again when the coordinator is loaded again"
    if cluster.transactions.is_marker_held(transaction.transactional_id, place):
        return "held until release_markers() is called"
    topic = cluster.topics.get(place[0])
    partition = None if topic is None else topic.partition(place[1])
    if partition is None:
        return "which was deleted"
    leader = cluster.leader_of(partition)
    if leader is None:
        last = cluster.brokers.get(partition.last_leader_id)
        is_down = last is not None and not last.up
        return f"whose leader broker {partition.last_leader_id} is down" if is_down else "which has no leader"
    if place[0] == OFFSETS_TOPIC and not leader.coordinator.leads(partition.index):
        return f"whose group coordinator, broker {leader.node_id}, has not loaded it"
    config = log_config(cluster, leader, partition.topic)
    if not cluster.has_enough_replicas(partition, config):
        in_sync = len(cluster.in_sync(partition))
        needed = config.needed_in_sync(len(partition.replicas))
        return f"which has {in_sync} of the {needed} in-sync replicas that min.insync.replicas requires"
    return f"whose leader broker {leader.node_id} does not accept it yet"


def count_by_state(cluster: Cluster) -> Counter[str]:
    """Return the number of transactional ids by Kafka's name of the state. Ids at zombies are not counted."""
    return Counter(transaction.state.value for _, transaction in cluster.transactions.all())


def count_late_partitions(cluster: Cluster, now_ms: float) -> int:
    """Return the number of partitions with transactions that should have timed out.

    As in Kafka's `ProducerStateManager.hasLateTransaction`, the last record of the producer counts whose transaction is
    the oldest one in the partition.
    """
    latest_ms = now_ms - cluster.config.number("transaction.max.timeout.ms") - LATE_MS
    return sum(
        any(
            producer.last_timestamp_ms < latest_ms
            for producer, _ in islice(partition.log.producers.open_transactions(), 1)
        )
        for topic in cluster.topics.all()
        for partition in topic.partitions
    )


def hanging_transactions(cluster: Cluster) -> list[HangingTransaction]:
    """Return the transactions that are open in partitions, but not at a coordinator, ordered by partition and offset.

    While a coordinator is loading, its transactions are not known and count as hanging. So do the transactions of a
    partition of `__transaction_state` without a leader.
    """
    values = [transaction.value for _, transaction in cluster.transactions.all()]
    known = {(value.producer_id, place) for value in values for place in value.partitions}
    return [
        HangingTransaction(
            topic=topic.name,
            partition=partition.index,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            first_offset=first_offset,
            last_timestamp_ms=producer.last_timestamp_ms,
        )
        for topic in cluster.topics.all()
        for partition in topic.partitions
        for producer, first_offset in partition.log.producers.open_transactions()
        if (producer.producer_id, (topic.name, partition.index)) not in known
    ]
