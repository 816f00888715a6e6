"""OffsetDelete: delete committed offsets of a group (KIP-496).

Unknown partitions get an error here; the coordinator handles the rest.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, topic_error
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Entry = tuple[str, int]
"""A topic and the index of a partition."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    """Delete offsets. The coordinator is called even if all partitions are unknown: its error replaces all results."""
    request: OffsetDeleteRequest = call.request
    if error := group_error(cluster, call, AclOperation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=error, topics=[])
    requested = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    errors_of = {entry: _error(cluster, call, *entry) for entry in requested}
    known = [entry for entry in requested if not errors_of[entry]]
    refused = [(entry, errors_of[entry]) for entry in requested if errors_of[entry]]
    # As in Kafka, a topic without partitions is in the response if it does not exist, or may not be read.
    names = [
        topic.name
        for topic in request.topics
        if _error(cluster, call, topic.name)
        or any(errors_of[topic.name, partition.partition_index] for partition in topic.partitions)
    ]
    error, errors = call.broker.coordinator.offsets.delete(request.group_id, known)
    if error:
        return OffsetDeleteResponse(error_code=error, topics=[])
    if names:
        return OffsetDeleteResponse(topics=_topics(names, [*refused, *zip(known, errors, strict=True)]))
    # As in Kafka, topics that are named twice are put together only with those that are refused.
    found = iter(errors)
    each_topic = [
        _topics((), [((topic.name, each.partition_index), next(found)) for each in topic.partitions])
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=[topic for topics in each_topic for topic in topics])


def _error(cluster: "Cluster", call: Call, name: str, index: int | None = None) -> ErrorCode:
    """Return the error for a topic or partition that the client may not read or that does not exist, else NONE."""
    topic = cluster.topics.get(name)
    is_known = topic is not None and (index is None or topic.partition(index) is not None)
    unknown = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic_error(cluster, call, AclOperation.READ, name) or unknown


def _topics(names: Iterable[str], results: Iterable[tuple[Entry, ErrorCode]]) -> list[OffsetDeleteResponseTopic]:
    """Return the results by topic. The topics in `names` come first, even without results."""
    topics = {name: OffsetDeleteResponseTopic(name=name, partitions=[]) for name in names}
    for (name, index), error in results:
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name=name, partitions=[]))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
    return list(topics.values())
