"""Handlers of a cluster whose state is stored: those that change it are refused while there is no space."""

from typing import TYPE_CHECKING, Protocol

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import error_places
from fakebroker.cluster.faults.error_responses import InjectedError, refusal
from fakebroker.cluster.handlers import BY_NAME
from fakebroker.cluster.handlers.controller_requests import MAX_RECORDS_PER_USER_OP
from fakebroker.cluster.request_path import Handler
from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

GUARDED = frozenset(
    (
        *("AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments", "AlterUserScramCredentials"),
        *("CreateAcls", "CreatePartitions", "CreateTopics", "DeleteAcls", "DeleteRecords", "DeleteTopics"),
        *("ElectLeaders", "IncrementalAlterConfigs", "InitProducerId", "UnregisterBroker", "UpdateFeatures"),
        "UnregisterController",
    )
)
"""The APIs that change what is stored. Of Produce and of requests to coordinators, the append to the log fails instead;
requests that may create a topic besides (Metadata, FindCoordinator) are answered."""

_CREDENTIAL_BYTES = 256
"""The largest size of a stored SCRAM credential, without the parts that are in the request."""
_TOPIC_BYTES = 128
"""The largest size of a stored topic, without its partitions and the parts that are in the request."""


class Guard(Protocol):
    """Claims space for requests. `StateWriter` implements it."""

    def claim(self, growth_bytes: int) -> bool:
        """Claim space for a request that lets the stored state grow by up to `growth_bytes`. False if there is none."""
        ...


class GuardedHandlers(dict[str, Handler]):
    """The handlers, as `BY_NAME`.

    Args:
        guard: Knows whether there is space for changes.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def __missing__(self, api_name: str) -> Handler:
        handler = BY_NAME[api_name]
        self[api_name] = guarded = self._guarded(handler) if api_name in GUARDED else handler
        return guarded

    def _guarded(self, handler: Handler) -> Handler:
        def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
            if not self._guard.claim(_growth_bytes(cluster, call)):
                return _refused(call)
            return handler(cluster, call, now_ms)

        return handle


def _growth_bytes(cluster: "Cluster", call: Call) -> int:
    """Return how much larger the entries of topics and sections can become by a request."""
    # A stored request is at most 4 times as large, plus partitions and SCRAM keys that it does not contain.
    growth = 4 * call.size
    if call.api.name == "AlterUserScramCredentials":
        growth += _CREDENTIAL_BYTES * len(call.request.upsertions)
    elif call.api.name == "CreateTopics":
        default = cluster.config.number("num.partitions")
        counts = [max(topic.num_partitions, default) for topic in call.request.topics]
        growth += _TOPIC_BYTES * len(counts) + min(sum(counts), MAX_RECORDS_PER_USER_OP) * cluster.partition_bytes
    elif call.api.name == "CreatePartitions":
        counts = [min(max(topic.count, 0), MAX_RECORDS_PER_USER_OP) for topic in call.request.topics]
        growth += sum(counts) * cluster.partition_bytes
    return growth


def _refused(call: Call) -> Message:
    """Return the response with KAFKA_STORAGE_ERROR for all parts of a request."""
    place = next(each for each in error_places(call.api) if call.api_version in each.versions)
    error = InjectedError(ErrorCode.KAFKA_STORAGE_ERROR, place, call.api_version, {}, lambda topic_id: None)
    return refusal(error, call.api.response, call.request)
