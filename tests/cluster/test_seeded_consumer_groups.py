"""Seeded consumer groups (KIP-848): clients continue with them, and Kafka's records are in the log."""

from typing import Any

import pytest

from fakebroker.cluster.inspect.views import GroupView, view_group
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding import seed as seed_module
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed, seed_groups
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.server.seed_tables import seeds_from
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.consumer_group_requests import assigned, beat
from tests.support.subtests import subtest_for_each


def seeded(harness: ClusterHarness, **fields: Any) -> GroupView:
    seed_groups(harness.cluster, [GroupSeed(**{"group_id": "g", "type": "consumer", **fields})], harness.now_ms)
    return view_group(harness.cluster, "g", harness.now_ms)


def test_a_stable_group_needs_no_reconciliation() -> None:
    harness = ClusterHarness({"news": 5})
    members = ["a", MemberSeed(client_id="b", instance_id="i", rebalance_timeout_ms=7)]
    view = seeded(harness, members=members, topics=["news"], generation=3, offsets={"news-1": 0})
    assert (view.type, view.state, view.generation_id, view.assignment_epoch) == ("consumer", "Stable", 3, 3)
    first, second = view.members
    assert (first.client_id, second.client_id, second.instance_id, second.rebalance_timeout_ms) == ("a", "b", "i", 7)
    assert len(first.member_id) == 22
    assert sorted(len(each.target) for each in view.members) == [2, 3]
    for member in view.members:
        assert (member.member_epoch, member.state, member.assigned_partitions) == (3, "STABLE", member.target)
        stays = beat(harness, member.member_id, 3, instance_id=member.instance_id)
        assert (stays.error_code, stays.member_epoch, stays.assignment) == (0, 3, None)
    after = view_group(harness.cluster, "g", harness.now_ms)
    assert (after.state, after.generation_id) == ("Stable", 3), "the hash of its topics is right"


def test_a_group_survives_a_failover() -> None:
    harness = ClusterHarness({"news": 5}, brokers=2)
    view = seeded(harness, members=3, topics=["news"], protocol="range")
    assert (view.protocol_name, view.members[0].server_assignor) == ("range", "range")
    owner = harness.cluster.coordinator_of("g")
    assert owner is not None
    harness.cluster.controller.stop_broker(owner, harness.now_ms, Failover())
    assert view_group(harness.cluster, "g", harness.now_ms).members == view.members


def test_the_assignor_runs_with_the_next_heartbeat_in_state_assigning() -> None:
    harness = ClusterHarness({"news": 4})
    assignment = {"a": ["news-0", "news-1", "news-2", "news-3"], "b": []}
    view = seeded(harness, members=["a", "b"], topics=["news"], state="Assigning", assignment=assignment)
    assert (view.state, view.generation_id, view.assignment_epoch) == ("Assigning", 2, 1)
    first, second = view.members
    assert len(first.target) == 4
    assert len(assigned(beat(harness, first.member_id, 1)) or ()) == 2
    assert beat(harness, second.member_id, 1).member_epoch == 2


def test_groups_without_members() -> None:
    harness = ClusterHarness({"news": 4})
    view = seeded(harness, lag={"news-0": 2})
    assert (view.state, view.members, view.generation_id) == ("Empty", (), 1)
    seed_groups(harness.cluster, [GroupSeed(group_id="gone", type="consumer", state="Dead")], harness.now_ms)
    gone = view_group(harness.cluster, "gone", harness.now_ms)
    assert (gone.state, gone.timeline().moments[-1].cause) == ("Dead", "DeleteGroups")
    assert assigned(beat(harness, "a")) == [0, 1, 2, 3]


@subtest_for_each(
    ("fields", "error"),
    [
        ({"type": "share"}, "group 'g': type='share': expected one of classic, consumer"),
        ({"members": 1, "state": "PreparingRebalance"}, "state='PreparingRebalance': expected one of Stable"),
        ({"members": 1, "state": "Assigning", "generation": 1}, "generation=1: expected 2 or more in state Assigning"),
        ({"generation": 0}, "generation=0: expected 1 or more in state Empty"),
        ({"members": 1, "protocol": "sticky"}, "protocol='sticky': expected one of uniform, range"),
        (
            {"members": ["a", "b"], "assignment": {"a": ["news-0"], "b": ["news-0"]}},
            "assignment='news-0': expected each partition once",
        ),
    ],
)
def test_invalid_seeds(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        seeded(ClusterHarness({"news": 4}), **fields)


def test_groups_are_removed_if_others_cannot_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ClusterHarness({"news": 4})

    def fail(*_: object) -> None:
        raise ConfigError("as if a client had changed something")

    monkeypatch.setattr(seed_module, "_enter_state", fail)
    with pytest.raises(ConfigError, match="as if"):
        seeded(harness, members=2, topics=["news"])
    monkeypatch.undo()
    view = view_group(harness.cluster, "g", harness.now_ms)
    assert (view.state, view.timeline().moments[-1].cause) == ("Dead", "not all groups could be seeded")
    assert seeded(harness, members=1, topics=["news"]).state == "Stable"


def test_tables_have_types() -> None:
    (seed,) = seeds_from(_Table({"group_id": ["g"], "members": [2], "type": ["consumer"]}))
    assert (seed.type, seed.members) == ("consumer", 2)


class _Table:
    """A table like those of pyarrow."""

    def __init__(self, columns: dict[str, list[object]]) -> None:
        self._columns = columns

    def to_pydict(self) -> dict[str, list[object]]:
        return self._columns


def test_appends_of_a_seeded_group_fail() -> None:
    harness = ClusterHarness({"news": 4})
    (member,) = seeded(harness, members=1, topics=["news"]).members
    partition = harness.cluster.offsets_partition_of("g").index
    harness.cluster.append_failures.add("__consumer_offsets", partition, ErrorCode.NOT_ENOUGH_REPLICAS, 1)
    assert beat(harness, "b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.member_id for each in view_group(harness.cluster, "g", harness.now_ms).members] == [member.member_id]
    assert beat(harness, "b").error_code == ErrorCode.NONE
