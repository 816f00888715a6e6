"""OAUTHBEARER (RFC 7628). The server's side accepts unsecured tokens (KIP-255): clients choose their names.

Follows Kafka's `OAuthBearerSaslServer`, `OAuthBearerUnsecuredValidatorCallbackHandler`, `OAuthBearerUnsecuredJws`,
`OAuthBearerSaslClient` and `OAuthBearerClientInitialResponse`.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from fakebroker.errors import AuthenticationError, ProtocolError
from fakebroker.security.mechanisms import USER_NAME, unescaped
from fakebroker.utf8 import decode_utf8

_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{USER_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_TOKEN = re.compile(r"[-_.a-zA-Z0-9]+")
_AUTH = re.compile(rf"(?P<scheme>\w+) +(?P<token>{_TOKEN.pattern})", re.ASCII)
_BASE64URL = re.compile(r"[-_a-zA-Z0-9]+={0,2}")
_GIVE_UP = b"\x01"
"""The client's answer to the reason of a refusal."""
_MAX_SECONDS = 2**53
_INVALID_TOKEN = '{"status":"invalid_token"}'
_INSUFFICIENT_SCOPE = '{{"status":"insufficient_scope", "scope":"[{}]"}}'
"""With the required scopes, as Kafka shows them."""


class _Token(NamedTuple):
    name: str
    expires_ms: float
    scope: frozenset[str]


class TokenRules(NamedTuple):
    """What a token needs (options of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler).

    Attributes:
        required_scope: Scopes that it must have (`unsecuredValidatorRequiredScope`).
        clock_skew_ms: For how long it is valid before and after its times (`unsecuredValidatorAllowableClockSkewMs`).
    """

    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


NO_RULES = TokenRules()


class OAuthBearerServer:
    """The server's side of one exchange.

    Args:
        now_ms: Returns the brokers' time in milliseconds since the epoch.
        rules: What tokens need.

    Attributes:
        user: The authenticated user; None until the exchange is complete.
        expires_ms: When the token expires.
    """

    def __init__(self, now_ms: Callable[[], float], rules: TokenRules = NO_RULES) -> None:
        self.user: str | None = None
        self.expires_ms: float | None = None
        self._now_ms, self._rules = now_ms, rules
        self._refusal = ""

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a client's message: empty, or why the token is refused.

        Raises:
            AuthenticationError: It is refused.
            ProtocolError: The scheme is not "bearer": Kafka closes the connection without an answer.
        """
        if self._refusal and message == _GIVE_UP:
            raise AuthenticationError(self._refusal)
        self._refusal = ""
        found = _FIRST.fullmatch(decode_utf8(message))
        if found is None:
            raise AuthenticationError
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None:
            raise AuthenticationError
        if auth["scheme"].lower() != "bearer":
            raise ProtocolError("OAUTHBEARER: the scheme is not bearer")
        token = _valid_token(auth["token"], self._now_ms(), self._rules.clock_skew_ms)
        if token is None:
            self._refusal = _INVALID_TOKEN
        elif not token.scope.issuperset(self._rules.required_scope):
            self._refusal = _INSUFFICIENT_SCOPE.format(", ".join(self._rules.required_scope))
        if token is None or self._refusal:
            return self._refusal.encode()
        if found["authzid"] is not None and unescaped(found["authzid"]) != token.name:
            raise AuthenticationError("OAUTHBEARER: expected an authorization id that is empty or the token's name")
        self.user, self.expires_ms = token.name, token.expires_ms
        return b""


def _valid_token(text: str, now_ms: float, skew_ms: int) -> _Token | None:
    """Return name and expiry of an unsecured JWS that is valid now; None if it is not."""
    header_text, _, rest = text.partition(".")
    claims_text, _, signature = rest.partition(".")
    header, claims = _json_object(header_text), _json_object(claims_text)
    if text.count(".") != 2 or signature or header is None or claims is None or header.get("alg") != "none":
        return None
    name, expires_ms, issued_ms = claims.get("sub"), _milliseconds(claims, "exp"), _milliseconds(claims, "iat")
    if not isinstance(name, str) or not name.strip() or expires_ms is None or now_ms - skew_ms >= expires_ms:
        return None
    if any("\ud800" <= letter <= "\udfff" for letter in name):  # It cannot be encoded, in the journal for example.
        return None
    if claims.get("iat") is not None and (issued_ms is None or issued_ms > now_ms + skew_ms or issued_ms >= expires_ms):
        return None
    scope = claims.get("scope", [])
    if isinstance(scope, int | float) and not isinstance(scope, bool):
        return None
    scopes = (_as_text(each).strip() for each in (scope if isinstance(scope, list) else [scope]))
    return _Token(name, expires_ms, frozenset(filter(None, scopes)))


def _as_text(value: object) -> str:
    """Return a JSON value as Jackson's `asText` does."""
    if isinstance(value, str):
        return value
    return "" if isinstance(value, list | dict) else json.dumps(value)


def _milliseconds(claims: dict[str, Any], name: str) -> float | None:
    """Return a time of a token in milliseconds since the epoch; None if it has none, or no sensible number."""
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _MAX_SECONDS:
        return None
    return value * 1000


def _json_object(text: str) -> dict[str, Any] | None:
    """Decode a part of a token; None if it is not a JSON object."""
    if not _BASE64URL.fullmatch(text):
        return None
    try:
        found = json.loads(urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class OAuthBearerClient:
    """The client's side of one exchange; a `SaslClient`.

    Args:
        token: The token.

    Raises:
        AuthenticationError: The token has characters that tokens do not have.
    """

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError("OAUTHBEARER: expected a token of letters, digits, '-', '_' and '.'")
        self._message: bytes | None = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the first message, and afterwards None, unless the server has sent why it refuses the token."""
        if self._message is not None:
            message, self._message = self._message, None
            return message
        return _GIVE_UP if challenge else None


def unsecured_token(name: str, now_ms: float, lifetime_ms: float = 3_600_000) -> str:
    """Return an unsecured JWS (KIP-255), which brokers accept only for tests.

    Args:
        name: The name of the client.
        now_ms: The time in milliseconds since the epoch.
        lifetime_ms: For how long it is valid; by default as in Kafka's `OAuthBearerUnsecuredLoginCallbackHandler`.
    """
    claims = {"sub": name, "iat": now_ms / 1000, "exp": (now_ms + lifetime_ms) / 1000}
    parts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims))
    return ".".join((*parts, ""))
