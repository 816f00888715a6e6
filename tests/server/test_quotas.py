"""Quotas over sockets: throttled connections are muted by the brokers' clock (KIP-219)."""

from contextlib import ExitStack

import pytest

from fakebroker import Broker, FakeCluster
from fakebroker.protocol.messages import alter_client_quotas
from fakebroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster.cluster_harness import batch
from tests.support.wire_client import WireClient, until

pytestmark = pytest.mark.fake_cluster(topics={"news": 1}, brokers=1, clock="manual")

PRODUCE_VERSION = 5


def limit(cluster: FakeCluster, client_id: str, **quotas: float) -> None:
    """Set quotas of a client id."""
    limit_entity(cluster, "client-id", client_id, **quotas)


def limit_entity(cluster: FakeCluster, entity_type: str, name: str, **quotas: float) -> None:
    """Set quotas over a connection of its own."""
    request = AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type=entity_type, entity_name=name)],
                ops=[alter_client_quotas.OpData(key=key, value=value, remove=False) for key, value in quotas.items()],
            )
        ],
        validate_only=False,
    )
    with WireClient(cluster.brokers[0], "admin") as admin:
        (entry,) = admin.ask(request, AlterClientQuotasResponse, 0).entries
    assert entry.error_code == 0, entry.error_message


def produce(size_bytes: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(b"x" * size_bytes))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="news", partition_data=[data])])


def requests_of(cluster: FakeCluster, client_id: str) -> int:
    return len(cluster.journal.requests(client_id=client_id))


def test_a_throttled_connection_is_muted_until_the_brokers_clock_has_passed(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "slow", producer_byte_rate=1000)
    with WireClient(fake_cluster.brokers[0], "slow") as slow, WireClient(fake_cluster.brokers[0], "fast") as fast:
        throttled = slow.ask(produce(20_000), ProduceResponse, PRODUCE_VERSION)
        assert 10_000 < throttled.throttle_time_ms < 11_000
        assert throttled.responses[0].partition_responses[0].error_code == 0

        slow.send(MetadataRequest(topics=[]))
        for _ in range(20):  # Other connections are served meanwhile.
            assert fast.ask(MetadataRequest(topics=[]), MetadataResponse).throttle_time_ms == 0
        assert requests_of(fake_cluster, "slow") == 1
        fake_cluster.advance(throttled.throttle_time_ms / 1000 - 0.001)
        assert requests_of(fake_cluster, "slow") == 1

        reached = fake_cluster.advance_to_next_deadline() or []
        assert [(each.kind, each.node_id, round(each.in_s, 3)) for each in reached] == [("throttle", 1, 0.001)]
        answer = slow.receive()
        assert isinstance(answer, MetadataResponse)
        assert answer.throttle_time_ms == 0


def test_a_produce_without_response_mutes_its_connection(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "slow", producer_byte_rate=1000)
    with WireClient(fake_cluster.brokers[0], "slow") as slow:
        slow.send(produce(20_000, acks=0), PRODUCE_VERSION)
        slow._pending.clear()  # There is no response.
        until(lambda: requests_of(fake_cluster, "slow") == 1, fake_cluster)
        slow.send(MetadataRequest(topics=[]))
        with WireClient(fake_cluster.brokers[0], "fast") as fast:
            fast.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert requests_of(fake_cluster, "slow") == 1
        fake_cluster.advance(11)
        assert isinstance(slow.receive(), MetadataResponse)


def test_a_throttled_connection_can_be_closed(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "slow", request_percentage=0.001)
    with WireClient(fake_cluster.brokers[0], "slow") as slow:
        assert slow.ask(MetadataRequest(topics=[]), MetadataResponse).throttle_time_ms == 1000
    fake_cluster.advance(2)
    with WireClient(fake_cluster.brokers[0], "fast") as fast:
        assert fast.ask(MetadataRequest(topics=[]), MetadataResponse).throttle_time_ms == 0


@pytest.mark.fake_cluster(
    topics={"news": 1}, brokers=[Broker(as_version="2.8"), Broker(as_version="1.1")], clock="manual"
)
def test_before_2_0_the_response_is_delayed(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "slow", request_percentage=0.001)
    with WireClient(fake_cluster.brokers[1], "slow") as slow, WireClient(fake_cluster.brokers[1], "fast") as fast:
        slow.send(MetadataRequest(topics=[]), 5)
        until(lambda: requests_of(fake_cluster, "slow") == 1, fake_cluster)
        slow.socket.setblocking(False)
        fast.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
        with pytest.raises(BlockingIOError):
            slow.socket.recv(1)
        slow.socket.settimeout(20)

        fake_cluster.advance(1)

        answer = slow.receive()
        assert isinstance(answer, MetadataResponse)
        assert answer.throttle_time_ms == 1000


def test_connections_above_the_quota_of_an_address_are_not_served_and_closed(fake_cluster: FakeCluster) -> None:
    limit_entity(fake_cluster, "ip", "127.0.0.1", connection_creation_rate=1)
    broker = fake_cluster.brokers[0]
    with ExitStack() as stack:
        served = [stack.enter_context(WireClient(broker)) for _ in range(10)]
        for wire in served:  # Ten connections in ten seconds.
            assert isinstance(wire.ask(MetadataRequest(topics=[]), MetadataResponse), MetadataResponse)
        refused = stack.enter_context(WireClient(broker, "refused"))
        refused.send(MetadataRequest(topics=[]))
        served[0].ask(MetadataRequest(topics=[]), MetadataResponse)
        assert requests_of(fake_cluster, "refused") == 0

        fake_cluster.advance(1)
        assert refused.is_closed_by_broker()
        fake_cluster.advance(10)
        assert stack.enter_context(WireClient(broker)).ask(MetadataRequest(topics=[]), MetadataResponse)


def test_a_reset_removes_quotas_and_a_snapshot_keeps_them(fake_cluster: FakeCluster) -> None:
    def throttle_time_ms() -> int:
        with WireClient(fake_cluster.brokers[0], "slow") as slow:
            return slow.ask(MetadataRequest(topics=[]), MetadataResponse).throttle_time_ms

    limit(fake_cluster, "slow", request_percentage=0.001)
    taken = fake_cluster.snapshot()
    fake_cluster.reset()
    assert throttle_time_ms() == 0
    fake_cluster.restore(taken)
    assert throttle_time_ms() == 1000
