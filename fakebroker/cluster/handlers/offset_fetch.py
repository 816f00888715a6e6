"""OffsetFetch: the committed offsets of one group (versions 0-7), or of many with a result for each (KIP-709)."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, topic_error
from fakebroker.cluster.call import Call, EncodedResponse, UndecodedCall
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.offset_store import CommittedOffset, OffsetStore
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.codec import decode
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
from fakebroker.protocol.releases import Release
from fakebroker.protocol.types import unsigned_varint
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Parts of requests and responses as bytes, versions 8 and 9. A row without metadata has an empty string there.
_FIRST_VERSION_OF_TOP_LEVEL_ERRORS, _FIRST_BATCH_VERSION = 2, 8
_NO_THROTTLE_TIME, _NO_ERROR, _NO_TAGS, _NO_TOPICS = bytes(4), bytes(2), bytes(1), unsigned_varint(1)
_INDEX, _ROW, _INT16 = struct.Struct(">i"), struct.Struct(">iqiBhB"), struct.Struct(">h")
# A request with one group, whose id is empty, before and after its topics.
_ONE_GROUP, _AFTER_TOPICS = unsigned_varint(2) + unsigned_varint(1), _NO_TAGS + bytes(1) + _NO_TAGS

# In Kafka 3.5 to 3.8, version 1 loses an error of the group: the list of topics is empty (KAFKA-19246, KAFKA-19439). A
# release stands for its newest patch, and 3.9.2 and 4.0.2 are mended.
_FIRST_RELEASE_THAT_LOSES_ERRORS, _FIXED_RELEASE = Release(3, 5), Release(3, 9)

_UNSTABLE = CommittedOffset(offset=-1, commit_timestamp_ms=-1)
"""The offset for a partition with pending offsets, if a request requires stable ones (KIP-447)."""

_MAX_LISTS = 1_000
"""Maximum number of lists of topics in the cache."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> OffsetFetchResponse | EncodedResponse:
    if isinstance(call, UndecodedCall) and cluster.acls is None and cluster.requests.may_answer_with_bytes:
        require_stable, groups = call.items
        if not (require_stable and call.broker.coordinator.offsets.has_pending):
            encoded = _fetch_groups(call.broker.coordinator, groups)
            if encoded is not None:
                return encoded
    request: OffsetFetchRequest = call.request
    if call.api_version < _FIRST_VERSION_OF_TOP_LEVEL_ERRORS and (
        error := group_error(cluster, call, AclOperation.DESCRIBE, request.group_id)
    ):
        return _single(_refused(request, lambda name: error))
    if call.api_version == 0:
        # Version 0 reads from ZooKeeper, which the cluster does not have.
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        hidden = partial(topic_error, cluster, call, AclOperation.DESCRIBE)
        return _single(_refused(request, lambda name: hidden(name) or unsupported))
    if call.api_version < 8:
        group = _fetch(cluster, call, _as_group(request))
        loses_errors = _FIRST_RELEASE_THAT_LOSES_ERRORS <= call.broker.release < _FIXED_RELEASE
        if call.api_version < _FIRST_VERSION_OF_TOP_LEVEL_ERRORS and group.error_code and not loses_errors:
            error = ErrorCode(group.error_code)
            group = _refused(request, lambda name: error)
        return _single(group)
    return OffsetFetchResponse(groups=[_fetch(cluster, call, group) for group in request.groups])


class _RequestedTopics:
    """The topics that a group is asked for, decoded and encoded once for all groups.

    Args:
        encoded: The list of topics as in a request, from `raw_items.offset_fetch_groups`.

    Attributes:
        topics: For each topic its name, its encoded start in a response, and its partitions: each with its encoded
            index, and with the encoded row of a partition without an offset.
        without_offsets: The encoded rest of a group without offsets.

    Raises:
        ProtocolError: A name is malformed.
    """

    __slots__ = ("topics", "without_offsets")

    def __init__(self, encoded: bytes) -> None:
        request = decode(OffsetFetchRequest, _ONE_GROUP + encoded + _AFTER_TOPICS, _FIRST_BATCH_VERSION)
        self.topics = []
        rest = encoded[:1]
        for topic in request.groups[0].topics or ():
            name = topic.name.encode()
            start = unsigned_varint(len(name) + 1) + name + unsigned_varint(len(topic.partition_indexes) + 1)
            rows = [(index, _INDEX.pack(index), _ROW.pack(index, -1, -1, 1, 0, 0)) for index in topic.partition_indexes]
            self.topics.append((topic.name, start, rows))
            rest += start + b"".join(row for _, _, row in rows) + _NO_TAGS
        self.without_offsets = rest + _NO_ERROR + _NO_TAGS


