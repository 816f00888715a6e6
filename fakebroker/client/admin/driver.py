"""Asking many groups' coordinators: look these up, ask each of them, then look up and ask again for what failed (trio).

After Kafka's `AdminApiDriver`. One thing's failure concerns that thing alone. Knows nothing of what is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import trio

from fakebroker.client.admin.batching import Asking, Question, failures
from fakebroker.client.admin.descriptions import Node
from fakebroker.client.admin.results import AdminError, Results
from fakebroker.client.connection import BrokerUnreachable, Connection, UnsupportedVersion
from fakebroker.client.pool import BrokerPool
from fakebroker.errors import ErrorCode

V = TypeVar("V")
W = TypeVar("W")

ASK_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
"""The coordinator is the right one and will be able to answer soon."""

LOOK_UP_AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION)
"""The coordinator is another one by now, or will be soon."""

_Step = Callable[[Sequence[str], int], Awaitable[None]]
"""Asks about some things, for the so manieth time, counted from 0 on."""


class Backoff:
    """How long to wait before trying again: twice as long each time, up to a limit (KIP-580, without its jitter)."""

    def __init__(self, first_ms: float, most_ms: float) -> None:
        self.first_ms, self.most_ms = first_ms, max(first_ms, most_ms)

    async def wait(self, attempt: int) -> None:
        """Wait; `attempt` counts from 0 on."""
        await trio.sleep(min(self.first_ms * 2 ** min(attempt, 30), self.most_ms) / 1000)


class Driver(ABC, Generic[V]):
    """One call about many groups, or other things that have coordinators.

    Args:
        pool: The brokers.
        asking: How they are asked.
        backoff: How long to wait before asking again.
        finding: Asks any broker for coordinators.
    """

    def __init__(self, pool: BrokerPool, asking: Asking, backoff: Backoff, finding: Question[Node]) -> None:
        self._pool, self._asking, self._backoff, self._finding = pool, asking, backoff, finding
        self._outcomes: dict[str, V | AdminError] = {}
        self._seen: dict[str, AdminError] = {}
        self._refusal: UnsupportedVersion | None = None
        self._nursery: trio.Nursery

    async def run(self, keys: Sequence[str], timeout_ms: float) -> Results[V]:
        """Ask until each thing has its value or an error that will stay, or time is up.

        Raises:
            UnsupportedVersion: A broker does not answer many at once, and falling back is forbidden.
        """
        if keys:
            with trio.move_on_after(timeout_ms / 1000):
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._find, keys, 0)
        if self._refusal is not None:
            raise self._refusal
        for key in keys:
            if key not in self._outcomes:
                self._outcomes[key] = self._late(key, timeout_ms)
        return Results({key: self._outcomes[key] for key in keys})

    @abstractmethod
    def _found(self, coordinator: Node, keys: Sequence[str], attempt: int) -> None:
        """These things' coordinator is known."""

    @abstractmethod
    def _late(self, key: str, timeout_ms: float) -> AdminError:
        """The error of a thing that has no other when time is up."""

    async def _find(self, keys: Sequence[str], attempt: int) -> None:
        """Look up coordinators, and go on at each with its things."""
        answers = await self._ask(self._finding, keys, self._pool.any, None)
        found: dict[Node, list[str]] = {}
        errors: dict[str, AdminError] = {}
        for key, answer in answers.items():
            if isinstance(answer, Node):
                found.setdefault(answer, []).append(key)
            else:
                errors[key] = answer
        for coordinator, its_keys in found.items():
            self._pool.learn(coordinator.node_id, coordinator.host, coordinator.port)
            self._found(coordinator, its_keys, attempt)
        self._settle(errors, attempt, self._find)

    async def _ask(
        self,
        question: Question[W],
        keys: Sequence[str],
        connect: Callable[[], Awaitable[Connection]],
        node: Node | None,
    ) -> dict[str, W | AdminError]:
        try:
            return await self._asking.about(question, keys, await connect(), node)
        except BrokerUnreachable as error:
            return failures(question, keys, ErrorCode.NETWORK_EXCEPTION, error)
        except UnsupportedVersion as refusal:
            self._refusal = refusal
            self._nursery.cancel_scope.cancel()
            return {}

    def _settle(self, answers: Mapping[str, V | AdminError], attempt: int, ask_again: _Step) -> None:
        """Take what there is, and ask for the rest again later."""
        later: dict[_Step, list[str]] = {}
        for key, answer in answers.items():
            error = answer.error if isinstance(answer, AdminError) else ErrorCode.NONE
            if isinstance(answer, AdminError) and error in (*ASK_AGAIN, *LOOK_UP_AGAIN):
                self._seen[key] = answer
                later.setdefault(ask_again if error in ASK_AGAIN else self._find, []).append(key)
            else:
                self._outcomes[key] = answer
        for step, keys in later.items():
            self._nursery.start_soon(self._later, step, keys, attempt)

    async def _later(self, step: _Step, keys: Sequence[str], attempt: int) -> None:
        await self._backoff.wait(attempt)
        await step(keys, attempt + 1)


class Finder(Driver[Node]):
    """A call that wants to know coordinators and nothing else."""

    def _found(self, coordinator: Node, keys: Sequence[str], attempt: int) -> None:
        self._outcomes.update(dict.fromkeys(keys, coordinator))

    def _late(self, key: str, timeout_ms: float) -> AdminError:
        return late(self._finding, key, timeout_ms, self._seen.get(key))


class Asker(Driver[V]):
    """A call that asks coordinators something; see `Driver`.

    Args:
        question: What they are asked.
    """

    def __init__(
        self, pool: BrokerPool, asking: Asking, backoff: Backoff, finding: Question[Node], question: Question[V]
    ) -> None:
        super().__init__(pool, asking, backoff, finding)
        self._question = question

    def _found(self, coordinator: Node, keys: Sequence[str], attempt: int) -> None:
        self._nursery.start_soon(self._ask_at, coordinator, keys, attempt)

    async def _ask_at(self, coordinator: Node, keys: Sequence[str], attempt: int) -> None:
        connect = partial(self._pool.to, coordinator.node_id)
        answers = await self._ask(self._question, keys, connect, coordinator)
        self._settle(answers, attempt, partial(self._ask_at, coordinator))

    def _late(self, key: str, timeout_ms: float) -> AdminError:
        return late(self._question, key, timeout_ms, self._seen.get(key))


def late(question: Question[V], key: str, timeout_ms: float, seen: AdminError | None) -> AdminError:
    """The error of a thing for which there has been no other by the deadline."""
    last = f"last seen: {seen.what}" if seen else "there has been no answer"
    return question.error(key, ErrorCode.REQUEST_TIMED_OUT, f"not done in {timeout_ms:g} ms; {last}")
