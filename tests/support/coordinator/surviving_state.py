"""The state of groups that has to survive a failover, computed from the groups without their records.

A group survives as it was when it was last Stable or Empty. If its first generation was never synced, it survives as an
empty group; before KIP-848, it is lost. All committed offsets survive, and those of open transactions remain pending. A
group also survives if all its offsets were in transactions that were aborted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import EMPTY, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.invariants import check
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.coordinator.pending_offsets import PendingOffset
from fakebroker.coordinator.records import Record
from fakebroker.proposals.batch_join.batch_join_extension import expected_instances
from tests.support.coordinator.coordinator_harness import CoordinatorHarness

Membership = tuple[Any, ...]
Expected = tuple[tuple[str, str, int], ...]
Offsets = dict[tuple[str, int], CommittedOffset]
Pending = list[PendingOffset]
NO_GENERATION: Membership = (0, None, None, None, ())


def membership(group: Group) -> Membership:
    """Return generation, protocol, leader and members of a group, with their metadata for that protocol, in order."""
    members = tuple(
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            dict(reversed(member.protocols))[group.protocol_name or ""],
            member.assignment,
        )
        for member in group.members.values()
    )
    return group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, members


def expected(group: Group) -> Expected:
    """Return the expected instances of a group and their timeouts (KAFKA-8397)."""
    instances = expected_instances(group).instances.values()
    return tuple((each.instance_id, each.member_id, each.rebalance_timeout_ms) for each in instances)


def offsets(group: Group) -> Offsets:
    return {(topic, partition): committed for topic, partition, committed in group.offsets}


@dataclass
class SurvivingState:
    """The state that would survive a failover now, by group id. A surviving group has an entry in each dictionary."""

    memberships: dict[str, Membership] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    # The groups that had offsets in transactions.
    transactional: set[str] = field(default_factory=set)

    def after(self, coordinator: Coordinator) -> "SurvivingState":
        """Return the state that survives after the next step, given the coordinator after that step."""
        after = SurvivingState()
        for group in coordinator.groups.classic.values():
            group_id = group.group_id
            former = self.memberships.get(group_id, NO_GENERATION)
            now = membership(group) if group.state in (EMPTY, STABLE) else former
            assert now[0] >= former[0], "a stored generation has decreased"
            is_stored = not group.config.is_before_kip_848 or now[0] > 0 or group.stored_generation_id >= 0
            pending = coordinator.offsets.pending_of(group_id)
            if pending or group_id in self.transactional:
                after.transactional.add(group_id)
                is_stored = True
            after.pending[group_id] = pending
            if not is_stored and not offsets(group):
                continue
            after.expected[group_id] = expected(group)
            after.memberships[group_id], after.offsets[group_id] = now, offsets(group)
        return after


def check_loaded(groups: Iterable[Group], survivors: SurvivingState, coordinator: Coordinator, now_ms: float) -> None:
    """Check that the groups that have just been loaded are the groups that had to survive."""
    loaded = {group.group_id: group for group in groups}
    assert set(loaded) == set(survivors.memberships)
    for group_id, group in loaded.items():
        assert membership(group) == survivors.memberships[group_id]
        assert offsets(group) == survivors.offsets[group_id]
        assert sorted(coordinator.offsets.pending_of(group_id)) == sorted(survivors.pending[group_id])
        places = max(0, group.config.group_max_size - len(group.members))
        stored = [each for each in survivors.expected.get(group_id, ()) if each[0] not in group.static_members]
        assert expected(group) == tuple(stored[:places])
        check_fresh(group, now_ms)


def check_fresh(group: Group, now_ms: float) -> None:
    """Check that no request waits, that sessions have restarted, and that members support only the chosen protocol."""
    is_too_large = len(group.members) > group.config.group_max_size
    assert group.state is (EMPTY if not group.members else PREPARING_REBALANCE if is_too_large else STABLE)
    assert not any(
        [
            expected_instances(group).waiting,
            group.parked_joins,
            group.parked_syncs,
            group.pending_members,
            group.awaiting_sync,
        ]
    )
    for member in group.members.values():
        assert [name for name, _ in member.protocols] == [group.protocol_name]
        assert member.deadline_ms == now_ms + member.session_timeout_ms
        assert not member.is_new


# Cut logs


def check_log(harness: CoordinatorHarness, survivors_at: dict[int, SurvivingState]) -> None:
    """Load the log, cut after every record, and compare the groups with the state that had to survive at that length.

    Args:
        harness: The harness with the log.
        survivors_at: The state after each step, by the number of records in the log. If a part of the log was lost, the
            first entry is the state after the loss.
    """
    log = [(partition, record) for partition, batch in harness.batches for record in batch]
    before: SurvivingState | None = None
    for length in range(len(log) + 1):
        coordinator = _load(harness, log[:length])
        groups = list(coordinator.groups.classic.values())
        if length in survivors_at:
            before = survivors_at[length]
            check_loaded(groups, before, coordinator, harness.now_ms)
        elif before is not None:
            later = next(survivors_at[at] for at in sorted(survivors_at) if at > length)
            _check_between(groups, before, later)
    assert before is not None, "the whole log was not compared"


def _load(harness: CoordinatorHarness, log: list[tuple[int, Record]]) -> Coordinator:
    coordinator = harness.new_coordinator()
    for index in dict.fromkeys(index for index, _ in log):
        coordinator.start_loading(index)
        records = [record for partition, record in log if partition == index]
        coordinator.finish_loading(index, records, harness.now_ms)
    for group in coordinator.groups.classic.values():
        check(group)
    return coordinator


def _check_between(groups: list[Group], before: SurvivingState, later: SurvivingState) -> None:
    """Check groups of a log that is cut within a step: they have their state before the step or after the step.

    A group may also have become empty before it was deleted, and a new group has no generation.
    """
    for group in groups:
        known = [one.memberships.get(group.group_id, NO_GENERATION) for one in (before, later)]
        assert membership(group) in known or not group.members
        for where, committed in offsets(group).items():
            assert committed in [one.offsets.get(group.group_id, {}).get(where) for one in (before, later)]
