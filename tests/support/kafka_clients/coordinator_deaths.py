"""Stops a coordinator in a certain phase of a rebalance.

The five phases are those in "Co-ordinator failure during rebalance" of Kafka's consumer rewrite design, in terms of
today's protocol. The rebalance begins because the member `NEWCOMER` joins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.errors import ErrorCode

NEWCOMER = "newcomer"

GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit")


@dataclass(frozen=True, slots=True)
class HandlingStep:
    """The moment before or after the coordinator handles a request of the group.

    Attributes:
        calls: The group's requests since the `CoordinatorDeath` was created; the last one is the current one.
        is_handled: Whether the current request has been handled; its response has not been sent.
        state: State of the group by Kafka's name.
    """

    calls: Sequence[Call]
    is_handled: bool
    state: str

    def just_handled(self, api: str) -> bool:
        return self.is_handled and self.calls[-1].api.name == api

    def about_to_handle(self, *apis: str) -> bool:
        return not self.is_handled and self.calls[-1].api.name in apis


def newcomer_has_joined(step: HandlingStep) -> bool:
    """The newcomer has joined; the other members do not know of the rebalance."""
    return step.just_handled("JoinGroup") and step.state == "PreparingRebalance"


def one_member_knows(step: HandlingStep) -> bool:
    """One heartbeat has been answered with REBALANCE_IN_PROGRESS, and the member sends JoinGroup."""
    return step.about_to_handle("JoinGroup") and any(
        call.api.name == "Heartbeat" and call.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        for call in step.calls[:-1]
    )


def one_has_rejoined(step: HandlingStep) -> bool:
    """One of the two old members has rejoined, the other has not."""
    return newcomer_has_joined(step) and step.calls[-1].client_id != NEWCOMER


def generation_is_written(step: HandlingStep) -> bool:
    """The new generation is in the log with all assignments; no member has its assignment."""
    return step.just_handled("SyncGroup") and step.state == "Stable"


def one_join_is_answered(step: HandlingStep) -> bool:
    """One JoinGroup has been answered, and the member sends SyncGroup; see `CoordinatorDeath`."""
    return step.about_to_handle("SyncGroup")


PHASES: dict[str, Callable[[HandlingStep], bool]] = {
    "1 newcomer joined": newcomer_has_joined,
    "2 one member knows": one_member_knows,
    "3 one has rejoined": one_has_rejoined,
    "4 generation written": generation_is_written,
    "5 one join answered": one_join_is_answered,
}


class CoordinatorDeath:
    """Stops the coordinator of a group in a phase, in the cluster's thread: no other request is handled in between.

    The new coordinator loads the log immediately. In phase 5, all members have joined and only one JoinGroup response
    is sent, as if the broker stopped while it wrote the responses.

    Args:
        cluster: The cluster.
        group_id: The group.
        phase: One of `PHASES`; returns whether the coordinator stops at a step.
        monkeypatch: Restores the cluster after the test.

    Attributes:
        node_id: The stopped broker; None before.
        loaded: The group as loaded by the new coordinator; None before.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        group_id: str,
        phase: Callable[[HandlingStep], bool],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.node_id: int | None = None
        self.loaded: GroupView | None = None
        self._cluster, self._group_id, self._phase = cluster, group_id, phase
        self._handle = cluster.cluster.handle
        self._calls: list[Call] = []
        monkeypatch.setattr(cluster.cluster, "handle", self._handle_or_stop)

    def _handle_or_stop(self, call: Call, now_ms: float, wire_ms: float | None = None) -> bool:
        if self.node_id is not None or call.api.name not in GROUP_APIS:
            return self._handle(call, now_ms, wire_ms)
        self._calls.append(call)
        if self._stops(call, is_handled=False):
            return False
        is_answered = self._handle(call, now_ms, wire_ms)
        self._stops(call, is_handled=True)
        return is_answered

    def _stops(self, call: Call, *, is_handled: bool) -> bool:
        group = call.broker.coordinator.group(self._group_id)
        assert group is not None
        step = HandlingStep(tuple(self._calls), is_handled, group.state.value)
        if self._phase(step):
            self.node_id = call.node_id
            self._cluster.stop_broker(self.node_id)
            self.loaded = self._cluster.group(self._group_id)
            return True
        if (
            self._phase is one_join_is_answered
            and step.just_handled("JoinGroup")
            and step.state == "CompletingRebalance"
        ):
            del self._cluster.cluster.answered[1:]
        return False
