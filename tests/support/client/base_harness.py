"""A group member of any protocol without a driver: tests take its effects, write the responses and move the clock."""

from typing import Generic, TypeVar

from fakebroker.client.member.effects import Effect, GroupRequest, GroupResponse, Send
from fakebroker.client.member.group_member import GroupMember
from tests.support.group_responses import error_response
from tests.support.virtual_time import START_MS

M = TypeVar("M", bound=GroupMember)
E = TypeVar("E", bound=Effect)
R = TypeVar("R", bound=GroupRequest)


class BaseHarness(Generic[M]):
    """A member that is not started. There is no coordinator.

    The clock `now_ms` is `START_MS` at first and changes only in `advance`.
    """

    def __init__(self, member: M) -> None:
        self.member = member
        self.now_ms = START_MS

    def effects(self) -> list[Effect]:
        """Take the effects since the last call."""
        effects, self.member.effects = self.member.effects, []
        return effects

    def only(self, kind: type[E]) -> E:
        """Take the effects, and return the only one, which must be of this class."""
        effects = self.effects()
        assert [type(effect) for effect in effects] == [kind], effects
        effect = effects[0]
        assert isinstance(effect, kind)
        return effect

    def requests(self) -> list[GroupRequest]:
        """Take the effects, and return the requests among them."""
        return [effect.request for effect in self.effects() if isinstance(effect, Send)]

    def sent(self, kind: type[R]) -> R:
        """Take the effects, and return the only request of this class among them."""
        requests = self.requests()
        found = [request for request in requests if isinstance(request, kind)]
        assert len(found) == 1, requests
        return found[0]

    def advance(self, duration_ms: float) -> None:
        """Move the clock, with a `tick` at every deadline."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.member.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.member.tick(self.now_ms)
        self.now_ms = end_ms

    def respond(self, request: GroupRequest, response: GroupResponse) -> None:
        self.member.answered(request, response, self.now_ms)

    def respond_error(self, request: GroupRequest, error: int) -> None:
        """Respond with an error, in the error field of the API."""
        self.respond(request, error_response(request, error))

    def discovered(self) -> None:
        self.member.discovered(self.now_ms)
