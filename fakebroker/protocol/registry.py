"""The supported APIs, in the order of their keys, with the versions that brokers serve and advertise.

The messages of an API are in the module of `fakebroker.protocol.messages` named after it. It is imported when one of
them is used, because importing all takes longer than starting a cluster.
"""

import re
from functools import cached_property
from importlib import import_module

import msgspec

from fakebroker.protocol.schema import Message, Versions


class Api(msgspec.Struct, frozen=True, eq=False, dict=True):
    """An API of Kafka's protocol.

    Attributes:
        key: Its number in the headers of requests.
        name: Kafka's name, such as "JoinGroup".
        versions: The versions that brokers serve, unless they emulate a release.
        advertised_versions: The versions that brokers return in ApiVersions, unless they emulate a release.
        handler: For Kafka's APIs, the name of the API; the module of the handler is named after it. For an API of a
            proposal, the full name of the handler's module.
        messages: The full name of the module of its messages, a dot, and the first part of their class names. "": both
            are derived from the name.
        proposal: The name of the proposal that replaces Kafka's API; "" for Kafka's APIs.
    """

    key: int
    name: str
    versions: Versions
    advertised_versions: Versions
    handler: str
    messages: str = ""
    proposal: str = ""

    @cached_property
    def request(self) -> type[Message]:
        """The class of requests. Its `VERSIONS` can be decoded."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        """The class of responses."""
        return self._message("Response")

    def _message(self, kind: str) -> type[Message]:
        messages = self.messages or f"fakebroker.protocol.messages.{module_name(self.name)}.{self.name}"
        module, _, name = messages.rpartition(".")
        found: type[Message] = getattr(import_module(module), name + kind)
        return found


def module_name(api_name: str) -> str:
    """Convert the name of an API to the name of its modules, such as OffsetFetch to offset_fetch."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()


def _api(key: int, name: str, served: str, advertised: str | None = None) -> Api:
    return Api(key, name, Versions.parse(served), Versions.parse(advertised or served), name)


APIS = (
    # Kafka advertises Produce 0-2 but rejects them: librdkafka does not compress if they are missing (KAFKA-18659).
    _api(0, "Produce", "3-13", advertised="0-13"),
    _api(1, "Fetch", "4-18"),
    _api(2, "ListOffsets", "1-11"),
    _api(3, "Metadata", "0-13"),
    _api(8, "OffsetCommit", "0-10"),
    _api(9, "OffsetFetch", "0-10"),
    _api(10, "FindCoordinator", "0-6"),
    _api(11, "JoinGroup", "0-9"),
    _api(12, "Heartbeat", "0-4"),
    _api(13, "LeaveGroup", "0-5"),
    _api(14, "SyncGroup", "0-5"),
    _api(15, "DescribeGroups", "0-6"),
    _api(16, "ListGroups", "0-5"),
    _api(17, "SaslHandshake", "0-1"),
    _api(18, "ApiVersions", "0-5"),
    _api(19, "CreateTopics", "0-7"),
    _api(20, "DeleteTopics", "0-6"),
    _api(21, "DeleteRecords", "0-2"),
    _api(22, "InitProducerId", "0-5"),
    _api(23, "OffsetForLeaderEpoch", "2-4"),
    _api(24, "AddPartitionsToTxn", "0-5"),
    _api(25, "AddOffsetsToTxn", "0-4"),
    _api(26, "EndTxn", "0-5"),
    _api(27, "WriteTxnMarkers", "1-2"),
    _api(28, "TxnOffsetCommit", "0-6"),
    _api(29, "DescribeAcls", "0-3"),
    _api(30, "CreateAcls", "0-3"),
    _api(31, "DeleteAcls", "0-3"),
    _api(32, "DescribeConfigs", "1-4"),
    _api(33, "AlterConfigs", "0-2"),
    _api(34, "AlterReplicaLogDirs", "1-2"),
    _api(35, "DescribeLogDirs", "1-5"),
    _api(36, "SaslAuthenticate", "0-2"),
    _api(37, "CreatePartitions", "0-3"),
    _api(38, "CreateDelegationToken", "0-3"),
    _api(39, "RenewDelegationToken", "0-2"),
    _api(40, "ExpireDelegationToken", "0-2"),
    _api(41, "DescribeDelegationToken", "0-3"),
    _api(42, "DeleteGroups", "0-3"),
    _api(43, "ElectLeaders", "0-2"),
    _api(44, "IncrementalAlterConfigs", "0-1"),
    _api(45, "AlterPartitionReassignments", "0-1"),
    _api(46, "ListPartitionReassignments", "0"),
    _api(47, "OffsetDelete", "0"),
    _api(48, "DescribeClientQuotas", "0-1"),
    _api(49, "AlterClientQuotas", "0-1"),
    _api(50, "DescribeUserScramCredentials", "0"),
    _api(51, "AlterUserScramCredentials", "0"),
    _api(55, "DescribeQuorum", "0-2"),
    _api(57, "UpdateFeatures", "0-2"),
    _api(60, "DescribeCluster", "0-2"),
    _api(61, "DescribeProducers", "0"),
    _api(64, "UnregisterBroker", "0"),
    _api(65, "DescribeTransactions", "0"),
    _api(66, "ListTransactions", "0-2"),
    _api(68, "ConsumerGroupHeartbeat", "0-1"),
    _api(69, "ConsumerGroupDescribe", "0-1"),
    _api(71, "GetTelemetrySubscriptions", "0"),
    _api(72, "PushTelemetry", "0"),
    _api(74, "ListConfigResources", "0-1"),
    _api(75, "DescribeTopicPartitions", "0"),
    _api(94, "UnregisterController", "0"),
)

API_BY_KEY = {api.key: api for api in APIS}
API_BY_NAME = {api.name: api for api in APIS}


def api_of(request: Message | type[Message]) -> Api:
    """Return the API of a request or request class. Messages of proposals have the attribute `API`."""
    found: Api | None = getattr(request, "API", None)
    return found or API_BY_KEY[request.API_KEY]
