"""Handles protocol requests of group members with a pure `Coordinator`, as a broker's handlers do."""

from collections.abc import Callable

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.coordinator.api import JoinResult, OffsetToCommit, SyncResult
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.coordinator.message_conversion import (
    to_consumer_group_heartbeat,
    to_heartbeat_response,
    to_join_group,
    to_response,
    to_sync_group,
)
from tests.support.group_responses import (
    commit_response,
    committed_offsets,
    error_response,
    offset_fetch_response,
    requested_partitions,
)

Respond = Callable[[GroupResponse], None]
"""Receives the response to one request."""


class CoordinatorAdapter:
    """Handles protocol requests with a coordinator. A request's token is the function that receives the response."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def handle(self, request: GroupRequest, client_id: str, respond: Respond, now_ms: float) -> None:
        """Handle a request of the newest version.

        `respond` is called before this returns; for JoinGroup and SyncGroup it is called by a later `send_responses`.
        """
        coordinator = self._coordinator
        match request:
            case JoinGroupRequest():
                coordinator.join_group(request.group_id, to_join_group(request, client_id), respond, now_ms)
            case SyncGroupRequest():
                coordinator.sync_group(request.group_id, to_sync_group(request), respond, now_ms)
            case HeartbeatRequest():
                member = request.generation_id, request.member_id, request.group_instance_id
                respond(HeartbeatResponse(error_code=coordinator.heartbeat(request.group_id, *member, now_ms)))
            case ConsumerGroupHeartbeatRequest():
                heartbeat = to_consumer_group_heartbeat(request, client_id)
                respond(to_heartbeat_response(coordinator.consumer_group_heartbeat(heartbeat, now_ms)))
            case OffsetCommitRequest():
                respond(self._commit(request, now_ms))
            case OffsetFetchRequest():
                respond(self._fetch_offsets(request, now_ms))
            case LeaveGroupRequest():
                members = [(member.member_id, member.group_instance_id) for member in request.members]
                error, _ = coordinator.leave_group(request.group_id, members, now_ms)
                respond(LeaveGroupResponse(error_code=error))

    def send_responses(self) -> None:
        """Send the responses to joins and syncs that the coordinator has completed."""
        answers, self._coordinator.answers = self._coordinator.answers, []
        for token, result in answers:
            assert callable(token)
            assert isinstance(result, JoinResult | SyncResult)
            token(to_response(result))

    def _commit(self, request: OffsetCommitRequest, now_ms: float) -> OffsetCommitResponse:
        offsets = [
            OffsetToCommit(topic=topic, partition=index, offset=offset)
            for (topic, index), offset in committed_offsets(request).items()
        ]
        member = request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        errors = self._coordinator.offsets.commit(request.group_id, *member, offsets, now_ms)
        response = commit_response(request)
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        for partition, error in zip(partitions, errors, strict=True):
            partition.error_code = error
        return response

    def _fetch_offsets(self, request: OffsetFetchRequest, now_ms: float) -> GroupResponse:
        group = request.groups[0]
        error, found = self._coordinator.offsets.fetch(group.group_id, requested_partitions(request))
        if error := error or self._coordinator.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch):
            return error_response(request, error)
        return offset_fetch_response(
            {(topic, index): offset.offset if offset else -1 for topic, index, offset in found}
        )
