"""A group of 100 grows by 40 instances, which come up one after the other: what that costs, in virtual time.

Real members and the real coordinator, without a network: an answer is there at once or when it is due.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Literal, NamedTuple

from fakebroker.client.member.effects import Discover, FetchMetadata, GroupRequest, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.coordinator.group.batch_join.batch import BatchJoin, BatchMember
from fakebroker.coordinator.group.batch_join.join_batch import join_batch
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.simulation.scheduler import ACTION, Scheduler, VirtualClock
from tests.support.coordinator.message_conversion import to_join_group, to_response, to_sync_group

MEMBERS, INSTANCES = 100, 40
HEARTBEAT_INTERVAL_MS, JITTER = 3_000, 0.1
EVERY_MS = 5_000.0
"""More than a round takes in which each member hears of it by its next heartbeat: no two instances share a round."""

PARTITIONS = 280
_SETTLED_MS = 60_000.0
_COORDINATOR = -1

How = Literal["single joins", "static single joins", "batch"]
WAYS: tuple[How, ...] = ("single joins", "static single joins", "batch")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it cost.

    Attributes:
        generations: How many the group has passed.
        unassigned_s: For so many member-seconds members that were there before had no partitions.
        waited_s: So many member-seconds the instances were up without partitions.
    """

    generations: int
    unassigned_s: float
    waited_s: float


class _Asked(NamedTuple):
    who: int
    request: GroupRequest


