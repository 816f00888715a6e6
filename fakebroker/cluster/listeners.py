"""Listeners: the names under which brokers accept connections, and their security protocols. Plain data."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from fakebroker.errors import ConfigError

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""The security protocols that exist here, by Kafka's names."""


PROTOCOLS: tuple[SecurityProtocol, ...] = get_args(SecurityProtocol)

_NAME = re.compile(r"[A-Za-z0-9_-]+")


class Listener(NamedTuple):
    """A listener of all brokers.

    Attributes:
        name: Its name.
        protocol: With SASL, clients have to authenticate; with SSL, connections are encrypted.
    """

    name: str
    protocol: SecurityProtocol

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


class Endpoint(NamedTuple):
    """Where clients connect to a broker."""

    host: str
    port: int


PLAINTEXT_LISTENER = Listener("PLAINTEXT", "PLAINTEXT")
"""The only listener, unless others are given, or there are users or TLS."""


def listeners_of(
    protocols: Mapping[str, SecurityProtocol] | None, *, has_users: bool, has_tls: bool = False
) -> tuple[Listener, ...]:
    """Return the listeners with these names and protocols, or one with the protocol that users and TLS need.

    Raises:
        ConfigError: A name is not valid, or there are users or TLS is wanted, and none of them has it.
    """
    for name in protocols or ():
        if not _NAME.fullmatch(name):
            raise ConfigError.of("listeners", name, "names of letters, digits, '-' and '_'")
    if protocols:
        listeners = tuple(Listener(name, protocol) for name, protocol in protocols.items())
        if len({each.name.lower() for each in listeners}) < len(listeners):
            raise ConfigError.of("listeners", list(protocols), "names that differ in more than case")
        if has_tls and not any(each.has_tls for each in listeners):
            raise ConfigError.of("listeners", dict(protocols), "SSL or SASL_SSL at one or more of them, because of tls")
        if has_users and not any(each.has_sasl for each in listeners):
            expected = "SASL_PLAINTEXT or SASL_SSL at one or more of them, because of users"
            raise ConfigError.of("listeners", dict(protocols), expected)
        return listeners
    protocol: SecurityProtocol = "SSL" if has_tls else "PLAINTEXT"
    if has_users:
        protocol = "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    return (Listener(protocol, protocol),)
