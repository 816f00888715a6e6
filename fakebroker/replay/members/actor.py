"""One script being played: a group member, its deeds, and the events that come of them.

Pure: calls go in, requests and events come out. Knows no sockets and no clock; what to send and when is the member's
business, but for what the deeds `slow` and `zombie` make of it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fakebroker.client.member import requests
from fakebroker.client.member.effects import Discover, FetchMetadata, GroupResponse, Revoked, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.replay.members.consumption import Consumption
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.exchange import NOT_SENT, to_us
from fakebroker.replay.members.messenger import FAREWELL_MS, Messenger
from fakebroker.replay.members.modes import Mode, Timer
from fakebroker.replay.script.script import Act, Script


class Actor(Messenger):
    """One script being played; one request is in flight at a time, the others wait in their order.

    After every call the transport carries out `take_hang_up`, `take_discovery`, `take_metadata` and `take_request`, and
    reads `next_deadline` again.

    Args:
        script: What to do.
        start_ms: When the replay starts.
        record: Takes each event.
        closed_loop: Send each heartbeat as soon as the last one is answered.

    Attributes:
        node_id: The coordinator found last, -1 before there is one.
        address: Where that is.
    """

    __slots__ = (
        "_acts_done",
        "_closed_loop",
        "_consumption",
        "_has_coordinator",
        "_returns",
        "_ring_ms",
        "_start_ms",
        "_timers",
        "member",
    )

    def __init__(
        self, script: Script, start_ms: float, record: Callable[[Event], None], *, closed_loop: bool = False
    ) -> None:
        super().__init__(script, record)
        self.member = Member(
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
        self._start_ms, self._closed_loop = start_ms, closed_loop
        self._consumption = Consumption(script.consume_per_s) if script.consume_per_s else None
        self._acts_done, self._has_coordinator = 0, False
        self._returns = False  # It left for want of polling, and comes back when it polls again.
        self._timers: dict[Timer, float] = {}
        self._ring_ms = math.inf  # The earliest of them.
        self._await_next_deed()

    @property
    def is_joined(self) -> bool:
        """Whether it is part of its group now."""
        return self.member.state is MemberState.PART_OF_GROUP

    @property
    def seeks_again(self) -> bool:
        """Whether the coordinator that it looks for may know it already: it had one, or it is static (KIP-345)."""
        return self.member.state is MemberState.REDISCOVERING or self.script.instance_id is not None

    @property
    def is_done(self) -> bool:
        """Whether it has done all that its script says and awaits no answer any more."""
        return not self._timers and self._flying is None and self.member.state is MemberState.DOWN

    @property
    def rests_until(self) -> float:
        """When it has something to do besides heartbeats, if those are answered; -inf if there is something now."""
        return -math.inf if self._is_busy or self._closed_loop else min(self._ring_ms, self.member.idle_until())

    def commit_at_rest(self, due_ms: float, until_ms: float) -> OffsetCommitRequest | None:
        """The commit that is due, if the member rests and has nothing else to do until then but heartbeats."""
        if self._ring_ms <= until_ms:
            return None
        if self._consumption is not None:
            self._consumption.move_on(self.member.positions, due_ms)
        return self.member.idle_commit(due_ms, until_ms)

    # Time

    def next_deadline(self) -> float:
        """When `tick` has something to do, in milliseconds since the Unix epoch; infinite for never."""
        due_ms = self.member.next_deadline() if self._is_attentive else None
        return self._ring_ms if due_ms is None else min(due_ms, self._ring_ms)

    def tick(self, now_ms: float) -> None:
        """Do what is due, the actor's own things first."""
        while self._ring_ms <= now_ms:
            self._ring(now_ms)
        if self._is_attentive:
            self.member.tick(now_ms)
            self._follow_up(now_ms)

    def _set(self, timer: Timer, due_ms: float) -> None:
        self._timers[timer] = due_ms
        self._ring_ms = min(self._timers.values())

    def _drop(self, *timers: Timer) -> None:
        for timer in timers:
            self._timers.pop(timer, None)
        self._ring_ms = min(self._timers.values(), default=math.inf)

    def _ring(self, now_ms: float) -> None:
        """Do the one thing that was due first."""
        timer = min(self._timers, key=lambda each: (self._timers[each], each))
        due_ms = self._timers[timer]
        self._drop(timer)
        match timer:
            case Timer.DEED:
                act = self.script.acts[self._acts_done]
                self._acts_done += 1
                self._await_next_deed()
                self._perform(act, due_ms, now_ms)
            case Timer.RESUME:
                self._resume(now_ms)
            case Timer.POLL_LIMIT:
                self._returns = True
                self._queue.clear()
                self._leave(now_ms, commits=False)
            case Timer.FAREWELL:
                self._abandon(now_ms)
            case Timer.BEAT | Timer.COMMIT:
                self._act_for_member(timer, due_ms, now_ms)

    # Deeds

    def _await_next_deed(self) -> None:
        if self._acts_done < len(self.script.acts):
            self._set(Timer.DEED, self._start_ms + self.script.acts[self._acts_done].at_ms)

    def _perform(self, act: Act, due_ms: float, now_ms: float) -> None:
        """Do a deed, which ends what lasts. A member that is not there can only start."""
        if act.deed == "crash":
            self._inbox.clear()
        if act.deed != "start" or self.member.state is MemberState.DOWN:
            self._end_what_lasts(now_ms)
        identity = self.member.identity
        self._record(
            Event(
                *(to_us(due_ms), to_us(now_ms), None, act.deed, NOT_SENT, -1, self.script.group, self.script.member),
                kind="act",
                generation=None if identity.generation_id < 0 else identity.generation_id,
                member_id=identity.member_id or None,
                instance_id=self.script.instance_id,
            )
        )
        if act.deed == "start":
            self._start(now_ms)
        elif self.member.state is not MemberState.DOWN:
            self._depart_or_linger(act, now_ms)

    def _depart_or_linger(self, act: Act, now_ms: float) -> None:
        match act.deed:
            case "leave":
                self._leave(now_ms)
            case "crash":
                self.member.crash(now_ms)
                self._abandon(now_ms)
            case "pause":
                self._linger(Mode.PAUSED, act.for_ms, now_ms)
            case "slow":
                self._linger(Mode.SLOW, act.for_ms, now_ms)
                if act.for_ms > self.script.rebalance_timeout_ms:
                    self._set(Timer.POLL_LIMIT, now_ms + self.script.rebalance_timeout_ms)
            case "zombie":
                self._be_a_zombie(act.for_ms, now_ms)

    def _start(self, now_ms: float) -> None:
        if self.member.state is MemberState.DOWN:
            if Timer.FAREWELL in self._timers:
                self._abandon(now_ms)
            self.member.start(now_ms)
            self._follow_up(now_ms)

    def _leave(self, now_ms: float, *, commits: bool = True) -> None:
        """Say good-bye, and stay for the answers; the heartbeat thread, which leaves when nobody polls, commits not."""
        self._has_coordinator = False  # The good-bye still goes to it.
        self.member.leave(now_ms)
        if not commits:
            asked = [(effect, getattr(effect, "request", None)) for effect in self.member.effects]
            self.member.effects = [each for each, request in asked if not isinstance(request, OffsetCommitRequest)]
        self._set(Timer.FAREWELL, now_ms + FAREWELL_MS)
        self._follow_up(now_ms)
        self._end_farewell(now_ms)

    def _end_farewell(self, now_ms: float) -> None:
        """Hang up as soon as nothing is left to say or hear."""
        if self._flying is None and not self._queue and Timer.FAREWELL in self._timers:
            self._abandon(now_ms)

    def _linger(self, mode: Mode, for_ms: float, now_ms: float) -> None:
        self._mode = mode
        self._set(Timer.RESUME, now_ms + for_ms)
        if self._consumption is not None and mode is not Mode.SILENT:  # A zombie goes on consuming.
            self._consumption.stop(self.member.positions, now_ms)
        if mode is Mode.SLOW:
            self._beat_for_held_join(now_ms)

    def _be_a_zombie(self, for_ms: float, now_ms: float) -> None:
        """Silent for the session, and for one heartbeat more, so that the session is over for sure."""
        silent_ms = self.script.session_timeout_ms + self.script.heartbeat_interval_ms
        self._linger(Mode.SILENT, silent_ms + for_ms, now_ms)
        if self.member.member_id:
            self._set(Timer.BEAT, now_ms + silent_ms)
            if self.script.commit_interval_ms:
                self._set(Timer.COMMIT, now_ms + silent_ms)

    def _end_what_lasts(self, now_ms: float) -> None:
        if self._mode is not Mode.USUAL:
            self._drop(Timer.RESUME)
            self._resume(now_ms)

    def _resume(self, now_ms: float) -> None:
        """Go on as usual, first of all with what has come in meanwhile."""
        self._mode = Mode.USUAL
        self._drop(Timer.BEAT, Timer.COMMIT, Timer.POLL_LIMIT)
        self._own_queue.clear()
        if self._consumption is not None:
            self._consumption.resume(self.member.positions, now_ms)
        self._empty_inbox(now_ms)
        if self._returns:
            self._returns = False
            self._start(now_ms)

    def _empty_inbox(self, now_ms: float) -> None:
        inbox, self._inbox = self._inbox, []
        for take, news in inbox:
            take(*news, now_ms)
            self._follow_up(now_ms)

    # What the actor sends in place of its member

    def _act_for_member(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        if self._mode is Mode.SILENT:  # The zombie awakes.
            self._mode = Mode.ZOMBIE
            self._empty_inbox(now_ms)
        if timer is Timer.BEAT:
            self._send_own(requests.heartbeat(self.member.identity), due_ms)
            self._set(timer, due_ms + self.script.heartbeat_interval_ms)
        else:
            self._commit_own(due_ms, now_ms)
            self._set(timer, due_ms + self.script.commit_interval_ms)

    def _commit_own(self, due_ms: float, now_ms: float) -> None:
        member = self.member
        if self._consumption is not None:
            self._consumption.move_on(member.positions, now_ms)
        positions = {each: member.positions[each] for each in member.assigned if each in member.positions}
        if positions:
            self._send_own(requests.offset_commit(member.identity, positions), due_ms)

    def _beat_for_held_join(self, now_ms: float) -> None:
        """Go on with heartbeats for a slow member whose JoinGroup is held back: the member itself then sends none."""
        holds_join = any(isinstance(send.request, JoinGroupRequest) for send in self._queue)
        if holds_join and self.member.generation_id >= 0 and Timer.BEAT not in self._timers:
            self._set(Timer.BEAT, now_ms + self.script.heartbeat_interval_ms)

    # Answers

    def answered(self, response: GroupResponse, now_ms: float) -> None:
        """The request in flight was answered."""
        send = self._flying
        if send is None:
            return
        if self._mode is Mode.PAUSED or self._mode is Mode.SILENT:
            self._inbox.append((self.answered, (response,)))
            return
        self._flying = None
        self._record_answer(send, response, now_ms)
        if self._is_own_flying:
            self._end_farewell(now_ms)
        elif self._mode is Mode.ZOMBIE:
            self._inbox.append((self.member.answered, (send.request, response)))
        else:
            self._tell_answer(send, response, now_ms)

    def _tell_answer(self, send: Send, response: GroupResponse, now_ms: float) -> None:
        self.member.answered(send.request, response, now_ms)
        if type(response) is HeartbeatResponse:
            if self._closed_loop and not response.error_code and not self._queue:
                self.member.heartbeat_now(now_ms)
        elif self._consumption is not None and isinstance(response, OffsetFetchResponse):
            self._consumption.begin(self.member.positions, now_ms)
        self._follow_up(now_ms)
        self._end_farewell(now_ms)

    def connection_lost(self, now_ms: float) -> None:
        """The connection is lost, or could not be made."""
        if self._mode is Mode.PAUSED or self._mode is Mode.SILENT:
            self._inbox.append((self.connection_lost, ()))
            return
        self._record_unanswered(now_ms, lost=True)
        if self._mode is Mode.ZOMBIE:
            self._inbox.append((self.member.connection_lost, ()))
            return
        self._has_coordinator = False  # There is nothing to hang up.
        self._queue.clear()
        self._end_farewell(now_ms)
        self.member.connection_lost(now_ms)
        self._follow_up(now_ms)

    def _abandon(self, now_ms: float) -> None:
        """Give up the connection, with what is in flight and in the queue."""
        self._hang_up_now(now_ms)
        self._has_coordinator = False
        self._drop(Timer.FAREWELL)

    # Look-ups

    def discovered(self, node_id: int, host: str, port: int, now_ms: float) -> None:
        """The coordinator is this broker."""
        if not self._is_attentive:
            self._inbox.append((self.discovered, (node_id, host, port)))
            return
        self.node_id, self.address = node_id, (host, port)
        self.member.discovered(now_ms)
        self._has_coordinator = self.member.has_coordinator
        self._follow_up(now_ms)

    def discovery_failed(self, error: ErrorCode, now_ms: float) -> None:
        """Nobody could say who the coordinator is; without an answer at all the error is NETWORK_EXCEPTION."""
        self._tell(self.member.discovery_failed, error, now_ms)

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        """The topics have so many partitions."""
        self._tell(self.member.metadata, partition_counts, now_ms)

    def _tell(self, take: Callable[[Any, float], None], news: Any, now_ms: float) -> None:
        """Let the member take news, now or when it goes on."""
        if not self._is_attentive:
            self._inbox.append((take, (news,)))
            return
        take(news, now_ms)
        self._follow_up(now_ms)

    # What the member wants

    def _follow_up(self, now_ms: float) -> None:
        """See what has become of the member."""
        member = self.member
        if member.effects:
            effects, member.effects = member.effects, []
            for effect in effects:
                match effect:
                    case Send():
                        self._enqueue(effect, now_ms)
                    case Discover():
                        self._discovery_ms = effect.scheduled_ms
                    case FetchMetadata():
                        self._topics = (effect.topics, effect.scheduled_ms)
                    case Revoked() if self._consumption is not None:
                        self._consumption.give_up(effect.partitions)
        if self._has_coordinator and not member.has_coordinator:  # What it wanted sent before is not, any more.
            self._abandon(now_ms)

    def _enqueue(self, send: Send, now_ms: float) -> None:
        if type(send.request) is OffsetCommitRequest:
            if self._consumption is not None:
                self._consumption.move_on_in(send.request, self.member.positions, now_ms)
            if self._mode is Mode.SLOW:
                self._replace_held_commit(now_ms)
        self._queue.append(send)
        if self._mode is Mode.SLOW:
            self._beat_for_held_join(now_ms)

    def _replace_held_commit(self, now_ms: float) -> None:
        """Only the newest commit of a member that does not poll is kept; to the member the older one was answered."""
        for send in [send for send in self._queue if type(send.request) is OffsetCommitRequest]:
            self._queue.remove(send)
            self.member.answered(send.request, OffsetCommitResponse(topics=[]), now_ms)
