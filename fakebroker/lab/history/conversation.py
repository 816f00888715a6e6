"""What members and brokers say to each other in a short run, as lines of text."""

from collections.abc import Iterator
from itertools import groupby

from fakebroker.lab.history.checker import InvariantChecker
from fakebroker.lab.script import BrokerEvent, MemberEvent, TopicEvent
from fakebroker.lab.world.members import MemberProcess
from fakebroker.lab.world.traffic import kind_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.wording import error_name

_FOLDED_FROM = 3
"""From this number on, equal lines are folded."""


class Conversation:
    """Records a run; a `world.Observer` that also informs another one.

    Args:
        checker: The other observer.
    """

    def __init__(self, checker: InvariantChecker) -> None:
        self._checker = checker
        self._entries: list[tuple[float, str]] = []

    def lines(self) -> Iterator[str]:
        """Yield the lines; pairs of equal lines that repeat are folded."""
        entries = list(_folded(self._entries))
        for at_ms, text, count in entries:
            times = f"  ({count} times)" if count > 1 else ""
            yield f"{at_ms / 1000:9.3f}  {text}{times}"

    # world.Observer

    def sent(self, at_ms: float, member: MemberProcess, message: Message, node_id: int, *, to_member: bool) -> None:
        name = kind_of(message)
        detail = message_detail(message)
        if to_member:
            text = f"broker {node_id} -> member {member.number}: {name}{detail}"
        else:
            text = f"member {member.number} -> broker {node_id}: {name}{detail}"
        self._entries.append((at_ms, text))
        self._checker.sent(at_ms, member, message, node_id, to_member=to_member)

    def happened(self, at_ms: float, event: MemberEvent | BrokerEvent | TopicEvent) -> None:
        match event:
            case MemberEvent():
                self._entries.append((at_ms, f"* member {event.member}: {event.do}"))
            case BrokerEvent():
                self._entries.append((at_ms, f"* broker {event.node_id}: {event.do}"))
            case TopicEvent():
                self._entries.append((at_ms, f"* {event.topic}: {event.partitions} partitions"))
        self._checker.happened(at_ms, event)

    def changed(self, at_ms: float, member: MemberProcess) -> None:
        owned = ", ".join(f"{topic}-{index}" for topic, index in member.owned)
        self._entries.append((at_ms, f"  member {member.number} owns {owned or 'nothing'}"))
        self._checker.changed(at_ms, member)

    def expelled(self, at_ms: float, member: MemberProcess) -> None:
        self._entries.append((at_ms, f"  the coordinator removes member {member.number}"))
        self._checker.expelled(at_ms, member)


def message_detail(message: Message) -> str:
    """Return the generation and the error of a message in parentheses; empty without both."""
    found = []
    generation = getattr(message, "generation_id", getattr(message, "group_generation_id", None))
    if generation is not None:
        found.append(f"generation {generation}")
    error = getattr(message, "error_code", 0)
    if error:
        found.append(error_name(error))
    return f" ({', '.join(found)})" if found else ""


def _folded(entries: list[tuple[float, str]]) -> Iterator[tuple[float, str, int]]:
    """Yield entries with a count; entries of one stretch that differ only in time are folded at the first of them.

    A stretch is a sequence of messages without an event, an assignment or a message that occurs in it only once or
    twice.
    """
    for is_repeated, stretch in groupby(_with_repetition(entries), key=lambda entry: entry[2]):
        if not is_repeated:
            yield from ((at_ms, text, 1) for at_ms, text, _ in stretch)
            continue
        first: dict[str, float] = {}
        counts: dict[str, int] = {}
        for at_ms, text, _ in stretch:
            first.setdefault(text, at_ms)
            counts[text] = counts.get(text, 0) + 1
        yield from ((at_ms, text, counts[text]) for text, at_ms in first.items())


def _with_repetition(entries: list[tuple[float, str]]) -> Iterator[tuple[float, str, bool]]:
    """Yield each entry with whether it is a message that repeats in the run."""
    counts: dict[str, int] = {}
    for _, text in entries:
        counts[text] = counts.get(text, 0) + 1
    for at_ms, text in entries:
        yield at_ms, text, "->" in text and counts[text] >= _FOLDED_FROM
