"""Invalid requests about transactions, with Kafka's errors: for tests of the core and over TCP.

The transactional id "t" exists in state Empty, with epoch 0; other ids do not exist.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.schema import Message, Struct

ID = "t"
MAX_TIMEOUT_MS = 900_000

Errors = list[str]


class InvalidRequest(NamedTuple):
    """A request and the errors in its response, in order."""

    name: str
    request: Message
    version: int
    errors: Errors


def error_names(value: Any) -> Errors:
    """Return the error codes in a response, in order, without NONE."""
    if isinstance(value, list):
        return [name for item in value for name in error_names(item)]
    if not isinstance(value, Struct):
        return []
    found: Errors = []
    for field in value.FIELDS:
        content = getattr(value, field.name)
        if field.name.endswith("error_code"):
            found += [ErrorCode(content).name] if content else []
        else:
            found += error_names(content)
    return found


def invalid_requests(producer_id: int, topic: str) -> Iterator[InvalidRequest]:
    """Yield the requests.

    Args:
        producer_id: The producer id of "t".
        topic: A topic with one partition.
    """
    for name, request, version, errors in (
        *_init_requests(producer_id),
        *_add_requests(producer_id, topic),
        *_end_requests(producer_id),
        *_offset_requests(producer_id, topic),
        *_produce_requests(producer_id, topic),
        *_admin_requests(topic),
    ):
        yield InvalidRequest(f"{type(request).__name__} v{version}: {name}", request, version, errors.split())


_Row = tuple[str, Message, int, str]


def _init_requests(own: int) -> Iterator[_Row]:
    def request(**changes: Any) -> InitProducerIdRequest:
        fields: dict[str, Any] = {"transactional_id": ID, "transaction_timeout_ms": 1_000}
        return InitProducerIdRequest(**(fields | changes))

    for version in (0, 5):
        yield "empty id", request(transactional_id=""), version, "INVALID_REQUEST"
        for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, -(2**31), 2**31 - 1):
            invalid = request(transaction_timeout_ms=timeout_ms)
            yield f"timeout {timeout_ms}", invalid, version, "INVALID_TRANSACTION_TIMEOUT"
            new = request(transactional_id="new", transaction_timeout_ms=timeout_ms)
            yield f"timeout {timeout_ms} of a new id", new, version, "INVALID_TRANSACTION_TIMEOUT"
    for producer_id, epoch in ((own, -1), (-1, 0), (-1, 32767), (12345, -1)):
        for name in (ID, "new", None):
            invalid = request(transactional_id=name, producer_id=producer_id, producer_epoch=epoch)
            yield f"producer {producer_id}, epoch {epoch} of {name!r}", invalid, 3, "INVALID_REQUEST"
    for producer_id, epoch in ((12345, 0), (-2, 0), (12345, 32767), (own, 32767), (own, 1), (own, -2)):
        invalid = request(producer_id=producer_id, producer_epoch=epoch)
        yield f"producer {producer_id}, epoch {epoch}", invalid, 3, "INVALID_PRODUCER_EPOCH"
        yield f"producer {producer_id}, epoch {epoch}", invalid, 4, "PRODUCER_FENCED"


def _producers(own: int) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield names of cases, id, producer id, epoch and error of requests with a producer id and an epoch."""
    yield "empty id", "", own, 0, "INVALID_REQUEST"
    for name in ("new", "\0", "x" * 32_767, "\U0001f680" * 8_191):
        yield f"unknown id {name[:3]!r}", name, own, 0, "INVALID_PRODUCER_ID_MAPPING"
    for producer_id in (-1, -2, 12345, 2**63 - 1):
        yield f"producer {producer_id}", ID, producer_id, 0, "INVALID_PRODUCER_ID_MAPPING"
    for epoch in (-1, 1, 32767, -(2**15)):
        yield f"epoch {epoch}", ID, own, epoch, "PRODUCER_FENCED"


def _old(error: str) -> str:
    """Return an error in versions before KIP-588."""
    return "INVALID_PRODUCER_EPOCH" if error == "PRODUCER_FENCED" else error


def _add_requests(own: int, topic: str) -> Iterator[_Row]:
    def request(*topics: tuple[str, list[int]], name: str = ID, producer_id: int = own, epoch: int = 0) -> Message:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=indexes) for each, indexes in topics],
        )

    for case, name, producer_id, epoch, error in _producers(own):
        invalid = request((topic, [0]), name=name, producer_id=producer_id, epoch=epoch)
        yield case, invalid, 1, _old(error)
        yield case, invalid, 3, error
        for verify_only in (False, True):
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            yield f"{case}, {verify_only=}", AddPartitionsToTxnRequest(transactions=[transaction]), 5, error
    for unknown, index in (("missing", 0), ("", 0), ("a/b", 0), ("x" * 300, 0), (topic, 1), (topic, -1)):
        invalid = request((topic, [0]), (unknown, [index]))
        if unknown == topic:
            invalid = request((topic, [0, index]))
        yield f"partition {unknown[:9]}-{index}", invalid, 3, "OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION"
    for internal in ("__consumer_offsets", "__transaction_state"):
        invalid = request((internal, [0]), (topic, [0]))
        yield internal, invalid, 3, "TOPIC_AUTHORIZATION_FAILED OPERATION_NOT_ATTEMPTED"
    yield "unknown id and topic", request(("missing", [0]), name="new"), 3, "UNKNOWN_TOPIC_OR_PARTITION"
    many = " ".join(["UNKNOWN_TOPIC_OR_PARTITION"] * 10_000)
    yield "10,000 unknown partitions", request(("missing", list(range(10_000)))), 3, many


