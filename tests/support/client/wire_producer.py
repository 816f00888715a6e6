"""A transactional producer that sends single requests over TCP, in versions that all brokers since 0.11 support."""

from typing import Any

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.schema import Message
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition, by_topic
from tests.support.wire_client import WireClient, broker_of

_TRANSACTION = 1  # the key type in FindCoordinator


class WireProducer:
    """A transactional producer. Calls block, so the cluster must run in another thread: `with FakeCluster(...)`.

    Args:
        cluster: The cluster.
        transactional_id: The id.

    Attributes:
        producer_id, epoch: As the last `init` has returned them.
    """

    def __init__(self, cluster: FakeCluster, transactional_id: str) -> None:
        self._cluster, self.transactional_id = cluster, transactional_id
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        """Send InitProducerId."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        response = self._ask_coordinator(request, InitProducerIdResponse)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        return ErrorCode(response.error_code)

    def add(self, *partitions: TopicPartition) -> list[ErrorCode]:
        """Send AddPartitionsToTxn."""
        topics = by_topic(partitions).items()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics],
        )
        response = self._ask_coordinator(request, AddPartitionsToTxnResponse)
        rows = [row for topic in response.results_by_topic_v3_and_below for row in topic.results_by_partition]
        return [ErrorCode(row.partition_error_code) for row in rows]

    def produce(self, partition: TopicPartition, *values: bytes) -> ErrorCode:
        """Send Produce with one batch."""
        topic, index = partition
        sequence = self._sequences.get(partition, 0)
        data = encode_batch(
            [Record(number, 1_000, None, value) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=data)])],
        )
        response = self._ask(request, ProduceResponse, leader_of(self._cluster, partition), 3)
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self._sequences[partition] = sequence + len(values)
        return error

    def begin(self, partition: TopicPartition, *values: bytes) -> None:
        """Add a partition to the transaction, and produce to it."""
        if self.epoch < 0:
            assert self.init() is ErrorCode.NONE
        assert self.add(partition) == [ErrorCode.NONE]
        assert self.produce(partition, *values) is ErrorCode.NONE

    def add_offsets(self, group_id: str) -> ErrorCode:
        """Send AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return ErrorCode(self._ask_coordinator(request, AddOffsetsToTxnResponse).error_code)

    def commit_offset(self, group_id: str, partition: TopicPartition, offset: int) -> ErrorCode:
        """Send TxnOffsetCommit without the identity of a member."""
        topic, index = partition
        committed = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        node_id = self._cluster.group(group_id).coordinator().node_id
        response = self._ask(request, TxnOffsetCommitResponse, node_id, 0)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool) -> ErrorCode:
        """Send EndTxn."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return ErrorCode(self._ask_coordinator(request, EndTxnResponse).error_code)

    def coordinator(self) -> int:
        """Return the node id of the coordinator."""
        request = FindCoordinatorRequest(key=self.transactional_id, key_type=_TRANSACTION)
        found: FindCoordinatorResponse = self._ask(
            request, FindCoordinatorResponse, self._cluster.brokers[0].node_id, 1
        )
        return found.node_id

    def _ask_coordinator(self, request: Message, kind: Any) -> Any:
        return self._ask(request, kind, self.coordinator(), 0)

    def _ask(self, request: Message, kind: Any, node_id: int, version: int) -> Any:
        with WireClient(broker_of(self._cluster, node_id)) as wire:
            return wire.ask(request, kind, version)


def leader_of(cluster: FakeCluster, partition: TopicPartition) -> int:
    """Return the node id of the leader of a partition."""
    topic, index = partition
    found = internals(cluster).cluster.topics.get(topic)
    assert found is not None
    return internals(cluster).run(lambda: found.partitions[index].leader_id)
