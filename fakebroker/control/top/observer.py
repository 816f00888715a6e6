"""The data of `fakebroker top`, from the control API: the current state of a cluster, and recent events.

The API returns states; events are derived from the differences between them. Does not depend on a terminal.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

if TYPE_CHECKING:
    from fakebroker.control.routes.blocked_groups import BlockedGroupList
    from fakebroker.control.routes.views.group_rows import GroupRow

Row = dict[str, Any]
"""An object of the control API's JSON."""

MAX_GROUPS = 50
MAX_BLOCKED = 20
MAX_TRANSACTIONS = 20
MAX_EVENTS = 100


class Event(msgspec.Struct, frozen=True):
    """A change of a group, of a transaction, of a broker or of the faults.

    Attributes:
        at_ms: Time by the brokers' clock, in milliseconds since the Unix epoch.
        subject: A group id, a transactional id, "broker 1" or "faults".
        description: What changed.
    """

    at_ms: float
    subject: str
    description: str


class ClusterState(msgspec.Struct, frozen=True):
    """A cluster at one point in time.

    Attributes:
        overview: The overview of the control API.
        blocked: The groups whose rebalances wait, longest first.
        unstable: Groups that are rebalancing, then those with the most rebalances, at least two.
        busy: The groups with the highest load.
        transactions: The transactions that have not ended, longest first.
        events: Events, newest first.
    """

    overview: Row
    blocked: "BlockedGroupList"
    unstable: "Sequence[GroupRow]"
    busy: "Sequence[GroupRow]"
    transactions: Sequence[Row]
    events: Sequence[Event]


class Source(Protocol):
    """The methods used of `fakebroker.control.Client`."""

    def overview(self) -> Row: ...

    def group_rows(self, *, sort: str, limit: int) -> list[Row]: ...

    def blocked_groups(self, *, limit: int) -> Row: ...

    def transaction_rows(self, *, sort: str, limit: int) -> list[Row]: ...


class Observer:
    """Fetches the state of one cluster, and derives events from the differences.

    Args:
        source: A control client.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._up: dict[int, bool] = {}
        self._faults = 0
        self._events: dict[tuple[str, float], Event] = {}

    def fetch(self) -> ClusterState:
        """Fetch the current state."""
        overview = self._source.overview()
        blocked = cast("BlockedGroupList", self._source.blocked_groups(limit=MAX_BLOCKED))
        unstable, busy = self._groups("unstable"), self._groups("busy")
        transactions: list[Row] = []
        if overview["transactions_by_state"]:
            transactions = self._source.transaction_rows(sort="waiting", limit=MAX_TRANSACTIONS)
        self._compare(overview)
        for group in (*unstable, *busy):
            self._add_event(_last_change(group))
        for transaction in transactions:
            self._add_event(_last_transition(transaction))
        self._drop_old_events()
        return ClusterState(
            overview,
            blocked,
            list(filter(_is_unstable, unstable)),
            busy,
            [each for each in transactions if each["state"] in _OPEN or each["pending_state"]],
            list(self._events.values()),
        )

    def _groups(self, sort: str) -> "list[GroupRow]":
        return cast("list[GroupRow]", self._source.group_rows(sort=sort, limit=MAX_GROUPS))

    def _compare(self, overview: Row) -> None:
        """Add events for changes of brokers and faults; at first, for brokers that are down and faults."""
        now_ms = overview["clock"]["now_ms"]
        up = {broker["node_id"]: broker["up"] for broker in overview["brokers"]}
        before = self._up or dict.fromkeys(up, True)
        for node_id, is_up in up.items():
            if before.get(node_id) is not is_up:
                self._add_event(Event(now_ms, f"broker {node_id}", "is up" if is_up else "is down"))
        for node_id in before:
            if node_id not in up:
                self._add_event(Event(now_ms, f"broker {node_id}", "was removed"))
        if overview["faults"] != self._faults:
            self._add_event(Event(now_ms, "faults", f"{overview['faults']} active"))
        self._up, self._faults = up, overview["faults"]

    def _add_event(self, event: Event) -> None:
        # Replaces the event of the same subject and time: the description of a rebalance changes as members join.
        self._events[event.subject, event.at_ms] = event

    def _drop_old_events(self) -> None:
        newest = sorted(self._events.items(), key=lambda item: -item[1].at_ms)
        self._events = dict(newest[:MAX_EVENTS])


_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""The states of transactions that have not ended."""


REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
"""The states of groups of both types in which partitions are being assigned or moved."""


def _is_unstable(group: "GroupRow") -> bool:
    return group["state"] in REBALANCING or group["rebalances"] > 1


def _last_change(group: "GroupRow") -> Event:
    number = "epoch" if group["type"] == "consumer" else "generation"
    change = f"{group['state']}, {number} {group['generation_id']}"
    return Event(group["since_ms"], group["group_id"], f"{change}: {group['why']}" if group["why"] else change)


def _last_transition(transaction: Row) -> Event:
    change = f"{transaction['state']}, producer {transaction['producer_id']} in epoch {transaction['producer_epoch']}"
    description = f"{change}: {transaction['why']}" if transaction["why"] else change
    return Event(transaction["last_update_ms"], transaction["transactional_id"], description)
