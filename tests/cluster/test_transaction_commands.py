"""Commands on transactions, and what is shown of them: holds, markers, aborts, fences, seeds, moves, explanations."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.definition import perform
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.handles.undo import Hold
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.timelines import transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import (
    LATE_MS,
    AwaitedMarker,
    HangingTransaction,
    TransactionView,
    checked_filters,
    count_late_partitions,
    hanging_transactions,
    view_transaction,
    view_transactions,
)
from fakebroker.cluster.logs.coordinator_records import read_transaction_records
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.coordinator import RETRY_MS
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from fakebroker.protocol.records import Record, encode_batch
from tests.cluster.test_transactions import ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, response


@dataclass
class Cockpit(TransactionalClient):
    """A transactional producer, with the commands and views of its cluster."""

    def __post_init__(self) -> None:
        environment = ClusterHarnessEnvironment(self.harness)
        self.cluster = self.harness.cluster
        self.commands = LocalCluster(Local(self.cluster, environment, new_cluster=lambda: ClusterHarness().cluster))

    def view(self, name: str = ID) -> TransactionView:
        return view_transaction(self.cluster, name, self.harness.now_ms)

    def explain(self, name: str = ID) -> str:
        return explain_transaction(self.cluster, name, self.harness.now_ms)

    def causes(self, name: str = ID) -> list[tuple[str, str]]:
        """Return the state after each moment of the history, and its cause."""
        moments = transaction_timeline_of(self.cluster, name, self.harness.now_ms).moments
        return [(each.state_to, each.cause) for each in moments]

    def send_end(self, *, commit: bool = True, version: int = 3) -> Any:
        """Send an EndTxn, which may stay unanswered; return the call."""
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        return self.harness.send(request, version, broker=self.coordinator())

    def begin(self, *indexes: int) -> None:
        """Begin a transaction with a record in each partition."""
        self.add(*indexes)
        for index in indexes:
            assert self.produce(b"x", index) == "NONE"
            self.sequence = 0


@pytest.fixture
def client() -> Cockpit:
    one = Cockpit(ClusterHarness(topics={"news": 3}, brokers=3))
    assert one.init() is ErrorCode.NONE
    return one


# Views


def test_a_view_has_what_the_coordinator_knows(client: Cockpit) -> None:
    client.begin(0, 2)
    view = client.view()
    assert (view.state, view.pending_state, view.producer_id, view.producer_epoch) == ("Ongoing", None, 0, 0)
    assert view.partitions == (("news", 0), ("news", 2))
    assert (view.start_ms, view.timeout_ms, view.coordinator) == (client.harness.now_ms, 60_000, client.coordinator())
    assert view.deadline_ms == client.harness.now_ms + 70_000, "the first check after the timeout"
    assert str(view) == f"{ID}: Ongoing, producer 0 in epoch 0, partitions news-0, news-2"
    client.end(commit=True)
    assert (client.view().state, client.view().partitions, client.view().awaited_markers) == ("CompleteCommit", (), ())


def test_unknown_ids_are_rejected_with_similar_ones(client: Cockpit) -> None:
    with pytest.raises(ConfigError, match=f"transactional_id='paiments': .* one of {ID}; did you mean '{ID}'?"):
        client.view("paiments")
    client.commands.transaction(ID).move_coordinator(None)
    with pytest.raises(ConfigError, match=r"an id that has a coordinator now; __transaction_state-\d+ has no leader"):
        client.view()
    client.commands.transaction(ID).move_coordinator(1, load_ms=None)
    with pytest.raises(ConfigError, match="an id that was loaded; broker 1 answers COORDINATOR_LOAD_IN_PROGRESS"):
        client.view()
    with pytest.raises(ConfigError, match="an existing id; there is none"):
        view_transaction(ClusterHarness().cluster, ID, 0)


def test_filters_of_views(client: Cockpit) -> None:
    client.commands.transaction("old").seed(records={"news-0": 1}, age_s=100)
    client.commands.transaction("done").seed(state="CompleteAbort", producer_id=77)

    def found(state: str | None = None, producer_id: int | None = None, longer_than_s: float | None = None) -> set[str]:
        filters = checked_filters(state, producer_id, longer_than_s)
        return {each.transactional_id for each in view_transactions(client.cluster, client.harness.now_ms, **filters)}

    assert found() == {ID, "old", "done"}
    assert (found("Ongoing"), found(producer_id=77)) == ({"old"}, {"done"})
    assert (found(longer_than_s=99), found(longer_than_s=101)) == ({"old"}, set())
    for invalid in ({"state": "Dead"}, {"producer_id": -1}, {"longer_than_s": -1}):
        with pytest.raises(ConfigError, match=next(iter(invalid))):
            found(**invalid)


# Holds


def test_the_record_of_each_state_can_be_held(client: Cockpit, subtests: pytest.Subtests) -> None:
    def init() -> Any:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        return client.harness.send(request, 5, broker=client.coordinator())

    def abort() -> Any:
        client.begin(0)
        return client.send_end(commit=False)

    def commit() -> Any:
        client.begin(0)
        return client.send_end()

    for state, act, before in (
        ("PrepareCommit", commit, "Ongoing"),
        ("CompleteCommit", commit, "PrepareCommit"),
        ("PrepareAbort", abort, "Ongoing"),
        ("CompleteAbort", abort, "PrepareAbort"),
        ("Empty", init, "CompleteAbort"),
    ):
        with subtests.test(state=state), client.commands.transaction(ID).hold(state):
            call = act()
            view = client.view()
            assert (view.state, view.pending_state, view.is_held) == (before, state, True)
            assert (call.response is None) == (not state.startswith("Complete")), "the outcome is known before its end"
            assert f"The next state, {state}, is not stored until it is released" in client.explain()
            assert ("and is not answered yet" in client.explain()) == (call.response is None)
            client.commands.transaction(ID).release(state)
            assert (client.view().pending_state, client.view().is_held) == (None, False)
            assert response(call).error_code == 0
            client.producer_id = client.view().producer_id


def test_a_held_record_is_lost_when_the_coordinator_moves(client: Cockpit) -> None:
    client.begin(0)
    client.commands.transaction(ID).hold("PrepareCommit")
    call, old = client.send_end(), client.coordinator()
    client.commands.transaction(ID).move_coordinator(old % 3 + 1)
    assert response(call).error_code == ErrorCode.NOT_COORDINATOR
    assert (client.view().state, client.view().is_held) == ("Ongoing", False), "the hold remains, the record is lost"
    client.commands.transaction(ID).release()
    assert client.end(commit=True) == "NONE"
    assert client.view().state == "CompleteCommit"


def send_addition(client: Cockpit, api: str) -> Any:
    """Send a request that adds a partition to the transaction, and may stay unanswered; return the call."""
    producer: dict[str, Any] = {
        "transactional_id": ID,
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
    }
    group_coordinator = client.cluster.offsets_partition_of("g").leader_id
    send, added = client.harness.send, [AddPartitionsToTxnTopic(name="news", partitions=[0])]
    if api == "AddPartitionsToTxn 3":
        named = {f"v3_and_below_{name}": value for name, value in producer.items()}
        return send(AddPartitionsToTxnRequest(**named, v3_and_below_topics=added), 3, broker=client.coordinator())
    if api == "AddPartitionsToTxn 5":
        known = AddPartitionsToTxnTransaction(**producer, topics=added)
        other = AddPartitionsToTxnTransaction(
            transactional_id="other", producer_id=1, producer_epoch=0, topics=added, verify_only=True
        )
        return send(AddPartitionsToTxnRequest(transactions=[known, other]), 5, broker=client.coordinator())
    if api == "AddOffsetsToTxn":
        return send(AddOffsetsToTxnRequest(**producer, group_id="g"), 3, broker=client.coordinator())
    if api == "TxnOffsetCommit":
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(name="news", partitions=[place])]
        return send(TxnOffsetCommitRequest(**producer, group_id="g", topics=topics), 5, broker=group_coordinator)
    partition = client.harness.partition(0)
    records = encode_batch(
        [Record(0, 1_000, None, b"x")],
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1_000, topic_data=[data])
    return send(request, 12, broker=partition.leader_id)


def errors_of(found: Any) -> list[str]:
    """Return the errors of a response for partitions, or its error."""
    match found:
        case AddPartitionsToTxnResponse():
            rows = found.results_by_topic_v3_and_below
            rows = rows or [row for each in found.results_by_transaction for row in each.topic_results]
            codes = [each.partition_error_code for row in rows for each in row.results_by_partition]
        case TxnOffsetCommitResponse():
            codes = [each.error_code for topic in found.topics for each in topic.partitions]
        case ProduceResponse():
            codes = [each.error_code for topic in found.responses for each in topic.partition_responses]
        case _:
            codes = [found.error_code]
    return [ErrorCode(code).name for code in codes]


ADDITIONS = ("AddPartitionsToTxn 3", "AddPartitionsToTxn 5", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce")


@pytest.mark.parametrize("api", ADDITIONS)
def test_a_request_whose_record_was_held_is_answered_when_it_is_released(client: Cockpit, api: str) -> None:
    client.commands.transaction(ID).hold("Ongoing")
    call = send_addition(client, api)
    assert (call.response, client.view().pending_state) == (None, "Ongoing")
    client.commands.transaction(ID).release()
    errors = errors_of(response(call))
    assert errors[-1] == "NONE"
    assert errors[:-1] == (["NOT_COORDINATOR"] if api == "AddPartitionsToTxn 5" else [])
    assert client.view().state == "Ongoing"
    stored = client.cluster.brokers[client.cluster.offsets_partition_of("g").leader_id].coordinator.offsets
    assert bool(stored.pending_of("g")) == (api == "TxnOffsetCommit")
    assert (client.harness.partition(0).log.log_end_offset > 0) == (api == "Produce")


@pytest.mark.parametrize("api", ADDITIONS)
def test_a_request_whose_held_record_is_lost_changes_nothing(client: Cockpit, api: str) -> None:
    client.commands.transaction(ID).hold("Ongoing")
    call = send_addition(client, api)
    client.commands.transaction(ID).move_coordinator(client.coordinator() % 3 + 1)
    expected = "NOT_ENOUGH_REPLICAS" if api == "Produce" else "NOT_COORDINATOR"
    assert errors_of(response(call))[-1] == expected
    assert client.view().state == "Empty"
    assert client.harness.partition(0).log.log_end_offset == 0


def test_a_held_end_is_not_stored_twice(client: Cockpit) -> None:
    client.begin(0)
    client.commands.transaction(ID).hold("CompleteCommit")
    client.end(commit=True)
    partition = client.cluster.transactions_partition_of(ID)
    before = partition.log.log_end_offset
    client.harness.advance(200_000)
    client.commands.transaction(ID).release("CompleteCommit")
    assert partition.log.log_end_offset == before + 1
    assert client.view().history.moments[-1].at_ms == client.harness.now_ms


def test_a_released_outcome_has_the_time_of_its_release(client: Cockpit) -> None:
    client.commands.transaction(ID).hold("PrepareAbort")
    call = client.send_end(commit=False, version=5)  # of an empty transaction, with KIP-890
    client.harness.advance(3_000)
    client.commands.transaction(ID).release()
    assert (response(call).error_code, client.view().state) == (0, "CompleteAbort")
    assert [each.at_ms for each in client.view().history.moments[-2:]] == [client.harness.now_ms] * 2
    assert client.view().last_update_ms == client.harness.now_ms


def test_what_is_not_held_cannot_be_released(client: Cockpit) -> None:
    client.commands.transaction(ID).hold("PrepareAbort")
    with pytest.raises(ConfigError, match=f"is held, one of '{ID}' in PrepareAbort$"):
        client.commands.transaction("payment").release()
    with pytest.raises(ConfigError, match="a transactional id that is held in PrepareCommit, one of"):
        client.commands.transaction(ID).release("PrepareCommit")
    with pytest.raises(ConfigError, match=r"state='PrepareComit': .*did you mean 'PrepareCommit'"):
        client.commands.transaction(ID).hold("PrepareComit")
    with pytest.raises(ConfigError, match="what hold_markers was given, but none is held"):
        client.commands.transaction(ID).release_markers()


def test_the_tombstone_of_an_expired_id_can_be_held(client: Cockpit) -> None:
    with client.commands.transaction(ID).hold("Dead"):
        client.harness.advance(609_000_000)
        assert (client.view().state, client.view().pending_state) == ("Empty", "Dead")
        assert "The tombstone of the id is not stored until it is released." in client.explain()
    assert "payments is Dead: there is no such transactional id." in client.explain()
    assert client.causes()[-1] == ("Dead", "the id has expired")


# Markers


def test_markers_of_one_partition_can_be_held(client: Cockpit) -> None:
    client.begin(0, 1)
    client.commands.transaction(ID).hold_markers("news-1")
    client.end(commit=True)
    reason = "held until release_markers() is called"
    assert client.view().awaited_markers == (AwaitedMarker("news-1", reason),)
    assert (client.view().state, client.view().pending_state) == ("PrepareCommit", "CompleteCommit")
    assert f"It waits for markers of news-1, {reason}." in client.explain()
    client.harness.advance(1)
    with pytest.raises(ConfigError, match=r"hold_markers was given, one of 'payments' in news-1"):
        client.commands.transaction(ID).release_markers()
    client.commands.group("another").fail_append()
    client.harness.advance(1)
    client.commands.transaction(ID).release_markers("news-1")
    assert client.view().state == "CompleteCommit"


def test_an_explanation_names_the_broker_that_is_down() -> None:
    client = Cockpit(ClusterHarness(topics={"news": 3}, brokers=3, as_version="4.2"))
    assert client.init() is ErrorCode.NONE
    client.begin(0, 1, 2)
    leader = client.harness.partition(1).leader_id
    client.commands.transaction(ID).move_coordinator(leader % 3 + 1)
    client.commands.broker(leader).stop(elect=False)
    client.end(commit=False)
    assert client.explain() == (
        "payments has been in PrepareAbort for 0.0 s. Cause: EndTxn. The transaction of producer 0 in epoch 0 with "
        f"news-0, news-1, news-2 is aborted. It waits for markers of news-1, whose leader broker {leader} is down. "
        "Until all markers are written, its producer gets CONCURRENT_TRANSACTIONS. "
        "The last request with this id, EndTxn, was received from client client 0.0 s ago."
    )
    client.commands.broker(leader).start()
    client.harness.advance(1)
    assert client.view().state == "CompleteAbort"


def test_markers_wait_for_replicas() -> None:
    client = Cockpit(ClusterHarness(topics={"news": 1}, brokers=2, config={"default.replication.factor": 2}))
    client.commands.topic("safe").create(replication_factor=2, configs={"min.insync.replicas": "2"})
    client.init()
    client.add(0, topic="safe")
    (other,) = {1, 2} - {client.harness.partition(0, "safe").leader_id}
    client.commands.transaction(ID).move_coordinator(3 - other)
    client.commands.broker(other).stop()
    assert client.end(commit=True) == "COORDINATOR_NOT_AVAILABLE", "the record needs two replicas, too"
    client.commands.broker(other).start()
    client.commands.transaction(ID).hold_markers()
    assert client.end(commit=True) == "NONE"
    client.commands.broker(other).stop()
    client.commands.transaction(ID).release_markers()
    assert "news" not in client.explain()
    assert "safe-0, which has 1 of the 2 in-sync replicas that min.insync.replicas requires" in client.explain()


# Aborts, fences, appends that fail


def test_an_aborted_transaction_fences_its_producer(client: Cockpit) -> None:
    client.begin(0)
    client.commands.transaction(ID).abort()
    assert (client.view().state, client.view().producer_epoch) == ("CompleteAbort", 1)
    assert client.causes()[-2:] == [("PrepareAbort", "transaction.abort"), ("CompleteAbort", "all markers written")]
    assert client.end(commit=True) == "PRODUCER_FENCED"
    with pytest.raises(ConfigError, match=r"an id with an open transaction \(Ongoing\), not CompleteAbort"):
        client.commands.transaction(ID).abort()
    with pytest.raises(ConfigError, match="transactional_id='other': expected an "):
        client.commands.transaction("other").abort()


def test_a_fenced_producer(client: Cockpit) -> None:
    client.commands.transaction(ID).fence_producer()
    assert (client.view().state, client.view().producer_epoch) == ("Empty", 1)
    client.epoch = 1
    client.begin(0)
    client.commands.transaction(ID).fence_producer()
    assert (client.view().state, client.view().producer_epoch) == ("Empty", 3), "aborted, and initialized again"
    assert client.add(0) == {0: "PRODUCER_FENCED"}
    with client.commands.transaction(ID).hold("Empty"):
        client.commands.transaction(ID).fence_producer()
        with pytest.raises(ConfigError, match="an id without a pending transition; Empty is pending"):
            client.commands.transaction(ID).fence_producer()


def test_appends_to_the_transaction_log_can_fail(client: Cockpit) -> None:
    index = client.cluster.transactions_partition_of(ID).index
    of_groups = client.cluster.append_failures.add(OFFSETS_TOPIC, index, ErrorCode.NOT_ENOUGH_REPLICAS, None)
    assert client.init() is ErrorCode.NONE
    assert of_groups.hits == 0
    failure = client.commands.transaction(ID).fail_append(times=2)
    assert client.add(0) == {0: "COORDINATOR_NOT_AVAILABLE"}
    assert client.causes()[-1] == ("Empty", "AddPartitionsToTxn: Ongoing could not be stored, NOT_ENOUGH_REPLICAS")
    with pytest.raises(ConfigError, match="an id whose record can be stored; it failed with COORDINATOR_NOT_AVAILABLE"):
        client.commands.transaction(ID).fence_producer()
    assert failure.hits == 2
    client.begin(0)
    client.commands.transaction(ID).hold_markers()
    client.end(commit=True)
    client.commands.transaction(ID).fail_append("KAFKA_STORAGE_ERROR")
    client.commands.transaction(ID).release_markers()
    client.commands.transaction("other-group").fail_append("NOT_ENOUGH_REPLICAS", times=None)
    assert client.view().state == "PrepareCommit"


def test_the_end_of_a_transaction_is_stored_again_after_an_error(client: Cockpit) -> None:
    client.begin(0)
    client.commands.transaction(ID).hold("CompleteCommit")
    client.end(commit=True)
    client.commands.transaction(ID).fail_append()
    client.commands.transaction(ID).release()
    assert "the end could not be stored; it is tried again in 0.1 s" in client.explain()
    client.harness.advance(RETRY_MS)
    assert client.view().state == "CompleteCommit"
    assert [state for state, _ in client.causes()][-3:] == ["PrepareCommit", "PrepareCommit", "CompleteCommit"]


# Moves


def test_a_coordinator_moves_with_the_options_of_failovers(client: Cockpit) -> None:
    client.begin(0)
    old = client.coordinator()
    new = old % 3 + 1
    client.commands.transaction(ID).move_coordinator(new, load_ms=1_000, zombie=True)
    assert f"is being loaded: broker {new} loads __transaction_state-" in client.explain()
    assert f"Broker {old} also acts as its coordinator: it is a zombie." in client.explain()
    client.harness.advance(1_000)
    assert client.view().coordinator == new
    views = view_transactions(client.cluster, client.harness.now_ms)
    assert [each.coordinator for each in views] == [new], "not that of the zombie"
    client.commands.brokers.stop_zombies()
    assert "zombie" not in client.explain()
    client.commands.transaction(ID).move_coordinator(old, lose_tail=1)
    assert client.view().state == "Empty", "the record of Ongoing was lost"
    client.commands.transaction(ID).move_coordinator(new, load_fails=True)
    assert "is not available: broker" in client.explain()
    client.commands.transaction(ID).move_coordinator(None)
    assert "payments has no coordinator: __transaction_state-" in client.explain()
    client.commands.transaction(ID).move_coordinator(new, lose_all=True)
    assert "payments is Dead: there is no such transactional id." in client.explain()
    assert "Its records were lost with its former coordinator, where it got into Empty 0.0 s ago." in client.explain()


def test_a_stopped_coordinator_may_lose_records_and_load_slowly(client: Cockpit) -> None:
    client.begin(0)
    client.commands.broker(client.coordinator()).stop(lose_tail=1, load_ms=500, stale_ms=0)
    assert "is being loaded" in client.explain()
    client.commands.brokers.finish_loading()
    assert (client.view().state, client.view().partitions) == ("Empty", ()), "the record of Ongoing was lost"
    assert hanging_transactions(client.cluster) != [], "its records are still in the log"


# Seeds


def test_a_seeded_open_transaction(client: Cockpit) -> None:
    client.commands.transaction("open").seed(records={"news-1": 3, "news-2": 0}, producer_id=500, epoch=32765, age_s=10)
    view = client.view("open")
    assert (view.producer_id, view.producer_epoch, view.state) == (500, 32765, "Ongoing")
    assert view.partitions == (("news", 1), ("news", 2))
    assert client.harness.partition(1).log.producers.first_unstable_offset == 0
    assert hanging_transactions(client.cluster) == []
    assert client.explain("open") == (
        "open has been in Ongoing for 0.0 s. Cause: transaction.seed. Producer 500 in epoch 32765 has an open "
        "transaction with news-1, news-2, begun 10.0 s ago. It has records in news-1 (from offset 0), which "
        "read_committed consumers do not get yet. If it does not end, it is aborted in 60.0 s: its timeout is 60.0 s, "
        "and timeouts are checked every 10.0 s."
    )
    client.commands.transaction("next").seed()
    assert client.view("next").producer_id == 501, "ids of choice are not given to other producers"
    client.harness.advance(60_000)
    assert client.view("open").state == "CompleteAbort"


def test_an_open_transaction_in_the_highest_epoch_cannot_be_aborted_before_4_3() -> None:
    client = Cockpit(ClusterHarness(topics={"news": 3}, brokers=3, as_version="4.2"))
    client.commands.transaction("last").seed(producer_id=500, epoch=32_766)
    client.commands.transaction("last").abort()
    producer = TransactionalClient(client.harness, 500, 32_766, transactional_id="last")
    assert (producer.end(commit=False, version=5), producer.epoch) == ("NONE", 32_767)
    producer.add(0)
    assert "The coordinator cannot abort it, as in Kafka up to 4.2, because" in client.explain("last")
    client.harness.advance(200_000)
    assert client.view("last").state == "Ongoing"
    with pytest.raises(ConfigError, match="UNKNOWN_SERVER_ERROR"):
        client.commands.transaction("last").abort()


def test_seeded_transactions_that_are_prepared(client: Cockpit) -> None:
    client.commands.transaction("done").hold_markers("news-1")
    client.commands.transaction("done").seed(state="PrepareCommit", records={"news-0": 1, "news-1": 1})
    assert [each.partition for each in client.view("done").awaited_markers] == [("news", 1)]
    client.commands.transaction("done").release_markers("news-1")
    assert (client.view("done").state, client.view("done").producer_epoch) == ("CompleteCommit", 1)
    assert client.committed(0) == [b"0"]


@pytest.mark.parametrize(("as_version", "expected"), [("4.2", 2), ("3.9", 0)])
def test_seeds_have_the_transaction_version_of_the_cluster(as_version: str, expected: int) -> None:
    config: dict[str, object] = {"transaction.state.log.num.partitions": 1}
    client = Cockpit(ClusterHarness({"news": 1}, config=config, as_version=as_version))
    for state in ("Empty", "Ongoing", "CompleteCommit"):
        client.commands.transaction(state).seed(state=state)
    records = read_transaction_records(client.harness.partition(0, TRANSACTIONS_TOPIC).log, 0)
    assert [each.value.client_transaction_version for each in records if each.value is not None] == [
        0,
        expected,
        expected,
    ]


def test_partitions_whose_oldest_transaction_is_late(client: Cockpit) -> None:
    client.commands.topic("news").partition(0).seed_hanging_transaction(producer_id=7)
    limit_ms, begun_ms = 900_000 + LATE_MS, client.harness.now_ms
    assert [count_late_partitions(client.cluster, begun_ms + age_ms) for age_ms in (limit_ms, limit_ms + 1)] == [0, 1]
    client.harness.advance(1_000)
    client.commands.topic("news").partition(0).seed_hanging_transaction(producer_id=8)
    client.harness.advance(1_000)
    client.commands.topic("news").partition(0).seed_hanging_transaction(
        producer_id=7
    )  # a later record of the oldest transaction
    assert [count_late_partitions(client.cluster, begun_ms + 2_000 + limit_ms + ms) for ms in (0, 1)] == [0, 1]


def test_a_hanging_transaction_at_an_offset(client: Cockpit) -> None:
    client.commands.topic("news").partition(0).seed_hanging_transaction(offset=5, records=2, producer_id=9, epoch=1)
    log = client.harness.partition(0).log
    assert (log.producers.first_unstable_offset, log.log_end_offset) == (5, 7)
    now_ms = int(client.harness.now_ms)
    assert hanging_transactions(client.cluster) == [HangingTransaction("news", 0, 9, 1, 5, now_ms)]
    with pytest.raises(ConfigError, match="offset=3: expected an integer from 7"):
        client.commands.topic("news").partition(0).seed_hanging_transaction(offset=3)
    client.commands.topic("news").partition(1).seed_hanging_transaction(producer_id=client.producer_id)
    assert "Its producer has hanging transactions" in client.explain()
    assert "in news-1 (from offset 0)" in client.explain()


def test_seeds_that_are_rejected_change_nothing(client: Cockpit, subtests: pytest.Subtests) -> None:
    client.commands.transaction("open").seed(producer_id=7)
    ends = [client.harness.partition(index).log.log_end_offset for index in range(3)]
    for name, options, expected in (
        ("open", {}, "expected an id that does not exist yet"),
        ("", {}, "expected a text that is not empty"),
        ("new", {"state": "Dead"}, "state='Dead': expected one of Empty, Ongoing"),
        ("new", {"state": "Empty", "records": {"news-0": 1}}, "none in state Empty"),
        ("new", {"records": {"news-9": 1}}, "an index from 0 to 2"),
        ("new", {"records": {"olds-0": 1}}, "a topic that is not internal, one of news"),
        ("new", {"records": {"news-0": -1}}, "records"),
        ("new", {"producer_id": 7}, "an id that is not used by 'open'"),
        ("new", {"epoch": 32767}, "epoch"),
    ):
        with subtests.test(name=name, **options), pytest.raises(ConfigError, match=expected):
            client.commands.transaction(name).seed(**options)
    assert ends == [client.harness.partition(index).log.log_end_offset for index in range(3)]
    with pytest.raises(ConfigError, match="expected one of open, payments"):
        client.view("new")


# Events, snapshots, history


def test_events_have_the_commands(client: Cockpit) -> None:
    run = partial(perform, client.commands)
    run({"do": "transaction.seed", "transactional_id": "open", "records": {"news-0": 1}})
    run({"do": "transaction.hold", "transactional_id": "open", "state": "PrepareAbort"})
    run({"do": "transaction.abort", "transactional_id": "open"})
    assert (client.view("open").state, client.view("open").pending_state) == ("Ongoing", "PrepareAbort")
    run({"do": "transaction.release", "transactional_id": "open"})
    assert client.view("open").state == "CompleteAbort"
    run({"do": "transaction.fence_producer", "transactional_id": "open"})
    run({"do": "transaction.move_coordinator", "transactional_id": "open", "to": "none"})
    run({"do": "transaction.fail_append", "transactional_id": "open"})
    run({"do": "partition.seed_hanging_transaction", "topic": "news", "partition": 0})
    assert isinstance(run({"do": "transaction.hold_markers", "transactional_id": "open", "partition": "none"}), Hold)
    run({"do": "transaction.release_markers", "transactional_id": "open"})


def test_a_restored_snapshot_has_the_open_transaction(client: Cockpit) -> None:
    client.begin(0)
    taken = snapshot.take(client.cluster)
    client.commands.transaction(ID).hold("PrepareCommit")
    client.commands.transaction(ID).hold_markers()
    call = client.send_end()
    snapshot.restore(client.cluster, taken, client.harness.now_ms)
    assert response(call).error_code == ErrorCode.NOT_COORDINATOR
    assert (client.view().state, client.view().partitions) == ("Ongoing", (("news", 0),))
    assert client.harness.partition(0).log.producers.first_unstable_offset == 0
    assert client.end(commit=True) == "NONE"
    assert (client.view().state, client.committed()) == ("CompleteCommit", [b"x"]), "holds are removed"
    snapshot.restore(client.cluster, taken, client.harness.now_ms)
    assert (client.view().state, client.committed()) == ("Ongoing", [])


def test_the_timeline_of_an_id(client: Cockpit) -> None:
    client.begin(0, 1)
    client.harness.advance(1_500)
    client.end(commit=True)
    client.add(2)
    client.harness.advance(70_000)
    timeline = transaction_timeline_of(client.cluster, ID, client.harness.now_ms)
    broker = client.coordinator()
    assert timeline.text() == "\n".join(
        [
            "transactional id payments, since 2023-11-14 22:13:20.000 UTC",
            "D Dead, E Empty, O Ongoing, P PrepareCommit, C CompleteCommit, P PrepareAbort, C CompleteAbort; +",
            "added - ended",
            "",
            "     time  state         epoch    parts  in and out            cause",
            f"    0.000    E               0        0                        InitProducerId, at broker {broker}",
            "    0.000    E▸O             0        2  +news-0 +news-1       AddPartitionsToTxn",
            "    1.500      O▸P           0        2                        EndTxn",
            "    1.500        P▸C         0        0  -news-0 -news-1       all markers written",
            "    1.500      O◂──C         0        1  +news-2               AddPartitionsToTxn",
            "   71.500      O────▸P       1        1                        the transaction has timed out",
            "   71.500            P▸C     1        0  -news-2               all markers written",
            "   71.500              C                                       now",
        ]
    )
    assert timeline.svg().count('class="state state"') == 0
    assert "epoch 1" in timeline.svg()
