"""Random requests about transactions, with valid and invalid values: each is answered, and nothing fails later."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import Phase, given, settings, strategies as st

from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.transaction import IDLE
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Primitive
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.soak import examples, soak
from tests.support.strategies import messages

APIS = (
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
    *("WriteTxnMarkers", "DescribeProducers", "DescribeTransactions", "ListTransactions"),
)
INDEXES = ("partitions", "partition_indexes")


def common_values(harness: ClusterHarness) -> dict[str, Sequence[Any]]:
    """Return values of fields, which are drawn more often than any others."""
    transaction = harness.cluster.brokers[1].transaction_coordinator.transaction("t")
    producer_id, epoch = (1, 0) if transaction is None else (transaction.value.producer_id, transaction.value.epoch)
    ids = ("t", "t", "t", "t", "u", "")
    producer_ids = (*[producer_id] * 5, producer_id + 1, -1)
    epochs = (*[epoch] * 5, max(epoch - 1, -1), min(epoch + 1, 32_767), -1, 32_766, 32_767)
    topics = ("news", "news", "news", "missing", "", OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    return {
        **dict.fromkeys(("transactional_id", "v3_and_below_transactional_id"), ids),
        **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), producer_ids),
        **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), epochs),
        **dict.fromkeys(("name", "topic"), topics),
        "group_id": ("g", "g", "h", ""),
        "transaction_timeout_ms": (1_000, 1_000, 900_000, 0, -1),
        "coordinator_epoch": (0, 1, -1),
        "partition_index": (0, 1, -1),
        "transactional_id_pattern": ("", "t|u", "(", None),
    }


def use_values(
    draw: Callable[[st.SearchStrategy[Any]], Any], struct: Struct, version: int, values: Mapping[str, Any]
) -> None:
    """Replace most values of a struct and its parts."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version not in field.versions:
            continue
        if field.name in values and draw(st.integers(0, 9)):
            setattr(struct, field.name, draw(st.sampled_from(values[field.name])))
        elif isinstance(value, list) and field.name in INDEXES and isinstance(field.type, Primitive):
            setattr(struct, field.name, draw(st.lists(st.sampled_from((0, 1, 0, 1, -1, 2)), max_size=3)))
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    use_values(draw, each, version, values)


def is_answered(request: Message, version: int) -> bool:
    """Return whether Kafka answers a request; it does not answer AddPartitionsToTxn without transactions."""
    return not isinstance(request, AddPartitionsToTxnRequest) or version < 4 or bool(request.transactions)


def names_twice(request: Message) -> bool:
    """Return whether a marker names a partition twice. Kafka does not answer that, unless the partition is unknown."""
    if not isinstance(request, WriteTxnMarkersRequest):
        return False
    places = [
        [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        for marker in request.markers
    ]
    return any(len(each) > len(set(each)) for each in places)


REQUESTS = [(API_BY_NAME[name].request, version) for name in APIS for version in versions(name)]


@soak
@settings(max_examples=examples(20, soak=2000), deadline=None, phases=[Phase.generate, Phase.shrink])
@given(st.data(), st.lists(st.sampled_from(REQUESTS), min_size=10, max_size=40))
def test_each_request_is_answered(data: st.DataObject, drawn: list[tuple[type[Message], int]]) -> None:
    harness = ClusterHarness(topics={"news": 2})
    cluster = harness.cluster
    for key_type in (0, 1):
        harness.ask(FindCoordinatorRequest(key_type=key_type, key="t"), 1)
    harness.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    for cls, version in drawn:
        request = data.draw(messages(cls, version))
        use_values(data.draw, request, version, common_values(harness))
        call = harness.send(request, version)
        assert names_twice(request) or (call.response is not None) == is_answered(request, version)
    harness.advance(1_000_000)
    for transaction in cluster.brokers[1].transaction_coordinator.transactions():
        # As in Kafka, markers of clients with a higher epoch let those of the coordinator fail.
        assert transaction.state in IDLE or transaction.refused_markers
    for partition in harness.topic("news").partitions:
        assert partition.log.last_stable_offset <= partition.log.high_watermark
