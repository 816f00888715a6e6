"""Seeded transactions: transactional ids in a given state, and hanging transactions, which no coordinator knows.

Records are appended to the logs and to `__transaction_state` as a producer and its coordinator do; then the coordinator
gets the id as if it had loaded the log.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.seeding.producer import RecordSeed, produce
from fakebroker.cluster.seeding.seed_lag import MAX_RECORDS
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC, Partition
from fakebroker.coordinator.transaction.transaction import (
    EMPTY,
    EXHAUSTED_EPOCH,
    KIP_890,
    ONGOING,
    PREPARED,
    STORED_STATES,
    TransactionValue,
)
from fakebroker.errors import ConfigError, check_integer, one_of, shown
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.topic_partition import MAX_INT64, parse_partition
from fakebroker.validation import Seconds

if TYPE_CHECKING:
    RecordCounts = Mapping[str, int]
else:  # msgspec validates the counts. `transaction.seed` validates the keys as names of partitions.
    RecordCounts = Mapping[str, Annotated[int, Meta(ge=0, le=100_000)]]
"""Numbers of records by partition."""

ProducerId = Annotated[int, Meta(ge=0, le=MAX_INT64 - 1)]
ProducerEpoch = Annotated[int, Meta(ge=0, le=EXHAUSTED_EPOCH)]

_STATES = {state.value: state for state in STORED_STATES}


class TransactionSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transactional id to create.

    Attributes:
        transactional_id: The transactional id, which must not exist.
        state: State, by Kafka's name. In PrepareCommit and PrepareAbort, the coordinator writes the markers at once,
            unless they are held or a partition has no leader.
        producer_id: The producer id; by default the next one that is not in use.
        epoch: The producer epoch of the records. 32766 is the last one of a producer id.
        records: The partitions of the transaction, such as {"orders-0": 3}, with the number of records that are
            appended to each; 0 if the partition was added but has no records. Only with Ongoing, PrepareCommit and
            PrepareAbort. The values of the records are their offsets, as text.
        timeout_ms: `transaction.timeout.ms` of the producer.
        age_s: How many seconds ago the transaction has begun, by the brokers' clock.
    """

    transactional_id: str
    state: str = ONGOING.value
    producer_id: ProducerId | None = None
    epoch: ProducerEpoch = 0
    records: RecordCounts = {}  # msgspec copies it
    timeout_ms: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 60_000
    age_s: Seconds = 0.0


def seed_transaction(cluster: Cluster, seed: TransactionSeed, now_ms: float) -> None:
    """Create a transactional id.

    Raises:
        ConfigError: The id exists or has no coordinator, the producer id is in use, a partition does not exist or has
            no leader, the record of the id cannot be stored, or the fields contradict each other. No transactional id
            and no records are created. If a partition is wrong or the fields contradict each other, nothing else is
            changed. In the other cases, __transaction_state may have been created, with its coordinators. If the record
            cannot be stored, the producer id is also used up, and a failure of `TransactionHandle.fail_append` may have
            been applied.
        DiskFullError: There is no space for the records of the transaction. The record of the id is in its log, but the
            coordinator does not know the id until it loads the log again.
    """
    name, where = seed.transactional_id, f"transactional id {shown(seed.transactional_id)}"
    if not name:
        raise ConfigError.of("transactional_id", name, "a text that is not empty")
    if seed.state not in _STATES:
        raise ConfigError.of("state", seed.state, one_of(_STATES, seed.state), where=where)
    state = _STATES[seed.state]
    is_open = state is ONGOING or state in PREPARED
    if seed.records and not is_open:
        expected = f"none in state {seed.state}, which has no transaction"
        raise ConfigError.of("records", seed.records, expected, where=where)
    partitions = [_checked_partition(cluster, text, where) for text in seed.records]
    cluster.first_use.finish(TRANSACTIONS_TOPIC, now_ms)
    cluster.transactions_partition_of(name)  # creates the topic
    broker = cluster.transactions.coordinator_of(name)
    error = None if broker is None else broker.transaction_coordinator.error_for(name)
    if broker is None or error:
        raise ConfigError.of("transactional_id", name, "an id whose coordinator is up and has loaded its log")
    if broker.transaction_coordinator.transaction(name) is not None:
        raise ConfigError.of("transactional_id", name, "an id that does not exist yet")
    if seed.producer_id is not None:
        _check_unused(cluster, seed.producer_id, where)
    producer_id = _producer_id(cluster, seed.producer_id)
    begun_ms = now_ms - seed.age_s * 1000
    has_kip_890 = broker.transaction_coordinator.config.version >= KIP_890
    raises_epoch = has_kip_890 and state in PREPARED
    value = TransactionValue(
        producer_id=producer_id,
        previous_producer_id=producer_id,
        epoch=seed.epoch + raises_epoch,
        timeout_ms=seed.timeout_ms,
        state=state,
        partitions=tuple((each.topic.name, each.index) for each in partitions),
        last_update_ms=int(begun_ms),
        start_ms=int(begun_ms) if is_open else -1,
        version=KIP_890 if has_kip_890 and state is not EMPTY else 0,
    )
    if refused := cluster.transactions.store(name, value):
        expected = f"an id whose record can be stored; it failed with {refused.name}"
        raise ConfigError.of("transactional_id", name, expected)
    for partition, count in zip(partitions, seed.records.values(), strict=True):
        _append(cluster, partition, count, producer_id, seed.epoch, now_ms)
    broker.transaction_coordinator.restore({name: value}, "transaction.seed", now_ms)


