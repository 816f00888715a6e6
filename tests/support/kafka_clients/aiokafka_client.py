"""aiokafka behind the interfaces of `client.py`: each object runs in an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from aiokafka.structs import ConsumerRecord

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


class LoopThread:
    """An event loop in a thread: aiokafka sends heartbeats only while its loop runs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_S)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the thread of the loop."""

        async def call() -> T:
            return function(*arguments)

        return self.run(call())

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Run a last coroutine and end the thread; fails if other tasks are still running."""
        try:
            self.run(self._finish(last))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _finish(self, last: Callable[[], Awaitable[None]]) -> None:
        await last()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left


class AioConsumer:
    """A consumer.

    Attributes:
        inner: The object of aiokafka.
    """

    def __init__(self, servers: str, settings: Settings) -> None:
        self._thread = LoopThread()
        self._is_closed = False
        self.inner = self._thread.run(self._start(servers, settings))

    async def _start(self, servers: str, settings: Settings) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
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
        await consumer.start()
        return consumer

    def subscribe(self, topic: str) -> None:
        self._thread.call(self.inner.subscribe, [topic])

    def subscribe_pattern(self, pattern: str) -> None:
        self._thread.call(self.inner.subscribe, (), pattern)

    def assign(self, place: Place) -> None:
        self._thread.call(self.inner.assign, [TopicPartition(*place)])
        self._thread.run(self.inner.seek_to_beginning())

    def poll(self) -> list[Record]:
        return [record_of(record) for batch in self._thread.run(self._poll()).values() for record in batch]

    async def _poll(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        # `getmany` exceeds its timeout during a rebalance.
        try:
            return await asyncio.wait_for(self.inner.getmany(timeout_ms=int(POLL_S * 1000)), 2 * POLL_S)
        except TimeoutError:
            return {}

    def assignment(self) -> list[Place]:
        return sorted((place.topic, place.partition) for place in self._thread.call(self.inner.assignment))

    def commit(self) -> None:
        self._thread.run(self.inner.commit())

    def committed(self, place: Place) -> int | None:
        found: int | None = self._thread.run(self.inner.committed(TopicPartition(*place)))
        return found

    def seek(self, place: Place, offset: int) -> None:
        self._thread.call(self.inner.seek, TopicPartition(*place), offset)

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        (found,) = self._thread.run(self.inner.offsets_for_times({TopicPartition(*place): timestamp_ms})).values()
        return found.offset if found else None

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        first = self._thread.run(self.inner.beginning_offsets([partition]))
        end = self._thread.run(self.inner.end_offsets([partition]))
        return first[partition], end[partition]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._thread.close(self._stop)

    async def _stop(self) -> None:
        try:
            await self.inner.stop()
        except asyncio.CancelledError:
            # aiokafka cancels requests that it awaits, which cancels `stop` itself: the connections are left open.
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await self.inner._client.close()


class AioAdmin:
    """An admin client. The methods of `inner`, the object of aiokafka, return unchanged responses."""

    def __init__(self, servers: str) -> None:
        self._thread = LoopThread()
        self.inner = self._thread.run(self._start(servers))

    async def _start(self, servers: str) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        return admin

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `inner`."""
        return self._thread.run(coroutine)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, replication_factor=1, topic_configs=dict(configs or {}))
        _check(self._thread.run(self.inner.create_topics([topic])).topic_errors)

    def delete_topic(self, name: str) -> None:
        _check(self._thread.run(self.inner.delete_topics([name])).topic_error_codes)

    def partition_counts(self) -> dict[str, int]:
        topics = self._thread.run(self.inner.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in topics if not topic["is_internal"]}

    def close(self) -> None:
        self._thread.close(self.inner.close)


def _check(results: Sequence[Sequence[Any]]) -> None:
    for name, code, *message in results:
        if code:
            raise for_code(code)(name, *message)


def produce(servers: str, topic: str, records: Sequence[Record], compression: str | None) -> None:
    asyncio.run(_produce(servers, topic, records, compression))


async def _produce(servers: str, topic: str, records: Sequence[Record], compression: str | None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression, linger_ms=5) as producer:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
                partition=record.partition,
            )
            for record in records
        ]
        await asyncio.wait_for(asyncio.gather(*sent), CALL_TIMEOUT_S)


AIO = KafkaClient("aiokafka", AioConsumer, AioAdmin, produce)


def aio_admin(start_admin: StartAdmin) -> AioAdmin:
    """Start an admin client of aiokafka."""
    admin = start_admin(AIO)
    assert isinstance(admin, AioAdmin)
    return admin
