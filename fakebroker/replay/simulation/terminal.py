"""Clients' ends of connections in virtual time, and the way of a request to its broker and back.

A broker takes one request of a connection at a time. Knows requests and brokers; not what is asked, nor why.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES, in_shape_of
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.registry import APIS, api_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.link import Spoken
from fakebroker.replay.simulation.virtual_time import ARRIVAL, CONNECT_MS, DELAY_MS, REACH, TIMER, Agenda

M = TypeVar("M", bound=Message)

_CLIENT_HOST = "/127.0.0.1"
_HARMLESS = ("Heartbeat", "OffsetCommit", "OffsetFetch", "FindCoordinator", "Metadata", "DescribeGroups", "ListGroups")
"""Requests that change nothing for other members of a group."""

_NEWEST: dict[type[Message], int] = {
    kind: min(api.versions.last, LAST_VERSION_WITH_TOPIC_NAMES.get(api.request, api.versions.last))
    for api in APIS
    for kind in (api.request, api.response)
}
"""The version of each message that clients here would speak best: it has all fields that they use."""


class Terminal(Peer):
    """A client's end of its connections, one after the other.

    Attributes:
        number: Among all terminals.
        serial: Of the connection that there is, or is being made.
        is_open: Whether there is one.
        spoken: The versions agreed on.
    """

    __slots__ = ("_free_ms", "_owed", "_waiting", "is_open", "number", "serial", "spoken")
    broker: BrokerNode
    spoken: Spoken

    def __init__(self, broker: BrokerNode, number: int) -> None:
        super().__init__(broker, _CLIENT_HOST, number)
        self.number = number
        self.serial = 0
        self.is_open = False
        self._owed: Call | None = None
        self._waiting: deque[Call] | None = None
        self._free_ms = 0.0

    def opened(self) -> None:
        """The connection is made."""
        raise NotImplementedError

    def reached(self, call: Call, response: Any) -> None:
        """An answer has come."""
        raise NotImplementedError

    def cut(self) -> None:
        """The connection is lost, or could not be made."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """Close the connection: nothing that is still on its way comes in any more."""
        self.serial += 1
        self.is_open = False
        self._owed = self._waiting = None
        self._free_ms = 0.0


class Network:
    """The way to the brokers and back.

    Args:
        agenda: The time.
        disturb: Is told the groups of a request that may change more than what its own sender knows.
        keeps_order: Whether even requests that concern nobody else are to be handled in their exact order, as the end
            of the log is to be lost.
    """

    def __init__(
        self, cluster: Cluster, agenda: Agenda, disturb: Callable[[Iterable[str]], None], *, keeps_order: bool
    ) -> None:
        self._are_harmless = not keeps_order
        self._cluster, self._agenda, self._disturb = cluster, agenda, disturb
        self._eras: dict[int, int] = {}  # By node id: how often its connections were cut.
        self._spoken: dict[int, Spoken] = {}
        self._timer_ms = float("inf")
        self.terminals: list[Terminal] = []

    # Connections

    def connect(self, terminal: Terminal, node_id: int, now_ms: float) -> None:
        """Make a connection; the terminal is told."""
        terminal.hang_up()
        self._agenda.note(now_ms + CONNECT_MS, REACH, terminal.number, self._open, terminal, terminal.serial, node_id)

    def _open(self, terminal: Terminal, serial: int, node_id: int) -> None:
        if terminal.serial != serial:
            return
        broker = self._cluster.brokers.get(node_id)
        if broker is None or not broker.up:
            terminal.hang_up()
            terminal.cut()
            return
        terminal.broker, terminal.is_open = broker, True
        if node_id not in self._spoken:
            self._spoken[node_id] = Spoken(broker.versions)
        terminal.spoken = self._spoken[node_id]
        terminal.opened()

    def cut(self, broker: BrokerNode) -> None:
        """A broker cuts all its connections; what is on its way there is lost."""
        self._eras[broker.node_id] = self._eras.get(broker.node_id, 0) + 1
        self._spoken.pop(broker.node_id, None)
        for terminal in self.terminals:
            if terminal.is_open and terminal.broker is broker:
                self._lose(terminal, self._agenda.clock.moment_ms)

    def _lose(self, terminal: Terminal, now_ms: float) -> None:
        terminal.is_open = False
        self._agenda.note(now_ms + DELAY_MS, REACH, terminal.number, self._lost, terminal, terminal.serial)

    def _lost(self, terminal: Terminal, serial: int) -> None:
        if terminal.serial == serial:
            terminal.hang_up()
            terminal.cut()

    # The way there

    def call(self, terminal: Terminal, request: Message, version: int, client_id: str) -> Call:
        """A request as its broker will get it over the connection that there is."""
        return Call(terminal, api_of(request), version, terminal.serial, client_id, carried(request, version), 0)

    def send(self, call: Call, now_ms: float) -> None:
        """Let a request go out over the connection that there is."""
        terminal = call.peer
        assert isinstance(terminal, Terminal)
        era = self._eras.get(call.broker.node_id, 0)
        note = self._agenda.note if self._are_harmless and call.api.name in _HARMLESS else self._agenda.note_grave
        note(now_ms + DELAY_MS, ARRIVAL, terminal.number, self._arrive, terminal, call, era)

    def _arrive(self, terminal: Terminal, call: Call, era: int) -> None:
        """A broker reads what arrives even if its sender has hung up, but not if it has cut the connection itself."""
        if self._eras.get(call.broker.node_id, 0) != era:
            return
        is_current = terminal.serial == call.correlation_id
        now_ms = self._agenda.clock.moment_ms
        if is_current and terminal._free_ms > now_ms:
            self._agenda.note_grave(terminal._free_ms, ARRIVAL, terminal.number, self._arrive, terminal, call, era)
        elif is_current and terminal._owed is not None:
            terminal._waiting = terminal._waiting or deque()
            terminal._waiting.append(call)
        else:
            if is_current:
                terminal._owed = call
            self._handle(call, now_ms)

    def _handle(self, call: Call, now_ms: float) -> None:
        if call.api.name not in _HARMLESS:
            self._disturb(call.group_ids)
        if self._cluster.handle(call, now_ms):
            self._answer(call, now_ms)
        self.settle(now_ms)

    def handle_alone(self, call: Call, now_ms: float) -> Any:
        """Have a request handled that concerns nobody but its sender.

        Returns:
            Its response, as the sender gets it.
        """
        self._cluster.handle(call, now_ms)
        self.note_timer(call.broker.coordinator.next_deadline())
        return carried(call.response, call.api_version)

    # The way back

    def settle(self, now_ms: float) -> None:
        """Let the answers go out that are known."""
        answered, self._cluster.answered = self._cluster.answered, []
        for call in answered:
            self._answer(call, now_ms)
        self._look_for_timers()

    def _answer(self, call: Call, now_ms: float) -> None:
        terminal = call.peer
        assert isinstance(terminal, Terminal)
        if terminal.serial != call.correlation_id or not terminal.is_open:
            return
        terminal._owed = None
        if call.fault is not None:
            if call.fault.drop:
                self._lose(terminal, now_ms)
                return
            terminal._free_ms = now_ms + (call.fault.throttle_time_ms or 0)
        if call.response is not None:
            response = carried(call.response, call.response_version)
            self._agenda.note(
                now_ms + DELAY_MS, REACH, terminal.number, self._reach, terminal, call, response, terminal.serial
            )
        if terminal._waiting:
            era = self._eras.get(call.broker.node_id, 0)
            self._agenda.note_grave(
                now_ms, ARRIVAL, terminal.number, self._arrive, terminal, terminal._waiting.popleft(), era
            )

    def _reach(self, terminal: Terminal, call: Call, response: Any, serial: int) -> None:
        if terminal.serial == serial:
            terminal.reached(call, response)

    def return_late(self, call: Call, response: Message, handled_ms: float) -> None:
        """Let an answer be on its way since a time that is over."""
        terminal = call.peer
        assert isinstance(terminal, Terminal)
        at_ms = handled_ms + DELAY_MS
        self._agenda.note(at_ms, REACH, terminal.number, self._reach, terminal, call, response, terminal.serial)

    # The brokers' timers

    def _look_for_timers(self) -> None:
        self.note_timer(self._cluster.next_deadline())

    def note_timer(self, due_ms: float | None) -> None:
        """A broker has a timer that is due then."""
        if due_ms is not None and due_ms < self._timer_ms:
            self._timer_ms = due_ms
            self._agenda.note_grave(due_ms, TIMER, -1, self._ring, due_ms)

    def _ring(self, due_ms: float) -> None:
        if due_ms != self._timer_ms:
            return
        self._timer_ms = float("inf")
        self._cluster.tick(self._agenda.clock.moment_ms)
        self.settle(self._agenda.clock.moment_ms)


def carried(message: M, version: int) -> M:
    """A message as it comes out at the other end: fields that a version lacks are lost on the way."""
    kind = type(message)
    if version >= _NEWEST[kind]:
        return message
    shaped = in_shape_of(version, message)
    return decode(kind, encode(shaped, version), version)
