"""Produce with transactional batches: verification by the coordinator, waiting, order of sequence numbers."""

from collections.abc import Sequence
from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.call import Call
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.transaction import ONGOING
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.transaction_markers import encode_marker
from tests.cluster.test_transactions import ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness

NOW_MS = 1_000


def records(client: TransactionalClient, sequence: int = 0, **changes: Any) -> bytes:
    fields = {"producer_id": client.producer_id, "producer_epoch": client.epoch, "is_transactional": True, **changes}
    return encode_batch([Record(0, NOW_MS, None, b"a")], base_sequence=sequence, **fields)


def send(
    client: TransactionalClient,
    batches: Sequence[tuple[int, bytes | None]],
    version: int = 12,
    *,
    acks: int = -1,
    transactional_id: str | None = ID,
    broker: int = 0,
) -> Call:
    """Send a Produce request with records by partition, to the leader of the first one."""
    data = [PartitionProduceData(index=index, records=each) for index, each in batches]
    topic = client.harness.topic()
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="news", topic_id=topic.topic_id, partition_data=data)],
    )
    broker = broker or topic.partitions[batches[0][0]].leader_id
    return client.harness.send(request, version, broker=broker)


def results(call: Call) -> list[tuple[str, int]]:
    """Return error and base offset of each partition; no partitions while the call is not answered."""
    if call.response is None:
        return []
    (topic,) = call.response.responses
    return [(ErrorCode(each.error_code).name, each.base_offset) for each in topic.partition_responses]


def produced(
    client: TransactionalClient, *batches: tuple[int, bytes | None], version: int = 12, **fields: Any
) -> list[str]:
    return [error for error, _ in results(send(client, batches, version, **fields))]


def started(brokers: int = 1, partitions: int = 2, **fields: Any) -> TransactionalClient:
    client = TransactionalClient(ClusterHarness(topics={"news": partitions}, brokers=brokers, **fields))
    client.coordinator()  # creates the topic
    assert client.init(version=4) is ErrorCode.NONE
    return client


def ending(**fields: Any) -> TransactionalClient:
    """Return a client whose transaction in partition 0 is being committed: the leader of this partition is down.

    Since 4.3, Kafka does not wait for that leader.
    """
    client = started(brokers=3, **{"as_version": "4.2", **fields})
    harness, controller = client.harness, client.harness.cluster.controller
    coordinator = client.coordinator()
    for index, node_id in enumerate(sorted({1, 2, 3} - {coordinator})):
        controller.set_leader(harness.partition(index), node_id, harness.now_ms, Failover())
    assert produced(client, (0, records(client))) == ["NONE"]
    leader = harness.cluster.brokers[harness.partition(0).leader_id]
    controller.stop_broker(leader, harness.now_ms, Failover(), elect=False)
    assert client.end(commit=True, version=5) == "NONE"
    assert client.state() == "PrepareCommit"
    return client


def start_leader(client: TransactionalClient) -> None:
    harness = client.harness
    down = next(broker for broker in harness.cluster.brokers.values() if not broker.up)
    harness.cluster.controller.start_broker(down, harness.now_ms, Failover())


# Requests that are refused as a whole


def test_a_request_without_transactional_id_is_refused_as_a_whole() -> None:
    client = started()
    assert produced(client, (0, None), (1, records(client)), transactional_id=None) == [
        *["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"] * 2
    ]
    assert produced(client, (0, records(client, is_transactional=False)), transactional_id=None) == ["NONE"]


def test_batches_of_two_producers_are_refused_as_a_whole(subtests: pytest.Subtests) -> None:
    for name, changes in (("id", {"producer_id": 77}), ("epoch", {"producer_epoch": 7})):
        with subtests.test(name):
            client = started()
            call = send(client, [(0, records(client)), (9, None), (1, records(client, **changes))])
            assert [error for error, _ in results(call)] == ["INVALID_PRODUCER_ID_MAPPING"] * 3
            assert call.response is not None
            assert all(each.error_message for each in call.response.responses[0].partition_responses)
            assert client.state() == "Empty"


def test_releases_before_verification_take_batches_of_two_producers() -> None:
    client = started(as_version="3.5")
    assert produced(client, (0, records(client)), (1, records(client, producer_id=77)), version=9) == ["NONE"] * 2


def test_invalid_batches_do_not_count_as_those_of_a_second_producer() -> None:
    client = started()
    other = records(client, producer_id=77)
    assert produced(client, (0, records(client)), (1, other + other)) == ["NONE", "INVALID_RECORD"]


