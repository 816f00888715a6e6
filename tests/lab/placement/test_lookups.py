"""Messages and times of look-ups, counted by hand for three groups and two brokers."""

import pytest
from msgspec.structs import replace

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.lookups import LookupCosts, LookupRun
from fakebroker.lab.placement.placement_plan import LookupPlan
from fakebroker.lab.placement.registry_service import Outage
from fakebroker.lab.placement.result import PlacementName
from fakebroker.replay.simulation.scheduler import START_MS

GROUPS = ["a", "b", "c"]
PLAN = LookupPlan(
    members=1,
    brokers=2,
    partitions=2,
    spread_ms=0.0,
    latency_ms=1.0,
    jitter=0.0,
    write_ms=0.5,
    read_ms=0.25,
    session_timeout_ms=6_000.0,
)
MANY = replace(PLAN, members=16, spread_ms=20.0)
"""So many members that both brokers are asked for each group. At equal times, the first one would win all elections."""
SEED = 1


def _run(placement: PlacementName, plan: LookupPlan = PLAN, *outages: Outage) -> LookupRun:
    return LookupRun(placement, plan, GROUPS, SEED, outages)


def _coordinators(run: LookupRun, members: int) -> list[int | None]:
    """Return the coordinator of each group, about which all members agree."""
    found = [set(run.coordinators[first : first + members]) for first in range(0, len(run.coordinators), members)]
    assert all(len(each) == 1 for each in found), found
    return [each.pop() for each in found]


def _advance(run: LookupRun, until_ms: float) -> None:
    while run.scheduler.step(START_MS + until_ms):
        pass


def _messages(costs: LookupCosts) -> tuple[int, int, int]:
    return costs.client_messages, costs.registry_messages, costs.controller_messages


def test_each_broker_knows_the_leader_of_each_partition() -> None:
    run = _run("option-2a")
    costs = run.start_up()
    assert _messages(costs) == (6, 0, 0)
    assert (costs.found_ms, costs.registry_busy) == (2, 0)
    first, second, third = (partition_for(group_id, 2) for group_id in GROUPS)
    found = _coordinators(run, 1)
    assert found[0] == found[2] != found[1]
    assert first == third != second


def test_one_broker_is_asked_for_each_group_and_creates_its_node() -> None:
    """A request and a response of a client, and of a broker to the registry, which creates three nodes."""
    run = _run("option-2b")
    costs = run.start_up()
    assert _messages(costs) == (6, 6, 0)
    assert costs.found_ms == 4 + 3 * PLAN.write_ms
    assert costs.registry_busy == pytest.approx(1.5 / 5.5)


def test_the_second_broker_that_is_asked_finds_the_node_and_reads_it() -> None:
    """Each of three groups: a creation, and a creation that fails and a read, two messages each."""
    run = _run("option-2b", MANY)
    costs = run.start_up()
    assert _messages(costs) == (2 * 3 * 16, 3 * (2 + 2 + 2), 0)
    found = _coordinators(run, 16)
    assert found == [run.service.registry.get(f"/coordinators/{group_id}")[0] for group_id in GROUPS]


def test_a_broker_dies_and_the_controller_writes_the_leader_of_its_partition() -> None:
    """An event, a read of the brokers, a write, two messages each, and metadata for the broker that is left."""
    run = _run("option-2a")
    run.start_up()
    costs = run.stop(2)
    assert _messages(costs)[1:] == (1 + 2 + 2, 2)
    assert _coordinators(run, 1) == [1, 1, 1]
    # The event, a read, a write and the metadata. Clients look up again after a backoff, possibly at the dead broker.
    elected_ms = 6 * PLAN.latency_ms + PLAN.read_ms + PLAN.write_ms + PLAN.propagate_ms
    assert elected_ms < costs.after_expiry_ms <= elected_ms + 10 * PLAN.backoff_ms
    assert costs.found_ms - costs.after_expiry_ms <= PLAN.session_timeout_ms


