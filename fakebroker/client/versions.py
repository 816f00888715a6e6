"""Versions of requests, and conversion of messages whose layout has changed between versions.

Callers use the layout of the newest version. Fields that were only added or removed are handled by the codec.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from fakebroker.client.errors import UnsupportedVersion
from fakebroker.errors import ProtocolError
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.list_offsets import ListOffsetsRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions

T = TypeVar("T")

LAST_VERSION_WITH_TOPIC_NAMES: dict[type[Message], int] = {
    ProduceRequest: 12,
    FetchRequest: 12,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    TxnOffsetCommitRequest: 5,
}
"""Later versions identify topics by id (KIP-516, KIP-848), which this client does not support."""

FIRST_BATCHED_VERSION: dict[type[Message], int] = {FindCoordinatorRequest: 4, OffsetFetchRequest: 8}
"""The first version with several keys or groups per request (KIP-699, KIP-709)."""

LAST_VERSION_WITH_ONE_TRANSACTION = 3
"""The latest version of AddPartitionsToTxn for clients; later ones, for several transactions, are for brokers."""

FIRST_VERSION_WITH_SASL_AUTHENTICATE = 1
"""The first version of SaslHandshake after which tokens are sent in requests (KIP-152)."""

_WITHOUT_NEEDS = frozenset((HeartbeatRequest, OffsetCommitRequest, SyncGroupRequest))
"""The most frequent requests, whose fields do not need certain versions. Other ones may be among these."""

_DEFAULT = -1
"""The number of partitions or replicas in CreateTopics that means the broker's default."""


def versions_of(request: type[Message]) -> Versions:
    """Return the versions of a request that this client supports. Some fields need others, see `versions_needed`."""
    api = api_of(request)
    if request is SaslHandshakeRequest:
        return Versions(FIRST_VERSION_WITH_SASL_AUTHENTICATE, api.versions.last)
    if request is AddPartitionsToTxnRequest:
        return Versions(request.VERSIONS.first, LAST_VERSION_WITH_ONE_TRANSACTION)
    # Includes versions that only old brokers support (KIP-896).
    return Versions(request.VERSIONS.first, LAST_VERSION_WITH_TOPIC_NAMES.get(request, api.versions.last))


def is_batched(request: type[Message], version: int) -> bool:
    """Return whether a version of a request can contain several keys or groups."""
    return version >= FIRST_BATCHED_VERSION.get(request, 0)


def versions_needed(request: Message) -> Versions | None:
    """Return the versions that support all fields set in a request; None if all versions do."""
    if type(request) in _WITHOUT_NEEDS:
        return None
    match request:
        case ConsumerGroupHeartbeatRequest():
            if request.subscribed_topic_regex is None:
                return None
            first = 1
        case LeaveGroupRequest() if len(request.members) > 1 or any(not member.member_id for member in request.members):
            first = 3  # KIP-345
        case ListGroupsRequest() if request.types_filter:  # KIP-848
            first = 5
        case ListGroupsRequest() if request.states_filter:  # KIP-518
            first = 4
        case FindCoordinatorRequest() if request.key_type:  # a type other than groups
            first = 1
        case OffsetFetchRequest() if any(group.topics is None for group in request.groups):
            first = 2
        case CreateTopicsRequest() if any(_DEFAULT in _counts(topic) for topic in request.topics):  # KIP-464
            first = 4
        case ListTransactionsRequest() if request.transactional_id_pattern is not None:  # KIP-1152
            first = 2
        case ListTransactionsRequest() if request.duration_filter >= 0:  # KIP-994
            first = 1
        case ListOffsetsRequest() if request.isolation_level:  # KIP-98
            first = 2
        case MetadataRequest() if not request.allow_auto_topic_creation:
            first = 4
        case _:
            return None
    return Versions(first, versions_of(type(request)).last)


