"""What the tests ask of every real client, in one vocabulary; each client's own words stand in a file of its own.

Knows no client.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

CALL_TIMEOUT_S = 30
"""How long a call of a client may take; only a broken one takes so long."""

POLL_S = 0.05
FETCH_WAIT_MS = 100
HEARTBEAT_INTERVAL_MS = 100
"""Short, so that members hear of a rebalance soon."""

Headers = tuple[tuple[str, bytes], ...]
Place = tuple[str, int]
"""A topic and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record, to be produced or consumed."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def record_of(consumed: Any) -> Record:
    """A record as clients written in Python give it: they have the same names for what is in it."""
    return Record(
        value=consumed.value,
        key=consumed.key,
        headers=tuple(consumed.headers),
        timestamp_ms=consumed.timestamp,
        partition=consumed.partition,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """How a consumer is set up. None of them commits by itself.

    Attributes:
        metadata_max_age_ms: How often it looks for new topics and partitions; here as in Kafka by default.
    """

    group_id: str | None = None
    client_id: str = "interop"
    instance_id: str | None = None
    session_timeout_ms: int = 30_000
    offset_reset: str = "earliest"
    metadata_max_age_ms: int = 300_000


class GroupConsumer(Protocol):
    """A consumer that shares topics with its group."""

    def subscribe(self, topic: str) -> None: ...

    def poll(self) -> list[Record]:
        """What has come, if need be after a short wait."""

    def assignment(self) -> list[Place]:
        """The partitions it reads, sorted."""

    def commit(self) -> None:
        """Commit all that `poll` has given, and wait for the answer."""

    def close(self) -> None: ...


class Consumer(GroupConsumer, Protocol):
    """A consumer of any client."""

    def subscribe_pattern(self, pattern: str) -> None:
        """Read all topics with names that match a regular expression that begins with ^."""

    def assign(self, place: Place) -> None:
        """Read one partition, from its first record on, without a group."""

    def committed(self, place: Place) -> int | None: ...

    def seek(self, place: Place, offset: int) -> None: ...

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None: ...

    def first_and_end_offsets(self, place: Place) -> tuple[int, int]: ...


class Admin(Protocol):
    """An admin client of any client. What the cluster refuses is raised, as a client's own exception."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def partition_counts(self) -> dict[str, int]:
        """All topics, without those that are Kafka's own."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Client:
    """A real client.

    Attributes:
        consumer: Makes a consumer out of bootstrap servers and settings.
        admin: Makes an admin client out of bootstrap servers.
        produce: Produces records to a topic with a compression, and waits until all are there.
    """

    name: str
    consumer: Callable[[str, Settings], Consumer] = field(repr=False)
    admin: Callable[[str], Admin] = field(repr=False)
    produce: Callable[[str, str, Sequence[Record], str | None], None] = field(repr=False)


StartConsumer = Callable[..., Consumer]
"""Makes a consumer out of a client and the fields of `Settings`, by name."""

StartAdmin = Callable[[Client], Admin]
"""Makes an admin client out of a client."""
