"""The transactional producer: the order of its requests, epochs of both protocol generations, errors, retries."""

from collections.abc import Callable

import pytest

from fakebroker.client.producer.effects import (
    Coordinator,
    Discover,
    Failed,
    Fatal,
    Leader,
    ProducerRequest,
    Ready,
    Send,
)
from fakebroker.client.producer.producer import FIRST_ADD_BACKOFF_MS
from fakebroker.client.producer.reactions import OTHERWISE, REACTIONS, Reaction, error_in
from fakebroker.client.producer.states import TRANSITIONS, ProducerState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from fakebroker.protocol.records import RecordBatch
from tests.support.client.producer_harness import P0, P1, ProducerHarness, response_to

S, C = ProducerState, ErrorCode


def batch_of(request: ProducerRequest) -> RecordBatch:
    assert isinstance(request, ProduceRequest)
    return RecordBatch(request.topic_data[0].partition_data[0].records or b"")


def state(harness: ProducerHarness) -> ProducerState:
    """Return the state. This is a function because type checkers assume that a property keeps its value."""
    return harness.producer.state


# Without errors


def test_a_transaction_before_kip_890() -> None:
    harness = ProducerHarness().begun()
    harness.producer.commit(harness.now_ms)
    requests = [harness.answer() for _ in range(6)]
    assert [type(each) for each in requests] == [
        *(AddPartitionsToTxnRequest, ProduceRequest, ProduceRequest),
        *(AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest),
    ]
    assert harness.only(Ready).committed is True
    add, first, _, offsets, commit, end = requests
    assert isinstance(add, AddPartitionsToTxnRequest)
    assert [(each.name, each.partitions) for each in add.v3_and_below_topics] == [("payments", [0, 1])]
    batch = batch_of(first)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (7, 0, 0, True)
    assert isinstance(first, ProduceRequest)
    assert (first.transactional_id, first.acks) == ("t", -1)
    assert isinstance(offsets, AddOffsetsToTxnRequest)
    assert (offsets.group_id, offsets.producer_id, offsets.producer_epoch) == ("g", 7, 0)
    assert isinstance(commit, TxnOffsetCommitRequest)
    assert (commit.group_id, commit.member_id, commit.generation_id_or_member_epoch) == ("g", "m", 3)
    assert [each.committed_offset for each in commit.topics[0].partitions] == [5]
    assert isinstance(end, EndTxnRequest)
    assert (end.transactional_id, end.producer_id, end.producer_epoch, end.committed) == ("t", 7, 0, True)

    harness.begun()
    assert isinstance(harness.answer(), AddPartitionsToTxnRequest)
    batch = batch_of(harness.answer())
    assert (batch.producer_epoch, batch.base_sequence) == (0, 2)


def test_from_kip_890_on_brokers_add_partitions_and_each_end_raises_the_epoch() -> None:
    harness = ProducerHarness(level=2).begun()
    harness.producer.commit(harness.now_ms)
    requests = [harness.answer() for _ in range(3)]
    assert [type(each) for each in requests] == [ProduceRequest, ProduceRequest, TxnOffsetCommitRequest]
    harness.answer(producer_id=7, producer_epoch=1)
    assert harness.only(Ready).committed is True
    harness.begun()
    batch = batch_of(harness.answer())
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)
    harness.producer.abort(harness.now_ms)
    harness.answer()
    end = harness.answer(producer_id=8, producer_epoch=0)  # the epochs of id 7 are exhausted
    assert isinstance(end, EndTxnRequest)
    assert (end.producer_epoch, end.committed) == (1, False)
    assert harness.only(Ready).committed is False
    assert harness.producer.identity[1:] == (8, 0)


def test_a_request_is_due_when_the_one_before_it_is_answered() -> None:
    harness = ProducerHarness().begun()
    first = harness.only(Send)
    harness.now_ms += 700
    harness.producer.answered(first.request, response_to(first.request), harness.now_ms)
    assert (first.scheduled_ms, harness.only(Send).scheduled_ms) == (harness.now_ms - 700, harness.now_ms)


