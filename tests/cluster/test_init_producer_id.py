"""InitProducerId: new ids for idempotent producers, and the ids of transactional ones."""

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.cluster.cluster_harness import ClusterHarness, versions


def find_transaction_coordinator(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[key])


def request(transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def test_each_request_gets_a_new_producer_id(subtests: pytest.Subtests) -> None:
    for version in versions("InitProducerId"):
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=2)
            responses = [harness.ask(request(), version, broker=broker) for broker in (1, 2, 1)]
            assert [(each.error_code, each.producer_id, each.producer_epoch) for each in responses] == [
                (0, 0, 0),
                (0, 1, 0),
                (0, 2, 0),
            ]


def test_transactional_ids_keep_their_producer_id(subtests: pytest.Subtests) -> None:
    for version in versions("InitProducerId"):
        with subtests.test(version=version):
            harness = ClusterHarness()
            harness.ask(find_transaction_coordinator("payments"), 4)
            responses = [harness.ask(request("payments"), version) for _ in range(2)]
            assert [(each.error_code, each.producer_id, each.producer_epoch) for each in responses] == [
                (0, 0, 0),
                (0, 0, 1),
            ]


def test_without_the_transactions_topic_there_is_no_coordinator() -> None:
    assert ClusterHarness().ask(request("payments"), 5).error_code == ErrorCode.NOT_COORDINATOR


def test_producer_id_and_epoch_are_given_together(subtests: pytest.Subtests) -> None:
    for sent, error in [
        (request(producer_id=7, epoch=-1), ErrorCode.INVALID_REQUEST),
        (request(producer_id=-1, epoch=3), ErrorCode.INVALID_REQUEST),
        (request(""), ErrorCode.INVALID_REQUEST),
        (request(producer_id=7, epoch=3), ErrorCode.NONE),
    ]:
        with subtests.test(request=sent):
            assert ClusterHarness().ask(sent, 5).error_code == error
