"""OffsetCommit: commit offsets of a group. Unknown partitions get an error here; the coordinator handles the rest."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, refusal, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.topics import Topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.frames import forget_shared_response, share_response
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Entry = tuple[str, bytes, int]
"""A partition of a request: the name and the id of the topic, of which it has one, and the index."""

_FIRST_VERSION_WITH_EPOCHS = 9
"""Members of consumer groups use this version or a later one (KIP-848)."""

_MOST_SHARED = 1_000
"""The number of responses that are kept for later requests."""


def handle(cluster: "Cluster", call: Call, now_ms: float, request: OffsetCommitRequest | None = None) -> Message | None:
    """Handle a commit; `request` is the request in the name of another member, if it differs from the call's."""
    if request is None:
        request = call.request
    has_acls = cluster.acls is not None
    if has_acls and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return refusal(call, error)
    by_id = call.api_version >= 10
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    named: list[tuple[str, bytes]] = []  # As in Kafka, an unknown topic is in the response even without partitions.
    refused: list[tuple[Entry, ErrorCode]] = []
    accepted: list[Entry] = []
    offsets: list[tuple[str, OffsetCommitRequestPartition]] = []
    for requested in request.topics:
        topic = cluster.topics.find(requested.name, requested.topic_id, by_id=by_id)
        if has_acls and (error := _topic_error(cluster, call, requested, topic)):
            named.append((requested.name, requested.topic_id))
            refused += [(_entry(requested, each), error) for each in requested.partitions]
            continue
        if topic is None:
            named.append((requested.name, requested.topic_id))
        for partition in requested.partitions:
            if topic is None:
                refused.append((_entry(requested, partition), unknown))
            elif topic.partition(partition.partition_index) is None:
                named.append((requested.name, requested.topic_id))
                refused.append((_entry(requested, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                accepted.append((requested.name, requested.topic_id, partition.partition_index))
                offsets.append((topic.name, partition))
    version = call.api_version
    if version == 0 or not offsets:
        # Version 0 commits to ZooKeeper, which the cluster does not have.
        return _response(named, refused, accepted, [ErrorCode.UNSUPPORTED_VERSION] * len(offsets))
    if version < _FIRST_VERSION_WITH_EPOCHS and call.peer.broker.coordinator.groups.consumer.is_consumer(
        request.group_id, request.member_id
    ):
        return _response(named, refused, accepted, [ErrorCode.UNSUPPORTED_VERSION] * len(offsets))
    errors = call.peer.broker.coordinator.offsets.commit(request, offsets, now_ms)
    if not named and not any(errors) and cluster.requests.may_answer_with_bytes:
        return _SUCCESSES[tuple(accepted)]
    return _response(named, refused, accepted, _errors_of_version(errors, version))


def _topic_error(cluster: "Cluster", call: Call, requested: OffsetCommitRequestTopic, topic: Topic | None) -> ErrorCode:
    """Return the error if the client may not read a topic, else NONE. A topic id that is unknown is not a secret."""
    name = requested.name if topic is None else topic.name
    return topic_error(cluster, call, AclOperation.READ, name) if name else ErrorCode.NONE


def _entry(topic: OffsetCommitRequestTopic, partition: OffsetCommitRequestPartition) -> Entry:
    return topic.name, topic.topic_id, partition.partition_index


def _errors_of_version(errors: list[ErrorCode], api_version: int) -> list[ErrorCode]:
    """Replace GROUP_ID_NOT_FOUND by ILLEGAL_GENERATION in versions before 9, which do not have it."""
    if api_version >= _FIRST_VERSION_WITH_EPOCHS:
        return errors
    return [ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.GROUP_ID_NOT_FOUND else error for error in errors]


def _response(
    named: Iterable[tuple[str, bytes]],
    refused: Iterable[tuple[Entry, ErrorCode]],
    accepted: Sequence[Entry],
    errors: Sequence[ErrorCode],
) -> OffsetCommitResponse:
    """Return the results of partitions. The topics in `named` come first, then the topics of accepted partitions."""
    topics = {
        (name, topic_id): OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
        for name, topic_id in [*named, *(entry[:2] for entry in accepted)]
    }
    for (name, topic_id, index), error in [*refused, *zip(accepted, errors, strict=True)]:
        result = OffsetCommitResponsePartition(partition_index=index, error_code=error)
        topics[name, topic_id].partitions.append(result)
    return OffsetCommitResponse(topics=list(topics.values()))


class _Successes(dict[tuple[Entry, ...], OffsetCommitResponse]):
    """The responses without errors, by partitions: a consumer commits the same partitions again and again."""

    __slots__ = ()

    def __missing__(self, accepted: tuple[Entry, ...]) -> OffsetCommitResponse:
        if len(self) >= _MOST_SHARED:
            for response in self.values():
                forget_shared_response(response)
            self.clear()
        self[accepted] = response = share_response(_response([], [], accepted, [ErrorCode.NONE] * len(accepted)))
        return response


_SUCCESSES = _Successes()