def test_each_broker_is_looked_up_once() -> None:
    harness = ProducerHarness(level=2)
    harness.producer.initialize(harness.now_ms)
    places = []
    for _ in range(20):
        effects, harness.producer.effects = harness.producer.effects, []
        for effect in effects:
            if isinstance(effect, Discover):
                places.append(effect.destination)
                harness.producer.discovered(effect.destination, harness.now_ms)
            elif isinstance(effect, Send):
                harness.producer.answered(effect.request, response_to(effect.request), harness.now_ms)
        if state(harness) is S.READY and len(places) < 4:
            harness.begun().producer.commit(harness.now_ms)
    assert places == [Coordinator("transaction", "t"), Leader(P0), Leader(P1), Coordinator("group", "g")]


def test_nothing_is_sent_at_the_end_of_an_empty_transaction() -> None:
    for level in (0, 2):
        harness = ProducerHarness(level).initialized()
        for end, committed in ((harness.producer.commit, True), (harness.producer.abort, False)):
            harness.producer.begin(harness.now_ms)
            end(harness.now_ms)
            assert harness.only(Ready).committed is committed


def test_an_abort_drops_requests_that_were_not_sent() -> None:
    harness = ProducerHarness().begun()
    harness.effects()
    assert harness.producer.pending == 5
    harness = ProducerHarness().begun()
    harness.producer.abort(harness.now_ms)
    assert [type(harness.answer()) for _ in range(2)] == [AddPartitionsToTxnRequest, EndTxnRequest]
    assert harness.only(Ready).committed is False


def test_a_new_level_of_the_cluster_costs_one_init_producer_id() -> None:
    harness = ProducerHarness().begun()
    harness.producer.offer_version(2)
    harness.producer.commit(harness.now_ms)
    harness.answer_until(EndTxnRequest)
    harness.answer()
    init = harness.answer(producer_id=7, producer_epoch=1)
    assert isinstance(init, InitProducerIdRequest)
    assert (init.producer_id, init.producer_epoch) == (7, 0)
    assert harness.only(Ready).committed is True
    harness.begun()
    assert isinstance(harness.answer(), ProduceRequest)


# Errors: the table of Kafka's Java producer

RETRIED = "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT"
MOVED = "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
FENCED = "INVALID_PRODUCER_EPOCH PRODUCER_FENCED"
INVALID = "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING"
REFUSED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"

TABLE: dict[type[ProducerRequest], dict[Reaction, str]] = {
    InitProducerIdRequest: {
        Reaction.RETRY: RETRIED,
        Reaction.REDISCOVER: MOVED,
        Reaction.ABORTABLE: f"{REFUSED} TRANSACTION_ABORTABLE",
        Reaction.FATAL: f"{FENCED} {INVALID} INVALID_TRANSACTION_TIMEOUT",
    },
    AddPartitionsToTxnRequest: {
        Reaction.RETRY: RETRIED,
        Reaction.REDISCOVER: MOVED,
        Reaction.ABORTABLE: "TOPIC_AUTHORIZATION_FAILED OPERATION_NOT_ATTEMPTED TRANSACTION_ABORTABLE",
        Reaction.FATAL: f"{FENCED} {INVALID} {REFUSED}",
    },
    AddOffsetsToTxnRequest: {
        Reaction.RETRY: RETRIED,
        Reaction.REDISCOVER: MOVED,
        Reaction.ABORTABLE: "GROUP_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE",
        Reaction.FATAL: f"{FENCED} {INVALID} {REFUSED}",
    },
    TxnOffsetCommitRequest: {
        Reaction.RETRY: RETRIED,
        Reaction.REDISCOVER: MOVED,
        Reaction.ABORTABLE: "GROUP_AUTHORIZATION_FAILED ILLEGAL_GENERATION UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID "
        "TRANSACTION_ABORTABLE",
        Reaction.FATAL: f"{FENCED} {INVALID} {REFUSED} TOPIC_AUTHORIZATION_FAILED",
    },
    EndTxnRequest: {
        Reaction.RETRY: RETRIED,
        Reaction.REDISCOVER: MOVED,
        Reaction.ABORTABLE: "TRANSACTION_ABORTABLE",
        Reaction.FATAL: f"{FENCED} {INVALID} {REFUSED}",
    },
    ProduceRequest: {
        Reaction.RETRY: "CONCURRENT_TRANSACTIONS NOT_ENOUGH_REPLICAS REQUEST_TIMED_OUT",
        Reaction.REDISCOVER: "NOT_LEADER_OR_FOLLOWER UNKNOWN_TOPIC_OR_PARTITION",
        Reaction.ABORTABLE: "INVALID_PRODUCER_EPOCH INVALID_TXN_STATE TOPIC_AUTHORIZATION_FAILED "
        "OUT_OF_ORDER_SEQUENCE_NUMBER TRANSACTION_ABORTABLE MESSAGE_TOO_LARGE",
        Reaction.FATAL: f"INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED {REFUSED}",
        Reaction.IGNORE: "DUPLICATE_SEQUENCE_NUMBER",
    },
}


