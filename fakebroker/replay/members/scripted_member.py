"""A state machine of a group member that follows a script. It returns the requests to send, and records events.

Does not depend on sockets or clocks: all `now_ms` are milliseconds since the Unix epoch. A `GroupMember` of
`fakebroker.client`, called the client's member here, decides what to send and when; it is of the classic or of the
consumer protocol. The scripted member sends requests of its own only during the actions "slow" and "zombie".
"""

import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, auto
from functools import partial
from hashlib import blake2b
from typing import Any

from fakebroker.client.member import requests
from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.effects import (
    Discover,
    FetchMetadata,
    GroupRequest,
    GroupResponse,
    Revoked,
    Revoking,
    Send,
)
from fakebroker.client.member.group_member import GroupMember
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.replay.members.consumption import Consumption, Growth
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.request_events import (
    NO_NAMES,
    NOT_SENT,
    REBALANCE_REQUESTS,
    SentRequest,
    answered_event,
    to_us,
    unanswered_event,
)
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, UNANSWERED
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.script.script import Act, Script
from fakebroker.topic_partition import TopicPartition, by_topic

LEAVE_TIMEOUT_MS = 5_000.0
"""How long a member that leaves waits for its last responses."""

_SENT_WITHOUT_POLLING = (HeartbeatRequest, LeaveGroupRequest, ConsumerGroupHeartbeatRequest)
"""Requests that Kafka's consumer sends from its heartbeat thread; of the consumer protocol, from its network thread."""

_OTHER_PROTOCOL: Mapping[GroupProtocol, GroupProtocol] = {"classic": "consumer", "consumer": "classic"}


class Mode(Enum):
    """The mode of a member, set by the actions of its script.

    NORMAL: All calls go to the client's member, and its requests are sent.
    SLOW: The application does not poll: only the requests of the consumer's heartbeat thread are sent.
    PAUSED: Nothing is sent; responses and other calls are deferred.
    SILENT: Like PAUSED, while a zombie waits for its session to expire.
    ZOMBIE: The scripted member sends heartbeats and commits under the old member id; calls for the client's member are
        deferred.
    """

    NORMAL = auto()
    SLOW = auto()
    PAUSED = auto()
    SILENT = auto()
    ZOMBIE = auto()


_NORMAL, _SLOW = Mode.NORMAL, Mode.SLOW  # A global is faster than an attribute of an enumeration.


class Timer(IntEnum):
    """Timers of a scripted member, in addition to its client's timers. Ties are resolved in this order.

    RESUME: The mode ends.
    ACTION: The next action of the script is due.
    POLL_LIMIT: The member has not polled for the rebalance timeout (Kafka's `max.poll.interval.ms`).
    LEAVE_TIMEOUT: The wait for the last responses ends.
    HEARTBEAT, COMMIT: The scripted member sends a request in place of the client's member.
    """

    RESUME = auto()
    ACTION = auto()
    POLL_LIMIT = auto()
    LEAVE_TIMEOUT = auto()
    HEARTBEAT = auto()
    COMMIT = auto()


