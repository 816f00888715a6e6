"""Idempotent producers lose and duplicate no records although their connections are closed again and again."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from fakebroker import FakeCluster
from fakebroker.protocol.records import decode_records, split_batches
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.aiokafka_client import LoopThread
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, Record
from tests.support.soak import examples, soak

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 3})]

SEED = 20170628
ROUND_RECORDS = 90
BATCH_RECORDS = 5
BATCH_BYTES = 200
"""Maximum size of a batch for clients that limit bytes: a few records, so that many batches are in flight."""


class Producer(Protocol):
    """An idempotent producer, which retries without a delay."""

    def send(self, records: Sequence[Record]) -> None:
        """Produce records, and wait for the acknowledgments."""

    def close(self) -> None: ...


class ConfluentProducer:
    """The producer of confluent-kafka."""

    def __init__(self, servers: str) -> None:
        self._failed: list[Any] = []
        self._inner = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": BATCH_RECORDS,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 1,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 1,
                "log_level": 0,
            }
        )

    def send(self, records: Sequence[Record]) -> None:
        for record in records:
            assert record.partition is not None
            self._inner.produce("orders", record.value, partition=record.partition, on_delivery=self._delivered)
        assert self._inner.flush(CALL_TIMEOUT_S) == 0
        assert self._failed == []

    def _delivered(self, error: Any, _: confluent_kafka.Message) -> None:
        if error:
            self._failed.append(error)

    def close(self) -> None:
        self._inner.close()


class PythonProducer:
    """The producer of kafka-python."""

    def __init__(self, servers: str) -> None:
        self._inner = KafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            batch_size=BATCH_BYTES,
            retry_backoff_ms=1,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=1,
        )

    def send(self, records: Sequence[Record]) -> None:
        sent = [self._inner.send("orders", record.value, partition=record.partition) for record in records]
        for future in sent:
            future.get(CALL_TIMEOUT_S)

    def close(self) -> None:
        self._inner.close()


class AioProducer:
    """The producer of aiokafka."""

    def __init__(self, servers: str) -> None:
        self._thread = LoopThread()
        self._inner = self._thread.run(self._start(servers))

    async def _start(self, servers: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, max_batch_size=BATCH_BYTES, retry_backoff_ms=1
        )
        await producer.start()
        return producer

    def send(self, records: Sequence[Record]) -> None:
        self._thread.run(self._send(records))

    async def _send(self, records: Sequence[Record]) -> None:
        for future in [await self._inner.send("orders", each.value, partition=each.partition) for each in records]:
            await future

    def close(self) -> None:
        self._thread.close(self._inner.stop)


class WireCutter:
    """Closes connections at random Produce requests: before the request is handled, or before it is answered.

    Args:
        cluster: The cluster.
        limit: Number of connections to close, an even one.
    """

    def __init__(self, cluster: FakeCluster, limit: int) -> None:
        self._limit = limit
        # The second fault sees the requests that the first one does not apply to: a quarter for each.
        self._faults = {
            handles: cluster.inject_fault(
                "Produce", drop=True, handles=handles, probability=probability, times=limit // 2
            )
            for handles, probability in ((True, 1 / 4), (False, 1 / 3))
        }

    @property
    def cuts(self) -> dict[bool, int]:
        """Number of closed connections, by whether the request was handled."""
        return {handles: fault.hits for handles, fault in self._faults.items()}

    @property
    def is_done(self) -> bool:
        return sum(self.cuts.values()) == self._limit


def stored_values(cluster: FakeCluster) -> dict[int, list[bytes | None]]:
    """Return the values in the log, by partition."""
    topic = internals(cluster).cluster.topics.get("orders")
    assert topic is not None
    return {
        partition.index: [
            record.value for batch in split_batches(partition.log.read(0, 2**31)) for record in decode_records(batch)
        ]
        for partition in topic.partitions
    }


def duplicates(cluster: FakeCluster) -> int:
    """Return the number of batches that the cluster recognized as duplicates: only their responses have a timestamp."""
    return sum(
        answer.log_append_time_ms != -1
        for call in cluster.journal.requests("Produce")
        if call.response is not None
        for topic in call.response.responses
        for answer in topic.partition_responses
    )


@soak
@pytest.mark.parametrize(
    "start",
    [ConfluentProducer, PythonProducer, AioProducer],
    ids=["confluent-kafka", "kafka-python", "aiokafka"],
)
def test_no_record_is_lost_or_duplicated(start: Callable[[str], Producer], fake_cluster: FakeCluster) -> None:
    connections = examples(60, soak=2000)
    cutter = WireCutter(fake_cluster, connections)
    producer = start(fake_cluster.bootstrap_servers)
    sent: list[Record] = []
    try:
        while not cutter.is_done:
            numbers = range(len(sent), len(sent) + ROUND_RECORDS)
            records = [Record(b"value %d" % number, partition=number % 3) for number in numbers]
            producer.send(records)
            sent += records
    finally:
        producer.close()
    assert stored_values(fake_cluster) == {
        index: [record.value for record in sent if record.partition == index] for index in range(3)
    }
    assert min(cutter.cuts[True], cutter.cuts[False]) > connections / 3
    assert duplicates(fake_cluster) > connections / 10
