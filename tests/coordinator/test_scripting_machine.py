"""Any clients and any hand in their rebalances, in any order: each group keeps its invariants, whatever is held.

In the end all is released: then a round that everybody takes part in ends as ever, and nobody waits for good.
"""

from collections.abc import Callable

from hypothesis import given, settings, strategies as st

from fakebroker.coordinator.group.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE
from fakebroker.errors import ConfigError, ErrorCode
from tests.coordinator.test_scripting import Stage
from tests.support.coordinator.coordinator_harness import REBALANCE_MS

Step = Callable[[Stage, str], object]

STEPS: dict[str, Step] = {
    "join": lambda stage, _: stage.join(),
    "join i": lambda stage, _: stage.join(instance_id="i"),
    "pend": lambda stage, _: stage.pend(),
    "rejoin": lambda stage, member: stage.join(member),
    "sync": lambda stage, member: stage.sync(member, stage.group().generation_id, [(member, b"all")]),
    "leave": lambda stage, member: stage.leave((member, None)),
    "beat": lambda stage, member: stage.heartbeat(member, stage.group().generation_id),
    "wait": lambda stage, _: stage.advance(REBALANCE_MS / 6),
    "wait long": lambda stage, _: stage.advance(REBALANCE_MS),
    "hold joins": lambda stage, _: stage.hold(PREPARING_REBALANCE),
    "hold syncs": lambda stage, _: stage.hold(COMPLETING_REBALANCE),
    "release": lambda stage, _: stage.release(),
    "evict": lambda stage, member: stage.evict(member),
    "expire": lambda stage, member: stage.expire(member),
    "fence": lambda stage, _: stage.fence("i"),
    "choose": lambda stage, member: stage.choose_leader(member),
    "force": lambda stage, _: stage.force_rebalance(),
    "move": lambda stage, _: stage.hand_over(),
}
# What makes no sense as things are is refused, and changes nothing.
REFUSABLE = ("evict", "expire", "fence", "choose", "force")


def take(stage: Stage, name: str, number: int) -> None:
    members = list(stage.group().members) or ["nobody"]
    try:
        STEPS[name](stage, members[number % len(members)])
    except ConfigError:
        if name not in REFUSABLE:
            raise
        stage.settle()


@settings(max_examples=300)
@given(
    delay_ms=st.sampled_from([0, 3_000]),
    is_before_kip_848=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), max_size=40),
)
def test_any_hand_in_any_group(delay_ms: int, is_before_kip_848: bool, steps: list[tuple[str, int]]) -> None:
    stage = Stage(group_initial_rebalance_delay_ms=delay_ms, is_before_kip_848=is_before_kip_848)
    stage.complete(1)
    stage.sync_all(stage.group().members)
    stage.hold(COMPLETING_REBALANCE)
    stage.release()
    for name, number in steps:
        take(stage, name, number)
    stage.release()
    check_a_last_round(stage)


def check_a_last_round(stage: Stage) -> None:
    """A new member comes, and gets its answer when everybody has joined again, or has had the time to."""
    call = stage.join()
    for member_id in list(stage.group().members):
        if call.is_parked and member_id not in stage.group().parked_joins:
            stage.join(member_id)
    stage.advance(REBALANCE_MS)
    assert call.error is ErrorCode.NONE
