"""Members and one coordinator in virtual time, with a network in between that delays and loses.

Each member has one connection. As with a broker, its requests are taken one at a time: while an answer is owed, the
later ones wait. Of the requests on their way when it is cut the first few still arrive; nothing comes back.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from fakebroker.client.member.effects import Discover, FetchMetadata, GroupRequest, GroupResponse, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.requests import fetched_offsets
from fakebroker.client.member.states import MemberState
from fakebroker.coordinator.group.api import JoinResult, OffsetToCommit, SyncResult
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.invariants import check
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.topic_partition import TopicPartition
from tests.support.client.member_harness import committed, fetched, refusal
from tests.support.coordinator.coordinator_harness import result_of
from tests.support.coordinator.message_conversion import to_join_group, to_response, to_sync_group
from tests.support.virtual_time import VirtualTime

START_MS = 1_700_000_000_000.0
ROUND_REQUESTS = (JoinGroupRequest, SyncGroupRequest)


@dataclass(eq=False)
class Link:
    """One connection of one member: what is on its way, what waits at the broker, when what was sent last arrives."""

    member: Member
    sent: deque[GroupRequest] = field(default_factory=deque)
    queue: deque[GroupRequest] = field(default_factory=deque)
    serving: GroupRequest | None = None
    is_cut: bool = False
    arrival_ms: dict[str, float] = field(default_factory=dict)


class GroupSimulation(VirtualTime):
    """A group "g" of up to `size` members over topics with so many partitions each.

    Attributes:
        acknowledged: The highest offset of each partition whose commit a member was told has succeeded.
        moved_until_ms: Until then the coordinator is elsewhere, and this one answers NOT_COORDINATOR.
    """

    def __init__(self, seed: int, assignor: str, size: int, partition_counts: dict[str, int]) -> None:
        super().__init__(START_MS)
        self.random = Random(seed)
        self.partition_counts = partition_counts
        self.acknowledged: dict[TopicPartition, int] = {}
        self.moved_until_ms = START_MS
        self._assignor = assignor
        numbers = count(1)
        config = CoordinatorConfig(group_initial_rebalance_delay_ms=self.random.choice([0, 1_000]))
        self.coordinator = Coordinator(config, lambda: f"{next(numbers):04}")
        for partition in range(config.offsets_topic_num_partitions):
            self.coordinator.lead(partition, self.now_ms)
        self.members = [self._new_member(index) for index in range(size)]
        self._links: dict[Member, Link] = {}

    def _new_member(self, index: int) -> Member:
        """Every third is a static one."""
        return Member(
            MemberSettings(
                group_id="g",
                client_id=f"c{index}",
                instance_id=f"i{index}" if index % 3 == 2 else None,
                topics=tuple(self.partition_counts),
                assignor=self._assignor,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=8_000,
                heartbeat_interval_ms=1_500,
                commit_interval_ms=2_000,
            )
        )

    # What may happen to a member

    def start(self, index: int) -> None:
        """Start a member that is down, as a process that knows nothing of the one before."""
        if self.members[index].state is MemberState.DOWN:
            self.members[index] = self._new_member(index)
            self.members[index].start(self.now_ms)

    def leave(self, index: int) -> None:
        self.members[index].leave(self.now_ms)

    def crash(self, index: int) -> None:
        self._cut(self.members[index])
        self.members[index].crash(self.now_ms)

    def cut(self, index: int) -> None:
        """The connection breaks, and the member notices at once."""
        self._cut(self.members[index])
        self.members[index].connection_lost(self.now_ms)

    def move(self, duration_ms: float) -> None:
        self.moved_until_ms = self.now_ms + duration_ms

    def _cut(self, member: Member) -> None:
        if link := self._links.pop(member, None):
            for _ in range(self.random.randint(0, len(link.sent))):
                self._arrive(link)
            link.is_cut = True
            link.sent.clear()
            link.queue.clear()

    # Time. All rules are checked after everything that happens.

    def _settle(self) -> None:
        self.coordinator.tick(self.now_ms)
        self._hand_out_answers()
        for member in self.members:
            member.tick(self.now_ms)
            self._carry_out(member)
        self._check()

    def _next_deadline(self) -> float:
        deadlines = [member.next_deadline() for member in self.members] + [self.coordinator.next_deadline()]
        return min((deadline for deadline in deadlines if deadline is not None), default=float("inf"))

    def _check(self) -> None:
        """One owner for each partition, but for members that were expired and have yet to hear of it."""
        for group in self.coordinator.groups():
            check(group)
            known = [member for member in self.members if member.member_id in group.members]
            owned = [partition for member in known for partition in member.assigned]
            assert len(owned) == len(set(owned)), {member.identity: member.assigned for member in known}

    # The members' side of the network

    def _carry_out(self, member: Member) -> None:
        effects = list(member.effects)
        member.effects.clear()
        for effect in effects:
            match effect:
                case Discover():
                    self.at(self._delay_ms(), lambda: self._discover(member))
                case FetchMetadata():
                    self.at(self._delay_ms(), lambda: member.metadata(self.partition_counts, self.now_ms))
                case Send(request):
                    self._send(member, request)

    def _discover(self, member: Member) -> None:
        if self.random.random() < 0.2:
            member.discovery_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms)
        else:
            self._cut(member)
            member.discovered(self.now_ms)

    def _send(self, member: Member, request: GroupRequest) -> None:
        link = self._links.setdefault(member, Link(member))
        if isinstance(request, ROUND_REQUESTS):
            waiting = [*link.sent, *link.queue, link.serving]
            assert not any(isinstance(other, ROUND_REQUESTS) for other in waiting), "two rounds at once"
        link.sent.append(request)
        self._travel(link, "out", lambda: self._arrive(link))

    def _travel(self, link: Link, direction: str, arrive: Callable[[], None]) -> None:
        """Later things never overtake earlier ones of the same connection and direction."""
        arrival_ms = max(self.now_ms + self._delay_ms(), link.arrival_ms.get(direction, 0.0))
        link.arrival_ms[direction] = arrival_ms
        self.at(arrival_ms - self.now_ms, arrive)

    def _delay_ms(self) -> float:
        return self.random.choice([0.0, 1.0, 5.0, 200.0])

    # The broker's side of it

    def _arrive(self, link: Link) -> None:
        if link.sent:
            link.queue.append(link.sent.popleft())
            self._serve(link)

    def _serve(self, link: Link) -> None:
        while link.queue and link.serving is None:
            link.serving = link.queue.popleft()
            self._handle(link, link.serving)

    def _answer(self, link: Link, response: GroupResponse) -> None:
        request, link.serving = link.serving, None
        assert request is not None
        self._travel(link, "back", lambda: self._deliver(link, request, response))

    def _deliver(self, link: Link, request: GroupRequest, response: GroupResponse) -> None:
        if link.is_cut:
            return
        link.member.answered(request, response, self.now_ms)
        if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            self._note_acknowledged(request, response)
        if isinstance(response, OffsetFetchResponse):
            for partition, offset in fetched_offsets(response):
                assert offset >= self.acknowledged.get(partition, -1), partition

    def _note_acknowledged(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        for asked, told in zip(request.topics, response.topics, strict=True):
            for partition, outcome in zip(asked.partitions, told.partitions, strict=True):
                if outcome.error_code == 0:
                    key = asked.name, partition.partition_index
                    self.acknowledged[key] = max(self.acknowledged.get(key, -1), partition.committed_offset)

    def _handle(self, link: Link, request: GroupRequest) -> None:
        if self.now_ms < self.moved_until_ms and not isinstance(request, LeaveGroupRequest):
            self._answer(link, refusal(request, ErrorCode.NOT_COORDINATOR))
            return
        now_ms = self.now_ms
        match request:
            case JoinGroupRequest():
                self.coordinator.join_group("g", to_join_group(request, link.member.settings.client_id), link, now_ms)
            case SyncGroupRequest():
                self.coordinator.sync_group("g", to_sync_group(request), link, now_ms)
            case HeartbeatRequest():
                error = self.coordinator.heartbeat(
                    "g", request.generation_id, request.member_id, request.group_instance_id, now_ms
                )
                self._answer(link, HeartbeatResponse(error_code=error))
            case OffsetCommitRequest():
                self._answer(link, self._commit(request))
            case OffsetFetchRequest():
                self._answer(link, self._fetch(request))
            case LeaveGroupRequest():
                result_of(
                    self.coordinator.leave_group,
                    "g",
                    [(each.member_id, each.group_instance_id) for each in request.members],
                    now_ms,
                )
                self._answer(link, LeaveGroupResponse())
        self._hand_out_answers()

    def _hand_out_answers(self) -> None:
        answers, self.coordinator.answers = self.coordinator.answers, []
        for link, result in answers:
            assert isinstance(link, Link)
            assert isinstance(result, JoinResult | SyncResult)
            self._answer(link, to_response(result))
            self._serve(link)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        offsets = [
            OffsetToCommit(topic=topic.name, partition=p.partition_index, offset=p.committed_offset)
            for topic in request.topics
            for p in topic.partitions
        ]
        errors = result_of(
            self.coordinator.commit_offsets,
            "g",
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            offsets,
            self.now_ms,
        )
        response = committed(request)
        outcomes = [partition for topic in response.topics for partition in topic.partitions]
        for outcome, error in zip(outcomes, errors, strict=True):
            outcome.error_code = error
        return response

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        wanted = [(topic.name, index) for topic in request.groups[0].topics or [] for index in topic.partition_indexes]
        _, found = self.coordinator.fetch_offsets("g", wanted, self.now_ms)
        return fetched({(topic, index): offset.offset if offset else -1 for topic, index, offset in found})
