"""Builders of a transactional producer's requests.

Requests have the layout of the newest version that the client sends.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fakebroker.client.member.requests import Identity
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.topic_partition import TopicPartition, by_topic

_ALL_REPLICAS = -1
_REQUEST_TIMEOUT_MS = 30_000


class ProducerIdentity(NamedTuple):
    """A producer's identity in requests. A producer id and an epoch of -1 mean none."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


def init_producer_id(identity: ProducerIdentity, timeout_ms: int) -> InitProducerIdRequest:
    """Request an epoch; with a producer id, the next epoch after the given one (KIP-360)."""
    return InitProducerIdRequest(
        transactional_id=identity.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


def add_partitions(identity: ProducerIdentity, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()
        ],
    )


def produce(
    identity: ProducerIdentity, partition: TopicPartition, records: Sequence[Record], sequence: int
) -> ProduceRequest:
    """Send one batch to one partition.

    Args:
        identity: The producer.
        partition: The partition.
        records: The records, with offsets from 0.
        sequence: The sequence number of the first record.
    """
    batch = encode_batch(
        records,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    name, index = partition
    return ProduceRequest(
        transactional_id=identity.transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=_REQUEST_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=batch)])],
    )


def add_offsets(identity: ProducerIdentity, group_id: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def commit_offsets(
    identity: ProducerIdentity, consumer: Identity, offsets: Mapping[TopicPartition, int]
) -> TxnOffsetCommitRequest:
    """Commit offsets of a group as part of the transaction, with the identity of the consumer (KIP-447)."""
    return TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=consumer.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id_or_member_epoch=consumer.generation_id,
        member_id=consumer.member_id,
        group_instance_id=consumer.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offsets[name, index], committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(offsets).items()
        ],
    )


def end(identity: ProducerIdentity, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=is_commit,
    )
