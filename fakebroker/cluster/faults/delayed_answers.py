"""Answers to SyncGroup that somebody wants to come late, as over a slow network: the group is done with them.

Knows calls and responses; not what they mean.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message

Member = tuple[str, str]
"""A group id, and the instance id or else the member id of one of its members."""


class Answer(NamedTuple):
    """A call and the response that it gets."""

    call: Call
    response: Message


@dataclass(slots=True, eq=False)
class _LateAnswer:
    member: Member
    due_ms: float
    answer: Answer


class SyncDelays:
    """The delays that are wanted, each for one answer, and the answers that are late."""

    def __init__(self) -> None:
        self._wanted_ms: dict[Member, float] = {}
        self._late: list[_LateAnswer] = []

    def want(self, member: Member, delay_ms: float | None) -> None:
        """Let the member's next answer be so late; None is until `release`."""
        self._wanted_ms[member] = inf if delay_ms is None else delay_ms

    def keeps(self, call: Call, response: Message, now_ms: float) -> bool:
        """Whether this answer is to be late; then it is kept here."""
        if not self._wanted_ms or not isinstance(call.request, SyncGroupRequest):
            return False
        request = call.request
        names = ((request.group_id, request.group_instance_id or ""), (request.group_id, request.member_id))
        for member in names:
            delay_ms = self._wanted_ms.pop(member, None)
            if delay_ms is not None:
                self._late.append(_LateAnswer(member, now_ms + delay_ms, Answer(call, response)))
                return True
        return False

    def release(self, member: Member) -> list[Answer] | None:
        """The member's late answers; it has no delay any more. None if it had none."""
        was_wanted = self._wanted_ms.pop(member, None) is not None
        released = self._take([late for late in self._late if late.member == member])
        return released if released or was_wanted else None

    def release_all(self) -> list[Answer]:
        """All late answers; nobody has a delay any more."""
        self._wanted_ms.clear()
        return self._take(self._late)

    def due(self, now_ms: float) -> list[Answer]:
        """The answers that have been late for long enough, the one that was due first in front."""
        if not self._late:
            return []
        return self._take(sorted((late for late in self._late if late.due_ms <= now_ms), key=lambda late: late.due_ms))

    def next_deadline(self) -> float | None:
        """When the next answer is due by itself."""
        return min((late.due_ms for late in self._late if late.due_ms < inf), default=None)

    def _take(self, taken: list[_LateAnswer]) -> list[Answer]:
        self._late = [late for late in self._late if late not in taken]
        return [late.answer for late in taken]
