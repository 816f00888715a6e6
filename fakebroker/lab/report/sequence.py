"""The messages of a small run, for sequence diagrams: a join, a failure and a failover in a group of three members.

Beats that change nothing are folded: a line stands for all those between two other messages.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.design import CoordinatorSettings, Design
from fakebroker.lab.history.conversation import message_detail
from fakebroker.lab.script import BrokerEvent, ClusterPlan, GroupPlan, MemberEvent, Script, TopicEvent
from fakebroker.lab.world.members import MemberProcess
from fakebroker.lab.world.traffic import kind_of
from fakebroker.lab.world.world import World
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.scheduler import START_MS
from fakebroker.replay.wording import error_name

MEMBERS, BROKERS = 3, 2
"""The participants."""

_GROUP, _TOPIC = "g", "orders"
_PARTITIONS = 4
_SETTINGS = CoordinatorSettings(offsets_partitions=BROKERS, initial_rebalance_delay_ms=500)
_JOIN_MS, _CRASH_MS, _STOP_MS, _END_MS = 20_000, 45_000, 90_000, 150_000
_TAIL_MS = 5.0
"""How long a diagram continues after the group is complete: responses are still on the way."""

_DID = {"start": "starts", "crash": "crashes", "stop": "stops"}


class Arrow(msgspec.Struct, frozen=True):
    """A message.

    Attributes:
        at_ms: When it was sent, since the beginning of the diagram.
        member: The member, from 0.
        node_id: The broker.
        to_member: Whether the broker sent it.
        text: Its name without "Request" and "Response", with its generation and error.
        is_response: Whether it answers a request.
        has_error: Whether it has an error.
    """

    at_ms: float
    member: int
    node_id: int
    to_member: bool
    text: str
    is_response: bool
    has_error: bool


class Note(msgspec.Struct, frozen=True):
    """Something that happens at one participant.

    Attributes:
        at_ms: See `Arrow`.
        member, node_id: The participant; the other one is None.
        text: What happens.
        is_event: Whether it is an event of the script, else an effect of the design.
        is_end: Whether the process ends.
    """

    at_ms: float
    member: int | None
    node_id: int | None
    text: str
    is_event: bool = False
    is_end: bool = False


class Fold(msgspec.Struct, frozen=True):
    """Beats that change nothing.

    Attributes:
        at_ms: When the first one was sent; see `Arrow`.
        text: Their numbers by name.
    """

    at_ms: float
    text: str


Step = Arrow | Note | Fold


class Diagram(msgspec.Struct, frozen=True):
    """A sequence diagram.

    Attributes:
        title: What happens.
        coordinator: The broker that coordinates the group at its beginning.
        steps: The steps, ordered by time.
    """

    title: str
    coordinator: int
    steps: tuple[Step, ...]


class _Recorder:
    """A `world.Observer` that keeps the messages and notes of a run."""

    def __init__(self, design: Design) -> None:
        self._is_beat = design.is_beat
        self.steps: list[Arrow | Note] = []
        self.quiet: set[int] = set()
        """The indexes of beats that change nothing."""
        self._pending: defaultdict[tuple[int, int, str], deque[int]] = defaultdict(deque)

    def sent(self, at_ms: float, member: MemberProcess, message: Message, node_id: int, *, to_member: bool) -> None:
        kind, error = kind_of(message), _error(message)
        name, is_response = kind.removesuffix("Request").removesuffix("Response"), kind.endswith("Response")
        if self._is_beat(message):
            self._pair((member.number, node_id, name), is_response=is_response, has_error=bool(error))
        detail = message_detail(message) or (f" ({error_name(error)})" if error else "")
        self.steps.append(Arrow(at_ms, member.number, node_id, to_member, f"{name}{detail}", is_response, bool(error)))

    def _pair(self, key: tuple[int, int, str], *, is_response: bool, has_error: bool) -> None:
        """Find the request of a response: both change nothing if the response has no error."""
        index, pending = len(self.steps), self._pending[key]
        if not is_response:
            pending.append(index)
        elif pending:
            request = pending.popleft()
            if not has_error:
                self.quiet |= {request, index}

    def happened(self, at_ms: float, event: MemberEvent | BrokerEvent | TopicEvent) -> None:
        if isinstance(event, TopicEvent):
            return
        text, is_end = _DID[event.do], event.do != "start"
        if isinstance(event, MemberEvent):
            self.steps.append(Note(at_ms, event.member, None, text, is_event=True, is_end=is_end))
        else:
            self.steps.append(Note(at_ms, None, event.node_id, text, is_event=True, is_end=is_end))

    def changed(self, at_ms: float, member: MemberProcess) -> None:
        owned = ", ".join(str(index) for _, index in sorted(member.owned))
        note = Note(at_ms, member.number, None, f"owns {owned}" if owned else "owns nothing")
        before = next((s for s in reversed(self.steps) if isinstance(s, Note) and s.member == member.number), None)
        if before is None or before.text != note.text:
            self.steps.append(note)

    def expelled(self, at_ms: float, member: MemberProcess) -> None:
        self.steps.append(Note(at_ms, member.number, None, "is removed from the group"))


def _error(message: Any) -> int:
    """Return the error of a message, or the first one of the lists in it; 0 without errors."""
    if error := getattr(message, "error_code", 0):
        return int(error)
    lists = (getattr(message, name, None) or () for name in ("topics", "partitions", "members", "groups"))
    return next((error for items in lists for item in items if (error := _error(item))), 0)


def _script(coordinator: int) -> Script:
    group = GroupPlan(
        group_id=_GROUP, topics=(_TOPIC,), members=range(MEMBERS), session_timeout_ms=10_000, retry_backoff_ms=100
    )
    return Script(
        cluster=ClusterPlan(brokers=BROKERS, topics={_TOPIC: _PARTITIONS}, coordinator=_SETTINGS),
        groups=(group,),
        events=(
            MemberEvent(100, 0, "start"),
            MemberEvent(150, 1, "start"),
            MemberEvent(_JOIN_MS, 2, "start"),
            MemberEvent(_CRASH_MS, 1, "crash"),
            BrokerEvent(_STOP_MS, coordinator, "stop"),
        ),
        duration_ms=_END_MS,
        seed=1,
    )


def diagrams_of(design: Design) -> list[Diagram]:
    """Return the diagrams of a design: a join, a failure and a failover, from one run.

    Raises:
        Exception: The design raised an exception.
    """
    # Leaders of the partitions of the offsets topic are the brokers in turn; see `world.brokers.OffsetsTopic`.
    coordinator = 1 + partition_for(_GROUP, _SETTINGS.offsets_partitions) % BROKERS
    recorder = _Recorder(design)
    world = World(design, _script(coordinator), recorder, rests=False)
    world.run()
    ends_ms = [(each.from_ms - START_MS, each.until_ms) for each in world.ownership.rebalances]
    found = []
    for title, from_ms, next_ms in (
        (f"Join: member {MEMBERS} starts", _JOIN_MS, _CRASH_MS),
        ("Failure: member 2 crashes", _CRASH_MS, _STOP_MS),
        (f"Failover: broker {coordinator}, the coordinator, stops", _STOP_MS, _END_MS),
    ):
        of_phase = [until_ms for at_ms, until_ms in ends_ms if from_ms <= at_ms < next_ms]
        is_over = bool(of_phase) and None not in of_phase
        last_ms = max((each for each in of_phase if each is not None), default=START_MS) - START_MS
        until_ms = last_ms + _TAIL_MS if is_over else next_ms
        steps = tuple(_folded(recorder.steps, recorder.quiet, from_ms, until_ms))
        found.append(Diagram(title if is_over else f"{title}; the group is not complete again", coordinator, steps))
    return found


def _folded(steps: Sequence[Arrow | Note], quiet: set[int], from_ms: float, until_ms: float) -> Iterator[Step]:
    """Yield the steps of a time, relative to its beginning; successive beats that change nothing are one."""
    names: Counter[str] = Counter()
    first_ms = 0.0
    for index, step in enumerate(steps):
        if not from_ms <= step.at_ms <= until_ms:
            continue
        if index in quiet and isinstance(step, Arrow):
            if not names:
                first_ms = step.at_ms - from_ms
            names[step.text.partition(" (")[0]] += not step.is_response
            continue
        yield from _fold(first_ms, names)
        names.clear()
        yield _shifted(step, from_ms)
    yield from _fold(first_ms, names)


def _fold(at_ms: float, names: Counter[str]) -> Iterator[Fold]:
    """Yield a step for requests; none if there are only responses to requests of an earlier fold."""
    counts = [f"{count} x {name}" for name, count in names.items() if count]
    if counts:
        yield Fold(at_ms, ", ".join(counts))


def _shifted(step: Arrow | Note, from_ms: float) -> Arrow | Note:
    at_ms = step.at_ms - from_ms
    if isinstance(step, Arrow):
        return Arrow(at_ms, step.member, step.node_id, step.to_member, step.text, step.is_response, step.has_error)
    return Note(at_ms, step.member, step.node_id, step.text, step.is_event, step.is_end)
