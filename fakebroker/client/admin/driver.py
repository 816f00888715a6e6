"""Sends requests about many keys, such as group ids, to the coordinators of the keys (trio; Kafka's `AdminApiDriver`).

The driver looks up the coordinators, sends the requests to them, and repeats requests for keys with retriable errors.
After the errors in `COORDINATOR_BUSY`, it asks the same coordinator again. After other retriable errors, it looks up
the coordinator again. Keys fail independently of each other.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from fakebroker.client.coordinators import COORDINATOR_BUSY, RETRIABLE_ERRORS
from fakebroker.client.errors import AdminError, BrokerUnreachable, UnsupportedVersion
from fakebroker.client.pool import BrokerPool
from fakebroker.errors import ErrorCode

V = TypeVar("V")
W = TypeVar("W")

_Step = Callable[[Sequence[str], int], Awaitable[None]]
"""Sends requests about some keys; the attempt is counted from 0."""


class AdminApiDriver(Generic[V]):
    """One call of the admin client about several keys.

    Args:
        pool: Connections to brokers.
        sender: Sends the requests.
        backoff: Delays between attempts.
        lookup: The look-up of coordinators, at any broker.
        handler: The requests to the coordinators. None if only the coordinators are looked up; V is `Node` then.
    """

    def __init__(
        self,
        pool: BrokerPool,
        sender: RequestSender,
        backoff: Backoff,
        lookup: AdminApiHandler[Node],
        handler: AdminApiHandler[V] | None,
    ) -> None:
        self._pool, self._sender, self._backoff = pool, sender, backoff
        self._lookup, self._handler = lookup, handler
        self._outcomes: dict[str, Any] = {}
        self._last_errors: dict[str, AdminError] = {}
        self._refusal: UnsupportedVersion | None = None
        self._nursery: trio.Nursery

    async def run(self, keys: Sequence[str], timeout_ms: float) -> Results[V]:
        """Send requests until each key has a value or an error that is not retriable, or until the timeout.

        Raises:
            UnsupportedVersion: A broker supports only one key per request, and `fall_back` of the sender is False.
        """
        if keys:
            with trio.move_on_after(timeout_ms / 1000):
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._find, keys, 0)
        if self._refusal is not None:
            raise self._refusal
        outcomes = self._outcomes
        return Results({key: outcomes[key] if key in outcomes else self._timed_out(key, timeout_ms) for key in keys})

    def _timed_out(self, key: str, timeout_ms: float) -> AdminError:
        seen = self._last_errors.get(key)
        last = f"last error: {seen.what}" if seen else "no response"
        handler: AdminApiHandler[Any] = self._handler or self._lookup
        return handler.error(key, ErrorCode.REQUEST_TIMED_OUT, f"timed out after {timeout_ms:g} ms; {last}")

    async def _find(self, keys: Sequence[str], attempt: int) -> None:
        """Look up coordinators, and start a task for each of them with its keys."""
        answers = await self._send(self._lookup, keys, self._pool.any, None)
        found: dict[Node, list[str]] = {}
        errors: dict[str, AdminError] = {}
        for key, answer in answers.items():
            if isinstance(answer, Node):
                found.setdefault(answer, []).append(key)
            else:
                errors[key] = answer
        for coordinator, its_keys in found.items():
            self._pool.learn(coordinator.node_id, coordinator.host, coordinator.port)
            if self._handler is None:
                self._outcomes.update(dict.fromkeys(its_keys, coordinator))
            else:
                self._nursery.start_soon(self._send_to, coordinator, self._handler, its_keys, attempt)
        self._complete(errors, attempt, self._find)

    async def _send_to(self, coordinator: Node, handler: AdminApiHandler[V], keys: Sequence[str], attempt: int) -> None:
        answers = await self._send(handler, keys, partial(self._pool.to, coordinator.node_id), coordinator)
        self._complete(answers, attempt, partial(self._send_to, coordinator, handler))

    async def _send(
        self,
        handler: AdminApiHandler[W],
        keys: Sequence[str],
        connect: Callable[[], Awaitable[Connection]],
        node: Node | None,
    ) -> dict[str, W | AdminError]:
        try:
            return await self._sender.send_batched(handler, keys, await connect(), node)
        except BrokerUnreachable as error:
            return failures(handler, keys, ErrorCode.NETWORK_EXCEPTION, error)
        except UnsupportedVersion as refusal:
            self._refusal = refusal
            self._nursery.cancel_scope.cancel()
            return {}

    def _complete(self, answers: Mapping[str, V | AdminError], attempt: int, retry: _Step) -> None:
        """Take values and final errors, and schedule retries for the other keys."""
        retries: dict[_Step, list[str]] = {}
        for key, answer in answers.items():
            error = answer.error if isinstance(answer, AdminError) else ErrorCode.NONE
            if isinstance(answer, AdminError) and error in RETRIABLE_ERRORS:
                self._last_errors[key] = answer
                retries.setdefault(retry if error in COORDINATOR_BUSY else self._find, []).append(key)
            else:
                self._outcomes[key] = answer
        for step, keys in retries.items():
            self._nursery.start_soon(self._later, step, keys, attempt)

    async def _later(self, step: _Step, keys: Sequence[str], attempt: int) -> None:
        await trio.sleep(self._backoff.delay_ms(attempt) / 1000)
        await step(keys, attempt + 1)
