"""Authorization: addresses other than loopback require a bearer token, and cross-origin writes are rejected.

Does not depend on sockets or ASGI: it checks methods, paths and headers.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from fakebroker.control.problems import Problem

_READ_METHODS = ("GET", "HEAD", "OPTIONS")
_PUBLIC_PATHS = ("/", "/docs", "/healthz")
_PUBLIC_FOLDERS = ("/page/", "/docs/")


def effective_token(host: str, token: str | None) -> str | None:
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
        if self._is_local and not is_loopback(_host_name(host)):
            # DNS rebinding: a web site could make its own name resolve to this machine.
            raise Problem(
                421, f"host={host!r}: expected a loopback address", **_attributes("host", host, "a loopback address")
            )
        if method not in _READ_METHODS:
            _check_origin(host, headers)
        # The web page contains no secrets, and prompts for the token.
        if self._token is not None and path not in _PUBLIC_PATHS and not path.startswith(_PUBLIC_FOLDERS):
            self._check_token(headers.get("authorization", ""))

    def _check_token(self, authorization: str) -> None:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), (self._token or "").encode()):
            expected = "Bearer and the token of the server (--control-token, or printed on its stderr)"
            raise Problem(401, f"authorization: expected {expected}", **_attributes("authorization", None, expected))


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _check_origin(host: str, headers: Mapping[str, str]) -> None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if (origin is not None and origin.partition("://")[2] != host) or site not in ("same-origin", "none"):
        expected = f"a same-origin request (from {host}), or one without a browser"
        raise Problem(403, f"origin={origin!r}: expected {expected}", **_attributes("origin", origin, expected))


def _host_name(host: str) -> str:
    """Return the name in a Host header without the port; empty if the header is malformed."""
    if set(host) & set("/?#@\\"):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _attributes(field: str, value: str | None, expected: str) -> dict[str, str | None]:
    return {"field": field, "value": value, "expected": expected}
