"""The client's side of an authentication with SASL: which requests a connection sends, and when it repeats them.

Follows Kafka's `SaslClientAuthenticator`. Does not depend on sockets or clocks. `BrokerConnection` sends the requests.
"""

import math
from collections.abc import Callable
from typing import Any

from fakebroker.client.errors import error_code
from fakebroker.client.security import ClientSecurity
from fakebroker.errors import AuthenticationError, ErrorCode
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.mechanisms import OAUTHBEARER, PLAIN, SaslClient, ScramMechanism
from fakebroker.security.oauthbearer import OAuthBearerClient, unsecured_token
from fakebroker.security.plain import PlainClient
from fakebroker.security.scram import ScramClient

_SCRAM = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}

_FIRST_PART, _VARIATION = 0.85, 0.1
"""Which part of a session passes before a client authenticates again: 85 to 95 %, as with Kafka's client, so that
connections that were opened together do not do it together."""

_MIN_INTERVAL_MS = 1_000
"""How often brokers accept it (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""

_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class ClientAuthentication:
    """The authentication of one connection, and its repetitions before a session ends (KIP-368).

    It is the `ConnectionUser` of its requests: `answered` sets `next_request`.

    Args:
        security: The credentials.
        now_ms: Returns the time in milliseconds since the epoch.
        new_nonce: Returns a random nonce, printable and without commas.
        number: The number of the connection, which spreads the repetitions of many.

    Attributes:
        is_complete: Whether the client is authenticated, and does not authenticate again just now.
        next_request: The request to send next; None if there is none.
    """

    __slots__ = (
        "_due_ms", "_exchange", "_new_nonce", "_now_ms", "_part", "_security", "is_complete", "next_request",
    )  # fmt: skip

    def __init__(
        self, security: ClientSecurity, now_ms: Callable[[], float], new_nonce: Callable[[], str], number: int = 0
    ) -> None:
        self._security, self._now_ms, self._new_nonce = security, now_ms, new_nonce
        self._part = _FIRST_PART + _VARIATION * (number * _GOLDEN_RATIO % 1)
        self._due_ms = math.inf
        self._exchange: SaslClient
        self.is_complete = False
        self.next_request: Message | None = None

    def is_due(self) -> bool:
        """Return whether the client has to authenticate again before its next request."""
        return self._due_ms <= self._now_ms() and self.is_complete

    def begin(self) -> None:
        """Authenticate, for the first time or again.

        Raises:
            AuthenticationError: There is no valid token.
        """
        self.is_complete, self._due_ms = False, math.inf
        try:
            self._exchange = self._new_exchange()
        except AuthenticationError as error:
            raise self._failure(str(error)) from None
        self.next_request = SaslHandshakeRequest(mechanism=self._security.sasl_mechanism or "")

    def _new_exchange(self) -> SaslClient:
        given, mechanism = self._security, self._security.sasl_mechanism or ""
        user, password = given.sasl_plain_username or "", given.sasl_plain_password or ""
        if mechanism == OAUTHBEARER:
            token = given.sasl_oauth_token
            if token is None:
                return OAuthBearerClient(unsecured_token(user, self._now_ms()))
            return OAuthBearerClient(token if isinstance(token, str) else _called(token))
        if mechanism == PLAIN:
            return PlainClient(user, password)
        return ScramClient(_SCRAM[mechanism], user, password, self._new_nonce())

    def _failure(self, why: str) -> AuthenticationError:
        """Return the error that the credentials are refused. The reason never has a password or token."""
        given = self._security
        user = "" if given.sasl_plain_username is None else f", user {given.sasl_plain_username!r}"
        return AuthenticationError(
            f"authentication failed: {why} ({given.security_protocol}, {given.sasl_mechanism}{user})"
        )

    # Methods of `ConnectionUser`

    def opened(self, connection: Any) -> None:
        """It is no user of an open connection."""

    def lost(self, connection: Any, why: str) -> None:
        """The users of the connection are notified."""

    def answered(self, connection: Any, response: Any) -> None:
        """Read a response.

        Raises:
            AuthenticationError: The broker refuses the credentials, or does not prove that it knows the password.
        """
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                raise self._failure(self._wrong_handshake(response))
            challenge = b""
        else:
            if response.error_code:
                error = error_code(response.error_code)
                raise self._failure(response.error_message or error.name)
            challenge = response.auth_bytes
        try:
            token = self._exchange.respond(challenge)
        except AuthenticationError as error:
            raise self._failure(str(error)) from None
        if token is not None:
            self.next_request = SaslAuthenticateRequest(auth_bytes=token)
            return
        self.is_complete = True
        if response.session_lifetime_ms > 0:
            self._due_ms = self._now_ms() + max(response.session_lifetime_ms * self._part, _MIN_INTERVAL_MS)

    def _wrong_handshake(self, response: SaslHandshakeResponse) -> str:
        error = error_code(response.error_code)
        if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return f"the broker supports {', '.join(response.mechanisms) or 'no mechanism'}"
        if error is ErrorCode.ILLEGAL_SASL_STATE:
            return "ILLEGAL_SASL_STATE, the listener does not ask for authentication"
        return error.name


def _called(token: Callable[[], str]) -> str:
    """Return the token that a function of the application returns."""
    try:
        return token()
    except Exception as error:
        raise AuthenticationError(f"sasl_oauth_token has raised {type(error).__name__}: {error}") from error
