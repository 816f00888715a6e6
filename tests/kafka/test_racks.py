"""Brokers of Apache Kafka refer consumers to followers as the fake cluster does."""

import time

import pytest

from fakebroker.kafka.process import ApacheKafka
from tests.support import racks
from tests.support.soak import soak_only
from tests.support.wire_client import TIMEOUT_S, WireClient

pytestmark = pytest.mark.slow


@soak_only("starts two brokers")
def test_a_fetch_session_with_referrals_is_that_of_kafka() -> None:
    config = {**racks.SELECTOR, "min.insync.replicas": 2}
    with ApacheKafka("4.4", 2, config, racks=racks.RACKS) as kafka, WireClient(kafka.brokers[1]) as client:
        racks.create_topic(client)
        deadline = time.monotonic() + TIMEOUT_S
        while racks.produce(client):
            assert time.monotonic() < deadline
        assert racks.session(client) == racks.session_on_fake_cluster()
