"""Offsets, commits and partitions as tests spell them: in the cluster's process, and over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import ConfigError, FakeCluster, GroupSeed, RecordSeed
from fakebroker.control import Client
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from tests.support.client.wire_producer import WireProducer
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request
from tests.support.wire_client import WireClient


@pytest.fixture
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(1, {"orders": 2}, clock="manual") as harness:
        yield harness


@pytest.fixture(params=["process", "HTTP"])
def cluster(request: pytest.FixtureRequest, control: ControlHarness) -> Any:
    return control.cluster if request.param == "process" else Client(control.server.url)


def test_offsets_of_a_group_without_members_are_set_and_deleted(cluster: Any) -> None:
    group = cluster.group("g")
    group.set_offsets({"orders-0": 5, ("orders", 1): 7})
    assert {place: each.offset for place, each in group.offsets().items()} == {("orders", 0): 5, ("orders", 1): 7}
    assert (group.describe().state, group.describe().protocol_type) == ("Empty", None)
    group.set_offsets({"orders-0": None, "orders-1": 8})
    assert [(place, each.offset) for place, each in group.offsets().items()] == [(("orders", 1), 8)]


REFUSED: list[tuple[dict[Any, Any], str]] = [
    ({"orders-0": 1}, r"group 'g': offsets='orders-0': expected a group without members, or force=True \(UNKNOWN_MEM"),
    (
        {"orders-0": None},
        r"expected a topic to which no member subscribes, or force=True \(GROUP_SUBSCRIBED_TO",
    ),
    ({"other-0": None, "orders-0": None}, "expected a topic to which no member subscribes"),
    ({"orders-2": 1}, "offsets='orders-2': expected a partition that exists"),
    ({"orders": 1}, "offsets='orders': expected a topic and a number"),
    ({"orders-0": -1}, "offsets.orders-0=-1: expected .*an integer >= 0"),
]


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_with_members_accepts_offsets_only_by_force(
    cluster: FakeCluster, kind: Any, subtests: pytest.Subtests
) -> None:
    cluster.topic("other").create()
    offsets = {"orders-0": 0, "other-0": 0}
    cluster.seed_groups([GroupSeed(group_id="g", members=1, topics=["orders"], offsets=offsets, type=kind)])
    group = cluster.group("g")
    for given, error in REFUSED:
        with subtests.test(given=given), pytest.raises(ConfigError, match=error):
            group.set_offsets(given)
        assert sorted(group.offsets()) == [("orders", 0), ("other", 0)]
    group.set_offsets({"other-0": None})  # No member subscribes to this topic.
    group.set_offsets({"orders-0": 3, "orders-1": 4}, force=True)
    assert {place: each.offset for place, each in group.offsets().items()} == {("orders", 0): 3, ("orders", 1): 4}
    group.set_offsets({"orders-0": None}, force=True)
    assert list(group.offsets()) == [("orders", 1)]
    assert len(group.describe().members) == 1


def test_nothing_is_deleted_from_a_group_that_does_not_exist(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"expected an existing group \(GROUP_ID_NOT_FOUND\)"):
        cluster.group("g").set_offsets({"orders-0": None})
    cluster.group("g").move_coordinator(None)
    with pytest.raises(ConfigError, match="'g': expected a group that has a coordinator now"):
        cluster.group("g").set_offsets({"orders-0": 1})


def test_a_refused_append_changes_nothing(cluster: FakeCluster) -> None:
    group = cluster.group("g")
    with (
        group.fail_append(error="NOT_ENOUGH_REPLICAS"),
        pytest.raises(ConfigError, match=r"whose log accepts records \(COORDINATOR_NOT_AVAILABLE\)"),
    ):
        group.set_offsets({"orders-0": 1})
    assert group.describe().state == "Dead"


def test_offsets_survive_a_failover(cluster: FakeCluster) -> None:
    cluster.group("g").set_offsets({"orders-0": 5})
    cluster.group("g").move_coordinator(None)
    cluster.group("g").move_coordinator(1)
    assert cluster.group("g").offsets()["orders-0"].offset == 5


def test_lag_and_ends_of_partitions_with_an_open_transaction(cluster: FakeCluster) -> None:
    topic, group = cluster.topic("orders"), cluster.group("g")
    topic.produce(["a", "b"], partition=0)
    topic.partition(0).seed_hanging_transaction(records=3)
    group.set_offsets({"orders-0": 1, "orders-1": 0})
    assert topic.end_offsets() == {"orders-0": 5, "orders-1": 0}
    assert topic.end_offsets(committed=True) == {"orders-0": 2, "orders-1": 0}
    assert topic.partition(0).describe().last_stable_offset == 2
    assert group.lag() == {"orders-0": 4, "orders-1": 0}
    assert group.lag(committed=True) == {("orders", 0): 1, ("orders", 1): 0}
    with pytest.raises(ConfigError, match=r"topic.*'order': expected one of .*did you mean 'orders'"):
        cluster.topic("order").end_offsets()


def test_markers_of_transactions_count_in_lag_but_are_no_records(cluster: FakeCluster, control: ControlHarness) -> None:
    producer = WireProducer(control.cluster, "t")
    producer.begin(("orders", 0), b"a")
    producer.end(commit=True)
    cluster.group("g").set_offsets({"orders-0": 0})
    assert cluster.group("g").lag(committed=True)["orders-0"] == 2
    assert len(cluster.topic("orders").records(committed=True)) == 1


def test_commits_are_listed_with_times_and_members(cluster: FakeCluster) -> None:
    with WireClient(cluster.broker(1).describe(), "app") as wire:
        wire.ask(commit_request(3, partition=0), OffsetCommitResponse, 9)
        cluster.advance(2)
        wire.ask(commit_request(4, partition=1), OffsetCommitResponse, 9)
        wire.ask(commit_request(9, member_id="nobody", generation_id=1), OffsetCommitResponse, 9)
    group = cluster.group("g")
    first, second = group.commits()
    assert (first.topic, first.partition, first.offset, first.client_id, first.member_id, first.generation) == (
        "orders",
        0,
        3,
        "app",
        "",
        -1,
    )
    assert (first.error, first.transactional_id, first.instance_id) == ("NONE", None, None)
    assert (second.partition, second.offset, second.at_ms - first.at_ms) == (1, 4, 2000)
    assert group.commits("orders-1") == group.commits(("orders", 1)) == [second]
    refused = group.commits(refused=True)[-1]
    assert (refused.offset, refused.member_id, refused.error) == (9, "nobody", "UNKNOWN_MEMBER_ID")
    assert cluster.group("other").commits() == []


def test_commits_need_a_journal_with_messages() -> None:
    with (
        FakeCluster(1, journal="headers") as cluster,
        pytest.raises(ConfigError, match="journal='headers': expected f"),
    ):
        cluster.group("g").commits()


def test_each_record_has_its_own_key_headers_and_timestamp(cluster: Any) -> None:
    topic = cluster.topic("orders")
    produced = topic.produce(
        records=[
            RecordSeed(value="a", key="k", headers={"source": "web"}, timestamp=1_000, partition=1),
            {"value": "b", "partition": 0},
            RecordSeed(key="k", partition=1),
        ]
    )
    assert produced == [(1, 0), (0, 0), (1, 1)]
    zero, one, two = topic.records()
    assert (zero.value, zero.key, zero.headers) == (b"b", None, ())
    assert (one.value, one.key, one.headers, one.timestamp) == (b"a", b"k", (("source", b"web"),), 1_000)
    assert (two.value, two.key) == (None, b"k")
    assert {each.partition for each in topic.produce(records=[RecordSeed(value=str(n)) for n in range(4)])} == {0, 1}
    for option in ({"key": "x"}, {"partition": 1}, {"headers": {"a": "b"}}, {"timestamp": 5}, {"values": ["a"]}):
        name = next(iter(option))
        with pytest.raises(ConfigError, match=f"{name}=.*: expected none with records: each record has its own"):
            topic.produce(records=[RecordSeed(value="a")], **option)
    with pytest.raises(ConfigError, match=r"partition=2: expected 0 to 1"):
        topic.produce(records=[RecordSeed(value="a", partition=2)])
    with pytest.raises(ConfigError, match=r"records\[0\]\.partiton"):
        topic.produce(records=[{"value": "a", "partiton": 1}])


def test_partitions_have_one_spelling_in_arguments_and_results(cluster: FakeCluster) -> None:
    cluster.group("g").seed(["a"], topics=["orders"], offsets={("orders", 0): 0})
    (member,) = cluster.group("g").describe().members
    assert member.assigned_partitions is not None
    assert "orders-0" in member.assigned_partitions
    assert ("orders", 1) in member.assigned_partitions
    assert "orders-2" not in member.assigned_partitions
    assert member.assigned_partitions == ("orders-0", "orders-1")
    assert member.assigned_partitions == (("orders", 0), ("orders", 1))
    assert member.assigned_partitions != ("orders-0",)
    offsets = cluster.group("g").offsets()
    assert offsets["orders-0"] == offsets["orders", 0] == offsets.get("orders-0")
    assert "orders-0" in offsets
    assert "orders-1" not in offsets
    assert offsets.get("orders-1") is None
    with pytest.raises(KeyError, match="orders-1"):
        offsets["orders-1"]
    lag = cluster.group("g").lag()
    assert lag == {"orders-0": 0}
    assert lag != {"orders-0": 1}
    assert cluster.holds(cluster.group("g").committed(("orders", 0), at_least=0))
    cluster.inject_fault("OffsetCommit", partition=("orders", 1), error="NOT_COORDINATOR", times=1)
    with WireClient(cluster.broker(1).describe()) as wire:
        answer = wire.ask(commit_request(0, group_id="h", partition=1), OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert len(cluster.journal.requests("OffsetCommit", partition=("orders", 1))) == 1


LOST: list[tuple[dict[str, Any], bool]] = [
    ({"drop": True, "handles": True}, True),
    ({"silent": True, "handles": True}, True),
    ({"error": "NOT_COORDINATOR", "handles": True}, True),
    ({"cut_bytes": 4}, True),
    ({"drop": True}, False),
    ({"error": "NOT_COORDINATOR"}, False),
]


@pytest.mark.parametrize(("effect", "counts"), LOST)
def test_a_commit_counts_if_the_coordinator_has_accepted_it(
    cluster: FakeCluster, effect: dict[str, Any], counts: bool
) -> None:
    """Whatever the client has been told."""
    cluster.inject_fault("OffsetCommit", **effect)
    with WireClient(cluster.broker(1).describe()) as wire:
        wire.send(commit_request(5), 9)
        cluster.wait(cluster.requested("OffsetCommit"))
    assert [each.offset for each in cluster.group("g").commits()] == [5] * counts
    assert [each.offset for each in cluster.group("g").offsets().values()] == [5] * counts
    (call,) = cluster.journal.requests("OffsetCommit")
    assert (call.handled_ms is not None) == counts


def test_commits_in_transactions(cluster: FakeCluster, control: ControlHarness) -> None:
    producer = WireProducer(control.cluster, "t")
    for offset, end in ((1, "aborted"), (2, "committed"), (3, "fenced"), (4, "left")):
        producer.begin(("orders", 0), b"a")
        producer.add_offsets("g")
        producer.commit_offset("g", ("orders", 0), offset)
        if end in ("aborted", "committed"):
            producer.end(commit=end == "committed")
        if end == "fenced":
            producer.init()
    commits = cluster.group("g").commits(refused=True)
    assert [(each.offset, each.transaction) for each in commits] == [
        (1, "aborted"),
        (2, "committed"),
        (3, "aborted"),
        (4, "open"),
    ]
    assert {each.transactional_id for each in commits} == {"t"}
    assert [each.offset for each in cluster.group("g").commits()] == [2, 4]
    cluster.advance(61)
    assert [each.offset for each in cluster.group("g").commits()] == [2]
