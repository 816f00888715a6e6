"""Finds the operation for a request and runs it. Depends only on methods, paths and statuses of HTTP."""

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fakebroker.control.clusters import Clusters, Served
from fakebroker.control.problems import PROBLEM_TYPE, Problem, problem_of
from fakebroker.control.routes.arguments import GROUP_ID, path_value, read_body, read_query
from fakebroker.control.routes.operations import Content, Operation, encoder
from fakebroker.control.routes.resources import OPERATIONS
from fakebroker.errors import FakebrokerError

logger = logging.getLogger("fakebroker")

_NAME = "/"
"""The key of a path parameter in the tree of paths; no segment of a path contains a slash."""
_GROUP_ID = "//"
"""The key of the path parameter that may be empty."""

_PATHS_KEPT = 1_000
"""Number of paths whose operations are cached."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as received.

    Attributes:
        method: The method.
        path: The path, percent-encoded.
        query: The query string, percent-encoded.
        body: The body.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request; its body may be produced while it is sent."""

    status: int
    media_type: str
    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


class Dispatcher:
    """Handles requests to some clusters, in the thread of the first one."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._tree: dict[str | None, Any] = {}
        for operation in OPERATIONS:
            node = self._tree
            for part in operation.path.split("/")[1:]:
                node = node.setdefault(_kind_of(part), {})
            node.setdefault(None, {})[operation.method] = operation
        self._found = lru_cache(_PATHS_KEPT)(self._find)

    def is_brief(self, request: Request) -> bool:
        """Return whether a request is handled at once, so that it cannot be canceled."""
        try:
            operation, _ = self._found(request.method, request.path)
        except Problem:
            return True
        return not (operation.is_async or operation.is_in_steps)

    async def answer(self, request: Request) -> Reply:
        """Handle a request."""
        try:
            operation, subject, arguments = self._understood(request)
            return _reply(operation, await _run(operation, subject, arguments))
        except Exception as error:
            return failure(request, error)

    def _understood(self, request: Request) -> tuple[Operation, Clusters | Served, dict[str, Any]]:
        """Return the operation, its subject, and its arguments.

        Raises:
            Problem: There is no such operation or cluster, or its arguments are invalid.
        """
        operation, parts = self._found(request.method, request.path)
        arguments = {name: path_value(name, parts[name], kind) for name, kind in operation.path_types.items()}
        subject = (
            self._clusters.get(path_value("cluster", parts["cluster"], str))
            if operation.is_about_one
            else self._clusters
        )
        if operation.query is not None:
            arguments["query"] = read_query(operation.query, request.query)
        if operation.body is not None:
            arguments["body"] = read_body(operation.body, request.body)
        return operation, subject, arguments

    def _find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation for a path, and the values of its path parameters."""
        method = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for methods, texts in _matches(self._tree, path.split("/")[1:]):
            if method in methods:
                operation = methods[method]
                return operation, dict(zip(operation.names, texts, strict=True))
            allowed += methods
        if not allowed:
            expected = "an address of /openapi.json"
            raise Problem(404, f"path={path!r}: expected {expected}", field="path", value=path, expected=expected)
        expected = ", ".join(allowed)
        raise Problem(405, f"method={method!r}: expected {expected}", field="method", value=method, expected=expected)


def _kind_of(part: str) -> str:
    """Return the tree's key for a segment of an operation's path."""
    if not part.startswith("{"):
        return part
    return _GROUP_ID if part == f"{{{GROUP_ID}}}" else _NAME


def _matches(node: dict[str | None, Any], parts: Sequence[str]) -> Iterator[tuple[dict[str, Operation], list[str]]]:
    """Yield the operations by method for a path, with its path parameters; fixed segments precede parameters."""
    if not parts:
        if None in node:
            yield node[None], []
        return
    part, *rest = parts
    if part in node:
        yield from _matches(node[part], rest)
    for name in (_NAME, _GROUP_ID) if part else (_GROUP_ID,):
        if name in node:
            for methods, texts in _matches(node[name], rest):
                yield methods, [part, *texts]


async def _run(operation: Operation, subject: Clusters | Served, arguments: dict[str, Any]) -> Any:
    if operation.is_async:
        return await operation.run(subject, **arguments)
    assert isinstance(subject, Served)
    if operation.is_in_steps:
        in_steps = subject.look_in_steps if operation.changes_nothing else subject.ask_in_steps
        return await in_steps(operation.run(subject, **arguments))
    at_once = subject.look if operation.changes_nothing else subject.ask
    return await at_once(lambda: operation.run(subject, **arguments))


def _reply(operation: Operation, result: Any) -> Reply:
    if isinstance(result, Content):
        return Reply(operation.status, result.media_type, result.body, result.headers)
    if operation.status == 204:
        return Reply(204, "", b"")
    return Reply(operation.status, "application/json", encoder.encode(result))


def failure(request: Request, error: Exception) -> Reply:
    """Return an error as a response; internal errors are logged."""
    if isinstance(error, FakebrokerError):
        error = problem_of(error)
    elif not isinstance(error, Problem):
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        error = Problem(500, "an error in fakebroker, which its log shows")
    headers = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    elif error.status == 405:
        allowed = (error.expected or "").split(", ")
        more = ("HEAD", "OPTIONS") if "GET" in allowed else ("OPTIONS",)
        headers["allow"] = ", ".join(sorted({*allowed, *more}))
        if request.method == "OPTIONS":
            return Reply(204, "", b"", headers)
    return Reply(error.status, PROBLEM_TYPE, encoder.encode(error.body()), headers)
