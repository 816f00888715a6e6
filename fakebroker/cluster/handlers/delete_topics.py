"""DeleteTopics: delete topics by name or id, except those that are named twice (ControllerApis.deleteTopics)."""

from collections import Counter
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.cluster.handlers.controller_requests import QUOTA_EXCEEDED, is_expired
from fakebroker.cluster.topics import Topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

STRICT_QUOTA_SINCE = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

_DUPLICATE = (ErrorCode.INVALID_REQUEST, "topic named twice in one request: expected once")


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DeleteTopicsResponse:
    requested = _requested(call)
    if not cluster.config.switch("delete.topic.enable"):
        error = ErrorCode.TOPIC_DELETION_DISABLED if call.api_version >= 3 else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(
            responses=[_result(*each, error, "delete.topic.enable is false") for each in requested]
        )
    if is_expired(call.request.timeout_ms) and any(
        times == 1 and _is_valid(*each) for each, times in requested.items()
    ):
        return DeleteTopicsResponse(
            responses=[_result(*each, ErrorCode.REQUEST_TIMED_OUT, None) for each in requested.elements()]
        )
    found = {each: _find(cluster, call, *each) for each in requested if _is_valid(*each)}
    named = Counter(topic.topic_id for topic in found.values() if isinstance(topic, Topic))
    quota = cluster.quotas.mutations(call, strict_since=STRICT_QUOTA_SINCE)
    results = []
    for (name, topic_id), times in requested.items():
        if not _is_valid(name, topic_id):
            message = "expected a topic name or a topic id, and not both"
            results += [_result(name, topic_id, ErrorCode.INVALID_REQUEST, message) for _ in range(times)]
        elif times > 1:
            results.append(_result(name, topic_id, *_DUPLICATE))
        elif isinstance(topic := found[name, topic_id], DeletableTopicResult):
            results.append(topic)
        elif named[topic.topic_id] > 1:
            results.append(_result(topic.name, topic.topic_id, *_DUPLICATE))
        elif not quota.allows(len(topic.partitions), now_ms):
            results.append(_result(topic.name, topic.topic_id, *QUOTA_EXCEEDED))
        else:
            cluster.delete_topic(topic)
            results.append(_result(topic.name, topic.topic_id, ErrorCode.NONE, None))
    call.throttle_ms = quota.throttle_ms
    return DeleteTopicsResponse(responses=results)


def _requested(call: Call) -> Counter[tuple[str | None, bytes]]:
    """Return the requested topics as (name, id), in their order, with the number of times that each is named."""
    states: list[DeleteTopicState] = call.request.topics
    names: list[str] = call.request.topic_names
    return Counter([(state.name, state.topic_id) for state in states] + [(name, ZERO_UUID) for name in names])


def _is_valid(name: str | None, topic_id: bytes) -> bool:
    """Return whether a topic is requested by its name or its id, and not by both."""
    return (name is None) != (topic_id == ZERO_UUID)


def _find(cluster: "Cluster", call: Call, name: str | None, topic_id: bytes) -> Topic | DeletableTopicResult:
    """Return the topic to delete, or the result with an error."""
    topic = cluster.topics.find(name or "", topic_id, by_id=name is None)
    if topic is None and name is None:
        return _result(name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    refused = _refused(cluster, call, name, topic)
    if refused is not None:
        return refused
    if topic is None:
        return _result(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _refused(cluster: "Cluster", call: Call, name: str | None, topic: Topic | None) -> DeletableTopicResult | None:
    """Return the result for a topic that the client may not delete, or not even see; None if it may.

    The result has the topic's name, if the client gave it or may see it. A missing topic that the client may see has no
    such error.
    """
    known_name = name or (topic.name if topic else "")
    if not cluster_error(cluster, call, AclOperation.DELETE):
        return None
    is_hidden = bool(topic_error(cluster, call, AclOperation.DESCRIBE, known_name))
    if not is_hidden and (topic is None or not topic_error(cluster, call, AclOperation.DELETE, known_name)):
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name is None and topic is not None:
        return _result(None if is_hidden else topic.name, topic.topic_id, error, MESSAGES[error])
    return _result(name, ZERO_UUID, error, MESSAGES[error])


def _result(name: str | None, topic_id: bytes, error: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)
