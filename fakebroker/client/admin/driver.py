"""Requests about many keys to their brokers: coordinators of groups, leaders of partitions ... (trio).

The driver looks up the brokers, sends the requests to them, and repeats requests for keys with retriable errors: at the
same broker or after another look-up, as the handler of the API says. Keys fail independently of each other. Follows
Kafka's `AdminApiDriver`.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import trio

from fakebroker.client.admin.descriptions import Node, Results
from fakebroker.client.backoff import Backoff
from fakebroker.client.brokers import MAX_KEYS, Exchange
from fakebroker.client.coordinators import COORDINATOR_BUSY, COORDINATOR_MOVED
from fakebroker.client.errors import (
    AdminError,
    AuthenticationFailed,
    BrokerUnreachable,
    ConnectionLost,
    UnsupportedVersion,
)
from fakebroker.client.trio_brokers import TrioBrokers
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")

_Step = Callable[[Sequence[Any], int], Awaitable[None]]
"""Sends requests about some keys; the attempt is counted from 0."""


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
    max_keys: int = MAX_KEYS
    not_batched: type[UnsupportedVersion] = UnsupportedVersion
    otherwise: "AdminApiHandler[K, V] | None" = None
    otherwise_after: Collection[ErrorCode] = ()

    def error(self, key: K, error: ErrorCode, why: str | None = None) -> AdminError:
        """Return the error of one key."""
        return self.fails(key, self.api, error, why)


class AdminApiDriver(Generic[K, V]):
    """One call of the admin client about several keys.

    Args:
        brokers: Sends the requests.
        backoff: Delays between attempts.
        lookup: The look-up of the keys' brokers, at any broker.
        handler: The requests to these brokers. None if the brokers are only looked up; V is `Node` then.
        fall_back: Whether a broker without batches gets one request per key.
    """

    def __init__(
        self,
        brokers: TrioBrokers,
        backoff: Backoff,
        lookup: AdminApiHandler[K, Node],
        handler: AdminApiHandler[K, V] | None,
        *,
        fall_back: bool,
    ) -> None:
        self._brokers, self._backoff, self._fall_back = brokers, backoff, fall_back
        self._lookup, self._handler = lookup, handler
        self._outcomes: dict[K, Any] = {}
        self._last_errors: dict[K, AdminError] = {}
        self._refusal: AuthenticationFailed | UnsupportedVersion | None = None
        self._nursery: trio.Nursery

    async def run(self, keys: Sequence[K], timeout_ms: float) -> Results[K, V]:
        """Send requests until each key has a value or an error that is not retriable, or until the timeout.

        Raises:
            UnsupportedVersion: A broker supports only one key per request, and `fall_back` is False.
            AuthenticationFailed: A broker has refused this client.
        """
        if keys:
            with trio.move_on_after(timeout_ms / 1000):
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._find, keys, 0)
        if self._refusal is not None:
            raise self._refusal
        outcomes = self._outcomes
        return Results({key: outcomes[key] if key in outcomes else self._timed_out(key, timeout_ms) for key in keys})

    def _timed_out(self, key: K, timeout_ms: float) -> AdminError:
        seen = self._last_errors.get(key)
        last = f"last error: {seen.what}" if seen else "no response"
        handler: AdminApiHandler[K, Any] = self._handler or self._lookup
        return handler.error(key, ErrorCode.REQUEST_TIMED_OUT, f"timed out after {timeout_ms:g} ms; {last}")

    async def _find(self, keys: Sequence[K], attempt: int) -> None:
        """Look up brokers, and start a task for each of them with its keys."""
        answers = await self._send(self._lookup, keys, None)
        found: dict[Node, list[K]] = {}
        errors: dict[K, AdminError] = {}
        for key, answer in answers.items():
            if isinstance(answer, Node):
                found.setdefault(answer, []).append(key)
            else:
                errors[key] = answer
        for node, its_keys in found.items():
            self._brokers.learn(node.node_id, node.host, node.port)
            if self._handler is None:
                self._outcomes.update(dict.fromkeys(its_keys, node))
            else:
                self._nursery.start_soon(self._send_to, node, self._handler, its_keys, attempt)
        self._complete(self._lookup, errors, attempt, self._find)

    async def _send_to(self, node: Node, handler: AdminApiHandler[K, V], keys: Sequence[K], attempt: int) -> None:
        answers = await self._send(handler, keys, node)
        otherwise = None if handler.otherwise is None else partial(self._send_to, node, handler.otherwise)
        self._complete(handler, answers, attempt, partial(self._send_to, node, handler), otherwise)

    async def _send(
        self, handler: AdminApiHandler[K, W], keys: Sequence[K], node: Node | None
    ) -> dict[K, W | AdminError]:
        """Send requests about several keys to one broker, None for any, and return the value or error of each."""
        kind, node_id = API_BY_NAME[handler.api].request, None if node is None else node.node_id
        not_batched = None if self._fall_back else handler.not_batched
        brokers, build, max_keys = self._brokers, handler.request, handler.max_keys
        exchanges = await brokers.exchanges(
            lambda done: brokers.send_batches(
                kind, keys, build, done, node_id=node_id, max_keys=max_keys, not_batched=not_batched
            ),
            lambda ended: sum(len(each.keys) for each in ended) == len(keys),
        )
        answers: dict[K, W | AdminError] = {}
        for exchange in exchanges:
            self._read(exchange, handler, node, answers)
        return answers

    def _read(
        self,
        exchange: Exchange,
        handler: AdminApiHandler[K, W],
        node: Node | None,
        answers: dict[K, W | AdminError],
    ) -> None:
        failure, is_divided = exchange.failure, exchange.request is not None
        if isinstance(failure, AuthenticationFailed) or (isinstance(failure, UnsupportedVersion) and not is_divided):
            self._refusal = failure
            self._nursery.cancel_scope.cancel()
        elif failure is None:
            answers.update(handler.read(exchange.response, exchange.keys, node))
            missing = [key for key in exchange.keys if key not in answers]
            what = f"no result in the response of {exchange.broker}"
            answers.update(_failures(handler, missing, ErrorCode.UNKNOWN_SERVER_ERROR, what))
        else:
            is_lost = isinstance(failure, BrokerUnreachable | ConnectionLost)
            error = ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.UNSUPPORTED_VERSION
            answers.update(_failures(handler, exchange.keys, error, failure))

    def _complete(
        self,
        handler: AdminApiHandler[K, W],
        answers: Mapping[K, W | AdminError],
        attempt: int,
        send_again: _Step,
        otherwise: _Step | None = None,
    ) -> None:
        """Take values and final errors, and schedule retries for the other keys."""
        busy: list[K] = []
        moved: list[K] = []
        others: list[K] = []
        for key, answer in answers.items():
            error = answer.error if isinstance(answer, AdminError) else ErrorCode.NONE
            if error in handler.otherwise_after:
                others.append(key)
                continue
            if error in handler.busy:
                busy.append(key)
            elif error in handler.moved or error is ErrorCode.NETWORK_EXCEPTION:
                moved.append(key)
            else:
                self._outcomes[key] = answer
                continue
            assert isinstance(answer, AdminError)
            self._last_errors[key] = answer
        if otherwise is not None and others:
            self._nursery.start_soon(otherwise, others, attempt)
        for step, keys in ((send_again, busy), (self._find, moved)):
            if keys:
                self._nursery.start_soon(self._later, step, keys, attempt)

    async def _later(self, step: _Step, keys: Sequence[K], attempt: int) -> None:
        await trio.sleep(self._backoff.delay_ms(attempt) / 1000)
        await step(keys, attempt + 1)


def _failures(
    handler: AdminApiHandler[K, Any], keys: Iterable[K], error: ErrorCode, why: str | FakebrokerError
) -> dict[K, AdminError]:
    """Return the same error for several keys; `why` becomes its cause if it is an exception."""
    made: dict[K, AdminError] = {}
    for key in keys:
        made[key] = failure = handler.error(key, error, str(why))
        failure.__cause__ = why if isinstance(why, FakebrokerError) else None
    return made
