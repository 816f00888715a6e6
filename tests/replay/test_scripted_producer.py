"""Members that consume and produce in transactions: in memory, and over TCP."""

from collections import Counter
from typing import Any

import pytest

from fakebroker.client.errors import UnsupportedVersion
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import AbortedTransaction, PartitionData
from fakebroker.protocol.records import Record, encode_batch, with_base_offset
from fakebroker.protocol.transaction_markers import encode_marker
from fakebroker.replay.members.committed_reader import transactional_batches
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.script.script import Act, Script, Transactions
from fakebroker.replay.simulation.scheduler import START_MS
from fakebroker.replay.simulation.simulation import Simulation, SimulationSettings
from fakebroker.replay.workload.workload import Cluster
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer
from tests.support.replay.simulated_replays import Row, play_in_memory, rows_of, script, two_broker_settings

TRANSACTIONS = Transactions(
    topic="payments",
    records=10,
    interval_ms=2_000,
    timeout_ms=10_000,
    abort=0.2,
    crash=0.2,
    return_ms=(0.0, 30_000.0),
    seed=0,
)
TOPICS = {"orders": 4, "payments": 3}
LEAVE = Act(50_000.0, "leave")


def transactional(number: int, *acts: Act, **changes: Any) -> Script:
    """Return the script of the member g-NUMBER with transactions."""
    transactions = TRANSACTIONS._replace(seed=number, **changes)
    acts = acts or (Act(100.0 * number, "start"), LEAVE)
    return script("g", number, *acts, commit_interval_ms=0, transactions=transactions)


def settings(duration_s: float = 60.0, **changes: Any) -> SimulationSettings:
    return two_broker_settings(duration_s, **{"topics": TOPICS} | changes)


def offsets(row: Row) -> dict[str, int]:
    return {each["partition"]: each["offset"] for each in row["offsets"] or ()}


def ended(rows: list[Row]) -> Counter[bool]:
    """Return the number of transactions by their accepted outcome."""
    return Counter(row["transaction"]["committed"] for row in rows_of(rows, "EndTxn") if row["error"] == 0)


def batches(rows: list[Row]) -> Counter[bool]:
    """Return the number of batches that the reader has returned, and skipped."""
    seen = [row for row in rows_of(rows, "Fetch") if row["kind"] == "seen"]
    return Counter(row["transaction"]["committed"] for row in seen)


def test_members_produce_and_commit_in_transactions() -> None:
    members = [transactional(number, crash=0.0, abort=0.0) for number in range(2)]
    simulation, rows = play_in_memory(members, settings())
    assert simulation.clock.moment_ms < START_MS + 61_000  # The reader has ended, too.
    assert not any(row["error"] for row in rows if row["transaction"] is not None)
    assert ended(rows) == {True: 48}
    one, other = [row for row in rows_of(rows, "TxnOffsetCommit", "g-0") if row["transaction"]["number"] > 2][:2]
    assert sum(offsets(other).values()) - sum(offsets(one).values()) == 10
    assert (one["member_id"], one["generation"]) == (rows_of(rows, "Heartbeat", "g-0")[-1]["member_id"], 2)
    assert batches(rows) == {True: len(rows_of(rows, "Produce"))}
    assert {row["transaction"]["epoch"] for row in rows_of(rows, "InitProducerId")} == {0}
    assert not rows_of(rows, "OffsetCommit")
    assert not rows_of(rows, "AddPartitionsToTxn")


def test_producers_and_readers_find_a_leader_that_was_down_when_the_brokers_were_looked_up() -> None:
    """The connection of the look-ups is lost, and its first Metadata afterwards has one broker."""
    steps = (
        (1, "broker.stop", 2),
        (2, "broker.restart", 1),
        (10, "broker.start", 2),
        (20, "brokers.elect_preferred", None),
    )
    events = [
        {"at_s": at_s, "do": do} | ({} if node_id is None else {"node_id": node_id}) for at_s, do, node_id in steps
    ]
    members = [transactional(number, Act(5_000.0, "start"), LEAVE, crash=0.0, abort=0.0) for number in range(2)]
    _, rows = play_in_memory(members, settings(events=tuple(events)))
    late = [row for row in rows if row["sent_us"] > (START_MS + 30_000) * 1000 and row["error"] == 0]
    for api in ("Produce", "Fetch"):
        assert {row["broker"] for row in rows_of(late, api) if row["kind"] == "request"} == {1, 2}
    assert ended(late) == {True: 20}


