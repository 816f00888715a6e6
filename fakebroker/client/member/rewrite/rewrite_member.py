"""A consumer of the rewrite design as a state machine: calls go in, effects come out.

After each call the driver carries out `effects`; it calls `tick` when `next_deadline` has passed. Does not depend on
sockets, clocks or request versions. Where the document is silent, these readings are implemented:

- The first JoinGroup has no consumer id. After UnknownConsumer the consumer joins as a new consumer, because it could
  never join again with its former id. Other consumers may own its partitions already.
- CoordinatorStartupNotComplete and IllegalProtocolState are retried after a back-off at the same coordinator.
- After NotCoordinatorForGroup and lost connections, the coordinator is looked up after a back-off.
- JoinGroup follows when the last commit is answered, whether or not it has succeeded. Partitions are given up with it.
- No heartbeats are sent from IllegalGeneration on, not only while a JoinGroup waits: a broker handles one request of a
  client at a time.
- If a consumer loses its coordinator after it has stopped consumption, it does not resume consumption. It joins at the
  new coordinator without a heartbeat before.
- There is no request for leaving a group: the coordinator notices after a session timeout.
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
)
from fakebroker.client.member.group_member import NO_TOPIC_IDS, GroupMember
from fakebroker.client.member.pending import Timer
from fakebroker.client.member.reactions import Reaction, error_in
from fakebroker.client.member.requests import Identity
from fakebroker.client.member.rewrite.reactions import reaction_to
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.client.member.rewrite.states import TRANSITIONS, RewriteMemberState
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest, RewriteJoinGroupResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse

_State = RewriteMemberState


class RewriteMember(GroupMember):
    """One consumer; its consumer id is the member id. It does not wait for its application.

    Attributes:
        state: See `RewriteMemberState`.
        topics: The subscription; with a pattern, the topics that match it.
    """

    settings: RewriteSettings
    state: RewriteMemberState
    _look_up_api = "ConsumerMetadata"

    def __init__(self, settings: RewriteSettings) -> None:
        self.settings = settings
        self.state = _State.DOWN
        super().__init__()

    def _first_identity(self) -> Identity:
        return Identity(self.settings.group_id, None)

    def _reset(self) -> None:
        super()._reset()
        self.topics = self.settings.topics
        self._knows_topics = self.settings.pattern is None
        self._has_stopped = True  # consumption; the consumer has to join before it consumes
        self._has_committed = True  # the last commit before the JoinGroup is done
        self._rejoin_needed = False  # the subscription has changed since the last JoinGroup

    @property
    def is_down(self) -> bool:
        return self.state is _State.DOWN

    @property
    def is_joined(self) -> bool:
        return self.state is _State.PART_OF_GROUP

    @property
    def is_in_generation(self) -> bool:
        """Whether the consumer fetches from its partitions; it also does while the coordinator is looked up again."""
        return not self._has_stopped

    @property
    def is_rediscovering(self) -> bool:
        return self.state is _State.REDISCOVERING

    @property
    def heartbeat_interval_ms(self) -> float:
        return self.settings.heartbeat_interval_ms

    # Application calls

    def start(self, now_ms: float) -> None:
        if self.state is _State.DOWN:
            self._enter(_State.DISCOVERING)
            if not self._knows_topics:
                self.effects.append(FetchMetadata((), now_ms))
            self.effects.append(Discover(now_ms))

    def leave(self, now_ms: float, *, remove_static: bool = False) -> None:
        """Commit and stop, without waiting for responses. The coordinator notices after a session timeout."""
        if self.state is _State.PART_OF_GROUP and self.settings.commit_interval_ms:
            self._commit(now_ms)
        self._revoke(self.assigned, now_ms, lost=False)
        self._stop()

    def expire(self, now_ms: float) -> None:
        self._revoke(self.assigned, now_ms, lost=True)
        self._stop()

    def commit(self, now_ms: float) -> None:
        if self.state is _State.PART_OF_GROUP:
            self._commit(now_ms)
        elif self.state is _State.REDISCOVERING:
            self.effects.append(CommitRejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms))
        else:
            self.effects.append(CommitRejected(ErrorCode.REBALANCE_IN_PROGRESS, now_ms))

    def subscribe(self, topics: Iterable[str], now_ms: float, *, pattern: str | None = None) -> None:
        """Replace the subscription; a consumer that is part of a group rejoins with it."""
        self.topics = tuple(topics)
        self._rejoin_needed = True
        if self.state is _State.PART_OF_GROUP:
            self._stop_consumption(now_ms)

    # Look-ups, responses and time

    def discovered(self, now_ms: float) -> None:
        if self.has_coordinator or self.state not in (_State.DISCOVERING, _State.REDISCOVERING):
            return
        self.has_coordinator = True
        if self.state is _State.DISCOVERING:
            self._join_when_topics_are_known(now_ms)
        elif self._has_stopped:
            self._enter(_State.STOPPED)
            self._commit_and_join(now_ms)
        else:
            self._enter(_State.PART_OF_GROUP)
            self._extend_session(now_ms)
            self._heartbeat(now_ms, now_ms)
            if self._rejoin_needed:
                self._stop_consumption(now_ms)
                return
            self._continue_generation(now_ms)

    def metadata(
        self, partition_counts: Mapping[str, int], now_ms: float, *, topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS
    ) -> None:
        """Report the partition counts of all topics: a consumer with a pattern updates its subscription.

        Changed partition counts are the coordinator's concern.
        """
        if self.settings.pattern is None or self.state is _State.DOWN:
            return
        matching = self.settings.matching(partition_counts)
        if not self._knows_topics:
            self._knows_topics, self.topics = True, matching
            if self.has_coordinator:
                self._join_when_topics_are_known(now_ms)
        elif matching != self.topics:
            self.subscribe(matching, now_ms)

    def answered(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        sent_as = self._in_flight.pop(request)
        if sent_as is None:
            return
        error = error_in(response)
        if error is ErrorCode.NONE:
            self._on_success(response, now_ms)
        else:
            self._on_error(response, error, sent_as, now_ms)
        if self.state is _State.STOPPED and isinstance(response, OffsetCommitResponse):
            self._join_when_committed(now_ms)

    def _on_timer(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        match timer:
            case Timer.HEARTBEAT:
                self._heartbeat(due_ms, now_ms)
            case Timer.COMMIT:
                self._commit_on_timer(due_ms, now_ms)
            case Timer.RETRY:
                self._retry(due_ms, now_ms)
            case Timer.SESSION | Timer.REBALANCE:
                self._lose_coordinator(now_ms)

    def _retry(self, due_ms: float, now_ms: float) -> None:
        if not self.has_coordinator:
            self.effects.append(Discover(due_ms))
        elif self.state is _State.PART_OF_GROUP:
            self._fetch_offsets(due_ms)
        elif self._has_committed:
            self._join(due_ms, now_ms)
        else:
            self._commit_and_join(now_ms)

    # State, timers and requests

    def _enter(self, state: RewriteMemberState) -> None:
        """Change the state; the only method that does. Cancels all timers."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"consumer {self.member_id!r}: no transition from {self.state} to {state}")
        self.state = state
        self._timers.cancel_except()

    def _stop(self) -> None:
        if self.state is not _State.DOWN:
            self._enter(_State.DOWN)
            self._reset()

    def _fail_on_response(self, api: str, error: ErrorCode, now_ms: float, text: str | None = None) -> None:
        self._revoke(self.assigned, now_ms, lost=True)
        message = f"{api} for group {self.settings.group_id!r} failed with {error.name}"
        self.effects.append(Fatal(error, message, now_ms, self.identity))
        self._stop()

    def _extend_session(self, now_ms: float) -> None:
        self._timers.set(Timer.SESSION, now_ms + self.settings.session_timeout_ms)

    def _coordinator_lost(self) -> None:
        if self.state is _State.DISCOVERING:
            self._timers.cancel_except()
        else:
            self._enter(_State.REDISCOVERING)

    # Rebalances

    def _stop_consumption(self, now_ms: float) -> None:
        """Stop fetching, commit, and join again."""
        self._has_stopped, self._has_committed = True, False
        self._enter(_State.STOPPED)
        self._commit_and_join(now_ms)

    def _commit_and_join(self, now_ms: float) -> None:
        if not self._has_committed and self.settings.commit_interval_ms:
            self._timers.set(Timer.REBALANCE, now_ms + self.settings.session_timeout_ms)
            self._commit(now_ms)
        self._join_when_committed(now_ms)

    def _join_when_committed(self, now_ms: float) -> None:
        if not self._in_flight.has(OffsetCommitRequest) and Timer.RETRY not in self._timers and not self._is_joining:
            self._join(now_ms, now_ms)

    @property
    def _is_joining(self) -> bool:
        return self._in_flight.has(RewriteJoinGroupRequest)

    def _join_when_topics_are_known(self, now_ms: float) -> None:
        if self._knows_topics:
            self._join(now_ms, now_ms)

    def _join(self, scheduled_ms: float, now_ms: float) -> None:
        self._has_committed, self._rejoin_needed = True, False
        self._revoke(self.assigned, now_ms, lost=False)
        self._timers.cancel_except()
        self._timers.set(Timer.REBALANCE, now_ms + self.settings.longest_join_ms)
        request = RewriteJoinGroupRequest(
            group_id=self.settings.group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            topics=list(self.topics),
            consumer_id=self.member_id if self.settings.sends_consumer_id else "",
            partition_assignment_strategy=self.settings.strategy,
        )
        self._send(request, scheduled_ms)

    def _joined(self, response: RewriteJoinGroupResponse, now_ms: float) -> None:
        self.identity = replace(
            self.identity, member_id=response.consumer_id, generation_id=response.group_generation_id
        )
        self._enter(_State.PART_OF_GROUP)
        self._has_stopped = False
        self._extend_session(now_ms)
        self._timers.set(Timer.HEARTBEAT, now_ms + self.settings.heartbeat_interval_ms)
        if self.settings.commit_interval_ms:
            self._timers.set(Timer.COMMIT, now_ms + self.settings.commit_interval_ms)
        self.assigned = tuple(
            (topic.topic_name, partition) for topic in response.partitions_to_own for partition in topic.partitions
        )
        self.effects.append(Assigned(self.assigned, self.generation_id, now_ms))
        self._fetch_offsets(now_ms)
        if self._rejoin_needed:
            self._stop_consumption(now_ms)

    # Responses

    def _on_success(self, response: GroupResponse, now_ms: float) -> None:
        self._backoff.reset()
        match response:
            case HeartbeatResponse():
                self._timers.extend(Timer.SESSION, now_ms + self.settings.session_timeout_ms)
            case RewriteJoinGroupResponse():
                self._joined(response, now_ms)
            case OffsetFetchResponse():
                self._set_positions(requests.fetched_offsets(response), now_ms)

    def _on_error(self, response: GroupResponse, error: ErrorCode, sent_as: Identity, now_ms: float) -> None:
        if isinstance(response, HeartbeatResponse | OffsetCommitResponse) and self._is_outdated(sent_as):
            if isinstance(response, OffsetCommitResponse):
                self.effects.append(CommitRejected(error, now_ms))
            return
        match reaction_to(error, response):
            case Reaction.REDISCOVER:
                self._lose_coordinator(now_ms)
            case Reaction.RETRY:
                self._schedule_retry(response, now_ms)
            case Reaction.FATAL:
                self._fail_on_response(
                    type(response).__name__.removesuffix("Response").removeprefix("Rewrite"), error, now_ms
                )
            case Reaction.FORGET_MEMBER_ID:
                self._start_over(response, error, now_ms)
            case reaction:
                if isinstance(response, OffsetCommitResponse):
                    self.effects.append(CommitRejected(error, now_ms))
                if reaction is Reaction.REJOIN and self.state is _State.PART_OF_GROUP:
                    self._stop_consumption(now_ms)

    def _is_outdated(self, sent_as: Identity) -> bool:
        """Whether an error belongs to an earlier generation, or a JoinGroup is on its way that decides instead."""
        return sent_as != self.identity or self._is_joining

    def _start_over(self, response: GroupResponse, error: ErrorCode, now_ms: float) -> None:
        """Join as a new consumer: the coordinator does not know this one any more."""
        if isinstance(response, OffsetCommitResponse):
            self.effects.append(CommitRejected(error, now_ms))
        self.identity = Identity(self.settings.group_id, None)
        self._revoke(self.assigned, now_ms, lost=True)
        self._has_stopped = self._has_committed = True
        if self.state is _State.PART_OF_GROUP:
            self._enter(_State.STOPPED)
        self._join(now_ms, now_ms)

    def _schedule_retry(self, response: GroupResponse, now_ms: float) -> None:
        match response:
            case HeartbeatResponse() if Timer.HEARTBEAT in self._timers:
                self._timers.set(Timer.HEARTBEAT, now_ms + self._backoff.next_delay_ms())
            case OffsetCommitResponse() if self.state in (_State.PART_OF_GROUP, _State.STOPPED):
                self._retry_commit(now_ms, is_awaited=self.state is _State.STOPPED)
            case RewriteJoinGroupResponse():
                self._back_off(now_ms)
            case OffsetFetchResponse() if self.state is _State.PART_OF_GROUP:
                self._back_off(now_ms)
