"""The consumer without sockets and clocks: a group member, a fetcher, group offsets and cluster metadata, combined.

Calls and responses go in, requests come out in `outbound`. Callbacks of the application come out in `callbacks`, and
wait there until it polls. Does not depend on how requests are sent.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fakebroker.client.backoff import Backoff
from fakebroker.client.consumer.cluster_metadata import ClusterMetadata
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.diagnosis import Diagnosis
from fakebroker.client.consumer.fetcher import Fetcher
from fakebroker.client.consumer.group_offsets import Committer, GroupOffsets, OffsetOperation
from fakebroker.client.consumer.manual_assignment import ManualAssignment
from fakebroker.client.consumer.outbound import Lane, OutboundRequest, RebalanceCallback, RebalanceEvent
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.consumer.subscription import (
    SubscriptionType,
    check_offsets,
    check_partitions,
    check_pattern,
    check_topics,
)
from fakebroker.client.coordinators import find_coordinators
from fakebroker.client.errors import (
    AuthenticationFailed,
    BrokerRefused,
    CommitFailed,
    EmptySubscription,
    GroupFailed,
    InitialOffsetUnknown,
    InvalidSubscription,
    PartitionsNotAssigned,
    error_code,
)
from fakebroker.client.member import requests
from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.effects import (
    Assigned,
    Discover,
    Effect,
    Fatal,
    FetchMetadata,
    GroupRequest,
    HeartbeatRejected,
    OffsetUnknown,
    Revoked,
    Revoking,
    Send,
)
from fakebroker.client.member.group_member import GroupMember
from fakebroker.client.member.member import Member
from fakebroker.client.member.reactions import Reaction, error_in
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.topic_partition import TopicPartition


class ConsumerCore:
    """One consumer; `fakebroker.client.consumer.consumer.Consumer` documents what the application sees.

    Args:
        settings: Its settings.
        new_id: Returns an unused member id; called with the consumer protocol.

    `now_ms`, in most methods, is the current time in milliseconds since the Unix epoch. Methods that change something
    call `_settle`, which creates the requests that are due.

    Attributes:
        outbound: Requests to send since the driver last took them.
        callbacks: Callbacks to run, in order, when the application polls next.
    """

    def __init__(self, settings: ConsumerSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self.outbound: list[OutboundRequest] = []
        self.callbacks: deque[RebalanceCallback] = deque()
        self._uses_consumer_protocol = settings.group_protocol == "consumer"
        self.member: GroupMember = (
            ConsumerMember(settings.consumer_member(), new_id)
            if self._uses_consumer_protocol
            else Member(settings.member())
        )
        self._subscribed: SubscriptionType | None = None
        self._pattern: re.Pattern[str] | None = None
        self._is_matched = False  # the topics that match the pattern are known
        self._fetcher = Fetcher(settings)
        self._offsets = GroupOffsets(settings.retry_backoff_ms)
        self._manual = ManualAssignment(settings, self._fetcher, self._offsets, self._reset)
        self._metadata = ClusterMetadata(settings.metadata_max_age_ms, settings.retry_backoff_ms)
        self._group_topics: tuple[str, ...] | None = None  # topics whose partition counts the leader needs
        self._coordinator: int | None = None
        self._lookup: OutboundRequest | None = None  # a look-up of the coordinator that the member did not request
        self._lookup_ms = 0.0  # no such look-up before this time
        self._lookup_backoff = Backoff(settings.retry_backoff_ms)
        self._without_offset: dict[TopicPartition, None] = {}  # without a committed offset and a reset policy
        self._failures: deque[FakebrokerError] = deque()
        self._diagnosis = Diagnosis()
        self._poll_deadline_ms: float | None = None

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The partitions assigned to this consumer."""
        return self._manual.partitions if self._subscribed is SubscriptionType.PARTITIONS else self.member.assigned

    @property
    def is_assigned(self) -> bool:
        """Whether the assignment is known."""
        return self._subscribed is SubscriptionType.PARTITIONS or self.member.is_in_generation

    @property
    def is_committing(self) -> bool:
        """Whether commits are pending, other than the member's automatic ones."""
        return self._offsets.is_committing

    # Subscriptions

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], now_ms: float) -> None:
        """Subscribe to topics as a group member. The next poll joins the group; a member rejoins."""
        if self.settings.group_id is None:
            raise InvalidSubscription("group_id=None: expected a group id to subscribe; without one, use assign")
        if isinstance(topics, re.Pattern):
            self._set_type(SubscriptionType.PATTERN)
            self._pattern, self._is_matched = topics, self._uses_consumer_protocol
            if self._uses_consumer_protocol:
                self.member.subscribe((), now_ms, pattern=check_pattern(topics))
        else:
            names = check_topics(topics)
            self._set_type(SubscriptionType.TOPICS)
            if names != self.member.settings.topics:
                self.member.subscribe(names, now_ms)
        self._metadata.refresh_now(now_ms)
        self._settle(now_ms)

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition], now_ms: float) -> None:
        """Read exactly these partitions, without a group."""
        offsets = partitions if isinstance(partitions, Mapping) else {}
        wanted = check_partitions(partitions)
        check_topics([topic for topic, _ in wanted])
        check_offsets(offsets)
        self._set_type(SubscriptionType.PARTITIONS)
        self._manual.assign(wanted, now_ms)
        self._without_offset.clear()
        for partition, offset in offsets.items():
            self._fetcher.start(partition, offset)
        self._metadata.refresh_now(now_ms)
        self._settle(now_ms)

    def _set_type(self, kind: SubscriptionType) -> None:
        if self._subscribed not in (None, kind):
            raise InvalidSubscription(
                f"subscription to {kind.value}: already subscribed to {self._subscribed.value}, "
                "expected unsubscribe first"
            )
        self._subscribed = kind

    def unsubscribe(self, now_ms: float, *, commits: bool = True) -> None:
        """Leave the group, and stop reading.

        Args:
            now_ms: The current time.
            commits: Whether the records of the last poll count as consumed.
        """
        if commits and self._subscribed is not None:
            self._mark_consumed()
            self._manual.commit(now_ms)
        self.member.leave(now_ms)
        self._settle(now_ms)
        self._manual.assign((), now_ms)
        self._subscribed, self._pattern, self._is_matched = None, None, False
        self._group_topics, self._poll_deadline_ms = None, None
        self._without_offset.clear()
        self._failures.clear()
        self.callbacks.clear()

    def _check_subscribed(self) -> None:
        if self._subscribed is None:
            raise EmptySubscription("no topics or partitions: expected subscribe or assign before this call")

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_subscribed()
        if others := [partition for partition in partitions if partition not in self.assigned]:
            raise PartitionsNotAssigned(check_partitions(others), self.assigned)

    # Polling

    def begin_poll(self, now_ms: float) -> None:
        """Start a poll: the records of the previous poll count as consumed, and the group is joined if necessary."""
        self._check_subscribed()
        self._poll_deadline_ms = now_ms + self.settings.max_poll_interval_ms
        self._mark_consumed()
        self._manual.commit_if_due(now_ms)
        self._join(now_ms)
        self._settle(now_ms)

    def ensure_joined(self, now_ms: float) -> None:
        """Join the group without a poll.

        Raises:
            FakebrokerError: An error has occurred since the last poll, and the assignment is not known.
        """
        self._check_subscribed()
        if self._failures and not self.is_assigned:
            raise self._failures.popleft()
        self._join(now_ms)
        self._settle(now_ms)

    def _join(self, now_ms: float) -> None:
        """Join, unless the topics of a pattern are unknown or an error has not been raised yet."""
        knows_topics = self._subscribed is SubscriptionType.TOPICS or self._is_matched
        if knows_topics and self.member.is_down and not self._failures:
            self.member.start(now_ms)

    def suspend_poll_timeout(self) -> None:
        """The application waits in a poll: `max_poll_interval_ms` does not apply."""
        self._poll_deadline_ms = None

    def restart_poll_timeout(self, now_ms: float) -> None:
        """The application no longer waits in a poll: the next one is due within `max_poll_interval_ms`."""
        self._poll_deadline_ms = now_ms + self.settings.max_poll_interval_ms

    def callbacks_done(self, now_ms: float) -> None:
        """All callbacks have run; a rebalance that waited for them continues."""
        self.member.revoked(now_ms)
        self._settle(now_ms)

    def take_records(self, now_ms: float) -> list[ConsumerRecord]:
        """Return fetched records, at most `max_poll_records`.

        Raises:
            FakebrokerError: An error has occurred since the last poll.
        """
        if self._failures:
            raise self._failures.popleft()
        if (failure := self._fetcher.take_failure()) is not None:
            self._settle(now_ms)
            raise failure
        if without_offset := [partition for partition in self._without_offset if partition in self.assigned]:
            raise InitialOffsetUnknown(without_offset)
        records = self._fetcher.take_records(self.settings.max_poll_records)
        self._settle(now_ms)
        return records

    def check_progress(self, now_ms: float) -> None:
        """A poll has timed out without records.

        Raises:
            FakebrokerError: The cluster cannot be reached, or a topic or partition does not exist; see
                `Diagnosis.take_error`.
        """
        error = self._diagnosis.take_error(self._metadata, self._named_topics, self.assigned, now_ms)
        if error is not None:
            raise error

    def why_waiting(self) -> str:
        """Return why the consumer makes no progress, as text to append to a message; empty if no cause is known."""
        return "".join(f"; {cause}" for cause in self._causes())

    def _causes(self) -> list[str]:
        return self._diagnosis.causes(self._metadata, self._named_topics, self.assigned)

    @property
    def _named_topics(self) -> tuple[str, ...]:
        return self.member.settings.topics if self._subscribed is SubscriptionType.TOPICS else ()

    def seek(self, partition: TopicPartition, offset: int, now_ms: float) -> None:
        """Continue at this offset; records fetched ahead are dropped."""
        self._check_assigned([partition])
        check_offsets({partition: offset})
        self._fetcher.start(partition, offset)
        self._without_offset.pop(partition, None)
        if self._subscribed is not SubscriptionType.PARTITIONS:
            self.member.positions[partition] = offset
        self._settle(now_ms)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None while it is looked up."""
        self._check_assigned([partition])
        if partition in self._without_offset:
            raise InitialOffsetUnknown([partition])
        return self._fetcher.positions().get(partition)

    # Offsets

    def commit(self, offsets: Mapping[TopicPartition, int] | None, now_ms: float) -> OffsetOperation | None:
        """Commit these offsets, or the current positions if None. Returns None if there is nothing to commit."""
        self._check_subscribed()
        identity = self._committer()
        if offsets is None:
            self._mark_consumed()
            positions = self._fetcher.positions()
            offsets = {partition: positions[partition] for partition in self.assigned if partition in positions}
        self._check_assigned(offsets)
        check_offsets(offsets)
        operation = self._offsets.commit(identity, offsets) if offsets else None
        self._settle(now_ms)
        return operation

    def committed(self, partitions: Iterable[TopicPartition] | None, now_ms: float) -> OffsetOperation:
        """Look up the committed offsets of these partitions, or of the assigned ones if None."""
        self._check_subscribed()
        wanted = self.assigned if partitions is None else check_partitions(partitions)
        operation = self._offsets.look_up(self._group(), wanted)
        self._settle(now_ms)
        return operation

    def cancel(self, operation: OffsetOperation) -> None:
        """Stop a pending operation. No effect on others."""
        self._offsets.cancel(operation)

    def _group(self) -> Identity:
        """Return the identity for requests outside of any generation."""
        if self.settings.group_id is None:
            raise ConfigError.of("group_id", None, "a name, to commit offsets and look them up")
        return Identity(self.settings.group_id, None)

    def _committer(self) -> Identity:
        """Return the identity that commits: the member's, or only the group id if partitions are assigned manually."""
        group = self._group()
        if self._subscribed is SubscriptionType.PARTITIONS:
            return group
        if not self.member.is_in_generation:
            left = self.member.is_down
            error = ErrorCode.UNKNOWN_MEMBER_ID if left else ErrorCode.REBALANCE_IN_PROGRESS
            raise CommitFailed(error, group.group_id)
        return self.member.identity

    def _epoch_committer(self) -> Committer | None:
        if not self._uses_consumer_protocol or not self.member.is_in_generation:
            return None
        return Committer(self.member.identity, self.member.assigned)

    def _mark_consumed(self) -> None:
        """Let the member's automatic commits include the records returned so far."""
        if self._subscribed is not SubscriptionType.PARTITIONS:
            owned = frozenset(self.member.assigned)
            positions = self._fetcher.positions().items()
            self.member.positions.update((partition, offset) for partition, offset in positions if partition in owned)

    # Time and responses

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, in milliseconds since the Unix epoch."""
        parts = (self.member, self._fetcher, self._metadata)
        deadlines = [self._poll_deadline_ms, *(part.next_deadline() for part in parts)]
        if self._coordinator is not None:
            deadlines.append(self._offsets.next_deadline())
        elif self._needs_lookup:
            deadlines.append(self._lookup_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: float) -> None:
        """Handle everything that is due."""
        self.member.tick(now_ms)
        if self._poll_deadline_ms is not None and self._poll_deadline_ms <= now_ms:
            self._poll_deadline_ms = None
            if not self.member.is_down:
                self.member.expire(now_ms)
        self._settle(now_ms)

    def connected(self) -> None:
        """A connection to a broker was made, and versions were negotiated."""
        self._diagnosis.has_connected = True

    def needs(self, outbound: OutboundRequest) -> bool:
        """Return whether this request should still be sent, or its response awaited."""
        request = outbound.request
        return (
            outbound.ignores_response
            or outbound.lane is not Lane.GROUP
            or self.member.awaits(request)
            or self._offsets.awaits(request)
        )

    def answered(self, outbound: OutboundRequest, response: Any, now_ms: float) -> None:
        """Handle a response."""
        request: Any = outbound.request
        self._diagnosis.unreachable = None
        if isinstance(response, MetadataResponse):
            if self._metadata.awaits(request):
                self._update_metadata(request, response, now_ms)
        elif isinstance(response, FindCoordinatorResponse):
            self._on_coordinator(outbound, response, now_ms)
        elif outbound.lane is not Lane.GROUP:
            assert outbound.node_id is not None
            self._fetcher.answered(outbound.node_id, request, response, now_ms)
        elif self.member.awaits(request):
            self.member.answered(request, response, now_ms)
        elif self._offsets.awaits(request):
            reaction = self._offsets.answered(request, response, now_ms, self._epoch_committer())
            self._diagnosis.offsets = ErrorCode.NONE if reaction is None else error_in(response)
            if reaction is Reaction.REDISCOVER:
                self._lose_coordinator(now_ms)
        self._settle(now_ms)

    def unanswered(self, outbound: OutboundRequest, error: FakebrokerError | None, now_ms: float) -> None:
        """A request was not sent, or its connection was lost.

        Args:
            outbound: The request.
            error: Why; None if it is no longer needed.
            now_ms: The current time.
        """
        request: Any = outbound.request
        if error is not None:
            self._diagnosis.unreachable = error
            if isinstance(error, AuthenticationFailed) and not self._failures:
                self._failures.append(error)
        if self._metadata.awaits(request):
            self._metadata.unanswered(now_ms)
        elif isinstance(request, FindCoordinatorRequest):
            self._on_lookup_error(outbound, ErrorCode.NETWORK_EXCEPTION, now_ms)
        elif outbound.lane is not Lane.GROUP and outbound.node_id is not None:
            self._fetcher.unanswered(outbound.node_id, request, now_ms)
        elif self.needs(outbound) and not outbound.ignores_response:
            self._lose_coordinator(now_ms)
        self._settle(now_ms)

    def unsupported(self, outbound: OutboundRequest, error: FakebrokerError, now_ms: float) -> None:
        """A request cannot be sent, for example because its broker is too old. The next poll raises the error."""
        if isinstance(outbound.request, ConsumerGroupHeartbeatRequest):
            code = ErrorCode.UNSUPPORTED_VERSION
            response = ConsumerGroupHeartbeatResponse(error_code=code, error_message=str(error))
            self.member.answered(outbound.request, response, now_ms)
            self._settle(now_ms)
            return
        if not self._failures:
            self._failures.append(error)
        self.unanswered(outbound, None, now_ms)

    def _update_metadata(self, request: MetadataRequest, response: MetadataResponse, now_ms: float) -> None:
        for topic, error in self._metadata.answered(response, now_ms):
            if self._is_named(topic):
                self._failures.append(BrokerRefused(f"topic {topic!r}", error))
        if self._pattern is not None and request.topics is None and not self._uses_consumer_protocol:
            self._match(self._pattern, now_ms)
        requested = None if request.topics is None else {topic.name for topic in request.topics}
        if self._group_topics is not None and (requested is None or requested.issuperset(self._group_topics)):
            counts = {
                topic.name: len(topic.partitions) for topic in response.topics if topic.name and not topic.error_code
            }
            ids = {topic.name: topic.topic_id for topic in response.topics if topic.name and not topic.error_code}
            self.member.metadata(counts, now_ms, topic_ids=ids)

    def _is_named(self, topic: str) -> bool:
        """Return whether errors of a topic are reported: with a pattern, only if its partitions are assigned."""
        return self._pattern is None or any(topic == assigned for assigned, _ in self.assigned)

    def _match(self, pattern: re.Pattern[str], now_ms: float) -> None:
        topics = tuple(sorted(name for name in self._metadata.names if pattern.fullmatch(name)))
        if topics != self.member.settings.topics or not self._is_matched:
            self._is_matched = True
            self.member.subscribe(topics, now_ms)

    # The coordinator

    def _on_coordinator(self, outbound: OutboundRequest, response: FindCoordinatorResponse, now_ms: float) -> None:
        found = response.coordinators[0]
        error = error_code(found.error_code)
        if error is not ErrorCode.NONE:
            self._on_lookup_error(outbound, error, now_ms)
            return
        self._diagnosis.lookup = ErrorCode.NONE
        if self._lookup is outbound or self.member.is_discovering:
            self._lookup, self._coordinator = None, found.node_id
            self._lookup_backoff.reset()
            self.member.discovered(now_ms)

    def _on_lookup_error(self, outbound: OutboundRequest, error: ErrorCode, now_ms: float) -> None:
        if error is not ErrorCode.NETWORK_EXCEPTION:  # then `unreachable` says more
            self._diagnosis.lookup = error
        if self._lookup is outbound:
            self._lookup, self._lookup_ms = None, now_ms + self._lookup_backoff.next_delay_ms()
        if not error.retriable and self.member.is_down:
            self._offsets.fail_all(error)
        self.member.discovery_failed(error, now_ms)

    def _lose_coordinator(self, now_ms: float) -> None:
        self._coordinator = None
        self._offsets.unanswered(now_ms)
        self.member.connection_lost(now_ms)

    @property
    def _needs_lookup(self) -> bool:
        """Whether offset requests need a look-up of the coordinator. A member that is down does not look it up."""
        return self._offsets.is_pending and self._lookup is None and self.member.is_down

    def _find_coordinator(self) -> None:
        self._coordinator = None
        self.outbound.append(OutboundRequest(None, Lane.GENERAL, find_coordinators([self.settings.group_id or ""])))

    # Consequences of calls, responses and time

    def _settle(self, now_ms: float) -> None:
        """Handle the member's effects, and create the requests that are due."""
        while self.member.effects:
            effects, self.member.effects = self.member.effects, []
            for effect in effects:
                self._handle(effect, now_ms)
        self._start_partitions()
        self._send_offset_requests(now_ms)
        self._fetcher.paused = self.member.revoking
        for node_id, request in self._fetcher.requests(self._metadata.leaders, now_ms):
            lane = Lane.FETCH if isinstance(request, FetchRequest) else Lane.GENERAL
            self.outbound.append(OutboundRequest(node_id, lane, request))
        if self._fetcher.needs_metadata:
            self._fetcher.needs_metadata = False
            self._metadata.refresh(now_ms)
        if (metadata := self._metadata.request(self._topics(), now_ms)) is not None:
            self.outbound.append(OutboundRequest(None, Lane.GENERAL, metadata))

    def _handle(self, effect: Effect, now_ms: float) -> None:
        match effect:
            case Discover():
                self._find_coordinator()
            case Send(request):
                self._send(request)
            case FetchMetadata(topics):
                self._group_topics = topics
                self._metadata.refresh_now(now_ms)
            case Assigned(partitions):
                self.callbacks.append((RebalanceEvent.ASSIGNED, partitions))
            case Revoking(partitions):
                self.callbacks.append((RebalanceEvent.REVOKED, partitions))
            case Revoked(partitions, lost):
                self._remove(partitions, lost=lost)
            case OffsetUnknown(partitions):
                self._reset(partitions)
            case HeartbeatRejected(error, message):
                self._failures.append(GroupFailed(error, message))
            case Fatal(error, message, _, identity):
                self._group_topics = None
                self._failures.append(GroupFailed(error, message))
                if identity.member_id and identity.instance_id is None and not self._uses_consumer_protocol:
                    # The next poll joins as a new member. Its rebalance would wait for the old one.
                    self._send(requests.leave_group(identity, f"the consumer has failed: {error.name}"))

    def _send(self, request: GroupRequest) -> None:
        has_stopped = self.member.is_down
        if self.member.awaits(request) or (has_stopped and self._coordinator is not None):
            self.outbound.append(OutboundRequest(self._coordinator, Lane.GROUP, request, ignores_response=has_stopped))

    def _remove(self, partitions: tuple[TopicPartition, ...], *, lost: bool) -> None:
        self._fetcher.remove(partitions)
        for partition in partitions:
            self._without_offset.pop(partition, None)
        if lost:  # partitions whose revocation was pending are only reported as lost
            self.callbacks = deque(each for each in self.callbacks if each[0] is not RebalanceEvent.REVOKED)
            self.callbacks.append((RebalanceEvent.LOST, partitions))

    def _reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Apply the reset policy to partitions without a committed offset."""
        for partition in partitions:
            if partition in self._fetcher:
                continue
            if self.settings.auto_offset_reset is None:
                self._without_offset[partition] = None
            else:
                self._fetcher.reset(partition, self.settings.auto_offset_reset)

    def _start_partitions(self) -> None:
        """Read partitions from the group's offsets, once these are known."""
        for partition, offset in self.member.positions.items():
            if partition not in self._fetcher:
                self._fetcher.start(partition, offset)
        if (failure := self._manual.take_failure()) is not None:
            self._failures.append(failure)
        if not self._failures:
            self._manual.start(self._without_offset)

    def _send_offset_requests(self, now_ms: float) -> None:
        """Send pending commits and look-ups of offsets; look up the coordinator for them if the member is down."""
        if not self._offsets.is_pending:
            return
        if self._coordinator is not None:
            for request in self._offsets.requests(now_ms, self._epoch_committer()):
                self.outbound.append(OutboundRequest(self._coordinator, Lane.GROUP, request))
        elif self._needs_lookup and self._lookup_ms <= now_ms:
            self._find_coordinator()
            self._lookup = self.outbound[-1]

    def _topics(self) -> tuple[str, ...] | None:
        """Return the topics whose metadata is needed; None for all."""
        if self._pattern is not None:
            return None
        return tuple(
            dict.fromkeys((*self._named_topics, *(self._group_topics or ()), *(topic for topic, _ in self.assigned)))
        )
