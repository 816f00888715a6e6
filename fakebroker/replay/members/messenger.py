"""An actor's side of the wire: what it has to send and to ask, what is in flight, and the events of it.

Of what is to be sent it knows what may go out now; what an answer leads to stands in `actor.py`.
"""

from collections.abc import Callable
from typing import Any

from fakebroker.client.member.effects import GroupRequest, GroupResponse, Send
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.exchange import NOT_SENT, Sent, answered_event, to_us, unanswered_event
from fakebroker.replay.members.modes import Mode
from fakebroker.replay.script.script import Script

_WITHOUT_POLLING = (HeartbeatRequest, LeaveGroupRequest)
"""What Kafka's consumer sends from its heartbeat thread."""


FAREWELL_MS = 5_000.0
"""How long the last answers are waited for after a member has left."""


class Messenger:
    """The half of an actor that sends and records; see `Actor`."""

    __slots__ = (
        "_discovery_ms",
        "_flying",
        "_hang_up",
        "_inbox",
        "_is_own_flying",
        "_mode",
        "_own_queue",
        "_queue",
        "_record",
        "_sent_ms",
        "_topics",
        "_version",
        "address",
        "node_id",
        "script",
    )

    def __init__(self, script: Script, record: Callable[[Event], None]) -> None:
        self.script = script
        self.node_id, self.address = -1, ("", 0)
        self._record = record
        self._mode = Mode.USUAL
        self._queue: list[Send] = []
        self._own_queue: list[Send] = []  # What the actor sends in place of its member.
        self._flying: Send | None = None
        self._is_own_flying = False
        self._version, self._sent_ms = NOT_SENT, 0.0
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # Calls that wait, without the time.
        self._hang_up = False
        self._discovery_ms: float | None = None
        self._topics: tuple[tuple[str, ...], float] | None = None

    @property
    def _is_attentive(self) -> bool:
        """Whether the member takes news, and wants things done."""
        return self._mode is Mode.USUAL or self._mode is Mode.SLOW

    @property
    def _is_busy(self) -> bool:
        """Whether it does anything out of the ordinary, or has something to send or to hear."""
        return self._mode is not Mode.USUAL or self._flying is not None or bool(self._queue or self._own_queue)

    @property
    def wants_something(self) -> bool:
        """Whether one of the `take_` methods has something to give."""
        return (
            (self._flying is None and bool(self._queue or self._own_queue))
            or self._hang_up
            or self._discovery_ms is not None
            or self._topics is not None
        )

    def take_request(self) -> GroupRequest | None:
        """The next request to send, if none is in flight; it is in flight then."""
        if self._flying is not None or not (self._queue or self._own_queue):
            return None
        send = self._next_send()
        if send is None:
            return None
        self._flying, self._version = send, NOT_SENT
        return send.request

    def _next_send(self) -> Send | None:
        self._is_own_flying = bool(self._own_queue)
        if self._own_queue:
            return self._own_queue.pop(0)
        if self._mode is Mode.USUAL:
            return self._queue.pop(0)
        if self._mode is Mode.SLOW:
            for index, send in enumerate(self._queue):
                if isinstance(send.request, _WITHOUT_POLLING):
                    return self._queue.pop(index)
        return None

    def sent(self, version: int, now_ms: float) -> None:
        """The request in flight went out in this version."""
        self._version, self._sent_ms = version, now_ms

    def finish(self, now_ms: float) -> None:
        """The replay is over: a request in flight is recorded, its answer is owed."""
        self._record_unanswered(now_ms, lost=False)

    def take_hang_up(self) -> bool:
        """Whether the transport is to close this actor's connection, since last asked."""
        hang_up, self._hang_up = self._hang_up, False
        return hang_up

    def take_discovery(self) -> float | None:
        """Since when the coordinator is to be looked up, if it is, since last asked."""
        scheduled_ms = self._discovery_ms
        if scheduled_ms is None or not self._is_attentive:
            return None
        self._discovery_ms = None
        return scheduled_ms

    def take_metadata(self) -> tuple[tuple[str, ...], float] | None:
        """The topics whose partition counts a leader needs, and since when, if it does, since last asked."""
        wanted = self._topics
        if wanted is None or not self._is_attentive:
            return None
        self._topics = None
        return wanted

    def _hang_up_now(self, now_ms: float) -> None:
        """Give up the connection, with what is in flight, in the queue and looked up."""
        self._record_unanswered(now_ms, lost=True)
        self._queue.clear()
        self._own_queue.clear()
        self._discovery_ms = self._topics = None
        self._hang_up = True

    def _record_answer(self, send: Send, response: GroupResponse, now_ms: float) -> None:
        sent = self._sent(send)
        latency_us = to_us(now_ms) - sent.scheduled_us
        self._record(answered_event(sent, latency_us, send.request, response, self.script))

    def _record_unanswered(self, now_ms: float, *, lost: bool) -> None:
        send, self._flying = self._flying, None
        if send is not None:
            if self._version == NOT_SENT:
                self._sent_ms = now_ms
            event = unanswered_event(self._sent(send), send.request, self.script, lost=lost)
            self._record(event._replace(until_us=to_us(now_ms)) if lost else event)

    def _sent(self, send: Send) -> Sent:
        return Sent(to_us(send.scheduled_ms), to_us(self._sent_ms), self._version, self.node_id)

    def _send_own(self, request: GroupRequest, scheduled_ms: float) -> None:
        """Send in place of the member; of each kind one waits at most, should the broker not answer."""
        if not any(type(send.request) is type(request) for send in self._own_queue):
            self._own_queue.append(Send(request, scheduled_ms))
