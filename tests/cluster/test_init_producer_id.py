"""InitProducerId: new ids for idempotent producers, and no transactions."""

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.cluster.cluster_harness import ClusterHarness, versions


def request(transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@pytest.mark.parametrize("version", versions("InitProducerId"))
def test_each_producer_gets_an_id_of_its_own(version: int) -> None:
    harness = ClusterHarness(brokers=2)
    answers = [harness.ask(request(), version, broker=broker) for broker in (1, 2, 1)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
    ]


@pytest.mark.parametrize("version", versions("InitProducerId"))
def test_transactional_ids_are_refused(version: int) -> None:
    answer = ClusterHarness().ask(request("payments"), version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(producer_id=7, epoch=-1), ErrorCode.INVALID_REQUEST),
        (request(producer_id=-1, epoch=3), ErrorCode.INVALID_REQUEST),
        (request(""), ErrorCode.INVALID_REQUEST),
        (request(producer_id=7, epoch=3), ErrorCode.NONE),
    ],
)
def test_id_and_epoch_come_together(asked: InitProducerIdRequest, error: ErrorCode) -> None:
    assert ClusterHarness().ask(asked, 6).error_code == error
