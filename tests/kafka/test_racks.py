"""Brokers of Apache Kafka refer consumers to followers as the fake cluster does."""

import time

import pytest

from fakebroker import Broker, FakeCluster
from tests.kafka.apache_kafka import ApacheKafka
from tests.support import racks
from tests.support.wire_client import TIMEOUT_S, WireClient, broker_of

pytestmark = pytest.mark.slow

BROKERS = [Broker(rack=each) for each in racks.RACKS]


def test_a_fetch_session_with_referrals_is_that_of_kafka() -> None:
    with (
        FakeCluster(BROKERS, config=racks.SELECTOR) as cluster,
        WireClient(broker_of(cluster, 1)) as client,
    ):
        racks.create_topic(client)
        assert racks.produce(client) == 0
        expected = racks.session(client)
    config = {**racks.SELECTOR, "min.insync.replicas": 2}
    with ApacheKafka("4.4", 2, config, racks=racks.RACKS) as kafka, WireClient(kafka.brokers[1]) as client:
        racks.create_topic(client)
        deadline = time.monotonic() + TIMEOUT_S
        while racks.produce(client):
            assert time.monotonic() < deadline
        assert racks.session(client) == expected
