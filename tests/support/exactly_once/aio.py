"""aiokafka behind the interface of `application.py`."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.producer.transaction_manager import TransactionState

from tests.support.exactly_once.application import (
    GROUP_ID,
    INPUT,
    OUTPUT,
    RETRY_MS,
    TRANSACTIONAL_ID,
    Client,
    checked_offset,
)
from tests.support.kafka_clients.aiokafka_client import LoopThread
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, FETCH_WAIT_MS

T = TypeVar("T")

_INPUT = TopicPartition(INPUT, 0)


def _consumer(servers: str, client_id: str, group_id: str | None) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=servers,
        client_id=client_id,
        group_id=group_id,
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        retry_backoff_ms=RETRY_MS,
    )


class AioApplication:
    """An application, in an event loop of its own."""

    def __init__(self, servers: str, client_id: str) -> None:
        self._loop = LoopThread()
        self._sent: list[asyncio.Future[Any]] = []
        try:
            self._loop.run(self._start(servers, client_id))
        except BaseException:
            self._loop.close(self._stop)
            raise

    async def _start(self, servers: str, client_id: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            client_id=client_id,
            transactional_id=TRANSACTIONAL_ID,
            retry_backoff_ms=RETRY_MS,
        )
        self._consumer = _consumer(servers, client_id, GROUP_ID)
        self._consumer.assign([_INPUT])
        await self._producer.start()
        await self._consumer.start()

    def committed(self) -> int:
        return checked_offset(self._run(self._consumer.committed(_INPUT)))

    def read(self, offset: int, count: int) -> list[bytes]:
        return self._run(self._read(offset, count))

    async def _read(self, offset: int, count: int) -> list[bytes]:
        self._consumer.seek(_INPUT, offset)
        return [(await self._consumer.getone(_INPUT)).value for _ in range(count)]

    def begin(self) -> None:
        self._sent = []
        self._run(self._producer.begin_transaction())

    def produce(self, partition: int, value: bytes) -> None:
        self._sent.append(self._run(self._producer.send(OUTPUT, value, partition=partition)))

    def flush(self) -> None:
        self._run(self._flush())

    async def _flush(self) -> None:
        # `commit_transaction` does not notice that a record was refused.
        await asyncio.gather(*self._sent)

    def send_offset(self, offset: int) -> None:
        self._run(self._producer.send_offsets_to_transaction({_INPUT: offset}, GROUP_ID))

    def commit(self, timeout_s: float) -> None:
        self._run(asyncio.wait_for(self._commit(), timeout_s))

    async def _commit(self) -> None:
        await self._flush()
        await self._producer.commit_transaction()

    def can_abort(self) -> bool:
        return self._producer._txn_manager.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    def crash(self) -> None:
        self._loop.close(self._stop)

    async def _stop(self) -> None:
        """Cancel what still uses connections, and close them. `AIOKafkaProducer.stop` would wait for all records."""
        await self._consumer.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._producer.client.close()
        self._producer._closed = True


def read_committed(servers: str, partitions: int) -> list[list[bytes]]:
    """Return the committed values of each partition of the output."""
    return asyncio.run(asyncio.wait_for(_read_committed(servers, partitions), CALL_TIMEOUT_S))


async def _read_committed(servers: str, partitions: int) -> list[list[bytes]]:
    places = [TopicPartition(OUTPUT, index) for index in range(partitions)]
    async with _consumer(servers, "reader", None) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        found: list[list[bytes]] = [[] for _ in places]
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=FETCH_WAIT_MS)).items():
                found[place.partition] += [record.value for record in records]
    return found


AIO = Client(
    "aiokafka",
    AioApplication,
    read_committed,
    (KafkaError, IllegalOperation, TimeoutError),
    # aiokafka 0.14 ignores the error of a group, which versions since 2 have. While the coordinator loads the group, it
    # finds no committed offset, and the application would process its whole input again.
    api_versions={"OffsetFetch": (1, 1)},
)
