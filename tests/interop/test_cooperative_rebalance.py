"""cooperative-sticky (KIP-429) with confluent-kafka: a rebalance moves some partitions without interrupting others."""

from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Place, Record, Settings, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT, ConfluentConsumer
from tests.support.kafka_clients.helpers import partitions_per_member, poll_records, poll_until, values

pytestmark = pytest.mark.slow


class CooperativeConsumer(ConfluentConsumer):
    """A consumer that records the partitions assigned and revoked in each rebalance."""

    def __init__(self, servers: str, settings: Settings) -> None:
        super().__init__(servers, settings, {"partition.assignment.strategy": "cooperative-sticky"})
        self.changes: list[tuple[str, list[Place]]] = []

    def subscribe(self, topic: str) -> None:
        self.inner.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, change: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.changes.append((change, sorted((place.topic, place.partition) for place in partitions)))


def one_each(text: str) -> list[Record]:
    """Return one record for each of six partitions."""
    return [Record(value=f"{text} {partition}".encode(), partition=partition) for partition in range(6)]


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_partitions_that_do_not_move_are_not_interrupted(
    fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    everything = [("orders", partition) for partition in range(6)]
    cooperative = replace(CONFLUENT, consumer=CooperativeConsumer)
    first, second = (start_consumer(cooperative, group_id="g", client_id=name) for name in ("first", "second"))
    assert isinstance(first, CooperativeConsumer)
    assert isinstance(second, CooperativeConsumer)

    first.subscribe("orders")
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", one_each("early"), None)
    poll_records(fake_cluster, 6, first)
    first.commit()
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", one_each("uncommitted"), None)
    read = poll_records(fake_cluster, 6, first)

    second.subscribe("orders")

    def is_even() -> bool:
        return (
            partitions_per_member(fake_cluster, "g") == [3, 3]
            and len(first.assignment()) == len(second.assignment()) == 3
        )

    read += poll_until(fake_cluster, "three partitions each", lambda _: is_even(), first, second)
    assert fake_cluster.group("g").describe().protocol_name == "cooperative-sticky"
    moved = second.assignment()
    assert first.changes == [("assigned", everything), ("revoked", moved)]
    assert second.changes == [("assigned", moved)]

    # Uncommitted records are read again only in the partitions that moved.
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", one_each("late"), None)
    read += poll_records(fake_cluster, 6 + 6 + 3 - len(read), first, second)
    again = [record for record in one_each("uncommitted") if ("orders", record.partition) in moved]
    assert values(read) == values(one_each("uncommitted") + again + one_each("late"))

    first.commit()
    second.commit()
    second.close()
    poll_until(fake_cluster, "all partitions", lambda _: first.assignment() == everything, first)
    assert first.changes[2:] == [("assigned", moved)]
