"""Invalid and extreme requests about transactions get Kafka's answers, and change nothing."""

from typing import Any

import pytest

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition
from fakebroker.cluster.transactions import Transactions
from fakebroker.coordinator.timers import Rank
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.cluster.test_transactional_offsets import ConsumingClient
from tests.cluster.test_transactions import ID as CLIENT_ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.invalid_transactions import ID, MAX_TIMEOUT_MS, error_names, invalid_requests
from tests.support.coordinator.transaction_lab import P0, TransactionLab

MANY = 10_000


def new_harness(**options: Any) -> tuple[ClusterHarness, int]:
    """Return a cluster with the id "t", and its producer id."""
    harness = ClusterHarness(**options)
    for key_type in (0, 1):
        harness.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[ID]), 4)  # creates the internal topics
    response = harness.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 5)
    assert response.error_code == 0
    return harness, response.producer_id


def contents(harness: ClusterHarness) -> list[tuple[str, int, int]]:
    """Return the end of each log that is not empty."""
    return [
        (topic.name, partition.index, partition.log.high_watermark)
        for topic in harness.cluster.topics.all()
        for partition in topic.partitions
        if partition.log.high_watermark
    ]


def test_invalid_requests_are_refused_and_change_nothing(subtests: pytest.Subtests) -> None:
    harness, producer_id = new_harness()
    before = contents(harness)
    for case in invalid_requests(producer_id, "news"):
        try:
            assert error_names(harness.ask(case.request, case.version)) == case.errors
            assert contents(harness) == before
        except AssertionError:
            with subtests.test(case.name):
                raise
    (state,) = harness.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Empty", producer_id, 0)


def test_limits_that_are_valid(subtests: pytest.Subtests) -> None:
    harness, _ = new_harness()
    for timeout_ms in (1, MAX_TIMEOUT_MS):
        with subtests.test(timeout_ms=timeout_ms):
            request = InitProducerIdRequest(transactional_id="new", transaction_timeout_ms=timeout_ms)
            assert error_names(harness.ask(request, 5)) == []
    for timeout_ms in (0, -1, 2**31 - 1):
        with subtests.test("without id", timeout_ms=timeout_ms):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
            assert error_names(harness.ask(request, 5)) == []
    with subtests.test("the empty id has a coordinator"):
        (found,) = harness.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[""]), 6).coordinators
        assert (found.error_code, found.node_id) == (0, 1)
    for producer_ids, states in (([-1, -(2**63)], []), ([], ["", "\0", "ongoing"])):
        with subtests.test(producer_ids=producer_ids, states=states):
            filters = ListTransactionsRequest(producer_id_filters=producer_ids, state_filters=states)
            assert harness.ask(filters, 2).transaction_states == []


ODD_IDS = (
    *(" ", "\0", "\n", "a\tb", "../../etc/passwd", "%00", "\u202etxet", "\U0001f680", "\ud7ff\ue000", "\uffff"),
    *("é", "e\u0301", "x" * 32_767, "é" * 16_383, "\U0001f680" * 8_191),
)


def test_odd_and_long_ids_are_ids_as_all_others(subtests: pytest.Subtests) -> None:
    harness, _ = new_harness(brokers=2)
    producers = {}
    for name in ODD_IDS:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        responses = [harness.ask(request, 5, broker=node_id) for node_id in (1, 2)]
        (producers[name],) = {each.producer_id for each in responses if not each.error_code}
    topic = harness.cluster.topics.get(TRANSACTIONS_TOPIC)
    assert topic is not None
    for partition in topic.partitions:
        harness.cluster.controller.set_leader(partition, 2, harness.now_ms, Failover())
    described = harness.ask(DescribeTransactionsRequest(transactional_ids=list(ODD_IDS)), 0, broker=2)
    found = {each.transactional_id: each.producer_id for each in described.transaction_states}
    assert found == producers
    empty = ListTransactionsRequest(state_filters=["Empty"], producer_id_filters=[])
    listed = harness.ask(empty, 2, broker=2).transaction_states
    assert {each.transactional_id for each in listed} == {ID, *ODD_IDS}