def failed(request: type[ProducerRequest], error: ErrorCode) -> ProducerHarness:
    """Return a producer whose first request of a class was answered with an error."""
    if request is not InitProducerIdRequest:
        return ProducerHarness().begun().error_at(request, error)
    harness = ProducerHarness()
    harness.producer.initialize(harness.now_ms)
    harness.answer(error)
    return harness


def repeats(request: type[ProducerRequest]) -> Callable[[ProducerHarness], None]:
    def check(harness: ProducerHarness) -> None:
        assert harness.effects() == []
        harness.advance(100)
        assert isinstance(harness.only(Send).request, request)

    return check


def looks_up_again(harness: ProducerHarness) -> None:
    harness.advance(100)
    (effect,) = harness.producer.effects
    assert isinstance(effect, Discover)


def must_be_aborted(harness: ProducerHarness) -> None:
    assert isinstance(harness.only(Failed), Failed)
    assert state(harness) is S.ABORTABLE_ERROR


def has_stopped(harness: ProducerHarness) -> None:
    assert isinstance(harness.only(Fatal), Fatal)
    assert state(harness) is S.FATAL
    assert harness.producer.next_deadline() is None


def continues(harness: ProducerHarness) -> None:
    assert isinstance(harness.only(Send), Send)


def test_reactions_to_errors(subtests: pytest.Subtests) -> None:
    for request, rows in TABLE.items():
        checks = {
            Reaction.RETRY: repeats(request),
            Reaction.REDISCOVER: looks_up_again,
            Reaction.ABORTABLE: must_be_aborted,
            Reaction.FATAL: has_stopped,
            Reaction.IGNORE: continues,
        }
        for reaction, names in rows.items():
            for name in names.split():
                harness = failed(request, C[name])
                if request is AddPartitionsToTxnRequest and name == "CONCURRENT_TRANSACTIONS":
                    continue  # see test_the_first_add_is_repeated_soon
                with subtests.test(request=request.__name__, error=name):
                    checks[reaction](harness)
    assert REACTIONS.keys() == OTHERWISE.keys()


def test_the_first_add_is_repeated_soon() -> None:
    """The previous transaction is still ending, which takes less time than the usual back-off."""
    harness = failed(AddPartitionsToTxnRequest, C.CONCURRENT_TRANSACTIONS)
    harness.advance(FIRST_ADD_BACKOFF_MS)
    assert isinstance(harness.answer(), AddPartitionsToTxnRequest)
    assert isinstance(harness.answer(), ProduceRequest)