class _RequestedTopicsCache(dict[bytes, _RequestedTopics]):
    """The lists of topics of recent requests; its size is limited."""

    def __missing__(self, encoded: bytes) -> _RequestedTopics:
        if len(self) >= _MAX_LISTS:
            self.clear()
        self[encoded] = topics = _RequestedTopics(encoded)
        return topics


_requested_topics = _RequestedTopicsCache()


def _fetch_groups(coordinator: Coordinator, groups: list[tuple[bytes, bytes]]) -> EncodedResponse | None:
    """Return the encoded response for many groups; None if the request is malformed."""
    rows = [_NO_THROTTLE_TIME, unsigned_varint(len(groups) + 1)]
    errors: dict[ErrorCode, None] = {}
    try:
        for group_id, topics in groups:
            rows.append(group_id)
            requested = _requested_topics[topics]
            error, offsets = coordinator.offsets.of(group_id[1:].decode())
            if error is not ErrorCode.NONE:
                errors[error] = None
                rows.append(_NO_TOPICS + _INT16.pack(error) + _NO_TAGS)
            elif offsets is None:
                rows.append(requested.without_offsets)
            else:
                rows.append(topics[:1])
                entries, details = offsets.entries, offsets.details
                for name, start, partitions in requested.topics:
                    rows.append(start)
                    positions = offsets.positions_of(name)
                    for index, encoded_index, row in partitions:
                        at = positions.get(index)
                        if at is None:
                            rows.append(row)
                        else:
                            end = _row_end(details[at][0]) if at in details else _ROW_END
                            rows.append(encoded_index + entries[at : at + OffsetStore.WIRE_BYTES] + end)
                    rows.append(_NO_TAGS)
                rows.append(_NO_ERROR + _NO_TAGS)
    except ProtocolError:
        return None
    rows.append(_NO_TAGS)
    return EncodedResponse(b"".join(rows), tuple(errors))


def _row_end(metadata: str) -> bytes:
    encoded = metadata.encode()
    return unsigned_varint(len(encoded) + 1) + encoded + _NO_ERROR + _NO_TAGS


_ROW_END = _row_end("")


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _single(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Return the response in versions 0-7."""
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


def _refused(request: OffsetFetchRequest, error_of: Callable[[str], ErrorCode]) -> OffsetFetchResponseGroup:
    """Return a result in which each partition has the error of its topic."""
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[_partition(index, None, error_of(topic.name)) for index in topic.partition_indexes],
        )
        for topic in request.topics or []
    ]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _fetch(cluster: "Cluster", call: Call, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """Return the result for one group. A group that does not exist has no offsets; this is not an error."""
    if error := group_error(cluster, call, AclOperation.DESCRIBE, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    if error := call.broker.coordinator.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch):
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    if group.topics is None:
        return _fetch_all(cluster, call, group.group_id)
    names = [_name(cluster, call, topic) for topic in group.topics]
    partitions = [
        (name, index)
        for topic, name in zip(group.topics, names, strict=True)
        if not isinstance(name, ErrorCode)
        for index in topic.partition_indexes
    ]
    error, offsets = _offsets(call, group.group_id, partitions)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    committed = {(topic, partition): offset for topic, partition, offset in offsets}
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                _partition(index, None, name)
                if isinstance(name, ErrorCode)
                else _partition(index, committed[name, index])
                for index in topic.partition_indexes
            ],
        )
        for topic, name in zip(group.topics, names, strict=True)
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _offsets(
    call: Call, group_id: str, partitions: Sequence[TopicPartition] | None
) -> tuple[ErrorCode, list[tuple[str, int, CommittedOffset | None]]]:
    """Return the offsets of a group, see `CommittedOffsets.fetch`, with `_UNSTABLE` for those that may change."""
    coordinator = call.broker.coordinator
    error, offsets = coordinator.offsets.fetch(group_id, partitions)
    if call.request.require_stable and (unstable := coordinator.offsets.unstable_partitions(group_id)):
        offsets = [(name, index, _UNSTABLE if (name, index) in unstable else each) for name, index, each in offsets]
    return error, offsets


def _name(cluster: "Cluster", call: Call, requested: OffsetFetchRequestTopics) -> str | ErrorCode:
    """Return the name of a requested topic, or the error if it is hidden, or no topic has its id.

    A requested name need not exist.
    """
    name = requested.name
    if call.api_version >= 10:
        topic = cluster.topics.find("", requested.topic_id, by_id=True)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = topic.name
    return topic_error(cluster, call, AclOperation.DESCRIBE, name) or name


def _fetch_all(cluster: "Cluster", call: Call, group_id: str) -> OffsetFetchResponseGroup:
    error, offsets = _offsets(call, group_id, None)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for name, index, offset in offsets:
        topic = cluster.topics.get(name)
        if topic is None and call.api_version >= 10:
            continue
        if topic_error(cluster, call, AclOperation.DESCRIBE, name):
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
    if committed is _UNSTABLE:
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
