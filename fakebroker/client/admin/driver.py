"""Sends requests about many keys to their brokers: coordinators of groups, leaders of partitions ... (trio).

The driver looks up the brokers, sends the requests to them, and repeats requests for keys with retriable errors: at the
same broker or after another look-up, as the handler of the API says. Keys fail independently of each other. Follows
Kafka's `AdminApiDriver`.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from fakebroker.client.admin.batched_requests import (
    AdminApiHandler,
    RequestSender,
    failures,
)
from fakebroker.client.admin.descriptions import Node, Results
from fakebroker.client.backoff import Backoff
from fakebroker.client.connection import Connection
from fakebroker.client.errors import AdminError, AuthenticationFailed, BrokerUnreachable, UnsupportedVersion
from fakebroker.client.pool import BrokerPool
from fakebroker.errors import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")

_Step = Callable[[Sequence[Any], int], Awaitable[None]]
"""Sends requests about some keys; the attempt is counted from 0."""


class AdminApiDriver(Generic[K, V]):
    """One call of the admin client about several keys.

    Args:
        pool: Connections to brokers.
        sender: Sends the requests.
        backoff: Delays between attempts.
        lookup: The look-up of the keys' brokers, at any broker.
        handler: The requests to these brokers. None if the brokers are only looked up; V is `Node` then.
    """

    def __init__(
        self,
        pool: BrokerPool,
        sender: RequestSender,
        backoff: Backoff,
        lookup: AdminApiHandler[K, Node],
        handler: AdminApiHandler[K, V] | None,
    ) -> None:
        self._pool, self._sender, self._backoff = pool, sender, backoff
        self._lookup, self._handler = lookup, handler
        self._outcomes: dict[K, Any] = {}
        self._last_errors: dict[K, AdminError] = {}
        self._refusal: AuthenticationFailed | UnsupportedVersion | None = None
        self._nursery: trio.Nursery

    async def run(self, keys: Sequence[K], timeout_ms: float) -> Results[K, V]:
        """Send requests until each key has a value or an error that is not retriable, or until the timeout.

        Raises:
            UnsupportedVersion: A broker supports only one key per request, and `fall_back` of the sender is False.
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
        answers = await self._send(self._lookup, keys, self._pool.any, None)
        found: dict[Node, list[K]] = {}
        errors: dict[K, AdminError] = {}
        for key, answer in answers.items():
            if isinstance(answer, Node):
                found.setdefault(answer, []).append(key)
            else:
                errors[key] = answer
        for node, its_keys in found.items():
            self._pool.learn(node.node_id, node.host, node.port)
            if self._handler is None:
                self._outcomes.update(dict.fromkeys(its_keys, node))
            else:
                self._nursery.start_soon(self._send_to, node, self._handler, its_keys, attempt)
        self._complete(self._lookup, errors, attempt, self._find)

    async def _send_to(self, node: Node, handler: AdminApiHandler[K, V], keys: Sequence[K], attempt: int) -> None:
        answers = await self._send(handler, keys, partial(self._pool.to, node.node_id), node)
        otherwise = None if handler.otherwise is None else partial(self._send_to, node, handler.otherwise)
        self._complete(handler, answers, attempt, partial(self._send_to, node, handler), otherwise)

    async def _send(
        self,
        handler: AdminApiHandler[K, W],
        keys: Sequence[K],
        connect: Callable[[], Awaitable[Connection]],
        node: Node | None,
    ) -> dict[K, W | AdminError]:
        try:
            return await self._sender.send_batched(handler, keys, await connect(), node)
        except BrokerUnreachable as error:
            return failures(handler, keys, ErrorCode.NETWORK_EXCEPTION, error)
        except (AuthenticationFailed, UnsupportedVersion) as refusal:
            self._refusal = refusal
            self._nursery.cancel_scope.cancel()
            return {}

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