def test_a_new_controller_reads_the_state_of_all_partitions() -> None:
    """Its event and election, two reads of partitions, a read of the brokers, a write, and metadata for itself."""
    run = _run("option-2a")
    run.start_up()
    assert _messages(run.stop(1))[1:] == (1 + 2 + 2 * 2 + 2 + 2, 2)
    assert _coordinators(run, 1) == [2, 2, 2]


def test_a_broker_dies_and_the_broker_that_watches_is_elected() -> None:
    """An event and a creation for each of its groups. Until then the other broker names the dead one to clients."""
    run = _run("option-2b", MANY)
    run.start_up()
    moving = _coordinators(run, 16).count(2)
    assert moving
    costs = run.stop(2)
    assert _messages(costs)[1:] == (3 * moving, 0)
    assert costs.client_messages > 16 * moving * 20  # each member asks every 100 ms, for at least four seconds
    assert _coordinators(run, 16) == [1, 1, 1]


def test_brokers_that_watch_compete_for_the_groups_of_a_dead_one() -> None:
    """All members ask until the session expires, so each of three other brokers watches each group: three events, three
    attempts to create the node, and two reads of the brokers that are too late. Broker 4 has all groups of a run in
    which only it was asked first."""
    plan = replace(PLAN, brokers=4, members=64)
    run = LookupRun("option-2b", plan, ["a"], SEED)
    run.start_up()
    (coordinator,) = _coordinators(run, 64)
    assert coordinator is not None
    assert _messages(run.stop(coordinator))[1:] == (3 + 3 * 2 + 2 * 2, 0)


def test_look_ups_wait_for_the_registry_only_if_they_need_it() -> None:
    """Three creations are lost, and sent again after a second."""
    outage = Outage(0.0, 500.0)
    assert _run("option-2a", PLAN, outage).start_up() == _run("option-2a").start_up()
    costs = _run("option-2b", PLAN, outage).start_up()
    assert _messages(costs) == (6, 9, 0)
    assert costs.found_ms == 2 + PLAN.retry_ms + 1 + 3 * PLAN.write_ms + 1 + 1


@pytest.mark.parametrize("placement", ["option-2a", "option-2b"])
def test_sessions_do_not_expire_during_an_outage(placement: PlacementName) -> None:
    run = _run(placement, MANY, Outage(1_000.0, 10_000.0))
    run.start_up()
    costs = run.stop(2)
    assert 10_000 + 6_000 - 100 < costs.found_ms - costs.after_expiry_ms < 10_000 + 6_000
    assert _coordinators(run, 16) == [1, 1, 1]


def test_a_broker_that_cannot_reach_the_registry_loses_its_groups() -> None:
    run = _run("option-2b", MANY, Outage(500.0, 20_000.0, node_id=2))
    run.start_up()
    assert 2 in _coordinators(run, 16)
    _advance(run, 30_000.0)
    assert [run.service.registry.get(f"/coordinators/{group_id}")[0] for group_id in GROUPS] == [1, 1, 1]
    run.start_up()  # the brokers agree: one has watched, the other one has forgotten what it knew
    assert _coordinators(run, 16) == [1, 1, 1]


def test_a_broker_that_returns_gets_the_metadata() -> None:
    run = _run("option-2a", MANY, Outage(500.0, 20_000.0, node_id=2))
    run.start_up()
    _advance(run, 30_000.0)
    costs = run.start_up()
    assert _messages(costs) == (96, 0, 0)
    assert _coordinators(run, 16) == [1, 1, 1]


def test_equal_seeds_give_equal_runs() -> None:
    plan = LookupPlan(members=2, brokers=5)
    groups = [f"group-{number}" for number in range(60)]

    def costs(seed: int) -> list[LookupCosts]:
        run = LookupRun("option-2b", plan, groups, seed)
        return [run.start_up(), run.stop(5)]

    assert costs(1) == costs(1) != costs(2)