def end(client: TransactionalClient, topic: str, *indexes: int, commit: bool = False, **changes: Any) -> list[str]:
    """Send a marker to the leader of the first partition; return the errors."""
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0} | changes
    marker = WritableTxnMarker(
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        **fields,
    )
    leader_id = client.harness.partition(indexes[0], topic).leader_id
    response = client.harness.ask(WriteTxnMarkersRequest(markers=[marker]), 1, broker=leader_id)
    (row,) = response.markers[0].topics
    return [ErrorCode(each.error_code).name for each in row.partitions]


def new_client(**options: Any) -> ConsumingClient:
    client = ConsumingClient(ClusterHarness(**{"topics": {"news": 2}, **options}))
    assert client.init() is ErrorCode.NONE
    return client


def partition_of_transactions(client: TransactionalClient) -> Partition:
    """Return the partition of `__transaction_state` that the client's id belongs to."""
    coordinator = client.harness.cluster.brokers[client.coordinator()].transaction_coordinator
    return client.harness.partition(coordinator.partition_for(CLIENT_ID), TRANSACTIONS_TOPIC)


def test_markers_of_a_producer_that_never_was(subtests: pytest.Subtests) -> None:
    """They are appended: brokers cannot know which producers exist."""
    client = new_client()
    log = client.harness.partition().log
    cases: tuple[tuple[int, int, int], ...] = ((1, 0, 0), (2, 32_767, 0), (2**63 - 1, 0, 0), (-2, 0, 0), (3, 0, 9))
    for count, (producer_id, epoch, coordinator_epoch) in enumerate(cases, 1):
        with subtests.test(producer_id=producer_id, epoch=epoch):
            marker: dict[str, Any] = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "coordinator_epoch": coordinator_epoch,
            }
            assert end(client, "news", 0, 1, **marker) == ["NONE", "NONE"]
            assert (log.high_watermark, log.last_stable_offset) == (count, count)
    assert client.add(0) == {0: "NONE"}
    assert client.produce(b"a") == "NONE"
    assert log.last_stable_offset == len(cases)


def test_a_marker_of_a_client_in_the_log_of_offsets_ends_pending_offsets() -> None:
    client = new_client()
    client.add_offsets()
    client.commit_in_transaction({0: 5})
    assert client.stored(0, require_stable=True) == {0: "UNSTABLE_OFFSET_COMMIT"}
    index = client.harness.cluster.offsets_partition_of("g").index
    own = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert end(client, OFFSETS_TOPIC, index, commit=True, producer_id=77) == ["NONE"]
    assert client.stored(0, require_stable=True) == {0: "UNSTABLE_OFFSET_COMMIT"}, "the marker of another producer"
    assert end(client, OFFSETS_TOPIC, index, commit=True, **own) == ["NONE"]
    assert client.stored(0, require_stable=True) == {0: 5}
    assert client.state() == "Ongoing", "the coordinator is not told"


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_of_a_client_in_the_log_of_transactions(commit: bool) -> None:
    """The next coordinator reads the log up to the marker, as Kafka's does, which logs an error."""
    client = new_client(brokers=3)
    client.add(0)
    old, partition = client.coordinator(), partition_of_transactions(client)
    assert end(client, TRANSACTIONS_TOPIC, partition.index, commit=commit) == ["NONE"]
    assert client.end(commit=True) == "NONE"
    assert client.state() == "CompleteCommit"
    client.harness.cluster.controller.set_leader(partition, old % 3 + 1, client.harness.now_ms, Failover())
    assert client.coordinator() != old
    assert client.state() == "Ongoing", "the state before the marker"
    assert client.end(commit=True) == "NONE"