def test_with_acks_0_an_error_closes_the_connection() -> None:
    client = started()
    assert send(client, [(0, records(client))], acks=0, transactional_id=None).closes_connection
    call = send(client, [(0, records(client))], acks=0)
    assert (call.closes_connection, client.harness.partition().log.log_end_offset) == (False, 1)


def test_batches_without_a_producer_id_are_not_verified() -> None:
    client = started()
    assert produced(client, (0, records(client, producer_id=-1, producer_epoch=-1, sequence=-1))) == ["NONE"]
    assert client.state() == "Empty"
    assert client.harness.partition().log.last_stable_offset == 1


# The order of the checks of a partition


def test_partitions_with_invalid_requests_are_not_added(subtests: pytest.Subtests) -> None:
    for name, index, change, version, error in (
        ("unknown partition", 9, {}, 12, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("two batches", 0, {"twice": True}, 12, "INVALID_RECORD"),
        ("compression of a later version", 0, {"compression": Compression.ZSTD}, 6, "UNSUPPORTED_COMPRESSION_TYPE"),
    ):
        with subtests.test(name):
            client = started()
            fields: dict[str, Any] = dict(change)
            twice = fields.pop("twice", False)
            assert produced(client, (index, records(client, **fields) * (1 + twice)), version=version, broker=1) == [
                error
            ]
            assert client.state() == "Empty"


def test_partitions_are_added_before_the_other_checks(subtests: pytest.Subtests) -> None:
    for name, changes, fields, error in (
        ("control batch", {"is_control": True}, {}, "INVALID_RECORD"),
        ("negative sequence number", {"sequence": -1}, {}, "INVALID_RECORD"),
        ("acks", {}, {"acks": 2}, "INVALID_REQUIRED_ACKS"),
    ):
        with subtests.test(name):
            client = started()
            assert produced(client, (0, records(client, **dict[str, Any](changes))), **dict[str, Any](fields)) == [
                error
            ]
            assert client.state() == "Ongoing"


def test_several_partitions_are_added_with_one_record() -> None:
    client = started()
    index = client.harness.cluster.brokers[1].transaction_coordinator.partition_for(ID)
    log = client.harness.partition(index, TRANSACTIONS_TOPIC).log
    before = log.log_end_offset
    assert produced(client, (0, records(client)), (1, records(client))) == ["NONE", "NONE"]
    assert log.log_end_offset == before + 1


def test_a_partition_of_another_leader_is_not_added() -> None:
    client = started(brokers=2)
    leader = client.harness.partition().leader_id
    call = send(client, [(0, records(client))], broker=3 - leader)
    assert results(call) == [("NOT_LEADER_OR_FOLLOWER", -1)]
    assert call.response.responses[0].partition_responses[0].current_leader.leader_id == leader
    assert client.state() == "Empty"


# What the coordinator answers


def test_errors_of_the_coordinator_in_each_version(subtests: pytest.Subtests) -> None:
    cases: dict[str, tuple[str, str, str]] = {
        "loading": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        "none": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        "no topic": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        "resigned": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        "ending": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        "fenced": ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        "not added": ("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "NONE"),
        "unknown id": ("INVALID_PRODUCER_ID_MAPPING",) * 3,
        "empty id": ("INVALID_REQUEST",) * 3,
    }
    for name, expected in cases.items():
        for version, error in zip((10, 11, 12), expected, strict=True):
            with subtests.test(name, version=version):
                client = ending() if name == "ending" else TransactionalClient() if name == "no topic" else started(3)
                harness, transactional_id = client.harness, {"unknown id": "other", "empty id": ""}.get(name, ID)
                if name in ("loading", "none", "resigned"):
                    node_id = client.coordinator()
                    broker = harness.cluster.brokers[node_id]
                    index = broker.transaction_coordinator.partition_for(ID)
                    to, how = (-1, Failover()) if name == "none" else (node_id % 3 + 1, Failover(load_ms=5_000))
                    if name == "resigned":
                        harness.cluster.transactions.moves.resign_all(broker, harness.now_ms)
                    else:
                        controller = harness.cluster.controller
                        controller.set_leader(harness.partition(index, TRANSACTIONS_TOPIC), to, harness.now_ms, how)
                if name == "no topic":
                    client.producer_id, client.epoch = 5, 0
                if name == "fenced":
                    client.init(version=4)
                    client.epoch -= 1
                call = send(client, [(1, records(client))], version, transactional_id=transactional_id)
                harness.advance(100)
                assert [found for found, _ in results(call)] == [error]
                row = call.response.responses[0].partition_responses[0]
                assert (row.error_message is not None) == (error in ("NOT_ENOUGH_REPLICAS", "INVALID_TXN_STATE"))


def test_refused_partitions_do_not_prevent_others() -> None:
    client = started()
    client.add(1)
    assert produced(client, (0, records(client)), (1, records(client)), version=11) == [
        "TRANSACTION_ABORTABLE",
        "NONE",
    ]


# Waiting for the end of the last transaction


def test_a_request_waits_for_the_end_of_the_last_transaction() -> None:
    client = ending()
    call = send(client, [(1, records(client))])
    for _ in range(2):
        client.harness.advance(20)
        assert results(call) == []
    start_leader(client)
    client.harness.advance(0)
    assert (client.state(), results(call)) == ("CompleteCommit", [])
    client.harness.advance(19)
    assert results(call) == []
    client.harness.advance(1)
    assert results(call) == [("NONE", 0)]
    assert client.state() == "Ongoing"


def test_a_request_waits_for_at_most_the_configured_time(subtests: pytest.Subtests) -> None:
    backoff, limit = "add.partitions.to.txn.retry.backoff.ms", "add.partitions.to.txn.retry.backoff.max.ms"
    for name, config, waits_ms in (
        ("default", {}, 100),
        ("other", {backoff: 7, limit: 8}, 14),
        ("none", {limit: 0}, 0),
    ):
        with subtests.test(name):
            client = ending(config=dict[str, object](config))
            call = send(client, [(1, records(client))])
            if waits_ms:
                client.harness.advance(waits_ms - 1)
                assert results(call) == []
                client.harness.advance(1)
            assert results(call) == [("CONCURRENT_TRANSACTIONS", -1)]
            assert client.harness.cluster.next_deadline() != client.harness.now_ms


def test_versions_that_verify_do_not_wait() -> None:
    client = ending()
    assert produced(client, (1, records(client)), version=11) == ["NOT_ENOUGH_REPLICAS"]


def test_verification_can_be_disabled_while_the_cluster_runs() -> None:
    client = ending()
    client.harness.cluster.broker_configs = {"transaction.partition.verification.enable": "false"}
    assert produced(client, (1, records(client)), version=11) == ["NONE"]
    call = send(client, [(1, records(client, 1))])
    assert results(call) == [("NONE", 1)]  # the transaction is open in this partition


def test_a_late_answer_with_acks_0() -> None:
    client = ending()
    refused, taken = (send(client, [(1, records(client))], acks=0) for _ in range(2))
    client.harness.advance(100)
    assert (refused.closes_connection, taken.closes_connection) == (True, True)
    call = send(client, [(1, records(client))], acks=0)
    start_leader(client)
    client.harness.advance(20)
    assert (call.closes_connection, client.harness.partition(1).log.log_end_offset) == (False, 1)
    assert call in client.harness.cluster.requests.answered


def test_waiting_requests_of_a_broker_that_stops_are_dropped() -> None:
    client = ending()
    harness = client.harness
    call = send(client, [(1, records(client))])
    controller, leader = harness.cluster.controller, harness.partition(1).leader_id
    controller.stop_broker(harness.cluster.brokers[leader], harness.now_ms, Failover(), elect=False)
    controller.start_broker(harness.cluster.brokers[leader], harness.now_ms, Failover())
    start_leader(client)
    harness.advance(100)
    assert results(call) == []
    assert harness.partition(1).log.log_end_offset == 0


def test_waiting_requests_are_answered_before_a_restore() -> None:
    client = ending()
    cluster = client.harness.cluster
    taken = snapshot.take(cluster)
    call = send(client, [(1, records(client))])
    snapshot.restore(cluster, taken, client.harness.now_ms)
    assert results(call) == [("CONCURRENT_TRANSACTIONS", -1)]


def test_a_request_that_waits_finds_another_leader() -> None:
    client = ending()
    harness = client.harness
    call = send(client, [(1, records(client))])
    other = client.coordinator()
    harness.cluster.controller.set_leader(harness.partition(1), other, harness.now_ms, Failover())
    harness.advance(20)
    assert results(call) == [("NOT_LEADER_OR_FOLLOWER", -1)]


def test_a_request_that_waits_loses_its_topic() -> None:
    client = ending()
    call = send(client, [(1, records(client))])
    client.harness.cluster.delete_topic(client.harness.cluster.existing_topic("news"))
    client.harness.advance(20)
    assert results(call) == [("UNKNOWN_TOPIC_OR_PARTITION", -1)]


# Sequence numbers


def test_a_later_batch_is_not_appended_before_one_that_was_not_verified(subtests: pytest.Subtests) -> None:
    for version in (11, 12):
        with subtests.test(version=version):
            client = ending()
            call = send(client, [(1, records(client))], version)
            client.harness.advance(100)
            assert results(call) in ([("NOT_ENOUGH_REPLICAS", -1)], [("CONCURRENT_TRANSACTIONS", -1)])
            start_leader(client)
            client.harness.advance(0)
            client.add(1)
            assert produced(client, (1, records(client, 1)), version=version) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
            assert produced(client, (1, records(client, 0)), version=version) == ["NONE"]
            assert produced(client, (1, records(client, 1)), version=version) == ["NONE"]


def test_a_new_leader_does_not_know_of_earlier_requests() -> None:
    client = ending()
    harness = client.harness
    send(client, [(1, records(client))], 11)
    harness.cluster.controller.set_leader(harness.partition(1), client.coordinator(), harness.now_ms, Failover())
    start_leader(client)
    harness.advance(0)
    client.add(1)
    assert produced(client, (1, records(client, 1)), version=11) == ["NONE"]


def test_the_first_sequence_number_of_a_partition_that_the_broker_adds(subtests: pytest.Subtests) -> None:
    for as_version, version, error in (
        ("4.0", 12, "NONE"),
        ("4.1", 12, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ("4.1", 11, "NONE"),
        ("4.2", 12, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ):
        with subtests.test(as_version=as_version, version=version):
            client = started(as_version=as_version)
            client.add(0)
            assert produced(client, (0, records(client, 3)), version=version) == [error]


def test_a_higher_epoch_starts_the_order_anew() -> None:
    client = ending()
    send(client, [(1, records(client, 0))], 11)
    start_leader(client)
    client.harness.advance(0)
    assert client.init(version=4) is ErrorCode.NONE
    client.add(1)
    assert produced(client, (1, records(client, 4)), version=11) == ["NONE"]  # the partition has no other batch


# Verifications that are overtaken by a marker


def test_a_marker_ends_the_verifications_that_have_begun(subtests: pytest.Subtests) -> None:
    """The record of the transaction is held, and meanwhile an admin aborts the transaction in the partition."""
    for epoch, as_version, is_repeated, expected in (
        (1, "4.2", False, ("INVALID_PRODUCER_EPOCH", -1)),
        (1, "4.1", False, ("INVALID_TXN_STATE", -1)),
        (1, "4.0", True, ("INVALID_TXN_STATE", -1)),  # another verification has begun since
        # With KIP-890 a marker in the epoch of the batch has ended the transaction before.
        (0, "4.2", False, ("NONE", 1)),
        (0, "4.0", True, ("NONE", 1)),
    ):
        with subtests.test(epoch=epoch, as_version=as_version, is_repeated=is_repeated):
            client = started(as_version=as_version)
            log = client.harness.partition().log
            cluster = client.harness.cluster
            cluster.transactions.holds[ID] = {ONGOING: None}
            call = send(client, [(0, records(client))])
            assert results(call) == []
            log.append(encode_marker(client.producer_id, epoch, is_commit=False, coordinator_epoch=0, now_ms=NOW_MS), 0)
            if is_repeated:
                send(client, [(0, records(client))])
            cluster.transactions.holds.clear()
            cluster.brokers[1].transaction_coordinator.release(ID, NOW_MS)
            cluster.requests.settle(NOW_MS)
            assert results(call) == [expected]


# Batches of transactions between brokers


def test_an_id_that_is_named_twice_in_a_batch() -> None:
    """Each is handled with the partitions of the last one; partitions that were added are answered as in the first."""
    client = started(partitions=3)

    def transaction(verify_only: bool, *indexes: int) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=ID,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name="news", partitions=list(indexes))],
        )

    def answered(*transactions: AddPartitionsToTxnTransaction) -> list[list[tuple[int, str]]]:
        found = client.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), 5).results_by_transaction
        return [
            [
                (each.partition_index, ErrorCode(each.partition_error_code).name)
                for topic in result.topic_results
                for each in topic.results_by_partition
            ]
            for result in found
        ]

    assert answered(transaction(False, 0), transaction(False, 1, 1)) == [[(0, "NONE")], [(0, "NONE")]]
    assert answered(transaction(True, 0, 1, 2)) == [
        [(0, "TRANSACTION_ABORTABLE"), (1, "NONE"), (2, "TRANSACTION_ABORTABLE")]
    ]
    assert answered(transaction(True, 0), transaction(False, 2, 1)) == [
        [(2, "TRANSACTION_ABORTABLE"), (1, "NONE")],
        [(0, "NONE")],
    ]
