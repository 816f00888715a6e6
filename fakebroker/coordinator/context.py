"""What a coordinator knows of a request besides its message (Kafka's `RequestContext`).

A coordinator parks a request by keeping its context, and answers it with the context and a response. In a cluster, the
context is the `Call`. Tests and simulations have their own.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec


class RequestContext(Protocol):
    """The properties of a request that a coordinator needs in addition to the message."""

    @property
    def api_version(self) -> int:
        """The version of the request."""

    @property
    def client_id(self) -> str:
        """The client id in its header."""

    @property
    def client_host(self) -> str:
        """The address of the client in Kafka's form, such as "/127.0.0.1"."""

    @property
    def may_describe(self) -> Callable[[str], bool] | None:
        """Whether the client may describe a topic; None if it may describe all."""


class OwnContext(msgspec.Struct, frozen=True):
    """The context of a request that a command makes in the name of a member. The answer is dropped."""

    api_version: int
    client_id: str
    client_host: str
    may_describe: None = None