class ScriptedMember:
    """A member that follows a script. One request is in flight at a time, the others are queued.

    After each call the driver (`MemberDriver`) calls `take_disconnect`, `take_discovery`, `take_metadata` and
    `take_request`, carries out their results, and reads `next_deadline` again.

    Only `_execute_effects` performs the effects of `member`. Call it after each call of `member` that may add effects.

    Args:
        script: The script.
        start_ms: When the replay starts, in milliseconds since the Unix epoch.
        record: Receives the events of requests and actions.
        closed_loop: Whether to send each heartbeat as soon as the previous one is answered.

    Attributes:
        script: The script.
        member: The client's member: the state machine that joins the group, sends heartbeats and commits. It is
            replaced by one of the other protocol when the member migrates.
        node_id: Node id of the last known coordinator, -1 before there is one.
        address: Host and port of that coordinator.
    """

    __slots__ = (
        "_acts_done",
        "_closed_loop",
        "_consumption",
        "_deferred",
        "_disconnect_wanted",
        "_discovery_ms",
        "_has_coordinator",
        "_ids",
        "_in_flight",
        "_in_flight_is_own",
        "_mode",
        "_names",
        "_next_timer_ms",
        "_own_queue",
        "_protocol",
        "_queue",
        "_record",
        "_restarts_on_resume",
        "_sent_ms",
        "_start_ms",
        "_timers",
        "_topics",
        "_version",
        "address",
        "member",
        "node_id",
        "script",
    )

    def __init__(
        self, script: Script, start_ms: float, record: Callable[[Event], None], *, closed_loop: bool = False
    ) -> None:
        self.script = script
        self.node_id, self.address = -1, ("", 0)
        self._start_ms, self._protocol, self._ids = start_ms, script.protocol, 0
        self.member = self._new_member()
        self._names = NO_NAMES  # Of topics, by id.
        self._record, self._closed_loop = record, closed_loop
        self._consumption = Consumption(script.consume_per_s) if script.consume_per_s else None
        self._mode = Mode.NORMAL
        self._acts_done = 0
        self._has_coordinator = False  # Whether to disconnect when `member` loses its coordinator.
        self._restarts_on_resume = False  # The member left at the poll limit and rejoins when it polls.
        self._queue: list[Send] = []
        self._own_queue: list[Send] = []  # Requests in place of the client's member, sent first.
        self._in_flight: Send | None = None
        self._in_flight_is_own = False
        self._version, self._sent_ms = NOT_SENT, 0.0  # Of the request in flight.
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # Calls, without the argument `now_ms`.
        self._disconnect_wanted = False
        self._discovery_ms: float | None = None  # For `take_discovery`.
        self._topics: tuple[tuple[str, ...], float] | None = None  # For `take_metadata`.
        self._timers: dict[Timer, float] = {}
        self._next_timer_ms = math.inf
        self._schedule_next_action()

    def _new_member(self) -> GroupMember:
        """Return a member of the present protocol."""
        script = self.script
        if self._protocol == "consumer":
            settings = ConsumerMemberSettings(
                group_id=script.group,
                client_id=script.member,
                topics=script.topics,
                instance_id=script.instance_id,
                rebalance_timeout_ms=script.rebalance_timeout_ms,
                commit_interval_ms=script.commit_interval_ms,
                awaits_revocation=True,
            )
            return ConsumerMember(settings, self._new_id)
        return Member(
            MemberSettings(
                group_id=script.group,
                client_id=script.member,
                topics=script.topics,
                instance_id=script.instance_id,
                assignor=script.assignor,
                session_timeout_ms=script.session_timeout_ms,
                rebalance_timeout_ms=script.rebalance_timeout_ms,
                heartbeat_interval_ms=script.heartbeat_interval_ms,
                commit_interval_ms=script.commit_interval_ms,
            )
        )

    def _new_id(self) -> str:
        """Return a member id in Kafka's form of a UUID. It differs among members, starts and replays."""
        self._ids += 1
        key = f"{self._start_ms} {self.script.group} {self.script.member} {self._ids}"
        return urlsafe_b64encode(blake2b(key.encode(), digest_size=16).digest()).decode().rstrip("=")

    @property
    def is_joined(self) -> bool:
        """Whether the scripted member is a member of its group now."""
        return self.member.is_joined

    @property
    def is_rejoining(self) -> bool:
        """Whether the coordinator may know the member: it had found one before, or the member is static (KIP-345)."""
        return self.member.is_rediscovering or self.script.instance_id is not None

    @property
    def is_done(self) -> bool:
        """Whether all actions are done and no response is pending."""
        return not self._timers and self._in_flight is None and self.member.is_down

    @property
    def idle_until(self) -> float:
        """When anything but heartbeats and commits is due, if these succeed; -inf if the member is not idle now."""
        if self._in_flight is not None or self._queue or self._own_queue or self._mode is not _NORMAL:
            return -math.inf
        return -math.inf if self._closed_loop else min(self._next_timer_ms, self.member.idle_until())

    @property
    def is_suspended(self) -> bool:
        """Whether the process does nothing, or only sends requests of an earlier session."""
        return not self._is_responsive

    @property
    def is_processing(self) -> bool:
        """Whether the application polls, and the member owns partitions with known positions."""
        member = self.member
        return self._mode is Mode.NORMAL and member.is_joined and bool(member.positions)

    def seek_to_committed(self, now_ms: float) -> None:
        """Look up the committed offsets again. Call it only if the member is neither idle nor suspended."""
        self.member.seek_to_committed(now_ms)
        self._execute_effects(now_ms)

    @property
    def _is_responsive(self) -> bool:
        """Whether calls go to the client's member at once instead of being deferred."""
        return self._mode is _NORMAL or self._mode is _SLOW

    def positions_at(self, now_ms: float) -> dict[TopicPartition, int]:
        """Return the offsets that a commit contains."""
        if self._consumption is not None:
            self._consumption.advance(self.member.positions, now_ms)
        return self.member.known_positions()

    def commits_skipped(self, last_ms: float) -> dict[TopicPartition, int]:
        """Automatic commits were sent on the member's behalf, and all succeeded.

        Args:
            last_ms: When the last one was due.

        Returns:
            The offsets in the last commit.
        """
        if self._consumption is not None:
            self._consumption.advance(self.member.positions, last_ms)
        return self.member.commits_skipped(last_ms + self.script.commit_interval_ms)

    def growth_of(self, committed: Mapping[TopicPartition, int]) -> list[Growth]:
        """Return how committed offsets grow, in the order of the partitions in a commit."""
        consumption = self._consumption
        partitions = [(topic, index) for topic, indexes in by_topic(committed).items() for index in indexes]
        return [
            (consumption and consumption.growth_of(each)) or Growth(f"{each[0]}-{each[1]}", committed[each])
            for each in partitions
        ]

    def finish(self, now_ms: float) -> None:
        """Record a request in flight as cut off, at the end of the replay."""
        self._record_unanswered(CUT_OFF, now_ms, ended=False)

    def pending(self, now_ms: float) -> Event | None:
        """Return what `finish` would record now, without changing anything; None without a request in flight."""
        return None if self._in_flight is None else self._unanswered(self._in_flight, CUT_OFF, now_ms)

    # Time

    def next_deadline(self) -> float:
        """Return when to call `tick`, in milliseconds since the Unix epoch; infinite for never."""
        due_ms = self.member.next_deadline() if self._mode is _NORMAL or self._mode is _SLOW else None
        timer_ms = self._next_timer_ms
        return timer_ms if due_ms is None or timer_ms < due_ms else due_ms

    def tick(self, now_ms: float) -> None:
        """Process all deadlines up to now: the timers of the scripted member first, then the client's member."""
        while self._next_timer_ms <= now_ms:
            self._fire_next_timer(now_ms)
        if self._is_responsive:
            self.member.tick(now_ms)
            self._execute_effects(now_ms)

    def _set(self, timer: Timer, due_ms: float) -> None:
        self._timers[timer] = due_ms
        self._next_timer_ms = min(self._timers.values())

    def _cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._timers.pop(timer, None)
        self._next_timer_ms = min(self._timers.values(), default=math.inf)

    def _fire_next_timer(self, now_ms: float) -> None:
        timer = min(self._timers, key=lambda each: (self._timers[each], each))
        due_ms = self._timers[timer]
        self._cancel(timer)
        match timer:
            case Timer.ACTION:
                act = self.script.acts[self._acts_done]
                self._acts_done += 1
                self._schedule_next_action()
                self._perform(act, due_ms, now_ms)
            case Timer.RESUME:
                self._resume(now_ms)
            case Timer.POLL_LIMIT:
                self._restarts_on_resume = True
                self._queue.clear()
                self._cancel(Timer.HEARTBEAT)
                self._leave(now_ms, polls=False)
            case Timer.LEAVE_TIMEOUT:
                # The script stopped the wait for the end of a rebalance, which may take longer.
                is_parked = self._in_flight is not None and isinstance(self._in_flight.request, REBALANCE_REQUESTS)
                self._disconnect(CUT_OFF if is_parked else UNANSWERED, now_ms)
            case Timer.HEARTBEAT | Timer.COMMIT:
                self._send_for_member(timer, due_ms, now_ms)

    # Actions of the script

    def _schedule_next_action(self) -> None:
        if self._acts_done < len(self.script.acts):
            self._set(Timer.ACTION, self._start_ms + self.script.acts[self._acts_done].at_ms)

    def _perform(self, act: Act, due_ms: float, now_ms: float) -> None:
        """Perform an action, which ends the mode of an earlier one. On a stopped member only "start" has an effect."""
        if act.action == "crash":
            self._deferred.clear()
        if act.action != "start" or self.member.is_down:
            self._end_mode(now_ms)
        identity = self.member.identity
        self._record(
            Event(
                *(to_us(due_ms), to_us(now_ms), None, act.action, NOT_SENT, -1, self.script.group, self.script.member),
                kind="act",
                generation=None if identity.generation_id < 0 else identity.generation_id,
                member_id=identity.member_id or None,
                instance_id=self.script.instance_id,
            )
        )
        if act.action == "start":
            if self.member.is_down:
                self.member.crash(now_ms)  # What starts is a new process.
            self._start(now_ms)
        elif not self.member.is_down:
            self._perform_running(act, now_ms)
        if act.action == "migrate":
            self._protocol = _OTHER_PROTOCOL[self._protocol]
            self.member = self._new_member()

    def _perform_running(self, act: Act, now_ms: float) -> None:
        match act.action:
            case "leave" | "migrate":
                self._leave(now_ms)
            case "crash":
                self.member.crash(now_ms)
                self._disconnect(CUT_OFF, now_ms)
            case "pause":
                self._enter(Mode.PAUSED, act.for_ms, now_ms)
            case "slow":
                self._enter(Mode.SLOW, act.for_ms, now_ms)
                if act.for_ms > self.script.rebalance_timeout_ms:
                    self._set(Timer.POLL_LIMIT, now_ms + self.script.rebalance_timeout_ms)
            case "zombie":
                self._become_zombie(act.for_ms, now_ms)

    def _start(self, now_ms: float) -> None:
        if self.member.is_down:
            if Timer.LEAVE_TIMEOUT in self._timers:
                self._disconnect(CUT_OFF, now_ms)
            self.member.start(now_ms)
            self._execute_effects(now_ms)

    def _leave(self, now_ms: float, *, polls: bool = True) -> None:
        """Leave the group, and wait for the responses.

        Args:
            now_ms: The time.
            polls: False at the poll limit, where the consumer leaves without a commit.
        """
        self._has_coordinator = False  # `member` loses its coordinator now, but the LeaveGroup needs the connection.
        if polls:
            self.member.leave(now_ms)
        else:
            self.member.expire(now_ms)
        self._set(Timer.LEAVE_TIMEOUT, now_ms + LEAVE_TIMEOUT_MS)
        self._execute_effects(now_ms)
        self._end_leave(now_ms)

    def _end_leave(self, now_ms: float) -> None:
        """Disconnect after leaving, once all requests are sent and answered."""
        if self._in_flight is None and not self._queue and Timer.LEAVE_TIMEOUT in self._timers:
            self._disconnect(CUT_OFF, now_ms)

    def _enter(self, mode: Mode, for_ms: float, now_ms: float) -> None:
        self._mode = mode
        self._set(Timer.RESUME, now_ms + for_ms)
        if self._consumption is not None and mode is not Mode.SILENT:  # A zombie continues to consume.
            self._consumption.stop(self.member.positions, now_ms)
        if mode is Mode.SLOW:
            self._heartbeat_during_join(now_ms)

    def _become_zombie(self, for_ms: float, now_ms: float) -> None:
        """Send nothing for the session timeout and one heartbeat interval: then the session has expired."""
        silent_ms = self.script.session_timeout_ms + self._heartbeat_interval_ms
        self._enter(Mode.SILENT, silent_ms + for_ms, now_ms)
        if self.member.member_id:
            self._set(Timer.HEARTBEAT, now_ms + silent_ms)
            if self.script.commit_interval_ms:
                self._set(Timer.COMMIT, now_ms + silent_ms)

    def _end_mode(self, now_ms: float) -> None:
        if self._mode is not Mode.NORMAL:
            self._cancel(Timer.RESUME)
            self._resume(now_ms)

    def _resume(self, now_ms: float) -> None:
        """Return to the normal mode, and make deferred calls."""
        self._mode = Mode.NORMAL
        self._cancel(Timer.HEARTBEAT, Timer.COMMIT, Timer.POLL_LIMIT)
        self._own_queue.clear()
        if self._consumption is not None:
            self._consumption.resume(self.member.positions, now_ms)
        self.member.revoked(now_ms)  # What the application was asked to give up while it did not poll.
        self._execute_effects(now_ms)
        self._run_deferred(now_ms)
        if self._restarts_on_resume:
            self._restarts_on_resume = False
            self._start(now_ms)

    def _run_deferred(self, now_ms: float) -> None:
        deferred, self._deferred = self._deferred, []
        for call, arguments in deferred:
            call(*arguments, now_ms)
            self._execute_effects(now_ms)

    # Requests sent in place of the client's member

    def _send_for_member(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        if self._mode is Mode.SILENT:  # The session has expired: the zombie begins to send.
            self._mode = Mode.ZOMBIE
            self._run_deferred(now_ms)
        if timer is Timer.HEARTBEAT:
            self._send_own(self.member.heartbeat_request(), due_ms)
            self._set(timer, due_ms + self._heartbeat_interval_ms)
        else:
            self._commit_own(due_ms, now_ms)
            self._set(timer, due_ms + self.script.commit_interval_ms)

    def _commit_own(self, due_ms: float, now_ms: float) -> None:
        member = self.member
        if self._consumption is not None:
            self._consumption.advance(member.positions, now_ms)
        positions = {each: member.positions[each] for each in member.assigned if each in member.positions}
        if positions:
            self._send_own(requests.offset_commit(member.identity, positions), due_ms)

    @property
    def _heartbeat_interval_ms(self) -> float:
        """The member's heartbeat interval; the script's while the member does not know the brokers' interval."""
        return self.member.heartbeat_interval_ms or self.script.heartbeat_interval_ms

    def _send_own(self, request: GroupRequest, scheduled_ms: float) -> None:
        """Queue a request; at most one of each type, in case the broker does not respond."""
        if not any(type(send.request) is type(request) for send in self._own_queue):
            self._own_queue.append(Send(request, scheduled_ms))

    def _heartbeat_during_join(self, now_ms: float) -> None:
        """Start heartbeats for a slow member whose JoinGroup is queued, because the client's member then sends none."""
        is_join_queued = any(isinstance(send.request, JoinGroupRequest) for send in self._queue)
        if is_join_queued and self.member.generation_id >= 0 and Timer.HEARTBEAT not in self._timers:
            self._set(Timer.HEARTBEAT, now_ms + self._heartbeat_interval_ms)

    # Responses

    def answered(self, response: GroupResponse, now_ms: float) -> None:
        """Process the response to the request in flight."""
        send = self._in_flight
        if send is None:
            return
        mode = self._mode
        if mode is not _NORMAL and (mode is Mode.PAUSED or mode is Mode.SILENT):
            self._deferred.append((self.answered, (response,)))
            return
        self._in_flight = None
        sent = self._sent_request(send)
        latency_us = to_us(now_ms) - sent[0]
        self._record(answered_event(sent, latency_us, send.request, response, self.script, self._names))
        if self._in_flight_is_own:
            self._end_leave(now_ms)
        elif mode is Mode.ZOMBIE:
            self._deferred.append((self.member.answered, (send.request, response)))
        else:
            self._pass_response(send, response, now_ms)

    def _pass_response(self, send: Send, response: GroupResponse, now_ms: float) -> None:
        self.member.answered(send.request, response, now_ms)
        if type(response) is HeartbeatResponse:
            if self._closed_loop and not response.error_code and not self._queue:
                self.member.heartbeat_now(now_ms)
        elif self._consumption is not None and isinstance(response, OffsetFetchResponse):
            self._consumption.begin(self.member.positions, now_ms)
        self._execute_effects(now_ms)
        self._end_leave(now_ms)

    def connection_lost(self, now_ms: float) -> None:
        """Process that the connection was lost, or could not be opened."""
        if self._mode is Mode.PAUSED or self._mode is Mode.SILENT:
            self._deferred.append((self.connection_lost, ()))
            return
        self._record_unanswered(LOST, now_ms)
        if self._mode is Mode.ZOMBIE:
            self._deferred.append((self.member.connection_lost, ()))
            return
        self._has_coordinator = False  # There is no connection to close.
        self._queue.clear()
        self._end_leave(now_ms)
        self.member.connection_lost(now_ms)
        self._execute_effects(now_ms)

    def _disconnect(self, missing: str, now_ms: float) -> None:
        """Close the connection, and drop queued and pending requests and look-ups.

        Args:
            missing: Why a pending request will have no response, as in `Event.missing`.
            now_ms: The time.
        """
        self._record_unanswered(missing, now_ms)
        self._queue.clear()
        self._own_queue.clear()
        self._discovery_ms = self._topics = None
        self._disconnect_wanted = True
        self._has_coordinator = False
        self._cancel(Timer.LEAVE_TIMEOUT)

    def _record_unanswered(self, missing: str, now_ms: float, *, ended: bool = True) -> None:
        """Record a request in flight without a response. No effect without such a request.

        Args:
            missing: Why there is none, as in `Event.missing`.
            now_ms: The time.
            ended: Whether the wait for the response ends before the replay does.
        """
        send, self._in_flight = self._in_flight, None
        if send is not None:
            event = self._unanswered(send, missing, now_ms)
            self._record(event._replace(until_us=to_us(now_ms)) if ended else event)

    def _unanswered(self, send: Send, missing: str, now_ms: float) -> Event:
        if self._version == NOT_SENT:
            self._sent_ms = now_ms
        return unanswered_event(self._sent_request(send), send.request, self.script, missing, self._names)

    def _sent_request(self, send: Send) -> SentRequest:
        scheduled_us = to_us(send.scheduled_ms)
        sent_us = scheduled_us if self._sent_ms == send.scheduled_ms else to_us(self._sent_ms)
        return SentRequest(scheduled_us, sent_us, self._version, self.node_id)

    # Results of look-ups

    def discovered(self, node_id: int, host: str, port: int, now_ms: float) -> None:
        """Process a found coordinator."""
        if not self._is_responsive:
            self._deferred.append((self.discovered, (node_id, host, port)))
            return
        self.node_id, self.address = node_id, (host, port)
        self.member.discovered(now_ms)
        self._has_coordinator = self.member.has_coordinator
        self._execute_effects(now_ms)

    def discovery_failed(self, error: ErrorCode, now_ms: float) -> None:
        """Process the error of a failed look-up; NETWORK_EXCEPTION if there was no response."""
        self._call_member(self.member.discovery_failed, error, now_ms)

    def metadata(self, partition_counts: Mapping[str, int], topic_ids: Mapping[str, bytes], now_ms: float) -> None:
        """Process the partition counts and ids of topics."""
        if self._protocol == "consumer":
            self._names = {topic_id: name for name, topic_id in topic_ids.items()}
        self._call_member(partial(self.member.metadata, topic_ids=topic_ids), partition_counts, now_ms)

    def _call_member(self, call: Callable[[Any, float], None], result: Any, now_ms: float) -> None:
        """Call a method of the client's member, or defer the call."""
        if not self._is_responsive:
            self._deferred.append((call, (result,)))
            return
        call(result, now_ms)
        self._execute_effects(now_ms)

    # Effects of the client's member

    def _execute_effects(self, now_ms: float) -> None:
        member = self.member
        while member.effects:
            effects, member.effects = member.effects, []
            for effect in effects:
                match effect:
                    case Send():
                        self._enqueue(effect, now_ms)
                    case Discover():
                        self._discovery_ms = effect.scheduled_ms
                    case FetchMetadata():
                        self._topics = (effect.topics, effect.scheduled_ms)
                    case Revoking() if self._mode is Mode.NORMAL:
                        member.revoked(now_ms)  # The application polls, and gives them up at once.
                    case Revoked() if self._consumption is not None:
                        self._consumption.revoke(effect.partitions)
        if self._has_coordinator and not member.has_coordinator:  # Queued requests are for the old coordinator.
            self._disconnect(UNANSWERED, now_ms)

    def _enqueue(self, send: Send, now_ms: float) -> None:
        if type(send.request) is OffsetCommitRequest:
            if self._consumption is not None:
                self._consumption.advance_commit(send.request, self.member.positions, now_ms)
            if self._mode is _SLOW:
                self._replace_queued_commit(now_ms)
        self._queue.append(send)
        if self._mode is _SLOW:
            self._heartbeat_during_join(now_ms)

    def _replace_queued_commit(self, now_ms: float) -> None:
        """Drop the queued commits of a slow member, and report to the client's member that they succeeded."""
        for send in [send for send in self._queue if type(send.request) is OffsetCommitRequest]:
            self._queue.remove(send)
            self.member.answered(send.request, OffsetCommitResponse(topics=[]), now_ms)

    # Called by the driver

    @property
    def has_request(self) -> bool:
        """Whether `take_request` may return a request."""
        return self._in_flight is None and bool(self._queue or self._own_queue)

    @property
    def has_other_work(self) -> bool:
        """Whether one of the other `take_` methods may return work."""
        return self._disconnect_wanted or self._discovery_ms is not None or self._topics is not None

    def take_disconnect(self) -> bool:
        """Return whether to close the connection; the next call returns False."""
        wanted, self._disconnect_wanted = self._disconnect_wanted, False
        return wanted

    def take_discovery(self) -> float | None:
        """Take the requested look-up of the coordinator. Return when it was due; None if there is none now."""
        scheduled_ms = self._discovery_ms
        if scheduled_ms is None or not self._is_responsive:
            return None
        self._discovery_ms = None
        return scheduled_ms

    def take_metadata(self) -> tuple[tuple[str, ...], float] | None:
        """Take the look-up of partition counts. Return topics and when it was due; None if there is none now."""
        wanted = self._topics
        if wanted is None or not self._is_responsive:
            return None
        self._topics = None
        return wanted

    def take_request(self) -> GroupRequest | None:
        """Return the next request to send, and mark it as in flight; None if there is none, or one is in flight."""
        if self._in_flight is not None or not (self._queue or self._own_queue):
            return None
        send = self._next_send()
        if send is None:
            return None
        self._in_flight, self._version = send, NOT_SENT
        return send.request

    def _next_send(self) -> Send | None:
        self._in_flight_is_own = bool(self._own_queue)
        if self._own_queue:
            return self._own_queue.pop(0)
        if self._mode is _NORMAL:
            return self._queue.pop(0)
        if self._mode is Mode.SLOW:
            for index, send in enumerate(self._queue):
                if isinstance(send.request, _SENT_WITHOUT_POLLING):
                    return self._queue.pop(index)
        return None

    def sent(self, version: int, now_ms: float) -> None:
        """Store when, and in which version, the request in flight was sent."""
        self._version, self._sent_ms = version, now_ms
