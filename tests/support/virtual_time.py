"""Virtual time for tests: scheduled calls, deadlines, and connections with delays. Single-threaded."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Generic, TypeVar

from fakebroker.replay.simulation.scheduler import ACTION, Scheduler, VirtualClock

START_MS = 1_700_000_000_000.0

Q = TypeVar("Q")
R = TypeVar("R")


class VirtualTime:
    """Base class of simulations. Calls at the same time are made in the order in which they were scheduled.

    Args:
        seed: The seed of `random`.
        start_ms: The time at the start, in milliseconds.

    Attributes:
        random: Everything that is random in the simulation is drawn from this.
    """

    def __init__(self, seed: int = 0, start_ms: float = START_MS) -> None:
        self.random = Random(seed)
        self._scheduler = Scheduler(VirtualClock(start_ms))
        self._deadlines_ms: dict[object, float] = {}

    @property
    def now_ms(self) -> float:
        return self._scheduler.clock.moment_ms

    def call_at(self, at_ms: float, call: Callable[[], None]) -> None:
        """Schedule a call."""
        self._scheduler.schedule(at_ms, ACTION, 0, call)

    def call_in(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Schedule a call, relative to now."""
        self.call_at(self.now_ms + delay_ms, call)

    def call_at_deadline(self, part: object, deadline_ms: float | None, call: Callable[[], None]) -> None:
        """Schedule a call at the deadline of a part, unless a call for that part is scheduled at that time or earlier.

        A part is any object with deadlines, such as a member. If its deadline moves to a later time, the
        scheduled call is still made: the part finds no expired timer, and the caller passes the new deadline here.
        """
        if deadline_ms is not None and deadline_ms < self._deadlines_ms.get(part, inf):
            self._deadlines_ms[part] = deadline_ms
            self.call_at(max(deadline_ms, self.now_ms), partial(self._on_deadline, part, deadline_ms, call))

    def _on_deadline(self, part: object, deadline_ms: float, call: Callable[[], None]) -> None:
        if self._deadlines_ms.get(part) == deadline_ms:
            del self._deadlines_ms[part]
            call()

    def after_call(self) -> None:
        """Called after each scheduled call. Subclasses check invariants here."""

    def run(self, duration_ms: float) -> None:
        """Make the calls that are scheduled for the next `duration_ms`."""
        end_ms = self.now_ms + duration_ms
        while self._scheduler.step(end_ms):
            self.after_call()
        self._scheduler.clock.moment_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 120_000.0) -> None:
        """Make scheduled calls until a condition holds, which is evaluated after each; fail after `limit_ms`."""
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._scheduler.step(end_ms), f"the condition does not hold after {limit_ms} ms"
            self.after_call()


@dataclass(eq=False)
class _Exchange(Generic[Q, R]):
    """A request, and the function that receives its response."""

    request: Q
    on_response: Callable[[R], None]


class SimulatedConnection(Generic[Q, R]):
    """A connection of one client to one broker.

    Requests arrive in the order in which they were sent, and so do responses. The broker processes one request at a
    time; the next one waits until it has responded.

    Args:
        time: The simulation.
        handle: The broker. Receives each request and a function to call with its response, at once or later.
        delays_ms: The possible delays of a message; one is drawn for each message.

    Attributes:
        is_closed: Whether `close` was called. No response arrives at the client after that.
    """

    def __init__(
        self, time: VirtualTime, handle: Callable[[Q, Callable[[R], None]], None], delays_ms: Sequence[float]
    ) -> None:
        self.is_closed = False
        self._time, self._handle, self._delays_ms = time, handle, delays_ms
        self._unanswered: list[_Exchange[Q, R]] = []  # The response has not arrived.
        self._under_way: deque[_Exchange[Q, R]] = deque()
        self._waiting: deque[_Exchange[Q, R]] = deque()
        self._is_processing = False
        self._last_request_ms = self._last_response_ms = 0.0  # When the last message of each direction arrives.

    @property
    def unanswered(self) -> list[Q]:
        """The requests whose responses have not arrived, in their order."""
        return [exchange.request for exchange in self._unanswered]

    def send(self, request: Q, on_response: Callable[[R], None]) -> None:
        """Send a request; `on_response` is called when the response arrives, unless the client closes before."""
        exchange = _Exchange(request, on_response)
        self._unanswered.append(exchange)
        self._under_way.append(exchange)
        self._last_request_ms = self._schedule(self._last_request_ms, partial(self._arrive, exchange))

    def close(self, *, arrive_at_once: bool = False) -> None:
        """Close the connection at the client. Of the requests under way, a random number of the oldest still arrive.

        Args:
            arrive_at_once: Whether these requests arrive now; the broker then drops requests that it has not begun to
                process. Otherwise they arrive at their scheduled times, perhaps after requests of the client's next
                connection.
        """
        self.is_closed = True
        self._unanswered.clear()
        arriving = list(self._under_way)[: self._time.random.randint(0, len(self._under_way))]
        self._under_way = deque(arriving)
        if arrive_at_once:
            for exchange in arriving:
                self._arrive(exchange)
            self._waiting.clear()

    def _schedule(self, last_ms: float, call: Callable[[], None]) -> float:
        """Schedule the arrival of a message, not before `last_ms`; return its time."""
        arrival_ms = max(self._time.now_ms + self._time.random.choice(self._delays_ms), last_ms)
        self._time.call_at(arrival_ms, call)
        return arrival_ms

    def _arrive(self, exchange: _Exchange[Q, R]) -> None:
        if exchange in self._under_way:
            self._under_way.remove(exchange)
            self._waiting.append(exchange)
            self._process()

    def _process(self) -> None:
        while self._waiting and not self._is_processing:
            exchange = self._waiting.popleft()
            self._is_processing = True
            self._handle(exchange.request, partial(self._respond, exchange))

    def _respond(self, exchange: _Exchange[Q, R], response: R) -> None:
        self._is_processing = False
        deliver = partial(self._deliver, exchange, response)
        self._last_response_ms = self._schedule(self._last_response_ms, deliver)
        self._process()

    def _deliver(self, exchange: _Exchange[Q, R], response: R) -> None:
        if not self.is_closed:
            self._unanswered.remove(exchange)
            exchange.on_response(response)
