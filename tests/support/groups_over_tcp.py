"""Groups of members that use `WireClient`."""

from fakebroker import ErrorCode, FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.group_requests import commit_request, heartbeat_request, join_request, sync_request
from tests.support.wire_client import WireClient

JOIN_WITHOUT_MEMBER_ID = 3
"""The last version of JoinGroup in which a new member joins with one request (KIP-394)."""
OLD_SYNC = 2
"""A version of SyncGroup that brokers of all emulated releases since 2.0 support."""


def heartbeat(
    wire: WireClient, group_id: str = "g", member_id: str = "m", generation_id: int = 1, version: int | None = None
) -> ErrorCode:
    """Send a heartbeat and return the error in the response."""
    request = heartbeat_request(group_id, member_id, generation_id)
    return ErrorCode(wire.ask(request, HeartbeatResponse, version).error_code)


def heartbeat_to(broker: BrokerView, group_id: str = "g", member_id: str = "m", generation_id: int = 1) -> ErrorCode:
    """Send a heartbeat on a new connection and return the error in the response."""
    with WireClient(broker) as wire:
        return heartbeat(wire, group_id, member_id, generation_id)


def join_and_sync(wire: WireClient, group_id: str = "g", *, session_timeout_ms: int = 30_000) -> str:
    """Make a stable group of one member with the assignment b"all", and return the member id. For brokers since 2.0."""
    request = join_request(group_id, session_timeout_ms=session_timeout_ms)
    joined = wire.ask(request, JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID)
    sync = sync_request(joined.member_id, group_id, joined.generation_id, {joined.member_id: b"all"})
    assert wire.ask(sync, SyncGroupResponse, OLD_SYNC).assignment == b"all"
    return joined.member_id


def stable_group(cluster: FakeCluster, group_id: str = "g") -> str:
    """Make a stable group of the client "app", which commits offset 42 of orders-2, and return the member id.

    Joins with two requests, as new clients do: the response to the first is MEMBER_ID_REQUIRED.
    """
    with WireClient(cluster.group(group_id).coordinator(), "app") as wire:
        member_id = wire.ask(join_request(group_id), JoinGroupResponse).member_id
        joined = wire.ask(join_request(group_id, member_id), JoinGroupResponse)
        sync = sync_request(member_id, group_id, joined.generation_id, {member_id: b"all"})
        assert wire.ask(sync, SyncGroupResponse).assignment == b"all"
        commit = commit_request(42, 2, group_id, member_id, joined.generation_id, "note")
        committed = wire.ask(commit, OffsetCommitResponse, 9)
        assert committed.topics[0].partitions[0].error_code == 0
    return member_id
