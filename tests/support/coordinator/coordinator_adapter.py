"""Handles protocol requests of group members with a pure `Coordinator`, as a broker's handlers do."""

from collections.abc import Callable
from typing import cast

import msgspec

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.group_responses import (
    commit_response,
    error_response,
    offset_fetch_response,
    requested_partitions,
)

Respond = Callable[[GroupResponse], None]
"""Receives the response to one request."""


class RespondContext(msgspec.Struct, frozen=True):
    """The context of a request of the newest version, with the function that receives the response."""

    respond: Respond
    client_id: str
    api_version: int = 9
    client_host: str = "/127.0.0.1"
    may_describe: None = None


class CoordinatorAdapter:
    """Handles protocol requests with a coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def handle(self, request: GroupRequest, client_id: str, respond: Respond, now_ms: float) -> None:
        """Handle a request of the newest version.

        `respond` is called before this returns; for JoinGroup and SyncGroup it is called by a later `send_responses`.
        """
        coordinator = self._coordinator
        context = RespondContext(respond, client_id)
        match request:
            case JoinGroupRequest():
                coordinator.join_group(request, context, now_ms)
            case SyncGroupRequest():
                coordinator.sync_group(request, context, now_ms)
            case HeartbeatRequest():
                respond(HeartbeatResponse(error_code=coordinator.heartbeat(request, now_ms)))
            case ConsumerGroupHeartbeatRequest():
                respond(coordinator.consumer_group_heartbeat(request, context, now_ms))
            case OffsetCommitRequest():
                respond(self._commit(request, now_ms))
            case OffsetFetchRequest():
                respond(self._fetch_offsets(request, now_ms))
            case LeaveGroupRequest():
                respond(coordinator.leave_group(request.group_id, request.members, now_ms))

    def send_responses(self) -> None:
        """Send the responses to joins and syncs that the coordinator has completed."""
        answers, self._coordinator.answers = self._coordinator.answers, []
        for context, response in answers:
            assert isinstance(context, RespondContext)
            context.respond(cast(GroupResponse, response))

    def _commit(self, request: OffsetCommitRequest, now_ms: float) -> OffsetCommitResponse:
        offsets = [(topic.name, each) for topic in request.topics for each in topic.partitions]
        errors = self._coordinator.offsets.commit(request, offsets, now_ms)
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
