"""Errors as problem details (RFC 9457), with the field, its value, and what was expected.

Parses the messages of the project's exceptions, which contain all three.
"""

import re
from ast import literal_eval
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

from fakebroker.errors import FakebrokerError, ListenError, WaitTimeout

PROBLEM_TYPE = "application/problem+json"

_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Timed out",
    409: "Conflict",
    413: "Body too large",
    415: "Not JSON",
    421: "Wrong host",
    422: "Cannot be",
    500: "Error in fakebroker",
    503: "Not available",
}
_SENTENCES = (
    # fault: nth=0, expected a whole number of 1 or more
    re.compile(
        r"(?:^|.*?[:,] |.*? with )(?P<field>[\w.]+)=(?P<value>.+?)(?:, |: )expected (?P<expected>.+)", re.DOTALL
    ),
    # no broker 9 is up: expected one of 1, 2
    re.compile(r".*?(?P<field>\w+) (?P<value>'[^']*'|-?\d+)[^:]*?(?:: |, )expected (?P<expected>.+)", re.DOTALL),
)
"""Patterns of exception messages."""

_LITERAL = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?= |$)""", re.DOTALL)


class ProblemDetails(TypedDict):
    """An error; with `field`, its `value` and what was `expected` if it is about a field."""

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str | None]
    value: NotRequired[Any]
    expected: NotRequired[str | None]


class Problem(Exception):  # noqa: N818  # RFC 9457's name; also the response
    """A request that cannot be fulfilled.

    Args:
        status: The HTTP status.
        detail: One sentence.
        field: The invalid argument or part of the path.
        value: Its value.
        expected: What was expected instead.
    """

    def __init__(
        self, status: int, detail: str, *, field: str | None = None, value: Any = None, expected: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.field, self.value, self.expected = field, value, expected

    def body(self) -> ProblemDetails:
        """Return the problem as a JSON object."""
        found: ProblemDetails = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": str(self),
        }
        if self.field is not None:
            found["field"], found["value"] = self.field, self.value
        if self.expected is not None:
            found["expected"] = self.expected
        return found


def not_found(what: str, value: object, known: str) -> Problem:
    """Return the problem of a name that does not exist."""
    return Problem(404, f"no {what} {value!r}: expected {known}", field=what, value=value, expected=known)


def problem_of(error: FakebrokerError) -> Problem:
    """Convert one of the project's own exceptions to a problem."""
    status = 408 if isinstance(error, WaitTimeout) else 409 if isinstance(error, ListenError) else 422
    told = [found for each in _SENTENCES if (found := each.fullmatch(str(error)))] if status != 408 else []
    if not told:
        return Problem(status, str(error))
    return Problem(status, str(error), **{**told[0].groupdict(), "value": _read(told[0]["value"])})


def _read(value: str) -> Any:
    """Parse a value in a message: a quoted string or a number, maybe followed by words; or else the text itself."""
    if found := _LITERAL.match(value):
        with suppress(ValueError, SyntaxError):
            return literal_eval(found[0])
    return value
