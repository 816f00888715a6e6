"""`LateResponse`: the response to a request whose result depends on an append of the coordinator.

The append completes immediately or later.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

T = TypeVar("T")


class LateResponse(Generic[T]):
    """The callback that receives a result of the coordinator and makes the response.

    A handler passes it to the coordinator as `done`, and then returns `take(cluster, call)`. If the result arrives
    after that, the callback answers the call.

    Args:
        respond: Makes the response from the result.
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
        """Return the response, or None if the result is not known yet; the call is then answered later."""
        if self._response is None:
            self._late_call = cluster, call
        return self._response
