"""kafka-python behind the interfaces of `client.py`: each consumer runs in a thread of its own."""

import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

from tests.support.kafka_clients.client import (
    CALL_TIMEOUT_S,
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_S,
    KafkaClient,
    Place,
    Record,
    Settings,
    StartAdmin,
    record_of,
)

T = TypeVar("T")

LONG_POLL_MS = 500
"""Long enough for a rebalance: kafka-python discards a JoinGroup response that arrives after its poll, and rejoins.

Members that are polled in turn, each for a short time, would rebalance forever.
"""

_sock_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(factory: Any, net: Any, sock: socket.socket, *arguments: Any, **options: Any) -> Any:
    """Connect, and close the socket if that fails: kafka-python leaves it open."""
    try:
        return await _sock_connect(factory, net, sock, *arguments, **options)
    except BaseException:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close

_net_close = NetworkSelector.close


def _close_with_sockets(net: NetworkSelector) -> None:
    """Close all sockets, too: kafka-python leaves a socket open if the connection is closed during a write."""
    net.stop()
    sockets = [key.fileobj for key in net._selector.get_map().values()]
    _net_close(net)
    for left in sockets:
        left.close()


NetworkSelector.close = _close_with_sockets


class PythonConsumer:
    """A consumer.

    Attributes:
        inner: The object of kafka-python.
    """

    def __init__(self, servers: str, settings: Settings) -> None:
        self._thread = ThreadPoolExecutor(1, "kafka-python")
        self._polling: Future[Any] | None = None
        self._is_closed = False
        self.inner = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=settings.group_id,
            client_id=settings.client_id,
            group_instance_id=settings.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            auto_offset_reset=settings.offset_reset,
            enable_auto_commit=False,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            client_rack=settings.rack,
            isolation_level=settings.isolation_level or "read_uncommitted",
        )

    def _call(self, function: Callable[..., T], *arguments: Any, **settings: Any) -> T:
        """Call a function in the consumer's thread, after a poll that is in progress."""
        return self._thread.submit(function, *arguments, **settings).result(CALL_TIMEOUT_S)

    def subscribe(self, topic: str) -> None:
        self._call(self.inner.subscribe, [topic])
        # Fetch the partition counts before the first join. A leader that gets them later rejoins; if its poll ends
        # during that join, kafka-python assumes that the consumer has joined, and never fetches.
        self._call(self.inner.partitions_for_topic, topic)

    def subscribe_pattern(self, pattern: str) -> None:
        self._call(self.inner.subscribe, pattern=pattern)

    def assign(self, place: Place) -> None:
        self._call(self.inner.assign, [TopicPartition(*place)])
        self._call(self.inner.seek_to_beginning)

    def poll(self) -> list[Record]:
        if self._polling is None:
            self._polling = self._thread.submit(self.inner.poll, timeout_ms=LONG_POLL_MS)
        try:
            batches = self._polling.result(POLL_S)
        except TimeoutError:
            return []
        self._polling = None
        return [record_of(record) for batch in batches.values() for record in batch]

    def assignment(self) -> list[Place]:
        return sorted((place.topic, place.partition) for place in self.inner.assignment())

    def commit(self) -> None:
        self._call(self.inner.commit, timeout_ms=CALL_TIMEOUT_S * 1000)

    def committed(self, place: Place) -> int | None:
        found: int | None = self._call(self.inner.committed, TopicPartition(*place), timeout_ms=CALL_TIMEOUT_S * 1000)
        return found

    def seek(self, place: Place, offset: int) -> None:
        self._call(self.inner.seek, TopicPartition(*place), offset)
        self._polling = None  # The records of that poll may be from before the seek.

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        (found,) = self._call(self.inner.offsets_for_times, {TopicPartition(*place): timestamp_ms}).values()
        return found.offset if found else None

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        first = self._call(self.inner.beginning_offsets, [partition])
        end = self._call(self.inner.end_offsets, [partition])
        return first[partition], end[partition]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._call(self.inner.close)
            self._thread.shutdown()


class PythonAdmin:
    """An admin client."""

    def __init__(self, servers: str) -> None:
        self.inner = KafkaAdminClient(bootstrap_servers=servers)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        self.inner.create_topics({name: {"num_partitions": partitions, "configs": dict(configs or {})}})

    def delete_topic(self, name: str) -> None:
        self.inner.delete_topics([name])

    def partition_counts(self) -> dict[str, int]:
        topics = self.inner.describe_topics()
        return {topic["name"]: len(topic["partitions"]) for topic in topics if not topic["is_internal"]}

    def close(self) -> None:
        self.inner.close()


def produce(servers: str, topic: str, records: Sequence[Record], compression: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=compression, linger_ms=5)
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
                partition=record.partition,
            )
            for record in records
        ]
        for future in sent:
            future.get(CALL_TIMEOUT_S)
    finally:
        producer.close()


KAFKA_PYTHON = KafkaClient("kafka-python", PythonConsumer, PythonAdmin, produce)


def python_admin(start_admin: StartAdmin) -> KafkaAdminClient:
    """Start an admin client, and return the object of kafka-python."""
    admin = start_admin(KAFKA_PYTHON)
    assert isinstance(admin, PythonAdmin)
    return admin.inner
