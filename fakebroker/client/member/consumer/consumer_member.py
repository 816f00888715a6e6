"""A member of a consumer group of KIP-848 as a state machine: calls go in, effects come out.

Behaves as Kafka's Java consumer with `group.protocol=consumer` does (`ConsumerMembershipManager`,
`ConsumerHeartbeatRequestManager` and `CommitRequestManager` of 4.2). Does not depend on sockets, clocks or request
versions. Differences:

- Revoked partitions are committed after the application has given them up, as in the classic protocol, so that the
  commit contains all that was consumed. Kafka commits before it calls `onPartitionsRevoked`.
- A heartbeat with epoch 0 that is rejected with FENCED_MEMBER_EPOCH is repeated after a back-off, not at once.
- While the name of an assigned topic is unknown, what is known is acknowledged once, not with each heartbeat.
- While a heartbeat that reports partitions is in flight, no partitions are added, because the coordinator may assign
  those that it does not report to other members. For the same reason, only partitions of the latest assignment are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from fakebroker.client.member import requests
from fakebroker.client.member.consumer.assignment import (
    NO_ASSIGNMENT,
    LocalAssignment,
    PartitionsById,
    by_topic_id,
    with_known_names,
)
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.consumer.heartbeat_fields import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    HeartbeatFields,
    heartbeat,
)
from fakebroker.client.member.consumer.reactions import reaction_to
from fakebroker.client.member.consumer.states import IN_GROUP, TRANSITIONS, ConsumerMemberState
from fakebroker.client.member.effects import (
    Assigned,
    CommitRejected,
    Discover,
    Fatal,
    FetchMetadata,
    GroupRequest,
    GroupResponse,
    HeartbeatRejected,
    Revoking,
)
from fakebroker.client.member.group_member import NO_TOPIC_IDS, GroupMember
from fakebroker.client.member.pending import Timer
from fakebroker.client.member.reactions import Reaction, error_in
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.topic_partition import TopicPartition

_State = ConsumerMemberState

UNSUPPORTED = (
    "the cluster does not support the consumer protocol: expected brokers with group.version=1 and "
    '"consumer" in group.coordinator.rebalance.protocols, or members with the classic protocol'
)
"""Appended to the message of UNSUPPORTED_VERSION: members do not change the protocol by themselves."""


@dataclass(slots=True)
class _Reconciliation:
    """The step from the present partitions to the partitions of an assignment.

    Attributes:
        awaits_application: `Revoking` was emitted, and `revoked` has not been called yet.
        commit: The last commit, while it is in flight.
        awaits_response: The step waits only for the response to a heartbeat that reports the former partitions.
    """

    assignment: LocalAssignment
    awaits_application: bool = False
    commit: OffsetCommitRequest | None = None
    awaits_response: bool = False


class ConsumerMember(GroupMember):
    """One member of a consumer group.

    Args:
        settings: Its settings.
        new_id: Returns an unused member id. The member keeps its id until a `crash`, also when it leaves and starts.

    Attributes:
        state: See `ConsumerMemberState`.
    """

    settings: ConsumerMemberSettings
    state: ConsumerMemberState

    def __init__(self, settings: ConsumerMemberSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self.state = _State.UNSUBSCRIBED
        self._new_id = new_id
        self._id = new_id()
        self._names: dict[bytes, str] = {}  # of topics, by id
        super().__init__()

    def _first_identity(self) -> Identity:
        return Identity(self.settings.group_id, self.settings.instance_id, self._id)

    def _reset(self) -> None:
        super()._reset()
        self._target = self._current = NO_ASSIGNMENT
        self._fields = HeartbeatFields()
        self._reconciliation: _Reconciliation | None = None
        self._interval_ms = 0
        self._is_heartbeat_due = False  # a heartbeat is due, and another one is in flight
        self._is_reporting = False  # the heartbeat in flight has the partitions of the member
        self._has_found = False  # a coordinator
        self._is_fetching_names = False
        self._fatal: Fatal | None = None

    @property
    def is_down(self) -> bool:
        return self.state not in IN_GROUP

    @property
    def is_joined(self) -> bool:
        return self.has_coordinator and self.is_in_generation

    @property
    def is_in_generation(self) -> bool:
        return self._current is not NO_ASSIGNMENT

    @property
    def is_rediscovering(self) -> bool:
        return self._has_found and not self.has_coordinator and not self.is_down

    @property
    def heartbeat_interval_ms(self) -> float:
        return self._interval_ms

    @property
    def member_epoch(self) -> int:
        """The epoch that heartbeats contain; 0 until the member has joined."""
        return max(self.identity.generation_id, JOINING_EPOCH)

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        return heartbeat(self.identity, self.member_epoch)

    def idle_until(self) -> float:
        is_idle = self.state is _State.STABLE and self._fields.is_known
        return super().idle_until() if is_idle else -inf

    # Application calls

    def start(self, now_ms: float) -> None:
        """Look up the coordinator, then join. After a fatal error, report it again."""
        if self._fatal is not None:
            self.effects.append(replace(self._fatal, scheduled_ms=now_ms))
        elif self.is_down:
            self._enter(_State.JOINING)
            if self.settings.pattern is not None or not set(self.settings.topics).issubset(self._names.values()):
                self._fetch_names(now_ms)  # so that they are known when the assignment arrives
            self.effects.append(Discover(now_ms))

    def leave(self, now_ms: float, *, remove_static: bool = False) -> None:
        if not self.is_down:
            if self.is_joined and self.settings.commit_interval_ms:
                self._commit(now_ms)
            self._send_leave(now_ms, lost=self.generation_id < 0, remove_static=remove_static)
            self._stop()
        elif self.state is _State.STALE:
            self._stop()

    def expire(self, now_ms: float) -> None:
        if not self.is_down:
            self._send_leave(now_ms, lost=True)
            self._enter(_State.STALE)
            self._reset()

    def _send_leave(self, now_ms: float, *, lost: bool, remove_static: bool = False) -> None:
        self._enter(_State.PREPARE_LEAVING)
        self._revoke(self.assigned, now_ms, lost=lost)
        self._enter(_State.LEAVING)
        if self.has_coordinator:
            stays = self.settings.instance_id is not None and not remove_static
            epoch = LEAVING_STATIC_EPOCH if stays else LEAVING_EPOCH
            self._send(self._fields.next_heartbeat(self.identity, epoch, self.settings, NO_ASSIGNMENT), now_ms)

    def _stop(self) -> None:
        if self.state is not _State.UNSUBSCRIBED:
            self._enter(_State.UNSUBSCRIBED)
            self._reset()

    def crash(self, now_ms: float) -> None:
        self._id = self._new_id()
        super().crash(now_ms)
        self.identity = self._first_identity()

    def commit(self, now_ms: float) -> None:
        if self.is_joined:
            self._commit(now_ms)
        elif self.is_in_generation:
            self.effects.append(CommitRejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms))
        else:
            self.effects.append(CommitRejected(ErrorCode.REBALANCE_IN_PROGRESS, now_ms))

    def subscribe(self, topics: Iterable[str], now_ms: float, *, pattern: str | None = None) -> None:
        """Replace the subscription; the next heartbeat contains it."""
        self.settings = replace(self.settings, topics=tuple(topics), pattern=pattern)

    def revoked(self, now_ms: float) -> None:
        reconciliation = self._reconciliation
        if reconciliation is not None and reconciliation.awaits_application:
            reconciliation.awaits_application = False
            self._commit_before_revocation(reconciliation, now_ms)

    # Look-ups, responses and time

    def discovered(self, now_ms: float) -> None:
        if not self.is_discovering:
            return
        self.has_coordinator = self._has_found = True
        self._timers.cancel(Timer.RETRY)
        self._heartbeat(now_ms, now_ms)
        if not self.is_in_generation:
            return
        if self._reconciliation is None:
            self._continue_generation(now_ms)
        else:
            self._fetch_offsets(now_ms)
            self._continue(self._reconciliation, now_ms)

    def metadata(
        self, partition_counts: Mapping[str, int], now_ms: float, *, topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS
    ) -> None:
        """Report the ids of topics. Changed partition counts are the coordinator's concern."""
        self._names.update((topic_id, name) for name, topic_id in topic_ids.items())
        if self.is_down:
            return
        self._timers.cancel(Timer.METADATA)
        if self._is_fetching_names:
            self._is_fetching_names = False
            if any(topic_id not in self._names for topic_id in self._target.partitions):
                self._timers.set(Timer.METADATA, now_ms + self.settings.retry_backoff_ms)
        self._proceed(now_ms)

    def answered(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        sent_as = self._in_flight.pop(request)
        if sent_as is None:
            return
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            self._timers.cancel(Timer.SESSION)
            self._is_reporting = False
        error = error_in(response)
        if error is not ErrorCode.NONE:
            self._on_error(request, response, error, now_ms)
            return
        self._backoff.reset()
        match response:
            case ConsumerGroupHeartbeatResponse():
                self._on_heartbeat(response, now_ms)
            case OffsetFetchResponse():
                self._set_positions(requests.fetched_offsets(response), now_ms)
            case OffsetCommitResponse():
                self._committed(request, now_ms)

    def _on_timer(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        match timer:
            case Timer.HEARTBEAT:
                self._heartbeat(due_ms, now_ms)
            case Timer.COMMIT:
                self._commit_on_timer(due_ms, now_ms)
            case Timer.SESSION:
                self._lose_coordinator(now_ms)
            case Timer.METADATA:
                self._fetch_names(now_ms)
            case Timer.REBALANCE:  # the last commit takes too long
                if self._reconciliation is not None:
                    self._complete(self._reconciliation, now_ms)
            case Timer.RETRY:
                self._retry(due_ms, now_ms)

    def _retry(self, due_ms: float, now_ms: float) -> None:
        if not self.has_coordinator:
            self.effects.append(Discover(due_ms))
            return
        if not self._in_flight.has(OffsetFetchRequest):
            self._fetch_offsets(due_ms)
        if self._reconciliation is not None:
            self._continue(self._reconciliation, now_ms)

    # State and heartbeats

    def _enter(self, state: ConsumerMemberState) -> None:
        """Change the state; the only method that does."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"member {self.member_id!r}: no transition from {self.state} to {state}")
        self.state = state

    def _heartbeat(self, due_ms: float, now_ms: float) -> None:
        """Send a heartbeat. If another heartbeat is in flight, send this heartbeat after its response."""
        if self._in_flight.has(ConsumerGroupHeartbeatRequest):
            self._is_heartbeat_due = True
            return
        self._is_heartbeat_due = False
        if self._interval_ms:
            self._timers.repeat(Timer.HEARTBEAT, due_ms, self._interval_ms, now_ms)
        self._timers.set(Timer.SESSION, now_ms + self.settings.request_timeout_ms)
        request = self._fields.next_heartbeat(self.identity, self.member_epoch, self.settings, self._current)
        self._is_reporting = request.topic_partitions is not None
        self._send(request, due_ms)
        if self.state is _State.ACKNOWLEDGING:
            self._enter(_State.STABLE if self._current == self._target else _State.RECONCILING)

    def _extend_session(self, now_ms: float) -> None:
        """The broker has the session; the member only waits for responses."""

    def _on_heartbeat(self, response: ConsumerGroupHeartbeatResponse, now_ms: float) -> None:
        if response.heartbeat_interval_ms != self._interval_ms or Timer.HEARTBEAT not in self._timers:
            self._interval_ms = response.heartbeat_interval_ms
            self._timers.set(Timer.HEARTBEAT, now_ms + self._interval_ms)
        if response.member_epoch < JOINING_EPOCH:
            return
        self.identity = replace(self.identity, generation_id=response.member_epoch)
        if response.assignment is not None:
            self._receive(by_topic_id(response.assignment.topic_partitions))
        if self._reconciliation is not None and self._reconciliation.awaits_response:
            self._complete(self._reconciliation, now_ms)
        self._proceed(now_ms)
        if self._is_heartbeat_due:
            self._heartbeat(now_ms, now_ms)

    def _receive(self, partitions: PartitionsById) -> None:
        """Take an assignment as the target (Kafka's `processAssignmentReceived`)."""
        self._target = self._target.updated(partitions)
        if self._current != self._target and self.state is not _State.RECONCILING:
            self._enter(_State.RECONCILING)

    def _proceed(self, now_ms: float) -> None:
        """Reconcile if there is something to reconcile, and acknowledge it."""
        self._reconcile(now_ms)
        if self.state is _State.ACKNOWLEDGING and self.has_coordinator:
            self._heartbeat(now_ms, now_ms)
            self._reconcile(now_ms)

    # Reconciliation

    def _reconcile(self, now_ms: float) -> None:
        """Begin a step to the partitions of the target whose topic names are known (Kafka's `maybeReconcile`)."""
        target, current = self._target, self._current
        if self.state is not _State.RECONCILING or self._reconciliation is not None or current == target:
            return
        known, partitions = with_known_names(target.partitions, self._names)
        if len(known) < len(target.partitions) and Timer.METADATA not in self._timers:
            self._fetch_names(now_ms)
        if current is not NO_ASSIGNMENT and known == current.partitions:
            if current.epoch != target.epoch:
                self._current = LocalAssignment(target.epoch, known)
                self._enter(_State.ACKNOWLEDGING)
            return
        reconciliation = self._reconciliation = _Reconciliation(LocalAssignment(target.epoch, known))
        kept = frozenset(partitions)
        revoking = tuple(partition for partition in self.assigned if partition not in kept)
        if self.settings.awaits_revocation and revoking:
            self.revoking, reconciliation.awaits_application = revoking, True
            self.effects.append(Revoking(revoking, now_ms))
        else:
            self._commit_before_revocation(reconciliation, now_ms)

    def _fetch_names(self, now_ms: float) -> None:
        if not self._is_fetching_names:
            self._is_fetching_names = True
            topics = self.settings.topics if self.settings.pattern is None else ()
            self.effects.append(FetchMetadata(topics, now_ms))

    def _commit_before_revocation(self, reconciliation: _Reconciliation, now_ms: float) -> None:
        self._timers.set(Timer.REBALANCE, now_ms + self.settings.rebalance_timeout_ms)
        if self.has_coordinator:
            self._continue(reconciliation, now_ms)

    def _continue(self, reconciliation: _Reconciliation, now_ms: float) -> None:
        """Send the last commit of the step, or send it again. Without positions to commit, complete the step."""
        if reconciliation.awaits_application or reconciliation.awaits_response or reconciliation.commit is not None:
            return
        if self.settings.commit_interval_ms:
            reconciliation.commit = self._commit(now_ms)
        if reconciliation.commit is None:
            self._complete(reconciliation, now_ms)

    def _committed(self, request: GroupRequest, now_ms: float) -> None:
        """Complete the step if its last commit is done, successful or not. Other commits have no effect on the step."""
        if self._reconciliation is not None and request is self._reconciliation.commit:
            self._complete(self._reconciliation, now_ms)

    def _complete(self, reconciliation: _Reconciliation, now_ms: float) -> None:
        self._timers.cancel(Timer.REBALANCE)
        before = frozenset(self.assigned)
        step = self._without_taken_back(reconciliation.assignment)
        _, partitions = with_known_names(step.partitions, self._names)
        added = tuple(partition for partition in partitions if partition not in before)
        if added and self._is_reporting:
            reconciliation.awaits_response = True
            return
        self._reconciliation = None
        after = frozenset(partitions)
        self._revoke(tuple(each for each in self.assigned if each not in after), now_ms, lost=False)
        self.assigned, self._current = partitions, step
        self.effects.append(Assigned(added, self.generation_id, now_ms))
        if self.settings.commit_interval_ms:
            self._timers.set(Timer.COMMIT, now_ms + self.settings.commit_interval_ms)
        self._enter(_State.ACKNOWLEDGING)
        if self.has_coordinator:
            self._fetch_offsets(now_ms)
        self._proceed(now_ms)

    def _without_taken_back(self, assignment: LocalAssignment) -> LocalAssignment:
        """Return an assignment without partitions that a later assignment has taken back and that are not owned yet."""
        if assignment.epoch == self._target.epoch:
            return assignment
        owned, target = self._current.partitions, self._target.partitions
        kept = {
            topic_id: tuple(each for each in indexes if each in owned.get(topic_id, ()) + target.get(topic_id, ()))
            for topic_id, indexes in assignment.partitions.items()
        }
        return LocalAssignment(assignment.epoch, {topic_id: indexes for topic_id, indexes in kept.items() if indexes})

    def _commit_on_timer(self, due_ms: float, now_ms: float) -> None:
        if self.has_coordinator:
            super()._commit_on_timer(due_ms, now_ms)

    def _offset_fetch(self, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
        return requests.offset_fetch(self.identity, partitions, as_member=True)

    # Errors

    def _on_error(self, request: GroupRequest, response: GroupResponse, error: ErrorCode, now_ms: float) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            self._fields.forget()
        match reaction_to(error, response):
            case Reaction.REDISCOVER:
                self._lose_coordinator(now_ms)
            case Reaction.RETRY:
                self._schedule_retry(request, response, now_ms)
            case Reaction.FORGET_GENERATION:
                self._fence(now_ms)
            case Reaction.FATAL:
                text = response.error_message if isinstance(response, ConsumerGroupHeartbeatResponse) else None
                self._fail_on_response(type(response).__name__.removesuffix("Response"), error, now_ms, text)
            case _ if isinstance(response, ConsumerGroupHeartbeatResponse):
                self.effects.append(HeartbeatRejected(error, response.error_message or error.name, now_ms))
                self._schedule_retry(request, response, now_ms)
            case _:
                self.effects.append(CommitRejected(error, now_ms))
                self._committed(request, now_ms)

    def _schedule_retry(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        match response:
            case ConsumerGroupHeartbeatResponse():
                self._is_heartbeat_due = False
                self._timers.set(Timer.HEARTBEAT, now_ms + self._backoff.next_delay_ms())
            case OffsetCommitResponse() if self._reconciliation and request is self._reconciliation.commit:
                self._reconciliation.commit = None
                self._retry_commit(now_ms, is_awaited=True)
            case OffsetCommitResponse() if self.is_in_generation:
                self._retry_commit(now_ms, is_awaited=False)
            case OffsetFetchResponse():
                self._back_off(now_ms)

    def _coordinator_lost(self) -> None:
        self._is_heartbeat_due = self._is_reporting = False
        self._fields.forget()
        if self._reconciliation is not None:
            self._reconciliation.commit = None
        self._timers.cancel(Timer.HEARTBEAT, Timer.SESSION, Timer.COMMIT)

    def _abandon(self, now_ms: float) -> None:
        """Lose all partitions."""
        self._revoke(self.assigned, now_ms, lost=True)
        self._target = self._current = NO_ASSIGNMENT
        self._reconciliation = None
        self._is_heartbeat_due = self._is_reporting = False
        self._timers.cancel_except()

    def _fence(self, now_ms: float) -> None:
        """Lose all partitions and join again (Kafka's `transitionToFenced`)."""
        was_joining = self.state is _State.JOINING
        self._enter(_State.FENCED)
        self._abandon(now_ms)
        self.identity = replace(self.identity, generation_id=-1)
        self._enter(_State.JOINING)
        if was_joining:
            self._timers.set(Timer.HEARTBEAT, now_ms + self._backoff.next_delay_ms())
        else:
            self._heartbeat(now_ms, now_ms)

    def _fail_on_response(self, api: str, error: ErrorCode, now_ms: float, text: str | None = None) -> None:
        message = f"{api} for group {self.settings.group_id!r} failed with {error.name}"
        details = [each for each in (text, UNSUPPORTED if error is ErrorCode.UNSUPPORTED_VERSION else None) if each]
        fatal = Fatal(error, ": ".join((message, *details)), now_ms, self.identity)
        self._enter(_State.FATAL)
        self._abandon(now_ms)
        self._reset()
        self._fatal = fatal
        self.effects.append(fatal)