def test_markers_follow_the_offsets_of_their_transaction() -> None:
    """A coordinator that loads the log must know the offsets when it reads the marker."""
    simulation, _ = play_in_memory([transactional(0, crash=0.0, abort=0.0)], settings(20.0))
    logs = [partition.log for partition in simulation.virtual_cluster.cluster.topics.offsets_topic.partitions]
    kinds = [batch.is_control for log in logs for batch in log.batches_from(0) if batch.is_transactional]
    assert kinds == [False, True] * (len(kinds) // 2)
    assert len(kinds) > 8


def test_heartbeats_are_folded_between_transactions() -> None:
    _, rows = play_in_memory([transactional(0, crash=0.0, abort=0.0)], settings(folds=True))
    beats = rows_of(rows, "Heartbeat")
    assert len(beats) < 5 < sum(row["count"] for row in beats)


def test_a_suspended_member_sends_nothing() -> None:
    pause = Act(9_000.0, "pause", 15_000.0)
    late = {"at_s": 7, "do": "inject_fault", "api": "Produce", "delay_s": 4, "times": 1}
    members = [transactional(0, Act(0.0, "start"), pause, LEAVE, crash=0.0, abort=0.0)]
    _, rows = play_in_memory(members, settings(events=(late,)))
    of_producer = [row for row in rows if row["transaction"] is not None and row["kind"] == "request"]
    seconds = [(row["sent_us"] - START_MS * 1000) / 1e6 for row in of_producer]
    assert [at_s for at_s in seconds if 9.001 < at_s < 24] == []
    delayed = [row for row in rows_of(rows, "Produce") if row["latency_us"] > 4_000_000]
    assert [round(row["latency_us"] / 1e6) for row in delayed] == [16]
    assert ended(rows)[True] > 10


def test_equal_seeds_give_equal_transactions() -> None:
    plays = [play_in_memory([transactional(number)], settings(30.0))[1] for number in (0, 0, 1)]
    assert plays[0] == plays[1]
    assert ended(plays[0]) != ended(plays[2])


def test_aborted_records_are_skipped_and_consumed_again() -> None:
    _, rows = play_in_memory([transactional(0, crash=0.0, abort=0.5)], settings())
    outcomes, seen = ended(rows), batches(rows)
    assert outcomes[False] > 5 < outcomes[True]
    assert len(rows_of(rows, "OffsetFetch")) == 1 + outcomes[False]
    assert seen[False] > 5 < seen[True]
    last = [row for row in rows_of(rows, "TxnOffsetCommit") if row["error"] == 0][-1]
    assert sum(offsets(last).values()) in (10 * outcomes[True], 10 * outcomes[True] + 10)


def test_a_producer_that_returns_fences_the_former_one() -> None:
    _, rows = play_in_memory([transactional(0, abort=0.0, crash=0.5, return_ms=(0.0, 500.0))], settings())
    errors = Counter(row["error"] for row in rows_of(rows, "EndTxn"))
    assert errors[ErrorCode.PRODUCER_FENCED] > 3
    epochs = [row["transaction"]["epoch"] for row in rows_of(rows, "InitProducerId") if row["error"] == 0]
    assert epochs == sorted(epochs)
    assert len(epochs) > 3
    assert rows_of(rows, "ListTransactions")
    assert not [row for row in rows_of(rows, "ListTransactions") if row["kind"] == "seen"]


def test_the_coordinator_aborts_what_a_producer_has_left_open() -> None:
    _, rows = play_in_memory([transactional(0, crash=1.0, return_ms=(40_000.0, 40_000.0))], settings(120.0))
    open_rows = [row for row in rows_of(rows, "ListTransactions") if row["kind"] == "seen"]
    open_rows = [row for row in open_rows if row["transaction"]["number"] == 1]
    began_us = rows_of(rows, "Produce")[0]["sent_us"]
    assert 9_000_000 < open_rows[-1]["sent_us"] - began_us < 21_000_000
    assert batches(rows)[True] == 0 < batches(rows)[False]


@pytest.mark.slow
def test_fast_forwarding_members_does_not_change_transactions(subtests: pytest.Subtests) -> None:
    acts = (Act(0.0, "start"), Act(9_000.0, "pause", 15_000.0), Act(30_000.0, "crash"), Act(33_000.0, "start"), LEAVE)
    members = [transactional(0), transactional(1, *acts), transactional(2)]
    for event in (
        None,
        {"at_s": 12, "do": "broker.stop", "node_id": 1},
        {"at_s": 12, "do": "broker.restart", "node_id": 2},
        {"at_s": 12, "do": "inject_fault", "api": "EndTxn", "drop": True, "times": 2},
        {"at_s": 12, "do": "inject_fault", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3},
        {
            "at_s": 12,
            "do": "inject_fault",
            "api": "TxnOffsetCommit",
            "error": "COORDINATOR_LOAD_IN_PROGRESS",
            "times": 3,
        },
    ):
        with subtests.test(event=event):
            plan = settings(events=(event,) if event else ())
            rows, slow = (play_in_memory(members, plan, is_fast=is_fast)[1] for is_fast in (True, False))
            assert rows == slow
            assert ended(rows)[True] > 5
            assert batches(rows)[True] > 5


def test_brokers_without_the_feature_get_older_versions() -> None:
    simulation = Simulation([transactional(0)], 0, settings(20.0))
    simulation.virtual_cluster.cluster.features.finalized["transaction.version"] = 1
    simulation.virtual_cluster.cluster.transactions.configure()
    rows = [row for found in simulation.run() for batch in found for row in batch.to_pylist()]
    versions = {api: {row["version"] for row in rows_of(rows, api)} - {-1} for api in ("Produce", "EndTxn")}
    assert versions == {"Produce": {11}, "EndTxn": {4}}
    assert rows_of(rows, "AddPartitionsToTxn")


def test_the_reader_skips_aborted_transactions() -> None:
    """An ABORT marker ends the aborted transaction of its producer; the next one may be committed."""

    def batch(offset: int, producer_id: int, **more: Any) -> bytes:
        data = encode_batch([Record(0, 1, None, b"v")], producer_id=producer_id, is_transactional=True, **more)
        return with_base_offset(data, offset, 0)

    def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
        data = encode_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=1)
        return with_base_offset(data, offset, 0)

    records = [batch(0, 7), batch(1, 8), marker(2, 7, is_commit=False), batch(3, 7), marker(4, 8, is_commit=True)]
    data = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=5,
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)],
        records=b"".join(records),
    )
    found = [
        (each.base_offset, is_returned) for each, is_returned in transactional_batches(data) if not each.is_control
    ]
    assert found == [(0, False), (1, True), (3, True)]


