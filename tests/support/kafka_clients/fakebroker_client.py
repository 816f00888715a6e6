"""The consumer of `fakebroker.client` behind the interfaces of `client.py`: runs under trio, in a thread."""

import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import CommitFailed
from tests.support.kafka_clients.client import (
    CALL_TIMEOUT_S,
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_S,
    Place,
    Record,
    Settings,
)

T = TypeVar("T")


class FakebrokerConsumer:
    """A consumer of `fakebroker.client`."""

    def __init__(self, servers: str, settings: Settings) -> None:
        self._is_closed = False
        started = threading.Event()
        arguments = (self._run, servers, settings, started)
        self._thread = threading.Thread(target=trio.run, args=arguments, name="fakebroker consumer", daemon=True)
        self._thread.start()
        started.wait()

    async def _run(self, servers: str, settings: Settings, started: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._closing = trio.Event()
        async with Consumer(
            servers,
            group_id=settings.group_id,
            client_id=settings.client_id,
            instance_id=settings.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            commit_interval_ms=0,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            metadata_max_age_ms=settings.metadata_max_age_ms,
        ) as self._consumer:
            started.set()
            await self._closing.wait()

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        async def within_limits() -> T:
            with trio.fail_after(CALL_TIMEOUT_S):
                return await function(*arguments)

        return trio.from_thread.run(within_limits, trio_token=self._token)

    def _do(self, function: Callable[..., T], *arguments: Any) -> T:
        return trio.from_thread.run_sync(function, *arguments, trio_token=self._token)

    def subscribe(self, topic: str) -> None:
        self._do(self._consumer.subscribe, [topic])

    def poll(self) -> list[Record]:
        return [_record(record) for record in self._call(self._consumer.poll, POLL_S)]

    def assignment(self) -> list[Place]:
        return sorted(self._do(lambda: self._consumer._core.assigned))

    def commit(self) -> None:
        self._call(self._commit)

    async def _commit(self) -> None:
        """Commit; retry as long as the error is retriable, for example while the coordinator moves."""
        while True:
            try:
                return await self._consumer.commit()
            except CommitFailed as failure:
                if not failure.error.retriable:
                    raise
                await trio.sleep(POLL_S)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._do(self._closing.set)
            self._thread.join()


def _record(record: ConsumerRecord) -> Record:
    headers = tuple((name, value or b"") for name, value in record.headers)
    return Record(record.value, record.key, headers, record.timestamp_ms, record.partition)
