"""The states of a connection that has to authenticate with SASL, before its requests are handled.

Follows Kafka's `SaslServerAuthenticator`. Depends on mechanisms, not on messages: `cluster/authentication.py` reads and
answers requests.
"""

from enum import Enum, auto
from functools import partial
from typing import Protocol

from fakebroker.errors import AuthenticationError
from fakebroker.security.credentials import Credentials
from fakebroker.security.plain import PlainServer
from fakebroker.security.scram import ScramMechanism, ScramServer

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))
"""The names of the mechanisms that exist here. They are case-sensitive."""

_GENERAL_TEXT = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
"""The text of refusals without a text of their own, as in Kafka, without the mechanism."""

_SCRAM = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class SaslState(Enum):
    """What a connection has to send next."""

    START = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake: the versions are known."""
    TOKENS = auto()
    """SaslAuthenticate, after SaslHandshake of version 1."""
    RAW_TOKENS = auto()
    """Bytes of the mechanism without a header, after SaslHandshake of version 0."""
    AUTHENTICATED = auto()
    FAILED = auto()


TRANSITIONS = {
    SaslState.START: {SaslState.HANDSHAKE, SaslState.TOKENS, SaslState.RAW_TOKENS, SaslState.FAILED},
    SaslState.HANDSHAKE: {SaslState.TOKENS, SaslState.RAW_TOKENS, SaslState.FAILED},
    SaslState.TOKENS: {SaslState.AUTHENTICATED, SaslState.FAILED},
    SaslState.RAW_TOKENS: {SaslState.AUTHENTICATED, SaslState.FAILED},
    SaslState.AUTHENTICATED: set[SaslState](),
    SaslState.FAILED: set[SaslState](),
}


class SaslServer(Protocol):
    """The server's side of an exchange of one mechanism."""

    user: str | None

    def respond(self, token: bytes) -> bytes: ...


class SaslExchange:
    """The authentication of one connection.

    Args:
        credentials: The users.
        mechanisms: The enabled mechanisms.

    Attributes:
        mechanisms: The enabled mechanisms.
        state: What the connection has to send next.
        principal: The authenticated principal; None before.
    """

    def __init__(self, credentials: Credentials, mechanisms: tuple[str, ...]) -> None:
        self.mechanisms = mechanisms
        self.state = SaslState.START
        self.principal: str | None = None
        self._credentials = credentials
        self._mechanism = ""
        self._server: SaslServer

    def _enter(self, state: SaslState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state

    def versions_known(self) -> None:
        """The client has been told the supported versions."""
        self._enter(SaslState.HANDSHAKE)

    def shake_hands(self, mechanism: str, *, raw: bool) -> bool:
        """Choose a mechanism. Return False if it is not enabled, which ends the exchange.

        Args:
            mechanism: The name of the mechanism.
            raw: Whether its bytes are sent without headers.
        """
        if mechanism not in self.mechanisms:
            self.fail()
            return False
        self._mechanism, self._server = mechanism, self._new_server(mechanism)
        self._enter(SaslState.RAW_TOKENS if raw else SaslState.TOKENS)
        return True

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self._credentials.has_password)
        find = partial(self._credentials.scram, mechanism=_SCRAM[mechanism])
        return ScramServer(find, self._credentials.new_nonce())

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the bytes of a mechanism. Afterwards, the connection may be authenticated.

        Raises:
            AuthenticationError: The client is refused, with the text for it. The exchange has ended.
        """
        try:
            answer = self._server.respond(token)
        except AuthenticationError as error:
            self.fail()
            raise AuthenticationError(str(error) or _GENERAL_TEXT + self._mechanism) from None
        if self._server.user is not None:
            self.principal = f"User:{self._server.user}"
            self._enter(SaslState.AUTHENTICATED)
        return answer

    def fail(self) -> None:
        """End the exchange: the connection will be closed."""
        self._enter(SaslState.FAILED)
