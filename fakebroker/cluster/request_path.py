"""How a request passes a cluster, from its receipt to its answer: `RequestPath`, from top to bottom.

1. Receipt: the journal notes the request, and the first fault that applies to it is picked (`handle`).
2. Before: the fault may delay the request, and run commands.
3. Handling: the handler of the API asks the authorizer (`authorization.py`), changes the state, and returns the
   response, or parks the call. A fault with an error usually replaces the handler, for the whole request or for parts
   of it. If the request only reads, the handler runs, and the fault changes its response.
4. Others: the request may complete parked requests. They are answered, too (`settle`).
5. Answer: the fault may change, delay or swallow the response (`answer`).
6. Sending: quotas are charged. `handle` returns that the call is answered; or `send` adds it to `answered`, which the
   server empties.

Most requests have no fault and are answered at once. They pass 1, 3 and 6 without leaving `handle`. The others wait
somewhere, each kind in one place:

| what waits | where |
|---|---|
| JoinGroup and SyncGroup, for other members | `Group.parked_joins` and `parked_syncs` |
| the leader's SyncGroup, while a test holds the group | `Group.held_sync` |
| JoinGroup in a group with a protocol extension | `GroupExtension` |
| a Fetch, for records | `FetchPurgatory` |
| Produce and TxnOffsetCommit, while a test holds their record | `Transaction.held`, with the `Produce` or `Commit` |
| other requests of a transaction, while a test holds their record | `Transaction.held`, with a `ParkedRequest` |
| a Produce, for the end of the last transaction | `Transactions.verifications` |
| markers, for a partition that can take them | `Transactions.waiting` |
| a large Produce, for its next part | `RequestPath.unfinished` |
| a request or response that an injected fault delays | `FaultInjector` |
| a request, for commands that an injected fault runs before it | `PendingActions` |
| a SyncGroup response that a test delays | `SyncDelays` |

Appends are synchronous, so nothing waits for them. A response may still wait in the server: for its quota, for an
injected latency, or until the data directory has what the response says.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.delayed_answers import SyncDelays
from fakebroker.cluster.faults.injection import READS, ActiveFault, DelayedRequest, FaultInjector
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.quotas import Quotas
from fakebroker.protocol.schema import Message, replaced

Handler = Callable[[Any, Call, float], Message | None]
"""Handles a call of a `Cluster` at a time in milliseconds. Returns None if the response follows, or is none."""


class Services(Protocol):
    """What requests meet on their path: the part of a `Cluster` that this module uses."""

    now_ms: float
    wire_ms: float
    requests: "RequestPath"
    brokers: dict[int, BrokerNode]
    journal: Journal
    faults: FaultInjector
    sync_delays: SyncDelays
    quotas: Quotas


class Parked(Protocol):
    """A parked request to a transaction coordinator; see `TransactionCoordinator.answers`."""

    def released(self, result: Any) -> None:
        """Continue with the result of the request, which was parked until now."""


class ParkedRequest(NamedTuple):
    """A request that is answered with the result of the transaction coordinator.

    Attributes:
        cluster: The cluster.
        call: The request.
        respond: Makes the response.
    """

    cluster: Services
    call: Call
    respond: Callable[[Call, Any], Message]

    def released(self, result: Any) -> None:
        cluster, call = self.cluster, self.call
        cluster.requests.answer(call, self.respond(call, result), cluster.now_ms)


class RequestPath:
    """The path of requests through one cluster.

    Args:
        cluster: The cluster.
        handlers: The handlers of requests, by the names of their APIs.

    Attributes:
        handlers: As above.
        answered: Calls that were not answered by the return value of `handle`, in the order of their answers. The
            server removes and sends them.
        unfinished: Requests that are handled in parts, with the function that continues each. The server calls
            `continue_next` until there are none.
    """

    def __init__(self, cluster: Services, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers
        self.answered: list[Call] = []
        self.unfinished: deque[tuple[Call, Callable[[], None]]] = deque()
        self._cluster = cluster

    # 1. Receipt

    def handle(self, call: Call, now_ms: float, wire_ms: float | None = None) -> bool:
        """Handle a request.

        Args:
            call: The request.
            now_ms: The brokers' time in milliseconds.
            wire_ms: The clients' time in milliseconds, by which a Fetch waits, if it differs.

        Returns:
            Whether the call is answered and `call.response` is set. If not, the call is added to `answered` when it is
            answered, and the caller runs `faults.actions` before it does anything else. A silent fault never answers.
            Other calls that this request completes are also added to `answered`.
        """
        cluster = self._cluster
        call.received_ms = cluster.now_ms = now_ms
        cluster.wire_ms = now_ms if wire_ms is None else wire_ms
        cluster.journal.add(call)
        response: Any = None  # a message; for an `UndecodedCall`, it may be encoded
        if cluster.faults.active and (fault := cluster.faults.pick(call)) is not None:
            if not cluster.faults.delay_request(call, fault, now_ms):
                self._begin(call, fault)
        else:
            response = self.handlers[call.api.handler](cluster, call, now_ms)
        if answers := call.peer.broker.coordinator.answers:
            context, answer = answers[0]
            # A join or sync that is answered at once, and completes no other, is returned here.
            if context is call and len(answers) == 1 and call.fault is None and not cluster.sync_delays.requested_ms:
                answers.clear()
                response = answer
            else:
                self.settle(now_ms)
        if response is None:
            return False
        call.response = cluster.quotas.charge(call, response, now_ms) if cluster.quotas.limits else response
        call.answered_ms = now_ms
        return True

    # 2. Before a request with a fault is handled

    def handle_delayed(self, late: DelayedRequest, now_ms: float) -> None:
        """Handle a request whose delay is over, unless its broker has stopped meanwhile."""
        call, fault, stops = late
        if not self._is_still_there(call, stops):
            return
        actions = self._cluster.faults.actions
        self.settle(now_ms)  # First answer what timers have completed.
        try:
            self._begin(call, fault)
            self.settle(self._cluster.now_ms)
            actions.run()
        except Exception as error:  # A bug in a handler closes only the connection of the request.
            self._close(call, f"delayed {call!r}", error)

    def _begin(self, call: Call, fault: ActiveFault) -> None:
        """Handle a call that has a fault, after the commands that run before it."""
        if not fault.before:
            self._handle_with(fault, call)
            return
        call.boundaries.handled_ms = None
        stops = call.broker.stops

        def proceed() -> None:
            if self._is_still_there(call, stops):
                self._handle_with(fault, call)
                self.settle(self._cluster.now_ms)

        self._cluster.faults.actions.add(fault.before, call, fault, proceed)

    def _is_still_there(self, call: Call, stops: int) -> bool:
        """Whether the broker of a call was neither stopped nor removed; `stops` is how often it had been stopped."""
        return call.broker.stops == stops and self._cluster.brokers.get(call.node_id) is call.broker

    # 3. Handling with a fault, or in parts

    def _handle_with(self, active: ActiveFault, call: Call) -> None:
        """Handle a call that has a fault. Its response is sent now, later or never."""
        cluster, faults, fault = self._cluster, self._cluster.faults, active.fault
        now_ms = cluster.now_ms
        if call.boundaries_or_none is not None:
            call.boundaries_or_none.handled_ms = now_ms
        # The handler runs if the fault changes only the response, or if an error belongs into a part of the response.
        if fault.takes_effect or (fault.error and call.api.name in READS and faults.has_error_in_a_part(call)):
            request = call.request
            if call.api.name == "Fetch" and fault.error:
                # Kafka responds to a Fetch at once if a partition has an error.
                request = replaced(request, max_wait_ms=0)
            response = self._ask_handler(call, request)
            if response is not None:
                self.answer(call, response, now_ms)
        elif fault.error:
            self._refuse(call)
        else:  # The request is lost.
            call.boundaries.handled_ms = None
            self._finish(call, None, now_ms)
        if active.then:
            faults.actions.add(active.then, call, active)

    def _refuse(self, call: Call) -> None:
        """Respond with an error to the request, or to the parts that the fault names. The other parts are handled."""
        faults, now_ms = self._cluster.faults, self._cluster.now_ms
        refused, others = faults.split(call)
        response = None if others is None else self._ask_handler(call, others)
        if others is None:
            call.boundaries.handled_ms = None
        if getattr(call.request, "acks", None) == 0:
            if others is None:  # Else the handler has answered the call, without a response.
                self._finish(call, None, now_ms)
            call.closes_connection = True  # As in Kafka: there is no response for the error.
            return
        self._finish(call, faults.refusal(call, refused, response), now_ms)

    def _ask_handler(self, call: Call, request: Any) -> Message | None:
        """Handle a call with this request instead of its own. Handlers do not keep a reference to it."""
        original, call.request = call.request, request
        try:
            return self.handlers[call.api.handler](self._cluster, call, self._cluster.now_ms)
        finally:
            call.request = original

    def continue_next(self, now_ms: float, wire_ms: float) -> None:
        """Handle the next part of the first of the `unfinished` requests; see `handle` for the times."""
        self._cluster.now_ms, self._cluster.wire_ms = now_ms, wire_ms
        call, proceed = self.unfinished.popleft()
        try:
            proceed()
            self.settle(now_ms)
        except Exception as error:  # A bug in a handler closes only the connection of the request.
            self._close(call, f"continued {call!r}", error)

    def _close(self, call: Call, what: str, error: Exception) -> None:
        call.closes_connection = True
        self.answered.append(call)
        self._cluster.faults.actions.log(what, error)

    # 4. Requests that were parked

    def settle(self, now_ms: float) -> None:
        """Answer the requests that coordinators had parked and have completed.

        `Cluster.tick` calls this, and `handle` after a request that has completed any at its broker. A handler that
        changes other coordinators calls it itself.
        """
        cluster = self._cluster
        for broker in cluster.brokers.values():
            coordinator, transactions = broker.coordinator, broker.transaction_coordinator
            if coordinator.answers:
                answers, coordinator.answers = coordinator.answers, []
                for call, response in answers:
                    assert isinstance(call, Call)  # the context that handlers give
                    if not cluster.sync_delays.hold_back(call, response, now_ms):
                        self.answer(call, response, now_ms)
            if transactions.answers:
                released, transactions.answers = transactions.answers, []
                for parked, outcome in released:
                    cast(Parked, parked).released(outcome)

    # 5. Answers that `handle` does not return

    def answer(self, call: Call, response: Message | None, now_ms: float) -> None:
        """Answer a call. The response is None if the request has none (acks=0)."""
        if call.fault is None:
            self.send(call, response, now_ms)
        else:
            call.boundaries.outcome = response
            self._finish(call, None if response is None else self._cluster.faults.changed(call, response), now_ms)

    def refuse(self, call: Call, reason: str, now_ms: float) -> None:
        """Close the connection of a request without an answer, as Kafka does if it cannot parse or answer it."""
        call.closes_connection = True
        call.closing_reason = reason
        self.answer(call, None, now_ms)

    def _finish(self, call: Call, response: Message | None, now_ms: float) -> None:
        """Send the response to a call that has a fault: now, later or never."""
        fault = call.fault
        assert fault is not None
        if fault.silent:
            return
        if fault.throttle_time_ms is not None and hasattr(response, "throttle_time_ms"):  # Responses of SASL have none.
            response = replaced(cast(Message, response), throttle_time_ms=fault.throttle_time_ms)
        if not self._cluster.faults.delay_response(call, response, now_ms):
            self.send(call, response, now_ms)

    # 6. Sending

    def send(self, call: Call, response: Message | None, now_ms: float) -> None:
        """Add a call to `answered` with its final response, to which faults have been applied.

        If a fault drops the response, the call stays unanswered in the journal, and the server closes its connection.
        """
        cluster = self._cluster
        if cluster.quotas.limits:
            response = cluster.quotas.charge(call, response, now_ms)
        if call.fault is None or not call.fault.drop:
            call.response = response
            call.answered_ms = now_ms
            call.answered_after = cluster.journal.added
        self.answered.append(call)

    @property
    def may_answer_with_bytes(self) -> bool:
        """Whether handlers may return encoded responses: no faults or quotas change responses."""
        return not (self._cluster.faults.active or self._cluster.quotas.limits)
