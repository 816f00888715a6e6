"""Measures of one run: their values in small runs, and those that have none."""

import pytest

from fakebroker.lab.designs import design_named
from fakebroker.lab.measures import SLICES, RunResult, measure, quantile
from fakebroker.lab.script import BrokerEvent, MemberEvent, TopicEvent
from fakebroker.lab.world.world import World
from tests.support.lab.scripts import SESSION_TIMEOUT_MS, TOPIC, script


def measured(
    *events: MemberEvent | BrokerEvent | TopicEvent, groups: int = 1, duration_ms: float = 60_000
) -> RunResult:
    world = World(design_named("classic"), script(*events, groups=groups, duration_ms=duration_ms))
    world.run()
    return measure(world, (10.0, 18.0))


def test_a_quiet_run() -> None:
    found = measured()
    assert (found.groups, found.members, found.rebalances, found.never_ended) == (1, 3, 1, 0)
    assert [each.cause for each in found.causes] == ["start"]
    assert found.causes[0].max_ms == found.rebalance_max_ms
    # A heartbeat every 3 s and a commit every 5 s, each with a response.
    assert found.steady_messages_per_s == pytest.approx(2 * (1 / 3 + 1 / 5), rel=0.2)
    assert (found.dead, found.noticed_p50_ms, found.failover_max_ms, found.double_s) == (0, None, None, 0)
    assert (found.mistakes, found.failed, found.errors, found.lost) == (0, 0, [], 0)
    assert sum(each.messages for each in found.kinds) > 100
    assert found.coordinator_peak_per_s >= 8 > found.coordinator_mean_per_s > 0
    assert len(found.incomplete) == len(found.requests_per_s) == SLICES


def test_a_crash() -> None:
    found = measured(MemberEvent(20_000, 2, "crash"))
    assert [each.cause for each in found.causes] == ["crash", "start"]
    crash = found.causes[0]
    assert (crash.count, found.dead) == (1, 1)
    assert found.noticed_max_ms is not None
    assert crash.max_ms is not None
    assert SESSION_TIMEOUT_MS - 3_000 <= found.noticed_max_ms <= crash.max_ms
    # Two of four partitions at most had no owner from the crash until the end of the rebalance.
    assert found.unowned_s > crash.max_ms / 1000
    slice_s = 60 / SLICES
    assert sum(found.incomplete) * slice_s == pytest.approx(
        sum(each.max_ms or 0 for each in found.causes) / 1000, abs=0.01
    )


def test_a_failover() -> None:
    found = measured(BrokerEvent(20_000, 1, "stop"), groups=8)
    assert found.failover_p50_ms is not None
    assert found.failover_max_ms is not None
    assert 0 < found.failover_p50_ms <= found.failover_max_ms < SESSION_TIMEOUT_MS


def test_a_failover_that_never_ends_has_no_duration() -> None:
    stops = [BrokerEvent(20_000, node_id, "stop") for node_id in (1, 2)]
    found = measured(*stops)
    assert found.failover_max_ms is None
    assert found.never_ended == 1
    (failover,) = [each for each in found.causes if each.cause == "failover"]
    assert (failover.count, failover.never_ended, failover.max_ms) == (0, 1, None)


def test_new_partitions_are_the_cause_of_a_rebalance() -> None:
    found = measured(TopicEvent(20_000, TOPIC, 8), duration_ms=400_000)
    assert [each.cause for each in found.causes] == ["start", "topics"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (1.0, 4.0), (0.0, 1.0)])
def test_quantiles_are_values(share: float, value: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], share) == value
    assert quantile([], share) is None
