"""Asking one broker about many things: in one request where it takes that, else in one request each (trio).

Knows versions, caps and time-outs; not which broker is the right one, and nothing about trying again.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio

from fakebroker.client.admin.descriptions import Node
from fakebroker.client.admin.results import AdminError
from fakebroker.client.connection import Connection, ConnectionLost, UnsupportedVersion
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message, Versions

V = TypeVar("V")

MOST_KEYS_IN_A_REQUEST = 10_000
"""More groups, or other keys, than these are split into several requests: of offsets this is some megabytes."""

MOST_REQUESTS_IN_FLIGHT = 100
"""A broker is sent no more of one question's requests than these before it has answered; they go out in one write."""


class NoBatchedFindCoordinators(UnsupportedVersion):
    """The broker looks up one coordinator a request, and falling back to that is forbidden (KIP-699)."""

    hint = " in one request for many; falling back to one a request is forbidden"


class NoBatchedOffsetFetch(UnsupportedVersion):
    """The broker tells one group's offsets a request, and falling back to that is forbidden (KIP-709)."""

    hint = NoBatchedFindCoordinators.hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[V]):
    """What is asked about things, and how its answers are read.

    Attributes:
        api: The API by Kafka's name.
        request: Asks about these things, as many as `most` allows.
        read: Reads from an answer in its newest shape the value or error of each thing; it is told what things were
            asked about in that request, and at which coordinator, if it was one.
        fails: Makes the error of one thing.
        most: About how many things the API asks at once.
        batched_since: The first version that does; before it, about one.
        not_batched: What is raised where that version is missing and falling back is forbidden.
    """

    api: str
    request: Callable[[Sequence[str]], Message]
    read: Callable[[Any, Sequence[str], Node | None], Iterable[tuple[str, V | AdminError]]]
    fails: Callable[[str, str, ErrorCode, str | None], AdminError]
    most: int = MOST_KEYS_IN_A_REQUEST
    batched_since: int = 0
    not_batched: type[UnsupportedVersion] = UnsupportedVersion

    def error(self, key: str, error: ErrorCode, why: str | None = None) -> AdminError:
        """The error of one thing."""
        return self.fails(key, self.api, error, why)


@dataclass(frozen=True, slots=True)
class Asking:
    """How brokers are asked.

    Attributes:
        fall_back: Whether a broker without a batched version is asked about one thing a request.
        request_timeout_ms: A connection on which an answer does not come for so long is closed.
    """

    fall_back: bool
    request_timeout_ms: float

    async def about(
        self, question: Question[V], keys: Sequence[str], connection: Connection, node: Node | None
    ) -> dict[str, V | AdminError]:
        """Ask one broker about many things.

        Returns:
            For each thing its value or error: NETWORK_EXCEPTION where the connection was lost, UNSUPPORTED_VERSION
            where the broker cannot be asked that at all.

        Raises:
            UnsupportedVersion: `question.not_batched`, where falling back is forbidden.
        """
        answers: dict[str, V | AdminError] = {}
        parts = self._parts(question, keys, connection)
        for start in range(0, len(parts), MOST_REQUESTS_IN_FLIGHT):
            requests: list[tuple[Sequence[str], Message]] = []
            for part in parts[start : start + MOST_REQUESTS_IN_FLIGHT]:
                request = question.request(part)
                try:
                    connection.version_of(request)
                except UnsupportedVersion as error:
                    unsupported = failures(question, part, ErrorCode.UNSUPPORTED_VERSION, error)
                    answers |= unsupported
                else:
                    requests.append((part, request))
            told = await self._exchange(question, requests, connection, node)
            answers |= told
        return answers

    async def one(self, connection: Connection, request: Message) -> Any:
        """Ask one thing.

        Raises:
            ConnectionLost: There was no answer, or none in time.
            UnsupportedVersion: The broker cannot be asked that.
        """
        try:
            with self._patience():
                return await connection.request(request)
        except trio.TooSlowError:
            await connection.aclose()
            raise ConnectionLost(self._too_slow(connection)) from None

    def _parts(self, question: Question[V], keys: Sequence[str], connection: Connection) -> list[Sequence[str]]:
        """The things, request by request."""
        most, theirs = question.most, connection.versions.get(API_BY_NAME[question.api].key)
        if theirs is not None and theirs.last < question.batched_since and len(keys) > 1:
            if not self.fall_back:
                ours = Versions(question.batched_since, API_BY_NAME[question.api].versions.last)
                raise question.not_batched(question.api, theirs, ours, connection.broker)
            most = 1
        return [keys[start : start + most] for start in range(0, len(keys), most)]

    async def _exchange(
        self,
        question: Question[V],
        requests: Sequence[tuple[Sequence[str], Message]],
        connection: Connection,
        node: Node | None,
    ) -> dict[str, V | AdminError]:
        """Send requests, then receive their answers."""
        answers: dict[str, V | AdminError] = {}
        try:
            with self._patience():
                sent = await connection.send([request for _, request in requests])
            for (part, _), waiting in zip(requests, sent, strict=True):
                with self._patience() if waiting.is_open else nullcontext():
                    answers.update(question.read(await waiting.answer(), part, node))
        except trio.TooSlowError:
            await connection.aclose()
            why = self._too_slow(connection)
        except ConnectionLost as error:
            why = f"{connection.broker}: {error}"
        else:
            untold = [key for part, _ in requests for key in part if key not in answers]
            what = f"{connection.broker} does not tell of it"
            return answers | failures(question, untold, ErrorCode.UNKNOWN_SERVER_ERROR, what)
        lost = [key for part, _ in requests for key in part if key not in answers]
        return answers | failures(question, lost, ErrorCode.NETWORK_EXCEPTION, why)

    def _patience(self) -> AbstractContextManager[object]:
        return trio.fail_after(self.request_timeout_ms / 1000)

    def _too_slow(self, connection: Connection) -> str:
        return f"{connection.broker} has not answered in {self.request_timeout_ms:g} ms"


def failures(
    question: Question[V], keys: Iterable[str], error: ErrorCode, why: str | FakebrokerError
) -> dict[str, V | AdminError]:
    """One and the same error for each of some things, caused by the exception that it comes from, if there is one."""
    made: dict[str, V | AdminError] = {}
    for key in keys:
        made[key] = failure = question.error(key, error, str(why))
        failure.__cause__ = why if isinstance(why, FakebrokerError) else None
    return made
