"""Listeners: the names under which brokers accept connections, and their security protocols. Plain data."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from fakebroker.errors import ConfigError

SecurityProtocol = Literal["PLAINTEXT", "SASL_PLAINTEXT"]
"""The security protocols that exist here, by Kafka's names."""


PROTOCOLS: tuple[SecurityProtocol, ...] = get_args(SecurityProtocol)

_NAME = re.compile(r"[A-Za-z0-9_-]+")


class Listener(NamedTuple):
    """A listener of all brokers.

    Attributes:
        name: Its name.
        protocol: With SASL_PLAINTEXT, clients have to authenticate.
    """

    name: str
    protocol: SecurityProtocol

    @property
    def has_sasl(self) -> bool:
        return self.protocol == "SASL_PLAINTEXT"


class Endpoint(NamedTuple):
    """Where clients connect to a broker."""

    host: str
    port: int


PLAINTEXT_LISTENER = Listener("PLAINTEXT", "PLAINTEXT")
"""The only listener, unless others are given."""

SASL_LISTENER = Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT")
"""The only listener of a cluster with users, unless others are given."""


def listeners_of(protocols: Mapping[str, SecurityProtocol] | None, *, has_users: bool) -> tuple[Listener, ...]:
    """Return the listeners with these names and protocols, or the default one.

    Raises:
        ConfigError: A name is not valid.
    """
    for name in protocols or ():
        if not _NAME.fullmatch(name):
            raise ConfigError.of("listeners", name, "names of letters, digits, '-' and '_'")
    if protocols:
        return tuple(Listener(name, protocol) for name, protocol in protocols.items())
    return (SASL_LISTENER if has_users else PLAINTEXT_LISTENER,)
