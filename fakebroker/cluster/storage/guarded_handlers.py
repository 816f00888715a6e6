"""Handlers of a cluster whose state is stored: those that change it are refused while there is no space."""

from typing import TYPE_CHECKING, Protocol

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import error_places
from fakebroker.cluster.faults.error_responses import InjectedError, refusal
from fakebroker.cluster.handlers import BY_NAME, Handler
from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

GUARDED = frozenset(
    (
        *("AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments", "AlterUserScramCredentials"),
        *("CreateAcls", "CreatePartitions", "CreateTopics", "DeleteAcls", "DeleteRecords", "DeleteTopics"),
        *("ElectLeaders", "IncrementalAlterConfigs", "InitProducerId", "UnregisterBroker", "UpdateFeatures"),
    )
)
"""The APIs that change what is stored. Of Produce and of requests to coordinators, the append to the log fails instead;
requests that may create a topic besides (Metadata, FindCoordinator) are answered."""


class Guard(Protocol):
    """What the handlers need of the storage."""

    sections_may_differ: bool

    def has_space(self) -> bool: ...


class GuardedHandlers(dict[str, Handler]):
    """The handlers by the names of their APIs, as `BY_NAME`.

    Args:
        guard: Knows whether there is space; its `sections_may_differ` is set when a section may have changed.
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
            if not self._guard.has_space():
                return _refused(call)
            self._guard.sections_may_differ = True
            return handler(cluster, call, now_ms)

        return handle


def _refused(call: Call) -> Message:
    """Return the response with KAFKA_STORAGE_ERROR for all parts of a request."""
    place = next(each for each in error_places(call.api) if call.api_version in each.versions)
    error = InjectedError(ErrorCode.KAFKA_STORAGE_ERROR, place, call.api_version, {}, lambda topic_id: None)
    return refusal(error, call.api.response, call.request)
