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
        respond: Makes the response of a result.
    """

    __slots__ = ("_late_call", "_respond", "_response")

    def __init__(self, respond: Callable[[T], Message]) -> None:
        self._respond = respond
        self._response: Message | None = None
        self._late_call: tuple[Cluster, Call] | None = None

    def __call__(self, result: T) -> None:
        self._response = self._respond(result)
        if self._late_call is not None:
            cluster, call = self._late_call
            cluster.answer(call, self._response, cluster.now_ms)

    def take(self, cluster: "Cluster", call: Call) -> Message | None:
        """Return the response, or None if the result is not known yet: the cluster then answers the call later."""
        if self._response is None:
            self._late_call = cluster, call
        return self._response
