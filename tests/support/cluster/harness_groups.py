"""Groups of members on a `ClusterHarness`."""

from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import join_request, sync_request

NO_INITIAL_DELAY: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
"""The setting with which the first member of a group gets a generation immediately."""
SESSION_MS = 10_000
"""The session timeout of members, by default."""


def join(harness: ClusterHarness, version: int = 9, *, group_id: str = "g", **fields: Any) -> Any:
    """Join a new member, with a second request if it needs a member id first. Returns the last response."""
    fields = {"session_timeout_ms": SESSION_MS} | fields
    response = harness.ask(join_request(group_id, version=version, **fields), version)
    if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return response
    return harness.ask(join_request(group_id, response.member_id, version=version, **fields), version)


def sync_after(joined: Any, version: int = 5, *, group_id: str = "g", **fields: Any) -> SyncGroupRequest:
    """Return the SyncGroup after a response to a join. It assigns `b"mine"` to the member."""
    assignments = {joined.member_id: b"mine"}
    return sync_request(joined.member_id, group_id, joined.generation_id, assignments, version=version, **fields)
