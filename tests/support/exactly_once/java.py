"""Kafka's Java clients behind the interface of `application.py`."""

from typing import Any

from tests.support.exactly_once.application import (
    GROUP_ID,
    INPUT,
    OUTPUT,
    RETRY_MS,
    TRANSACTIONAL_ID,
    Client,
    checked_offset,
)
from tests.support.kafka_clients.client import Record, Settings
from tests.support.kafka_clients.driver import DriverError, to_json
from tests.support.kafka_clients.java_client import JavaConsumer, JavaProducer

_SETTINGS: dict[str, Any] = {
    "retry.backoff.ms": RETRY_MS,
    "retry.backoff.max.ms": RETRY_MS,
    "reconnect.backoff.ms": RETRY_MS,
    "reconnect.backoff.max.ms": RETRY_MS,
}


def _consumer(servers: str, client_id: str) -> JavaConsumer:
    settings = Settings(group_id=GROUP_ID, client_id=client_id, isolation_level="read_committed")
    return JavaConsumer(servers, settings, **_SETTINGS)


class JavaApplication:
    """An application."""

    def __init__(self, servers: str, client_id: str) -> None:
        self._error: DriverError | None = None
        self._records: list[Record] = []
        self._producer = JavaProducer(
            servers, **{**_SETTINGS, "client.id": client_id, "transactional.id": TRANSACTIONAL_ID}
        )
        self._consumer = _consumer(servers, client_id)
        try:
            self._producer.call("init")
        except DriverError:
            self.crash()
            raise

    def committed(self) -> int:
        return checked_offset(self._consumer.committed((INPUT, 0)))

    def read(self, offset: int, count: int) -> list[bytes]:
        self._consumer.assign((INPUT, 0), offset)
        found: list[Record] = []
        while len(found) < count:
            found += self._consumer.poll()
        return [record.value or b"" for record in found[:count]]

    def begin(self) -> None:
        self._records, self._error = [], None
        self._producer.call("begin")

    def produce(self, partition: int, value: bytes) -> None:
        self._records.append(Record(value, partition=partition))

    def flush(self) -> None:
        self._call("produce", topic=OUTPUT, records=to_json(self._records))
        self._records = []

    def send_offset(self, offset: int) -> None:
        self._call("send_offset", topic=INPUT, partition=0, offset=offset, group=GROUP_ID)

    def commit(self, timeout_s: float) -> None:
        self._call("commit", ms=round(timeout_s * 1000))

    def can_abort(self) -> bool:
        return self._error is not None and self._error.aborts

    def abort(self) -> None:
        self._call("abort")

    def _call(self, name: str, **arguments: Any) -> None:
        try:
            self._producer.call(name, **arguments)
        except DriverError as error:
            self._error = error
            raise

    def crash(self) -> None:
        self._consumer.close()
        self._producer.call("crash")


def read_committed(servers: str, partitions: int) -> list[list[bytes]]:
    """Return the committed values of each partition of the output."""
    consumer = _consumer(servers, "reader")
    try:
        return [_all(consumer, partition) for partition in range(partitions)]
    finally:
        consumer.close()


def _all(consumer: JavaConsumer, partition: int) -> list[bytes]:
    """Return the values of a partition of the output up to the last stable offset."""
    end = consumer.end((OUTPUT, partition))
    consumer.assign((OUTPUT, partition), 0)
    found: list[bytes] = []
    while consumer.position((OUTPUT, partition)) < end:
        found += [record.value or b"" for record in consumer.poll()]
    return found


JAVA = Client("java", JavaApplication, read_committed, (DriverError,))
