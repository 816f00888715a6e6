"""The admin client's requests to leaders of partitions: look-ups, building requests, and reading the responses."""

from collections.abc import Iterator, Mapping, Sequence

from fakebroker.client.admin.descriptions import ListedOffset, Node, ProducerDescription
from fakebroker.client.admin.driver import AdminApiHandler
from fakebroker.client.errors import AdminError, PartitionError, error_code
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fakebroker.topic_partition import TopicPartition, by_topic

_CONSUMER = -1  # the replica id in requests of clients
_LEADER_UNKNOWN = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def find_leaders(*, waits_for_topics: bool) -> AdminApiHandler[TopicPartition, Node]:
    """Look up the leaders of partitions (Kafka's `PartitionLeaderStrategy`).

    Args:
        waits_for_topics: Whether a topic or partition that does not exist is looked up again, else an error.
    """

    def read(
        response: MetadataResponse, partitions: Sequence[TopicPartition], _: Node | None
    ) -> Iterator[tuple[TopicPartition, Node | AdminError]]:
        nodes = _nodes(response)
        errors = {topic.name: error_code(topic.error_code) for topic in response.topics if topic.error_code}
        leaders = {
            (topic.name, each.partition_index): error_code(each.error_code)
            if each.error_code
            else nodes.get(each.leader_id, ErrorCode.LEADER_NOT_AVAILABLE)
            for topic in response.topics
            for each in topic.partitions
        }
        for partition in partitions:
            found = errors.get(partition[0]) or leaders.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            yield partition, found if isinstance(found, Node) else PartitionError(partition, "Metadata", found)

    def request(partitions: Sequence[TopicPartition]) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=topic) for topic in by_topic(partitions)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    moved = (*_LEADER_UNKNOWN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if waits_for_topics else _LEADER_UNKNOWN
    return AdminApiHandler(api="Metadata", request=request, read=read, fails=PartitionError, busy=(), moved=moved)


def find_broker(node_id: int) -> AdminApiHandler[TopicPartition, Node]:
    """Look up the address of a broker that is asked about all partitions (Kafka's `StaticBrokerStrategy`)."""

    def read(
        response: MetadataResponse, partitions: Sequence[TopicPartition], _: Node | None
    ) -> Iterator[tuple[TopicPartition, Node | AdminError]]:
        node = _nodes(response).get(node_id)
        for partition in partitions:
            error = PartitionError(partition, "Metadata", ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {node_id}")
            yield partition, node or error

    return AdminApiHandler(
        api="Metadata",
        request=lambda partitions: MetadataRequest(topics=[]),
        read=read,
        fails=PartitionError,
        busy=(),
        moved=_LEADER_UNKNOWN,
    )


def _nodes(response: MetadataResponse) -> dict[int, Node]:
    return {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}


def describe_producers(*, waits_for_leader: bool) -> AdminApiHandler[TopicPartition, tuple[ProducerDescription, ...]]:
    """Describe the producers of partitions (KIP-664).

    Args:
        waits_for_leader: Whether the leader is looked up again if the broker is not the leader any more.
    """

    def read(
        response: DescribeProducersResponse, _partitions: Sequence[TopicPartition], _: Node | None
    ) -> Iterator[tuple[TopicPartition, tuple[ProducerDescription, ...] | AdminError]]:
        for topic in response.topics:
            for each in topic.partitions:
                partition = (topic.name, each.partition_index)
                error = error_code(each.error_code)
                if error is ErrorCode.NONE:
                    yield partition, tuple(_producer(producer) for producer in each.active_producers)
                else:
                    yield partition, PartitionError(partition, "DescribeProducers", error, each.error_message)

    return AdminApiHandler(
        api="DescribeProducers",
        request=lambda partitions: DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(partitions).items()
            ]
        ),
        read=read,
        fails=PartitionError,
        busy=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        moved=(ErrorCode.NOT_LEADER_OR_FOLLOWER,) if waits_for_leader else (),
    )


def _producer(state: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        transaction_start_offset=state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


def abort_transaction(
    producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> AdminApiHandler[TopicPartition, None]:
    """Write a marker that aborts the transaction of a producer in a partition (KIP-664)."""

    def request(partitions: Sequence[TopicPartition]) -> WriteTxnMarkersRequest:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def read(
        response: WriteTxnMarkersResponse, _partitions: Sequence[TopicPartition], _: Node | None
    ) -> Iterator[tuple[TopicPartition, AdminError | None]]:
        for marker in response.markers:
            for topic in marker.topics:
                for each in topic.partitions:
                    partition, error = (topic.name, each.partition_index), error_code(each.error_code)
                    failed = error is not ErrorCode.NONE
                    yield partition, PartitionError(partition, "WriteTxnMarkers", error) if failed else None

    return AdminApiHandler(
        api="WriteTxnMarkers",
        request=request,
        read=read,
        fails=PartitionError,
        busy=(),
        moved=(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    )


_MOVED_IN_LIST_OFFSETS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


def list_offsets(
    timestamps: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> AdminApiHandler[TopicPartition, ListedOffset]:
    """Look up offsets by timestamp.

    Args:
        timestamps: The timestamp of each partition; -2 for its first offset, -1 for the offset after its last one.
        isolation_level: 1 for committed records only, else 0.
        timeout_ms: How long the broker may take to look up offsets in remote storage.
    """

    def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamps[topic, index]) for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ]
        return ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms
        )

    def read(
        response: ListOffsetsResponse, _partitions: Sequence[TopicPartition], _: Node | None
    ) -> Iterator[tuple[TopicPartition, ListedOffset | AdminError]]:
        for topic in response.topics:
            for each in topic.partitions:
                partition, error = (topic.name, each.partition_index), error_code(each.error_code)
                failed = error is not ErrorCode.NONE
                yield partition, PartitionError(partition, "ListOffsets", error) if failed else _listed(each)

    return AdminApiHandler(
        api="ListOffsets",
        request=request,
        read=read,
        fails=PartitionError,
        busy=[error for error in ErrorCode if error.retriable and error not in _MOVED_IN_LIST_OFFSETS],
        moved=_MOVED_IN_LIST_OFFSETS,
    )


def _listed(found: ListOffsetsPartitionResponse) -> ListedOffset:
    return ListedOffset(
        offset=found.offset,
        timestamp_ms=found.timestamp,
        leader_epoch=found.leader_epoch if found.leader_epoch >= 0 else None,
    )
