"""Real clients with injected faults: a lost response, NOT_COORDINATOR, throttling."""

import pytest

from fakebroker import ErrorCode, FakeCluster
from tests.support.kafka_clients.client import Consumer, KafkaClient, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import numbered, poll_records, values
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, seed=1)]

with_both = pytest.mark.parametrize("client", [CONFLUENT, KAFKA_PYTHON], ids=lambda client: client.name)


def start_reader(cluster: FakeCluster, client: KafkaClient, start_consumer: StartConsumer) -> Consumer:
    """Start a consumer of a group, which has read ten records and committed none."""
    client.produce(cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    consumer = start_consumer(client, group_id="g")
    consumer.assign(("orders", 0))
    poll_records(cluster, 10, consumer)
    return consumer


@with_both
def test_a_commit_is_applied_and_its_response_lost(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumer = start_reader(fake_cluster, client, start_consumer)
    fake_cluster.inject_fault("OffsetCommit", drop=True, handles=True, times=1)
    # The client retries and gets an error, although the commit has been applied.
    with fake_cluster.inject_fault("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED") as refusal:
        with pytest.raises(Exception, match=r"(?i)authorization"):
            consumer.commit()
        assert refusal.hits == 1
    assert fake_cluster.group("g").offsets()["orders", 0].offset == 10
    consumer.commit()


@with_both
def test_a_commit_is_retried_after_not_coordinator(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumer = start_reader(fake_cluster, client, start_consumer)
    with fake_cluster.inject_fault("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2) as fault:
        consumer.commit()
    assert fault.hits == 2
    faults = [call.fault is not None for call in fake_cluster.journal.requests("OffsetCommit")]
    assert faults == [True, True, False]
    assert consumer.committed(("orders", 0)) == 10


@with_both
def test_a_commit_is_retried_after_the_log_has_refused_it(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumer = start_reader(fake_cluster, client, start_consumer)
    with fake_cluster.group("g").fail_append(times=2) as failure:
        consumer.commit()
        assert failure.hits == 2
    errors = [call.errors for call in fake_cluster.journal.requests("OffsetCommit")]
    assert errors == [(ErrorCode.COORDINATOR_NOT_AVAILABLE,)] * 2 + [()]
    assert consumer.committed(("orders", 0)) == 10


@with_both
def test_a_member_joins_again_after_the_log_has_refused_its_group_and_its_assignment(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    created = fake_cluster.group("g").fail_append()
    assigned = fake_cluster.inject_fault("SyncGroup", nth=1, before={"do": "group.fail_append", "group_id": "g"})
    consumer = start_consumer(client, group_id="g")
    consumer.subscribe("orders")
    assert len(poll_records(fake_cluster, 10, consumer)) == 10
    assert (created.hits, assigned.hits) == (1, 1)
    assert fake_cluster.journal.requests("SyncGroup")[0].errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    assert fake_cluster.journal.count("JoinGroup", error="UNKNOWN_MEMBER_ID") == 1
    assert fake_cluster.group("g").describe().state == "Stable"


@with_both
def test_a_throttled_client_waits(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    with fake_cluster.inject_fault("Fetch", client_id="interop", throttle_time_ms=300, nth=1) as fault:
        consumer = start_reader(fake_cluster, client, start_consumer)
        client.produce(fake_cluster.bootstrap_servers, "orders", numbered([10]), None)
        assert values(poll_records(fake_cluster, 1, consumer)) == [b"value 10"]
        assert fault.hits == 1
    fetches = fake_cluster.journal.requests("Fetch")
    throttled = next(call for call in fetches if call.fault is not None)
    after = next(call for call in fetches[fetches.index(throttled) + 1 :] if call.peer is throttled.peer)
    assert throttled.answered_ms is not None
    assert after.received_ms - throttled.answered_ms >= 300
