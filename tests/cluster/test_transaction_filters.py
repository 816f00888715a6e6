"""Faults and journal filters by transactional id and producer id."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.journal_queries import view_journal
from fakebroker.cluster.journal.journal import new_journal
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.test_transactions import ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness


@pytest.fixture
def client() -> TransactionalClient:
    one = TransactionalClient(ClusterHarness(topics={"news": 2}, brokers=1))
    assert one.init() is ErrorCode.NONE
    return one


def fail(client: TransactionalClient, api: str, **options: Any) -> None:
    faults = client.harness.cluster.faults
    faults.active.clear()
    faults.add(Fault(api=api, **options), client.harness.now_ms)


def test_faults_match_requests_with_a_transactional_id(client: TransactionalClient, subtests: pytest.Subtests) -> None:
    cases: tuple[tuple[str, Callable[[], str], str], ...] = (
        ("InitProducerId", lambda: client.init().name, "CONCURRENT_TRANSACTIONS"),
        ("AddPartitionsToTxn", lambda: client.add(0)[0], "CONCURRENT_TRANSACTIONS"),
        ("Produce", lambda: client.produce(b"a"), "NOT_ENOUGH_REPLICAS"),
        ("EndTxn", lambda: client.end(commit=True), "COORDINATOR_NOT_AVAILABLE"),
    )
    for api, send, error in cases:
        with subtests.test(api=api):
            fail(client, api, transactional_id="other", error=error)
            assert send() == "NONE"
            client.add(0)
            fail(client, api, transactional_id=ID, error=error)
            assert send() == error


def test_only_the_named_transaction_of_a_batch_gets_the_error(client: TransactionalClient) -> None:
    fail(client, "AddPartitionsToTxn", transactional_id="b", error="COORDINATOR_LOAD_IN_PROGRESS")
    topic = AddPartitionsToTxnTopic(name="news", partitions=[0])
    batch = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=name, producer_id=0, producer_epoch=0, topics=[topic])
            for name in (ID, "b")
        ]
    )
    results = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in client.ask(batch, 5).results_by_transaction
    }
    assert results == {ID: ErrorCode.NONE, "b": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    fail(client, "DescribeTransactions", transactional_id="b", error="NOT_COORDINATOR")
    states = client.ask(DescribeTransactionsRequest(transactional_ids=[ID, "b"]), 0).transaction_states
    assert [each.error_code for each in states] == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]


def test_keys_of_find_coordinator(client: TransactionalClient) -> None:
    fail(client, "FindCoordinator", transactional_id="b", error="COORDINATOR_NOT_AVAILABLE")
    for version, expected in ((4, [0, 15]), (6, [0, 15])):
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
        found = client.harness.ask(request, version).coordinators
        assert [each.error_code for each in found] == expected
    assert client.harness.ask(FindCoordinatorRequest(key_type=1, key="b"), 3).error_code == 15
    groups = client.harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["b"]), 4).coordinators
    assert [each.error_code for each in groups] == [0], "a group with this name"
    with pytest.raises(ConfigError, match="Heartbeat has no transactional_id"):
        fail(client, "Heartbeat", transactional_id="b", error="NOT_COORDINATOR")


def test_journal_filters(client: TransactionalClient, subtests: pytest.Subtests) -> None:
    def send_all(client: TransactionalClient) -> None:
        client.init()
        client.add(0)
        client.produce(b"a")
        client.end(commit=True)
        client.produce(b"plain", producer_id=-1, transactional_id=None, is_transactional=False)

    for mode in ("full", "headers"):
        client = TransactionalClient(ClusterHarness(topics={"news": 2}, brokers=1))
        client.harness.cluster.journal = new_journal(mode, 1_000, 1_000_000)
        client.harness.cluster.next_producer_id = 70
        send_all(client)
        with subtests.test(mode=mode):
            view = view_journal(client.harness.cluster)

            def apis(**filters: Any) -> list[str]:
                matches = view.matcher(None, filters)  # noqa: B023
                return [call.api.name for call in view.calls if matches(call)]  # noqa: B023

            used = ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]
            assert [each for each in apis(transactional_id=ID) if each != "FindCoordinator"] == used
            assert apis(producer_id=70) == used, "also the response that assigns it"
            assert apis(producer_id=71) == apis(transactional_id="other") == []
    with pytest.raises(ConfigError, match="producer_id='a': expected an integer >= 0"):
        view.matcher(None, {"producer_id": "a"})
