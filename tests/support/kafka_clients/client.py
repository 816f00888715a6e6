"""Interfaces of consumers, producers and admin clients, so that one test runs with several Kafka clients.

Does not depend on any client; the other modules of this package implement the interfaces.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

CALL_TIMEOUT_S = 30
"""Maximum duration of a client's call; reached only if a test fails."""

POLL_S = 0.05
FETCH_WAIT_MS = 100
HEARTBEAT_INTERVAL_MS = 100
"""Short, because members learn of a rebalance by the response to a heartbeat."""

Headers = tuple[tuple[str, bytes], ...]
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """A produced or consumed record."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def record_of(consumed: Any) -> Record:
    """Return a record that was consumed by aiokafka or kafka-python, whose attributes have the same names."""
    return Record(
        value=consumed.value,
        key=consumed.key,
        headers=tuple(consumed.headers),
        timestamp_ms=consumed.timestamp,
        partition=consumed.partition,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Configuration of a consumer. Automatic commits are disabled.

    Attributes:
        offset_reset: "earliest" or "latest".
        metadata_max_age_ms: Interval of metadata requests, which find new topics and partitions. Kafka's default.
        rack: The rack of the client; empty if it has none. Not supported by fakebroker's consumer.
        isolation_level: "read_committed" or "read_uncommitted"; the default of the client if None.
    """

    group_id: str | None = None
    client_id: str = "interop"
    instance_id: str | None = None
    session_timeout_ms: int = 30_000
    offset_reset: str = "earliest"
    metadata_max_age_ms: int = 300_000
    rack: str = ""
    isolation_level: str | None = None


class Poller(Protocol):
    """The part of a consumer that a loop needs."""

    def poll(self) -> list[Record]:
        """Return new records, after a wait of `POLL_S` at most."""


class GroupConsumer(Poller, Protocol):
    """The part of a consumer that members of a group need."""

    def subscribe(self, topic: str) -> None: ...

    def assignment(self) -> list[Place]:
        """Return the assigned partitions, sorted."""

    def commit(self) -> None:
        """Commit the offsets after all records that `poll` returned, and wait for the response."""

    def close(self) -> None: ...


class Consumer(GroupConsumer, Protocol):
    """A consumer."""

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to all topics whose name matches a regular expression, which begins with ^."""

    def assign(self, place: Place) -> None:
        """Read one partition from its first record, without joining a group."""

    def committed(self, place: Place) -> int | None: ...

    def seek(self, place: Place, offset: int) -> None: ...

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None: ...

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]: ...


class Admin(Protocol):
    """An admin client. Errors in responses are raised as exceptions of the client library."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic, without internal topics."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class KafkaClient:
    """A client library.

    Attributes:
        name: Name of the package, used in ids of tests.
        consumer: Creates a consumer from bootstrap servers and settings.
        admin: Creates an admin client from bootstrap servers.
        produce: Produces records and waits for the acknowledgments: bootstrap servers, topic, records, compression.
    """

    name: str
    consumer: Callable[[str, Settings], Consumer] = field(repr=False)
    admin: Callable[[str], Admin] = field(repr=False)
    produce: Callable[[str, str, Sequence[Record], str | None], None] = field(repr=False)


StartConsumer = Callable[..., Consumer]
"""Starts a consumer of a client; keyword arguments are fields of `Settings`."""

StartAdmin = Callable[[KafkaClient], Admin]
"""Starts an admin client."""
