"""DeleteGroups: delete groups without members (KIP-229). A group that is named more than once has one result."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.late_response import LateResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: DeleteGroupsRequest = call.request
    group_ids = list(dict.fromkeys(request.groups_names))
    late = LateResponse(_response)
    errors: dict[str, ErrorCode] = {}

    def complete(group_id: str, error: ErrorCode) -> None:
        """Record the result of one group; the last one completes the response."""
        errors[group_id] = error
        if len(errors) == len(group_ids):
            late([(group_id, errors[group_id]) for group_id in group_ids])

    if not group_ids:
        return _response([])
    for group_id in group_ids:
        call.broker.coordinator.delete_group(group_id, now_ms, partial(complete, group_id))
    return late.take(cluster, call)


def _response(results: Sequence[tuple[str, ErrorCode]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error) for group_id, error in results]
    )
