"""Transactions over requests: differences of releases, administration, markers, failovers of coordinators."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.logs.coordinator_records import read_transaction_records
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.transaction import KIP_890, Markers, TransactionValue
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fakebroker.protocol.records import Record, encode_batch
from tests.cluster.test_transactional_logs import READ_COMMITTED, fetched, visible
from tests.support.cluster.cluster_harness import ClusterHarness

ID = "payments"


@dataclass
class TransactionalClient:
    """A producer with a transactional id, which sends requests by hand."""

    harness: ClusterHarness = field(default_factory=lambda: ClusterHarness(topics={"news": 2}, brokers=3))
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0
    transactional_id: str = ID

    def ask(self, request: Any, version: int, broker: int = 0) -> Any:
        return self.harness.ask(request, version, broker=broker or self.coordinator())

    def coordinator(self) -> int:
        """Return the node id of the coordinator."""
        (found,) = self.harness.ask(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]), 4
        ).coordinators
        node_id: int = found.node_id
        return node_id

    def init(self, version: int = 5, **fields: Any) -> ErrorCode:
        request = InitProducerIdRequest(
            **{"transactional_id": self.transactional_id, "transaction_timeout_ms": 60_000, **fields}
        )
        response = self.ask(request, version)
        if not response.error_code:
            self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0
        return ErrorCode(response.error_code)

    def add(self, *indexes: int, topic: str = "news", version: int = 3) -> dict[int, str]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        (row,) = self.ask(request, version).results_by_topic_v3_and_below
        return {each.partition_index: ErrorCode(each.partition_error_code).name for each in row.results_by_partition}

    def produce(self, value: bytes, index: int = 0, version: int = 9, **changes: Any) -> str:
        data = encode_batch(
            [Record(0, 1_000, None, value)],
            producer_id=changes.get("producer_id", self.producer_id),
            producer_epoch=changes.get("epoch", self.epoch),
            base_sequence=self.sequence,
            is_transactional=changes.get("is_transactional", True),
        )
        partition = self.harness.partition(index)
        request = ProduceRequest(
            transactional_id=changes.get("transactional_id", self.transactional_id),
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(
                    name="news",
                    topic_id=partition.topic.topic_id,
                    partition_data=[PartitionProduceData(index=index, records=data)],
                )
            ],
        )
        response = self.harness.ask(request, version, broker=partition.leader_id)
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        self.sequence += not error
        return error.name

    def end(self, *, commit: bool, version: int = 3, **changes: Any) -> str:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=changes.get("epoch", self.epoch),
            committed=commit,
        )
        response = self.ask(request, version)
        if not response.error_code and version >= 5:
            self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0
        return ErrorCode(response.error_code).name

    def state(self) -> str:
        (found,) = self.ask(
            DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0
        ).transaction_states
        state: str = found.transaction_state
        return state

    def committed(self, index: int = 0) -> list[bytes]:
        assert index == 0, "fetched() reads partition 0"
        return visible(fetched(self.harness, 0, READ_COMMITTED), 0)[0]


@pytest.fixture
def client() -> TransactionalClient:
    one = TransactionalClient(ClusterHarness(topics={"news": 2}, brokers=1))
    assert one.init() is ErrorCode.NONE
    return one


def test_records_have_the_transaction_version_of_the_last_request_that_has_one(client: TransactionalClient) -> None:
    """It is 2 if brokers add partitions and if an end raises the epoch (KIP-890)."""

    def versions() -> list[tuple[str, int]]:
        index = client.harness.cluster.transactions_partition_of(ID).index
        records = read_transaction_records(client.harness.partition(index, TRANSACTIONS_TOPIC).log, index)
        return [
            (value.state.value, value.version)
            for each in records
            if each.value is not None
            for value in [TransactionValue.of(each.value)]
        ]

    client.produce(b"a", version=12)
    client.end(commit=True, version=5)
    client.init()
    client.add(0)
    client.end(commit=False, version=4)
    client.init()
    client.produce(b"b", version=12)
    client.init()  # aborts the transaction, as the cluster does
    expected = [("Empty", 0), ("Ongoing", 2), ("PrepareCommit", 2), ("CompleteCommit", 2), ("Empty", 2)]
    expected += [("Ongoing", 0), ("PrepareAbort", 0), ("CompleteAbort", 0), ("Empty", 0)]
    assert versions() == [*expected, ("Ongoing", 2), ("PrepareAbort", 2), ("CompleteAbort", 2)]


def test_releases_before_verification_take_any_partition() -> None:
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, as_version="3.5"))
    client.init(version=4)
    assert client.produce(b"a") == "NONE"


def test_verification_can_be_disabled() -> None:
    config: dict[str, object] = {"transaction.partition.verification.enable": False}
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, config=config))
    client.init()
    assert client.produce(b"a", version=11) == "NONE"


def test_batches_without_a_transactional_id(client: TransactionalClient) -> None:
    client.add(0)
    assert client.produce(b"a", transactional_id=None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    client.produce(b"a")
    assert client.produce(b"b", is_transactional=False, transactional_id=None) == "INVALID_TXN_STATE"


def test_one_unknown_partition_prevents_that_others_are_added(client: TransactionalClient) -> None:
    assert client.add(0, 9) == {0: "OPERATION_NOT_ATTEMPTED", 9: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert client.add(0, topic=TRANSACTIONS_TOPIC) == {0: "TOPIC_AUTHORIZATION_FAILED"}
    assert client.state() == "Empty"


def test_batches_of_transactions(subtests: pytest.Subtests) -> None:
    def asked(client: TransactionalClient, version: int, verify_only: bool, *indexes: int) -> list[str]:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=ID,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name="news", partitions=list(indexes))],
        )
        (result,) = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version).results_by_transaction
        (topic,) = result.topic_results
        return [ErrorCode(each.partition_error_code).name for each in topic.results_by_partition]

    for as_version, version, error in (
        ("3.7", 4, "INVALID_TXN_STATE"),
        ("3.8", 4, "TRANSACTION_ABORTABLE"),
        ("4.2", 4, "TRANSACTION_ABORTABLE"),
        ("4.2", 5, "TRANSACTION_ABORTABLE"),
    ):
        with subtests.test(as_version=as_version, version=version):
            client = TransactionalClient(ClusterHarness({"news": 2}, as_version=as_version))
            client.init(version=4)
            assert asked(client, version, True, 0) == [error]
            assert asked(client, version, False, 0) == ["NONE"]
            assert asked(client, version, True, 0, 1) == ["NONE", error]


@pytest.mark.parametrize("as_version", ["4.2", "4.3", None])
def test_markers_wait_for_a_leader_before_4_3(as_version: str | None) -> None:
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, brokers=3, as_version=as_version))
    client.init()
    partition, harness = client.harness.partition(), client.harness
    coordinator = client.coordinator()
    if partition.leader_id == coordinator:
        harness.cluster.controller.set_leader(partition, coordinator % 3 + 1, harness.now_ms, Failover())
    client.add(0)
    client.produce(b"a")
    leader = harness.cluster.brokers[partition.leader_id]
    harness.cluster.controller.stop_broker(leader, harness.now_ms, Failover(), elect=False)
    assert client.end(commit=True) == "NONE"
    waits = as_version == "4.2"
    if waits:
        assert (client.state(), client.init()) == ("PrepareCommit", ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.advance(10_000)
    assert client.state() == ("PrepareCommit" if waits else "CompleteCommit")
    harness.cluster.controller.start_broker(leader, harness.now_ms, Failover())
    harness.advance(0)
    assert client.state() == "CompleteCommit"
    # Without a marker, the record stays in an open transaction.
    assert (partition.log.last_stable_offset, partition.log.high_watermark) == ((2, 2) if waits else (0, 1))


@pytest.mark.parametrize("how", [Failover(), Failover(load_ms=5_000)], ids=["at once", "loading"])
def test_a_transaction_survives_its_coordinator(how: Failover) -> None:
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, brokers=3))
    client.init()
    client.add(0)
    client.produce(b"a")
    harness, old = client.harness, client.coordinator()
    index = harness.cluster.brokers[old].transaction_coordinator.partition_for(ID)
    partition = harness.partition(index, TRANSACTIONS_TOPIC)
    harness.cluster.controller.set_leader(partition, old % 3 + 1, harness.now_ms, how)
    assert client.coordinator() != old
    if how.load_ms:
        assert client.end(commit=True) == "COORDINATOR_LOAD_IN_PROGRESS"
        harness.advance(5_000)
    assert client.end(commit=True) == "NONE"
    assert client.state() == "CompleteCommit"


def test_transactions_are_listed(client: TransactionalClient, subtests: pytest.Subtests) -> None:
    client.harness.advance(0.5)  # durations are whole milliseconds
    client.add(0)
    client.harness.advance(5_000)

    def listed(version: int = 2, **filters: Any) -> tuple[str, list[str], list[str]]:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        found = client.ask(request, version)
        names = [each.transactional_id for each in found.transaction_states]
        return ErrorCode(found.error_code).name, found.unknown_state_filters, names

    for filters, expected in (
        ({}, ("NONE", [], [ID])),
        ({"state_filters": ["Ongoing", "Nonsense"]}, ("NONE", ["Nonsense"], [ID])),
        ({"state_filters": ["Empty"]}, ("NONE", [], [])),
        ({"producer_id_filters": [client.producer_id]}, ("NONE", [], [ID])),
        ({"producer_id_filters": [99]}, ("NONE", [], [])),
        ({"duration_filter": 4_999}, ("NONE", [], [ID])),
        ({"duration_filter": 5_000}, ("NONE", [], [])),
        ({"transactional_id_pattern": "pay.*"}, ("NONE", [], [ID])),
        ({"transactional_id_pattern": "pay"}, ("NONE", [], [])),
        ({"transactional_id_pattern": ""}, ("NONE", [], [ID])),
        ({"transactional_id_pattern": r"(?:\(?=x)?[p(?=1]ay\w+"}, ("NONE", [], [ID])),
        ({"transactional_id_pattern": "("}, ("INVALID_REGULAR_EXPRESSION", [], [])),
    ):
        with subtests.test(**filters):
            assert listed(**filters) == expected


def test_descriptions_of_missing_transactions(client: TransactionalClient) -> None:
    ids = [ID, "missing", ""]
    found = client.ask(DescribeTransactionsRequest(transactional_ids=ids), 0).transaction_states
    assert [ErrorCode(each.error_code).name for each in found] == [
        "NONE",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "INVALID_REQUEST",
    ]


def test_an_admin_aborts_a_hanging_transaction(client: TransactionalClient) -> None:
    client.add(0)
    client.produce(b"a")
    marker = WritableTxnMarker(
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="news", partition_indexes=[0, 9])],
        coordinator_epoch=0,
    )
    (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    (topic,) = result.topics
    assert [ErrorCode(each.error_code).name for each in topic.partitions] == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    log = client.harness.partition().log
    assert log.last_stable_offset == log.high_watermark
    assert client.state() == "Ongoing"  # the coordinator is not told


def test_a_marker_answers_a_fetch_that_waits_for_committed_records(client: TransactionalClient) -> None:
    client.add(0)
    client.produce(b"a" * 500)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    topics = [FetchTopic(topic="news", partitions=[partition])]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=500, isolation_level=READ_COMMITTED, topics=topics)
    call = client.harness.send(request, 12)
    assert call.response is None
    client.end(commit=True)
    assert call.response is not None


def test_markers_with_kip_890_raise_the_epoch_since_4_2(subtests: pytest.Subtests) -> None:
    for release, error in (("4.1", "NONE"), ("4.2", "INVALID_PRODUCER_EPOCH")):
        with subtests.test(release=release):
            client = TransactionalClient(ClusterHarness(topics={"news": 1}, as_version=release))
            client.init()
            client.add(0)
            client.produce(b"a")
            partition = client.harness.partition()
            markers = Markers(ID, client.producer_id, client.epoch, True, 0, KIP_890, (("news", 0),))
            found = client.harness.cluster.transactions.write_at(client.harness.cluster.brokers[1], partition, markers)
            assert found is ErrorCode[error]


@pytest.mark.parametrize("as_version", ["3.6", "4.2"])
def test_replicas_that_the_log_of_ids_needs(as_version: str, subtests: pytest.Subtests) -> None:
    """At most as many as it has, also before 3.7, where other topics may need more."""
    for brokers, needed, down, error in (
        (1, 2, 0, ErrorCode.NONE),
        (3, 2, 1, ErrorCode.NONE),
        (3, 2, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, 1, 2, ErrorCode.NONE),
        (3, 3, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ):
        with subtests.test(brokers=brokers, needed=needed, down=down):
            config: dict[str, object] = {"transaction.state.log.min.isr": needed}
            client = TransactionalClient(ClusterHarness({"news": 1}, brokers, config, as_version))
            client.coordinator()
            for node_id in range(brokers, brokers - down, -1):
                broker = client.harness.cluster.brokers[node_id]
                client.harness.cluster.controller.stop_broker(broker, client.harness.now_ms, Failover())
            assert client.init(version=4) is error


def test_when_transactions_that_have_timed_out_are_looked_for(subtests: pytest.Subtests) -> None:
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    for as_version, config, at_s in (("2.4", {}, 60), ("2.5", {}, 10), ("2.4", {name: 20_000}, 20)):
        with subtests.test(as_version=as_version, config=config):
            given: dict[str, object] = dict(config)
            client = TransactionalClient(ClusterHarness({"news": 1}, 1, given, as_version))
            assert client.init(version=1, transaction_timeout_ms=1_000) is ErrorCode.NONE
            client.add(0, version=1)
            broker = client.harness.cluster.brokers[1]
            states = []
            for seconds in (at_s - 1, 1):
                client.harness.advance(1_000 * seconds)
                (found,) = broker.transaction_coordinator.transactions()
                states.append(found.state.value)
            assert states == ["Ongoing", "CompleteAbort"]


def test_ids_are_not_stored_without_enough_replicas() -> None:
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, brokers=3))
    harness, coordinator = client.harness, client.coordinator()
    for node_id in {1, 2, 3} - {coordinator}:
        harness.cluster.controller.stop_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())
    assert client.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_old_epoch_is_refused_before_the_coordinator_is_asked_since_4_1(subtests: pytest.Subtests) -> None:
    for release, error in (("4.0", "NOT_ENOUGH_REPLICAS"), ("4.1", "INVALID_PRODUCER_EPOCH")):
        with subtests.test(release=release):
            client = TransactionalClient(ClusterHarness(topics={"news": 1}, as_version=release))
            client.init()
            client.init()
            client.add(0)
            client.produce(b"a")
            broker = client.harness.cluster.brokers[1]
            client.harness.cluster.transactions.moves.resign_all(broker, client.harness.now_ms)
            assert client.produce(b"b", epoch=0) == error


def test_the_old_coordinator_is_found_for_a_while() -> None:
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, brokers=3))
    harness, old = client.harness, client.coordinator()
    index = harness.cluster.brokers[old].transaction_coordinator.partition_for(ID)
    how = Failover(stale_ms=1_000)
    harness.cluster.controller.set_leader(
        harness.partition(index, TRANSACTIONS_TOPIC), old % 3 + 1, harness.now_ms, how
    )
    assert (client.coordinator(), client.init()) == (old, ErrorCode.NOT_COORDINATOR)
    harness.advance(1_000)
    assert (client.coordinator(), client.init()) == (old % 3 + 1, ErrorCode.NONE)


def test_a_restored_transaction_continues_and_times_out(client: TransactionalClient) -> None:
    client.add(0)
    client.produce(b"a")
    cluster = client.harness.cluster
    taken = snapshot.take(cluster)
    client.end(commit=False)
    snapshot.restore(cluster, taken, client.harness.now_ms)
    assert client.state() == "Ongoing"
    client.harness.advance(70_000)
    assert client.state() == "CompleteAbort"
    snapshot.start_over(cluster, ClusterHarness(topics={"news": 2}).cluster, client.harness.now_ms)
    assert not cluster.transactions.is_used


def test_waiting_markers_are_dropped_when_their_coordinator_resigns() -> None:
    """The new coordinator has lost the record of the commit: the transaction is open, and must stay so."""
    client = TransactionalClient(ClusterHarness(topics={"news": 1}, brokers=3, as_version="4.2"))
    client.init()
    harness, coordinator, partition = client.harness, client.coordinator(), client.harness.partition()
    controller, now_ms = harness.cluster.controller, harness.now_ms
    controller.set_leader(partition, coordinator % 3 + 1, now_ms, Failover())
    client.add(0)
    client.produce(b"a")
    leader = harness.cluster.brokers[partition.leader_id]
    controller.stop_broker(leader, now_ms, Failover(), elect=False)
    assert client.end(commit=True) == "NONE"
    index = harness.cluster.brokers[coordinator].transaction_coordinator.partition_for(ID)
    other = ({1, 2, 3} - {coordinator, leader.node_id}).pop()
    controller.set_leader(harness.partition(index, TRANSACTIONS_TOPIC), other, now_ms, Failover(lose_tail=1))
    controller.start_broker(leader, now_ms, Failover())
    harness.advance(0)
    assert (client.state(), client.committed()) == ("Ongoing", [])
    assert client.end(commit=False) == "NONE"
    assert (client.state(), client.committed()) == ("CompleteAbort", [])
