"""Group coordinators, each with a bug that breaks one promise and no other.

A new class also needs an entry in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from math import inf

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.rebalance import expire_session
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.context import OwnContext, RequestContext
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.groups import AnyGroup
from fakebroker.coordinator.partitions import LedPartition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message, replaced
from tests.support.replay.changed_offset_requests import ChangesOffsetRequests
from tests.support.replay.scripted_group import SESSION_MS


class AssignsPartitionsTwice(Coordinator):
    """Assigns the partitions of the first member to the second one, too."""

    def sync_group(self, request: SyncGroupRequest, context: RequestContext, now_ms: float) -> None:
        if len(request.assignments) > 1:
            first, second, *others = request.assignments
            both = encode_assignment([*decode_assignment(first.assignment), *decode_assignment(second.assignment)])
            request = replaced(request, assignments=[first, replaced(second, assignment=both), *others])
        super().sync_group(request, context, now_ms)


class LosesAssignedPartition(Coordinator):
    """Removes a partition from the assignment of the first member."""

    def sync_group(self, request: SyncGroupRequest, context: RequestContext, now_ms: float) -> None:
        if request.assignments:
            first, *others = request.assignments
            rest = encode_assignment(decode_assignment(first.assignment)[1:])
            request = replaced(request, assignments=[replaced(first, assignment=rest), *others])
        super().sync_group(request, context, now_ms)


class LosesCommits(ChangesOffsetRequests):
    """Acknowledges every commit, but stores only every third one."""

    commits = 0

    def answer_at_once(self, request: OffsetCommitRequest, now_ms: float) -> ErrorCode | None:
        self.commits += 1
        group = self.groups.classic.get(request.group_id)
        member = request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        if group is None or group.check_commit(*member) or self.commits % 3 == 1:
            return None
        beat = HeartbeatRequest(
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
        self.heartbeat(beat, now_ms)  # A commit extends the session, too.
        return ErrorCode.NONE


class ReusesGenerations(Coordinator):
    """Does not increment the generation when a new member joins."""

    def join_group(self, request: JoinGroupRequest, context: RequestContext, now_ms: float) -> None:
        group = self.groups.classic.get(request.group_id)
        if group is not None and group.state is GroupState.STABLE and request.member_id in group.pending_members:
            super().join_group(request, context, now_ms)
            group.generation_id -= 1
        else:
            super().join_group(request, context, now_ms)


class SkipsGenerations(Coordinator):
    """Increments the generation by two when a new member joins."""

    def join_group(self, request: JoinGroupRequest, context: RequestContext, now_ms: float) -> None:
        group = self.groups.classic.get(request.group_id)
        if group is not None and group.state is GroupState.STABLE and request.member_id in group.pending_members:
            group.generation_id += 1
        super().join_group(request, context, now_ms)


class ForgetsJoin(Coordinator):
    """Never answers the first JoinGroup of a new member in a group with members."""

    has_forgotten = False

    def join_group(self, request: JoinGroupRequest, context: RequestContext, now_ms: float) -> None:
        group = self.groups.classic.get(request.group_id)
        if (
            group is not None
            and group.members
            and request.member_id in group.pending_members
            and not self.has_forgotten
        ):
            self.has_forgotten = True
            context = OwnContext(context.api_version, context.client_id, context.client_host)
        super().join_group(request, context, now_ms)


class ForgetsSync(Coordinator):
    """Never answers the first SyncGroup of a member that is not the leader."""

    has_forgotten = False

    def sync_group(self, request: SyncGroupRequest, context: RequestContext, now_ms: float) -> None:
        group = self.groups.classic.get(request.group_id)
        if group is not None and request.member_id != group.leader_id and not self.has_forgotten:
            self.has_forgotten = True
            context = OwnContext(context.api_version, context.client_id, context.client_host)
        super().sync_group(request, context, now_ms)


class NeverExpiresSessions(Coordinator):
    """Keeps members whose session has expired."""

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        group = self.groups.classic.get(request.group_id)
        for member in group.members.values() if group else ():
            member.deadline_ms = inf
        return super().heartbeat(request, now_ms)

    def _expire(self, entry: AnyGroup | LedPartition, deadline_ms: float, now_ms: float) -> None:
        for group in self.groups.classic.values():
            for member in group.members.values():
                member.deadline_ms = inf
        super()._expire(entry, deadline_ms, now_ms)


class ExpiresLiveSession(Coordinator):
    """Once, in a group that has been stable for a session timeout, expires the session of a member with heartbeats."""

    has_expired_one = False

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        group = self.groups.classic.get(request.group_id)
        if not self.has_expired_one and group is not None and _is_settled(group, now_ms):
            self.has_expired_one = True
            expire_session(group, list(group.members.values())[-1], now_ms)
            self.groups.changed_by_timer(group, now_ms)
        return super().heartbeat(request, now_ms)


def _is_settled(group: Group, now_ms: float) -> bool:
    is_stable = group.state is GroupState.STABLE and now_ms - group.state_since_ms > SESSION_MS
    return is_stable and len(group.members) > 1


class AcceptsOldGenerations(Coordinator):
    """Accepts heartbeats of earlier generations."""

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        group = self.groups.classic.get(request.group_id)
        if group is not None and 0 <= request.generation_id < group.generation_id:
            request = replaced(request, generation_id=group.generation_id)
        return super().heartbeat(request, now_ms)


class AcceptsFencedMembers(ChangesOffsetRequests):
    """Accepts any member id with an instance id."""

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        member_id = self._current_member_id(request.group_id, request.member_id, request.group_instance_id)
        return super().heartbeat(replaced(request, member_id=member_id), now_ms)

    def changed_commit(self, request: OffsetCommitRequest) -> OffsetCommitRequest:
        member_id = self._current_member_id(request.group_id, request.member_id, request.group_instance_id)
        return replaced(request, member_id=member_id)

    def _current_member_id(self, group_id: str, member_id: str, instance_id: str | None) -> str:
        group = self.groups.classic.get(group_id)
        return group.static_members.get(instance_id or "", member_id) if group else member_id


class AcceptsUnknownMembers(Coordinator):
    """Answers UNKNOWN_MEMBER_ID to the first heartbeat of an unknown member only."""

    has_rejected_one = False

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        error = super().heartbeat(request, now_ms)
        if error is ErrorCode.UNKNOWN_MEMBER_ID and self.has_rejected_one:
            return ErrorCode.NONE
        self.has_rejected_one = self.has_rejected_one or error is ErrorCode.UNKNOWN_MEMBER_ID
        return error


class NamesEveryMemberAsLeader(Coordinator):
    """Answers every JoinGroup as if the member were the leader."""

    def answer(self, context: RequestContext, response: Message) -> None:
        if isinstance(response, JoinGroupResponse) and not response.error_code:
            group = self.groups.classic.get("g")
            assert group is not None
            response.leader = response.member_id
            response.members = group.join_response(context, response.member_id, with_members=True).members
        super().answer(context, response)