class NegotiatedVersions:
    """The version of each API on connections to one broker: the highest that both sides support.

    Args:
        theirs: The versions that the broker supports, by API key.
        broker: The broker's name in error messages.
        features: The finalized features of the cluster, with their levels (KIP-584).

    Attributes:
        theirs: The versions that the broker supports, by API key.
        features: The finalized features of the cluster, with their levels.
    """

    def __init__(
        self,
        theirs: Mapping[int, Versions],
        broker: str = "the broker",
        features: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.theirs = theirs
        self.features = features
        self._broker = broker
        self._versions: dict[type[Message], int] = {}

    def version_for(self, request: type[Message]) -> int:
        """Return the version of a request class, for requests whose fields do not need a certain version.

        Raises:
            UnsupportedVersion: There is no common version.
        """
        version = self._versions.get(request)
        if version is None:
            version = self._versions[request] = self._highest_of(request, versions_of(request))
        return version

    def version_of(self, request: Message) -> int:
        """Return the version of one request, whose fields may need a certain version.

        Raises:
            UnsupportedVersion: There is no common version.
        """
        needed = versions_needed(request)
        return self.version_for(type(request)) if needed is None else self._highest_of(type(request), needed)

    def _highest_of(self, request: type[Message], ours: Versions) -> int:
        api = api_of(request)
        theirs = self.theirs.get(api.key)
        if theirs is None or theirs.first > ours.last or theirs.last < ours.first:
            raise UnsupportedVersion(api.name, theirs, ours, self._broker)
        return min(ours.last, theirs.last)


def _counts(topic: CreatableTopic) -> tuple[int, ...]:
    return () if topic.assignments else (topic.num_partitions, topic.replication_factor)


def convert_request(request: Message, version: int) -> Message:
    """Convert a request to the layout of a version; returns the request itself if its layout is the same.

    Args:
        request: The request in the layout of the newest version, with lists of groups, members or keys.
        version: The version in which it will be sent.

    Raises:
        ProtocolError: The version supports one group, member or key per request, and there are more.
    """
    match request:
        case FindCoordinatorRequest() if (
            version < FIRST_BATCHED_VERSION[FindCoordinatorRequest] and request.coordinator_keys
        ):
            return FindCoordinatorRequest(key=_only(request, request.coordinator_keys), key_type=request.key_type)
        case LeaveGroupRequest() if version < 3 and request.members:
            member = _only(request, request.members)
            return LeaveGroupRequest(group_id=request.group_id, member_id=member.member_id)
        case OffsetFetchRequest() if request.groups and not is_batched(type(request), version):
            return _fetch_of_one_group(version, request)
        case TxnOffsetCommitRequest() if version < 3:  # without the identity of the consumer (KIP-447)
            return TxnOffsetCommitRequest(
                transactional_id=request.transactional_id,
                group_id=request.group_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                topics=request.topics,
            )
    return request


def convert_response(request: Message, response: Message) -> Any:
    """Convert a response to the layout of the newest version; returns the response itself if its layout is the same.

    Args:
        request: The answered request. If the request has an old layout, the response is not converted.
        response: The response, in the layout of its version.
    """
    match request, response:
        case FindCoordinatorRequest(coordinator_keys=[key]), FindCoordinatorResponse(coordinators=[]):
            return FindCoordinatorResponse(
                throttle_time_ms=response.throttle_time_ms, coordinators=[_coordinator(key, response)]
            )
        case OffsetFetchRequest(groups=[group]), OffsetFetchResponse(groups=[]):
            return OffsetFetchResponse(
                throttle_time_ms=response.throttle_time_ms, groups=[_fetched_group(group.group_id, response)]
            )
    return response


def _coordinator(key: str, found: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error_code,
        error_message=found.error_message,
    )


def _fetched_group(group_id: str, response: OffsetFetchResponse) -> OffsetFetchResponseGroup:
    topics = [
        OffsetFetchResponseTopics(name=topic.name, partitions=[_fetched(each) for each in topic.partitions])
        for topic in response.topics
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=response.error_code)


def _fetched(partition: OffsetFetchResponsePartition) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _fetch_of_one_group(version: int, request: OffsetFetchRequest) -> OffsetFetchRequest:
    group = _only(request, request.groups)
    topics = None
    if group.topics is not None:
        topics = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics]
    # Before version 7 there is no `require_stable`; Kafka's consumer omits it then, too.
    return OffsetFetchRequest(
        group_id=group.group_id, topics=topics, require_stable=request.require_stable and version >= 7
    )


def _only(request: Message, items: list[T]) -> T:
    if len(items) != 1:
        raise ProtocolError(
            f"{type(request).__name__}: {len(items)} groups, members or keys, this version supports one"
        )
    return items[0]
