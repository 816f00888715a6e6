"""Filters for the requests in a journal: validation, matching, and descriptions for error messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from fakebroker.cluster.call import Call
from fakebroker.errors import ConfigError, ErrorCode, check_integer, check_number, one_of
from fakebroker.protocol.registry import API_BY_NAME


class Filters(TypedDict, total=False):
    """Filters besides the API and the client id; a request must match all of them.

    Attributes:
        group: The request contains this group id.
        member: The request contains this member id, or it is a JoinGroup whose response assigns it.
        broker: The request was sent to the broker with this node id.
        connection: The request was received on the connection with this number.
        error: The response contains this error, by Kafka's name; "NONE" matches responses without errors.
        since: The request was received at this time or later: milliseconds since the epoch, by the brokers' clock.
    """

    group: str
    member: str
    broker: int
    connection: int
    error: str | ErrorCode
    since: float


class StepFilters(Filters, total=False):
    """Filters besides the API."""

    client_id: str


Step = str | tuple[str, StepFilters]
"""One step of `assert_order`: the name of an API, or a pair of a name and filters."""

_FILTERS: Mapping[str, Callable[[Call, Any], bool]] = {
    "client_id": lambda call, client_id: call.client_id == client_id,
    "group": lambda call, group_id: group_id in call.group_ids,
    "member": lambda call, member_id: member_id in call.member_ids,
    "broker": lambda call, node_id: call.node_id == node_id,
    "connection": lambda call, connection_id: call.connection_id == connection_id,
    "error": lambda call, error: call.has_response and error in (call.errors or (ErrorCode.NONE,)),
    "since": lambda call, since_ms: call.received_ms >= since_ms,
}


def matcher(api: str | None, filters: Mapping[str, object], node_ids: Iterable[int]) -> Callable[[Call], bool]:
    """Return a function that tests whether a request matches.

    Args:
        api: The name of the API; None matches any.
        filters: The other filters, by name; a filter that is None matches any request.
        node_ids: The node ids that `broker` may have: those of present and removed brokers.

    Raises:
        ConfigError: There is no such API, broker, error or filter.
    """
    for name, value in filters.items():
        if name not in _FILTERS:
            raise ConfigError.unknown(name, value, one_of(_FILTERS, name), kind="filter")
    given = {name: value for name, value in filters.items() if value is not None}
    if api is not None:
        _check_known("api", api, API_BY_NAME)
    if "broker" in given:
        _check_known("broker", given["broker"], dict.fromkeys(node_ids))
    if "connection" in given:
        check_integer("connection", given["connection"], least=0)
    if "since" in given:
        check_number("since", given["since"], least=0)
    if "error" in given:
        given["error"] = _error(given["error"])
    tests = [(_FILTERS[name], value) for name, value in given.items()]
    return lambda call: api in (None, call.api.name) and all(test(call, value) for test, value in tests)


def pair(step: Step) -> tuple[str, StepFilters]:
    """Return the name of the API and the filters of a step.

    Raises:
        ConfigError: The step is neither a name nor a pair.
    """
    if isinstance(step, str):
        return step, {}
    if not (isinstance(step, tuple) and [type(part) for part in step] == [str, dict]):
        raise ConfigError.of("step", step, "the name of an API, or a pair of a name and a dict of filters")
    return step


def described(api: str | None, filters: Mapping[str, object]) -> str:
    """Describe filters for an error message, such as "Heartbeat with client_id='a'"."""
    named = ", ".join(f"{name}={value!r}" for name, value in filters.items() if value is not None)
    return (api or "request") + (f" with {named}" if named else "")


def _check_known(field: str, name: object, known: Iterable[object]) -> None:
    if name not in known:
        raise ConfigError.of(field, name, one_of(known, name))


def _error(error: object) -> ErrorCode:
    name = error.name if isinstance(error, ErrorCode) else error
    _check_known("error", name, ErrorCode.__members__)
    return ErrorCode[str(name)]
