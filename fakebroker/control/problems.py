"""Errors as problem details (RFC 9457), with the field, its value, and what was expected."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from fakebroker.errors import (
    ClusterStopped,
    ConditionNotMet,
    ConfigError,
    DataDirectoryError,
    DiskFullError,
    FakebrokerError,
    ListenError,
    WaitTimeout,
)

PROBLEM_TYPE = "application/problem+json"

_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Timeout",
    409: "Conflict",
    412: "Condition not met",
    413: "Body too large",
    415: "Not JSON",
    421: "Misdirected request",
    422: "Invalid argument",
    500: "Internal error",
    503: "Not available",
    507: "Disk full",
}


_STATUSES: Mapping[type[FakebrokerError], int] = {
    ListenError: 409,
    ClusterStopped: 503,
    ConditionNotMet: 412,
    DataDirectoryError: 409,
    DiskFullError: 507,
}


class Mistake(TypedDict):
    """One of several errors."""

    detail: str
    field: str | None
    value: Any
    expected: str | None


class ProblemDetails(TypedDict):
    """An error. If it is about a field, `field` and `value` are present. Several errors are listed in `errors`.

    If a wait has timed out, `condition`, `timeout_s` and `state` (as text) are present. `wait` is the id of the wait:
    a request with it continues the wait, and misses no moment.
    """

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str | None]
    value: NotRequired[Any]
    expected: NotRequired[str | None]
    errors: NotRequired[list[Mistake]]
    condition: NotRequired[str]
    timeout_s: NotRequired[float]
    state: NotRequired[str]
    wait: NotRequired[str]


class Problem(Exception):  # noqa: N818  # the name in RFC 9457
    """An error response.

    Args:
        status: The HTTP status.
        detail: The error message.
        field: The invalid argument or part of the path.
        value: Its value.
        expected: What was expected instead.

    Attributes:
        mistakes: All errors; `body` lists them if they are several.
        timeout: The wait that has timed out, if one has.
        wait: The id with which it can be continued.
    """

    def __init__(
        self, status: int, detail: str, *, field: str | None = None, value: Any = None, expected: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.field, self.value, self.expected = field, value, expected
        self.mistakes: Sequence[ConfigError] = ()
        self.timeout: WaitTimeout | None = None
        self.wait: str | None = None

    def body(self) -> ProblemDetails:
        """Return the problem as a JSON object."""
        details: ProblemDetails = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": str(self),
        }
        if self.field is not None:
            details["field"], details["value"] = self.field, self.value
        if self.expected is not None:
            details["expected"] = self.expected
        if len(self.mistakes) > 1:
            details["errors"] = [
                {"detail": str(each), "field": each.field, "value": each.value, "expected": each.expected}
                for each in self.mistakes
            ]
        if self.timeout is not None and self.timeout.timeout_s is not None:
            details["condition"], details["timeout_s"] = self.timeout.condition, self.timeout.timeout_s
            details["state"] = self.timeout.state
            if self.wait is not None:
                details["wait"] = self.wait
        return details


def not_found(kind: str, value: object, expected: str) -> Problem:
    """Return the problem of a resource that does not exist; `kind` is "cluster", "group" and so on."""
    return Problem(404, f"no {kind} {value!r}: expected {expected}", field=kind, value=value, expected=expected)


def problem_of(error: FakebrokerError) -> Problem:
    """Convert one of the project's own exceptions to a problem."""
    if isinstance(error, ConfigError):
        problem = Problem(422, str(error), field=error.field, value=error.value, expected=error.expected)
        problem.mistakes = error.mistakes
        return problem
    if isinstance(error, WaitTimeout):
        problem = Problem(408, str(error))
        problem.timeout = error
        return problem
    return Problem(_STATUSES.get(type(error), 422), str(error))
