"""Invalid requests about transactions over TCP: each is answered or closes its connection; others are not affected."""

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.types import unsigned_varint
from tests.support.client.wire_producer import WireProducer
from tests.support.cluster.invalid_transactions import ID, error_names, invalid_requests
from tests.support.wire_client import WireClient, find_coordinator

PARTITION = ("orders", 0)


def still_answers(other: WireClient) -> bool:
    return other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_invalid_requests_are_answered(subtests: pytest.Subtests) -> None:
    with FakeCluster(1, {"orders": 1}) as cluster:
        producer = WireProducer(cluster, ID)
        producer.init()
        cases = list(invalid_requests(producer.producer_id, "orders"))
        with WireClient(cluster.brokers[0]) as wire, WireClient(cluster.brokers[0]) as other:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)  # creates __consumer_offsets
            for case in cases:
                wire.send(case.request, case.version)
            assert still_answers(other)
            for case in cases:
                errors = error_names(wire.receive())
                if errors != case.errors:
                    with subtests.test(case.name):
                        assert errors == case.errors
            assert still_answers(wire)
            assert still_answers(other)


def test_ids_that_no_release_can_read_close_the_connection(subtests: pytest.Subtests) -> None:
    with FakeCluster(1, {"orders": 1}) as cluster:
        WireProducer(cluster, ID).init()
        with WireClient(cluster.brokers[0]) as other:
            for name, transactional_id in (
                ("longer than 32767 bytes", unsigned_varint(40_001) + b"x" * 40_000),
                ("longer than the request", unsigned_varint(2**31 - 1) + b"x"),
            ):
                with subtests.test(name), WireClient(cluster.brokers[0]) as wire:
                    api = api_of(InitProducerIdRequest)
                    header = api.key.to_bytes(2, "big") + (5).to_bytes(2, "big") + bytes(4) + b"\0\1w" + b"\0"
                    frame = header + transactional_id + (1_000).to_bytes(4, "big") + b"\xff" * 10 + b"\0"
                    wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
                    assert wire.is_closed_by_broker()
                    assert still_answers(other)


def test_a_flood_of_requests_to_end_a_transaction() -> None:
    with FakeCluster(1, {"orders": 1}) as cluster:
        producer = WireProducer(cluster, ID)
        producer.begin(PARTITION, b"a")
        request = EndTxnRequest(
            transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        with WireClient(cluster.brokers[0]) as wire, WireClient(cluster.brokers[0]) as other:
            for _ in range(1_000):
                wire.send(request, 3)
            assert still_answers(other)
            answers = [wire.receive() for _ in range(1_000)]
            assert {each.error_code for each in answers if isinstance(each, EndTxnResponse)} == {0}
        assert len(cluster.topic("orders").records()) == 1
