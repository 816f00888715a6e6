"""The five phases of a rebalance in which the design lets a coordinator die, and a coordinator that dies just there.

They are those of "Co-ordinator failure during rebalance" of the consumer rewrite design, in the words of the protocol
that came of it. A rebalance is on because the member `NEWCOMER` joins.
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
class Scene:
    """How things stand before or after the coordinator has handled a request of the group's.

    Attributes:
        calls: The requests since the rebalance could begin; the last one is the one of now.
        is_handled: Whether that one has been handled; its answer is known then, but not sent.
        state: The group's, by Kafka's name.
    """

    calls: Sequence[Call]
    is_handled: bool
    state: str

    def just_handled(self, api: str) -> bool:
        return self.is_handled and self.calls[-1].api.name == api

    def about_to_handle(self, *apis: str) -> bool:
        return not self.is_handled and self.calls[-1].api.name in apis


def is_noticed(scene: Scene) -> bool:
    """The newcomer has joined; nobody else knows."""
    return scene.just_handled("JoinGroup") and scene.state == "PreparingRebalance"


def one_is_told(scene: Scene) -> bool:
    """One member's heartbeat has been answered REBALANCE_IN_PROGRESS, as its next JoinGroup shows."""
    return scene.about_to_handle("JoinGroup") and any(
        call.api.name == "Heartbeat" and call.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        for call in scene.calls[:-1]
    )


def one_has_rejoined(scene: Scene) -> bool:
    """One of the two old members has joined again, the other one has not."""
    return is_noticed(scene) and scene.calls[-1].client_id != NEWCOMER


def is_written(scene: Scene) -> bool:
    """The new generation is in the log, with all assignments; nobody has been told."""
    return scene.just_handled("SyncGroup") and scene.state == "Stable"


def one_is_answered(scene: Scene) -> bool:
    """One JoinGroup has been answered, as its sender's next request shows; see `CoordinatorDeath`."""
    return scene.about_to_handle("SyncGroup")


PHASES: dict[str, Callable[[Scene], bool]] = {
    "1 noticed": is_noticed,
    "2 one is told": one_is_told,
    "3 one has rejoined": one_has_rejoined,
    "4 written": is_written,
    "5 one is answered": one_is_answered,
}


class CoordinatorDeath:
    """Stops the coordinator of a group in a phase: in the cluster's own thread, so that nothing comes in between.

    The new one has its log at once.

    For phase 5 one member alone is answered when all have joined: the broker dies while it writes the answers.

    Attributes:
        node_id: The broker that has died, once it has.
        loaded: The group as the new coordinator has it then.
    """

    def __init__(
        self, cluster: FakeCluster, group_id: str, phase: Callable[[Scene], bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.node_id: int | None = None
        self.loaded: GroupView | None = None
        self._cluster, self._group_id, self._phase = cluster, group_id, phase
        self._handle = cluster.cluster.handle
        self._calls: list[Call] = []
        monkeypatch.setattr(cluster.cluster, "handle", self._handle_or_die)

    def _handle_or_die(self, call: Call, now_ms: float, wire_ms: float | None = None) -> bool:
        if self.node_id is not None or call.api.name not in GROUP_APIS:
            return self._handle(call, now_ms, wire_ms)
        self._calls.append(call)
        if self._dies(call, is_handled=False):
            return False
        is_answered = self._handle(call, now_ms, wire_ms)
        self._dies(call, is_handled=True)
        return is_answered

    def _dies(self, call: Call, *, is_handled: bool) -> bool:
        group = call.broker.coordinator.group(self._group_id)
        assert group is not None
        scene = Scene(tuple(self._calls), is_handled, group.state.value)
        if self._phase(scene):
            self.node_id = call.node_id
            self._cluster.stop_broker(self.node_id)
            self.loaded = self._cluster.group(self._group_id)
            return True
        if self._phase is one_is_answered and scene.just_handled("JoinGroup") and scene.state == "CompletingRebalance":
            del self._cluster.cluster.answered[1:]
        return False
