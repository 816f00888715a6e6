"""The consumer of `fakebroker.client` and that of librdkafka in one group."""

import confluent_kafka
import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer

pytestmark = pytest.mark.slow

DEADLINE_S = 30.0


async def poll_both(own: Consumer, other: confluent_kafka.Consumer, values: set[bytes | None], size: int) -> None:
    """Poll both until they have read `size` values and each has two partitions."""
    with trio.fail_after(DEADLINE_S):
        while len(values) < size or {len(await own.assignment()), len(other.assignment())} != {2}:
            values |= {record.value for record in await own.poll(0.02)}
            message = other.poll(0)
            if message is not None and message.error() is None:
                values.add(message.value())


@pytest.mark.fake_cluster(topics={"orders": 4})
def test_fakebroker_and_librdkafka_share_a_topic(fake_cluster: FakeCluster) -> None:
    settings = {"bootstrap.servers": fake_cluster.bootstrap_servers}
    group = {"group.id": "g", "partition.assignment.strategy": "range", "auto.offset.reset": "earliest"}
    other = confluent_kafka.Consumer(settings | group | {"heartbeat.interval.ms": 100})
    producer = confluent_kafka.Producer(settings)
    for number in range(40):
        producer.produce("orders", b"%d" % number, partition=number % 4)
    assert producer.flush(DEADLINE_S) == 0
    values: set[bytes | None] = set()

    async def share() -> None:
        servers = fake_cluster.bootstrap_servers
        async with Consumer(servers, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=100) as own:
            own.subscribe(["orders"])
            values.update(record.value for record in await own.poll(DEADLINE_S))
            other.subscribe(["orders"])
            await poll_both(own, other, values, 40)
            await own.commit()

    trio.run(share)
    other.close()
    assert values == {b"%d" % number for number in range(40)}
    assert fake_cluster.wait(fake_cluster.group("g").state("Empty")).generation_id >= 2
