"""CreateTopics: Kafka's checks in Kafka's order (ReplicationControlManager.createTopics); any broker answers."""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.cluster.topic_configs import TOPIC_CONFIGS, topic_config_fault, topic_config_text
from fakebroker.cluster.topics import name_fault, spread
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

MAX_RECORDS_PER_USER_OP = 10_000
"""Most topics and partitions in one request (QuorumController)."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

# Kafka's ConfigEntry.ConfigSource.
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5

Assignment = list[list[int]]
"""For each partition the brokers of its replicas."""


class Fault(NamedTuple):
    """Why a topic cannot be created."""

    error: ErrorCode
    message: str


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.request
    if _size(request) > MAX_RECORDS_PER_USER_OP:
        fault = Fault(
            ErrorCode.POLICY_VIOLATION, f"over {MAX_RECORDS_PER_USER_OP} topics and partitions in one request"
        )
        return CreateTopicsResponse(topics=[_failed(topic.name, fault) for topic in request.topics])
    times = Counter(topic.name for topic in request.topics)
    planned = [(topic, _plan(cluster, topic)) for topic in request.topics if times[topic.name] == 1]
    results = [_result(cluster, topic, plan, validate_only=request.validate_only) for topic, plan in planned]
    duplicate = Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    return CreateTopicsResponse(topics=results + [_failed(name, duplicate) for name in times if times[name] > 1])


def _size(request: CreateTopicsRequest) -> int:
    return sum(1 + max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)


def _plan(cluster: "Cluster", topic: CreatableTopic) -> Assignment | Fault:
    fault = _name_fault(cluster, topic.name) or _config_fault(topic)
    if fault is not None:
        return fault
    return _checked_assignment(cluster, topic) if topic.assignments else _new_assignment(cluster, topic)


def _name_fault(cluster: "Cluster", name: str) -> Fault | None:
    if name == CLUSTER_METADATA_TOPIC:
        return Fault(ErrorCode.INVALID_REQUEST, f"topic {name!r} is the controllers' own")
    if name in cluster.topics:
        return Fault(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    message = name_fault(name)
    other = cluster.topics.colliding(name)
    if message is None and other is not None:
        message = f"Topic '{name}' collides with existing topic: {other}"
    return None if message is None else Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _config_fault(topic: CreatableTopic) -> Fault | None:
    messages = (topic_config_fault(config.name, config.value) for config in topic.configs)
    return next((Fault(ErrorCode.INVALID_CONFIG, message) for message in messages if message is not None), None)


def _new_assignment(cluster: "Cluster", topic: CreatableTopic) -> Assignment | Fault:
    """Partitions by number; -1 is the cluster's default number, and Kafka's brokers take it in every version."""
    node_ids = list(cluster.brokers)
    factor, partitions = topic.replication_factor, topic.num_partitions
    if factor == 0 or factor < -1:
        return Fault(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: expected 1 or more, or -1")
    if partitions == 0 or partitions < -1:
        return Fault(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: expected 1 or more, or -1")
    if factor == -1:
        factor = cluster.default_replication_factor
    if factor > len(node_ids):
        message = f"replication factor {factor}: expected at most {len(node_ids)}, the number of brokers"
        return Fault(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return spread(cluster.config.number("num.partitions") if partitions == -1 else partitions, factor, node_ids)


def _checked_assignment(cluster: "Cluster", topic: CreatableTopic) -> Assignment | Fault:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        message = "an assignment of replicas: expected -1 as replication factor and number of partitions"
        return Fault(ErrorCode.INVALID_REQUEST, message)
    by_index = {each.partition_index: each.broker_ids for each in topic.assignments}
    wrong = _assignment_fault(cluster, topic.assignments, by_index)
    if wrong is not None:
        return Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    return [by_index[index] for index in range(len(by_index))]


def _assignment_fault(
    cluster: "Cluster", assignments: list[CreatableReplicaAssignment], by_index: dict[int, list[int]]
) -> str | None:
    for each in assignments:
        where = f"partition {each.partition_index} on brokers {each.broker_ids}"
        if not each.broker_ids or len(set(each.broker_ids)) < len(each.broker_ids):
            return f"{where}: expected one or more, each once"
        if not all(node_id in cluster.brokers for node_id in each.broker_ids):
            return f"{where}: expected brokers out of {list(cluster.brokers)}"
        if len(each.broker_ids) != len(assignments[0].broker_ids):
            return f"{where}: expected {len(assignments[0].broker_ids)} replicas, as the first partition has"
    if len(by_index) < len(assignments) or sorted(by_index) != list(range(len(by_index))):
        indexes = [each.partition_index for each in assignments]
        return f"partitions {indexes}: expected the numbers from 0 on, each once"
    return None


def _failed(name: str, fault: Fault) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=fault.error, error_message=fault.message)


def _result(
    cluster: "Cluster", topic: CreatableTopic, plan: Assignment | Fault, *, validate_only: bool
) -> CreatableTopicResult:
    if isinstance(plan, Fault):
        return _failed(topic.name, plan)
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    result = CreatableTopicResult(
        name=topic.name,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(plan),
        replication_factor=len(plan[0]),
        configs=_effective_configs(cluster, configs),
    )
    if not validate_only:
        result.topic_id = cluster.topics.create(topic.name, plan, configs).topic_id
    return result


def _effective_configs(cluster: "Cluster", configs: dict[str, str]) -> list[CreatableTopicConfigs]:
    """Every config of the new topic by name; those not given have the brokers' values."""
    defaults = TOPIC_CONFIGS | {
        "max.message.bytes": cluster.config.number("message.max.bytes"),
        "retention.bytes": cluster.config.number("log.retention.bytes"),
    }
    return [
        CreatableTopicConfigs(
            name=name,
            value=configs.get(name, topic_config_text(default)),
            read_only=False,
            config_source=_TOPIC_CONFIG if name in configs else _DEFAULT_CONFIG,
            is_sensitive=False,
        )
        for name, default in defaults.items()
    ]
