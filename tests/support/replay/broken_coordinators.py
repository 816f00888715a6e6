"""Group coordinators, each with a bug that breaks one promise and no other.

A new class also needs an entry in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from math import inf

from msgspec.structs import replace

from fakebroker.coordinator.api import JoinGroup, JoinResult, SyncGroup
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.rebalance import expire_session
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.groups import AnyGroup
from fakebroker.coordinator.partitions import LedPartition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment
from tests.support.replay.changed_offset_requests import ChangesOffsetRequests, Commit
from tests.support.replay.scripted_group import SESSION_MS


class AssignsPartitionsTwice(Coordinator):
    """Assigns the partitions of the first member to the second one, too."""

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        if len(request.assignments) > 1:
            (one, first), (two, second), *others = request.assignments
            both = encode_assignment([*decode_assignment(first), *decode_assignment(second)])
            request = replace(request, assignments=((one, first), (two, both), *others))
        super().sync_group(group_id, request, token, now_ms)


class LosesAssignedPartition(Coordinator):
    """Removes a partition from the assignment of the first member."""

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        if request.assignments:
            (one, first), *others = request.assignments
            request = replace(request, assignments=((one, encode_assignment(decode_assignment(first)[1:])), *others))
        super().sync_group(group_id, request, token, now_ms)


class LosesCommits(ChangesOffsetRequests):
    """Acknowledges every commit, but stores only every third one."""

    commits = 0

    def answer_at_once(self, commit: Commit, now_ms: float) -> ErrorCode | None:
        self.commits += 1
        group = self.groups.classic.get(commit.group_id)
        member = commit.generation_id, commit.member_id, commit.instance_id
        if group is None or group.check_commit(*member) or self.commits % 3 == 1:
            return None
        self.heartbeat(commit.group_id, *member, now_ms)  # A commit extends the session, too.
        return ErrorCode.NONE


class ReusesGenerations(Coordinator):
    """Does not increment the generation when a new member joins."""

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        group = self.groups.classic.get(group_id)
        if group is not None and group.state is GroupState.STABLE and request.member_id in group.pending_members:
            super().join_group(group_id, request, token, now_ms)
            group.generation_id -= 1
        else:
            super().join_group(group_id, request, token, now_ms)


class SkipsGenerations(Coordinator):
    """Increments the generation by two when a new member joins."""

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        group = self.groups.classic.get(group_id)
        if group is not None and group.state is GroupState.STABLE and request.member_id in group.pending_members:
            group.generation_id += 1
        super().join_group(group_id, request, token, now_ms)


class ForgetsJoin(Coordinator):
    """Never answers the first JoinGroup of a new member in a group with members."""

    has_forgotten = False

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        group = self.groups.classic.get(group_id)
        if (
            group is not None
            and group.members
            and request.member_id in group.pending_members
            and not self.has_forgotten
        ):
            self.has_forgotten = True
            token = None
        super().join_group(group_id, request, token, now_ms)


class ForgetsSync(Coordinator):
    """Never answers the first SyncGroup of a member that is not the leader."""

    has_forgotten = False

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        group = self.groups.classic.get(group_id)
        if group is not None and request.member_id != group.leader_id and not self.has_forgotten:
            self.has_forgotten = True
            token = None
        super().sync_group(group_id, request, token, now_ms)


class NeverExpiresSessions(Coordinator):
    """Keeps members whose session has expired."""

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        group = self.groups.classic.get(group_id)
        for member in group.members.values() if group else ():
            member.deadline_ms = inf
        return super().heartbeat(group_id, generation_id, member_id, instance_id, now_ms)

    def _expire(self, entry: AnyGroup | LedPartition, deadline_ms: float, now_ms: float) -> None:
        for group in self.groups.classic.values():
            for member in group.members.values():
                member.deadline_ms = inf
        super()._expire(entry, deadline_ms, now_ms)


class ExpiresLiveSession(Coordinator):
    """Once, in a group that has been stable for a session timeout, expires the session of a member with heartbeats."""

    has_expired_one = False

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        group = self.groups.classic.get(group_id)
        if not self.has_expired_one and group is not None and _is_settled(group, now_ms):
            self.has_expired_one = True
            expire_session(group, list(group.members.values())[-1], now_ms)
            self.groups.changed_by_timer(group, now_ms)
        return super().heartbeat(group_id, generation_id, member_id, instance_id, now_ms)


def _is_settled(group: Group, now_ms: float) -> bool:
    is_stable = group.state is GroupState.STABLE and now_ms - group.state_since_ms > SESSION_MS
    return is_stable and len(group.members) > 1


class AcceptsOldGenerations(Coordinator):
    """Accepts heartbeats of earlier generations."""

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        group = self.groups.classic.get(group_id)
        if group is not None and 0 <= generation_id < group.generation_id:
            generation_id = group.generation_id
        return super().heartbeat(group_id, generation_id, member_id, instance_id, now_ms)


class AcceptsFencedMembers(ChangesOffsetRequests):
    """Accepts any member id with an instance id."""

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        member_id = self._current_member_id(group_id, member_id, instance_id)
        return super().heartbeat(group_id, generation_id, member_id, instance_id, now_ms)

    def changed_commit(self, commit: Commit) -> Commit:
        member_id = self._current_member_id(commit.group_id, commit.member_id, commit.instance_id)
        return commit._replace(member_id=member_id)

    def _current_member_id(self, group_id: str, member_id: str, instance_id: str | None) -> str:
        group = self.groups.classic.get(group_id)
        return group.static_members.get(instance_id or "", member_id) if group else member_id


class AcceptsUnknownMembers(Coordinator):
    """Answers UNKNOWN_MEMBER_ID to the first heartbeat of an unknown member only."""

    has_rejected_one = False

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        error = super().heartbeat(group_id, generation_id, member_id, instance_id, now_ms)
        if error is ErrorCode.UNKNOWN_MEMBER_ID and self.has_rejected_one:
            return ErrorCode.NONE
        self.has_rejected_one = self.has_rejected_one or error is ErrorCode.UNKNOWN_MEMBER_ID
        return error


class NamesEveryMemberAsLeader(Coordinator):
    """Answers every JoinGroup as if the member were the leader."""

    def answer(self, token: object, result: object) -> None:
        if isinstance(result, JoinResult) and not result.error:
            group = self.groups.classic.get("g")
            assert group is not None
            result.leader, result.members = result.member_id, group.joined_members()
        super().answer(token, result)
