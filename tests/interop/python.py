"""kafka-python in the vocabulary of the tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from tests.interop.clients import (
    CALL_TIMEOUT_S,
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_S,
    Client,
    Place,
    Record,
    Settings,
)


class PythonConsumer:
    """A consumer of kafka-python; `inner` is its own object."""

    def __init__(self, servers: str, settings: Settings) -> None:
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
        )

    def subscribe(self, topic: str) -> None:
        self.inner.subscribe([topic])
        # It must know the partitions before it joins: a leader that learns of them later joins again, and if a poll
        # ends in the middle of that, it takes the second join for done, and never reads.
        self.inner.partitions_for_topic(topic)

    def subscribe_pattern(self, pattern: str) -> None:
        self.inner.subscribe(pattern=pattern)

    def assign(self, place: Place) -> None:
        self.inner.assign([TopicPartition(*place)])
        self.inner.seek_to_beginning()

    def poll(self) -> list[Record]:
        batches = self.inner.poll(timeout_ms=int(POLL_S * 1000))
        return [_record(record) for batch in batches.values() for record in batch]

    def assignment(self) -> list[Place]:
        return sorted((place.topic, place.partition) for place in self.inner.assignment())

    def commit(self) -> None:
        self.inner.commit(timeout_ms=CALL_TIMEOUT_S * 1000)

    def committed(self, place: Place) -> int | None:
        found: int | None = self.inner.committed(TopicPartition(*place), timeout_ms=CALL_TIMEOUT_S * 1000)
        return found

    def seek(self, place: Place, offset: int) -> None:
        self.inner.seek(TopicPartition(*place), offset)

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        (found,) = self.inner.offsets_for_times({TopicPartition(*place): timestamp_ms}).values()
        return found.offset if found else None

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        first, end = self.inner.beginning_offsets([partition]), self.inner.end_offsets([partition])
        return first[partition], end[partition]

    def close(self) -> None:
        self.inner.close()


def _record(record: Any) -> Record:
    return Record(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        partition=record.partition,
    )


class PythonAdmin:
    """An admin client of kafka-python."""

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


KAFKA_PYTHON = Client("kafka-python", PythonConsumer, PythonAdmin, produce)
