"""The states of a connection that has to authenticate with SASL, before its requests are handled.

Follows Kafka's `SaslServerAuthenticator`. Depends on mechanisms, not on messages: `cluster/authentication.py` reads and
answers requests.
"""

from enum import Enum, auto
from functools import partial
from typing import Protocol

from fakebroker.errors import AuthenticationError, ProtocolError
from fakebroker.security.credentials import Credentials
from fakebroker.security.mechanisms import OAUTHBEARER, PLAIN, ScramMechanism
from fakebroker.security.oauthbearer import NO_RULES, OAuthBearerServer, TokenRules
from fakebroker.security.plain import PlainServer
from fakebroker.security.scram import ScramServer

_GENERAL_TEXT = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
"""The text of refusals without a text of their own, as in Kafka."""

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
    WRONG_MECHANISM = auto()
    """Nothing: it has chosen another mechanism than before, and its next message fails."""
    AUTHENTICATED = auto()
    FAILED = auto()


TRANSITIONS = {
    SaslState.START: {
        SaslState.HANDSHAKE,
        SaslState.TOKENS,
        SaslState.RAW_TOKENS,
        SaslState.WRONG_MECHANISM,
        SaslState.FAILED,
    },
    SaslState.HANDSHAKE: {SaslState.TOKENS, SaslState.RAW_TOKENS, SaslState.FAILED},
    SaslState.TOKENS: {SaslState.AUTHENTICATED, SaslState.FAILED},
    SaslState.RAW_TOKENS: {SaslState.AUTHENTICATED, SaslState.FAILED},
    SaslState.WRONG_MECHANISM: {SaslState.FAILED},
    SaslState.AUTHENTICATED: set[SaslState](),
    SaslState.FAILED: set[SaslState](),
}


class SaslServer(Protocol):
    """The server's side of an exchange of one mechanism."""

    user: str | None

    @property
    def expires_ms(self) -> float | None: ...

    def respond(self, token: bytes) -> bytes: ...


class SaslExchange:
    """The authentication of one connection.

    Args:
        credentials: The users.
        mechanisms: The enabled mechanisms.
        previous: The last authentication of the connection, which is repeated (KIP-368); None the first time.
        token_rules: What tokens of OAUTHBEARER need.

    Attributes:
        mechanisms: The enabled mechanisms.
        mechanism: The chosen mechanism; empty before.
        state: What the connection has to send next.
        principal: The authenticated principal; None before.
        now_ms: The brokers' time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        credentials: Credentials,
        mechanisms: tuple[str, ...],
        previous: "SaslExchange | None" = None,
        token_rules: TokenRules = NO_RULES,
    ) -> None:
        self.mechanisms, self._token_rules = mechanisms, token_rules
        self.now_ms = 0.0
        self.mechanism = ""
        # Without the exchanges before it.
        self._previous = None if previous is None else (previous.mechanism, previous.principal)
        self.state = SaslState.START
        self.principal: str | None = None
        self.credentials = credentials
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
        if self._previous is not None and mechanism != self._previous[0]:
            self._enter(SaslState.WRONG_MECHANISM)
            return True
        self.mechanism, self._server = mechanism, self._new_server(mechanism)
        self._enter(SaslState.RAW_TOKENS if raw else SaslState.TOKENS)
        return True

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self.credentials.has_password)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(lambda: self.now_ms, self._token_rules)
        find = partial(self.credentials.scram, mechanism=_SCRAM[mechanism])
        return ScramServer(find, self.credentials.new_nonce())

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the bytes of a mechanism. Afterwards, the connection may be authenticated.

        Raises:
            AuthenticationError: The client is refused, with the text for it. The exchange has ended.
            ProtocolError: The connection is to be closed without an answer. The exchange has ended.
        """
        try:
            answer = self._server.respond(token)
            if self._server.user is not None:
                self._complete(f"User:{self._server.user}")
        except AuthenticationError as error:
            self.fail()
            what = "authentication" if self._previous is None else "re-authentication"
            raise AuthenticationError(str(error) or _GENERAL_TEXT.format(what, self.mechanism)) from None
        except ProtocolError:
            self.fail()
            raise
        return answer

    def _complete(self, principal: str) -> None:
        if self._previous is not None and principal != self._previous[1]:
            raise AuthenticationError("re-authentication: expected the principal of the last authentication")
        self.principal = principal
        self._enter(SaslState.AUTHENTICATED)

    def lifetime_ms(self, max_ms: int) -> int | None:
        """Return for how long the client is authenticated; None if there is no limit.

        Args:
            max_ms: The longest session, in milliseconds; 0 if only the credential limits it.
        """
        limits = [max_ms] if max_ms else []
        if self._server.expires_ms is not None:
            limits.append(max(0, int(self._server.expires_ms - self.now_ms)))
        return min(limits, default=None)

    def fail(self) -> None:
        """End the exchange: the connection will be closed."""
        self._enter(SaslState.FAILED)
