"""The table of HTTP operations: each is a function with its path, arguments and result.

A command's definition has the arguments of its operation. Does not depend on requests or clusters: `dispatch` calls the
functions, `openapi` documents them.
"""

import inspect
import typing
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec

Method = Literal["GET", "POST", "PATCH", "DELETE"]


class Operation(msgspec.Struct, frozen=True, dict=True):
    """One operation.

    Attributes:
        method: The HTTP method.
        path: Its path, with parameters in braces.
        run: The function. A plain one runs in the thread of its cluster, a generator there in steps, and an async one
            as a trio task.
        status: The HTTP status of success.
        path_types: The types of the path parameters, without the cluster's name.
        query: The type of the query, if it takes one.
        body: The type of the body's JSON, if it takes one.
        takes_accept: Whether it takes the header Accept of the request, as `accept`.
        result: The type of the result.
        media_type: The media type of a result that is `Content`; empty if it is not documented.
        is_read_only: Whether it is read-only.
        is_documented: Whether the OpenAPI document has it.
    """

    method: Method
    path: str
    run: Callable[..., Any]
    status: int
    path_types: Mapping[str, type]
    query: type[msgspec.Struct] | None
    body: Any
    takes_accept: bool
    result: Any
    media_type: str
    is_read_only: bool
    is_documented: bool

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.run.__name__

    @property
    def summary(self) -> str:
        """Its description in one sentence."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    @cached_property
    def names(self) -> list[str]:
        """The names of its path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @cached_property
    def has_cluster(self) -> bool:
        """Whether it operates on one cluster, rather than on the set of clusters."""
        return "{cluster}" in self.path and "cluster" not in self.path_types

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    @cached_property
    def is_in_steps(self) -> bool:
        return inspect.isgeneratorfunction(self.run)


class Content(msgspec.Struct, frozen=True):
    """A result that is not JSON; its body may be produced while it is sent."""

    body: bytes | AsyncGenerator[bytes, None]
    media_type: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


encoder = msgspec.json.Encoder(enc_hook=str)
"""Encodes results."""


OPERATIONS: list[Operation] = []
"""All operations, registered by the modules imported in `resources`."""

V1 = "/v1"
CLUSTER = f"{V1}/clusters/{{cluster}}"

F = typing.TypeVar("F", bound=Callable[..., Any])


def operation(
    method: Method,
    path: str,
    status: int = 200,
    body: Any = None,
    *,
    media_type: str = "",
    is_documented: bool = True,
) -> Callable[[F], F]:
    """Register a function as an operation. Its parameters are path parameters, `query`, `body` and `accept`.

    Args:
        method: The HTTP method.
        path: The path.
        status: The status of success.
        body: The type of `body`; None without one.
        media_type: The media type of a result that is `Content`, for the OpenAPI document.
        is_documented: Whether the OpenAPI document has it.
    """

    def register(run: F) -> F:
        hints = typing.get_type_hints(run)
        names = list(inspect.signature(run).parameters)[1:]
        parts = {name: hints[name] for name in names if name not in ("query", "body", "accept")}
        result = hints["return"]
        if typing.get_origin(result) is Generator:
            result = typing.get_args(result)[2]
        OPERATIONS.append(
            Operation(
                method=method,
                path=path,
                run=run,
                status=status,
                path_types=parts,
                query=hints.get("query"),
                body=body,
                takes_accept="accept" in names,
                result=result,
                media_type=media_type,
                is_read_only=method == "GET",
                is_documented=is_documented,
            )
        )
        return run

    return register
