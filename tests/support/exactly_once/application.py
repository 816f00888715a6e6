"""The interface of an application that consumes, transforms and produces in transactions.

Does not depend on any client; one module per client implements it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

INPUT, OUTPUT = "input", "output"
"""The topics of an application. The input has one partition."""

GROUP_ID = "application"
TRANSACTIONAL_ID = "application"

RETRY_MS = 5
"""Delay of retries and new connections of clients, so that tests with many failures are fast."""


class Application(Protocol):
    """One process: a consumer of the input, and a producer that has fenced its predecessors when it is created.

    The methods raise one of `Client.errors` if a request has failed for good.
    """

    def committed(self) -> int:
        """Return the committed offset of the group in the input; 0 if there is none."""

    def read(self, offset: int, count: int) -> list[bytes]:
        """Return this number of values of the input, from an offset on. There must be as many."""

    def begin(self) -> None:
        """Begin a transaction."""

    def produce(self, partition: int, value: bytes) -> None:
        """Produce a record to a partition of the output. Errors may be raised later, at the latest by `commit`."""

    def flush(self) -> None:
        """Wait until all records are acknowledged."""

    def send_offset(self, offset: int) -> None:
        """Add the offset of the input to the transaction."""

    def commit(self, timeout_s: float) -> None:
        """Commit the transaction.

        Args:
            timeout_s: Maximum duration; then the result is unknown, and only `crash` is allowed.
        """

    def can_abort(self) -> bool:
        """Whether the transaction can be aborted after an error: the client knows that it is not committed."""

    def abort(self) -> None:
        """Abort the transaction."""

    def crash(self) -> None:
        """End without ending the transaction."""


@dataclass(frozen=True)
class Client:
    """A client library.

    Attributes:
        name: Name of the package, used in ids of tests.
        start: Starts an application: bootstrap servers, client id. Its producer is initialized when it returns.
        read_committed: Returns the committed values of each partition of the output: bootstrap servers, number of
            partitions.
        errors: The exceptions that the methods of an application raise.
        api_versions: The versions of APIs that brokers must be limited to, because of faults of the client.
    """

    name: str
    start: Callable[[str, str], Application] = field(repr=False)
    read_committed: Callable[[str, int], list[list[bytes]]] = field(repr=False)
    errors: tuple[type[Exception], ...] = field(repr=False)
    api_versions: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False, hash=False)


def checked_offset(offset: int | None) -> int:
    """Return a committed offset, where clients represent the absence of one by None or a negative number."""
    return 0 if offset is None or offset < 0 else offset
