"""The response of a request whose result a coordinator gives at once, or later when an append has completed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

T = TypeVar("T")


class LateResponse(Generic[T]):
    """Takes the result of a coordinator: a handler passes it as `done` and returns what `take` returns.

    Args:
        cluster: Answers the call if the result comes after `take`.
        call: The request.
        respond: Makes the response of a result.
    """

    __slots__ = ("_call", "_cluster", "_is_late", "_respond", "_response")

    def __init__(self, cluster: "Cluster", call: Call, respond: Callable[[T], Message]) -> None:
        self._cluster = cluster
        self._call = call
        self._respond = respond
        self._response: Message | None = None
        self._is_late = False

    def __call__(self, result: T) -> None:
        response = self._respond(result)
        if self._is_late:
            self._cluster.answer(self._call, response, self._cluster.now_ms)
        else:
            self._response = response

    def take(self) -> Message | None:
        """Return the response, or None if it will come later."""
        self._is_late = self._response is None
        return self._response
