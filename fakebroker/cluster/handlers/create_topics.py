"""CreateTopics: create topics, or only validate the request. Any broker answers.

Checks and their order are Kafka's (ReplicationControlManager.createTopics).
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.authorization import may_with_cluster_or_topic, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.resolution import topic_config
from fakebroker.cluster.configs.topic_configs import topic_configs, topic_configs_error
from fakebroker.cluster.handlers.controller_requests import (
    MAX_RECORDS_PER_USER_OP,
    QUOTA_EXCEEDED,
    is_expired,
    new_replicas_error,
)
from fakebroker.cluster.quotas import MutationQuota
from fakebroker.cluster.topics import Assignment
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import name_error

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

STRICT_QUOTA_SINCE = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class TopicError(NamedTuple):
    """The error code and the message for a topic that cannot be created."""

    code: ErrorCode
    message: str | None


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.request
    counts_by_name = Counter(topic.name for topic in request.topics)
    request_error = _request_error(cluster, request) if 1 in counts_by_name.values() else None
    if request_error is not None:
        return CreateTopicsResponse(topics=[_failed(topic.name, request_error) for topic in request.topics])
    quota = cluster.quotas.mutations(call, strict_since=STRICT_QUOTA_SINCE)
    planned = [
        (topic, _within_quota(_plan(cluster, call, topic), quota, now_ms))
        for topic in request.topics
        if counts_by_name[topic.name] == 1
    ]
    call.throttle_ms = quota.throttle_ms
    results = [_result(cluster, call, topic, plan, validate_only=request.validate_only) for topic, plan in planned]
    duplicate = TopicError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_failed(name, duplicate) for name, count in counts_by_name.items() if count > 1]
    return CreateTopicsResponse(topics=results)


def _request_error(cluster: "Cluster", request: CreateTopicsRequest) -> TopicError | None:
    """Return the error for all topics of a request, or None. The request names at least one topic exactly once."""
    if is_expired(request.timeout_ms):
        return TopicError(ErrorCode.REQUEST_TIMED_OUT, None)
    counts = [len(topic.assignments) or max(0, _partition_count(cluster, topic)) for topic in request.topics]
    size = len(counts) + sum(counts)
    if size > MAX_RECORDS_PER_USER_OP:
        message = f"{size} topics and partitions in one request: expected at most {MAX_RECORDS_PER_USER_OP}"
        return TopicError(ErrorCode.POLICY_VIOLATION, message)
    return None


def _partition_count(cluster: "Cluster", topic: CreatableTopic) -> int:
    return cluster.config.number("num.partitions") if topic.num_partitions == -1 else topic.num_partitions


def _plan(cluster: "Cluster", call: Call, topic: CreatableTopic) -> Assignment | TopicError:
    """Return the assignment for a new topic, or the error if the topic cannot be created."""
    if topic.name == CLUSTER_METADATA_TOPIC:
        return TopicError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is internal to controllers")
    if not may_with_cluster_or_topic(cluster, call, AclOperation.CREATE, topic.name):
        return TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    error = _new_name_error(cluster, topic.name) or _config_error(cluster, topic)
    if error is not None:
        return error
    return _checked_assignment(cluster, topic) if topic.assignments else _new_assignment(cluster, topic)


def _within_quota(plan: Assignment | TopicError, quota: MutationQuota, now_ms: float) -> Assignment | TopicError:
    """Count the partitions of a new topic; returns an error if the client may not create any now (KIP-599)."""
    if isinstance(plan, TopicError) or quota.allows(len(plan), now_ms):
        return plan
    return TopicError(*QUOTA_EXCEEDED)


def _new_name_error(cluster: "Cluster", name: str) -> TopicError | None:
    if name in cluster.topics:
        return TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    message = name_error(name)
    other = cluster.topics.colliding(name)
    if message is None and other is not None:
        message = f"Topic '{name}' collides with existing topic: {other}"
    return None if message is None else TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _config_error(cluster: "Cluster", topic: CreatableTopic) -> TopicError | None:
    message: str | None
    if nulls := [config.name for config in topic.configs if config.value is None]:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
    else:
        message = topic_configs_error(_configs(topic), cluster.brokers[cluster.controller_id].release)
    return None if message is None else TopicError(ErrorCode.INVALID_CONFIG, message)


def _configs(topic: CreatableTopic) -> dict[str, str]:
    """Return the configs of a new topic; of those that are named twice, the last value."""
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _new_assignment(cluster: "Cluster", topic: CreatableTopic) -> Assignment | TopicError:
    """Place the partitions of a topic. As in Kafka, -1 stands for the default number in all versions."""
    factor, partitions = topic.replication_factor, topic.num_partitions
    if factor == 0 or factor < -1:
        return TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: expected 1 or more, or -1"
        )
    if partitions == 0 or partitions < -1:
        return TopicError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: expected 1 or more, or -1")
    if factor == -1:
        factor = cluster.default_replication_factor
    if factor > len(cluster.brokers):
        message = f"replication factor {factor}: expected at most {len(cluster.brokers)}, the number of brokers"
        return TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return cluster.placement.place_topic(_partition_count(cluster, topic), factor)


def _checked_assignment(cluster: "Cluster", topic: CreatableTopic) -> Assignment | TopicError:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        numbers = f"replication factor {topic.replication_factor}, {topic.num_partitions} partitions"
        message = f"{numbers}: expected -1 for both, because replicas are assigned"
        return TopicError(ErrorCode.INVALID_REQUEST, message)
    by_index = {each.partition_index: each.broker_ids for each in topic.assignments}
    assignment_error = _assignment_error(cluster, topic.assignments, by_index)
    if assignment_error is not None:
        return TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, assignment_error)
    return [by_index[index] for index in range(len(by_index))]


def _assignment_error(
    cluster: "Cluster", assignments: list[CreatableReplicaAssignment], by_index: dict[int, list[int]]
) -> str | None:
    factor = len(assignments[0].broker_ids)
    for each in assignments:
        message = new_replicas_error(cluster, each.partition_index, each.broker_ids, factor)
        if message is not None:
            return message
    if len(by_index) < len(assignments) or sorted(by_index) != list(range(len(by_index))):
        indexes = [each.partition_index for each in assignments]
        return f"partitions {indexes}: expected the numbers from 0 on, each once"
    return None


def _failed(name: str, error: TopicError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def _result(
    cluster: "Cluster", call: Call, topic: CreatableTopic, plan: Assignment | TopicError, *, validate_only: bool
) -> CreatableTopicResult:
    if isinstance(plan, TopicError):
        return _failed(topic.name, plan)
    configs = _configs(topic)
    result = CreatableTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
    result.topic_config_error_code = topic_error(cluster, call, AclOperation.DESCRIBE_CONFIGS, topic.name)
    if not result.topic_config_error_code:
        result.num_partitions, result.replication_factor = len(plan), len(plan[0])
        result.configs = _effective_configs(cluster, configs)
    # As in Kafka, a topic that is not created has an id, too.
    result.topic_id = cluster.new_id() if validate_only else cluster.add_topic(topic.name, plan, configs).topic_id
    return result


def _effective_configs(cluster: "Cluster", configs: dict[str, str]) -> list[CreatableTopicConfigs]:
    """Return all configs of the new topic. Configs that were not given have the values of the controller's broker."""
    controller = cluster.brokers[cluster.controller_id]
    resolved = {name: topic_config(cluster, controller, configs, name) for name in topic_configs(controller.release)}
    return [
        CreatableTopicConfigs(
            name=name, value=each.value, read_only=False, config_source=each.source, is_sensitive=False
        )
        for name, each in resolved.items()
    ]
