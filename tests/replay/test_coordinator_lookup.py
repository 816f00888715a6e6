"""Events of look-ups: `again` marks look-ups by members that the coordinator may know already."""

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.script.script import Act
from fakebroker.replay.simulation.scheduler import START_MS
from fakebroker.replay.workload.loads import Load
from tests.support.replay.simulated_replays import play_in_memory, rows_of, script, two_broker_settings

AT_BROKER_1 = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:2]
"""Two groups in offsets partition 0, which broker 1 leads at first."""


def test_look_ups_of_known_members_are_marked() -> None:
    """Loads and starting dynamic members are not marked; a static member may be known already when it starts."""
    dynamic, static = AT_BROKER_1
    members = [
        script(dynamic, 0, Act(0.0, "start"), Act(20_000.0, "leave")),
        script(static, 0, Act(0.0, "start"), instance_id="i"),
    ]
    load = Load(kind="find-coordinators", batch=2, at_s=2.0, for_s=16.0, rate_per_s=50)  # 1/s for 2 of 100 groups
    describe = Load(kind="describe-groups", at_s=4.0)
    restart = {"at_s": 10, "do": "broker.restart", "node_id": 1}
    settings = two_broker_settings(events=(restart,), loads=(load, describe), groups_by_partition={"some": [2, 98]})
    _, rows = play_in_memory(members, settings)
    found = [(row["sent_us"], each) for row in rows_of(rows, "FindCoordinator") for each in row["found"] or ()]
    restart_us = (START_MS + 10_000) * 1000
    before, after = (
        {(each["key"], each["again"]) for at_us, each in found if (at_us < restart_us) is is_before}
        for is_before in (True, False)
    )
    assert before == {(dynamic, False), (static, False), (static, True)}
    assert after == before | {(dynamic, True)}
