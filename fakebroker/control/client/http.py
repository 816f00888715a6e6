"""HTTP with JSON for the control client. Problem details become the exceptions that `FakeCluster` raises."""

import json
import re
from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from fakebroker.errors import ConditionNotMet, ConfigError, FakebrokerError, WaitTimeout, check_number
from fakebroker.validation import write_json


class Unreachable(FakebrokerError, ConnectionError):  # noqa: N818  # named after a state
    """The control server does not respond."""


class NotFound(ConfigError):  # noqa: N818  # named after a state
    """The resource does not exist; `field` is its kind, such as "cluster" or "group"."""


class Http:
    """Sends requests to a control server, each on a new connection.

    Args:
        url: The URL of the server.
        token: The bearer token, if the server requires one.
        timeout_s: Seconds to wait for a response.

    Raises:
        ConfigError: The URL or the token is malformed, or the timeout is not above 0.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        if not _is_url(url):
            raise ConfigError.of("url", url, "a URL such as 'http://127.0.0.1:9644'")
        if token is not None and not re.fullmatch("[ -~\xa0-\xff]*", token):
            expected = "printable characters of Latin-1"
            raise ConfigError(f"token: expected {expected}", field="token", expected=expected)
        check_number("timeout_s", timeout_s, above=0)
        self.token = token
        self.timeout_s = timeout_s
        self._url = url.rstrip("/")
        # Proxies from the environment are ignored: they cannot connect to this machine's loopback address.
        self._open = build_opener(ProxyHandler({})).open

    def request_json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Send a request and return the JSON of the response; None if it is empty.

        Raises:
            ConfigError: An argument is invalid, or a resource does not exist.
            WaitTimeout: The condition of a wait was not met in time.
            Unreachable: The server does not respond.
            FakebrokerError: The token is missing or invalid, or the server is not a control server.
        """
        text = self.request_text(path, method, body, timeout_s=timeout_s)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise self._not_a_control_server() from None

    def request_text(
        self,
        path: str,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> str:
        """Send a request and return the text of the response; raises as `request_json`."""
        headers = {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else write_json(body)
        request = Request(self._url + path, data, headers, method=method)
        try:
            with self._open(request, timeout=self.timeout_s if timeout_s is None else timeout_s) as response:
                content: bytes = response.read()
        except HTTPError as error:
            with error:
                raise self._exception(error.code, error.read()) from None
        except (OSError, IncompleteRead) as error:
            reason = getattr(error, "reason", error)
            raise self._unreachable(getattr(reason, "strerror", None) or reason) from None
        except HTTPException:
            raise self._not_a_control_server() from None
        return content.decode(errors="replace")

    def _exception(self, status: int, body: bytes) -> FakebrokerError:
        """Convert an error response to an exception."""
        if status == 401:
            problem = "token required" if self.token is None else "invalid token"
            return FakebrokerError(
                f"{self._url}: {problem}, expected the value of --control-token or the token printed by the server"
            )
        try:
            details = json.loads(body)
            message = details["detail"]
            attributes = {name: details.get(name) for name in ("field", "value", "expected")}
        except (ValueError, KeyError, TypeError):
            return self._not_a_control_server()
        if status == 503:
            return self._unreachable(message)
        if status == 404:
            return NotFound(message, **attributes)
        if status in (409, 422):
            errors = [ConfigError(each.pop("detail"), **each) for each in details.get("errors", ())]
            return ConfigError.all_of(errors) if errors else ConfigError(message, **attributes)
        if status == 412:
            return ConditionNotMet(message)
        if status == 408:
            names = ("condition", "timeout_s", "state", "wait")
            return WaitTimeout(message, **{name: details[name] for name in names if name in details})
        return FakebrokerError(message)

    def _unreachable(self, reason: object) -> Unreachable:
        return Unreachable(f"no response from {self._url}: {reason}")

    def _not_a_control_server(self) -> FakebrokerError:
        return FakebrokerError(f"{self._url} is not a control server: expected JSON over HTTP")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # The port is not a number.
        return False
