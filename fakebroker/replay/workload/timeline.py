"""The `[[event]]` tables of a workload: their checks, execution on the embedded cluster, and outcomes."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from fakebroker.cluster.faults.rule import Fault, checked_in_advance
from fakebroker.cluster.handles.definition import checked
from fakebroker.errors import ConfigError, bounds

_CHECK_EVERY_S = 0.02

WHEN = "at_s"
"""Key of an event's time, in seconds from the start of the replay."""

CONDITION_EVENTS = ("expect", "holds")
"""Events that evaluate a condition, and change nothing."""

Outcome = str | None
"""The outcome of an event: None if it was done, else the reason why not."""

OVER = "the replay had ended"
"""The outcome of events that were not due before the end of the replay."""

EventOutcome = dict[str, Any]
"""An event in `summary.json`: its keys, its outcome as `done` and `why`, and in `at_s` when it was performed."""


class Timeline(msgspec.Struct, frozen=True):
    """The events of a replay over TCP; updated by the thread of `performing`.

    Attributes:
        done: Events that were sent to the cluster, with the time in seconds from the start of the replay.
        left: Events that are not due yet, ordered by time.
    """

    done: list[tuple[float, Mapping[str, Any]]] = msgspec.field(default_factory=list)
    left: list[Mapping[str, Any]] = msgspec.field(default_factory=list)

    def with_outcomes(self, outcomes: Sequence[Outcome]) -> list[EventOutcome]:
        """Return the timeline for `summary.json`.

        Args:
            outcomes: Outcomes of the events in `done`, in their order; the last ones may be missing.
        """
        missing = ["no result from the cluster"] * (len(self.done) - len(outcomes))
        performed = zip(self.done, [*outcomes, *missing], strict=False)
        return [
            *(event_outcome(event, at_s, why) for (at_s, event), why in performed),
            *(event_outcome(event, event[WHEN], OVER) for event in self.left),
        ]


def event_outcome(event: Mapping[str, Any], at_s: float, why: Outcome) -> EventOutcome:
    """Return an event for `summary.json`."""
    return {**without_time(event), WHEN: round(at_s, 3), "done": why is None, "why": why}


def by_time(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return events with their indexes in the file, ordered by time; ties in the order of the file."""
    return sorted(enumerate(events), key=lambda numbered: float(numbered[1][WHEN]))


def check_events(events: Sequence[Any], duration_s: float) -> Iterator[ConfigError]:
    """Yield the mistakes in the events of a file.

    Args:
        events: As in the file; values that are not tables are ignored.
        duration_s: Duration of the workload, in seconds.
    """
    expected = f"a number{bounds(0, below=duration_s)}"
    for index, event in enumerate(events):
        if not isinstance(event, Mapping):
            continue
        path, at_s = f"event[{index}]", event.get(WHEN)
        if WHEN not in event:
            yield ConfigError.missing(f"{path}.{WHEN}", expected)
        elif not isinstance(at_s, int | float) or isinstance(at_s, bool) or not 0 <= at_s < duration_s:
            yield ConfigError.of(f"{path}.{WHEN}", at_s, expected)
        try:
            name, arguments = checked(without_time(event))
            if name == "inject_fault":
                checked_in_advance(Fault(**arguments))
        except ConfigError as error:
            yield from (mistake.within(path) for mistake in error.mistakes)


def without_time(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event in the form that `fakebroker.cluster.handles.definition` takes."""
    return {key: value for key, value in event.items() if key != WHEN}


def actions_of(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the events that a fault performs (`Fault.before` and `Fault.then`), and theirs."""
    for key in ("before", "then"):
        value = event.get(key)
        for action in value if isinstance(value, list) else [value]:
            if isinstance(action, Mapping):
                yield action
                yield from actions_of(action)


def failed_action(error: str) -> str:
    """Return the outcome of an `inject_fault` event whose fault has performed an event that failed."""
    return f"an action of the fault failed: {error}"


@contextmanager
def performing(
    events: Sequence[Mapping[str, Any]], elapsed_ms: Callable[[], float], perform: Callable[[Mapping[str, Any]], None]
) -> Iterator[Timeline]:
    """Perform each event at its time, in a thread, until the context ends; events that are due later are skipped.

    Args:
        events: As in the file, in any order.
        elapsed_ms: Returns the elapsed time of the replay, in milliseconds.
        perform: Performs an event, given without its time.

    Yields:
        The timeline, which the thread updates.
    """
    timeline = Timeline(left=[event for _, event in by_time(events)])
    left = timeline.left
    is_over = threading.Event()

    def perform_due() -> None:
        while left and not is_over.wait(_CHECK_EVERY_S):
            while left and left[0][WHEN] * 1000 <= (now_ms := elapsed_ms()):
                event = without_time(left.pop(0))
                perform(event)
                timeline.done.append((now_ms / 1000, event))

    thread = threading.Thread(target=perform_due, name="events")
    thread.start()
    try:
        yield timeline
    finally:
        is_over.set()
        thread.join()
