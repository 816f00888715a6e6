"""confluent-kafka (librdkafka) behind the interface of `application.py`."""

from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

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

_SETTINGS = {
    "retry.backoff.ms": RETRY_MS,
    "retry.backoff.max.ms": RETRY_MS,
    "reconnect.backoff.ms": RETRY_MS,
    "reconnect.backoff.max.ms": RETRY_MS,
    "topic.metadata.refresh.fast.interval.ms": RETRY_MS,
    "fetch.error.backoff.ms": RETRY_MS,
    # If the broker that coordinates the group restarts, and Metadata omits it meanwhile, librdkafka 2.16 waits for the
    # connection of an object that it has discarded, until the connection of another broker is opened or closed.
    "connections.max.idle.ms": 1_000,
    "log_level": 0,
}


def _consumer(servers: str, client_id: str, **more: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            **_SETTINGS,
            "bootstrap.servers": servers,
            "client.id": client_id,
            "group.id": GROUP_ID,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "enable.auto.commit": False,
            **more,
        }
    )


class ConfluentApplication:
    """An application."""

    def __init__(self, servers: str, client_id: str) -> None:
        self._failed: KafkaError | None = None
        self._position: int | None = None
        self._producer = confluent_kafka.Producer(
            {
                **_SETTINGS,
                "bootstrap.servers": servers,
                "client.id": client_id,
                "transactional.id": TRANSACTIONAL_ID,
                "linger.ms": 0,
            }
        )
        self._consumer = _consumer(servers, client_id)
        try:
            self._producer.init_transactions(CALL_TIMEOUT_S)
        except KafkaException:
            self.crash()
            raise

    def committed(self) -> int:
        (found,) = self._consumer.committed([TopicPartition(INPUT, 0)], timeout=CALL_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return checked_offset(found.offset)

    def read(self, offset: int, count: int) -> list[bytes]:
        if offset != self._position:  # Each `assign` costs a tenth of a second.
            self._consumer.assign([TopicPartition(INPUT, 0, offset)])
        found: list[bytes] = []
        while len(found) < count:
            messages = self._consumer.consume(count - len(found), CALL_TIMEOUT_S)
            assert messages, "expected records"
            found += [message.value() or b"" for message in messages if not message.error()]
        self._position = offset + count
        return found

    def begin(self) -> None:
        self._failed = None
        self._producer.begin_transaction()

    def produce(self, partition: int, value: bytes) -> None:
        self._producer.produce(OUTPUT, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(CALL_TIMEOUT_S) == 0

    def send_offset(self, offset: int) -> None:
        self._call(
            self._producer.send_offsets_to_transaction,
            [TopicPartition(INPUT, 0, offset)],
            self._consumer.consumer_group_metadata(),
            CALL_TIMEOUT_S,
        )

    def commit(self, timeout_s: float) -> None:
        self._call(self._producer.commit_transaction, timeout_s)

    def can_abort(self) -> bool:
        return self._failed is not None and self._failed.txn_requires_abort()

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except KafkaException as error:
            self._failed = error.args[0]
            raise

    def crash(self) -> None:
        self._consumer.close()
        # `close` aborts the transaction; the destructor does not.
        del self._producer


def read_committed(servers: str, partitions: int) -> list[list[bytes]]:
    """Return the committed values of each partition of the output."""
    consumer = _consumer(servers, "reader", **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(OUTPUT, index, 0) for index in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    ends = 0
    try:
        while ends < partitions:
            message = consumer.poll(CALL_TIMEOUT_S)
            assert message is not None, "expected a record or the end of a partition"
            error = message.error()
            if error is None:
                found[message.partition() or 0].append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


CONFLUENT = Client("confluent-kafka", ConfluentApplication, read_committed, (KafkaException,))
