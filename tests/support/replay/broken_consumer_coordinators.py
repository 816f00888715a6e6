"""Coordinators of consumer groups (KIP-848), each with a bug that breaks one promise and no other.

A new class also needs an entry in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.member import Partitions
from fakebroker.coordinator.group.modern.requests import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.group.modern.states import UNREVOKED_PARTITIONS, ConsumerGroupState
from fakebroker.errors import ErrorCode

_GROUP = "g"


class _ChangesResults(Coordinator):
    """Changes the results of heartbeats after the group has handled them."""

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: float, done: Callable[[HeartbeatResult], None]
    ) -> None:
        super().consumer_group_heartbeat(request, now_ms, lambda result: done(self.changed(request, result)))

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        """Return the result to send."""
        raise NotImplementedError

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.consumer_groups.get(_GROUP)
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

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: float, done: Callable[[HeartbeatResult], None]
    ) -> None:
        group = self.consumer_groups.get(_GROUP)
        known = None if group is None else group.members.get(request.member_id)
        if known is not None and 0 < request.member_epoch < known.member_epoch:
            request = replace(request, member_epoch=known.member_epoch)
        super().consumer_group_heartbeat(request, now_ms, done)

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


class RefusesLastCommits(Coordinator):
    """Rejects the commits of a member that has to give up partitions."""

    def commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        group = self.consumer_groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is not None and member.state is UNREVOKED_PARTITIONS:
            done([ErrorCode.UNKNOWN_MEMBER_ID] * len(offsets))
        else:
            super().commit_offsets(group_id, generation_id, member_id, instance_id, offsets, now_ms, done)


class NeverExpiresConsumers(Coordinator):
    """Keeps members whose session has expired."""

    def tick(self, now_ms: float) -> None:
        for group in self.consumer_groups:
            group.session_deadlines = dict.fromkeys(group.session_deadlines, inf)
        super().tick(now_ms)


class ExpiresLiveConsumer(_ChangesResults):
    """Once, in a stable group of several members, expires the session of one that has just sent a heartbeat."""

    expired: str | None = None

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        group = self.consumer_group
        if self.expired is None and len(group.members) > 1 and group.state is ConsumerGroupState.STABLE:
            self.expired = request.member_id
            group.arm_session(request.member_id, 0.0)
            self._schedule(group)
        return result


class AcceptsOldMemberEpochs(Coordinator):
    """Handles requests with an older epoch than the member's as if they had that one."""

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: float, done: Callable[[HeartbeatResult], None]
    ) -> None:
        epoch = self._newest(request.group_id, request.member_id, request.member_epoch)
        super().consumer_group_heartbeat(replace(request, member_epoch=epoch), now_ms, done)

    def commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        epoch = self._newest(group_id, member_id, generation_id)
        super().commit_offsets(group_id, epoch, member_id, instance_id, offsets, now_ms, done)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        return super().check_fetch(group_id, member_id, self._newest(group_id, member_id or "", member_epoch))

    def _newest(self, group_id: str, member_id: str, epoch: int) -> int:
        group = self.consumer_groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return epoch if member is None or epoch <= 0 else max(epoch, member.member_epoch)


class AcceptsFencedConsumers(_ChangesResults):
    """Answers heartbeats of a static member without an error after another one has taken over its instance id."""

    def changed(self, request: ConsumerGroupHeartbeat, result: HeartbeatResult) -> HeartbeatResult:
        if result.error is ErrorCode.FENCED_INSTANCE_ID:
            return HeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch, 1_500)
        return result


class AcceptsCommitsOfUnknownConsumers(Coordinator):
    """Accepts the commits of members that have left or were removed."""

    def commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        group = self.consumer_groups.get(group_id)
        if group is not None and member_id not in group.members:
            generation_id, member_id = -1, ""  # as of a client that is not a member, of an empty group
        super().commit_offsets(group_id, generation_id, member_id, instance_id, offsets, now_ms, done)


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
