"""`LateResponse`: the response to a request whose result is known immediately or later.

It is late if it depends on an append of a coordinator, or on a transaction that ends.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

T = TypeVar("T")


class LateResponse(Generic[T]):
    """The callback that receives a result and makes the response.

    A handler passes it to the coordinator as `done`, and then returns `take(cluster, call)`. If the result arrives
    after that, the callback answers the call.

    Args:
        respond: Makes the response from the result; None if the request has none (acks=0).
    """

    __slots__ = ("_is_known", "_late_call", "_respond", "_response")

    def __init__(self, respond: Callable[[T], Message | None]) -> None:
        self._respond = respond
        self._is_known = False
        self._response: Message | None = None
        self._late_call: tuple[Cluster, Call] | None = None

    def __call__(self, result: T) -> None:
        self._is_known, self._response = True, self._respond(result)
        if self._late_call is not None:
            cluster, call = self._late_call
            cluster.answer(call, self._response, cluster.now_ms)

    def take(self, cluster: "Cluster", call: Call) -> Message | None:
        """Return the response. None: there is none, or the result is not known yet and the call is answered later."""
        if not self._is_known:
            self._late_call = cluster, call
        elif self._response is None:
            cluster.answer(call, None, cluster.now_ms)
        return self._response