def test_an_error_while_aborting_does_not_prevent_the_end() -> None:
    harness = ProducerHarness().begun()
    harness.answer()
    produce = harness.only(Send)
    harness.producer.abort(harness.now_ms)
    harness.producer.answered(produce.request, response_to(produce.request, C.INVALID_TXN_STATE), harness.now_ms)
    harness.answer_until(EndTxnRequest)
    harness.answer(C.TRANSACTION_ABORTABLE)
    has_stopped(harness)


def test_a_failed_batch_costs_an_epoch_before_kip_890() -> None:
    harness = failed(ProduceRequest, C.INVALID_PRODUCER_EPOCH)
    harness.effects()
    harness.producer.abort(harness.now_ms)
    assert isinstance(harness.answer(), EndTxnRequest)
    init = harness.answer(producer_id=7, producer_epoch=1)
    assert isinstance(init, InitProducerIdRequest)
    assert (init.producer_id, init.producer_epoch) == (7, 0)
    assert harness.only(Ready).committed is False
    harness = ProducerHarness(raises_epoch=False).begun().error_at(ProduceRequest, C.INVALID_TXN_STATE)
    harness.effects()
    harness.producer.abort(harness.now_ms)
    assert isinstance(harness.answer(), EndTxnRequest)
    assert harness.only(Ready).committed is False


def test_a_failed_initialization_is_repeated_by_an_abort() -> None:
    harness = failed(InitProducerIdRequest, C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    harness.effects()
    harness.producer.abort(harness.now_ms)
    assert isinstance(harness.answer(), InitProducerIdRequest)
    assert harness.only(Ready).committed is None


def test_of_several_errors_the_cause_counts() -> None:
    harness = ProducerHarness().begun()
    response = response_to(harness.only(Send).request, C.OPERATION_NOT_ATTEMPTED)
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert error_in(response) is C.OPERATION_NOT_ATTEMPTED
    response.results_by_topic_v3_and_below[0].results_by_partition[
        1
    ].partition_error_code = C.UNKNOWN_TOPIC_OR_PARTITION
    assert error_in(response) is C.UNKNOWN_TOPIC_OR_PARTITION


# Lost connections


def test_a_lost_request_is_repeated_as_it_was() -> None:
    harness = ProducerHarness().begun()
    harness.answer()
    lost = harness.only(Send)
    harness.producer.connection_lost(lost.destination, harness.now_ms)
    harness.producer.answered(lost.request, response_to(lost.request), harness.now_ms)  # too late: ignored
    assert harness.effects() == []
    harness.advance(100)
    assert [type(each) for each in harness.producer.effects] == [Discover]
    again = harness.only(Send)
    assert again.request == lost.request
    assert again.request is not lost.request
    harness.producer.connection_lost(Coordinator("transaction", "t"), harness.now_ms)  # of another broker
    harness.producer.answered(again.request, response_to(again.request), harness.now_ms)
    assert batch_of(harness.answer()).base_sequence == 0  # of the other partition


def test_a_failed_look_up_is_repeated() -> None:
    harness = ProducerHarness()
    coordinator = Coordinator("transaction", "t")
    harness.producer.initialize(harness.now_ms)
    harness.producer.effects.clear()
    harness.producer.discovery_failed(coordinator, C.NETWORK_EXCEPTION, harness.now_ms)
    harness.producer.discovery_failed(coordinator, C.NETWORK_EXCEPTION, harness.now_ms)  # no look-up is pending
    assert harness.producer.next_deadline() == harness.now_ms + 100
    harness.advance(100)
    assert harness.producer.effects == [Discover(coordinator, harness.now_ms)]
    harness.producer.effects.clear()
    harness.producer.discovery_failed(coordinator, C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, harness.now_ms)
    has_stopped(harness)


def test_calls_in_the_wrong_state_are_bugs() -> None:
    for call in ("begin", "commit", "abort"):
        harness = ProducerHarness()
        if call == "abort":
            harness.begun().producer.commit(harness.now_ms)
        with pytest.raises(AssertionError, match="no transition"):
            getattr(harness.producer, call)(harness.now_ms)
    assert set(TRANSITIONS) == set(ProducerState)
