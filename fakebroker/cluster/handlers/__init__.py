"""One file per API, named as its message: the rules of its versions, and where each error goes.

A handler is `handle(cluster, call, now_ms)`; it gives the response, or None where it is owed or none is due.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from fakebroker.coordinator.types import JoinResult, SyncResult
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Handler = Callable[["Cluster", Call, float], Message | None]

BY_NAME: dict[str, Handler] = {
    "ApiVersions": api_versions.handle,
    "CreateTopics": create_topics.handle,
    "DeleteTopics": delete_topics.handle,
    "Fetch": fetch.handle,
    "FindCoordinator": find_coordinator.handle,
    "Heartbeat": heartbeat.handle,
    "InitProducerId": init_producer_id.handle,
    "JoinGroup": join_group.handle,
    "LeaveGroup": leave_group.handle,
    "ListOffsets": list_offsets.handle,
    "Metadata": metadata.handle,
    "OffsetCommit": offset_commit.handle,
    "OffsetFetch": offset_fetch.handle,
    "Produce": produce.handle,
    "SyncGroup": sync_group.handle,
}


def response_to(call: Call, result: JoinResult | SyncResult) -> Message:
    """The response to a parked join or sync, once its coordinator has decided."""
    if isinstance(result, JoinResult):
        return join_group.response(call, result)
    return sync_group.response(call, result)
