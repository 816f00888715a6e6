"""Requests about many keys to one broker: batched where the broker supports it, otherwise one request per key (trio).

Handles versions, batch sizes and timeouts; `driver.py` chooses brokers and retries.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import msgspec
import trio

from fakebroker.client.admin.descriptions import Node
from fakebroker.client.connection import Connection
from fakebroker.client.coordinators import COORDINATOR_BUSY, COORDINATOR_MOVED, batches
from fakebroker.client.errors import AdminError, ConnectionLost, UnsupportedVersion
from fakebroker.client.versions import FIRST_BATCHED_VERSION, is_batched
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message, Versions

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_KEYS_PER_REQUEST = 10_000
"""Maximum batch size; a response with offsets of that many groups has a few megabytes."""

MAX_REQUESTS_IN_FLIGHT = 100
"""Maximum number of requests of one call in flight at a broker; they are sent in one write."""


class AdminApiHandler(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """An API call about several keys, such as groups or partitions (Kafka's `AdminApiHandler`).

    Says how requests are built, how responses are read, and which errors are retried.

    Attributes:
        api: The API's name in Kafka.
        request: Builds a request about at most `max_keys` keys.
        read: Yields the value or error of each key in a response (in the layout of the newest version). Its other
            arguments are the keys of the request and the broker, which is None in look-ups of brokers.
        fails: Creates the error of one key.
        busy: Errors after which the request is sent again to the same broker.
        moved: Errors after which the broker is looked up again; NETWORK_EXCEPTION is always one of them.
        max_keys: Maximum number of keys per request.
        not_batched: Raised if the broker supports only one key per request and `fall_back` is False.
        otherwise: The API call that the same broker gets about keys with one of the errors in `otherwise_after`.
    """

    api: str
    request: Callable[[Sequence[K]], Message]
    read: Callable[[Any, Sequence[K], Node | None], Iterable[tuple[K, V | AdminError]]]
    fails: Callable[[K, str, ErrorCode, str | None], AdminError]
    busy: Collection[ErrorCode] = COORDINATOR_BUSY
    moved: Collection[ErrorCode] = COORDINATOR_MOVED
    max_keys: int = MAX_KEYS_PER_REQUEST
    not_batched: type[UnsupportedVersion] = UnsupportedVersion
    otherwise: "AdminApiHandler[K, V] | None" = None
    otherwise_after: Collection[ErrorCode] = ()

    def error(self, key: K, error: ErrorCode, why: str | None = None) -> AdminError:
        """Return the error of one key."""
        return self.fails(key, self.api, error, why)


class RequestSender(msgspec.Struct, frozen=True):
    """Sends requests and waits for their responses.

    Attributes:
        fall_back: Whether a broker without batches gets one request per key.
        request_timeout_ms: A connection without a response for this long is closed.
    """

    fall_back: bool
    request_timeout_ms: float

    async def send_batched(
        self, handler: AdminApiHandler[K, V], keys: Sequence[K], connection: Connection, node: Node | None
    ) -> dict[K, V | AdminError]:
        """Send requests about several keys to one broker.

        Returns:
            For each key its value or error: NETWORK_EXCEPTION if the connection was lost, UNSUPPORTED_VERSION if the
            broker does not support the request.

        Raises:
            UnsupportedVersion: `handler.not_batched`, if `fall_back` is False.
        """
        answers: dict[K, V | AdminError] = {}
        parts = self._parts(handler, keys, connection)
        for start in range(0, len(parts), MAX_REQUESTS_IN_FLIGHT):
            requests: list[tuple[Sequence[K], Message]] = []
            for part in parts[start : start + MAX_REQUESTS_IN_FLIGHT]:
                request = handler.request(part)
                try:
                    connection.versions.version_of(request)
                except UnsupportedVersion as error:
                    unsupported = failures(handler, part, ErrorCode.UNSUPPORTED_VERSION, error)
                    answers |= unsupported
                else:
                    requests.append((part, request))
            answered = await self._exchange(handler, requests, connection, node)
            answers |= answered
        return answers

    async def send_one(self, connection: Connection, request: Message) -> Any:
        """Send one request and return its response.

        Raises:
            ConnectionLost: The connection was lost, or there was no response in time.
            UnsupportedVersion: The broker does not support the request.
        """
        try:
            with self._timeout():
                return await connection.request(request)
        except trio.TooSlowError:
            await connection.aclose()
            raise ConnectionLost(self._too_slow(connection)) from None

    def _parts(self, handler: AdminApiHandler[K, V], keys: Sequence[K], connection: Connection) -> list[Sequence[K]]:
        """Divide the keys into requests."""
        api = API_BY_NAME[handler.api]
        theirs = connection.versions.theirs.get(api.key)
        version = api.versions.last if theirs is None else theirs.last
        if len(keys) > 1 and not self.fall_back and not is_batched(api.request, version):
            ours = Versions(FIRST_BATCHED_VERSION[api.request], api.versions.last)
            raise handler.not_batched(handler.api, theirs, ours, connection.broker)
        return batches(api.request, version, keys, handler.max_keys)

    async def _exchange(
        self,
        handler: AdminApiHandler[K, V],
        requests: Sequence[tuple[Sequence[K], Message]],
        connection: Connection,
        node: Node | None,
    ) -> dict[K, V | AdminError]:
        """Send requests, then receive their responses."""
        answers: dict[K, V | AdminError] = {}
        try:
            with self._timeout():
                sent = await connection.send([request for _, request in requests])
            for (part, _), waiting in zip(requests, sent, strict=True):
                with self._timeout() if waiting.is_open else nullcontext():
                    answers.update(handler.read(await waiting.answer(), part, node))
        except trio.TooSlowError:
            await connection.aclose()
            why = self._too_slow(connection)
        except ConnectionLost as error:
            why = f"{connection.broker}: {error}"
        else:
            missing = [key for part, _ in requests for key in part if key not in answers]
            what = f"no result in the response of {connection.broker}"
            return answers | failures(handler, missing, ErrorCode.UNKNOWN_SERVER_ERROR, what)
        lost = [key for part, _ in requests for key in part if key not in answers]
        return answers | failures(handler, lost, ErrorCode.NETWORK_EXCEPTION, why)

    def _timeout(self) -> AbstractContextManager[object]:
        return trio.fail_after(self.request_timeout_ms / 1000)

    def _too_slow(self, connection: Connection) -> str:
        return f"no response from {connection.broker} within {self.request_timeout_ms:g} ms"


def failures(
    handler: AdminApiHandler[K, V], keys: Iterable[K], error: ErrorCode, why: str | FakebrokerError
) -> dict[K, V | AdminError]:
    """Return the same error for several keys; `why` becomes its cause if it is an exception."""
    made: dict[K, V | AdminError] = {}
    for key in keys:
        made[key] = failure = handler.error(key, error, str(why))
        failure.__cause__ = why if isinstance(why, FakebrokerError) else None
    return made