def seed_hanging_transaction(
    cluster: Cluster,
    partition: str,
    *,
    offset: int | None,
    records: int,
    producer_id: int | None,
    epoch: int,
    now_ms: float,
) -> None:
    """Append records of a transaction that no coordinator knows; see `PartitionHandle.seed_hanging_transaction`.

    Raises:
        ConfigError: The partition does not exist or has no leader, its log ends after the offset or too far before it,
            or its leader refuses the records up to the offset. Nothing is appended then.
    """
    found = _checked_partition(cluster, partition, "")
    end = found.log.log_end_offset
    if offset is not None:
        check_integer("offset", offset, least=end, most=end + MAX_RECORDS)
    first = end if offset is None else offset
    if first > end:
        others = [RecordSeed(value=str(each), partition=found.index) for each in range(end, first)]
        produce(cluster, found.topic.name, others, now_ms, field="records")
    _append(cluster, found, records, _producer_id(cluster, producer_id), epoch, now_ms)


def _check_unused(cluster: Cluster, producer_id: int, where: str) -> None:
    """Raise `ConfigError` if a transactional id has this producer id."""
    for _, transaction in cluster.transactions.all():
        if transaction.value.producer_id == producer_id:
            expected = f"an id that is not used by {transaction.transactional_id!r}"
            raise ConfigError.of("producer_id", producer_id, expected, where=where)


def _producer_id(cluster: Cluster, given: int | None) -> int:
    """Return the given producer id, or the next unused one if it is None. InitProducerId then returns higher ids."""
    if given is None:
        return cluster.new_producer_id()
    cluster.next_producer_id = max(cluster.next_producer_id, given + 1)
    return given


def _checked_partition(cluster: Cluster, text: str, where: str) -> Partition:
    """Return a partition that exists and has a leader."""
    name, index = parse_partition(text, where=where)
    topic = cluster.existing_topic(name, field="partition")
    partition = topic.partition(index)
    if partition is None:
        expected = f"an index from 0 to {len(topic.partitions) - 1}"
        raise ConfigError.of("partition", text, expected, where=where)
    if cluster.leader_of(partition) is None:
        raise ConfigError.of("partition", text, "a partition that has a leader now", where=where)
    return partition


def _append(cluster: Cluster, partition: Partition, count: int, producer_id: int, epoch: int, now_ms: float) -> None:
    """Append transactional records as one batch."""
    if not count:
        return
    known = partition.log.producers.get(producer_id)
    sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
    first = partition.log.log_end_offset
    records = [Record(each, int(now_ms), None, b"%d" % (first + each)) for each in range(count)]
    data = encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )
    partition.log.append(data, partition.leader_epoch)
    cluster.purgatory.wake(partition, len(data))