def _end_requests(own: int) -> Iterator[_Row]:
    for case, name, producer_id, epoch, error in _producers(own):
        for is_commit in (False, True):
            invalid = EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
            )
            yield f"{case}, {is_commit=}", invalid, 1, _old(error)
            yield f"{case}, {is_commit=}", invalid, 4, error
            yield f"{case}, {is_commit=}", invalid, 5, error
    empty = EndTxnRequest(transactional_id=ID, producer_id=own, producer_epoch=0, committed=True)
    for version in (0, 4, 5):
        yield "no transaction", empty, version, "INVALID_TXN_STATE"


def _offset_requests(own: int, topic: str) -> Iterator[_Row]:
    for case, name, producer_id, epoch, error in _producers(own):
        producer: dict[str, Any] = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        invalid = AddOffsetsToTxnRequest(group_id="g", **producer)
        yield case, invalid, 1, _old(error)
        yield case, invalid, 3, error

    def commit(group_id: str = "g", topic: str = topic, **changes: Any) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])]
        fields: dict[str, Any] = {"transactional_id": ID, "producer_id": own, "producer_epoch": 0}
        return TxnOffsetCommitRequest(group_id=group_id, topics=topics, **(fields | changes))

    yield "not in the transaction", commit(), 3, "INVALID_TXN_STATE"
    yield "not in the transaction", commit(), 4, "TRANSACTION_ABORTABLE"
    yield "no group", commit(""), 3, "INVALID_GROUP_ID"
    yield "unknown topic", commit(topic="missing"), 5, "UNKNOWN_TOPIC_OR_PARTITION"
    yield "empty id", commit(transactional_id=""), 5, "INVALID_REQUEST"
    yield "other producer", commit(producer_id=12345), 5, "INVALID_PRODUCER_ID_MAPPING"
    for epoch in (-1, 1, 32767):
        yield f"epoch {epoch}", commit(producer_epoch=epoch), 5, "INVALID_PRODUCER_EPOCH"


def _produce_requests(own: int, topic: str) -> Iterator[_Row]:
    def request(producer_id: int = own, epoch: int = 0, name: str | None = ID) -> ProduceRequest:
        data = encode_batch(
            [Record(0, 1_000, None, b"a")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])]
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=topics)

    for case, name, producer_id, epoch, error in _producers(own):
        # As in Kafka, batches without producer id are not verified, even if they have the transactional bit.
        for version in (9, 11, 12) if producer_id >= 0 else ():
            yield case, request(producer_id, epoch, name), version, _old(error)
    yield "no id", request(name=None), 9, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    yield "not in the transaction", request(), 9, "INVALID_TXN_STATE"
    yield "not in the transaction", request(), 11, "TRANSACTION_ABORTABLE"


_NOT_RE2 = (r"(t)\1", "(?=t)t", "t(?!x)", "(?<=t)x", "(?<!t)x", "(?>t)", "(?P<a>t)(?P=a)", "(t)(?(1)x|y)")
"""Patterns that Python's regular expressions allow, and Google RE2 does not."""


def _admin_requests(topic: str) -> Iterator[_Row]:
    ids = ["", "new", "new", "\0", "x" * 32_767]
    missing = "TRANSACTIONAL_ID_NOT_FOUND"
    describe = DescribeTransactionsRequest(transactional_ids=ids)
    yield "missing ids", describe, 0, f"INVALID_REQUEST {missing} {missing} {missing} {missing}"
    for pattern in ("(", "[", "*", "\\", "a{99999999999}", "(" * 5_000 + ")" * 5_000, *_NOT_RE2):
        listing = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        yield f"pattern {pattern[:20]}", listing, 2, "INVALID_REGULAR_EXPRESSION"
    producers = [TopicRequest(name=name, partition_indexes=[0, 1]) for name in ("missing", "a/b", "")]
    unknown, invalid = "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION"
    describe_producers = DescribeProducersRequest(topics=producers)
    yield "topics", describe_producers, 0, " ".join([unknown, unknown, invalid, invalid, invalid, invalid])
    key_type = FindCoordinatorRequest(coordinator_keys=["t", ""], key_type=9)
    yield "key type", key_type, 6, "INVALID_REQUEST INVALID_REQUEST"

    def markers(
        *places: tuple[str, list[int]], producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
    ) -> Message:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in places or [(topic, [0])]
            ],
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    yield "unknown partitions", markers(("missing", [0, 1]), (topic, [-1, 1])), 1, " ".join([unknown] * 4)
    yield "no producer", markers(producer_id=-1), 1, "UNKNOWN_SERVER_ERROR"
    yield "no epoch", markers(epoch=-1), 1, "UNKNOWN_SERVER_ERROR"
    yield "negative epoch", markers(epoch=-2), 1, "INVALID_PRODUCER_EPOCH"
    yield "negative coordinator epoch", markers(coordinator_epoch=-2), 1, "TRANSACTION_COORDINATOR_FENCED"