@pytest.mark.slow
def test_brokers_before_kip_890(subtests: pytest.Subtests) -> None:
    for release, versions in (
        ("3.9", {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4, "AddPartitionsToTxn": 3, "AddOffsetsToTxn": 4}),
        ("2.4", {"Produce": 8, "EndTxn": 1, "TxnOffsetCommit": 2, "AddPartitionsToTxn": 1, "AddOffsetsToTxn": 1}),
        ("0.11", {"Produce": 3, "EndTxn": 0, "TxnOffsetCommit": 0, "AddPartitionsToTxn": 0, "AddOffsetsToTxn": 0}),
    ):
        with subtests.test(release=release):
            failure = {"at_s": 9, "do": "inject_fault", "api": "Produce", "error": "INVALID_TXN_STATE", "times": 1}
            plan = settings(cluster=Cluster(brokers=2, as_version=release), events=(failure,))
            _, rows = play_in_memory([transactional(0)], plan)
            assert ended(rows)[True] > 5
            assert {
                api: row["version"] for api in versions for row in rows_of(rows, api) if row["version"] >= 0
            } == versions
            assert batches(rows)[True] > 5


def test_a_broker_without_an_api_that_producers_need_is_reported() -> None:
    members = [transactional(0, Act(0.0, "start"), LEAVE)._replace(topics=("orders",))]
    expected = r"^InitProducerId: broker .* supports no version"
    with (
        FakeCluster(topics=TOPICS, api_versions={"InitProducerId": None}) as cluster,
        pytest.raises(UnsupportedVersion, match=expected),
    ):
        LoopPlayer().play(cluster.bootstrap_servers, members, LoopSettings(duration_s=10.0))


@pytest.mark.slow
def test_transactions_over_tcp() -> None:
    """The members leave when they have ended enough transactions, and the reader has seen enough batches."""
    changes = {"interval_ms": 100, "timeout_ms": 3_000, "return_ms": (0.0, 200.0), "crash": 0.1, "abort": 0.1}
    members = [
        transactional(number, Act(0.0, "start"), LEAVE, **changes)._replace(
            topics=("orders",), session_timeout_ms=300_000, rebalance_timeout_ms=300_000
        )
        for number in range(2)
    ]
    player = LoopPlayer()

    def is_enough() -> bool:
        seen = [each.transaction for each in player.of("Fetch") if each.kind == "seen"]
        committed = sum(transaction is not None and bool(transaction[3]) for transaction in seen)
        return committed > 5 and sum(each.error == 0 for each in player.of("EndTxn")) > 20

    player.when(is_enough, lambda: player.skip(LEAVE.at_ms / 1000))
    with FakeCluster(topics=TOPICS, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        player.play(cluster.bootstrap_servers, members, LoopSettings(duration_s=LEAVE.at_ms / 1000 + 1))
    errors = Counter(each.error for each in player.of("EndTxn"))
    assert set(errors) <= {0, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS, None}
