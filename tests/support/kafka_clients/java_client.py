"""Kafka's Java clients and command-line tools, which run in another process."""

from collections.abc import Sequence
from typing import Any

from tests.support.kafka_clients.client import (
    CALL_TIMEOUT_S,
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_S,
    Place,
    Record,
    Settings,
)
from tests.support.kafka_clients.driver import DriverError, Remote, from_json, java_driver, to_json

_RETRIES: dict[str, Any] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}


class JavaConsumer:
    """A consumer that uses the classic protocol.

    Args:
        servers: Bootstrap servers.
        settings: The configuration that all clients have.
        more: Further configuration by Kafka's names.
    """

    def __init__(self, servers: str, settings: Settings, **more: Any) -> None:
        config = {
            **_RETRIES,
            "bootstrap.servers": servers,
            "client.id": settings.client_id,
            "auto.offset.reset": settings.offset_reset,
            "enable.auto.commit": False,
            "fetch.max.wait.ms": FETCH_WAIT_MS,
            "metadata.max.age.ms": settings.metadata_max_age_ms,
            "client.rack": settings.rack,
            "group.id": settings.group_id,
            "group.instance.id": settings.instance_id,
            "isolation.level": settings.isolation_level,
            **self._protocol(settings),
            **more,
        }
        config = {name: value for name, value in config.items() if value is not None}
        self._remote = Remote(java_driver(), "consumer", config=config)
        self.id = self._remote.id
        self._is_closed = False

    def _protocol(self, settings: Settings) -> dict[str, Any]:
        return {"session.timeout.ms": settings.session_timeout_ms, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}

    def subscribe(self, topic: str) -> None:
        self._remote.call("subscribe", topics=[topic])

    def subscribe_pattern(self, pattern: str) -> None:
        self._remote.call("subscribe_pattern", pattern=pattern)

    def poll(self) -> list[Record]:
        return from_json(self._remote.call("poll", ms=round(POLL_S * 1000)))

    def assignment(self) -> list[Place]:
        return sorted((topic, partition) for topic, partition in self._remote.call("assignment"))

    def assign(self, place: Place, offset: int) -> None:
        """Read one partition from an offset on, without joining a group."""
        self._call_at("assign", place, offset=offset)

    def committed(self, place: Place) -> int | None:
        found: int | None = self._call_at("committed", place)
        return found

    def end(self, place: Place) -> int:
        """Return the end of a partition for the isolation level of the consumer."""
        return int(self._call_at("end", place))

    def position(self, place: Place) -> int:
        """Return the offset of the next record of an assigned partition."""
        return int(self._call_at("position", place))

    def _call_at(self, name: str, place: Place, **arguments: Any) -> Any:
        topic, partition = place
        return self._remote.call(name, topic=topic, partition=partition, **arguments)

    def commit(self) -> None:
        self._remote.call("commit")

    def rewind(self) -> None:
        """Continue at the committed offsets."""
        self._remote.call("rewind")

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._remote.call("close")


class Kip848JavaConsumer(JavaConsumer):
    """A consumer that uses the consumer protocol (KIP-848). The brokers have its timeouts."""

    def _protocol(self, settings: Settings) -> dict[str, Any]:
        return {"group.protocol": "consumer"}

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to a regular expression that the brokers evaluate."""
        self._remote.call("subscribe_pattern_of_brokers", pattern=pattern)


class JavaProducer(Remote):
    """A producer.

    Args:
        servers: Bootstrap servers.
        more: Further configuration by Kafka's names.
    """

    def __init__(self, servers: str, **more: Any) -> None:
        super().__init__(
            java_driver(), "producer", config={**_RETRIES, "bootstrap.servers": servers, "linger.ms": 0, **more}
        )

    def produce(self, topic: str, records: Sequence[Record]) -> None:
        """Produce records and wait for the acknowledgments."""
        self.call("produce", topic=topic, records=to_json(records))

    def commit(self, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Commit the transaction."""
        self.call("commit", ms=round(timeout_s * 1000))


class JavaTransformer:
    """A member that produces what it reads to another topic, and commits its offsets, in transactions."""

    def __init__(self, make: type[JavaConsumer], servers: str, settings: Settings, output: str, name: str) -> None:
        self._output = output
        self._producer = JavaProducer(servers, **{"transactional.id": name})
        self._producer.call("init")
        self._consumer = make(servers, settings)
        self.subscribe = self._consumer.subscribe
        self.assignment = self._consumer.assignment

    def transform(self, *, commits: bool = True) -> list[Record]:
        """Read records, and produce them in one transaction. Return them, unless a rebalance has aborted it.

        Raises:
            DriverError: The transaction has failed for good.
        """
        read = self._consumer.poll()
        if not read:
            return []
        self._producer.call("begin")
        try:
            self._producer.produce(self._output, [Record(each.value, each.key) for each in read])
            self._producer.call("send_positions", consumer=self._consumer.id)
        except DriverError as error:
            if not str(error).startswith(("CommitFailed", "RebalanceInProgress")):
                raise
            self._abort()
            return []
        if commits:
            self._producer.commit()
        else:
            self._abort()
        return read

    def _abort(self) -> None:
        self._producer.call("abort")
        self._consumer.rewind()

    def close(self) -> None:
        self._consumer.close()
        self._producer.call("crash")


def produce(servers: str, topic: str, records: Sequence[Record]) -> None:
    """Produce records and wait for the acknowledgments."""
    producer = JavaProducer(servers)
    producer.produce(topic, records)
    producer.call("close")


def run_tool(main_class: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Run one of Kafka's command-line tools; return its output.

    Args:
        main_class: Its class in `org.apache.kafka.tools`, or a full name.
        arguments: Its arguments.
        stdin: Its input.
        status: The expected exit status.
    """
    name = main_class if main_class.startswith("kafka.") else f"org.apache.kafka.tools.{main_class}"
    found = java_driver().call("tool", arguments=arguments, stdin=stdin, **{"class": name})
    assert found["status"] == status, found["output"]
    return str(found["output"])


class WordCount(Remote):
    """A Kafka Streams application that counts words, exactly once."""

    def __init__(self, servers: str, state: str) -> None:
        config = {
            **_RETRIES,
            "bootstrap.servers": servers,
            "application.id": "words",
            "state.dir": state,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 100,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "num.stream.threads": 1,
        }
        super().__init__(java_driver(), "streams", config=config, input="lines", output="counts")
