"""Delayed responses to SyncGroup, as over a slow network: the group is Stable, but a member lacks its assignment.

Does not depend on groups or on `Cluster`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.coordinator.timers import Rank, TimerQueue
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message

Member = tuple[str, str]
"""A group id, and the instance id or the member id of a member."""


class Answer(NamedTuple):
    """A call and its response."""

    call: Call
    response: Message


@dataclass(slots=True, eq=False)
class _DelayedAnswer:
    member: Member
    answer: Answer
    scheduled_ms: float = inf
    timer_number: int = 0


class SyncDelays:
    """Delays that were requested for the next response to a member, and the responses that are being delayed.

    Args:
        queue: The timers of the cluster.
        send: Called with each call, its response and the time, when its delay has ended.

    Attributes:
        requested_ms: The delays of the next responses, by member.
    """

    def __init__(self, queue: TimerQueue[Any], send: Callable[[Call, Message, float], None]) -> None:
        self.requested_ms: dict[Member, float] = {}
        self._delayed: list[_DelayedAnswer] = []
        self._send = send
        self._timers = queue.service(Rank.DELAYED_SYNCS, self._end)

    def delay(self, member: Member, delay_ms: float | None) -> None:
        """Delay the member's next response by `delay_ms` milliseconds, or until `release` if it is None."""
        self.requested_ms[member] = inf if delay_ms is None else delay_ms

    def hold_back(self, call: Call, response: Message, now_ms: float) -> bool:
        """Delay a response if that was requested, and return whether it is delayed. If not, the caller sends it."""
        if not self.requested_ms or not isinstance(call.request, SyncGroupRequest):
            return False
        request = call.request
        names = ((request.group_id, request.group_instance_id or ""), (request.group_id, request.member_id))
        for member in names:
            delay_ms = self.requested_ms.pop(member, None)
            if delay_ms is not None:
                delayed = _DelayedAnswer(member, Answer(call, response))
                self._delayed.append(delayed)
                self._timers.schedule(delayed, now_ms + delay_ms)
                return True
        return False

    def release(self, member: Member) -> list[Answer] | None:
        """Cancel the member's delay, and return its delayed responses for sending; None if it had no delay."""
        was_requested = self.requested_ms.pop(member, None) is not None
        released = self._take([each for each in self._delayed if each.member == member])
        return released if released or was_requested else None

    def release_all(self) -> list[Answer]:
        """Cancel all delays, and return all delayed responses for sending."""
        self.requested_ms.clear()
        return self._take(list(self._delayed))

    def _end(self, delayed: _DelayedAnswer, due_ms: float, now_ms: float) -> None:
        self._delayed.remove(delayed)
        self._send(*delayed.answer, now_ms)

    def delayed(self) -> Iterator[tuple[float, Call]]:
        """Yield the calls whose responses are delayed, each with the time of its response; infinite until `release`."""
        for each in self._delayed:
            yield each.scheduled_ms, each.answer.call

    def _take(self, delayed: list[_DelayedAnswer]) -> list[Answer]:
        for each in delayed:
            self._delayed.remove(each)
            self._timers.cancel(each)
        return [each.answer for each in delayed]
