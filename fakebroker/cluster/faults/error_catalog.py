"""A table of the errors that each API can return, and where they are in its messages (`PLACES`).

The errors are taken from Kafka's response classes, `KafkaApis` and `ReplicationControlManager`. Their places are taken
from `getErrorResponse` in Kafka's request classes. Depends on the message declarations only.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from fakebroker.errors import ErrorCode
from fakebroker.proposals import PROPOSALS
from fakebroker.protocol.registry import Api
from fakebroker.protocol.schema import Struct, Versions
from fakebroker.topic_partition import topic_id_text


class Place(NamedTuple):
    """A place for errors in the messages of an API, such as each partition.

    Attributes:
        errors: The errors that are possible there.
        request_path: The names of the nested arrays that lead to the part of the request that an error is about; empty
            for the request as a whole.
        response_path: The names of the nested arrays that lead to the structs with the error code; empty for the
            response itself.
        versions: The versions of the API with this place.
        has_messages: Whether Kafka returns the text of the error as `error_message` (`MESSAGES`). In other APIs, it
            returns a message only if there is more to say.
    """

    errors: frozenset[ErrorCode]
    request_path: tuple[str, ...]
    response_path: tuple[str, ...]
    versions: Versions
    has_messages: bool = False


MESSAGES: Mapping[ErrorCode, str] = {
    ErrorCode.NONE: "NONE",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.ILLEGAL_SASL_STATE: "Request is not valid given the current SASL state.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
}
"""Kafka's texts of errors (`Errors.message`), which clients may compare."""


def _place(errors: str, request_path: str = "", response_path: str | None = None, versions: str = "0+") -> Place:
    """Return a place: error names are separated by spaces, paths are dotted; by default both paths are the same."""
    return Place(
        frozenset(ErrorCode[name] for name in f"{errors} UNKNOWN_SERVER_ERROR".split()),
        _names(request_path),
        _names(request_path if response_path is None else response_path),
        Versions.parse(versions),
    )


