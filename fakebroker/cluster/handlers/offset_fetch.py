"""OffsetFetch: the committed offsets of one group (versions 0-7), or of many with a result for each (KIP-709)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> OffsetFetchResponse:
    request: OffsetFetchRequest = call.request
    if call.api_version == 0:
        # Version 0 reads from ZooKeeper, which the cluster does not have.
        return _single(call, _refused(request, ErrorCode.UNSUPPORTED_VERSION))
    if call.api_version < 8:
        return _single(call, _fetch(cluster, call, _as_group(request), now_ms))
    return OffsetFetchResponse(groups=[_fetch(cluster, call, group, now_ms) for group in request.groups])


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _single(call: Call, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Return the response in versions 0-7. In version 1 an error of the group appears as an empty list of topics."""
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _refused(request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponseGroup:
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name, partitions=[_partition(index, None, error) for index in topic.partition_indexes]
        )
        for topic in request.topics or []
    ]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _fetch(cluster: "Cluster", call: Call, group: OffsetFetchRequestGroup, now_ms: float) -> OffsetFetchResponseGroup:
    """Return the result for one group. A group that does not exist has no offsets; this is not an error."""
    if group.topics is None:
        return _fetch_all(cluster, call, group.group_id, now_ms)
    names = [_name(cluster, call, topic) for topic in group.topics]
    partitions = [
        (name, index)
        for topic, name in zip(group.topics, names, strict=True)
        if name is not None
        for index in topic.partition_indexes
    ]
    error, offsets = call.broker.coordinator.fetch_offsets(group.group_id, partitions, now_ms)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    committed = {(topic, partition): offset for topic, partition, offset in offsets}
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                _partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else _partition(index, committed[name, index])
                for index in topic.partition_indexes
            ],
        )
        for topic, name in zip(group.topics, names, strict=True)
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _name(cluster: "Cluster", call: Call, requested: OffsetFetchRequestTopics) -> str | None:
    """Return the name of a requested topic, or None if no topic has its id. A requested name need not exist."""
    if call.api_version < 10:
        return requested.name
    topic = cluster.topics.find("", requested.topic_id, by_id=True)
    return topic.name if topic else None


def _fetch_all(cluster: "Cluster", call: Call, group_id: str, now_ms: float) -> OffsetFetchResponseGroup:
    error, offsets = call.broker.coordinator.fetch_offsets(group_id, None, now_ms)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for name, index, offset in offsets:
        topic = cluster.topics.get(name)
        if topic is None and call.api_version >= 10:
            continue
        topic_id = topic.topic_id if topic else bytes(16)
        entry = topics.setdefault(name, OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=[]))
        entry.partitions.append(_partition(index, offset))
    return OffsetFetchResponseGroup(group_id=group_id, topics=list(topics.values()))


def _partition(
    index: int, committed: CommittedOffset | None, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
