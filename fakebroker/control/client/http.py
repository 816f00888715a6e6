"""HTTP with JSON for the control client: one request at a time, and problems as exceptions."""

import json
import re
from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from fakebroker.errors import ConfigError, FakebrokerError, WaitTimeout
from fakebroker.validation import write_json


class Unreachable(FakebrokerError, ConnectionError):  # noqa: N818  # A ConnectionError by its name too.
    """No control server answers."""


class NotThere(ConfigError):  # noqa: N818  # a state, as its siblings are
    """The resource does not exist; `field` is its kind, such as "cluster" or "group"."""


class Http:
    """Where a control server is.

    Args:
        url: Its address.
        token: What it wants to be shown, if it does.
        timeout_s: How long to wait for an answer.

    Raises:
        ConfigError: The address is none, or the token cannot be.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        if not _is_address(url):
            raise ConfigError.of("url", url, "an address such as 'http://127.0.0.1:9644'")
        if token is not None and not re.fullmatch("[ -~\xa0-\xff]*", token):
            expected = "printable characters of Latin-1"
            raise ConfigError(f"token: expected {expected}", field="token", expected=expected)
        self.token = token
        self.timeout_s = timeout_s
        self._url = url.rstrip("/")
        # No proxy knows of a process on this machine.
        self._open = build_opener(ProxyHandler({})).open

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """The JSON of the answer; None if it is empty.

        Raises:
            ConfigError: It cannot be.
            WaitTimeout: It has not come in time.
            Unreachable: No server answers.
            FakebrokerError: A token is wanted; or what answers there is something else.
        """
        text = self.text(path, method, body, timeout_s=timeout_s)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise self._stranger() from None

    def text(
        self,
        path: str,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> str:
        """The answer as it is; see `ask`."""
        headers = {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else write_json(body)
        request = Request(self._url + path, data, headers, method=method)
        try:
            with self._open(request, timeout=self.timeout_s if timeout_s is None else timeout_s) as response:
                answer: bytes = response.read()
        except HTTPError as error:
            with error:
                raise self._exception(error.code, error.read()) from None
        except (OSError, IncompleteRead) as error:
            reason = getattr(error, "reason", error)
            what = getattr(reason, "strerror", None) or reason
            raise Unreachable(f"{self._url} does not answer: {what}") from None
        except HTTPException:
            raise self._stranger() from None
        return answer.decode(errors="replace")

    def _exception(self, status: int, body: bytes) -> FakebrokerError:
        """A problem as the exception that `FakeCluster` raises."""
        if status == 401:
            kind_of_token = "a token" if self.token is None else "another token"
            return FakebrokerError(
                f"{self._url} wants {kind_of_token}: the one that it was started with, or has printed"
            )
        try:
            problem = json.loads(body)
            sentence = problem["detail"]
            about = {name: problem.get(name) for name in ("field", "value", "expected")}
        except (ValueError, KeyError, TypeError):
            return self._stranger()
        if status == 503:
            return Unreachable(f"{self._url} does not answer: {sentence}")
        if status == 404:
            return NotThere(sentence, **about)
        if status in (409, 422):
            errors = [ConfigError(each.pop("detail"), **each) for each in problem.get("errors", ())]
            return ConfigError.all_of(errors) if errors else ConfigError(sentence, **about)
        return WaitTimeout(sentence) if status == 408 else FakebrokerError(sentence)

    def _stranger(self) -> FakebrokerError:
        return FakebrokerError(f"{self._url} is no control server: its answer is not JSON over HTTP")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # Its port is no number.
        return False