class World:
    """Members of one group, its coordinator, and a meter of who has no partitions."""

    def __init__(self, how: How) -> None:
        self._scheduler = Scheduler(VirtualClock(0.0))
        self.unassigned_s = [0.0] * (MEMBERS + INSTANCES)
        self.members = [_new_member(how, index) for index in range(MEMBERS + INSTANCES)]
        numbers = count()
        self.coordinator = Coordinator(CoordinatorConfig(), lambda: f"{next(numbers):04}")
        for partition in range(CoordinatorConfig().offsets_topic_num_partitions):
            self.coordinator.lead(partition, self.now_ms)
        self._changed: deque[int] = deque()
        self._since_ms: dict[int, float] = {}
        self._looked_for_ms: dict[int, float] = {}

    @property
    def now_ms(self) -> float:
        return self._scheduler.clock.moment_ms

    @property
    def generation_id(self) -> int:
        group = self.coordinator.group("g")
        assert group is not None
        return group.generation_id

    def start_at(self, at_ms: float, index: int) -> None:
        self._at(at_ms, lambda: self._tell(index, self.members[index].start))

    def run(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while self._scheduler.step(end_ms):
            self._settle()
        self._scheduler.clock.moment_ms = end_ms

    def _at(self, at_ms: float, act: Callable[[], None]) -> None:
        self._scheduler.schedule(max(at_ms, self.now_ms), ACTION, 0, act)

    def _tell(self, index: int, step: Callable[[float], None]) -> None:
        step(self.now_ms)
        self._changed.append(index)

    def _settle(self) -> None:
        """Carry out what members want, until nobody wants anything, and note when to look again."""
        self.coordinator.tick(self.now_ms)
        self._hand_out_answers()
        while self._changed:
            index = self._changed.popleft()
            member = self.members[index]
            effects, member.effects = member.effects, []
            for effect in effects:
                self._carry_out(index, effect)
            self._meter(index, member)
            self._look_again(index, member.next_deadline())
        self._look_again(_COORDINATOR, self.coordinator.next_deadline())

    def _look_again(self, who: int, due_ms: float | None) -> None:
        """Note when somebody has something to do, unless that is noted already, or an earlier time."""
        if due_ms is not None and due_ms < self._looked_for_ms.get(who, inf):
            self._looked_for_ms[who] = due_ms
            self._at(due_ms, lambda: self._look(who, due_ms))

    def _look(self, who: int, due_ms: float) -> None:
        if self._looked_for_ms.get(who) == due_ms:
            del self._looked_for_ms[who]
            if who != _COORDINATOR:
                self._tell(who, self.members[who].tick)

    def _meter(self, index: int, member: Member) -> None:
        if member.assigned or member.state is MemberState.DOWN:
            self.unassigned_s[index] += (self.now_ms - self._since_ms.pop(index, self.now_ms)) / 1000
        else:
            self._since_ms.setdefault(index, self.now_ms)

    def _carry_out(self, index: int, effect: object) -> None:
        member = self.members[index]
        match effect:
            case Discover():
                member.discovered(self.now_ms)
                self._changed.append(index)
            case FetchMetadata():
                member.metadata({"t": PARTITIONS}, self.now_ms)
                self._changed.append(index)
            case Send(request):
                self._handle(index, request)
                self._hand_out_answers()

    def _handle(self, index: int, request: GroupRequest) -> None:
        token = _Asked(index, request)
        match request:
            case JoinGroupRequest():
                self.coordinator.join_group("g", to_join_group(request, "c"), token, self.now_ms)
            case SyncGroupRequest():
                self.coordinator.sync_group("g", to_sync_group(request), token, self.now_ms)
            case HeartbeatRequest():
                who = request.generation_id, request.member_id, request.group_instance_id
                error = self.coordinator.heartbeat("g", *who, self.now_ms)
                self.members[index].answered(request, HeartbeatResponse(error_code=error), self.now_ms)
                self._changed.append(index)
            case OffsetFetchRequest():
                self.members[index].answered(request, OffsetFetchResponse(), self.now_ms)
                self._changed.append(index)

    def _hand_out_answers(self) -> None:
        answers, self.coordinator.answers = self.coordinator.answers, []
        for token, result in answers:
            assert isinstance(token, _Asked)
            index, request = token
            if isinstance(result, JoinResult):
                self.members[index].answered(request, to_response(result), self.now_ms)
            elif isinstance(result, SyncResult):
                response = SyncGroupResponse(error_code=result.error, assignment=result.assignment)
                self.members[index].answered(request, response, self.now_ms)
            self._changed.append(index)


def measure(how: How) -> Outcome:
    """Let a group grow in one of the ways."""
    world = World(how)
    for index in range(MEMBERS):
        world.start_at(index * 10.0, index)
    world.run(_SETTLED_MS)
    assert all(member.assigned for member in world.members[:MEMBERS])
    before, world.unassigned_s = world.generation_id, [0.0] * (MEMBERS + INSTANCES)
    if how == "batch":
        join_batch(world.coordinator, "g", _registration(), None, world.now_ms)
    for index in range(INSTANCES):
        world.start_at(world.now_ms + index * EVERY_MS, MEMBERS + index)
    world.run(INSTANCES * EVERY_MS + _SETTLED_MS)
    assert all(member.assigned for member in world.members)
    old, new = sum(world.unassigned_s[:MEMBERS]), sum(world.unassigned_s[MEMBERS:])
    return Outcome(world.generation_id - before, old, new)


def _new_member(how: How, index: int) -> Member:
    """Heartbeat intervals differ from member to member, evenly, by up to the jitter."""
    share = 2 * ((index * 61) % (MEMBERS + INSTANCES)) / (MEMBERS + INSTANCES) - 1
    return Member(
        MemberSettings(
            group_id="g",
            client_id=f"c{index}",
            instance_id=None if how == "single joins" else f"i{index}",
            topics=("t",),
            heartbeat_interval_ms=round(HEARTBEAT_INTERVAL_MS * (1 + JITTER * share)),
            commit_interval_ms=0,
        )
    )


def _registration() -> BatchJoin:
    instances = [f"i{MEMBERS + index}" for index in range(INSTANCES)]
    return BatchJoin(
        client_id="admin",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        members=tuple(BatchMember(member_id="", instance_id=instance, protocols=()) for instance in instances),
    )
