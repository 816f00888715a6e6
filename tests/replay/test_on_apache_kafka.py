"""Shipped workloads on three brokers of Apache Kafka, one of which is killed in the middle: all promises are kept.

Each takes more than a minute, so that only `make soak` runs them:

    FAKEBROKER_SOAK=1 .venv/bin/python -m pytest -rP tests/replay/test_on_apache_kafka.py
"""

from pathlib import Path

import pytest

from fakebroker.replay.options import PASSED
from tests.support import programs
from tests.support.replay.killed_broker import RealReplay, play
from tests.support.soak import IS_SOAK, soak

pytestmark = [pytest.mark.slow, soak, pytest.mark.skipif(not IS_SOAK, reason="replays in real time: make soak")]

REPLAYS = [
    RealReplay("failover-under-load", exercises=frozenset({"commits-kept", "beating-stays"})),
    RealReplay("failover-under-load", "consumer"),
    RealReplay(
        "crash-storm", scale=0.4, kills_in_rebalance=True, exercises=frozenset({"generations-rise", "silent-out"})
    ),
    RealReplay("deploy", kills_in_rebalance=True, exercises=frozenset({"generations-rise", "commits-kept"})),
    RealReplay("deploy", "consumer", kills_in_rebalance=True),
    RealReplay(
        "session-edge",
        kills_in_rebalance=True,
        exercises=frozenset({"generations-rise", "beating-stays", "unknown-refused"}),
    ),
    RealReplay(
        "exactly-once",
        scale=1,
        exercises=frozenset({"atomic", "old-epochs-refused", "overdue-aborted", "stable-offset-rises"}),
    ),
    RealReplay(
        "classic-or-consumer",
        "consumer",
        scale=0.02,
        kills_in_rebalance=True,
        exercises=frozenset({"silent-out", "beating-stays", "targets-reached"}),
    ),
]

EXERCISED = {
    "classic": {"one-owner", "covered", "one-leader"},
    "consumer": {"one-owner", "commits-kept", "epochs-rise", "revoked-committed"},
}
"""Promises that each replay must exercise."""

ABOUT_COORDINATORS = {"answered", "coordinator-found", "one-coordinator"}


@pytest.mark.usefixtures("replays_on_spark")
@pytest.mark.parametrize("replayed", REPLAYS, ids=str)
def test_all_promises_are_kept_while_a_broker_is_killed(replayed: RealReplay, tmp_path: Path) -> None:
    programs.require("java", "mvn")
    played = play(replayed, tmp_path)
    print(played.row(replayed))
    verdict, killer = played.summary.verdict, played.killer
    assert [each.what for promise in verdict.promises for each in promise.violations] == []
    assert [each.what for check in verdict.availability for each in [*check.violations, *check.doubts]] == []
    assert (verdict.reasons, played.status) == ([], PASSED)
    counted = {each.name: each.cases for each in verdict.promises}
    needed = ABOUT_COORDINATORS | EXERCISED[replayed.protocol] | replayed.exercises
    assert [name for name in needed if not counted[name]] == []
    # The broker served members before it was killed, and after it was back; the others also in between.
    node_id = killer.node_id
    before, meanwhile = played.answered(until_s=killer.killed_s), played.answered(killer.killed_s, killer.started_s)
    after = played.answered(killer.back_s)
    assert min(before[node_id], after[node_id]) > 0
    assert meanwhile[node_id] == 0
    assert [len(before), len(meanwhile), len(after)] == [3, 2, 3]
