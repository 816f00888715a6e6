"""Who may control: a token where others than this machine can ask, and no page of another origin ever.

Knows headers; no clusters.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from fakebroker.control.problems import Problem

TOKEN_VARIABLE = "FAKEBROKER_CONTROL_TOKEN"

_READING = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/", "/docs", "/healthz")
_OPEN_FOLDER = "/page/"


def own_token(host: str, token: str | None) -> str | None:
    """What callers have to show at this address: the token that is given, or else a new one if others can ask."""
    return token or (None if is_loopback(host) else secrets.token_urlsafe(24))


class Guard:
    """Lets in who may.

    Args:
        host: The address that is listened on.
        token: What callers have to show; None is nothing.
    """

    def __init__(self, host: str, token: str | None = None) -> None:
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Refuse who may not.

        Raises:
            Problem: Why.
        """
        host = headers.get("host", "")
        if self._is_local and not is_loopback(_name_in(host)):
            # Else a page could ask under a name of its own that points to this machine (DNS rebinding).
            raise Problem(
                421, f"host={host!r}: expected a loopback address", **_about("host", host, "a loopback address")
            )
        if method not in _READING:
            _check_origin(host, headers)
        # The page has nothing to hide, and asks for the token.
        if self._token is not None and path not in _OPEN and not path.startswith(_OPEN_FOLDER):
            self._check_token(headers.get("authorization", ""))

    def _check_token(self, authorization: str) -> None:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), (self._token or "").encode()):
            expected = "Bearer and the token that fakebroker was started with, or has printed"
            raise Problem(401, f"authorization: expected {expected}", **_about("authorization", None, expected))


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine for itself alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _check_origin(host: str, headers: Mapping[str, str]) -> None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if (origin is not None and origin.partition("://")[2] != host) or site not in ("same-origin", "none"):
        expected = f"a page of {host}, or no page"
        raise Problem(403, f"origin={origin!r}: expected {expected}", **_about("origin", origin, expected))


def _name_in(host: str) -> str:
    """The name in a Host header; none if that has more in it than an address."""
    if set(host) & set("/?#@\\"):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _about(field: str, value: str | None, expected: str) -> dict[str, str | None]:
    return {"field": field, "value": value, "expected": expected}
