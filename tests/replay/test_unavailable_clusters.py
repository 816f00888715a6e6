"""Replays in memory against clusters that fail, at random moments: none passes, and the cause is named."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fakebroker.replay.members.scripted_member import LEAVE_TIMEOUT_MS
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.verify.verdict import outcome_of
from tests.support.replay.replays_in_turn import (
    BOUND_S,
    BROKERS,
    DURATION_S,
    SESSION_S,
    PlayedReplay,
    check,
    grown_groups,
    played,
)
from tests.support.replay.simulated_replays import script
from tests.support.soak import cases, soak

pytestmark = [pytest.mark.slow, soak]

_FEW_GROUPS = 9


def _moment_s(rng: random.Random) -> float:
    """Return a time after which the replay is long enough to prove a failure."""
    return round(rng.uniform(0, DURATION_S - 3 * BOUND_S), 3)


def test_a_group_whose_sync_groups_are_swallowed_fails(subtests: pytest.Subtests) -> None:
    replays, swallowed = [], {}
    for seed in cases(2, soak=24):
        rng = random.Random(seed)
        swallowed[seed] = f"g{rng.randrange(200)}"
        fault = {
            "at_s": _moment_s(rng),
            "do": "inject_fault",
            "api": "SyncGroup",
            "group": swallowed[seed],
            "silent": True,
        }
        replays.append(played(seed, grown_groups(rng, 200), [fault]))
    found = check(replays)
    for replay in replays:
        with subtests.test(seed=replay.seed, group=swallowed[replay.seed], at_s=replay.events[0]["at_s"]):
            named = {name for name in found.failed_groups() if name.startswith(replay.name_of(""))}
            assert named == {replay.name_of(swallowed[replay.seed])}
            (violation,) = [
                each
                for each in found.checks["groups-served"].violations
                if each.group == replay.name_of(swallowed[replay.seed])
            ]
            assert "SyncGroup" in violation.what


def test_a_broker_that_fails_is_named_with_its_groups(subtests: pytest.Subtests) -> None:
    """A broker is dead for good and its partitions get no other leaders; or it answers no request."""
    replays, causes = [], {}
    for number, seed in enumerate(cases(4, soak=48)):
        rng = random.Random(seed)
        node_id = rng.choice(BROKERS)
        cause: Mapping[str, Any] = {"do": "broker.stop", "node_id": node_id, "elect": False}
        if number % 2:
            cause = {"do": "inject_fault", "api": None, "broker": node_id, "silent": True}
        causes[seed] = cause["do"], node_id
        replays.append(played(seed, grown_groups(rng, _FEW_GROUPS), [{"at_s": _moment_s(rng), **cause}]))
    found = check(replays)
    for replay in replays:
        with subtests.test(seed=replay.seed, cause=causes[replay.seed], at_s=replay.events[0]["at_s"]):
            unserved = {replay.name_of(group) for group, time_s in replay.unserved_s().items() if time_s > BOUND_S}
            waiting = {replay.name_of(group) for group, time_s in replay.longest_wait_s().items() if time_s > BOUND_S}
            named = {name for name in found.failed_groups() if name.startswith(replay.name_of(""))}
            assert set() != unserved <= named <= waiting
            do, node_id = causes[replay.seed]
            if do == "inject_fault":
                named_brokers = found.brokers() & {replay.broker(each) for each in BROKERS}
                assert named_brokers == {replay.broker(node_id)}
            else:  # after the connections are lost, no requests are sent to the broker
                last = f"; last response from broker {replay.broker(node_id)}"
                whats = {each.group: each.what for each in found.checks["members-answered"].violations}
                assert all(whats[group].endswith(last) for group in unserved)


def _random_fault(rng: random.Random) -> dict[str, Any]:
    group, node_id = f"g{rng.randrange(_FEW_GROUPS)}", rng.choice(BROKERS)
    at_s = round(rng.uniform(0, DURATION_S), 3)
    api = rng.choice([None, "JoinGroup", "SyncGroup", "Heartbeat"])
    return {"at_s": at_s} | rng.choice(
        [
            {"do": "inject_fault", "api": api, "group": group, "silent": True},
            {"do": "inject_fault", "api": api, "group": group, "drop": True},
            {"do": "inject_fault", "api": api, "broker": node_id, "silent": True},
            {"do": "inject_fault", "api": api, "broker": node_id, "drop": True},
            {"do": "inject_fault", "api": api, "group": group, "drop": True, "handles": True},
            {"do": "inject_fault", "api": api or "SyncGroup", "group": group, "error": "NOT_COORDINATOR"},
            {"do": "inject_fault", "api": api or "JoinGroup", "group": group, "error": "COORDINATOR_NOT_AVAILABLE"},
            {"do": "inject_fault", "api": "Heartbeat", "group": group, "error": "UNKNOWN_MEMBER_ID"},
            {"do": "inject_fault", "api": "FindCoordinator", "group": group, "error": "COORDINATOR_NOT_AVAILABLE"},
            {"do": "broker.stop", "node_id": node_id, "elect": False},
            {"do": "broker.stop", "node_id": node_id},
            {"do": "broker.set_network", "node_id": node_id, "accept": "refuse"},
            {"do": "group.move_coordinator", "group_id": group, "to": None},
            {"do": "group.hold", "group_id": group, "state": "PreparingRebalance"},
            {"do": "group.hold", "group_id": group, "state": "CompletingRebalance"},
        ]
    )


def test_no_group_without_service_at_the_end_goes_unnoticed(subtests: pytest.Subtests) -> None:
    """Also the other direction: a group with service until the end is not named."""
    replays: list[PlayedReplay] = []
    for seed in cases(6, soak=240):
        rng = random.Random(seed)
        replays.append(played(seed, grown_groups(rng, _FEW_GROUPS), [_random_fault(rng)]))
    found = check(replays)
    for replay in replays:
        unserved_s = replay.unserved_s()
        with subtests.test(seed=replay.seed, fault=replay.events[0], unserved_s=max(unserved_s.values())):
            unserved = {replay.name_of(group) for group, time_s in unserved_s.items() if time_s > BOUND_S + 1}
            assert unserved <= found.groups()
            waits_s = replay.longest_wait_s()
            calm = {
                replay.name_of(group)
                for group, time_s in waits_s.items()
                if time_s < BOUND_S - 1 - LEAVE_TIMEOUT_MS / 1000
            }
            assert not calm & found.failed_groups()


def _planned_events(rng: random.Random) -> list[dict[str, Any]]:
    """Return a random planned outage that ends, at a random time."""
    group, node_id = f"g{rng.randrange(_FEW_GROUPS)}", rng.choice(BROKERS)
    at_s, for_s = round(rng.uniform(1, DURATION_S - 15), 3), round(rng.uniform(1, 12), 3)
    fault = {"at_s": at_s, "do": "inject_fault", "api": rng.choice([None, "JoinGroup", "Heartbeat"]), "for_s": for_s}
    end = {"at_s": at_s + for_s}
    return rng.choice(
        [
            [{"at_s": at_s, "do": "broker.stop", "node_id": node_id}],
            [
                {"at_s": at_s, "do": "broker.stop", "node_id": node_id, "elect": rng.random() < 0.5},
                {**end, "do": "broker.start", "node_id": node_id},
            ],
            [{"at_s": at_s, "do": "broker.restart", "node_id": node_id}],
            [{"at_s": at_s, "do": "brokers.rolling_restart"}],
            [{**fault, "silent": True, "broker": node_id}],
            [{**fault, "drop": True}],
            [{**fault, "api": "Heartbeat", "error": "UNKNOWN_MEMBER_ID"}],
            [{**fault, "api": "JoinGroup", "error": "COORDINATOR_LOAD_IN_PROGRESS"}],
            [
                {"at_s": at_s, "do": "group.hold", "group_id": group, "state": "PreparingRebalance"},
                {**end, "do": "group.release", "group_id": group},
            ],
            [
                {"at_s": at_s, "do": "broker.set_network", "node_id": node_id, "accept": "refuse"},
                {**end, "do": "broker.set_network", "node_id": node_id, "accept": "normal"},
            ],
            [{"at_s": at_s, "do": "group.rebalance", "group_id": group}],
            [{"at_s": at_s, "do": "brokers.elect_preferred"}],
            [
                {"at_s": at_s, "do": "group.move_coordinator", "group_id": group, "to": None},
                {**end, "do": "group.move_coordinator", "group_id": group, "to": node_id},
            ],
        ]
    )


def _busy_groups(rng: random.Random) -> list[Any]:
    """Return scripts with random actions."""
    scripts = []
    for group in range(_FEW_GROUPS):
        for number in range(rng.randint(1, 4)):
            at_ms = rng.uniform(8_000, 30_000)
            for_ms = rng.uniform(1_000, 12_000)
            middle = rng.choice(
                [
                    (),
                    (Act(at_ms, "leave"),),
                    (Act(at_ms, "crash"),),
                    (Act(at_ms, "pause", for_ms),),
                    (Act(at_ms, "slow", for_ms),),
                    (Act(at_ms, "zombie", 2_000.0),),
                    (Act(at_ms, "leave"), Act(at_ms + for_ms, "start")),
                    (Act(at_ms, "crash"), Act(at_ms + for_ms, "start")),
                ]
            )
            acts = (Act(rng.uniform(0, 6_000), "start"), *middle, Act(DURATION_S * 1000, "leave"))
            instance_id = f"i{number}" if rng.random() < 0.3 else None
            scripts.append(script(f"g{group}", number, *acts, instance_id=instance_id))
    return scripts


def test_a_healthy_cluster_with_planned_outages_has_no_failures(subtests: pytest.Subtests) -> None:
    replays = []
    for seed in cases(6, soak=72):
        rng = random.Random(seed)
        replays.append(played(seed, _busy_groups(rng), _planned_events(rng)))
    found = check(replays, planned=True)
    for replay in replays:
        with subtests.test(seed=replay.seed, events=replay.events):
            named = {name for name in found.groups() if name.startswith(replay.name_of(""))}
            assert named == set()
            assert not found.brokers() & {replay.broker(node_id) for node_id in BROKERS}
    for name, each in found.checks.items():
        with subtests.test(check=name):
            assert (each.outcome, each.violations, each.doubts) == ("passed", [], [])


def _crashing_groups(rng: random.Random) -> list[Any]:
    """Return scripts of members that crash again and again, also while their JoinGroups and SyncGroups are parked."""
    scripts = []
    for group in range(_FEW_GROUPS):
        for number in range(rng.randint(3, 7)):
            acts, at_ms = [Act(rng.uniform(0, 4_000), "start")], rng.uniform(6_000, 20_000)
            while (back_ms := at_ms + rng.uniform(200, 9_000)) < DURATION_S * 1000:
                acts += [Act(at_ms, rng.choice(["crash", "leave"])), Act(back_ms, "start")]
                at_ms = back_ms + rng.uniform(200, 12_000)
            acts.append(Act(DURATION_S * 1000, "leave"))
            rebalance_ms = rng.choice([8_000, 30_000])
            scripts.append(script(f"g{group}", number, *acts, rebalance_timeout_ms=rebalance_ms))
    return scripts


def _crash_chains(rng: random.Random) -> list[Script]:
    """Return scripts of groups in which members crash while they wait for one that has crashed before.

    Another member starts after the first crash, so that the group rebalances at once.
    """
    scripts = []
    for group in range(_FEW_GROUPS):
        crash_ms, session_ms = rng.uniform(6_000, 9_000), rng.choice([6_000, 12_000])
        timeouts = {"session_timeout_ms": session_ms, "rebalance_timeout_ms": rng.choice([8_000, 30_000])}
        late_ms = crash_ms + rng.uniform(100, 3_000)
        count = rng.randint(3, 6)
        for number in range(count):
            acts = [Act(late_ms if number == count - 1 else rng.uniform(0, 2_000), "start")]
            if number < count - 2:
                acts.append(Act(crash_ms, "crash"))
                crash_ms += rng.uniform(500, session_ms)
                if rng.random() < 0.3:
                    acts.append(Act(acts[-1].at_ms + rng.uniform(100, 9_000), "start"))
            acts.append(Act(max(DURATION_S * 1000, acts[-1].at_ms + 1), "leave"))
            scripts.append(script(f"g{group}", number, *acts, **timeouts))
    return scripts


def _in_either_protocol(rng: random.Random, scripts: Sequence[Script]) -> list[Script]:
    """Return the scripts with some members static, and some groups of the consumer protocol."""
    consumers = {group for group in dict.fromkeys(each.group for each in scripts) if rng.random() < 0.4}
    static = rng.choice([0.0, 0.3, 1.0])
    return [
        each._replace(
            protocol="consumer" if each.group in consumers else "classic",
            session_timeout_ms=round(SESSION_S * 1000) if each.group in consumers else each.session_timeout_ms,
            instance_id=f"{each.member}-i" if rng.random() < static else None,
        )
        for each in scripts
    ]


def test_a_healthy_cluster_that_waits_for_crashed_members_has_no_failures(subtests: pytest.Subtests) -> None:
    """In half of the replays, a broker stops, and another one becomes the coordinator of its groups, and back."""
    replays = []
    for seed in cases(6, soak=240):
        rng = random.Random(seed)
        killed: dict[str, Any] = {"at_s": round(rng.uniform(6, DURATION_S - 8), 3), "node_id": rng.choice(BROKERS)}
        back: dict[str, Any] = killed | {"at_s": killed["at_s"] + rng.uniform(1, 7), "do": "broker.start"}
        events = [killed | {"do": "broker.stop"}, back, {"at_s": back["at_s"] + 1, "do": "brokers.elect_preferred"}]
        replays.append(played(seed, _crashing_groups(rng), events[: 3 * rng.randint(0, 1)]))
    found = check(replays)
    for replay in replays:
        with subtests.test(seed=replay.seed, events=replay.events):
            named = {name for name in found.failed_groups() if name.startswith(replay.name_of(""))}
            assert named == set()


def test_the_verdict_on_a_correct_cluster_with_crashes_is_passed() -> None:
    """Members of both protocols, dynamic and static, crash at random; their coordinators wait as Kafka's do."""
    replays = []
    for seed in cases(4, soak=300):
        rng = random.Random(seed)
        crashing = rng.choice([_crashing_groups, _crash_chains])(rng)
        replays.append(played(seed, _in_either_protocol(rng, crashing)))
    found = check(replays, promises=tuple(PROMISES))
    assert found.violations == []
    assert outcome_of(list(found.checks.values()), [], []) == ("passed", [])
