"""confluent-kafka (librdkafka) behind the interfaces of `client.py`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar, cast

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_clients.client import (
    CALL_TIMEOUT_S,
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_S,
    Headers,
    KafkaClient,
    Place,
    Record,
    Settings,
    StartAdmin,
)

T = TypeVar("T")

MAX_RECORDS = 500
CLOSE_TIMEOUT_S = 60
"""librdkafka waits so long for brokers at most (`socket.timeout.ms`)."""

CLOSING = "librdkafka closes"
"""The name of threads that close a consumer. One that is left has met a deadlock of librdkafka."""


class ConfluentConsumer:
    """A consumer.

    Args:
        servers: Bootstrap servers.
        settings: The configuration that all clients have.
        more: Further configuration of librdkafka.

    Attributes:
        inner: The object of confluent-kafka.
        passing_errors: Codes of errors that the consumer reports once, but deals with by itself.
    """

    passing_errors = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})  # A subscribed topic was deleted.

    def __init__(self, servers: str, settings: Settings, more: Mapping[str, Any] | None = None) -> None:
        config = {
            "bootstrap.servers": servers,
            # Required by the constructor; unused without `subscribe`.
            "group.id": settings.group_id or "none",
            "client.id": settings.client_id,
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "auto.offset.reset": settings.offset_reset,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "topic.metadata.refresh.interval.ms": settings.metadata_max_age_ms,
            "client.rack": settings.rack,
            # A rolling restart of a fake cluster takes milliseconds. If a client sees all brokers down at once, it
            # starts over with the bootstrap servers, and then sometimes sends nothing any more.
            "metadata.recovery.strategy": "none",
        }
        if settings.instance_id is not None:
            config["group.instance.id"] = settings.instance_id
        if settings.isolation_level is not None:
            config["isolation.level"] = settings.isolation_level
        self.inner = confluent_kafka.Consumer({**config, **(more or {})})

    def subscribe(self, topic: str) -> None:
        self.inner.subscribe([topic])

    def subscribe_pattern(self, pattern: str) -> None:
        self.inner.subscribe([pattern])

    def assign(self, place: Place) -> None:
        self.inner.assign([TopicPartition(*place, OFFSET_BEGINNING)])

    def poll(self) -> list[Record]:
        messages = self.inner.consume(MAX_RECORDS, POLL_S)
        return [_record(message) for message in messages if not self._is_passing_error(message)]

    def assignment(self) -> list[Place]:
        return sorted((place.topic, place.partition) for place in self.inner.assignment())

    def commit(self) -> None:
        self.inner.commit(asynchronous=False)

    def committed(self, place: Place) -> int | None:
        (found,) = self.inner.committed([TopicPartition(*place)], timeout=CALL_TIMEOUT_S)
        return found.offset if found.offset >= 0 else None

    def seek(self, place: Place, offset: int) -> None:
        self.inner.seek(TopicPartition(*place, offset))

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        (found,) = self.inner.offsets_for_times([TopicPartition(*place, timestamp_ms)], timeout=CALL_TIMEOUT_S)
        return found.offset if found.offset >= 0 else None

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]:
        return self.inner.get_watermark_offsets(TopicPartition(*place), timeout=CALL_TIMEOUT_S)

    def close(self) -> None:
        """Close the consumer. If librdkafka deadlocks (its issue 5476), the consumer and its thread are left."""
        closed: Future[None] = Future()

        def close() -> None:
            try:
                # `close` calls the rebalance callback for an assignment that no poll has seen yet. If the consumer is
                # then no longer in the group, librdkafka never answers (its issue 4884), and confluent-kafka holds the
                # interpreter's lock meanwhile. After this poll no assignment is left.
                with suppress(RuntimeError):  # It is closed already.
                    self.inner.consume(MAX_RECORDS, POLL_S)
                self.inner.close()
                closed.set_result(None)
            except BaseException as error:
                closed.set_exception(error)

        Thread(target=close, name=CLOSING, daemon=True).start()
        with suppress(TimeoutError):
            closed.result(CLOSE_TIMEOUT_S)

    def _is_passing_error(self, message: confluent_kafka.Message) -> bool:
        error = message.error()
        return error is not None and error.code() in self.passing_errors


def _record(message: confluent_kafka.Message) -> Record:
    if error := message.error():
        raise confluent_kafka.KafkaException(error)
    return Record(
        value=message.value(),
        key=message.key(),
        headers=cast(Headers, tuple(message.headers() or ())),
        timestamp_ms=message.timestamp()[1],
        partition=message.partition(),
    )


class ConfluentAdmin:
    """An admin client of confluent-kafka."""

    def __init__(self, servers: str) -> None:
        self.inner = AdminClient({"bootstrap.servers": servers})

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        (future,) = self.inner.create_topics([NewTopic(name, partitions, config=dict(configs or {}))]).values()
        future.result(CALL_TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        (future,) = self.inner.delete_topics([name]).values()
        future.result(CALL_TIMEOUT_S)

    def partition_counts(self) -> dict[str, int]:
        topics = self.inner.list_topics(timeout=CALL_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}

    def close(self) -> None:
        # `AdminClient` has no method `close`; its destructor closes the connections.
        del self.inner


def produce(servers: str, topic: str, records: Sequence[Record], compression: str | None) -> None:
    failed: list[Any] = []
    config = {"bootstrap.servers": servers, "compression.type": compression or "none", "linger.ms": 5}
    producer = confluent_kafka.Producer(config)
    for record in records:
        optional: dict[str, Any] = {"partition": record.partition, "timestamp": record.timestamp_ms}
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            on_delivery=lambda error, message: failed.append(error) if error else None,
            **{name: value for name, value in optional.items() if value is not None},
        )
    assert producer.flush(CALL_TIMEOUT_S) == 0
    producer.close()
    assert not failed, failed


CONFLUENT = KafkaClient("confluent-kafka", ConfluentConsumer, ConfluentAdmin, produce)


def confluent_admin(start_admin: StartAdmin) -> AdminClient:
    """Start an admin client, and return the object of confluent-kafka."""
    admin = start_admin(CONFLUENT)
    assert isinstance(admin, ConfluentAdmin)
    inner = admin.inner
    assert isinstance(inner, AdminClient)
    return inner


def outcomes(futures: Mapping[T, Future[Any]]) -> dict[T, Any]:
    """Wait for futures; return the result of each, or librdkafka's name of its error."""
    return {each: _outcome(future) for each, future in futures.items()}


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result(CALL_TIMEOUT_S)
    except confluent_kafka.KafkaException as failure:
        return failure.args[0].name()
