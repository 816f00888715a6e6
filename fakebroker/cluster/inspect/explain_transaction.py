"""Explanations of a transactional id in English: its state, the cause of the state, and pending events."""

from collections.abc import Iterator
from itertools import islice
from math import inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.deadlines import delays_of
from fakebroker.cluster.inspect.explain import before_first_use, not_served, without_coordinator, zombies_of
from fakebroker.cluster.inspect.phrases import counted, listed, lower_first, seconds_text
from fakebroker.cluster.inspect.transaction_views import awaited_markers, find_transaction, hanging_transactions
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    MAX_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
)
from fakebroker.errors import printable
from fakebroker.topic_partition import partition_names

_SEARCHED_CALLS = 1_000
"""Number of requests that are searched for the last request with a transactional id, newest first."""
_MAX_NAMES = 8
"""The maximum number of partitions that are named, and of delays that are described.

Further partitions are counted. Further delays are left out.
"""


def explain_transaction(cluster: Cluster, transactional_id: str, now_ms: float) -> str:
    """Return sentences that explain the state of a transactional id.

    Args:
        cluster: The cluster.
        transactional_id: The id, which need not exist.
        now_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
    """
    transactions = cluster.transactions
    partition, broker = transactions.partition_of(transactional_id), transactions.coordinator_of(transactional_id)
    found = find_transaction(cluster, transactional_id)
    if TRANSACTIONS_TOPIC in cluster.first_use.due_ms:
        sentences = before_first_use(cluster, transactional_id, TRANSACTIONS_TOPIC, now_ms)
    elif partition is None:
        sentences = iter((f"{transactional_id} is Dead: no client has looked for a transaction coordinator.",))
    elif broker is None:
        sentences = without_coordinator(cluster, transactional_id, partition)
    elif error := broker.transaction_coordinator.error_for(transactional_id):
        loading = transactions.moves.loading.get(partition.index)
        sentences = not_served(transactional_id, broker, error, partition, loading, now_ms)
    elif found is None:
        sentences = _without_id(cluster, transactional_id, now_ms)
    else:
        sentences = _sentences(cluster, *found, now_ms)
    index = None if partition is None else partition.index
    zombies = () if index is None else zombies_of(transactions.moves.zombies(index))
    return printable(" ".join([*sentences, *_delays(cluster, transactional_id, now_ms), *zombies]))


def _without_id(cluster: Cluster, transactional_id: str, now_ms: float) -> Iterator[str]:
    yield f"{transactional_id} is Dead: there is no such transactional id."
    history = cluster.transactions.history
    moments, dropped = history.of(transactional_id), history.dropped_of(transactional_id)
    if moments:
        last, since = moments[-1], seconds_text(now_ms - moments[-1].at_ms)
        if last.state_to == DEAD.value:
            yield f"It was removed {since} ago. Cause: {last.cause}."
        else:
            yield f"Its records were lost with its former coordinator, where it got into {last.state_to} {since} ago."
    elif dropped:
        yield f"{str(dropped).capitalize()}."
    else:
        yield "No producer has sent an InitProducerId with it."


def _sentences(cluster: Cluster, broker: BrokerNode, transaction: Transaction, now_ms: float) -> Iterator[str]:
    last = _last_moment(cluster, broker, transaction)
    since_ms = transaction.value.last_update_ms if last is None else last.at_ms
    state = (
        f"{transaction.transactional_id} has been in {transaction.state.value} for {seconds_text(now_ms - since_ms)}"
    )
    yield f"{state}. Cause: {last.cause}." if last else f"{state}."
    yield from _BY_STATE[transaction.state](cluster, transaction, now_ms)
    yield from _last_request(cluster, transaction.transactional_id, now_ms)
    yield from _pending(transaction)
    yield from _hanging(cluster, transaction)


def _last_moment(cluster: Cluster, broker: BrokerNode, transaction: Transaction) -> TransactionMoment | None:
    """Return the moment in which the id got its state at its coordinator; None if it is no longer known."""
    moments = cluster.transactions.history.of(transaction.transactional_id)
    here = [each for each in moments if each.coordinator_id == broker.node_id and each.is_transition]
    return here[-1] if here and here[-1].state_to == transaction.state.value else None


def _last_request(cluster: Cluster, transactional_id: str, now_ms: float) -> Iterator[str]:
    """Yield a sentence on the last request with the id, unless the newest requests in the journal do not have it."""
    newest = reversed(cluster.journal.newest(_SEARCHED_CALLS))
    call = next((each for each in newest if transactional_id in each.transactional_ids), None)
    if call is not None:
        sender = f"client {call.client_id}" if call.client_id else "a client without an id"
        result = "" if call.has_response else ", and is not answered yet"
        since = seconds_text(now_ms - call.received_ms)
        yield f"The last request with this id, {call.api.name}, was received from {sender} {since} ago{result}."


def _empty(cluster: Cluster, transaction: Transaction, now_ms: float) -> Iterator[str]:
    yield f"{_producer(transaction)} has no transaction."
    yield from _expiry(transaction, now_ms)


