"""PLAIN (RFC 4616): user and password in one message. The server's side follows Kafka's `PlainSaslServer`."""

from collections.abc import Callable

from fakebroker.errors import AuthenticationError
from fakebroker.utf8 import decode_utf8

_PARTS = 3


class PlainServer:
    """The server's side of one exchange.

    Args:
        has_password: Returns whether a user exists and has a password.

    Attributes:
        user: The authenticated user; None until the exchange is complete.
        expires_ms: When the credential expires: never.
    """

    expires_ms: float | None = None

    def __init__(self, has_password: Callable[[str, str], bool]) -> None:
        self.user: str | None = None
        self._has_password = has_password

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the client's message, which is empty.

        Raises:
            AuthenticationError: It is refused. Clients show the texts. "Authentication failed: ..." is Kafka's text.
        """
        parts = decode_utf8(token).split("\0")
        if len(parts) != _PARTS:
            raise AuthenticationError(f"PLAIN: {len(parts)} parts, expected authorization id, user and password")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationError("Authentication failed: password not specified")
        if not self._has_password(user, password):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationError("PLAIN: expected an authorization id that is empty or the user")
        self.user = user
        return b""


class PlainClient:
    """The client's side of one exchange; a `SaslClient`.

    Args:
        user: The user.
        password: The password.
    """

    def __init__(self, user: str, password: str) -> None:
        self._message: bytes | None = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the only message, then None."""
        message, self._message = self._message, None
        return message
