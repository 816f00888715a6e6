"""Arbitrary sequences of requests and manual controls of rebalances: the invariants of the group hold after each step.

In the end all holds are released, and a rebalance in which all members take part completes.
"""

from collections.abc import Callable

from hypothesis import given, settings, strategies as st

from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE
from fakebroker.errors import ConfigError, ErrorCode
from tests.support.coordinator.coordinator_harness import REBALANCE_MS, CoordinatorHarness
from tests.support.soak import examples, soak

Step = Callable[[CoordinatorHarness, str], object]

STEPS: dict[str, Step] = {
    "join": lambda harness, _: harness.join(),
    "join i": lambda harness, _: harness.join(instance_id="i"),
    "pend": lambda harness, _: harness.request_member_id(),
    "rejoin": lambda harness, member: harness.join(member),
    "sync": lambda harness, member: harness.sync(member, harness.group().generation_id, [(member, b"all")]),
    "leave": lambda harness, member: harness.leave((member, None)),
    "beat": lambda harness, member: harness.heartbeat(member, harness.group().generation_id),
    "wait": lambda harness, _: harness.advance(REBALANCE_MS / 6),
    "wait long": lambda harness, _: harness.advance(REBALANCE_MS),
    "hold joins": lambda harness, _: harness.hold(PREPARING_REBALANCE),
    "hold syncs": lambda harness, _: harness.hold(COMPLETING_REBALANCE),
    "release": lambda harness, _: harness.release(),
    "evict": lambda harness, member: harness.evict(member),
    "expire": lambda harness, member: harness.expire(member),
    "fence": lambda harness, _: harness.fence("i"),
    "choose": lambda harness, member: harness.choose_leader(member),
    "force": lambda harness, _: harness.force_rebalance(),
    "move": lambda harness, _: harness.fail_over(),
}
# Controls that raise `ConfigError` in some states; the group is unchanged then.
REJECTED_IN_SOME_STATES = ("evict", "expire", "fence", "choose", "force")


def perform(harness: CoordinatorHarness, name: str, number: int) -> None:
    members = list(harness.group().members) or ["unknown"]
    try:
        STEPS[name](harness, members[number % len(members)])
    except ConfigError:
        if name not in REJECTED_IN_SOME_STATES:
            raise
        harness.settle()


@soak
@settings(max_examples=examples(80, soak=10_000))
@given(
    delay_ms=st.sampled_from([0, 3_000]),
    is_before_kip_848=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), max_size=40),
)
def test_groups_recover_from_any_manual_control(
    delay_ms: int, is_before_kip_848: bool, steps: list[tuple[str, int]]
) -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms, is_before_kip_848=is_before_kip_848)
    harness.create_completing_group(1)
    harness.sync_all(harness.group().members)
    harness.hold(COMPLETING_REBALANCE)
    harness.release()
    for name, number in steps:
        perform(harness, name, number)
    harness.release()
    check_next_rebalance(harness)


def check_next_rebalance(harness: CoordinatorHarness) -> None:
    """Check that a new member gets its generation when all members have rejoined or the join timer has expired."""
    call = harness.join()
    for member_id in list(harness.group().members):
        if call.is_parked and member_id not in harness.group().parked_joins:
            harness.join(member_id)
    harness.advance(REBALANCE_MS)
    assert call.error is ErrorCode.NONE
