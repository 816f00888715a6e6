"""The ids in requests: of groups, members, transactions, producers, and the partitions. For the journal and faults.

Depends on messages only. Messages of proposals have the attributes `named_groups`, `named_members` and
`named_instances`.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from fakebroker.cluster.faults.error_catalog import kinds_of, requested_parts
from fakebroker.protocol.registry import Api

TopicRef = str | bytes
"""A topic in a message: its name, or its id of 16 bytes."""

_GROUP, _TRANSACTION = 0, 1
"""FindCoordinator's key types (FindCoordinatorRequest.CoordinatorType)."""

_PRODUCER_ID = struct.Struct(">16xb26xq")
"""Magic and producer id of a record batch."""

_MAGIC, _NO_PRODUCER_ID = 2, -1


def _group_id(request: Any) -> list[str]:
    return [request.group_id]


def _member_id(request: Any) -> list[str]:
    return [request.member_id]


def _coordinator_keys(request: Any) -> list[str]:
    """Return the group ids of a FindCoordinator request. Before version 4, it has one key."""
    return (request.coordinator_keys or [request.key]) if request.key_type == _GROUP else []


_GROUP_IDS: Mapping[str, Callable[[Any], list[str]]] = {
    "OffsetCommitRequest": _group_id,
    # Versions 0-7 have one group.
    "OffsetFetchRequest": lambda request: [group.group_id for group in request.groups] or [request.group_id],
    "FindCoordinatorRequest": _coordinator_keys,
    "JoinGroupRequest": _group_id,
    "HeartbeatRequest": _group_id,
    "LeaveGroupRequest": _group_id,
    "SyncGroupRequest": _group_id,
    "DescribeGroupsRequest": lambda request: request.groups,
    "DeleteGroupsRequest": lambda request: request.groups_names,
    "OffsetDeleteRequest": _group_id,
    "AddOffsetsToTxnRequest": _group_id,
    "TxnOffsetCommitRequest": _group_id,
    "ConsumerGroupHeartbeatRequest": _group_id,
    "ConsumerGroupDescribeRequest": lambda request: request.group_ids,
}
"""How to find the group ids of a request, by the name of its class."""

_MEMBER_IDS: Mapping[str, Callable[[Any], list[str]]] = {
    "OffsetCommitRequest": _member_id,
    "OffsetFetchRequest": lambda request: [group.member_id for group in request.groups],
    "JoinGroupRequest": _member_id,
    "HeartbeatRequest": _member_id,
    # Versions 0-2 have one member.
    "LeaveGroupRequest": lambda request: [member.member_id for member in request.members] or [request.member_id],
    "SyncGroupRequest": _member_id,
    "TxnOffsetCommitRequest": _member_id,
    "ConsumerGroupHeartbeatRequest": _member_id,
}
"""How to find the member ids of a request, by the name of its class."""

_INSTANCE_IDS: Mapping[str, Callable[[Any], list[str | None]]] = {
    "OffsetCommitRequest": lambda request: [request.group_instance_id],
    "JoinGroupRequest": lambda request: [request.group_instance_id],
    "HeartbeatRequest": lambda request: [request.group_instance_id],
    "LeaveGroupRequest": lambda request: [member.group_instance_id for member in request.members],
    "SyncGroupRequest": lambda request: [request.group_instance_id],
    "TxnOffsetCommitRequest": lambda request: [request.group_instance_id],
    "ConsumerGroupHeartbeatRequest": lambda request: [request.instance_id],
}
"""How to find the instance ids of a request, by the name of its class."""


def _transactional_id(request: Any) -> list[str | None]:
    return [request.transactional_id]


def _producer_id(request: Any) -> list[int]:
    return [request.producer_id]


def _ids_of_batches(request: Any) -> list[int]:
    """Return the producer ids of the record batches in a Produce request."""
    batches = (data.records for topic in request.topic_data for data in topic.partition_data)
    headers = (_PRODUCER_ID.unpack_from(each) for each in batches if each and len(each) >= _PRODUCER_ID.size)
    return [producer_id for magic, producer_id in headers if magic == _MAGIC]


_TRANSACTIONAL_IDS: Mapping[str, Callable[[Any], list[str | None]]] = {
    "ProduceRequest": _transactional_id,
    "FindCoordinatorRequest": lambda request: (
        (request.coordinator_keys or [request.key]) if request.key_type == _TRANSACTION else []
    ),
    "InitProducerIdRequest": _transactional_id,
    # Versions 0-3 have one transaction.
    "AddPartitionsToTxnRequest": lambda request: (
        [each.transactional_id for each in request.transactions] or [request.v3_and_below_transactional_id]
    ),
    "AddOffsetsToTxnRequest": _transactional_id,
    "TxnOffsetCommitRequest": _transactional_id,
    "EndTxnRequest": _transactional_id,
    "DescribeTransactionsRequest": lambda request: request.transactional_ids,
}
"""How to find the transactional ids of a request, by the name of its class."""

_PRODUCER_IDS: Mapping[str, Callable[[Any], list[int]]] = {
    "ProduceRequest": _ids_of_batches,
    "InitProducerIdRequest": _producer_id,
    "AddPartitionsToTxnRequest": lambda request: (
        [each.producer_id for each in request.transactions] or [request.v3_and_below_producer_id]
    ),
    "AddOffsetsToTxnRequest": _producer_id,
    "TxnOffsetCommitRequest": _producer_id,
    "EndTxnRequest": _producer_id,
    "WriteTxnMarkersRequest": lambda request: [each.producer_id for each in request.markers],
    "ListTransactionsRequest": lambda request: request.producer_id_filters,
}
"""How to find the producer ids of a request, by the name of its class."""


