"""The handlers of requests: one module for each API, with the differences of its versions and its error codes.

A handler is a function `handle(cluster, call, now_ms)`, with the brokers' time in milliseconds. It returns the
response, or None if the response is pending or the request has none. Handlers depend on `Cluster`, which calls them
through `BY_NAME`. Start with `heartbeat.py`. Shared checks are in `lookup.py` (partitions and their leaders),
`controller_requests.py` (topics and replicas) and `transaction_verification.py` (partitions of transactions).
`README.md` describes how to add an API.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import join_group, sync_group
from fakebroker.coordinator.api import JoinResult, SyncResult
from fakebroker.coordinator.batch_join.batch import BatchResult
from fakebroker.protocol.registry import module_name
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Handler = Callable[["Cluster", Call, float], Message | None]


class _Handlers(dict[str, Handler]):
    """The handlers by the names of their APIs. A module is imported when its handler is first used."""

    def __missing__(self, api_name: str) -> Handler:
        handler: Handler = import_module(f"{__name__}.{module_name(api_name)}").handle
        self[api_name] = handler
        return handler


BY_NAME = _Handlers()
"""The handler of each API in the registry."""


def response_to(call: Call, result: object) -> Message:
    """Convert the coordinator's result of a parked join or sync to the response."""
    if isinstance(result, JoinResult):
        return join_group.response(call, result)
    if isinstance(result, SyncResult):
        return sync_group.response(call, result)
    assert isinstance(result, BatchResult)
    return join_group.batch_response(result)
