"""Every API that is spoken: one line each, in the order of Kafka's keys.

Knows messages; not what answering them means.
"""

from dataclasses import dataclass

from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from fakebroker.protocol.messages.fetch import FetchRequest, FetchResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.schema import Message, Versions


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, its messages, the versions that work and the versions that ApiVersions tells of."""

    name: str
    request: type[Message]
    response: type[Message]
    served: str
    advertised: str = ""

    @property
    def key(self) -> int:
        return self.request.API_KEY

    @property
    def versions(self) -> Versions:
        return Versions.parse(self.served)

    @property
    def advertised_versions(self) -> Versions:
        return Versions.parse(self.advertised or self.served)


APIS = (
    # Kafka tells of Produce 0-2, which it refuses, because librdkafka takes their absence for "no compression".
    Api("Produce", ProduceRequest, ProduceResponse, "3-13", advertised="0-13"),
    Api("Fetch", FetchRequest, FetchResponse, "4-18"),
    Api("ListOffsets", ListOffsetsRequest, ListOffsetsResponse, "1-11"),
    Api("Metadata", MetadataRequest, MetadataResponse, "0-13"),
    Api("OffsetCommit", OffsetCommitRequest, OffsetCommitResponse, "0-10"),
    Api("OffsetFetch", OffsetFetchRequest, OffsetFetchResponse, "0-10"),
    Api("FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse, "0-6"),
    Api("JoinGroup", JoinGroupRequest, JoinGroupResponse, "0-9"),
    Api("Heartbeat", HeartbeatRequest, HeartbeatResponse, "0-4"),
    Api("LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, "0-5"),
    Api("SyncGroup", SyncGroupRequest, SyncGroupResponse, "0-5"),
    Api("ApiVersions", ApiVersionsRequest, ApiVersionsResponse, "0-4"),
    Api("CreateTopics", CreateTopicsRequest, CreateTopicsResponse, "0-7"),
    Api("DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse, "0-6"),
    Api("InitProducerId", InitProducerIdRequest, InitProducerIdResponse, "0-6"),
)

API_BY_KEY = {api.key: api for api in APIS}
API_BY_NAME = {api.name: api for api in APIS}
_API_BY_REQUEST = {api.request: api for api in APIS}


def api_of(request: Message | type[Message]) -> Api:
    """The API that a request, or a class of requests, belongs to."""
    return _API_BY_REQUEST[request if isinstance(request, type) else type(request)]
