"""DeleteGroups: delete groups without members (KIP-229). A group that is named more than once has one result."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: DeleteGroupsRequest = call.request
    refused = {
        group_id: group_error(cluster, call, AclOperation.DELETE, group_id)
        for group_id in dict.fromkeys(request.groups_names)
    }
    group_ids = [group_id for group_id, error in refused.items() if not error]
    found = {**refused, **call.broker.coordinator.delete_groups(group_ids, now_ms)}
    results = [DeletableGroupResult(group_id=group_id, error_code=found[group_id]) for group_id in refused]
    return DeleteGroupsResponse(results=results)
