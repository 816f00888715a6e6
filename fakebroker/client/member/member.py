"""A member of a consumer group as a state machine: calls go in, effects come out (classic protocol).

Behaves as Kafka's Java consumer does (`AbstractCoordinator`, `ConsumerCoordinator`). After each call the driver carries
out `effects`; it calls `tick` when `next_deadline` has passed. Does not depend on sockets, clocks or request versions.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fakebroker.client.member import requests
from fakebroker.client.member.effects import (
    Assigned,
    CommitRejected,
    Discover,
    Fatal,
    FetchMetadata,
    GroupRequest,
    GroupResponse,
    Revoking,
)
from fakebroker.client.member.group_member import NO_TOPIC_IDS, GroupMember
from fakebroker.client.member.leadership import Leadership
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.pending import Timer
from fakebroker.client.member.reactions import Reaction, error_in, reaction_to
from fakebroker.client.member.requests import Identity
from fakebroker.client.member.states import TRANSITIONS, MemberState
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition

_IN_SESSION = (MemberState.PART_OF_GROUP, MemberState.STOPPED)

# JoinGroup and SyncGroup may take this long beyond the rebalance timeout (Kafka's JOIN_GROUP_TIMEOUT_LAPSE).
_REBALANCE_GRACE_MS = 5_000


class Member(GroupMember):
    """One member of the classic protocol. Without `MemberSettings.awaits_revocation`, `revoking` is always empty.

    Attributes:
        state: See `MemberState`.
    """

    settings: MemberSettings
    state: MemberState

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.DOWN
        super().__init__()

    def _first_identity(self) -> Identity:
        return Identity(self.settings.group_id, self.settings.instance_id)

    def _reset(self) -> None:
        super()._reset()
        self._leadership: Leadership | None = None
        self._last_assignment: tuple[tuple[TopicPartition, ...], int] | None = None  # with its generation
        self._is_stable = False  # the generation is complete: it survives a change of coordinator
        self._rejoin_needed = False  # another rebalance follows the current one or the look-up of the coordinator
        self._awaits_application = False  # `Revoking` was emitted, and `revoked` has not been called yet

    @property
    def is_down(self) -> bool:
        return self.state is MemberState.DOWN

    @property
    def is_joined(self) -> bool:
        return self.state is MemberState.PART_OF_GROUP

    @property
    def is_in_generation(self) -> bool:
        return self._is_stable

    @property
    def is_rediscovering(self) -> bool:
        return self.state is MemberState.REDISCOVERING

    @property
    def heartbeat_interval_ms(self) -> float:
        return self.settings.heartbeat_interval_ms

    @property
    def is_leader(self) -> bool:
        """Whether the member assigns, or has assigned, the partitions of its generation."""
        return self._leadership is not None

    # Application calls

    def start(self, now_ms: float) -> None:
        if self.state is MemberState.DOWN:
            self._enter(MemberState.DISCOVERING)
            self.effects.append(Discover(now_ms))

    def leave(self, now_ms: float, *, remove_static: bool = False) -> None:
        if self.state in _IN_SESSION and self.settings.commit_interval_ms:
            self._commit(now_ms)
        self._revoke(self.assigned, now_ms, lost=not self._is_stable)
        self._leave_group("the consumer is being closed", now_ms, remove_static=remove_static)

    def expire(self, now_ms: float) -> None:
        self._revoke(self.assigned, now_ms, lost=True)
        self._leave_group("the application has not polled for the rebalance timeout", now_ms)

    def _leave_group(self, reason: str, now_ms: float, *, remove_static: bool = False) -> None:
        if self.has_coordinator and self.member_id and (self.settings.instance_id is None or remove_static):
            self._send(requests.leave_group(self.identity, reason), now_ms)
        self._stop()

    def commit(self, now_ms: float) -> None:
        if self.state in _IN_SESSION:
            self._commit(now_ms)
        elif self.state is MemberState.REDISCOVERING:
            self.effects.append(CommitRejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms))
        else:
            self.effects.append(CommitRejected(ErrorCode.REBALANCE_IN_PROGRESS, now_ms))

    def subscribe(self, topics: Iterable[str], now_ms: float, *, pattern: str | None = None) -> None:
        """Replace the subscription; a member of a group rejoins with it. The application resolves patterns."""
        self.settings = replace(self.settings, topics=tuple(topics))
        if self.state is MemberState.PART_OF_GROUP:
            self._rejoin(now_ms)
        elif self.state in (MemberState.JOINING, MemberState.SYNCING, MemberState.REDISCOVERING):
            self._rejoin_needed = True

    def revoked(self, now_ms: float) -> None:
        if self._awaits_application:
            self._awaits_application = False
            if self.state is MemberState.STOPPED:
                self._commit_and_join(now_ms)

    # Look-ups, responses and time

    def discovered(self, now_ms: float) -> None:
        if self.state not in (MemberState.DISCOVERING, MemberState.REDISCOVERING):
            return
        self.has_coordinator = True
        if not self._is_stable:
            self._join(now_ms, now_ms)
            return
        self._enter(MemberState.PART_OF_GROUP)
        self._extend_session(now_ms)
        self._heartbeat(now_ms, now_ms)
        if self._rejoin_needed:
            self._rejoin(now_ms)
            return
        self._continue_generation(now_ms)

    def metadata(
        self, partition_counts: Mapping[str, int], now_ms: float, *, topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS
    ) -> None:
        """Report partition counts by topic.

        If the leader was waiting for the counts, it computes the assignment; a topic without a count is treated as
        having no partitions. A leader that has already assigned starts a rebalance if a count has changed; it ignores
        topics without a count.
        """
        leadership = self._leadership
        if leadership is None:
            return
        if leadership.awaits_counts:
            self._assign(leadership, partition_counts, now_ms)
        elif leadership.counts_differ(partition_counts):
            self._rejoin_needed = True
            if self.state is MemberState.PART_OF_GROUP:
                self._rejoin(now_ms)

    def answered(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        sent_as = self._in_flight.pop(request)
        if sent_as is None:
            return
        error = error_in(response)
        if error is ErrorCode.NONE:
            self._on_success(response, sent_as, now_ms)
        else:
            self._on_error(response, error, sent_as, now_ms)
        if self.state is MemberState.STOPPED and isinstance(response, OffsetCommitResponse):
            self._join_when_committed(now_ms)

    def _on_timer(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        match timer:
            case Timer.HEARTBEAT:
                self._heartbeat(due_ms, now_ms)
            case Timer.COMMIT:
                self._commit_on_timer(due_ms, now_ms)
            case Timer.RETRY:
                self._retry(due_ms, now_ms)
            case Timer.REBALANCE if self.state is MemberState.STOPPED:
                self._join(due_ms, now_ms)
            case Timer.SESSION | Timer.REBALANCE:
                self._lose_coordinator(now_ms)

    def _retry(self, due_ms: float, now_ms: float) -> None:
        match self.state:
            case MemberState.JOINING:
                self._join(due_ms, now_ms)
            case MemberState.STOPPED:
                self._commit(due_ms)
                self._join_when_committed(now_ms)
            case MemberState.PART_OF_GROUP:
                self._fetch_offsets(due_ms)
            case _:
                self.effects.append(Discover(due_ms))

    # State, timers and requests

    def _enter(self, state: MemberState) -> None:
        """Change the state; the only method that does. Cancels the timers of the previous state."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"member {self.member_id!r}: no transition from {self.state} to {state}")
        self.state = state
        self._timers.cancel_except(*(Timer.HEARTBEAT, Timer.SESSION) if state in _IN_SESSION else ())

    def _stop(self) -> None:
        if self.state is not MemberState.DOWN:
            self._enter(MemberState.DOWN)
            self._reset()

    def _fail(self, error: ErrorCode, message: str, now_ms: float) -> None:
        self._revoke(self.assigned, now_ms, lost=True)
        self.effects.append(Fatal(error, message, now_ms, self.identity))
        self._stop()

    def _fail_on_response(self, api: str, error: ErrorCode, now_ms: float, text: str | None = None) -> None:
        self._fail(error, f"{api} for group {self.settings.group_id!r} failed with {error.name}", now_ms)

    def _extend_session(self, now_ms: float) -> None:
        self._timers.set(Timer.SESSION, now_ms + self.settings.session_timeout_ms)

    def _coordinator_lost(self) -> None:
        if self._leadership is not None:
            self._leadership.awaits_counts = False
        self._enter(MemberState.REDISCOVERING)

    # Rebalances

    def _rejoin(self, now_ms: float) -> None:
        """Start a rebalance; consumed offsets are committed first (Kafka's `onJoinPrepare`)."""
        self._rejoin_needed = True
        self._enter(MemberState.STOPPED)
        self._timers.set(Timer.REBALANCE, now_ms + self.settings.rebalance_timeout_ms)
        if self.settings.awaits_revocation and not self.revoking:
            self._emit_revoking(self._revoked_by_rejoin(), now_ms)
        if not self._awaits_application:
            self._commit_and_join(now_ms)

    def _revoked_by_rejoin(self) -> tuple[TopicPartition, ...]:
        """Return the partitions to revoke before joining.

        A cooperative member only revokes partitions of topics that it no longer subscribes to.
        """
        if not self.settings.is_cooperative:
            return self.assigned
        return tuple(partition for partition in self.assigned if partition[0] not in self.settings.topics)

    def _emit_revoking(self, partitions: tuple[TopicPartition, ...], now_ms: float) -> None:
        self.revoking, self._awaits_application = partitions, bool(partitions)
        if partitions:
            self.effects.append(Revoking(partitions, now_ms))

    def _commit_and_join(self, now_ms: float) -> None:
        if self.settings.commit_interval_ms:
            self._commit(now_ms)
        self._join_when_committed(now_ms)

    def _join_when_committed(self, now_ms: float) -> None:
        is_committing = self._in_flight.has(OffsetCommitRequest) or Timer.RETRY in self._timers
        if not is_committing and not self._awaits_application:
            self._join(now_ms, now_ms)

    def _join(self, scheduled_ms: float, now_ms: float) -> None:
        lost = self.generation_id < 0
        revoked = self.assigned if lost or not self.settings.is_cooperative else self.revoking
        self._revoke(revoked, now_ms, lost=lost)
        self._is_stable = self._rejoin_needed = self._awaits_application = False
        self._leadership = None
        self._enter(MemberState.JOINING)
        self._limit_rebalance(now_ms)
        self._send(self._join_request(), scheduled_ms)

    def _join_request(self) -> GroupRequest:
        settings = self.settings
        previous = self._last_assignment if settings.protocol == "sticky" else None
        metadata = encode_subscription(settings.topics, self.assigned, self.generation_id, previous=previous)
        return requests.join_group(
            self.identity, settings.session_timeout_ms, settings.rebalance_timeout_ms, settings.protocol, metadata
        )

    def _limit_rebalance(self, now_ms: float) -> None:
        self._timers.set(Timer.REBALANCE, now_ms + self.settings.rebalance_timeout_ms + _REBALANCE_GRACE_MS)

    def _joined(self, response: JoinGroupResponse, now_ms: float) -> None:
        self.identity = replace(self.identity, member_id=response.member_id, generation_id=response.generation_id)
        self._enter(MemberState.SYNCING)
        self._extend_session(now_ms)
        self._limit_rebalance(now_ms)
        self._timers.set(Timer.HEARTBEAT, now_ms + self.settings.heartbeat_interval_ms)
        if response.protocol_type not in (None, requests.PROTOCOL_TYPE):
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's type is {response.protocol_type!r}", now_ms)
        elif response.leader == response.member_id:
            self._lead(response, now_ms)
        else:
            self._send(requests.sync_group(self.identity, self.settings.protocol, {}), now_ms)

    def _lead(self, response: JoinGroupResponse, now_ms: float) -> None:
        try:
            self._leadership = Leadership(response, self.settings.protocol)
        except ProtocolError as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error), now_ms)
            return
        self.effects.append(FetchMetadata(self._leadership.topics, now_ms))

    def _assign(self, leadership: Leadership, partition_counts: Mapping[str, int], now_ms: float) -> None:
        try:
            assignments = leadership.assign(partition_counts, self.settings.assign)
        except Exception as error:  # a custom assignor may raise or return anything
            message = f"the assignor {self.settings.protocol!r} failed with {error!r}, expected partitions by member id"
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, message, now_ms)
            return
        self._send(requests.sync_group(self.identity, self.settings.protocol, assignments), now_ms)

    def _synced(self, response: SyncGroupResponse, sent_as: Identity, now_ms: float) -> None:
        if sent_as != self.identity:  # the error of a heartbeat has ended the generation in the meantime
            self._join(now_ms, now_ms)
            return
        try:
            assigned = decode_assignment(response.assignment)
        except ProtocolError as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error), now_ms)
            return
        self._enter(MemberState.PART_OF_GROUP)
        self._is_stable = True
        self._last_assignment = assigned, self.generation_id
        if self.settings.commit_interval_ms:
            self._timers.set(Timer.COMMIT, now_ms + self.settings.commit_interval_ms)
        self._take_over(assigned, now_ms)

    def _take_over(self, assigned: tuple[TopicPartition, ...], now_ms: float) -> None:
        before, after = frozenset(self.assigned), frozenset(assigned)
        revoked = tuple(partition for partition in self.assigned if partition not in after)
        added = tuple(partition for partition in assigned if partition not in before)
        if self.settings.awaits_revocation:
            self.assigned = assigned + revoked
            self._emit_revoking(revoked, now_ms)
        else:
            self._revoke(revoked, now_ms, lost=False)
            self.assigned = assigned
        self.effects.append(Assigned(added, self.generation_id, now_ms))
        self._fetch_offsets(now_ms)
        if revoked or self._rejoin_needed:  # the next rebalance assigns the revoked partitions to others (KIP-429)
            self._rejoin(now_ms)

    # Responses

    def _on_success(self, response: GroupResponse, sent_as: Identity, now_ms: float) -> None:
        self._backoff.reset()
        match response:
            case HeartbeatResponse():
                self._timers.extend(Timer.SESSION, now_ms + self.settings.session_timeout_ms)
            case JoinGroupResponse():
                self._joined(response, now_ms)
            case SyncGroupResponse():
                self._synced(response, sent_as, now_ms)
            case OffsetFetchResponse() if sent_as == self.identity:
                self._set_positions(requests.fetched_offsets(response), now_ms)

    def _on_error(self, response: GroupResponse, error: ErrorCode, sent_as: Identity, now_ms: float) -> None:
        reaction = reaction_to(error, response)
        in_session = isinstance(response, HeartbeatResponse | OffsetCommitResponse)
        if reaction is Reaction.REDISCOVER:
            self._lose_coordinator(now_ms)
        elif reaction is Reaction.RETRY:
            self._schedule_retry(response, now_ms)
        elif reaction is Reaction.FATAL and (sent_as == self.identity or not in_session):
            self._fail_on_response(type(response).__name__.removesuffix("Response"), error, now_ms)
        elif in_session:
            self._on_session_error(response, reaction, error, sent_as, now_ms)
        else:
            if isinstance(response, JoinGroupResponse) and reaction is Reaction.TAKE_MEMBER_ID:
                self.identity = replace(self.identity, member_id=response.member_id, generation_id=-1)
            self._forget(reaction)
            self._join(now_ms, now_ms)

    def _schedule_retry(self, response: GroupResponse, now_ms: float) -> None:
        match response:
            case HeartbeatResponse() if Timer.HEARTBEAT in self._timers:
                self._timers.set(Timer.HEARTBEAT, now_ms + self._backoff.next_delay_ms())
            case OffsetCommitResponse() if self.state in _IN_SESSION:
                self._retry_commit(now_ms, is_awaited=self.state is MemberState.STOPPED)
            case OffsetFetchResponse() if self.state is MemberState.PART_OF_GROUP:
                self._back_off(now_ms)
            case JoinGroupResponse():
                self._back_off(now_ms)

    def _on_session_error(
        self, response: GroupResponse, reaction: Reaction, error: ErrorCode, sent_as: Identity, now_ms: float
    ) -> None:
        """Handle the error of a heartbeat or commit.

        The error of a request sent in an earlier generation has no effect except `CommitRejected` for a commit. While
        the member is joining, the response to JoinGroup decides instead.
        """
        if isinstance(response, OffsetCommitResponse):
            self.effects.append(CommitRejected(error, now_ms))
        if sent_as != self.identity or self.state is MemberState.JOINING:
            return
        if reaction is Reaction.REJOIN:
            if isinstance(response, HeartbeatResponse):
                self._extend_session(now_ms)
            if self.state is MemberState.PART_OF_GROUP:
                self._rejoin(now_ms)
        elif reaction is not Reaction.REPORT:
            self._forget(reaction)
            if self._in_flight.has(SyncGroupRequest):
                self._timers.cancel_except(Timer.REBALANCE)  # join after the response to SyncGroup
            else:
                self._join(now_ms, now_ms)

    def _forget(self, reaction: Reaction) -> None:
        if reaction is Reaction.FORGET_GENERATION:
            self.identity = replace(self.identity, generation_id=-1)
        elif reaction is Reaction.FORGET_MEMBER_ID:
            self.identity = replace(self.identity, generation_id=-1, member_id="")
