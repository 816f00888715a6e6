"""Which requests of a journal are meant: filters by plain values, checked before they are used. Reads no journal."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from fakebroker.cluster.call import Call
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.registry import API_BY_NAME


class Filters(TypedDict, total=False):
    """Which requests are meant, beside their API and client: those that are all of this.

    Attributes:
        group: They name this group.
        member: They name this member id, or a JoinGroup was given it.
        broker: They were sent to the broker with this node id.
        connection: They came on the connection with this number.
        error: Their response tells this error somewhere, by Kafka's name; "NONE": it tells none.
        since: They came at this time or later: milliseconds since the epoch, by the brokers' clock.
    """

    group: str
    member: str
    broker: int
    connection: int
    error: str | ErrorCode
    since: float


class StepFilters(Filters, total=False):
    """Which requests are meant, beside their API; `client_id` is what the client calls itself."""

    client_id: str


Step = str | tuple[str, StepFilters]
"""One step of an order: the name of an API, or that and which of its requests are meant."""

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
    """What tells whether a request is meant.

    Args:
        api: The API by name; None is any.
        filters: What else holds; None is any.
        node_ids: The brokers that there are, or were.

    Raises:
        ConfigError: There is no such API, broker, error or filter.
    """
    for name in filters:
        _check_known("filter", name, _FILTERS)
    wanted = {name: value for name, value in filters.items() if value is not None}
    if api is not None:
        _check_known("API", api, API_BY_NAME)
    if "broker" in wanted:
        _check_known("broker", wanted["broker"], dict.fromkeys(node_ids))
    if "since" in wanted and not isinstance(wanted["since"], int | float):
        raise ConfigError(f"since={wanted['since']!r}: expected milliseconds since the epoch")
    if "error" in wanted:
        wanted["error"] = _error(wanted["error"])
    tests = [(_FILTERS[name], value) for name, value in wanted.items()]
    return lambda call: api in (None, call.api.name) and all(test(call, value) for test, value in tests)


def pair(step: Step) -> tuple[str, StepFilters]:
    """A step as the name of an API, and what else holds.

    Raises:
        ConfigError: It is no step.
    """
    if isinstance(step, str):
        return step, {}
    if not (isinstance(step, tuple) and [type(part) for part in step] == [str, dict]):
        raise ConfigError(f"step {step!r}: expected the name of an API, or a pair of one and a dict of filters")
    return step


def described(api: str | None, filters: Mapping[str, object]) -> str:
    """Which requests are meant, in words."""
    named = ", ".join(f"{name}={value!r}" for name, value in filters.items() if value is not None)
    return (api or "request") + (f" with {named}" if named else "")


def _check_known(kind: str, name: object, known: Iterable[object]) -> None:
    if name not in known:
        raise ConfigError(f"unknown {kind} {name!r}: expected one of {', '.join(map(str, known))}")


def _error(error: object) -> ErrorCode:
    name = error.name if isinstance(error, ErrorCode) else error
    _check_known("error", name, ErrorCode.__members__)
    return ErrorCode[str(name)]
