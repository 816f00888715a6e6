"""Coordinators of consumer groups (KIP-848), each with a bug that breaks one promise and no other.

A new class also needs an entry in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from collections.abc import Mapping
from math import inf

from msgspec.structs import replace

from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.consumer.member import Partitions
from fakebroker.coordinator.consumer.states import UNREVOKED_PARTITIONS, ConsumerGroupState
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.groups import AnyGroup
from fakebroker.coordinator.partitions import LedPartition
from fakebroker.errors import ErrorCode
from tests.support.replay.changed_offset_requests import ChangesOffsetRequests, Commit

_GROUP = "g"


class _ChangesResults(Coordinator):
    """Changes the results of heartbeats after the group has handled them."""

    def consumer_group_heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: float) -> HeartbeatResult:
        return self.changed(request, super().consumer_group_heartbeat(request, now_ms))

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        """Return the result to send."""
        raise NotImplementedError

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.groups.consumer.get(_GROUP)
        assert group is not None
        return group


class AssignsOwnedPartitions(_ChangesResults):
    """Assigns all of its target to a member that joins, although other members still have these partitions."""

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if request.is_joining and not result.error:
            return replace(result, assignment=self.consumer_group.target[request.member_id])
        return result


class GoesBackToOldEpoch(_ChangesResults):
    """Once a member is in epoch 2, answers one heartbeat with epoch 1, and accepts this epoch."""

    has_gone_back = False

    def consumer_group_heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: float) -> HeartbeatResult:
        group = self.groups.consumer.get(_GROUP)
        known = None if group is None else group.members.get(request.member_id)
        if known is not None and 0 < request.member_epoch < known.member_epoch:
            request = replace(request, member_epoch=known.member_epoch)
        return super().consumer_group_heartbeat(request, now_ms)

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if not self.has_gone_back and request.member_epoch == result.member_epoch == 2:
            self.has_gone_back = True
            return replace(result, member_epoch=1)
        return result


class LosesReleasedPartitions(_ChangesResults):
    """Never assigns a partition to another member than its first one."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]  # those of the coordinator
        self._first_members: dict[tuple[bytes, int], str] = {}

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if result.assignment is None:
            return result
        return replace(result, assignment=self._first(result.assignment, request.member_id))

    def _first(self, assignment: Partitions, member_id: str) -> Partitions:
        kept: Mapping[bytes, frozenset[int]] = {
            topic_id: frozenset(
                each for each in indexes if self._first_members.setdefault((topic_id, each), member_id) == member_id
            )
            for topic_id, indexes in assignment.items()
        }
        return {topic_id: indexes for topic_id, indexes in kept.items() if indexes}


class RefusesLastCommits(ChangesOffsetRequests):
    """Rejects the commits of a member that has to give up partitions."""

    def answer_at_once(self, commit: Commit, now_ms: float) -> ErrorCode | None:
        group = self.groups.consumer.get(commit.group_id)
        member = None if group is None else group.members.get(commit.member_id)
        is_revoking = member is not None and member.state is UNREVOKED_PARTITIONS
        return ErrorCode.UNKNOWN_MEMBER_ID if is_revoking else None


class NeverExpiresConsumers(Coordinator):
    """Keeps members whose session has expired."""

    def _expire(self, entry: AnyGroup | LedPartition, deadline_ms: float, now_ms: float) -> None:
        for group in self.groups.consumer:
            group.session_deadlines = dict.fromkeys(group.session_deadlines, inf)
        super()._expire(entry, deadline_ms, now_ms)


class ExpiresLiveConsumer(_ChangesResults):
    """Once, in a stable group of several members, expires the session of one that has just sent a heartbeat."""

    expired: str | None = None

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        group = self.consumer_group
        if self.expired is None and len(group.members) > 1 and group.state is ConsumerGroupState.STABLE:
            self.expired = request.member_id
            group.arm_session(request.member_id, 0.0)
            self.groups.schedule(group)
        return result


class AcceptsOldMemberEpochs(ChangesOffsetRequests):
    """Handles requests with an older epoch than the member's as if they had that one."""

    def consumer_group_heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: float) -> HeartbeatResult:
        epoch = self._newest(request.group_id, request.member_id, request.member_epoch)
        return super().consumer_group_heartbeat(replace(request, member_epoch=epoch), now_ms)

    def changed_commit(self, commit: Commit) -> Commit:
        epoch = self._newest(commit.group_id, commit.member_id, commit.generation_id)
        return commit._replace(generation_id=epoch)

    def fetch_epoch(self, group_id: str, member_id: str, member_epoch: int) -> int:
        return self._newest(group_id, member_id, member_epoch)

    def _newest(self, group_id: str, member_id: str, epoch: int) -> int:
        group = self.groups.consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return epoch if member is None or epoch <= 0 else max(epoch, member.member_epoch)


class AcceptsFencedConsumers(_ChangesResults):
    """Answers heartbeats of a static member without an error after another one has taken over its instance id."""

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if result.error is ErrorCode.FENCED_INSTANCE_ID:
            return HeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch, 1_500)
        return result


class AcceptsCommitsOfUnknownConsumers(ChangesOffsetRequests):
    """Accepts the commits of members that have left or were removed."""

    def changed_commit(self, commit: Commit) -> Commit:
        group = self.groups.consumer.get(commit.group_id)
        if group is not None and commit.member_id not in group.members:
            return commit._replace(generation_id=-1, member_id="")  # as of a client that is not a member
        return commit


class AcceptsUnknownConsumers(_ChangesResults):
    """Answers UNKNOWN_MEMBER_ID to the first heartbeat of an unknown member only."""

    has_rejected_one = False

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if result.error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return result
        if self.has_rejected_one:
            return HeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch, 1_500)
        self.has_rejected_one = True
        return result
