"""DeleteGroups: each group once, however often it is named; whether it may go is its coordinator's to say (KIP-229)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DeleteGroupsResponse:
    request: DeleteGroupsRequest = call.request
    results = [
        DeletableGroupResult(group_id=group_id, error_code=call.broker.coordinator.delete_group(group_id, now_ms))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return DeleteGroupsResponse(results=results)
