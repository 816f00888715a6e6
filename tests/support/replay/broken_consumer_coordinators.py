"""Coordinators of consumer groups (KIP-848), each with a bug that breaks one promise and no other.

A new class also needs an entry in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from math import inf

from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import JOINING_EPOCH
from fakebroker.coordinator.consumer.states import UNREVOKED_PARTITIONS, ConsumerGroupState
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.groups import AnyGroup
from fakebroker.coordinator.partitions import LedPartition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.schema import replaced
from tests.support.replay.changed_offset_requests import ChangesOffsetRequests

_GROUP = "g"


def accepted(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a heartbeat that changes nothing."""
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=1_500,
    )


class _ChangesResults(Coordinator):
    """Changes the results of heartbeats after the group has handled them."""

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse:
        return self.changed(request, super().consumer_group_heartbeat(request, context, now_ms))

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the result to send."""
        raise NotImplementedError

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.groups.consumer.get(_GROUP)
        assert group is not None
        return group


class AssignsOwnedPartitions(_ChangesResults):
    """Assigns all of its target to a member that joins, although other members still have these partitions."""

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch == JOINING_EPOCH and not result.error_code:
            target = [
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in self.consumer_group.target[request.member_id].items()
            ]
            return replaced(result, assignment=HeartbeatAssignment(topic_partitions=target))
        return result


class GoesBackToOldEpoch(_ChangesResults):
    """Once a member is in epoch 2, answers one heartbeat with epoch 1, and accepts this epoch."""

    has_gone_back = False

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse:
        group = self.groups.consumer.get(_GROUP)
        known = None if group is None else group.members.get(request.member_id)
        if known is not None and 0 < request.member_epoch < known.member_epoch:
            request = replaced(request, member_epoch=known.member_epoch)
        return super().consumer_group_heartbeat(request, context, now_ms)

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        if not self.has_gone_back and request.member_epoch == result.member_epoch == 2:
            self.has_gone_back = True
            return replaced(result, member_epoch=1)
        return result


class LosesReleasedPartitions(_ChangesResults):
    """Never assigns a partition to another member than its first one."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]  # those of the coordinator
        self._first_members: dict[tuple[bytes, int], str] = {}

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        if result.assignment is None:
            return result
        kept = [self._first(topic, request.member_id) for topic in result.assignment.topic_partitions]
        assignment = HeartbeatAssignment(topic_partitions=[topic for topic in kept if topic.partitions])
        return replaced(result, assignment=assignment)

    def _first(self, topic: HeartbeatTopicPartitions, member_id: str) -> HeartbeatTopicPartitions:
        owners = {each: self._first_members.setdefault((topic.topic_id, each), member_id) for each in topic.partitions}
        return replaced(topic, partitions=[each for each, owner in owners.items() if owner == member_id])


class RefusesLastCommits(ChangesOffsetRequests):
    """Rejects the commits of a member that has to give up partitions."""

    def answer_at_once(self, request: OffsetCommitRequest, now_ms: float) -> ErrorCode | None:
        group = self.groups.consumer.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
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

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        group = self.consumer_group
        if self.expired is None and len(group.members) > 1 and group.state is ConsumerGroupState.STABLE:
            self.expired = request.member_id
            group.arm_session(request.member_id, 0.0)
            self.groups.schedule(group)
        return result


class AcceptsOldMemberEpochs(ChangesOffsetRequests):
    """Handles requests with an older epoch than the member's as if they had that one."""

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse:
        epoch = self._newest(request.group_id, request.member_id, request.member_epoch)
        return super().consumer_group_heartbeat(replaced(request, member_epoch=epoch), context, now_ms)

    def changed_commit(self, request: OffsetCommitRequest) -> OffsetCommitRequest:
        epoch = self._newest(request.group_id, request.member_id, request.generation_id_or_member_epoch)
        return replaced(request, generation_id_or_member_epoch=epoch)

    def fetch_epoch(self, group_id: str, member_id: str, member_epoch: int) -> int:
        return self._newest(group_id, member_id, member_epoch)

    def _newest(self, group_id: str, member_id: str, epoch: int) -> int:
        group = self.groups.consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return epoch if member is None or epoch <= 0 else max(epoch, member.member_epoch)


class AcceptsFencedConsumers(_ChangesResults):
    """Answers heartbeats of a static member without an error after another one has taken over its instance id."""

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        return accepted(request) if result.error_code == ErrorCode.FENCED_INSTANCE_ID else result


class AcceptsCommitsOfUnknownConsumers(ChangesOffsetRequests):
    """Accepts the commits of members that have left or were removed."""

    def changed_commit(self, request: OffsetCommitRequest) -> OffsetCommitRequest:
        group = self.groups.consumer.get(request.group_id)
        if group is not None and request.member_id not in group.members:  # as of a client that is not a member
            return replaced(request, generation_id_or_member_epoch=-1, member_id="")
        return request


class AcceptsUnknownConsumers(_ChangesResults):
    """Answers UNKNOWN_MEMBER_ID to the first heartbeat of an unknown member only."""

    has_rejected_one = False

    def changed(
        self, request: ConsumerGroupHeartbeatRequest, result: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatResponse:
        if result.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            return result
        if self.has_rejected_one:
            return accepted(request)
        self.has_rejected_one = True
        return result
