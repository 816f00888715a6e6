"""Which permissions each API needs, and where its response has the error without one of them: a table, and a reader.

Sources: KafkaApis, ControllerApis, AclApis, ConfigHelper, and `getErrorResponse` of the request classes, Kafka 4.2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from typing import Any, NamedTuple

from fakebroker.errors import ErrorCode
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message, Struct, Versions
from fakebroker.protocol.types import ZERO_UUID, Primitive
from fakebroker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from tests.support.cluster.cluster_harness import batch

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
NEWS_ID = b"the id of topic news"
"""Stands for the id of topic "news" in requests of the table."""

_CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
_NAMES = {TOPIC: "news", GROUP: "g", TRANSACTIONAL_ID: "t", CLUSTER: CLUSTER_NAME}

Found = tuple[str, ErrorCode]
"""A dotted path of arrays, and the error in the structs there. The path ends with the field if it is not error_code."""


class Need(NamedTuple):
    """A permission that a request needs.

    Attributes:
        operation: The operation.
        kind: The type of the resource.
        places: Where the response has the error without it, by the first version: dotted paths of arrays; "-" is
            nowhere.
        name: The name of the resource; by default "news", "g", "t" or the cluster.
        code: The error; by default that of the type.
    """

    operation: AclOperation
    kind: ResourceType
    places: Mapping[int, str]
    name: str = ""
    code: ErrorCode = ErrorCode.NONE

    def acl(self, permission: AclPermission, principal: str) -> Acl:
        pattern = ResourcePattern(self.kind, self.name or _NAMES[self.kind])
        return Acl(pattern, principal, "*", self.operation, permission)

    def errors(self, version: int) -> set[Found]:
        """Return the errors of a response without this permission."""
        places = next((text for first, text in sorted(self.places.items(), reverse=True) if first <= version), "-")
        return {(place, self.code or _CODES[self.kind]) for place in places.split("+") if place != "-"}


class Row(NamedTuple):
    """A request, and the permissions that it needs: all of them.

    Attributes:
        api: The API.
        fields: The fields of the request, nested as in the message; those that a version lacks are left out.
        needs: The permissions.
        versions: The versions of the request.
    """

    api: str
    fields: Mapping[str, Any]
    needs: tuple[Need, ...]
    versions: str = "0+"

    @property
    def tested_versions(self) -> list[int]:
        """The oldest and the newest version, and each version from which on the error is in another place."""
        supported = API_BY_NAME[self.api].versions
        known = [each for each in range(supported.first, supported.last + 1) if each in Versions.parse(self.versions)]
        changes = {first for need in self.needs for first in need.places}
        return sorted({known[0], known[-1], *(each for each in changes if each in known)})

    def request(self, version: int, news_id: bytes) -> Message:
        made = _built(API_BY_NAME[self.api].request, self.fields, version, news_id)
        assert isinstance(made, Message)
        return made


def _built(cls: Any, values: Mapping[str, Any], version: int, news_id: bytes) -> Any:
    """Build a struct from plain data. Fields without a value have their default, or an empty value."""
    unknown = values.keys() - {field.name for field in cls.FIELDS}
    assert not unknown, f"{cls.__name__} has no {unknown}"
    given = {}
    for field in cls.FIELDS:
        if field.name in values and version in field.versions:
            value = values[field.name]
            if not isinstance(field.type, Primitive) and value is not None:
                value = [_built(field.type, each, version, news_id) for each in value]
            given[field.name] = news_id if value == NEWS_ID else value
        elif field.default is MISSING:
            given[field.name] = field.default_value()
    return cls(**given)


def authorization_errors(response: Struct) -> set[Found]:
    """Return the authorization errors in a response."""
    return {(path, code) for path, code in _errors(response, ()) if code in _CODES.values()}


def _errors(struct: Struct, path: tuple[str, ...]) -> Iterator[Found]:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            own = () if field.name in ("error_code", "partition_error_code") else (field.name,)
            yield ".".join(path + own), ErrorCode(value)
        elif isinstance(value, Struct):
            yield from _errors(value, (*path, field.name))
        elif field.is_array and value and isinstance(value[0], Struct):
            for each in value:
                yield from _errors(each, (*path, field.name))


def _need(operation: str, kind: ResourceType, places: str | Mapping[int, str] = "", **more: Any) -> Need:
    return Need(AclOperation[operation], kind, {0: places} if isinstance(places, str) else places, **more)


_NEWS_0 = [{"name": "news", "topic_id": NEWS_ID, "partitions": [{"partition_index": 0}]}]
_NEWS_INDEXES = [{"name": "news", "topic_id": NEWS_ID, "partition_indexes": [0]}]
_TOPIC_RESOURCE, _BROKER_RESOURCE, _LOGGER_RESOURCE, _METRICS_RESOURCE, _GROUP_RESOURCE = 2, 4, 8, 16, 32
_TRANSACTION = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
_ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 3, "operation": 1, "permission_type": 1}
_NEW_ACL = {
    "resource_type": 2,
    "resource_name": "news",
    "principal": "User:b",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def _resource(kind: int, name: str) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name}]


def _produce(transactional: bool) -> dict[str, Any]:
    data = [{"index": 0, "records": batch(b"x", is_transactional=transactional)}]
    topics = [{"name": "news", "topic_id": NEWS_ID, "partition_data": data}]
    return {"transactional_id": "t" if transactional else None, "acks": 1, "topic_data": topics}


def _fetch(**more: Any) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    return {"topics": [{"topic": "news", "topic_id": NEWS_ID, "partitions": partitions}], **more}


_TXN_PARTITIONS = "results_by_topic_v3_and_below.results_by_partition"
_CONFIG_ROWS = tuple(
    Row(api, {"resources": _resource(kind, name)}, (_need(operation, resource, places),))
    for api, operation, places in (
        ("DescribeConfigs", "DESCRIBE_CONFIGS", "results"),
        ("AlterConfigs", "ALTER_CONFIGS", "responses"),
        ("IncrementalAlterConfigs", "ALTER_CONFIGS", "responses"),
    )
    for kind, name, resource in (
        (_TOPIC_RESOURCE, "news", TOPIC),
        (_GROUP_RESOURCE, "g", GROUP),
        (_BROKER_RESOURCE, "1", CLUSTER),
        (_BROKER_RESOURCE, "", CLUSTER),
        (_LOGGER_RESOURCE, "1", CLUSTER),
        (_METRICS_RESOURCE, "m", CLUSTER),
    )
    if (api, kind) != ("AlterConfigs", _LOGGER_RESOURCE)  # not supported
)

ROWS: tuple[Row, ...] = (
    Row("Produce", _produce(False), (_need("WRITE", TOPIC, "responses.partition_responses"),)),
    Row(
        "Produce",
        _produce(True),
        (
            _need("WRITE", TRANSACTIONAL_ID, "responses.partition_responses"),
            _need("WRITE", TOPIC, "responses.partition_responses"),
        ),
        "3+",
    ),
    Row("Fetch", _fetch(), (_need("READ", TOPIC, "responses.partitions"),)),
    Row(
        "Fetch",
        _fetch(replica_id=2, replica_state=None),
        (_need("CLUSTER_ACTION", CLUSTER, "responses.partitions", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),),
        "0-14",
    ),
    Row(
        "ListOffsets",
        {"replica_id": -1, "topics": [{"name": "news", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        (_need("DESCRIBE", TOPIC, "topics.partitions"),),
    ),
    Row("Metadata", {"topics": [{"name": "news"}]}, (_need("DESCRIBE", TOPIC, "topics"),)),
    Row("Metadata", {"topics": [{"name": None, "topic_id": NEWS_ID}]}, (_need("DESCRIBE", TOPIC, "topics"),), "12+"),
    Row(
        "Metadata",
        {"topics": [{"name": "new"}], "allow_auto_topic_creation": True},
        (_need("DESCRIBE", TOPIC, "topics", name="new"), _need("CREATE", TOPIC, "topics", name="new")),
    ),
    Row("DescribeTopicPartitions", {"topics": [{"name": "news"}]}, (_need("DESCRIBE", TOPIC, "topics"),)),
    Row(
        "OffsetCommit",
        {"group_id": "g", "topics": _NEWS_0},
        (_need("READ", GROUP, "topics.partitions"), _need("READ", TOPIC, "topics.partitions")),
    ),
    Row(
        "OffsetFetch",
        {
            "group_id": "g",
            "topics": [{"name": "news", "partition_indexes": [0]}],
            "groups": [{"group_id": "g", "topics": _NEWS_INDEXES}],
        },
        (
            _need("DESCRIBE", GROUP, {0: "topics.partitions", 2: "", 8: "groups"}),
            _need("DESCRIBE", TOPIC, {0: "topics.partitions", 8: "groups.topics.partitions"}),
        ),
    ),
    Row(
        "FindCoordinator",
        {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
        (_need("DESCRIBE", GROUP, {0: "", 4: "coordinators"}),),
    ),
    Row(
        "FindCoordinator",
        {"key": "t", "key_type": 1, "coordinator_keys": ["t"]},
        (_need("DESCRIBE", TRANSACTIONAL_ID, {0: "", 4: "coordinators"}),),
        "1+",
    ),
    Row("JoinGroup", {"group_id": "g", "session_timeout_ms": 10_000}, (_need("READ", GROUP),)),
    Row("SyncGroup", {"group_id": "g", "protocol_type": "", "protocol_name": ""}, (_need("READ", GROUP),)),
    Row("Heartbeat", {"group_id": "g"}, (_need("READ", GROUP),)),
    Row("LeaveGroup", {"group_id": "g", "members": [{"member_id": "m"}]}, (_need("READ", GROUP),)),
    Row("DescribeGroups", {"groups": ["g"]}, (_need("DESCRIBE", GROUP, "groups"),)),
    Row("DeleteGroups", {"groups_names": ["g"]}, (_need("DELETE", GROUP, "results"),)),
    Row(
        "OffsetDelete",
        {"group_id": "consumers", "topics": [{"name": "news", "partitions": [{"partition_index": 0}]}]},
        (_need("DELETE", GROUP, name="consumers"), _need("READ", TOPIC, "topics.partitions")),
    ),
    Row(
        "ConsumerGroupHeartbeat",
        {
            "group_id": "new",
            "member_id": "m",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["news"],
            "topic_partitions": [],
        },
        (_need("READ", GROUP, name="new"), _need("DESCRIBE", TOPIC)),
    ),
    Row(
        "ConsumerGroupDescribe",
        {"group_ids": ["consumers"]},
        (_need("DESCRIBE", GROUP, "groups", name="consumers"), _need("DESCRIBE", TOPIC, "groups")),
    ),
    Row(
        "CreateTopics",
        {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]},
        (
            _need("CREATE", TOPIC, "topics", name="new"),
            _need("DESCRIBE_CONFIGS", TOPIC, {5: "topics.topic_config_error_code"}, name="new"),
        ),
    ),
    Row(
        "DeleteTopics",
        {"timeout_ms": 1_000, "topic_names": ["news"], "topics": [{"name": "news", "topic_id": ZERO_UUID}]},
        (_need("DELETE", TOPIC, "responses"),),
    ),
    Row(
        "DeleteTopics",
        {"timeout_ms": 1_000, "topics": [{"name": None, "topic_id": NEWS_ID}]},
        (_need("DELETE", TOPIC, "responses"),),
        "6+",
    ),
    Row(
        "CreatePartitions",
        {"topics": [{"name": "news", "count": 2, "assignments": None}], "timeout_ms": 1_000},
        (_need("ALTER", TOPIC, "results"),),
    ),
    Row(
        "DeleteRecords",
        {"topics": [{"name": "news", "partitions": [{"partition_index": 0}]}]},
        (_need("DELETE", TOPIC, "topics.partitions"),),
    ),
    Row(
        "OffsetForLeaderEpoch",
        {"topics": [{"topic": "news", "partitions": [{"partition": 0}]}]},
        (_need("DESCRIBE", TOPIC, "topics.partitions"),),
    ),
    *_CONFIG_ROWS,
    Row("DescribeLogDirs", {"topics": None}, (_need("DESCRIBE", CLUSTER, {0: "-", 3: ""}),)),
    Row(
        "AlterReplicaLogDirs",
        {"dirs": [{"path": "/x", "topics": [{"name": "news", "partitions": [0]}]}]},
        (_need("ALTER", CLUSTER, "results.partitions"),),
    ),
    Row(
        "ElectLeaders",
        {"topic_partitions": [{"topic": "news", "partitions": [0]}]},
        (
            _need(
                "ALTER",
                CLUSTER,
                {0: "replica_election_results.partition_result", 1: "+replica_election_results.partition_result"},
            ),
        ),
    ),
    Row(
        "AlterPartitionReassignments",
        {"topics": [{"name": "news", "partitions": [{"partition_index": 0}]}]},
        (_need("ALTER", CLUSTER, "+responses.partitions"),),
    ),
    Row(
        "ListPartitionReassignments",
        {"topics": [{"name": "news", "partition_indexes": [0]}]},
        (_need("DESCRIBE", CLUSTER),),
    ),
    Row(
        "DescribeProducers",
        {"topics": [{"name": "news", "partition_indexes": [0]}]},
        (_need("READ", TOPIC, "topics.partitions"),),
    ),
    Row(
        "InitProducerId", {"transactional_id": "t", "transaction_timeout_ms": 1000}, (_need("WRITE", TRANSACTIONAL_ID),)
    ),
    Row("InitProducerId", {"transactional_id": None}, (_need("IDEMPOTENT_WRITE", CLUSTER),)),
    Row(
        "AddPartitionsToTxn",
        {"v3_and_below_transactional_id": "t", "v3_and_below_topics": [{"name": "news", "partitions": [0]}]},
        (_need("WRITE", TRANSACTIONAL_ID, _TXN_PARTITIONS), _need("WRITE", TOPIC, _TXN_PARTITIONS)),
        "0-3",
    ),
    Row(
        "AddPartitionsToTxn",
        {"transactions": [{**_TRANSACTION, "topics": [{"name": "news", "partitions": [0]}]}]},
        (_need("CLUSTER_ACTION", CLUSTER),),
        "4+",
    ),
    Row("AddOffsetsToTxn", {**_TRANSACTION, "group_id": "g"}, (_need("WRITE", TRANSACTIONAL_ID), _need("READ", GROUP))),
    Row(
        "TxnOffsetCommit",
        {**_TRANSACTION, "group_id": "g", "topics": _NEWS_0},
        (
            _need("WRITE", TRANSACTIONAL_ID, "topics.partitions"),
            _need("READ", GROUP, "topics.partitions"),
            _need("READ", TOPIC, "topics.partitions"),
        ),
    ),
    Row("EndTxn", _TRANSACTION, (_need("WRITE", TRANSACTIONAL_ID),)),
    Row(
        "WriteTxnMarkers",
        {"markers": [{"producer_id": 1, "producer_epoch": 0, "topics": [{"name": "news", "partition_indexes": [0]}]}]},
        (_need("CLUSTER_ACTION", CLUSTER, "markers.topics.partitions"),),
    ),
    Row(
        "WriteTxnMarkers",
        {"markers": [{"producer_id": 1, "producer_epoch": 0, "topics": [{"name": "news", "partition_indexes": [0]}]}]},
        (_need("ALTER", CLUSTER, "markers.topics.partitions"),),
    ),
    Row(
        "DescribeTransactions",
        {"transactional_ids": ["t"]},
        (_need("DESCRIBE", TRANSACTIONAL_ID, "transaction_states"),),
    ),
    Row("DescribeAcls", _ANY_ACL, (_need("DESCRIBE", CLUSTER),)),
    Row("CreateAcls", {"creations": [_NEW_ACL]}, (_need("ALTER", CLUSTER, "results"),)),
    Row("DeleteAcls", {"filters": [_ANY_ACL]}, (_need("ALTER", CLUSTER, "filter_results"),)),
    Row("DescribeUserScramCredentials", {"users": [{"name": "a"}]}, (_need("DESCRIBE", CLUSTER, "+results"),)),
    Row(
        "AlterUserScramCredentials",
        {"deletions": [{"name": "a", "mechanism": 1}]},
        (_need("ALTER", CLUSTER, "results"),),
    ),
    Row("DescribeClientQuotas", {"components": []}, (_need("DESCRIBE_CONFIGS", CLUSTER),)),
    Row(
        "AlterClientQuotas",
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "a"}]}]},
        (_need("ALTER_CONFIGS", CLUSTER, "entries"),),
    ),
    Row("ListConfigResources", {}, (_need("DESCRIBE_CONFIGS", CLUSTER),)),
    Row("DescribeQuorum", {}, (_need("DESCRIBE", CLUSTER),)),
    Row("UpdateFeatures", {}, (_need("ALTER", CLUSTER),)),
    Row("UnregisterBroker", {"broker_id": 1}, (_need("ALTER", CLUSTER),)),
    Row("UnregisterController", {"controller_id": 1}, (_need("ALTER", CLUSTER),)),
)

LEFT_OUT = {"ListGroups": "groups", "ListTransactions": "transaction_states"}
"""APIs whose responses leave out what the client may not describe, with their lists."""

FREE = {
    "ApiVersions",
    "DescribeCluster",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "SaslHandshake",
    "SaslAuthenticate",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
}
"""APIs that need no permission here. Delegation tokens are refused, because there are none."""
