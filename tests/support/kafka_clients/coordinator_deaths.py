"""Stops a coordinator in a certain phase of a rebalance.

The five phases are those in "Co-ordinator failure during rebalance" of Kafka's consumer rewrite design, in terms of
today's protocol. The rebalance begins because the member `NEWCOMER` joins a stable group of two members.
"""

from collections.abc import Callable
from typing import Any

from fakebroker import FakeCluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.views import GroupView

NEWCOMER = "newcomer"

GROUP = "g"

_LONG_S = 3600.0  # Until the broker is stopped.


class CoordinatorDeath:
    """Stops the coordinator of the group `GROUP` when a fault's action finds it in a certain state.

    The new coordinator loads the log immediately.

    Args:
        cluster: The cluster.

    Attributes:
        node_id: The stopped broker; None before.
        loaded: The group as loaded by the new coordinator; None before.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.node_id: int | None = None
        self.loaded: GroupView | None = None
        self.cluster = cluster

    def stop_after(self, api: str, state: str | None = None, **filters: Any) -> None:
        """Stop the coordinator after it has handled a request of an API, if the group is in the given state then."""
        self.cluster.inject_fault(api, **filters, then=lambda call: self._stop_in(state, call))

    def stop_before(self, api: str, holds: Callable[[], bool] = lambda: True) -> None:
        """Stop the coordinator before it handles a request of an API, if a condition holds."""
        self.cluster.inject_fault(api, before=lambda call: self._stop(call) if holds() else None)

    def _stop_in(self, state: str | None, call: Call) -> None:
        if state in (None, self.cluster.group(GROUP).describe().state):
            self._stop(call)

    def _stop(self, call: Call) -> None:
        self.cluster.clear_faults()
        self.node_id = call.node_id
        self.cluster.broker(self.node_id).stop()
        self.loaded = self.cluster.group(GROUP).describe()


def newcomer_has_joined(death: CoordinatorDeath) -> None:
    """The newcomer has joined; the other members do not know of the rebalance."""
    death.stop_after("JoinGroup", "PreparingRebalance", client_id=NEWCOMER)


def one_member_knows(death: CoordinatorDeath) -> None:
    """One heartbeat has been answered with REBALANCE_IN_PROGRESS, and the member sends JoinGroup."""
    earlier = death.cluster.journal.count("Heartbeat", error="REBALANCE_IN_PROGRESS")
    death.stop_before(
        "JoinGroup", lambda: death.cluster.journal.count("Heartbeat", error="REBALANCE_IN_PROGRESS") > earlier
    )


def one_has_rejoined(death: CoordinatorDeath) -> None:
    """One of the two old members has rejoined, the other has not."""
    for client_id in ("first", "second"):
        death.stop_after("JoinGroup", "PreparingRebalance", client_id=client_id)


def generation_is_written(death: CoordinatorDeath) -> None:
    """The new generation is in the log with all assignments; no member has its assignment."""
    death.stop_after("SyncGroup", "Stable")


def one_join_is_answered(death: CoordinatorDeath) -> None:
    """All members have joined, and only the newcomer's JoinGroup has been answered, which sends SyncGroup."""
    for client_id in ("first", "second"):
        death.cluster.inject_fault("JoinGroup", client_id=client_id, delay_s=_LONG_S)
    death.stop_before("SyncGroup")


PHASES: dict[str, Callable[[CoordinatorDeath], None]] = {
    "1 newcomer joined": newcomer_has_joined,
    "2 one member knows": one_member_knows,
    "3 one has rejoined": one_has_rejoined,
    "4 generation written": generation_is_written,
    "5 one join answered": one_join_is_answered,
}
"""Adds the faults of each phase to a cluster."""
