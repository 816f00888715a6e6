"""Producers, idempotent and transactional, and consumers that read what they have produced; and what they check."""

import struct
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, RecordBatch, decode_records, encode_batch, split_batches
from fakebroker.protocol.transaction_markers import AbortedBatches
from tests.endurance.clients import PAUSE_S, find_coordinator, find_leader
from tests.endurance.loop import Ask, Client, Loop, Steps

_NUMBER = struct.Struct(">qi")
"""The value of a record: the number of its batch or transaction, and its number in it."""

_MAX_BYTES = 4 * 1024
"""Of the records in one response: small, because the journal keeps thousands of responses, however large."""

_WAIT_MS = 100
_TRANSACTION_COORDINATOR = 1
_TRANSACTION_MS = 30_000
_RECORDS = 3
"""Records of a transaction in one partition."""

_READ_COMMITTED = 1
_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
_FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
)


def _batch(number: int, count: int, producer: tuple[int, int], sequence: int, *, is_transactional: bool) -> bytes:
    records = [Record(index, 1_000, None, _NUMBER.pack(number, index) + bytes(40)) for index in range(count)]
    return encode_batch(
        records,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def _produce(topic: str, partition: int, data: bytes, transactional_id: str | None = None) -> ProduceRequest:
    part = PartitionProduceData(index=partition, records=data)
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)


def idempotent_producer(loop: Loop, topic: str, partition: int, seed: str) -> Client:
    """A producer whose numbered batches are repeated until they are acknowledged, the only one of a partition."""
    random, number, producer, sequence = Random(seed), 0, (-1, -1), 0
    leader = yield from find_leader(loop, random, topic, partition)
    while True:
        if producer[0] < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
            answer = yield Ask(random.choice(loop.node_ids), request, 4)
            if answer is None or answer.error_code:
                yield PAUSE_S
                continue
            producer, sequence = (answer.producer_id, answer.producer_epoch), 0
        count = random.randint(1, 4)
        data = _batch(number, count, producer, sequence, is_transactional=False)
        while True:
            answer = yield Ask(leader, _produce(topic, partition, data), 9)
            error = None if answer is None else answer.responses[0].partition_responses[0].error_code
            if error in (0, _DUPLICATE):
                break
            place = f"{topic}-{partition}"
            text = f"{place}: batch {number} is refused: {ErrorCode(error or 0).name}"
            loop.check("a repeated batch is accepted", error not in _FENCED, text)
            yield PAUSE_S
            leader = yield from find_leader(loop, random, topic, partition)
        number, sequence = number + 1, sequence + count


def _fetch(topic: str, partition: int, offset: int, isolation_level: int) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
    return FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


@dataclass
class _Reader:
    """A position in a partition.

    Attributes:
        skipped: How often records were deleted before they were read.
    """

    loop: Loop
    topic: str
    partition: int
    random: Random
    isolation_level: int
    offset: int = 0
    leader: int = 0
    skipped: int = 0

    def read(self) -> Steps:
        """Return the next batches, without aborted ones; None after an error."""
        if not self.leader:
            self.leader = yield from find_leader(self.loop, self.random, self.topic, self.partition)
        answer = yield Ask(self.leader, _fetch(self.topic, self.partition, self.offset, self.isolation_level), 11)
        if answer is None:
            self.leader = 0
            return None
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset > self.offset:
            self.offset, self.skipped = part.log_start_offset, self.skipped + 1
            return None
        if part.error_code:
            self.leader = 0
            yield PAUSE_S
            return None
        return self._committed(part)

    def _committed(self, part: Any) -> list[RecordBatch]:
        batches = split_batches(bytes(part.records or b""))
        aborted = AbortedBatches(part.aborted_transactions or ())
        first_offset = self.offset
        if batches:
            self.offset = batches[-1].last_offset + 1
        # Not a generator: the batches have to be looked at in order.
        plain = [batch for batch in batches if not aborted.contain(batch)]
        return [batch for batch in plain if not batch.is_control and batch.last_offset >= first_offset]


def log_reader(loop: Loop, topic: str, partition: int, seed: str) -> Client:
    """A consumer of an idempotent producer's partition: each batch is read once, in order."""
    reader = _Reader(loop, topic, partition, Random(seed), 0)
    expected: int | None = 0
    while True:
        skipped = reader.skipped
        batches = yield from reader.read()
        if reader.skipped > skipped:
            expected = None
        for batch in batches or ():
            number = _NUMBER.unpack_from(decode_records(batch)[0].value or b"")[0]
            text = f"{topic}-{partition}: batch {number} at offset {batch.base_offset}, expected {expected}"
            loop.check("a batch is neither lost nor repeated", expected in (None, number), text)
            expected = number + 1


@dataclass
class Transactions:
    """The transactions of one producer, with two partitions each.

    Attributes:
        outcomes: Whether each of the newest transactions was committed; None if that is not known.
    """

    transactional_id: str
    topic: str
    partitions: tuple[int, int]
    outcomes: dict[int, bool | None] = field(default_factory=dict)