def _names(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


_COORDINATOR = "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR "
_GROUP = _COORDINATOR + "INVALID_GROUP_ID GROUP_AUTHORIZATION_FAILED "
_MEMBER = "UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID "
_GENERATION = _MEMBER + "ILLEGAL_GENERATION REBALANCE_IN_PROGRESS "
_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED "
_LOG = _TOPIC + "NOT_LEADER_OR_FOLLOWER KAFKA_STORAGE_ERROR REPLICA_NOT_AVAILABLE "
_EPOCH = _LOG + "FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
_CONTROLLER = "NOT_CONTROLLER REQUEST_TIMED_OUT "
_CLUSTER = "CLUSTER_AUTHORIZATION_FAILED "
_PRODUCER = "INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE "
_TRANSACTION = (
    _COORDINATOR
    + _PRODUCER
    + "PRODUCER_FENCED CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_REQUEST "
)
_TOPIC_CHANGE = (
    _CONTROLLER
    + _CLUSTER
    + "INVALID_REQUEST INVALID_TOPIC_EXCEPTION POLICY_VIOLATION THROTTLING_QUOTA_EXCEEDED TOPIC_AUTHORIZATION_FAILED "
)
_CONFIGS = (
    _CLUSTER
    + "INVALID_REQUEST INVALID_CONFIG INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PARTITION "
    "GROUP_AUTHORIZATION_FAILED "
)
_COMMIT = _GROUP + _GENERATION + "GROUP_ID_NOT_FOUND STALE_MEMBER_EPOCH OFFSET_METADATA_TOO_LARGE "
_METADATA = "LEADER_NOT_AVAILABLE INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_ID " + _TOPIC
_PARTITION_METADATA = "LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND REPLICA_NOT_AVAILABLE"
_OFFSETS = _TOPIC + "UNSTABLE_OFFSET_COMMIT UNKNOWN_TOPIC_ID "
_FETCHED_GROUP = _GROUP + "UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH GROUP_ID_NOT_FOUND UNSUPPORTED_VERSION "

_ACLS = _CLUSTER + "SECURITY_DISABLED INVALID_REQUEST "
_TOKENS = (
    _CONTROLLER
    + "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
    "UNSUPPORTED_VERSION "
)
_TOKEN = "DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_EXPIRED "
_JOIN = (
    _GROUP
    + _GENERATION
    + "INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED "
    "UNSUPPORTED_VERSION"
)

PLACES: Mapping[str, tuple[Place, ...]] = {
    # The places of an API are ordered from the whole message to its smallest parts.
    "Produce": (
        _place(
            _LOG
            + _CLUSTER
            + _PRODUCER
            + "CORRUPT_MESSAGE MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS INVALID_TOPIC_EXCEPTION "
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS INVALID_TIMESTAMP REQUEST_TIMED_OUT INVALID_RECORD "
            "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID UNSUPPORTED_COMPRESSION_TYPE "
            "UNSUPPORTED_FOR_MESSAGE_FORMAT TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE "
            "UNKNOWN_TOPIC_ID INVALID_REQUEST UNSUPPORTED_VERSION ",
            "topic_data.partition_data",
            "responses.partition_responses",
        ),
    ),
    "Fetch": (
        _place("FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH FETCH_SESSION_TOPIC_ID_ERROR", versions="7+"),
        _place(
            _EPOCH
            + "OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNSUPPORTED_COMPRESSION_TYPE UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID "
            "OFFSET_MOVED_TO_TIERED_STORAGE UNSUPPORTED_VERSION ",
            "topics.partitions",
            "responses.partitions",
        ),
    ),
    "ListOffsets": (
        _place(
            _EPOCH + "OFFSET_NOT_AVAILABLE LEADER_NOT_AVAILABLE UNSUPPORTED_FOR_MESSAGE_FORMAT INVALID_REQUEST "
            "UNSUPPORTED_VERSION REQUEST_TIMED_OUT",
            "topics.partitions",
        ),
    ),
    "Metadata": (
        _place("REBOOTSTRAP_REQUIRED", versions="13+"),
        _place(_METADATA, "topics"),
        _place(_PARTITION_METADATA, "topics", "topics.partitions"),
    ),
    "OffsetCommit": (
        _place(
            _COMMIT
            + _TOPIC
            + "INVALID_COMMIT_OFFSET_SIZE UNKNOWN_TOPIC_ID REQUEST_TIMED_OUT UNSUPPORTED_VERSION INVALID_TXN_STATE "
            "INVALID_PRODUCER_ID_MAPPING",
            "topics.partitions",
        ),
    ),
    "OffsetFetch": (
        _place(_FETCHED_GROUP, versions="2-7"),
        _place(_FETCHED_GROUP + _OFFSETS, "topics.partition_indexes", "topics.partitions", "0-1"),
        _place(_OFFSETS, "topics.partition_indexes", "topics.partitions", "2-7"),
        _place(_FETCHED_GROUP, "groups", versions="8+"),
        _place(_OFFSETS, "groups.topics.partition_indexes", "groups.topics.partitions", "8+"),
    ),
    "FindCoordinator": tuple(
        _place(
            "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE GROUP_AUTHORIZATION_FAILED INVALID_REQUEST "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            request_path,
            response_path,
            versions,
        )._replace(has_messages=True)
        for request_path, response_path, versions in (("", "", "0-3"), ("coordinator_keys", "coordinators", "4+"))
    ),
    "JoinGroup": (_place(_JOIN),),
    "Heartbeat": (_place(_GROUP + _GENERATION),),
    "LeaveGroup": (
        _place(_GROUP + _MEMBER, versions="0-2"),
        _place(_GROUP, versions="3+"),
        _place(_MEMBER, "members", versions="3+"),
    ),
    "SyncGroup": (_place(_GROUP + _GENERATION + "INCONSISTENT_GROUP_PROTOCOL UNSUPPORTED_VERSION"),),
    "DescribeGroups": (_place(_GROUP + "GROUP_ID_NOT_FOUND", "groups"),),
    "ListGroups": (_place(_COORDINATOR + _CLUSTER + "GROUP_AUTHORIZATION_FAILED"),),
    "SaslHandshake": (_place("ILLEGAL_SASL_STATE UNSUPPORTED_SASL_MECHANISM"),),
    "ApiVersions": (_place("UNSUPPORTED_VERSION INVALID_REQUEST"),),
    "CreateTopics": (
        _place(
            _TOPIC_CHANGE
            + "TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT "
            "INVALID_CONFIG",
            "topics",
        ),
    ),
    "DeleteTopics": tuple(
        _place(
            _TOPIC_CHANGE + "UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID TOPIC_DELETION_DISABLED",
            request_path,
            "responses",
            versions,
        )
        for request_path, versions in (("topic_names", "0-5"), ("topics", "6+"))
    ),
    "DeleteRecords": (
        _place(
            _LOG + "OFFSET_OUT_OF_RANGE POLICY_VIOLATION REQUEST_TIMED_OUT INVALID_TOPIC_EXCEPTION", "topics.partitions"
        ),
    ),
    "InitProducerId": (
        _place(
            _COORDINATOR
            + _CLUSTER
            + _PRODUCER
            + "PRODUCER_FENCED CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_REQUEST "
            "INVALID_TRANSACTION_TIMEOUT"
        ),
    ),
    "OffsetForLeaderEpoch": (_place(_EPOCH, "topics.partitions"),),
    "AddPartitionsToTxn": (
        _place(
            _TRANSACTION + _TOPIC + "OPERATION_NOT_ATTEMPTED",
            "v3_and_below_topics.partitions",
            "results_by_topic_v3_and_below.results_by_partition",
            versions="0-3",
        ),
        _place("CLUSTER_AUTHORIZATION_FAILED", versions="4+"),
        _place(
            _TRANSACTION + _TOPIC + "OPERATION_NOT_ATTEMPTED TRANSACTION_ABORTABLE",
            "transactions.topics.partitions",
            "results_by_transaction.topic_results.results_by_partition",
            versions="4+",
        ),
    ),
    "AddOffsetsToTxn": (_place(_TRANSACTION + "GROUP_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE"),),
    "EndTxn": (_place(_TRANSACTION + "TRANSACTION_ABORTABLE"),),
    "WriteTxnMarkers": (
        _place(
            _CLUSTER
            + "UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER INVALID_PRODUCER_EPOCH TRANSACTION_COORDINATOR_FENCED "
            "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND REQUEST_TIMED_OUT",
            "markers.topics.partition_indexes",
            "markers.topics.partitions",
        ),
    ),
    "TxnOffsetCommit": (
        _place(
            _GROUP
            + _MEMBER
            + _TOPIC
            + _PRODUCER
            + "ILLEGAL_GENERATION OFFSET_METADATA_TOO_LARGE CONCURRENT_TRANSACTIONS INVALID_REQUEST "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE INVALID_COMMIT_OFFSET_SIZE REQUEST_TIMED_OUT "
            "UNSUPPORTED_FOR_MESSAGE_FORMAT ",
            "topics.partitions",
        ),
    ),
    "DescribeAcls": (_place(_ACLS),),
    "CreateAcls": (_place(_ACLS, "creations", "results"),),
    "DeleteAcls": (_place(_ACLS, "filters", "filter_results"),),
    "DescribeConfigs": (_place(_CONFIGS, "resources", "results"),),
    "AlterConfigs": (_place(_CONFIGS + _CONTROLLER + "POLICY_VIOLATION", "resources", "responses"),),
    "AlterReplicaLogDirs": (
        _place(
            _TOPIC + _CLUSTER + "LOG_DIR_NOT_FOUND KAFKA_STORAGE_ERROR NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE "
            "INVALID_TOPIC_EXCEPTION",
            "dirs.topics.partitions",
            "results.partitions",
        ),
    ),
    "DescribeLogDirs": (
        _place(_CLUSTER, versions="3+"),
        _place("KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND", "topics.partitions", "results"),
    ),
    "SaslAuthenticate": (_place("SASL_AUTHENTICATION_FAILED ILLEGAL_SASL_STATE"),),
    "CreatePartitions": (
        _place(
            _TOPIC_CHANGE
            + "UNKNOWN_TOPIC_OR_PARTITION INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT REASSIGNMENT_IN_PROGRESS "
            "INVALID_REPLICATION_FACTOR",
            "topics",
            "results",
        ),
    ),
    "CreateDelegationToken": (_place(_TOKENS + "INVALID_PRINCIPAL_TYPE"),),
    "RenewDelegationToken": (_place(_TOKENS + _TOKEN),),
    "ExpireDelegationToken": (_place(_TOKENS + _TOKEN),),
    "DescribeDelegationToken": (_place(_TOKENS),),
    "DeleteGroups": (_place(_GROUP + "NON_EMPTY_GROUP GROUP_ID_NOT_FOUND", "groups_names", "results"),),
    "ElectLeaders": (
        _place(_CLUSTER + _CONTROLLER + "INVALID_REQUEST", versions="1+"),
        _place(
            _TOPIC
            + _CLUSTER
            + "PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NOT_CONTROLLER "
            "REQUEST_TIMED_OUT",
            "topic_partitions.partitions",
            "replica_election_results.partition_result",
        ),
    ),
    "IncrementalAlterConfigs": (_place(_CONFIGS + _CONTROLLER + "POLICY_VIOLATION", "resources", "responses"),),
    "AlterPartitionReassignments": (
        _place(_CLUSTER + _CONTROLLER + "INVALID_REQUEST"),
        _place(
            _TOPIC + "NO_REASSIGNMENT_IN_PROGRESS INVALID_REPLICA_ASSIGNMENT INVALID_REPLICATION_FACTOR",
            "topics.partitions",
            "responses.partitions",
        ),
    ),
    "ListPartitionReassignments": (_place(_CLUSTER + _CONTROLLER),),
    "OffsetDelete": (
        _place(_GROUP + "GROUP_ID_NOT_FOUND NON_EMPTY_GROUP"),
        _place(_TOPIC + "GROUP_SUBSCRIBED_TO_TOPIC", "topics.partitions"),
    ),
    "DescribeClientQuotas": (_place(_CLUSTER + "INVALID_REQUEST UNSUPPORTED_VERSION"),),
    "AlterClientQuotas": (_place(_CLUSTER + _CONTROLLER + "INVALID_REQUEST UNSUPPORTED_VERSION", "entries"),),
    "DescribeUserScramCredentials": (_place(_CLUSTER),),
    "AlterUserScramCredentials": (
        _place(
            _CLUSTER
            + _CONTROLLER
            + "UNACCEPTABLE_CREDENTIAL UNSUPPORTED_SASL_MECHANISM RESOURCE_NOT_FOUND DUPLICATE_RESOURCE "
            "UNSUPPORTED_VERSION",
            "upsertions",
            "results",
        ),
    ),
    "DescribeQuorum": (
        _place(_CLUSTER + _CONTROLLER + "INVALID_REQUEST UNSUPPORTED_VERSION"),
        _place("UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER", "topics.partitions"),
    ),
    "UpdateFeatures": (
        _place(_CLUSTER + _CONTROLLER + "INVALID_REQUEST INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED"),
        _place("INVALID_REQUEST INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED", "feature_updates", "results", "0-1"),
    ),
    "DescribeCluster": (_place(_CLUSTER + "INVALID_REQUEST UNSUPPORTED_ENDPOINT_TYPE MISMATCHED_ENDPOINT_TYPE"),),
    "DescribeProducers": (
        _place(
            _TOPIC + "NOT_LEADER_OR_FOLLOWER INVALID_TOPIC_EXCEPTION", "topics.partition_indexes", "topics.partitions"
        ),
    ),
    "UnregisterBroker": (_place(_CLUSTER + _CONTROLLER + "BROKER_ID_NOT_REGISTERED"),),
    "UnregisterController": (_place(_CLUSTER + _CONTROLLER + "CONTROLLER_ID_NOT_REGISTERED INVALID_REQUEST"),),
    "DescribeTransactions": (
        _place(
            _COORDINATOR + "TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_NOT_FOUND INVALID_REQUEST",
            "transactional_ids",
            "transaction_states",
        ),
    ),
    "ListTransactions": (_place(_COORDINATOR + "INVALID_REGULAR_EXPRESSION"),),
    "ConsumerGroupHeartbeat": (
        _place(
            _COORDINATOR
            + _MEMBER
            + "GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED INVALID_REQUEST FENCED_MEMBER_EPOCH "
            "UNSUPPORTED_ASSIGNOR UNRELEASED_INSTANCE_ID GROUP_MAX_SIZE_REACHED GROUP_ID_NOT_FOUND UNSUPPORTED_VERSION "
            "INVALID_REGULAR_EXPRESSION"
        ),
    ),
    "ConsumerGroupDescribe": (
        _place(
            _GROUP + "TOPIC_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND INVALID_REQUEST UNSUPPORTED_VERSION",
            "group_ids",
            "groups",
        ),
    ),
    "GetTelemetrySubscriptions": (_place("INVALID_REQUEST THROTTLING_QUOTA_EXCEEDED"),),
    "PushTelemetry": (
        _place(
            "INVALID_REQUEST INVALID_RECORD UNKNOWN_SUBSCRIPTION_ID UNSUPPORTED_COMPRESSION_TYPE TELEMETRY_TOO_LARGE "
            "THROTTLING_QUOTA_EXCEEDED"
        ),
    ),
    "ListConfigResources": (_place(_CLUSTER + "UNSUPPORTED_VERSION"),),
    "DescribeTopicPartitions": (
        _place(_METADATA, "topics"),
        _place(_PARTITION_METADATA, "topics", "topics.partitions"),
    ),
}

# Fields that identify the group, topic, partition or member of a struct, with the kind of name that they contain.
_KINDS = {
    "group_id": "group",
    "key": "group",
    "name": "topic",
    "topic": "topic",
    "topic_id": "topic",
    "resource_name": "topic",
    "index": "partition",
    "partition": "partition",
    "partition_index": "partition",
    "partition_id": "partition",
    "member_id": "member_id",
    "consumer_id": "member_id",
    "group_instance_id": "instance_id",
    "instance_id": "instance_id",
    "transactional_id": "transactional_id",
    "v3_and_below_transactional_id": "transactional_id",
}
_MEMBER_KINDS = ("member_id", "instance_id")
# Arrays of plain values that identify groups, topics or partitions, with the kind of name.
_BARE_KINDS = {
    "coordinator_keys": "group",
    "groups": "group",
    "groups_names": "group",
    "group_ids": "group",
    "topic_names": "topic",
    "partition_indexes": "partition",
    "partitions": "partition",
    "transactional_ids": "transactional_id",
}
_PATHS_WITHOUT_ERRORS = {
    "DescribeClientQuotas": ("components",),
    "DescribeUserScramCredentials": ("users",),
    "ListPartitionReassignments": ("topics", "partition_indexes"),
}
"""The paths of parts in requests whose errors are about the request as a whole."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
_TOPIC_RESOURCE = 2
_RESOURCE_TYPES = {2: "topic", 4: "broker", 8: "broker_logger", 16: "client_metrics", 32: "group"}
"""Types of resources that have configs, by their codes (Kafka's `ConfigResource.Type`)."""
_DEFAULT = "<default>"
"""The name of the entity that stands for all users, client ids or addresses without a quota of their own."""


def error_places(api: Api) -> tuple[Place, ...]:
    """Return the places of errors in the messages of an API, from the whole message to its smallest parts."""
    return _proposed_places(api) if api.proposal else PLACES[api.name]


@cache
def _proposed_places(api: Api) -> tuple[Place, ...]:
    errors = PROPOSALS[api.proposal].errors.get(api.name)
    return (_place(*errors),) if errors else PLACES[api.name]


Part = Mapping[str, Any]
"""The names in a message or in a part of it, by kind: group, topic, partition, member_id, instance_id and so on.

`resource` has a tuple of names, such as "group:billing": a quota can be about a user and a client id.
"""

TopicName = Callable[[bytes], str | None]
"""A function that returns the name of the topic with an id; None if there is no such topic."""


def is_identity(field_name: str) -> bool:
    """Return whether a field identifies its struct. Responses repeat these fields of requests."""
    return field_name in _KINDS or field_name in ("resource_type", "user", "entity")


def kind_of(field_name: str) -> str | None:
    """Return the kind of name in a field, such as "topic"; None for other fields."""
    return _KINDS.get(field_name)


def part_of(struct: Struct, version: int, topic_name: TopicName) -> dict[str, Any]:
    """Return the names in the fields of a struct, without nested structs. A name that the version lacks is None."""
    part: dict[str, Any] = {}
    for field in struct.FIELDS:
        kind = _KINDS.get(field.name)
        if kind is None or part.get(kind) is not None or (field.name == "name" and _names_user(type(struct))):
            continue
        value = getattr(struct, field.name) if version in field.versions else None
        if field.name == "topic_id" and value is not None:
            value = topic_name(value)
        elif field.name == "resource_name" and getattr(struct, "resource_type", None) != _TOPIC_RESOURCE:
            value = None
        if field.name == "topic_id" and version in field.versions:
            part["topic_id"] = topic_id_text(struct.topic_id)  # type: ignore[attr-defined]  # it has the field
        part[kind] = value
    if resources := _resources(struct):
        part["resource"] = resources
    return part


def _resources(struct: Any) -> tuple[str, ...]:
    """Return the resources that a struct names: of configs, of quotas, and users with SCRAM credentials."""
    if not _names_resource(type(struct)):
        return ()
    if hasattr(struct, "resource_type"):
        return (f"{_RESOURCE_TYPES.get(struct.resource_type, struct.resource_type)}:{struct.resource_name}",)
    if hasattr(struct, "entity"):
        return tuple(f"{each.entity_type}:{each.entity_name or _DEFAULT}" for each in struct.entity)
    if hasattr(struct, "match"):
        return (f"{struct.entity_type}:{struct.match or _DEFAULT}",)
    return (f"user:{struct.user if hasattr(struct, 'user') else struct.name}",)


def _names_resource(struct: Any) -> bool:
    fields = {field.name for field in struct.FIELDS}
    return bool(fields & {"resource_type", "entity", "match", "user"}) or _names_user(struct)


def has_names(part: Part, named: Part) -> bool:
    """Return whether a part has the names of filters. Names that the part lacks are not compared."""
    return all(_has_name(part, kind, name) for kind, name in named.items())


def _has_name(part: Part, kind: str, name: object) -> bool:
    if kind == "member":
        known = [part[each] for each in _MEMBER_KINDS if each in part]
        return not known or name in known
    if kind == "resource":
        return kind not in part or name in (part[kind] or ())
    return bool(part.get(kind, name) == name)


def bare_part(array: str, value: object) -> dict[str, Any]:
    """Return the name in an element of an array of plain values."""
    return {_BARE_KINDS[array]: value}


def requested_parts(api: Api, request: Any, version: int, topic_name: TopicName) -> Iterator[Part]:
    """Iterate over the smallest parts of a request: its partitions, groups, members or transactional ids."""
    key_type = getattr(request, "key_type", GROUP_KEY)
    if key_type not in (GROUP_KEY, TRANSACTION_KEY):
        return
    paths = [place.request_path for place in error_places(api) if version in place.versions]
    path = _PATHS_WITHOUT_ERRORS.get(api.name, paths[-1])
    for part in _parts(request, path, version, topic_name, {}):
        if api.name != "FindCoordinator":
            yield part
        elif key_type == GROUP_KEY:
            yield {**part, "transactional_id": None}
        else:
            yield {"group": None, "transactional_id": part["group"]}


def _parts(struct: Struct, path: tuple[str, ...], version: int, topic_name: TopicName, outer: Part) -> Iterator[Part]:
    part = {**outer, **part_of(struct, version, topic_name)}
    entries = getattr(struct, path[0]) if path else None
    if entries is None:  # A null array requests everything.
        yield part
    elif not entries:
        yield dict.fromkeys((*_KINDS.values(), "topic_id", "resource")) | part
    for entry in entries or ():
        if isinstance(entry, Struct):
            yield from _parts(entry, path[1:], version, topic_name, part)
        else:
            yield part | bare_part(path[0], entry)


@cache
def kinds_of(api: Api) -> tuple[str, ...]:
    """Return the kinds of names in the requests and responses of an API."""
    found: dict[str, None] = {}
    paths: list[tuple[type[Struct], tuple[str, ...]]] = []
    for place in error_places(api):
        paths += [(api.request, place.request_path), (api.response, place.response_path)]
    if api.name in ("DescribeClientQuotas", "DescribeUserScramCredentials"):
        paths.append((api.request, _PATHS_WITHOUT_ERRORS[api.name]))
    for message, path in paths:
        found |= dict.fromkeys(_kinds_on(message, path))
    if api.name == "FindCoordinator":  # Its keys are groups or transactional ids.
        found["transactional_id"] = None
    return tuple(found)


def filters_of(api: Api) -> tuple[str, ...]:
    """Return the filters of names that requests of an API can match: its kinds, and `member` for ids of members."""
    kinds = kinds_of(api)
    return tuple(dict.fromkeys("member" if kind in _MEMBER_KINDS else kind for kind in kinds))


def _kinds_on(message: type[Struct], path: tuple[str, ...]) -> Iterator[str]:
    struct: Any = message
    yield from _own_kinds(struct)
    for array in path:
        struct = next(field.type for field in struct.FIELDS if field.name == array)
        yield from _own_kinds(struct) if isinstance(struct, type) else [_BARE_KINDS[array]]


def _own_kinds(struct: Any) -> list[str]:
    names = [field.name for field in struct.FIELDS if field.name != "name" or not _names_user(struct)]
    kinds = [_KINDS[name] for name in names if name in _KINDS]
    kinds += ["topic_id"] * ("topic_id" in names)
    return kinds + ["resource"] * _names_resource(struct)


def _names_user(struct: type[Struct]) -> bool:
    """Return whether the field `name` of a struct names a user with SCRAM credentials."""
    return struct.__name__.startswith(("ScramCredential", "UserName"))
