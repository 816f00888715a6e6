"""Consumers of a fake cluster over TCP, and records for them."""

from collections.abc import Callable, Iterable
from typing import Any

import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.consumer_settings import UNSUPPORTED_SETTINGS
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition

DEADLINE_S = 10.0
"""Maximum wait of a test; long enough for a busy machine."""

_SETTINGS: dict[str, Any] = {
    "group_id": "g",
    "client_id": "c",
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 50,
    "commit_interval_ms": 0,
    "fetch_max_wait_ms": 50,
    "metadata_max_age_ms": 50,
    "retry_backoff_ms": 5,
}

FAST_HEARTBEATS = {"group.consumer.heartbeat.interval.ms": 50}
"""Settings of brokers."""

P0, P1, P2 = ("orders", 0), ("orders", 1), ("orders", 2)


def consumer(cluster: FakeCluster, **settings: Any) -> Consumer:
    """Return a member of the group "g" with short intervals that starts at the earliest offset."""
    return Consumer(cluster.bootstrap_servers, **(_SETTINGS | settings))


def kip_848_consumer(cluster: FakeCluster, **settings: Any) -> Consumer:
    """Return a member of the group "g" with the consumer protocol (KIP-848); brokers need `FAST_HEARTBEATS`."""
    common = {name: value for name, value in _SETTINGS.items() if name not in UNSUPPORTED_SETTINGS["consumer"]}
    return Consumer(cluster.bootstrap_servers, **(common | {"group_protocol": "consumer"} | settings))


def append(cluster: FakeCluster, partition: TopicPartition, batch: bytes) -> None:
    """Append a batch that `FakeCluster.produce` does not make, such as a compressed one or a control batch."""

    def append_to_leader() -> None:
        topic = internals(cluster).cluster.topics.get(partition[0])
        assert topic is not None
        leader = topic.partitions[partition[1]]
        leader.log.append(batch, leader.leader_epoch)
        internals(cluster).cluster.purgatory.wake(leader, len(batch))

    internals(cluster).run(append_to_leader)


def produce(cluster: FakeCluster, partition: TopicPartition, *values: bytes) -> None:
    """Append records with these values to a partition."""
    topic, index = partition
    cluster.topic(topic).produce(values, partition=index)


async def poll_until(
    consumers: Iterable[Consumer], condition: Callable[[], bool], records: list[ConsumerRecord] | None = None
) -> None:
    """Poll consumers in turn until a condition holds; collect their records in `records`, if given."""
    with trio.fail_after(DEADLINE_S):
        while not condition():
            for each in consumers:
                polled = await each.poll(0.005)
                if records is not None:
                    records += polled


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Poll until the consumer has returned at least `count` records, and return their values."""
    records: list[ConsumerRecord] = []
    await poll_until([consumer], lambda: len(records) >= count, records)
    return [record.value for record in records]


def committed(cluster: FakeCluster, partition: TopicPartition) -> int | None:
    """Return the committed offset of the group "g"."""
    offset = cluster.group("g").offsets().get(partition)
    return None if offset is None else offset.offset
