"""What `fakebroker top` shows, asked of the control API: a look at a cluster now, and what has happened lately.

The API tells how things are; what happened between two looks is found by comparing them. Knows no terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from fakebroker.control.routes.group_views import GroupRow
    from fakebroker.control.routes.views import Overview

MAX_GROUPS = 50
MAX_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened.

    Attributes:
        at_ms: When, by the brokers' clock.
        about: A group's id, or what else it befell.
        what: In words.
    """

    at_ms: float
    about: str
    what: str


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster as it was at one moment.

    Attributes:
        overview: The cluster.
        unstable: The groups that are in a rebalance, and those that rebalanced most; a first one alone is none.
        busy: The groups with most to do.
        events: The newest first.
    """

    overview: "Overview"
    unstable: "Sequence[GroupRow]"
    busy: "Sequence[GroupRow]"
    events: Sequence[Event]


class Source(Protocol):
    """What is needed of `fakebroker.control.Client`."""

    def overview(self) -> dict[str, Any]: ...

    def group_rows(self, *, sort: str, limit: int) -> list[dict[str, Any]]: ...


class Observer:
    """Looks at one cluster again and again.

    Args:
        source: Tells of it: a control client.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._up: dict[int, bool] = {}
        self._faults = 0
        self._events: dict[tuple[str, float], Event] = {}

    def look(self) -> Look:
        """The cluster now."""
        overview = cast("Overview", self._source.overview())
        unstable, busy = self._groups("unstable"), self._groups("busy")
        self._compare(overview)
        for group in (*unstable, *busy):
            self._note(_last_change(group))
        self._forget()
        return Look(overview, list(filter(_is_unstable, unstable)), busy, list(self._events.values()))

    def _groups(self, order: str) -> "list[GroupRow]":
        return cast("list[GroupRow]", self._source.group_rows(sort=order, limit=MAX_GROUPS))

    def _compare(self, overview: "Overview") -> None:
        """Note what happened to brokers and faults since the last look; at the first, what is not as usual."""
        now_ms = overview["clock"]["now_ms"]
        up = {broker["node_id"]: broker["up"] for broker in overview["brokers"]}
        before = self._up or dict.fromkeys(up, True)
        for node_id, is_up in up.items():
            if before.get(node_id) is not is_up:
                self._note(Event(now_ms, f"broker {node_id}", "is up" if is_up else "is down"))
        for node_id in before:
            if node_id not in up:
                self._note(Event(now_ms, f"broker {node_id}", "is gone"))
        if overview["faults"] != self._faults:
            self._note(Event(now_ms, "faults", f"{overview['faults']} in force"))
        self._up, self._faults = up, overview["faults"]

    def _note(self, event: Event) -> None:
        # What befell one thing at one moment is one event, though the words for it may change while a rebalance waits.
        self._events[event.about, event.at_ms] = event

    def _forget(self) -> None:
        newest = sorted(self._events.items(), key=lambda item: -item[1].at_ms)
        self._events = dict(newest[:MAX_EVENTS])


def _is_unstable(group: "GroupRow") -> bool:
    return group["state"].endswith("Rebalance") or group["rebalances"] > 1


def _last_change(group: "GroupRow") -> Event:
    what = f"{group['state']}, generation {group['generation_id']}"
    return Event(group["since_ms"], group["group_id"], f"{what}: {group['why']}" if group["why"] else what)
