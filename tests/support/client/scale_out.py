"""Measures, in virtual time, what it costs to add 40 instances to a group of 100 members, one after the other.

Members and the coordinator are those of the package. Messages take no time. `tests/documents/scale_out.py` writes the
results to scenarios/proposals/batch-join.md.
"""

from dataclasses import dataclass
from typing import Literal

from fakebroker.client.member.group_member import GroupMember
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.context import OwnContext
from fakebroker.proposals.batch_join.join_batch import join_batch
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest
from tests.support.client.group_simulation import GroupSimulation
from tests.support.coordinator.coordinator_harness import expected_member

MEMBERS, INSTANCES = 100, 40
HEARTBEAT_INTERVAL_MS, JITTER = 3_000, 0.1
EVERY_MS = 5_000.0
"""Time between two starts: more than a rebalance takes, so that no two instances join in the same rebalance."""

PARTITIONS = 280
_STABLE_MS = 60_000.0
"""Enough for the last rebalance to complete."""

JoinMode = Literal["single joins", "static single joins", "batch"]
JOIN_MODES: tuple[JoinMode, ...] = ("single joins", "static single joins", "batch")
"""How the 40 instances join: as dynamic members, as static members, or as static members registered in one batch."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of adding the instances.

    Attributes:
        generations: The number of new generations of the group.
        unassigned_s: The time without partitions of the first 100 members, in seconds, summed over members.
        waited_s: The time without partitions of the 40 instances, from their start, in seconds, summed over instances.
    """

    generations: int
    unassigned_s: float
    waited_s: float


class ScaleOut(GroupSimulation):
    """A simulation that measures how long each member runs without partitions.

    Attributes:
        unassigned_s: Time without partitions in seconds, by client id.
    """

    def __init__(self, mode: JoinMode) -> None:
        settings = [_settings(mode, index) for index in range(MEMBERS + INSTANCES)]
        super().__init__(settings, {"t": PARTITIONS}, CoordinatorConfig(), delays_ms=[0.0], failed_lookups=0.0)
        self.unassigned_s = {each.client_id: 0.0 for each in settings}
        self._unassigned_since_ms: dict[str, float] = {}

    @property
    def generation_id(self) -> int:
        group = self.coordinator.groups.classic.get("g")
        assert group is not None
        return group.generation_id

    def after_call(self) -> None:
        """Skip the checks, which simulations of smaller groups make: with 140 members they take too long."""

    def after_member_call(self, member: GroupMember) -> None:
        client_id = member.settings.client_id
        if member.assigned or member.state is MemberState.DOWN:
            since_ms = self._unassigned_since_ms.pop(client_id, self.now_ms)
            self.unassigned_s[client_id] += (self.now_ms - since_ms) / 1000
        else:
            self._unassigned_since_ms.setdefault(client_id, self.now_ms)

    def start_every(self, indexes: range, interval_ms: float) -> None:
        """Schedule the starts of members, the first one now."""
        for number, index in enumerate(indexes):
            self.call_in(number * interval_ms, lambda index=index: self.start(index))  # type: ignore[misc]  # no type


def measure(mode: JoinMode) -> Cost:
    """Let the group grow in one of the modes, and return the cost."""
    simulation = ScaleOut(mode)
    simulation.start_every(range(MEMBERS), 10.0)
    simulation.run(_STABLE_MS)
    assert all(member.assigned for member in simulation.members[:MEMBERS])
    before, unassigned_s = simulation.generation_id, simulation.unassigned_s
    unassigned_s.update(dict.fromkeys(unassigned_s, 0.0))
    if mode == "batch":
        join_batch(simulation.coordinator, _registration(), OwnContext(10, "admin", "/127.0.0.1"), simulation.now_ms)
    simulation.start_every(range(MEMBERS, MEMBERS + INSTANCES), EVERY_MS)
    simulation.run(INSTANCES * EVERY_MS + _STABLE_MS)
    assert all(member.assigned for member in simulation.members)
    old, new = list(unassigned_s.values())[:MEMBERS], list(unassigned_s.values())[MEMBERS:]
    return Cost(simulation.generation_id - before, sum(old), sum(new))


def _settings(mode: JoinMode, index: int) -> MemberSettings:
    """Return the settings of a member. Heartbeat intervals of members are evenly distributed over the jitter."""
    share = 2 * ((index * 61) % (MEMBERS + INSTANCES)) / (MEMBERS + INSTANCES) - 1
    return MemberSettings(
        group_id="g",
        client_id=f"c{index}",
        instance_id=None if mode == "single joins" else f"i{index}",
        topics=("t",),
        heartbeat_interval_ms=round(HEARTBEAT_INTERVAL_MS * (1 + JITTER * share)),
        commit_interval_ms=0,
    )


def _registration() -> BatchJoinGroupRequest:
    instances = [f"i{MEMBERS + index}" for index in range(INSTANCES)]
    return BatchJoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        join_group_members=[expected_member(instance) for instance in instances],
    )
