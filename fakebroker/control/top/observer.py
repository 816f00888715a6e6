"""The data of `fakebroker top`, from the control API: the current state of a cluster, and recent events.

The API returns states; events are derived from the differences between them. Does not depend on a terminal.
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
    """A change of a group, of a broker or of the faults.

    Attributes:
        at_ms: Time by the brokers' clock, in milliseconds since the Unix epoch.
        about: A group's id, or another subject.
        what: Description.
    """

    at_ms: float
    about: str
    what: str


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster at one point in time.

    Attributes:
        overview: The cluster.
        unstable: Groups in a rebalance, and those with most rebalances; a single rebalance is not counted.
        busy: The groups with the highest load.
        events: Events, newest first.
    """

    overview: "Overview"
    unstable: "Sequence[GroupRow]"
    busy: "Sequence[GroupRow]"
    events: Sequence[Event]


class Source(Protocol):
    """The methods used of `fakebroker.control.Client`."""

    def overview(self) -> dict[str, Any]: ...

    def group_rows(self, *, sort: str, limit: int) -> list[dict[str, Any]]: ...


class Observer:
    """Observes one cluster repeatedly.

    Args:
        source: A control client.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._up: dict[int, bool] = {}
        self._faults = 0
        self._events: dict[tuple[str, float], Event] = {}

    def look(self) -> Look:
        """Fetch the current state."""
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
        """Record changes of brokers and faults since the last look; at the first one, unusual states."""
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
        # One event per subject and time, even if its description changes while a rebalance waits.
        self._events[event.about, event.at_ms] = event

    def _forget(self) -> None:
        newest = sorted(self._events.items(), key=lambda item: -item[1].at_ms)
        self._events = dict(newest[:MAX_EVENTS])


def _is_unstable(group: "GroupRow") -> bool:
    return group["state"].endswith("Rebalance") or group["rebalances"] > 1


def _last_change(group: "GroupRow") -> Event:
    what = f"{group['state']}, generation {group['generation_id']}"
    return Event(group["since_ms"], group["group_id"], f"{what}: {group['why']}" if group["why"] else what)
