"""The clients of other languages that run in another process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pytest

from tests.support.kafka_clients import go_client, java_client
from tests.support.kafka_clients.client import GroupConsumer, Place, Record, Settings
from tests.support.soak import IS_SOAK, soak


class Transformer(Protocol):
    """A member that produces what it reads to another topic, and commits its offsets, in transactions."""

    def subscribe(self, topic: str) -> None: ...

    def assignment(self) -> list[Place]: ...

    def transform(self, *, commits: bool = True) -> list[Record]:
        """Read records, and produce them in one transaction. Return them, unless a rebalance has aborted it.

        After an aborted transaction the records are read again.

        Raises:
            DriverError: The transaction has failed for good.
        """

    def close(self) -> None:
        """Leave the group. Does not end a transaction."""


@dataclass(frozen=True)
class RemoteClient:
    """A client.

    Attributes:
        name: Its name in ids of tests.
        programs: The programs that it needs.
        member: Makes a member from bootstrap servers and settings.
        produce: Produces records: bootstrap servers, topic, records.
        transformer: Makes a transformer from bootstrap servers, settings, the output and a transactional id. None for
            a client without transactions.
        knows_its_partitions: Whether members tell their partitions.
    """

    name: str
    programs: tuple[str, ...] = field(repr=False)
    member: Callable[[str, Settings], GroupConsumer] = field(repr=False)
    produce: Callable[[str, str, Sequence[Record]], None] = field(repr=False)
    transformer: Callable[[str, Settings, str, str], Transformer] | None = field(repr=False)
    knows_its_partitions: bool = field(default=True, repr=False)


def _java(name: str, make: type[java_client.JavaConsumer]) -> RemoteClient:
    transformer = partial(java_client.JavaTransformer, make)
    return RemoteClient(name, ("java", "javac", "mvn"), make, java_client.produce, transformer)


def _go(name: str, *, transactions: bool = True, knows_its_partitions: bool = True) -> RemoteClient:
    return RemoteClient(
        name,
        ("go",),
        partial(go_client.GoConsumer, name),
        partial(go_client.produce, name),
        partial(go_client.GoTransformer, name) if transactions else None,
        knows_its_partitions,
    )


JAVA = _java("java", java_client.JavaConsumer)
KIP_848_JAVA = _java("java-consumer-protocol", java_client.Kip848JavaConsumer)
FRANZ_GO, SARAMA = _go("franz-go"), _go("sarama")
KAFKA_GO = _go("kafka-go", transactions=False, knows_its_partitions=False)

REMOTE_CLIENTS = (JAVA, KIP_848_JAVA, FRANZ_GO, SARAMA, KAFKA_GO)


def of_each(*clients: RemoteClient) -> pytest.MarkDecorator:
    """Return a mark that runs a test with each of these clients, and skips it if a program is missing."""
    params = [pytest.param(each, marks=pytest.mark.needs(*each.programs), id=each.name) for each in clients]
    return pytest.mark.parametrize("client", params)


def only_in_soak(*clients: RemoteClient) -> list[Any]:
    """Return the members of these clients as parameters of tests that run with them in `make soak`, and only there."""
    if not IS_SOAK:
        return []
    return [
        pytest.param(each.member, marks=[soak, pytest.mark.needs(*each.programs)], id=each.name) for each in clients
    ]
