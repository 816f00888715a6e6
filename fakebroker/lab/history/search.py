"""Finds histories that break an invariant, and makes them shorter."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from fakebroker.lab.history.history import TOPIC, Event, History
from fakebroker.lab.script import BrokerDo, BrokerEvent, MemberDo, MemberEvent, TopicEvent

_FAULTS: Sequence[MemberDo] = (
    *("leave", "crash", "vanish", "pause", "pause", "slow", "cut", "lose_request", "lose_response", "start"),
)
_TAIL_SESSIONS = 8
"""The time after the last event, in session timeouts."""

_MOST_MEMBERS, _MOST_EVENTS = 4, 5
_FIRST_S, _LAST_S = 1, 60
"""The time in which events happen, in seconds."""

_RESTART_MS = 5_000.0
"""If no broker is left, all start again this time after the last event."""


def random_history(design: str, seed: int) -> History:
    """Return a random history; equal seeds give equal ones."""
    choice = random.Random(f"history {seed}")
    members = choice.randint(2, _MOST_MEMBERS)
    brokers = choice.randint(1, 3)
    partitions = choice.randint(1, 4)
    events: list[Event] = [MemberEvent(_time(choice, 0, _FIRST_S), number, "start") for number in range(members)]
    count = choice.randint(1, _MOST_EVENTS)
    events += [_random_event(choice, members, brokers, partitions) for _ in range(count)]
    events.sort(key=lambda event: event.at_ms)
    history = History(
        design=design, seed=seed, brokers=brokers, partitions=partitions, events=tuple(events), duration_ms=0.0
    )
    for node_id in range(1, brokers + 1) if _brokers_up(history) == 0 else ():
        events.append(BrokerEvent(events[-1].at_ms + _RESTART_MS, node_id, "start"))
    return _with_end(replace(history, events=tuple(events)))


def _brokers_up(history: History) -> int:
    """Return how many brokers run at the end."""
    last = {event.node_id: event.do for event in history.events if isinstance(event, BrokerEvent)}
    return history.brokers - sum(do != "start" for do in last.values())


def _time(choice: random.Random, first_s: int, last_s: int) -> float:
    return float(choice.randint(first_s * 1000, last_s * 1000))


def _random_event(choice: random.Random, members: int, brokers: int, partitions: int) -> Event:
    at_ms = _time(choice, _FIRST_S, _LAST_S)
    match choice.randrange(10):
        case 0:
            return TopicEvent(at_ms, TOPIC, partitions + choice.randint(1, 2))
        case 1 | 2:
            do: BrokerDo = choice.choice(("stop", "vanish", "start"))
            return BrokerEvent(at_ms, choice.randint(1, brokers), do)
        case _:
            fault = choice.choice(_FAULTS)
            for_ms = _time(choice, 1, 10) if fault in ("pause", "slow") else 0.0
            extra_ms = _time(choice, 1, 8) if fault == "slow" else 0.0
            return MemberEvent(at_ms, choice.randrange(members), fault, for_ms, extra_ms)


def _with_end(history: History) -> History:
    """Return a history that ends long after its last event."""
    last_ms = max((event.at_ms + getattr(event, "for_ms", 0.0) for event in history.events), default=0.0)
    return replace(history, duration_ms=last_ms + _TAIL_SESSIONS * history.session_timeout_ms + _TAIL_MS)


_TAIL_MS = 60_000.0
"""More time after the last event: brokers that vanish are noticed, and members give up connecting to them."""


def breaking_histories(design: str, seeds: Iterable[int]) -> dict[str, History]:
    """Return the first history that breaks each invariant, by the invariant's name. A seed gives one history."""
    found: dict[str, History] = {}
    for seed in seeds:
        history = random_history(design, seed)
        for invariant in history.violations():
            found.setdefault(invariant, replace(history, breaks=invariant))
    return found


def shortened(history: History) -> History:
    """Return a history that still breaks its invariant, and no longer does without any of its events."""

    def still_breaks(candidate: History) -> bool:
        return _brokers_up(candidate) > 0 and candidate.breaks in candidate.violations()

    changed = True
    while changed:
        history, changed = _shorten_once(history, still_breaks)
    return history


def _shorten_once(history: History, still_breaks: Callable[[History], bool]) -> tuple[History, bool]:
    """Try all simpler histories once; return the last one that breaks, and whether there was one."""
    changed = False
    index = 0
    while index < len(history.events):
        candidate = _with_end(replace(history, events=history.events[:index] + history.events[index + 1 :]))
        if still_breaks(candidate):
            history, changed = candidate, True
        else:
            index += 1
    for index, event in enumerate(history.events):
        for simpler in _simpler(event):
            events = [*history.events]
            events[index] = simpler
            candidate = _with_end(replace(history, events=tuple(sorted(events, key=lambda each: each.at_ms))))
            if still_breaks(candidate):
                history, changed = candidate, True
                break
        if changed:
            break
    for name, smaller in (("brokers", history.brokers - 1), ("partitions", history.partitions - 1)):
        needed = max((event.node_id for event in history.events if isinstance(event, BrokerEvent)), default=1)
        if smaller >= (needed if name == "brokers" else 1):
            candidate = replace(history, **{name: smaller})
            if still_breaks(candidate):
                history, changed = candidate, True
    return history, changed


def _simpler(event: Event) -> Iterator[Event]:
    """Yield the event with rounder times, the roundest first; each is later or longer than a rounder one."""
    names = ("at_ms", "for_ms", "extra_ms") if isinstance(event, MemberEvent) else ("at_ms",)
    for name in names:
        value: float = getattr(event, name)
        for unit_ms in (10_000.0, 1_000.0, 100.0):
            rounded = value // unit_ms * unit_ms
            if rounded != value and (rounded or name == "at_ms"):
                yield replace(event, **{name: rounded})