def _generation_id(request: Any) -> list[int]:
    return [request.generation_id]


_GENERATIONS: Mapping[str, Callable[[Any], list[int]]] = {
    "OffsetCommitRequest": lambda request: [request.generation_id_or_member_epoch],
    "OffsetFetchRequest": lambda request: [group.member_epoch for group in request.groups],
    "HeartbeatRequest": _generation_id,
    "SyncGroupRequest": _generation_id,
    "TxnOffsetCommitRequest": _generation_id,
    "ConsumerGroupHeartbeatRequest": lambda request: [request.member_epoch],
}
"""How to find the generations and member epochs of a request, by the name of its class."""

_PARTITIONS: Mapping[str, Callable[[Any], list[tuple[TopicRef, int | None]]]] = {
    "ProduceRequest": lambda request: [
        (topic.name or topic.topic_id, data.index) for topic in request.topic_data for data in topic.partition_data
    ],
    "FetchRequest": lambda request: [
        (topic.topic or topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions
    ],
    "OffsetCommitRequest": lambda request: [
        (topic.name or topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
    ],
}
"""`declared_partitions` of frequent requests, which are faster."""


def group_ids(request: object) -> tuple[str, ...]:
    """Return the groups that a request names, in its order."""
    find = _GROUP_IDS.get(type(request).__name__)
    return tuple(find(request) if find else getattr(request, "named_groups", ()))


def member_ids(request: object, response: Any) -> tuple[str, ...]:
    """Return the members that a request names. For a JoinGroup without member ids: those that its response assigns."""
    find = _MEMBER_IDS.get(type(request).__name__)
    named = find(request) if find else getattr(request, "named_members", ())
    found = [member_id for member_id in named if member_id]
    if type(response).__name__ in ("JoinGroupResponse", "ConsumerGroupHeartbeatResponse"):
        found = found or [response.member_id]
    elif find is None:
        found += getattr(response, "named_members", ())
    return tuple(dict.fromkeys(member_id for member_id in found if member_id))


def instance_ids(request: object) -> tuple[str, ...]:
    """Return the `group.instance.id`s of static members that a request names."""
    find = _INSTANCE_IDS.get(type(request).__name__)
    named = find(request) if find else getattr(request, "named_instances", ())
    return tuple(dict.fromkeys(found for found in named if found))


def transactional_ids(request: object) -> tuple[str, ...]:
    """Return the transactional ids that a request names, in its order."""
    find = _TRANSACTIONAL_IDS.get(type(request).__name__)
    return tuple(dict.fromkeys(found for found in find(request) if found)) if find else ()


def producer_ids(request: object, response: object) -> tuple[int, ...]:
    """Return the producer ids that a request names, and one that its response assigns."""
    find = _PRODUCER_IDS.get(type(request).__name__)
    if find is None:
        return ()
    found = [*find(request), getattr(response, "producer_id", _NO_PRODUCER_ID)]
    return tuple(dict.fromkeys(each for each in found if each != _NO_PRODUCER_ID))


def generations(request: object) -> tuple[int, ...]:
    """Return the generations, or in consumer groups (KIP-848) the member epochs, that a request has."""
    find = _GENERATIONS.get(type(request).__name__)
    return tuple(dict.fromkeys(find(request))) if find else ()


def partitions(api: Api, version: int, request: Any, response: Any) -> tuple[tuple[TopicRef, int | None], ...]:
    """Return the topics and partitions that a request names. For a Fetch, its response is searched, too.

    The reason is that a Fetch request omits the partitions of a fetch session (KIP-227).
    """
    if request is None or not names_topics(api):
        return ()
    find = _PARTITIONS.get(type(request).__name__)
    found = find(request) if find else declared_partitions(api, version, request)
    if type(response).__name__ == "FetchResponse":
        for topic in response.responses:
            found += [(topic.topic or topic.topic_id, data.partition_index) for data in topic.partitions]
    return tuple(dict.fromkeys(found))


def declared_partitions(api: Api, version: int, request: Any) -> list[tuple[TopicRef, int | None]]:
    """Return the topics and partitions that a request names, by the declaration of its message."""
    parts = requested_parts(api, request, version, _topic_id)
    return [(part["topic"], part.get("partition")) for part in parts if part.get("topic")]


def _topic_id(topic_id: bytes) -> Any:
    """Return a topic id, in place of the topic's name; None if it is zero."""
    return topic_id if any(topic_id) else None


def names_members(api_name: str) -> bool:
    """Return whether requests of an API can name members of groups."""
    return f"{api_name}Request" in _MEMBER_IDS


def names_transactions(api_name: str) -> bool:
    """Return whether requests of an API can name transactional ids."""
    return f"{api_name}Request" in _TRANSACTIONAL_IDS


def names_producers(api_name: str) -> bool:
    """Return whether requests of an API, or their responses, can name producer ids."""
    return f"{api_name}Request" in _PRODUCER_IDS


def names_generations(api_name: str) -> bool:
    """Return whether requests of an API can have a generation or a member epoch."""
    return f"{api_name}Request" in _GENERATIONS


def names_topics(api: Api) -> bool:
    """Return whether requests of an API can name topics."""
    return "topic" in kinds_of(api) or api.name == "ListPartitionReassignments"