def _ongoing(cluster: Cluster, transaction: Transaction, now_ms: float) -> Iterator[str]:
    value = transaction.value
    yield (
        f"{_producer(transaction)} has an open transaction with {_names(value.partitions)}, "
        f"begun {seconds_text(now_ms - value.start_ms)} ago."
    )
    yield from _unstable(cluster, transaction)
    coordinator = cluster.transactions.coordinator_of(transaction.transactional_id)
    assert coordinator is not None
    if value.epoch == MAX_EPOCH and not coordinator.transaction_coordinator.rotates_when_fenced:
        yield "The coordinator cannot abort it, as in Kafka up to 4.2, because there is no higher epoch."
    elif transaction.scheduled_ms != inf:
        interval_ms = coordinator.transaction_coordinator.config.abort_check_interval_ms
        yield (
            f"If it does not end, it is aborted in {seconds_text(transaction.scheduled_ms - now_ms)}: its timeout is "
            f"{seconds_text(value.timeout_ms)}, and timeouts are checked every {seconds_text(interval_ms)}."
        )


def _unstable(cluster: Cluster, transaction: Transaction) -> Iterator[str]:
    """Yield a sentence on the partitions in which the transaction has records."""
    held_back: list[str] = []
    for name, index in transaction.value.partitions:
        topic = cluster.topics.get(name)
        partition = None if topic is None else topic.partition(index)
        producer = None if partition is None else partition.log.producers.get(transaction.value.producer_id)
        if producer is not None and producer.transaction_offset is not None:
            held_back.append(f"{name}-{index} (from offset {producer.transaction_offset})")
    if held_back:
        yield f"It has records in {listed(held_back)}, which read_committed consumers do not get yet."
    else:
        yield "It has no records yet."


def _prepared(cluster: Cluster, transaction: Transaction, now_ms: float) -> Iterator[str]:
    outcome = "committed" if transaction.state is PREPARE_COMMIT else "aborted"
    partitions = _names(transaction.value.partitions)
    yield f"The transaction of {lower_first(_producer(transaction))} with {partitions} is {outcome}."
    awaited = list(awaited_markers(cluster, transaction))
    if awaited:
        named = [f"{each.partition_name}, {each.reason}" for each in awaited[:_MAX_NAMES]]
        more = f"; and {counted(len(awaited) - _MAX_NAMES, 'more partition')}" if awaited[_MAX_NAMES:] else ""
        yield f"It waits for markers of {'; '.join(named)}{more}."
        yield "Until all markers are written, its producer gets CONCURRENT_TRANSACTIONS."
    elif transaction.held is None and transaction.scheduled_ms != inf:
        left = seconds_text(transaction.scheduled_ms - now_ms)
        yield f"All markers are written, but the end could not be stored; it is tried again in {left}."


def _complete(cluster: Cluster, transaction: Transaction, now_ms: float) -> Iterator[str]:
    outcome = "committed" if transaction.state is COMPLETE_COMMIT else "aborted"
    yield f"The last transaction was {outcome}. {_producer(transaction)} has not begun another one."
    yield from _expiry(transaction, now_ms)


def _expiry(transaction: Transaction, now_ms: float) -> Iterator[str]:
    if transaction.scheduled_ms != inf:
        yield f"If the id is not used, it expires in {seconds_text(transaction.scheduled_ms - now_ms)}."


def _pending(transaction: Transaction) -> Iterator[str]:
    if transaction.pending is None or transaction.held is None:
        return
    next_state = transaction.pending
    record = "The tombstone of the id" if next_state is DEAD else f"The next state, {next_state.value},"
    yield f"{record} is not stored until it is released. Meanwhile, requests get CONCURRENT_TRANSACTIONS."


def _hanging(cluster: Cluster, transaction: Transaction) -> Iterator[str]:
    """Yield a sentence on open transactions of the producer id that the coordinator does not know."""
    hanging = [each for each in hanging_transactions(cluster) if each.producer_id == transaction.value.producer_id]
    if hanging:
        places = [f"{each.topic}-{each.partition} (from offset {each.first_offset})" for each in hanging]
        yield (
            f"Its producer has hanging transactions, which the coordinator does not know and does not end, in "
            f"{listed(places)}."
        )


def _delays(cluster: Cluster, transactional_id: str, now_ms: float) -> Iterator[str]:
    """Yield sentences on requests and responses that are delayed."""
    delays = delays_of(cluster, lambda call: transactional_id in call.transactional_ids)
    for at_ms, call, text in islice(delays, _MAX_NAMES):
        left, since = seconds_text(at_ms - now_ms), seconds_text(now_ms - call.received_ms)
        yield f"{text} in {left}; the request was received {since} ago."


def _producer(transaction: Transaction) -> str:
    return f"Producer {transaction.value.producer_id} in epoch {transaction.value.epoch}"


def _names(partitions: tuple[tuple[str, int], ...]) -> str:
    return listed(partition_names(partitions)) or "no partitions"


_BY_STATE = {
    EMPTY: _empty,
    ONGOING: _ongoing,
    PREPARE_COMMIT: _prepared,
    PREPARE_ABORT: _prepared,
    COMPLETE_COMMIT: _complete,
    COMPLETE_ABORT: _complete,
}
