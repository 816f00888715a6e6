"""The `[[event]]` tables of a workload: what happens to the embedded cluster while its members play."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fakebroker.cluster.events import checked
from fakebroker.errors import ConfigError

_LOOK_EVERY_S = 0.02

WHEN = "at_s"

Outcome = str | None
"""Of an event: None if it was done, else why not."""

OVER = "the replay was over"
"""The outcome of what was still to come when the last member had left."""

Told = dict[str, Any]
"""An event as it stands in `summary.json`: with when it was done, in seconds from the start, and what came of it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was done to a cluster.

    Attributes:
        done: When, in seconds from the start of the replay, and what.
        left: Events that are still to come, the next one first.
    """

    done: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    left: list[Mapping[str, Any]] = field(default_factory=list)

    def told(self, outcomes: Sequence[Outcome]) -> list[Told]:
        """The same as it stands in `summary.json`.

        Args:
            outcomes: Of the events that were done, in their order.
        """
        untold = ["no word from the cluster"] * (len(self.done) - len(outcomes))
        happened = zip(self.done, [*outcomes, *untold], strict=False)
        return [
            *(told(event, at_s, why) for (at_s, event), why in happened),
            *(told(event, event[WHEN], OVER) for event in self.left),
        ]


def told(event: Mapping[str, Any], at_s: float, why: Outcome) -> Told:
    """An event as it stands in `summary.json`."""
    return {**without_time(event), WHEN: round(at_s, 3), "done": why is None, "why": why}


def by_time(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Events in the order of their time with their places in the file, which is the order of those of one time."""
    return sorted(enumerate(events), key=lambda numbered: float(numbered[1][WHEN]))


def check_events(events: Sequence[Mapping[str, Any]], duration_s: float) -> None:
    """Look whether events can be, before anything starts.

    Raises:
        ConfigError: One cannot; the sentence says which.
    """
    for index, event in enumerate(events):
        at_s = event.get(WHEN)
        if not isinstance(at_s, (int, float)) or isinstance(at_s, bool) or not 0 <= at_s < duration_s:
            raise ConfigError(
                f"event[{index}].at_s = {at_s!r}: expected seconds, 0 or more and less than {duration_s:g}"
            )
        try:
            checked(without_time(event))
        except ConfigError as error:
            raise ConfigError(f"event[{index}]: {error}") from None


def without_time(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event as `fakebroker.cluster.events` knows it."""
    return {key: value for key, value in event.items() if key != WHEN}


@contextmanager
def happening(
    events: Sequence[Mapping[str, Any]], elapsed_ms: Callable[[], float], perform: Callable[[Mapping[str, Any]], None]
) -> Iterator[Timeline]:
    """Let each event happen when its time has come; those that are still to come at the end are left.

    Args:
        events: As they stand in the file, in any order.
        elapsed_ms: How long the members have been playing.
        perform: Does an event.

    Yields:
        What was done, and is left; it changes.
    """
    timeline = Timeline(left=[event for _, event in by_time(events)])
    left = timeline.left
    is_over = threading.Event()

    def wait() -> None:
        while left and not is_over.wait(_LOOK_EVERY_S):
            while left and left[0][WHEN] * 1000 <= (now_ms := elapsed_ms()):
                event = without_time(left.pop(0))
                perform(event)
                timeline.done.append((now_ms / 1000, event))

    thread = threading.Thread(target=wait, name="events")
    thread.start()
    try:
        yield timeline
    finally:
        is_over.set()
        thread.join()
