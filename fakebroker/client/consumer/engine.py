"""What goes on in a consumer between its application's calls: answers come in, requests go out, time passes (pure).

Ties a group member, the reading of its partitions, offsets and Metadata together. What an application may call stands
in `consumption.py`.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from fakebroker.client.consumer.asks import Ask, Callback, Happening, Lane
from fakebroker.client.consumer.cluster_metadata import ClusterView
from fakebroker.client.consumer.consumer_errors import BrokerRefused, GroupFailed
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.fetcher import Fetching, LeaderRequest
from fakebroker.client.consumer.group_offsets import GroupOffsets, Ticket
from fakebroker.client.consumer.subscribing import Subscribed
from fakebroker.client.member import requests
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.effects import (
    Assigned,
    Discover,
    Effect,
    Fatal,
    FetchMetadata,
    GroupRequest,
    OffsetUnknown,
    Revoked,
    Revoking,
    Send,
)
from fakebroker.client.member.member import Member, MemberState
from fakebroker.client.member.reactions import Reaction, error_code
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse


class Engine:
    """The part of a consumer that answers and time drive; see `Consumption`.

    Attributes:
        asks: What is to be sent since the driver last took it.
        addresses: Where brokers are, by node id, since the driver last took it.
        callbacks: What the application is to be called for, in this order, the next time that it polls.
        assigned: The partitions that it has.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.asks: list[Ask] = []
        self.addresses: dict[int, tuple[str, int]] = {}
        self.callbacks: deque[Callback] = deque()
        self.member = Member(settings.member())
        self._subscribed: Subscribed | None = None
        self._pattern: re.Pattern[str] | None = None
        self._is_matched = False  # the topics of the pattern are known
        self._manual: tuple[TopicPartition, ...] = ()
        self._fetching = Fetching(settings)
        self._offsets = GroupOffsets(settings.retry_backoff_ms)
        self._view = ClusterView(settings.metadata_max_age_ms, settings.retry_backoff_ms)
        self._group_topics: tuple[str, ...] | None = None  # what the member wants the partition counts of, as a leader
        self._coordinator: int | None = None
        self._search: Ask | None = None
        self._search_ms = 0.0
        self._initial: Ticket | None = None
        self._placeless: dict[TopicPartition, None] = {}  # nothing is committed, and there is no reset policy
        self._failures: deque[FakebrokerError] = deque()
        self._poll_until_ms: float | None = None
        self._commit_ms = 0.0

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        return self._manual if self._subscribed is Subscribed.PARTITIONS else self.member.assigned

    @property
    def is_committing(self) -> bool:
        """Whether the answer to a commit is owed, other than to the member's own at an interval."""
        return self._offsets.is_committing

    def _group(self) -> Identity:
        if self.settings.group_id is None:
            raise ConfigError("group_id None: expected one to commit offsets and look them up")
        return Identity(self.settings.group_id, None)

    # Time and answers

    def next_deadline(self) -> float | None:
        """When `tick` has something to do."""
        parts = (self.member, self._fetching, self._view)
        deadlines = [self._poll_until_ms, *(part.next_deadline() for part in parts)]
        if self._coordinator is not None:
            deadlines.append(self._offsets.next_deadline())
        elif self._searches:
            deadlines.append(self._search_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: float) -> None:
        """Do what is due."""
        self.member.tick(now_ms)
        if self._poll_until_ms is not None and self._poll_until_ms <= now_ms:
            self._poll_until_ms = None
            if self.member.state is not MemberState.DOWN:
                self.member.expire(now_ms)
        self._settle(now_ms)

    def wants(self, ask: Ask) -> bool:
        """Whether this is still to be sent, or waited for."""
        request = ask.request
        return (
            ask.is_farewell
            or ask.lane is not Lane.GROUP
            or self.member.awaits(request)
            or self._offsets.awaits(request)
        )

    def answered(self, ask: Ask, response: Any, now_ms: float) -> None:
        """A request was answered."""
        request = ask.request
        if isinstance(response, MetadataResponse):
            self.addresses.update((broker.node_id, (broker.host, broker.port)) for broker in response.brokers)
            if self._view.awaits(request):
                self._described(ask, response, now_ms)
        elif isinstance(response, FindCoordinatorResponse):
            self._found(ask, response, now_ms)
        elif ask.lane is not Lane.GROUP:
            assert ask.to is not None
            self._fetching.answered(ask.to, request, response, now_ms)  # type: ignore[arg-type]  # as its lane says
        elif self.member.awaits(request):
            self.member.answered(request, response, now_ms)  # type: ignore[arg-type]  # it was the member's
        elif self._offsets.awaits(request):
            reaction = self._offsets.answered(request, response, now_ms)  # type: ignore[arg-type]  # it was theirs
            if reaction is Reaction.REDISCOVER:
                self._lose_coordinator(now_ms)
        self._settle(now_ms)

    def unanswered(self, ask: Ask, now_ms: float) -> None:
        """A request was not sent, or its connection is gone."""
        request = ask.request
        if self._view.awaits(request):
            self._view.unanswered(now_ms)
        elif isinstance(request, FindCoordinatorRequest):
            self._not_found(ask, ErrorCode.NETWORK_EXCEPTION, now_ms)
        elif ask.lane is not Lane.GROUP and ask.to is not None:
            self._fetching.unanswered(ask.to, request, now_ms)  # type: ignore[arg-type]  # as its lane says
        elif self.wants(ask) and not ask.is_farewell:
            self._lose_coordinator(now_ms)
        self._settle(now_ms)

    def refused(self, ask: Ask, error: FakebrokerError, now_ms: float) -> None:
        """A request cannot be sent to this broker at all, for its age for instance: the application is told."""
        if not self._failures:
            self._failures.append(error)
        self.unanswered(ask, now_ms)

    def _described(self, ask: Ask, response: MetadataResponse, now_ms: float) -> None:
        request = ask.request
        assert isinstance(request, MetadataRequest)
        for topic, error in self._view.answered(response, now_ms):
            if self._is_named(topic):
                self._failures.append(BrokerRefused(f"topic {topic!r}", error))
        if self._pattern is not None and request.topics is None:
            self._match(self._pattern, now_ms)
        asked = None if request.topics is None else {topic.name for topic in request.topics}
        if self._group_topics is not None and (asked is None or asked.issuperset(self._group_topics)):
            counts = {
                topic.name: len(topic.partitions) for topic in response.topics if topic.name and not topic.error_code
            }
            self.member.metadata(counts, now_ms)

    def _is_named(self, topic: str) -> bool:
        return self._pattern is None or any(topic == named for named, _ in self.assigned)

    def _match(self, pattern: re.Pattern[str], now_ms: float) -> None:
        topics = tuple(sorted(name for name in self._view.names if pattern.fullmatch(name)))
        if topics != self.member.settings.topics or not self._is_matched:
            self._is_matched = True
            self.member.subscribe(topics, now_ms)

    def _found(self, ask: Ask, response: FindCoordinatorResponse, now_ms: float) -> None:
        found = response.coordinators[0] if response.coordinators else response
        error = error_code(found.error_code)
        if error is not ErrorCode.NONE:
            self._not_found(ask, error, now_ms)
            return
        self.addresses[found.node_id] = found.host, found.port
        if self._search is ask or self.member.state in (MemberState.DISCOVERING, MemberState.REDISCOVERING):
            self._search, self._coordinator = None, found.node_id
            self.member.discovered(found.node_id, found.host, found.port, now_ms)

    def _not_found(self, ask: Ask, error: ErrorCode, now_ms: float) -> None:
        if self._search is ask:
            self._search, self._search_ms = None, now_ms + self.settings.retry_backoff_ms
        if not error.retriable and self.member.state is MemberState.DOWN:
            self._offsets.refuse(error)
        self.member.discovery_failed(error, now_ms)

    def _lose_coordinator(self, now_ms: float) -> None:
        self._coordinator = None
        self._offsets.unanswered(now_ms)
        self.member.connection_lost(now_ms)

    # What comes of it all

    def _settle(self, now_ms: float) -> None:
        while self.member.effects:
            effects, self.member.effects = self.member.effects, []
            for effect in effects:
                self._carry_out(effect, now_ms)
        self._begin_reading(now_ms)
        self._ask_coordinator(now_ms)
        self._fetching.paused = self.member.giving_up
        for node_id, request in self._fetching.requests(self._view.leaders, now_ms):
            self._ask_leader(node_id, request)
        if self._fetching.wants_metadata:
            self._fetching.wants_metadata = False
            self._view.want(now_ms)
        if (metadata := self._view.request(self._topics(), now_ms)) is not None:
            self.asks.append(Ask(None, Lane.GENERAL, metadata))

    def _carry_out(self, effect: Effect, now_ms: float) -> None:
        match effect:
            case Discover():
                self._find_coordinator()
            case Send(request):
                self._send(request)
            case FetchMetadata(topics):
                self._group_topics = topics
                self._view.want_now(now_ms)
            case Assigned(partitions):
                self.callbacks.append((Happening.ASSIGNED, partitions))
            case Revoking(partitions):
                self.callbacks.append((Happening.REVOKED, partitions))
            case Revoked(partitions, lost):
                self._forget(partitions, lost=lost)
            case OffsetUnknown(partitions):
                self._reset(partitions)
            case Fatal(error, sentence, _, who):
                self._group_topics = None
                self._failures.append(GroupFailed(error, sentence))
                if who.member_id and who.instance_id is None:
                    # The next poll joins as somebody new, and would have to wait for who it was.
                    self._send(requests.leave_group(who, f"the consumer has failed: {error.name}"))

    def _send(self, request: GroupRequest) -> None:
        is_farewell = self.member.state is MemberState.DOWN
        if self.member.awaits(request) or (is_farewell and self._coordinator is not None):
            self.asks.append(Ask(self._coordinator, Lane.GROUP, request, is_farewell))

    def _forget(self, partitions: tuple[TopicPartition, ...], *, lost: bool) -> None:
        self._fetching.forget(partitions)
        for partition in partitions:
            self._placeless.pop(partition, None)
        if lost:  # of what it would have been asked to give up, it is told alone that it is gone
            self.callbacks = deque(each for each in self.callbacks if each[0] is not Happening.REVOKED)
            self.callbacks.append((Happening.LOST, partitions))

    def _reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where nothing is committed."""
        for partition in partitions:
            if partition in self._fetching:
                continue
            if self.settings.auto_offset_reset is None:
                self._placeless[partition] = None
            else:
                self._fetching.reset(partition, self.settings.auto_offset_reset)

    def _begin_reading(self, now_ms: float) -> None:
        """Read partitions from where the group stands, once that is known."""
        for partition, offset in self.member.positions.items():
            if partition not in self._fetching:
                self._fetching.start(partition, offset)
        if self._initial is not None and self._initial.error is not None:
            self._begin_manual(self._initial)
        waiting = [each for each in self._manual if each not in self._fetching and each not in self._placeless]
        if waiting and self._initial is None and not self._failures:
            if self.settings.group_id is None:
                self._reset(waiting)
            else:
                self._initial = self._offsets.look_up(self._group(), waiting)

    def _begin_manual(self, ticket: Ticket) -> None:
        self._initial = None
        if ticket.error is not ErrorCode.NONE:
            assert ticket.error is not None
            self._failures.append(GroupFailed(ticket.error, f"group {self.settings.group_id!r}: {ticket.error.name}"))
            return
        for partition, offset in ticket.offsets.items():
            if partition in self._manual and partition not in self._fetching:
                if offset >= 0:
                    self._fetching.start(partition, offset)
                else:
                    self._reset([partition])

    def _ask_coordinator(self, now_ms: float) -> None:
        """Send what waits for the coordinator; where no member looks for it, look for it here."""
        if not self._offsets.is_waiting:
            return
        if self._coordinator is not None:
            for request in self._offsets.requests(now_ms):
                self.asks.append(Ask(self._coordinator, Lane.GROUP, request))
        elif self._searches and self._search_ms <= now_ms:
            self._find_coordinator()
            self._search = self.asks[-1]

    @property
    def _searches(self) -> bool:
        """Whether the coordinator is to be looked for here."""
        return self._offsets.is_waiting and self._search is None and self.member.state is MemberState.DOWN

    def _find_coordinator(self) -> None:
        self._coordinator = None
        request = FindCoordinatorRequest(coordinator_keys=[self.settings.group_id or ""])
        self.asks.append(Ask(None, Lane.GENERAL, request))

    def _ask_leader(self, node_id: int, request: LeaderRequest) -> None:
        lane = Lane.FETCH if isinstance(request, FetchRequest) else Lane.GENERAL
        self.asks.append(Ask(node_id, lane, request))

    def _topics(self) -> tuple[str, ...] | None:
        """The topics to keep an eye on; None is all."""
        if self._pattern is not None:
            return None
        topics = self.member.settings.topics if self._subscribed is Subscribed.TOPICS else ()
        return tuple(dict.fromkeys((*topics, *(self._group_topics or ()), *(topic for topic, _ in self.assigned))))
