"""Seeded groups as clients and tests see them, invalid seeds, seeds from tables, seeding in steps."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pandas  # type: ignore[import-untyped]  # It ships no types.
import pyarrow
import pyarrow.parquet
import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.logs.coordinator_records import read_records
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed, seed_in_steps
from fakebroker.coordinator.invariants import check
from fakebroker.coordinator.records import group_tombstone
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from fakebroker.server.fake_cluster import internals
from tests.support.groups_over_tcp import heartbeat_to
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.fake_cluster(topics={"orders": 6, "news": 1}, clock="manual", seed=1)


@pytest.fixture(autouse=True)
def _invariants(fake_cluster: FakeCluster) -> Iterator[None]:
    """Check the invariants of all groups after each test."""
    yield
    for broker in internals(fake_cluster).cluster.brokers.values():
        for group in broker.coordinator.groups.classic.values():
            check(group)


def assigned(cluster: FakeCluster, group_id: str = "g") -> list[list[tuple[str, int]]]:
    return [list(member.assigned_partitions or ()) for member in cluster.group(group_id).describe().members]


def offsets(cluster: FakeCluster, group_id: str = "g") -> dict[tuple[str, int], int]:
    return {place: committed.offset for place, committed in cluster.group(group_id).offsets().items()}


def beat(cluster: FakeCluster, generation_id: int = 1) -> ErrorCode:
    member_id = cluster.group("g").describe().members[0].member_id
    return heartbeat_to(cluster.group("g").coordinator(), "g", member_id, generation_id)


def fill(cluster: FakeCluster, records: int) -> None:
    """Put records into partition 0 of orders."""
    cluster.topic("orders").produce(["value"] * records, partition=0)


# States


def test_a_stable_group(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(
        members=4, topics=["orders"], generation=7, offsets={"orders-0": 5}, lag={"orders-0": 3}
    )
    group = fake_cluster.group("g").describe()
    assert (group.state, group.generation_id, group.protocol_type, group.protocol_name) == (
        "Stable", 7, "consumer", "range",
    )  # fmt: skip
    assert group.leader_id == group.members[0].member_id
    assert [member.client_id for member in group.members] == [f"consumer-g-{number}" for number in range(1, 5)]
    assert assigned(fake_cluster) == [
        [("orders", 0), ("orders", 1)],
        [("orders", 2), ("orders", 3)],
        [("orders", 4)],
        [("orders", 5)],
    ]
    assert offsets(fake_cluster) == {("orders", 0): 5}
    assert beat(fake_cluster, 7) is ErrorCode.NONE


def test_seeded_members_have_subscriptions(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=1, topics=["orders", "news"])
    (member,) = fake_cluster.group("g").describe().members
    assert member.subscribed_topics == ("news", "orders")
    broker = internals(fake_cluster).cluster.coordinator_of("g")
    assert broker is not None
    group = broker.coordinator.groups.classic.get("g")
    assert group is not None
    assert group.subscribed_topics == frozenset({"news", "orders"})


def test_an_empty_group(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(offsets={("orders", 1): 5, ("news", 0): 6}, lag={"orders-1": 0, "news-0": 0})
    group = fake_cluster.group("g").describe()
    assert (group.state, group.generation_id, group.protocol_type, group.members) == ("Empty", 1, "consumer", ())
    assert offsets(fake_cluster) == {("orders", 1): 5, ("news", 0): 6}


def test_a_deleted_group(fake_cluster: FakeCluster) -> None:
    fill(fake_cluster, 5)
    fake_cluster.group("g").seed(state="Dead", offsets={"orders-0": 5})
    assert fake_cluster.group("g").describe().state == "Dead"
    partition = internals(fake_cluster).cluster.offsets_partition_of("g")
    assert read_records(partition.log, partition.index)[-1] == group_tombstone("g")
    fake_cluster.group("g").seed()
    assert offsets(fake_cluster) == {}


def test_a_group_in_preparing_rebalance(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=2, topics=["orders"], state="PreparingRebalance")
    assert fake_cluster.group("g").describe().state == "PreparingRebalance"
    assert beat(fake_cluster) is ErrorCode.REBALANCE_IN_PROGRESS
    fake_cluster.advance(45)
    assert fake_cluster.group("g").describe().state == "Empty"


def test_a_group_in_completing_rebalance(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=2, topics=["orders"], state="CompletingRebalance")
    group = fake_cluster.group("g").describe()
    assert (group.state, group.generation_id, len(group.members)) == ("CompletingRebalance", 2, 2)
    assert beat(fake_cluster, 2) is ErrorCode.NONE


def test_a_seeded_group_is_written_to_the_log(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=2, topics=["orders"], offsets={"orders-3": 0})
    before = fake_cluster.group("g").describe(), fake_cluster.group("g").offsets()
    fake_cluster.group("g").move_coordinator(to=fake_cluster.group("g").coordinator().node_id % 3 + 1)
    assert (fake_cluster.group("g").describe(), fake_cluster.group("g").offsets()) == before


def test_a_group_without_a_coordinator(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").move_coordinator(to=None)
    fake_cluster.group("g").seed(members=1)
    with pytest.raises(ConfigError, match="Stable or Empty: its coordinator answers COORDINATOR_NOT_AVAILABLE"):
        fake_cluster.group("g").seed(state="Dead")
    fake_cluster.group("g").move_coordinator(to=1)
    assert fake_cluster.group("g").describe().state == "Stable"


def test_sessions_of_seeded_members_expire(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=[MemberSeed(session_timeout_ms=10_000), "b"])
    fake_cluster.advance(10)
    assert [member.client_id for member in fake_cluster.group("g").describe().members] == ["b"]


# Members


def test_members_with_ids_and_assignments(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(
        members=["a", MemberSeed(instance_id="i"), MemberSeed(client_id="c", member_id="c-1")],
        assignment={"a": ["orders-5"], "i": [("news", 0)], "c-1": []},
    )
    assert assigned(fake_cluster) == [[("orders", 5)], [("news", 0)], []]
    _, second, third = fake_cluster.group("g").describe().members
    assert (second.instance_id, second.member_id[:2], third.member_id) == ("i", "i-", "c-1")


def test_other_protocols_assign_partitions_in_turn(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=4, topics=["orders", "news"], protocol="cooperative-sticky")
    assert [len(partitions) for partitions in assigned(fake_cluster)] == [2, 2, 2, 1]
    assert fake_cluster.group("g").describe().protocol_name == "cooperative-sticky"


# Lag


def lags(cluster: FakeCluster, group_id: str = "g") -> dict[tuple[str, int], int]:
    """Return the number of records after each committed offset, as a consumer could read them."""
    return {
        (topic, index): sum(record.offset >= offset for record in cluster.topic(topic).records(index))
        for (topic, index), offset in offsets(cluster, group_id).items()
    }


def test_lag_is_relative_to_the_end_of_the_log(fake_cluster: FakeCluster) -> None:
    fill(fake_cluster, 10)
    fake_cluster.group("g").seed(lag={"orders-0": 3})
    fake_cluster.group("none").seed(topics=["orders"], lag=0, offsets={"orders-1": 4})
    assert offsets(fake_cluster) == {("orders", 0): 7}
    assert list(offsets(fake_cluster, "none").values()) == [10, 4, 0, 0, 0, 0]
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    leader = fake_cluster.brokers[0]
    with WireClient(leader) as wire:
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[partition])])
        answer = wire.ask(request, ListOffsetsResponse, 5)
    assert answer.topics[0].partitions[0].offset == 10


def test_records_that_a_lag_needs_are_produced(fake_cluster: FakeCluster) -> None:
    fill(fake_cluster, 2)
    fake_cluster.group("g").seed(lag={"orders-0": 5, "orders-1": 1_200, "news-0": 0})
    assert offsets(fake_cluster) == {("orders", 0): 0, ("orders", 1): 0, ("news", 0): 0}
    assert lags(fake_cluster) == {("orders", 0): 5, ("orders", 1): 1_200, ("news", 0): 0}
    records = fake_cluster.topic("orders").records(0)
    assert [record.value for record in records] == [b"value", b"value", b"2", b"3", b"4"]
    assert records[2].key == b"2"


def test_lag_counts_from_the_start_of_the_log(fake_cluster: FakeCluster) -> None:
    fill(fake_cluster, 5)
    partition = internals(fake_cluster).cluster.topics.get("orders").partitions[0]  # type: ignore[union-attr]
    internals(fake_cluster).run(lambda: partition.log.truncate_before(3))
    fake_cluster.group("g").seed(lag={"orders-0": 4})
    assert offsets(fake_cluster) == {("orders", 0): 3}
    assert lags(fake_cluster) == {("orders", 0): 4}


def test_an_offset_and_a_lag_determine_the_end_of_the_log(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(offsets={"orders-0": 3}, lag={"orders-0": 2})
    assert offsets(fake_cluster) == {("orders", 0): 3}
    assert lags(fake_cluster) == {("orders", 0): 2}
    with pytest.raises(
        ConfigError, match=r"lag\.orders-0=1: expected 2, because the offset is 3 and the log ends at 5$"
    ):
        fake_cluster.group("h").seed(offsets={"orders-0": 3}, lag={"orders-0": 1})


def test_groups_of_one_call_have_their_own_lags(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    seeds = [
        GroupSeed(group_id="a", lag={"orders-0": 2}),
        GroupSeed(group_id="b", lag={"orders-0": 5}),
        GroupSeed(group_id="c", offsets={"orders-0": 6}, lag={"orders-0": 1}),
        GroupSeed(group_id="d", offsets={"orders-0": 7}),
    ]
    for order in (seeds, seeds[::-1]):
        with subtests.test(order=[seed.group_id for seed in order]):
            fake_cluster.reset()
            fake_cluster.seed_groups(order)
            expected = {"a": (5, 2), "b": (2, 5), "c": (6, 1), "d": (7, 0)}
            found = {
                name: (offsets(fake_cluster, name)["orders", 0], lags(fake_cluster, name)["orders", 0])
                for name in "abcd"
            }
            assert found == expected
    fake_cluster.reset()
    with pytest.raises(
        ConfigError, match=r"^group 'c': lag\.orders-0=1: expected 3, because the offset is 6 and the log"
    ):
        fake_cluster.seed_groups([*seeds, GroupSeed(group_id="e", lag={"orders-0": 9})])
    assert fake_cluster.topic("orders").records() == []


def test_a_lag_needs_a_leader_only_if_records_are_missing(fake_cluster: FakeCluster) -> None:
    fill(fake_cluster, 5)
    fake_cluster.broker(1).stop(elect=False)
    fake_cluster.group("g").move_coordinator(to=2)
    expected = (
        r"^group 'g': lag\.orders-0=6: expected a lag without missing records, because they cannot be produced: "
        r"partition='orders-0': expected a partition that has a leader now$"
    )
    with pytest.raises(ConfigError, match=expected):
        fake_cluster.group("g").seed(lag={"orders-0": 6, "orders-1": 1})
    assert fake_cluster.topic("orders").records(1) == []
    fake_cluster.group("g").seed(lag={"orders-0": 5})
    assert offsets(fake_cluster) == {("orders", 0): 0}


@pytest.mark.fake_cluster(topics={"orders": 1}, config={"min.insync.replicas": 3})
def test_records_of_a_lag_pass_the_checks_of_produced_ones(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(3).stop()
    expected = (
        r"^group 'g': lag\.orders-0=1: expected a lag without missing records, because they cannot be produced: "
        r"values: expected records that the leader of orders-0 accepts, not NOT_ENOUGH_REPLICAS$"
    )
    with pytest.raises(ConfigError, match=expected):
        fake_cluster.group("g").seed(lag={"orders-0": 1})
    with pytest.raises(ConfigError, match="not NOT_ENOUGH_REPLICAS"):
        fake_cluster.topic("orders").produce(["a"])
    assert (fake_cluster.groups(), fake_cluster.topic("orders").records()) == ([], [])


@pytest.mark.fake_cluster(topics={"orders": 1}, config={"log.retention.bytes": 10_000})
def test_records_of_a_lag_must_fit_the_log(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"lag\.orders-0=9000: expected a lag whose records fit in 10000 bytes"):
        fake_cluster.group("g").seed(lag={"orders-0": 9_000})
    assert fake_cluster.topic("orders").records() == []


# Many groups


def test_many_groups_are_one_batch_per_partition(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("news").produce(["value"] * 1_000)
    fake_cluster.seed_groups(
        GroupSeed(group_id=f"g{number}", members=1, topics=["news"], offsets={"news-0": number})
        for number in range(1_000)
    )
    assert len(fake_cluster.groups()) == 1_000
    assert offsets(fake_cluster, "g999") == {("news", 0): 999}
    logs = [internals(fake_cluster).cluster.offsets_partition(index).log for index in range(50)]
    assert sum(log.log_end_offset for log in logs) == 2_000
    assert all(len(log._batches) == 1 for log in logs)


def test_no_group_is_created_if_one_is_invalid(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="group 'bad': topic='x': expected one of"):
        fake_cluster.seed_groups([GroupSeed(group_id="good"), GroupSeed(group_id="bad", topics=["x"], members=1)])
    with pytest.raises(ConfigError, match="group_id='good': expected each group once"):
        fake_cluster.seed_groups([GroupSeed(group_id="good"), GroupSeed(group_id="good")])
    assert fake_cluster.groups() == []


INVALID_SEEDS: list[tuple[dict[str, Any], str]] = [
    ({"state": "Busy"}, "group 'g': state='Busy': expected one of Empty, PreparingRebalance, Completing"),
    ({"state": "Stable"}, "group 'g': members=0: expected at least 1 in state Stable"),
    ({"state": "Empty", "members": 2}, "group 'g': members=2: expected none in state Empty"),
    ({"members": -1}, "group 'g': members=-1: expected 0 to 100000"),
    ({"members": 100_001}, "group 'g': members=100001: expected 0 to 100000"),
    ({"members": 1, "generation": 0}, "generation=0: expected 1 or more in state Stable"),
    (
        {"members": 1, "generation": 1, "state": "CompletingRebalance"},
        "generation=1: expected 2 or more in state",
    ),
    ({"offsets": {"orders": 1}}, "partition='orders': expected a topic and a number, such as 'orders-0'"),
    ({"offsets": {"orders-6": 1}}, "partition='orders-6': expected a partition from 0 to 5"),
    ({"offsets": {"x-0": 1}}, "topic='x': expected one of orders, news"),
    ({"lag": 1}, "lag=1: expected topics to be given as well, or a lag for each partition"),
    ({"topics": ["orders"], "lag": -1}, r"^group 'g': lag=-1: expected an integer >= 0$"),
    ({"lag": {"orders-0": -1}}, r"^group 'g': lag\.orders-0=-1: expected an integer >= 0$"),
    ({"lag": {"orders-0": "1"}}, r"^lag\.orders-0='1': expected an integer$"),
    ({"lag": {"orders-0": 1_000_001}}, r"lag\.orders-0=1000001: expected a lag for which at most 1000000 records are"),
    ({"topics": ["orders"], "lag": 200_000}, "expected a lag for which at most 1000000 records are produced, in all"),
    ({"lag": {"orders-0": 1, ("orders", 0): 1}}, r"^group 'g': lag='orders-0': expected each partition once$"),
    ({"offsets": {"orders-0": 1, ("orders", 0): 1}}, r"^group 'g': offsets='orders-0': expected each partition once$"),
    ({"offsets": {"orders-0": 1.5}}, r"^offsets\.orders-0=1\.5: expected an integer$"),
    ({"offsets": {"orders-0": True}}, r"^offsets\.orders-0=True: expected an integer$"),
    ({"offsets": {None: 1}}, r"^group 'g': partition=None: expected a topic and a number, such as 'orders-0'$"),
    (
        {"offsets": {"orders-0": 1}},
        r"^group 'g': offsets\.orders-0=1: expected 0 to 0, the end of its log; with a lag as well, missing",
    ),
    ({"offsets": {"orders-0": 2**63 - 1}, "lag": {"orders-0": 0}}, "at most 1000000 records are produced"),
    ({"topics": ["orders", "x"]}, r"^group 'g': topic='x': expected one of orders, news$"),
    ({"topics": "orders"}, r"^topics='orders': expected a list or none$"),
    ({"topics": [3]}, r"^topics\[0\]=3: expected a string$"),
    ({"members": [{"instance_id": "a b"}]}, r"^group 'g': instance_id='a b': expected a name of 1 to 249 characters"),
    ({"members": [{"session_timeout_ms": -5}]}, r"session_timeout_ms=-5: expected an integer from 1 to 2147483647"),
    ({"group_id": 3}, r"^group_id=3: expected a string$"),
    ({"generation": 2**31}, r"^group 'g': generation=2147483648: expected 0 to 2147483647 in state Empty$"),
    ({"members": 1, "assignment": {"consumer-g-1": "orders-0"}}, "expected a list$"),
    (
        {"members": 1, "assignment": {"x": []}},
        "assignment='x': expected the client id, instance id or",
    ),
    ({"members": ["a", 7]}, r"^members\[1\]=7: expected a table or a string$"),
    (
        {"members": [{"name": "x"}]},
        r"^members\[0\]\.name='x': unknown field; expected one of client_id, ",
    ),
    (
        {"members": [{"session_timeout_ms": "1"}]},
        r"members\[0\]\.session_timeout_ms='1': expected an integer",
    ),
    ({"members": [{"client_id": 3}]}, r"^members\[0\]\.client_id=3: expected a string or none$"),
    ({"members": [MemberSeed(instance_id="i")] * 2}, "members='i': expected each member id and instance id once"),
    ({"group_id": "", "members": 1}, "group '': group_id='': expected an id that is not empty"),
    ({"offsets": {"orders-0": 2**63}}, "offsets.orders-0=9223372036854775808: expected an integer from 0 to 92233"),
    ({"offsets": {("orders", 0): -1}}, "offsets.orders-0=-1: expected an integer from 0 to 9223372036854775807"),
    ({"group_id": "\ud800"}, "group_id='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"group_id": "\u00e9" * 16384}, "group_id='\u00e9.*: expected at most 32767 bytes of UTF-8"),
    ({"protocol": "\ud800"}, "protocol='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"topics": ["\ud800"]}, "topics='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"members": ["\ud800"]}, "members='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"members": [{"instance_id": "\ud800"}]}, "members='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"members": [{"member_id": "\ud800"}]}, "members='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"members": [{"client_host": "\ud800"}]}, "client_host='.ud800': expected at most 32767 bytes of UTF-8"),
    ({"members": ["a" * 32731]}, "members='a.*: expected at most 32730 bytes of UTF-8"),
]
"""Arguments of `seed`, and ids of groups, with a pattern of the error."""


def test_invalid_seeds_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for arguments, error in INVALID_SEEDS:
        fake_cluster.reset()
        with subtests.test(error):
            group_id, options = arguments.get("group_id", "g"), {**arguments}
            options.pop("group_id", None)
            with pytest.raises(ConfigError, match=error):
                fake_cluster.group(group_id).seed(**options)
            assert fake_cluster.groups() == []


def test_an_existing_group_is_rejected(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed()
    with pytest.raises(ConfigError, match="group_id='g': expected a group that does not exist yet"):
        fake_cluster.group("g").seed()


def test_the_longest_names(fake_cluster: FakeCluster) -> None:
    longest = "m" * 32767
    members = [MemberSeed(client_id=longest, member_id=longest), MemberSeed(client_id="a" * 32730)]
    fake_cluster.group("g").seed(members, topics=["orders"])
    assert fake_cluster.group("g").describe().members[0].member_id == longest


def test_no_group_is_created_after_an_internal_error(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.cluster.seeding.seed._enter_state", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fake_cluster.seed_groups([GroupSeed(group_id="a", members=1, topics=["orders"])])
    assert fake_cluster.groups() == []


# Tables

ROWS: dict[str, list[Any]] = {
    "group_id": ["a", "b", "a", "c", "c"],
    "topic": ["orders", "orders", "news", None, None],
    "partition": [0, 5, 0, None, None],
    "offset": [7, None, 8, None, None],
    "lag": [1, 4, 0, None, None],
    "members": [2, None, None, None, None],
    "generation": [3, None, 3, None, None],
    "topics": [None, "news, orders", None, "orders", None],
    "instance_id": [None, None, None, "i", "j"],
    "client_id": [None, None, None, None, "app"],
}


def check_rows(cluster: FakeCluster) -> None:
    assert offsets(cluster, "a") == {("orders", 0): 7, ("news", 0): 8}
    assert offsets(cluster, "b") == {("orders", 5): 0}
    assert (lags(cluster, "a"), lags(cluster, "b")) == ({("orders", 0): 1, ("news", 0): 0}, {("orders", 5): 4})
    assert [cluster.group(group_id).describe().state for group_id in "abc"] == ["Stable", "Empty", "Stable"]
    assert (cluster.group("a").describe().generation_id, len(cluster.group("a").describe().members)) == (3, 2)
    members = [(each.client_id, each.instance_id) for each in cluster.group("c").describe().members]
    assert members == [("consumer-c-1", "i"), ("app", "j")]
    assert assigned(cluster, "c") == [[("orders", index) for index in each] for each in ((0, 1, 2), (3, 4, 5))]


def test_groups_are_seeded_from_tables(fake_cluster: FakeCluster, tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "groups.parquet"
    pyarrow.parquet.write_table(pyarrow.table(ROWS), path)
    tables = {"pandas": pandas.DataFrame(ROWS), "arrow": pyarrow.table(ROWS), "parquet": path}
    for kind, table in tables.items():
        with subtests.test(kind):
            fake_cluster.reset()
            fake_cluster.seed_groups(table)
            check_rows(fake_cluster)


INVALID_TABLES: list[tuple[dict[str, list[Any]], str]] = [
    ({"topic": ["orders"]}, "group_id is missing: expected a column 'group_id'"),
    ({"group": ["a"]}, "^group: unknown column; expected group_id, the name of this column$"),
    ({"group_id": ["a"], "size": [1]}, "size: unknown column; expected one of group_id, topic"),
    ({"group_id": [None]}, "row 1: group_id is missing: expected a group id"),
    ({"group_id": [3]}, "row 1: group_id=3: expected a string"),
    ({"group_id": ["a"], "state": [3]}, "row 1: state=3: expected a string"),
    ({"group_id": ["a"], "topic": ["orders"]}, "row 1: expected topic, partition, and offset or lag, not group_id"),
    ({"group_id": ["a"], "offset": [1]}, "row 1: expected topic, partition, and offset or lag, not group_id, offset"),
    ({"group_id": ["a"], "topic": [1], "partition": [0], "lag": [0]}, "row 1: topic=1: expected a string"),
    (
        {"group_id": ["a"], "topic": ["orders"], "partition": [0], "lag": [-1]},
        r"lag\.orders-0=-1: expected an integer >=",
    ),
    (
        {"group_id": ["a"], "topic": ["orders"], "partition": [0], "offset": ["0"]},
        "row 1: offset='0': expected an integer",
    ),
    (
        {"group_id": ["a", "a"], "topic": ["orders"] * 2, "partition": [0, 0], "lag": [0, 1]},
        "row 2: lag=1: expected 0, as in earlier rows of group 'a'",
    ),
    ({"group_id": ["a"], "generation": [1.5]}, "row 1: generation=1.5: expected an integer"),
    ({"group_id": ["a"], "generation": [True]}, "row 1: generation=True: expected an integer"),
    ({"group_id": ["a"], "members": [float("inf")]}, "row 1: members=inf: expected an integer"),
    ({"group_id": ["a"], "members": [-1]}, "members=-1: expected 0 to 100000"),
    ({"group_id": ["a"], "generation": ["x"]}, "row 1: generation='x': expected an integer"),
    ({"group_id": ["a"], "topics": [3]}, "row 1: topics=3: expected a list of strings, or one string with commas"),
    (
        {"group_id": ["a"], "topics": [[3]]},
        r"row 1: topics=\[3\]: expected a list of strings, or one string with commas",
    ),
    ({"group_id": ["a"], "topics": ["x"]}, "group 'a': topic='x': expected one of orders, news"),
    (
        {"group_id": ["a"], "members": [1], "client_id": ["b"]},
        "row 1: members=1: expected no client_id and instance_id in",
    ),
    ({"group_id": ["a"], "instance_id": [5]}, "row 1: instance_id=5: expected a string"),
    (
        {"group_id": ["a", "a"], "state": ["Dead", "Empty"]},
        "row 2: state='Empty': expected 'Dead', as in earlier rows",
    ),
]
"""Columns of a table, with a pattern of the error."""


def test_invalid_tables_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for columns, error in INVALID_TABLES:
        fake_cluster.reset()
        with subtests.test(error):
            with pytest.raises(ConfigError, match=error):
                fake_cluster.seed_groups(pyarrow.table(columns))
            assert fake_cluster.groups() == []


def test_lists_and_missing_values_of_pandas_and_arrow(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    lists = {"group_id": ["a", "b"], "topics": [["orders", "news"], None], "members": [1, None]}
    tables = {
        "pandas": pandas.DataFrame(lists),
        "arrays": pandas.DataFrame({**lists, "topics": [numpy.array(["orders", "news"]), None]}),
        "nullable": pandas.DataFrame(lists).astype({"members": "Int64", "group_id": "string"}),
        "arrow": pyarrow.table(lists),
    }
    for kind, table in tables.items():
        with subtests.test(kind):
            fake_cluster.reset()
            fake_cluster.seed_groups(table)
            assert len(assigned(fake_cluster, "a")[0]) == 7
            assert fake_cluster.group("b").describe().state == "Empty"


INVALID_LISTS: list[tuple[Any, str]] = [
    ({"group_id": "x"}, r"^groups={'group_id': 'x'}: expected a list of GroupSeed, a table, or the path of a Parquet"),
    (
        GroupSeed(group_id="x"),
        r"^groups=GroupSeed\(.*: expected a list of GroupSeed, a table, or the path of a Parquet",
    ),
    (5, r"^groups=5: expected a list of GroupSeed"),
    (["x"], r"^groups\[0\]='x': expected a table \(such as {'group_id': 'g', 'members': 1}\)$"),
    ([{"group_id": "x"}, {"group": "y"}], r"groups\[1\]\.group='y': unknown field; expected one of group_id, "),
    ([{"group_id": "x"}, {"group_id": 5}], r"^groups\[1\]\.group_id=5: expected a string$"),
    (
        [{"group_id": "x"}, {"group_id": "y", "offsets": {"orders-0": "1"}}],
        r"^groups\[1\]\.offsets\.orders-0='1': expected",
    ),
]


def test_invalid_lists_of_seeds_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for groups, error in INVALID_LISTS:
        with subtests.test(error):
            with pytest.raises(ConfigError, match=error):
                fake_cluster.seed_groups(groups)
            assert fake_cluster.groups() == []
    fake_cluster.seed_groups([{"group_id": "x"}])
    assert fake_cluster.group("x").describe().state == "Empty"


def test_a_missing_or_invalid_file_is_rejected(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    with pytest.raises(ConfigError, match=r"groups\.parquet': expected a Parquet file"):
        fake_cluster.seed_groups(str(path))
    path.write_bytes(b"no")
    with pytest.raises(ConfigError, match=r"groups\.parquet': expected a Parquet file"):
        fake_cluster.seed_groups(path)


def test_an_error_names_the_missing_pyarrow(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="reading Parquet needs pyarrow: pip install pyarrow"):
        fake_cluster.seed_groups("groups.parquet")


# Seeding in steps, between which requests are handled


def created(cluster: FakeCluster) -> list[str]:
    return sorted(group.group_id for group in cluster.groups())


def test_seeding_in_steps_gives_the_same_groups() -> None:
    seeds = [GroupSeed(group_id=f"g{number}", members=2, topics=["orders"]) for number in range(100)]
    seeds.append(GroupSeed(group_id="joining", members=1, topics=["orders"], state="PreparingRebalance"))
    one, other = (FakeCluster(1, {"orders": 6}, seed=1, clock="manual") for _ in range(2))
    one.seed_groups(seeds)
    steps = seed_in_steps(internals(other).cluster, seeds, internals(other).server.clock.now_ms)
    counts = {len(other.groups()) for _ in steps}
    assert len(counts) > 20
    assert other.groups() == one.groups()


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_no_group_is_left_if_a_client_creates_one_of_them_meanwhile(fake_cluster: FakeCluster, state: str) -> None:
    seeds = [GroupSeed(group_id=f"g{number}", members=1, topics=["news"], lag=0, state=state) for number in range(99)]
    core = internals(fake_cluster).cluster
    steps = seed_in_steps(core, seeds, internals(fake_cluster).server.clock.now_ms)
    while len(fake_cluster.groups()) < 9:
        internals(fake_cluster).run(lambda: next(steps))
    late = next(
        seed.group_id
        for seed in seeds
        if core.coordinator_of(seed.group_id) and fake_cluster.group(seed.group_id).describe().state == "Dead"
    )
    fake_cluster.group(late).seed()
    with pytest.raises(ConfigError, match="expected a group that does not exist yet"):
        internals(fake_cluster).run(lambda: list(steps))
    assert created(fake_cluster) == [late]
    fake_cluster.brokers.rolling_restart()
    assert created(fake_cluster) == [late]


@pytest.mark.parametrize("change", ["reset", "restore"])
def test_no_group_is_left_if_the_cluster_is_reset_meanwhile(fake_cluster: FakeCluster, change: str) -> None:
    snapshot = fake_cluster.snapshot()
    seeds = [GroupSeed(group_id=f"g{number}", members=1, topics=["news"]) for number in range(99)]
    steps = seed_in_steps(internals(fake_cluster).cluster, seeds, internals(fake_cluster).server.clock.now_ms)
    while len(fake_cluster.groups()) < 9:
        internals(fake_cluster).run(lambda: next(steps))
    if change == "reset":
        fake_cluster.reset()
    else:
        fake_cluster.restore(snapshot)
    with pytest.raises(ConfigError, match="expected a cluster that is not reset or restored"):
        internals(fake_cluster).run(lambda: list(steps))
    assert created(fake_cluster) == []


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_no_group_is_left_if_coordinators_stop_meanwhile(fake_cluster: FakeCluster, state: str) -> None:
    seeds = [GroupSeed(group_id=f"g{number}", members=1, topics=["news"], state=state) for number in range(9)]
    steps = seed_in_steps(internals(fake_cluster).cluster, seeds, internals(fake_cluster).server.clock.now_ms)
    while len(fake_cluster.groups()) < 9:
        internals(fake_cluster).run(lambda: next(steps))
    for broker in fake_cluster.brokers:
        fake_cluster.broker(broker.node_id).stop(elect=False)
    with pytest.raises(ConfigError, match="expected a coordinator for the group"):
        internals(fake_cluster).run(lambda: list(steps))
    for broker in fake_cluster.brokers:
        fake_cluster.broker(broker.node_id).start()
    assert created(fake_cluster) == []


def test_no_group_is_left_if_a_topic_is_deleted_meanwhile(fake_cluster: FakeCluster) -> None:
    seeds = [GroupSeed(group_id=f"g{number}", offsets={"news-0": 0}) for number in range(3)]
    steps = seed_in_steps(internals(fake_cluster).cluster, seeds, internals(fake_cluster).server.clock.now_ms)
    internals(fake_cluster).run(lambda: next(steps))
    fake_cluster.topic("news").delete()
    with pytest.raises(ConfigError, match="topic='news': expected one of orders"):
        internals(fake_cluster).run(lambda: list(steps))
    assert created(fake_cluster) == []


@pytest.mark.parametrize("produced", [[], ["a client's"]])
def test_records_of_a_lag_are_removed_if_a_group_cannot_be_created(
    fake_cluster: FakeCluster, produced: list[str]
) -> None:
    """Records after which a client has appended others stay, because offsets do not change."""
    fill(fake_cluster, 1)
    seeds = [GroupSeed(group_id=name, lag={"orders-0": 1_000, "orders-1": 10}) for name in "ab"]
    steps = seed_in_steps(internals(fake_cluster).cluster, seeds, internals(fake_cluster).server.clock.now_ms)
    while not fake_cluster.topic("orders").records(1):
        internals(fake_cluster).run(lambda: next(steps))
    assert len(fake_cluster.topic("orders").records(0)) == 1_000
    fake_cluster.topic("orders").produce(produced, partition=0)
    fake_cluster.group("b").seed()
    with pytest.raises(ConfigError, match="group_id='b': expected a group that does not exist yet"):
        internals(fake_cluster).run(lambda: list(steps))
    assert created(fake_cluster) == ["b"]
    assert fake_cluster.topic("orders").records(1) == []
    assert len(fake_cluster.topic("orders").records(0)) == (1_001 if produced else 1)


@pytest.mark.parametrize("leaves", ["topic", "leader"])
def test_a_partition_may_lose_its_leader_before_records_of_a_lag_are_produced(
    fake_cluster: FakeCluster, leaves: str
) -> None:
    seeds = [GroupSeed(group_id="a", lag={"orders-0": 1_000, "news-0": 10})]
    steps = seed_in_steps(internals(fake_cluster).cluster, seeds, internals(fake_cluster).server.clock.now_ms)
    while not fake_cluster.topic("orders").records(0):
        internals(fake_cluster).run(lambda: next(steps))
    if leaves == "topic":
        fake_cluster.topic("news").delete()
    else:
        leader = internals(fake_cluster).cluster.topics.get("news").partitions[0].leader_id  # type: ignore[union-attr]
        fake_cluster.broker(leader).stop(elect=False)
    with pytest.raises(ConfigError, match="partition='news-0': expected a partition that has a leader now"):
        internals(fake_cluster).run(lambda: list(steps))
    assert (created(fake_cluster), fake_cluster.topic("orders").records()) == ([], [])