def test_the_markers_of_a_producer_have_one_row(subtests: pytest.Subtests) -> None:
    def marker(producer_id: int, *indexes: int) -> WritableTxnMarker:
        topics = [WritableTxnMarkerTopic(name="news", partition_indexes=list(indexes))] if indexes else []
        return WritableTxnMarker(
            producer_id=producer_id, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0
        )

    client = new_client()
    for markers, expected in (
        ([], []),
        ([marker(7)], []),
        ([marker(7, 0), marker(8, 0), marker(7, 1, 9)], [(7, {0: "NONE", 1: "NONE", 9: "x"}), (8, {0: "NONE"})]),
    ):
        with subtests.test(markers=markers):
            response = client.harness.ask(WriteTxnMarkersRequest(markers=markers), 1)
            assert [
                (
                    row.producer_id,
                    {
                        each.partition_index: "x" if each.error_code else "NONE"
                        for topic in row.topics
                        for each in topic.partitions
                    },
                )
                for row in response.markers
            ] == expected


@pytest.mark.parametrize(
    ("topic", "indexes", "is_answered"),
    [("news", [0, 0], False), ("other", [0, 0], True), ("__consumer_offsets", [0, 0], True), ("news", [0, 1], True)],
)
def test_a_marker_that_names_a_partition_twice_is_never_answered(
    topic: str, indexes: list[int], is_answered: bool
) -> None:
    """As in Kafka, where it is written once."""
    client = new_client(topics={"news": 3})
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=indexes),
            WritableTxnMarkerTopic(name="news", partition_indexes=[2]),
        ],
        coordinator_epoch=0,
    )
    call = client.harness.send(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert (call.response is not None) is is_answered
    assert client.harness.partition(2).log.log_end_offset == 1
    assert client.harness.partition(0).log.log_end_offset == (topic == "news")


def test_a_marker_without_epoch_fails_the_request() -> None:
    """As in Kafka the markers before it are written, although their results are errors, too."""
    client = new_client()
    topics = [WritableTxnMarkerTopic(name="news", partition_indexes=[0, 9])]
    markers = [
        WritableTxnMarker(
            producer_id=producer_id, producer_epoch=epoch, transaction_result=False, topics=topics, coordinator_epoch=0
        )
        for producer_id, epoch in ((7, 0), (8, -1), (9, 0))
    ]
    response = client.harness.ask(WriteTxnMarkersRequest(markers=markers), 1)
    assert error_names(response) == ["UNKNOWN_SERVER_ERROR"] * 6
    assert [each.producer_id for each in client.harness.partition().log.producers.all()] == [7]


@pytest.mark.slow
def test_10_000_partitions_in_one_transaction() -> None:
    client = new_client(topics={"news": MANY, "more": 1})
    assert set(client.add(*range(MANY)).values()) == {"NONE"}
    log = client.harness.partition(
        client.harness.cluster.brokers[1].transaction_coordinator.partition_for("payments"), TRANSACTIONS_TOPIC
    ).log
    assert log.high_watermark == 2, "expected one record for InitProducerId, and one for all partitions"
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=CLIENT_ID,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        verify_only=True,
        topics=[
            AddPartitionsToTxnTopic(name="news", partitions=list(range(MANY))),
            AddPartitionsToTxnTopic(name="more", partitions=[0]),
        ],
    )
    errors = error_names(client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5))
    assert errors == ["TRANSACTION_ABORTABLE"], "all partitions except the last one were added"
    assert client.end(commit=True) == "NONE"
    assert client.state() == "CompleteCommit"


def stopped_partition(client: TransactionalClient) -> int:
    """Stop a leader that is not the coordinator; return its partition, which gets no other leader."""
    harness, coordinator = client.harness, client.coordinator()
    index = next(index for index in (0, 1) if harness.partition(index).leader_id != coordinator)
    broker = harness.cluster.brokers[harness.partition(index).leader_id]
    harness.cluster.controller.stop_broker(broker, harness.now_ms, Failover(), elect=False)
    return index


