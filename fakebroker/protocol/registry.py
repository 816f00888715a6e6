"""The supported APIs, in the order of their keys, with the versions that brokers serve and advertise.

The messages of an API are in the module of `fakebroker.protocol.messages` named after it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from fakebroker.protocol.schema import Message, Versions


@dataclass(frozen=True, slots=True)
class Api:
    """An API of Kafka's protocol.

    Attributes:
        name: Kafka's name, such as "JoinGroup".
        request: The class of requests. Its `VERSIONS` can be decoded and include those of proposals.
        response: The class of responses.
        versions: The versions that brokers serve, unless they emulate a release.
        advertised_versions: The versions that brokers return in ApiVersions, unless they emulate a release.
    """

    name: str
    request: type[Message]
    response: type[Message]
    versions: Versions
    advertised_versions: Versions

    @property
    def key(self) -> int:
        return self.request.API_KEY

    @property
    def module_name(self) -> str:
        """The name of the modules that have the messages and the handler of this API."""
        return module_name(self.name)


def module_name(api_name: str) -> str:
    """Convert the name of an API to that of its modules, such as OffsetFetch to offset_fetch."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()


def _api(name: str, served: str, advertised: str | None = None) -> Api:
    messages = import_module(f"fakebroker.protocol.messages.{module_name(name)}")
    request, response = getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")
    return Api(name, request, response, Versions.parse(served), Versions.parse(advertised or served))


APIS = (
    # Kafka advertises Produce 0-2 but rejects them: librdkafka does not compress if they are missing (KAFKA-18659).
    _api("Produce", "3-13", advertised="0-13"),
    _api("Fetch", "4-18"),
    _api("ListOffsets", "1-11"),
    _api("Metadata", "0-13"),
    _api("OffsetCommit", "0-10"),
    _api("OffsetFetch", "0-10"),
    _api("FindCoordinator", "0-6"),
    _api("JoinGroup", "0-9"),
    _api("Heartbeat", "0-4"),
    _api("LeaveGroup", "0-5"),
    _api("SyncGroup", "0-5"),
    _api("DescribeGroups", "0-6"),
    _api("ListGroups", "0-5"),
    _api("SaslHandshake", "0-1"),
    _api("ApiVersions", "0-4"),
    _api("CreateTopics", "0-7"),
    _api("DeleteTopics", "0-6"),
    _api("DeleteRecords", "0-2"),
    _api("InitProducerId", "0-5"),
    _api("OffsetForLeaderEpoch", "2-4"),
    _api("DescribeAcls", "0-3"),
    _api("CreateAcls", "0-3"),
    _api("DeleteAcls", "0-3"),
    _api("DescribeConfigs", "1-4"),
    _api("AlterConfigs", "0-2"),
    _api("AlterReplicaLogDirs", "1-2"),
    _api("DescribeLogDirs", "1-4"),
    _api("SaslAuthenticate", "0-2"),
    _api("CreatePartitions", "0-3"),
    _api("CreateDelegationToken", "0-3"),
    _api("RenewDelegationToken", "0-2"),
    _api("ExpireDelegationToken", "0-2"),
    _api("DescribeDelegationToken", "0-3"),
    _api("DeleteGroups", "0-2"),
    _api("ElectLeaders", "0-2"),
    _api("IncrementalAlterConfigs", "0-1"),
    _api("AlterPartitionReassignments", "0-1"),
    _api("ListPartitionReassignments", "0"),
    _api("OffsetDelete", "0"),
    _api("DescribeClientQuotas", "0-1"),
    _api("AlterClientQuotas", "0-1"),
    _api("DescribeUserScramCredentials", "0"),
    _api("AlterUserScramCredentials", "0"),
    _api("DescribeQuorum", "0-2"),
    _api("UpdateFeatures", "0-2"),
    _api("DescribeCluster", "0-2"),
    _api("DescribeProducers", "0"),
    _api("UnregisterBroker", "0"),
    _api("GetTelemetrySubscriptions", "0"),
    _api("PushTelemetry", "0"),
    _api("ListConfigResources", "0-1"),
    _api("DescribeTopicPartitions", "0"),
)

PROPOSALS: Mapping[str, Mapping[str, Versions]] = {
    "batch-join": {"JoinGroup": Versions(0, 10)},  # KAFKA-8397, not implemented in Kafka.
}
"""The proposed protocol extensions that can be enabled: the API versions of each."""

API_BY_KEY = {api.key: api for api in APIS}
API_BY_NAME = {api.name: api for api in APIS}
_API_BY_REQUEST = {api.request: api for api in APIS}


def api_of(request: Message | type[Message]) -> Api:
    """Return the API of a request or request class."""
    return _API_BY_REQUEST[request if isinstance(request, type) else type(request)]
