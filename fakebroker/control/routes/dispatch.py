"""Finds the operation for a request and runs it. Depends only on methods, paths and statuses of HTTP."""

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fakebroker.control.clusters import Clusters, ServedCluster
from fakebroker.control.problems import PROBLEM_TYPE, Problem, problem_of
from fakebroker.control.routes.arguments import ANY_TEXT, NoArguments, path_value, read_body, read_query
from fakebroker.control.routes.operations import Content, Operation, encoder
from fakebroker.control.routes.resources import OPERATIONS
from fakebroker.errors import FakebrokerError

logger = logging.getLogger("fakebroker")

# Keys of path parameters in the tree of paths; segments of paths contain no slashes.
_PARAMETER = "/"
_ANY_TEXT = "//"  # It may be empty, unlike other parameters.

_CACHED_PATHS = 1_000


class Request(msgspec.Struct, frozen=True):
    """A request; path and query are percent-encoded as received, `accept` is the header Accept."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    accept: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The response to a request; its body may be produced while it is sent."""

    status: int
    media_type: str
    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Dispatcher:
    """Handles requests, in the thread of the default cluster.

    The operations are in a tree of path segments: a node has child nodes by segment, and under None its operations by
    method.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._tree: dict[str | None, Any] = {}
        for operation in OPERATIONS:
            node = self._tree
            for part in operation.path.split("/")[1:]:
                node = node.setdefault(_tree_key(part), {})
            node.setdefault(None, {})[operation.method] = operation
        self._find_cached = lru_cache(_CACHED_PATHS)(self._find)

    def is_brief(self, request: Request) -> bool:
        """Return whether a request is handled without waiting, so that it need not be cancelable."""
        try:
            operation, _ = self._find_cached(request.method, request.path)
        except Problem:
            return True
        return not (operation.is_async or operation.is_in_steps)

    async def handle(self, request: Request) -> Reply:
        """Handle a request; errors become responses."""
        try:
            operation, subject, arguments = self._parse(request)
            return _reply(operation, await _run(operation, subject, arguments))
        except Exception as error:
            return failure(request, error)

    def _parse(self, request: Request) -> tuple[Operation, Clusters | ServedCluster, dict[str, Any]]:
        """Return the operation, its cluster or the set of clusters, and its arguments.

        Raises:
            Problem: The operation or the cluster does not exist, or a path parameter is invalid.
            ConfigError: The query or the body is invalid, or the operation takes none.
        """
        operation, parts = self._find_cached(request.method, request.path)
        arguments = {name: path_value(name, parts[name], kind) for name, kind in operation.path_types.items()}
        subject = (
            self._clusters.get(path_value("cluster", parts["cluster"], str))
            if operation.has_cluster
            else self._clusters
        )
        query = read_query(operation.query or NoArguments, request.query)
        if operation.query is not None:
            arguments["query"] = query
        body = read_body(NoArguments if operation.body is None else operation.body, request.body)
        if operation.body is not None:
            arguments["body"] = body
        if operation.takes_accept:
            arguments["accept"] = request.accept
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
            expected = "a path of /openapi.json"
            raise Problem(404, f"path={path!r}: expected {expected}", field="path", value=path, expected=expected)
        expected = ", ".join(allowed)
        raise Problem(405, f"method={method!r}: expected {expected}", field="method", value=method, expected=expected)


def _tree_key(part: str) -> str:
    """Return the key in the tree for a segment of an operation's path."""
    if not part.startswith("{"):
        return part
    return _ANY_TEXT if part[1:-1] in ANY_TEXT else _PARAMETER


def _matches(node: dict[str | None, Any], parts: Sequence[str]) -> Iterator[tuple[dict[str, Operation], list[str]]]:
    """Yield the matching nodes' operations by method, with the path parameters. Fixed segments precede parameters."""
    if not parts:
        if None in node:
            yield node[None], []
        return
    part, *rest = parts
    if part in node:
        yield from _matches(node[part], rest)
    for key in (_PARAMETER, _ANY_TEXT) if part else (_ANY_TEXT,):
        if key in node:
            for methods, texts in _matches(node[key], rest):
                yield methods, [part, *texts]


async def _run(operation: Operation, subject: Clusters | ServedCluster, arguments: dict[str, Any]) -> Any:
    if operation.is_async:
        return await operation.run(subject, **arguments)
    assert isinstance(subject, ServedCluster)
    if operation.is_in_steps:
        in_steps = subject.read_in_steps if operation.is_read_only else subject.run_in_steps
        return await in_steps(operation.run(subject, **arguments))
    at_once = subject.read if operation.is_read_only else subject.run
    return await at_once(lambda: operation.run(subject, **arguments))


def _reply(operation: Operation, result: Any) -> Reply:
    if isinstance(result, Content):
        return Reply(operation.status, result.media_type, result.body, result.headers)
    if operation.status == 204:
        return Reply(204, "", b"")
    return Reply(operation.status, "application/json", encoder.encode(result))


def failure(request: Request, error: Exception) -> Reply:
    """Convert an error to a response; internal errors are logged."""
    if isinstance(error, FakebrokerError):
        error = problem_of(error)
    elif not isinstance(error, Problem):
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        error = Problem(500, "internal error: see the log of the server")
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