def test_a_flood_of_end_txn(subtests: pytest.Subtests) -> None:
    for version, commit, errors in (
        (3, True, {"NONE"}),
        (3, False, {"NONE", "INVALID_TXN_STATE"}),
        (5, True, {"INVALID_TXN_STATE"}),
    ):
        with subtests.test(version=version, commit=commit):
            client = new_client()
            client.add(0)
            assert client.end(commit=True, version=version) == "NONE"
            before = contents(client.harness)
            assert {client.end(commit=commit, version=version) for _ in range(200)} <= errors
            assert contents(client.harness) == before
    with subtests.test("aborts without transaction, which raise the epoch"):
        client = new_client()
        assert {client.end(commit=False, version=5) for _ in range(200)} == {"NONE"}
        assert client.epoch == 200
    with subtests.test("while markers wait"):
        client = new_client(brokers=3, as_version="4.2")
        client.add(stopped_partition(client))
        assert client.end(commit=True) == "NONE"
        assert {client.end(commit=True) for _ in range(50)} == {"CONCURRENT_TRANSACTIONS"}


@pytest.mark.slow
def test_ticks_with_10_000_open_transactions_do_only_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = TransactionLab()
    names = [f"id-{number}" for number in range(MANY)]
    for number, name in enumerate(names):
        lab.init(name=name, timeout_ms=60_000 if number % 100 else 15_000)
        lab.add(P0, name=name, producer_id=lab.coordinator.transaction(name).value.producer_id)  # type: ignore[union-attr]
    expired: list[str] = []
    expire = lab.coordinator._expire

    def count(transaction: Any, due_ms: float, now_ms: float) -> None:
        expired.append(transaction.transactional_id)
        expire(transaction, due_ms, now_ms)

    lab.coordinator.queue.service(Rank.TRANSACTIONS, count)
    records = len(lab.log)
    for second in range(20):
        lab.now_ms = 1_000.0 * second
        lab.coordinator.queue.run(lab.now_ms)
    assert (expired, len(lab.log)) == ([], records)
    heap = lab.coordinator.queue._heap
    assert len(heap) <= 2 * MANY + 64, "expected one timer for each id, and few outdated ones"
    lab.advance(30)
    assert len(expired) == MANY // 100
    assert len(lab.log) - records == 2 * MANY // 100  # PrepareAbort and CompleteAbort
    lab.advance(60)
    assert len(expired) == MANY
    assert {each.value.state.value for each in lab.coordinator.transactions()} == {"CompleteAbort"}


def test_each_tick_tries_one_of_many_waiting_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    client = new_client(brokers=3, as_version="4.2")
    place = ("news", stopped_partition(client))
    node_id = client.coordinator()
    cluster = client.harness.cluster
    coordinator = cluster.brokers[node_id].transaction_coordinator
    for number in range(500):
        name = f"id-{number}"
        coordinator.init_producer_id(name, 60_000, -1, -1, client.harness.now_ms)
        if (found := coordinator.transaction(name)) is None:
            continue  # it has another coordinator
        producer = found.value.producer_id, found.value.epoch
        coordinator.add_partitions(name, *producer, [place], client.harness.now_ms)
        coordinator.end(name, *producer, is_commit=True, raises_epoch=False, now_ms=client.harness.now_ms)
    waiting = len(cluster.transactions.waiting)
    assert waiting > 100
    tried: list[Any] = []
    write = Transactions.write

    def count(transactions: Transactions, markers: Any, place: Any) -> Any:
        tried.append(place)
        return write(transactions, markers, place)

    monkeypatch.setattr(Transactions, "write", count)
    for number in range(1, 4):
        cluster.tick(client.harness.now_ms)
        assert (len(tried), len(cluster.transactions.waiting)) == (number, waiting)
    (stopped,) = [each for each in cluster.brokers.values() if not each.up]
    cluster.controller.start_broker(stopped, client.harness.now_ms, Failover())
    cluster.tick(client.harness.now_ms)
    assert (len(tried), cluster.transactions.waiting) == (3 + waiting, [])


def test_an_epoch_of_minus_1_repeats_the_end_in_epoch_0() -> None:
    """Kafka compares the epoch with that of the last end without a lower bound."""
    client = new_client()
    client.add(0)
    assert client.end(commit=True) == "NONE"
    assert client.end(commit=True, epoch=-1) == "PRODUCER_FENCED"
    assert client.end(commit=False, version=5, epoch=-1) == "INVALID_TXN_STATE"
    assert client.end(commit=True, version=5, epoch=-1) == "NONE"
    assert client.epoch == 0
