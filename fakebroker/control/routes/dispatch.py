"""Finds the operation for a request and runs it. Depends only on methods, paths and statuses of HTTP."""

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fakebroker.control.clusters import Clusters, Served
from fakebroker.control.gateway.wire import Ask, Reply
from fakebroker.control.problems import PROBLEM_TYPE, Problem, problem_of
from fakebroker.control.routes.arguments import GROUP_ID, path_value, read_body, read_query
from fakebroker.control.routes.operations import Operation, Text
from fakebroker.control.routes.resources import OPERATIONS
from fakebroker.errors import FakebrokerError

logger = logging.getLogger("fakebroker")

_encoder = msgspec.json.Encoder(enc_hook=str)
_NAME = "/"
"""The key of a path parameter in the tree of paths; no segment of a path contains a slash."""
_GROUP_ID = "//"
"""The key of the path parameter that may be empty."""

_PATHS_KEPT = 1_000
"""Number of paths whose operations are cached."""


class Dispatcher:
    """Handles requests to some clusters."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._tree: dict[str | None, Any] = {}
        for operation in OPERATIONS:
            node = self._tree
            for part in operation.path.split("/")[1:]:
                node = node.setdefault(_kind_of(part), {})
            node.setdefault(None, {})[operation.method] = operation
        self._found = lru_cache(_PATHS_KEPT)(self._find)

    def at_once(self, ask: Ask) -> Reply | None:
        """Handle a request synchronously if possible, else return None. Must run in a cluster's thread."""
        try:
            operation, subject, arguments = self._understood(ask)
            if operation.is_async or not isinstance(subject, Served) or not subject.cluster.is_cluster_thread:
                return None
            if operation.changes_nothing:
                return _reply(ask, operation, operation.run(subject, **arguments))
            return _reply(ask, operation, subject.cluster.call(lambda: operation.run(subject, **arguments)))
        except Exception as error:
            return _failure(ask, error)

    async def answer(self, ask: Ask) -> Reply:
        """Handle a request."""
        try:
            operation, subject, arguments = self._understood(ask)
            if operation.is_async:
                return _reply(ask, operation, await operation.run(subject, **arguments))
            assert isinstance(subject, Served)
            return _reply(ask, operation, await subject.ask(lambda: operation.run(subject, **arguments)))
        except Exception as error:
            return _failure(ask, error)

    def _understood(self, ask: Ask) -> tuple[Operation, Clusters | Served, dict[str, Any]]:
        """Return the operation, its subject, and its arguments.

        Raises:
            Problem: There is no such operation or cluster, or its arguments are invalid.
        """
        operation, parts = self._found(ask.method, ask.path)
        arguments = {name: path_value(name, parts[name], kind) for name, kind in operation.path_types.items()}
        subject = (
            self._clusters.get(path_value("cluster", parts["cluster"], str))
            if operation.is_about_one
            else self._clusters
        )
        if operation.query is not None:
            arguments["query"] = read_query(operation.query, ask.query)
        if operation.body is not None:
            arguments["body"] = read_body(operation.body, ask.body)
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


def _reply(ask: Ask, operation: Operation, result: Any) -> Reply:
    if isinstance(result, Text):
        return Reply(ask.number, operation.status, result.media_type, result.text.encode())
    if operation.status == 204:
        return Reply(ask.number, 204, "", b"")
    return Reply(ask.number, operation.status, "application/json", _encoder.encode(result))


def _failure(ask: Ask, error: Exception) -> Reply:
    if isinstance(error, FakebrokerError):
        error = problem_of(error)
    elif not isinstance(error, Problem):
        logger.error("%s %s failed", ask.method, ask.path, exc_info=error)
        error = Problem(500, "an error in fakebroker, which its log shows")
    headers = {"allow": error.expected or ""} if error.status == 405 else {}
    return Reply(ask.number, error.status, PROBLEM_TYPE, _encoder.encode(error.body()), headers)