@dataclass
class _TransactionalProducer:
    loop: Loop
    transactions: Transactions
    random: Random
    node_id: int = 0
    producer: tuple[int, int] = (-1, -1)
    sequences: dict[int, int] = field(default_factory=dict)

    def ask(self, request: Any, version: int, error_of: Any) -> Steps:
        """Repeat a request to the coordinator, until it succeeds or the producer is fenced. Return whether it did."""
        while True:
            if not self.node_id:
                transactional_id = self.transactions.transactional_id
                self.node_id = yield from find_coordinator(
                    self.loop, self.random, transactional_id, _TRANSACTION_COORDINATOR
                )
            answer = yield Ask(self.node_id, request, version)
            error = None if answer is None else error_of(answer)
            if error == 0:
                return answer
            if error in _FENCED:
                return None
            if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.node_id = 0
            yield PAUSE_S

    def init(self) -> Steps:
        """Get a producer id and epoch, which aborts an open transaction."""
        request = InitProducerIdRequest(
            transactional_id=self.transactions.transactional_id, transaction_timeout_ms=_TRANSACTION_MS
        )
        answer = None
        while answer is None:
            answer = yield from self.ask(request, 4, lambda answer: answer.error_code)
        self.producer, self.sequences = (answer.producer_id, answer.producer_epoch), {}

    def run(self, number: int) -> Steps:
        """Run a transaction. Return whether the producer may continue without a new epoch."""
        transactions = self.transactions
        transactions.outcomes[number] = False
        topics = [AddPartitionsToTxnTopic(name=transactions.topic, partitions=[*transactions.partitions])]
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactions.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=topics,
        )
        added = yield from self.ask(
            add, 3, lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        if added is None:
            return False
        for partition in transactions.partitions:
            if not (yield from self._produce(number, partition)):
                return False
        commits = self.random.random() < 0.7
        transactions.outcomes[number] = None if commits else False
        end = EndTxnRequest(
            transactional_id=transactions.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commits,
        )
        ended = yield from self.ask(end, 3, lambda answer: answer.error_code)
        if ended is None:
            return False
        transactions.outcomes[number] = commits
        return True

    def _produce(self, number: int, partition: int) -> Steps:
        transactions, sequence = self.transactions, self.sequences.get(partition, 0)
        data = _batch(number, _RECORDS, self.producer, sequence, is_transactional=True)
        while True:
            leader = yield from find_leader(self.loop, self.random, transactions.topic, partition)
            request = _produce(transactions.topic, partition, data, transactions.transactional_id)
            answer = yield Ask(leader, request, 9)
            error = None if answer is None else answer.responses[0].partition_responses[0].error_code
            if error in (0, _DUPLICATE):
                self.sequences[partition] = sequence + _RECORDS
                return True
            if error in _FENCED:
                return False
            yield PAUSE_S


def transactional_producer(loop: Loop, transactions: Transactions, seed: str) -> Client:
    """A producer that runs transactions, of which it aborts some, the only one of its partitions."""
    producer, number, continues = _TransactionalProducer(loop, transactions, Random(seed)), 0, False
    while True:
        if not continues:
            yield from producer.init()
        continues = yield from producer.run(number)
        number += 1
        transactions.outcomes.pop(number - 1_000, None)


def committed_reader(loop: Loop, transactions: Transactions, partition: int, seed: str) -> Client:
    """A consumer of committed records: of each transaction it reads all records or none, as it has ended."""
    reader = _Reader(loop, transactions.topic, partition, Random(seed), _READ_COMMITTED)
    newest, seen, skipped = -1, 0, 0
    while True:
        batches = yield from reader.read()
        if reader.skipped > skipped:
            newest, skipped = -1, reader.skipped
        for batch in batches or ():
            records = [_NUMBER.unpack_from(each.value or b"")[0] for each in decode_records(batch)]
            number = records[0]
            if newest >= 0 and number != newest:
                _check_transactions(loop, transactions, partition, range(newest, number), seen)
            newest, seen = number, (seen if number == newest else 0) + len(records)


def _check_transactions(loop: Loop, transactions: Transactions, partition: int, numbers: range, seen: int) -> None:
    """Check the transactions up to the one that is read next. Of the first of them, `seen` records were read."""
    place = f"{transactions.topic}-{partition}"
    loop.check("transactions are read in order", bool(numbers), f"{place}: {numbers.stop} after {numbers.start}")
    for number in numbers:
        outcome = transactions.outcomes.get(number)
        records = seen if number == numbers.start else 0
        allowed = (0, _RECORDS) if outcome is None else (_RECORDS,) if outcome else (0,)
        text = f"{place}: {records} records of transaction {number}, whose outcome is {outcome}"
        loop.check("a transaction is read as it has ended", records in allowed, text)
