"""kafka-python behind the interface of `application.py`."""

import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.producer.transaction_manager import TransactionState
from kafka.structs import OffsetAndMetadata

import tests.support.kafka_clients.kafka_python_client  # noqa: F401 - closes sockets that kafka-python leaves open
from tests.support.exactly_once.application import (
    GROUP_ID,
    INPUT,
    OUTPUT,
    RETRY_MS,
    TRANSACTIONAL_ID,
    Client,
    checked_offset,
)
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, FETCH_WAIT_MS

LOST_REQUEST_S = 3.0
"""Maximum duration of calls that send a request to a coordinator.

If kafka-python 3.0.12 cannot connect to a coordinator, it looks up the new one, but forgets the request, and the call
waits forever. The application must then be restarted.
"""

_SETTINGS = {"retry_backoff_ms": RETRY_MS, "reconnect_backoff_ms": RETRY_MS, "reconnect_backoff_max_ms": RETRY_MS}
_INPUT = TopicPartition(INPUT, 0)


def _consumer(servers: str, client_id: str, group_id: str | None) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=servers,
        client_id=client_id,
        group_id=group_id,
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        **_SETTINGS,
    )


class PythonApplication:
    """An application."""

    def __init__(self, servers: str, client_id: str) -> None:
        self._sent: list[Any] = []
        self._has_lost_request = False
        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            client_id=client_id,
            transactional_id=TRANSACTIONAL_ID,
            max_block_ms=LOST_REQUEST_S * 1000,
            **_SETTINGS,
        )
        self._consumer = _consumer(servers, client_id, GROUP_ID)
        self._consumer.assign([_INPUT])
        try:
            self._producer.init_transactions()
        except KafkaError:
            self.crash()
            raise

    def committed(self) -> int:
        return checked_offset(self._consumer.committed(_INPUT, timeout_ms=CALL_TIMEOUT_S * 1000))

    def read(self, offset: int, count: int) -> list[bytes]:
        self._consumer.seek(_INPUT, offset)
        found: list[bytes] = []
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while len(found) < count:
            assert time.monotonic() < deadline_s, "expected records"
            polled = self._consumer.poll(timeout_ms=FETCH_WAIT_MS, max_records=count - len(found))
            found += [record.value for record in polled.get(_INPUT, ())]
        return found

    def begin(self) -> None:
        self._sent = []
        self._producer.begin_transaction()

    def produce(self, partition: int, value: bytes) -> None:
        self._sent.append(self._producer.send(OUTPUT, value, partition=partition))

    def flush(self) -> None:
        for future in self._sent:
            future.get(CALL_TIMEOUT_S)

    def send_offset(self, offset: int) -> None:
        offsets = {_INPUT: OffsetAndMetadata(offset, "", -1)}
        self._wait(self._manager.send_offsets_to_transaction(offsets, self._consumer.group_metadata()))

    def commit(self, timeout_s: float) -> None:
        self._wait(self._manager.begin_commit(), timeout_s)
        self.flush()

    def can_abort(self) -> bool:
        state = self._manager._current_state
        return not self._has_lost_request and state in (
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
        )

    def abort(self) -> None:
        self._wait(self._manager.begin_abort())

    @property
    def _manager(self) -> Any:
        """The object that sends requests. The methods of the producer wait for them without a timeout."""
        return self._producer._transaction_manager

    def _wait(self, result: Any, timeout_s: float = LOST_REQUEST_S) -> None:
        self._producer._sender.wakeup()
        if not result.wait(timeout_ms=min(timeout_s, LOST_REQUEST_S) * 1000):
            self._has_lost_request = True
            raise KafkaError("timeout")

    def crash(self) -> None:
        self._producer._sender.force_close()
        self._producer._sender.join(CALL_TIMEOUT_S)
        self._producer.close(0)
        self._consumer.close()


def read_committed(servers: str, partitions: int) -> list[list[bytes]]:
    """Return the committed values of each partition of the output."""
    places = [TopicPartition(OUTPUT, index) for index in range(partitions)]
    consumer = _consumer(servers, "reader", None)
    try:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        found: list[list[bytes]] = [[] for _ in places]
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while any(consumer.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline_s, f"expected records up to {ends}"
            for place, records in consumer.poll(timeout_ms=FETCH_WAIT_MS).items():
                found[place.partition] += [record.value for record in records]
    finally:
        consumer.close()
    return found


KAFKA_PYTHON = Client("kafka-python", PythonApplication, read_committed, (KafkaError,))
