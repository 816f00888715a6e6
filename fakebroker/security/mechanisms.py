"""The SASL mechanisms that exist here: their names and numbers, and what their user names look like."""

from enum import IntEnum
from typing import Protocol


class ScramMechanism(IntEnum):
    """A SCRAM mechanism, by its number in requests (org.apache.kafka.clients.admin.ScramMechanism)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def digest(self) -> str:
        """The name of its hash in hashlib."""
        return f"sha{self.name[4:]}"

    @property
    def sasl_name(self) -> str:
        """Its name in SASL, such as "SCRAM-SHA-256"."""
        return f"SCRAM-{self.name.replace('_', '-')}"


MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Limits of the iterations of SCRAM credentials."""

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
PASSWORD_MECHANISMS = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))
"""The names of the mechanisms with which a client proves that it has a password."""
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""The names of the mechanisms that exist here. They are case-sensitive."""


class SaslClient(Protocol):
    """The client's side of an exchange of one mechanism."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the next message; None if the exchange is complete.

        Args:
            challenge: The server's last message; empty the first time.

        Raises:
            AuthenticationError: The server's message is malformed, or does not prove that it knows the password.
        """
        ...


SAFE_CHARACTER = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]"
"""A character of a user name except "," and "=", which are escaped (RFC 5801)."""
USER_NAME = f"(?:{SAFE_CHARACTER}++|=2C|=3D)++"
"""An escaped user name. Possessive, since a state for each character would need 100 MB."""


def unescaped(name: str) -> str:
    """Return a user name without escapes."""
    return name.replace("=2C", ",").replace("=3D", "=")


def escaped(name: str) -> str:
    """Return a user name as it is sent."""
    return name.replace("=", "=3D").replace(",", "=2C")
