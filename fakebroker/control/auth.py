"""Authorization: a bearer token for addresses other than loopback; cross-origin writes are always rejected.

Depends on methods, paths and headers only.
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
    """Return the required token: the given one, or a generated one if the address is not loopback and none is given."""
    return token or (None if is_loopback(host) else secrets.token_urlsafe(24))


class Guard:
    """Checks whether requests are allowed.

    Args:
        host: The address that the server listens on.
        token: The required bearer token; None if none is required.
    """

    def __init__(self, host: str, token: str | None = None) -> None:
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Reject a request that is not allowed.

        Raises:
            Problem: The host, origin or token is wrong.
        """
        host = headers.get("host", "")
        if self._is_local and not is_loopback(_name_in(host)):
            # Else a web page could send requests under a name of its own that resolves to this machine (DNS rebinding).
            raise Problem(
                421, f"host={host!r}: expected a loopback address", **_about("host", host, "a loopback address")
            )
        if method not in _READING:
            _check_origin(host, headers)
        # The web page contains no secrets, and prompts for the token.
        if self._token is not None and path not in _OPEN and not path.startswith(_OPEN_FOLDER):
            self._check_token(headers.get("authorization", ""))

    def _check_token(self, authorization: str) -> None:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), (self._token or "").encode()):
            expected = "Bearer and the token that fakebroker was started with, or has printed"
            raise Problem(401, f"authorization: expected {expected}", **_about("authorization", None, expected))


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback one."""
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
    """Return the name in a Host header; empty if it contains more than an address."""
    if set(host) & set("/?#@\\"):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _about(field: str, value: str | None, expected: str) -> dict[str, str | None]:
    return {"field": field, "value": value, "expected": expected}
