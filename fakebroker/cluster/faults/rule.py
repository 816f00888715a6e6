"""A fault as plain data: the requests that it matches, and its effect on them. Validation of faults.

Depends on the tables of APIs and versions, to reject faults that can never match a request.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fakebroker.cluster.faults import request_fields
from fakebroker.cluster.faults.error_catalog import error_places, filters_of
from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.proposals import api_of_version
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Versions
from fakebroker.topic_partition import PartitionName, parse_partition
from fakebroker.validation import Positive, PositiveSeconds, Seconds, convert, plain

Action = Mapping[str, Any] | Callable[[Any], object]
"""An event, such as `{"do": "broker.stop", "node_id": 1}`; or in Python, a function of the `Call`."""

_Where = Annotated[Any, Meta(extra_json_schema={"description": "[path, operator, value], or a list of them."})]
_Actions = Annotated[Any, Meta(extra_json_schema={"description": "An event, or a list of events."})]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule: which requests it matches, and its effect on them. A filter that is not given matches every request.

    The first matching fault applies. Faults that were added later do not count the request. In a replay in memory, each
    partition of __consumer_offsets has its own cluster, which counts its requests and runs the commands of its faults.

    Attributes:
        api: The API by Kafka's name, such as "OffsetCommit"; None matches any.
        versions: Versions of the API, such as "0-3", "4+" or "2".
        broker: The node id of the broker that receives the request.
        client_id: The client id of the request.
        group: A group in the request. If the API has an error per group, only that group gets the error; the same holds
            for members, transactional ids, topics and partitions.
        member: A member in a request that names members, by its member id, instance id or client id.
        transactional_id: A transactional id in the request.
        topic: A topic in the request, by its name; also if the request names it by its id.
        topic_id: A topic in the request, by its id as `TopicView.topic_id` has it; only in requests that name ids.
        partition: A partition in the request: "orders-0" or ("orders", 0).
        resource: A resource of a config, a quota or credentials: "topic:orders", "broker:1", "group:billing",
            "user:alice", "client-id:app", "ip:10.0.0.1", "user:<default>".
        where: Fields of the request: a path, an operator and a value, such as
            `("topics.partitions.committed_offset", ">=", 100)`, or a list of them, which all hold. A path leads through
            arrays: one of their entries has to match. Operators: ==, !=, <, <=, >, >=, contains (a text). In Python
            also a function of the `Call`.
        nth: Only the nth of the requests that match all filters above, counted from 1 since the fault was added.
        every: Only every nth of them.
        probability: The probability that it applies to each of them. The seed of the cluster decides the draws.
        after_s: Starts this many seconds after it was added, by the brokers' clock.
        for_s: Ends this many seconds after its start, by the brokers' clock.
        times: The maximum number of times that it applies.
        error: The error in the response, by Kafka's name. Only requests in versions with this error match.
        before: Commands of the cluster that run before the request is handled: an event such as
            `{"do": "broker.stop", "node_id": 1}`, or a list of events. In Python also functions, which get the `Call`.
            Nothing else happens between the commands and the request. A request whose broker they stop is lost.
        delay_before_s: How many seconds pass by the brokers' clock until the request is handled, or a range to draw the
            delay from; as over a slow network. Later requests of the connection wait behind it.
        then: Commands that run after the request was handled, and before its response is sent; as `before`. For a
            JoinGroup or SyncGroup that waits for other members, they run when its wait begins.
        delay_s: How many seconds the response is delayed by the brokers' clock, or a range to draw the delay from.
        drop: The connection is closed instead of a response.
        silent: There is no response. Further requests on the connection get no response either.
        stale: Metadata and FindCoordinator return the leaders and coordinators at the time when the fault was added.
        twice: The response is sent twice.
        cut_bytes: Only this many bytes of the response are sent, at most all but one; then the connection is closed.
        garble_bytes: This many random bytes of the response, after its correlation id, are changed.
        throttle_time_ms: The throttle time in the response. The broker reads no further requests from the connection
            until it has passed, by the clients' clock (KIP-219).
        handles: Whether the request takes effect. By default, a request with `error`, `drop` or `silent` has no effect,
            and every other has. `drop=True, handles=True` is a request whose response is lost.
        may_miss: Whether it may apply to no request. By default that is an error at the end of its `with` and of a
            test with the pytest plugin, because the usual reason is a misspelled name.
    """

    api: str | None
    versions: Annotated[str, Meta(examples=["0-3"])] | None = None
    broker: int | None = None
    client_id: str | None = None
    group: str | None = None
    member: str | None = None
    transactional_id: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: PartitionName | None = None
    resource: str | None = None
    where: _Where = None
    nth: Positive | None = None
    every: Positive | None = None
    probability: Annotated[float, Meta(gt=0, le=1)] | None = None
    after_s: Seconds = 0.0
    for_s: PositiveSeconds | None = None
    times: Positive | None = None
    error: ErrorCode | str | None = None
    before: _Actions = None
    delay_before_s: float | tuple[float, float] | None = None
    then: _Actions = None
    delay_s: float | tuple[float, float] | None = None
    drop: bool = False
    silent: bool = False
    stale: bool = False
    twice: bool = False
    cut_bytes: Positive | None = None
    garble_bytes: Positive | None = None
    throttle_time_ms: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    handles: bool | None = None
    may_miss: bool = False

    @property
    def takes_effect(self) -> bool:
        """Whether matching requests are handled."""
        return not (self.error or self.drop or self.silent) if self.handles is None else self.handles

    @property
    def code(self) -> ErrorCode | None:
        """The error code; None without an error."""
        return ErrorCode[self.error] if isinstance(self.error, str) else self.error

    @property
    def named(self) -> dict[str, Any]:
        """The names in its filters, by kind: group, member, transactional_id, topic, topic_id, resource, partition."""
        kinds = ("group", "member", "transactional_id", "topic", "topic_id", "resource")
        named = {kind: value for kind in kinds if (value := getattr(self, kind)) is not None}
        if self.partition is not None:
            named["topic"], named["partition"] = parse_partition(self.partition, where="fault")
        return named


_EFFECTS = (
    *("error", "before", "delay_before_s", "then", "delay_s", "drop", "silent", "stale", "twice", "cut_bytes"),
    *("garble_bytes", "throttle_time_ms"),
)
_CONTRADICTIONS = {
    # A response that is not sent cannot have other effects. But `drop` may close the connection after a delay.
    "drop": ("error", "silent", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "silent": ("error", "delay_s", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "cut_bytes": ("twice", "throttle_time_ms"),
    "stale": ("error",),
    "nth": ("every", "times"),
    "partition": ("topic", "topic_id"),
    "topic": ("topic_id",),
}
_STALE_APIS = ("FindCoordinator", "Metadata")
"""The APIs that report leaders and coordinators."""


def checked(fault: Fault, versions_by_broker: Mapping[int, Mapping[int, Versions]]) -> Fault:
    """Validate a fault, and return it with its fields converted.

    Args:
        fault: The fault.
        versions_by_broker: The versions that each broker supports, by node id and API key.

    Raises:
        ConfigError: A name is unknown, a field is out of range, two fields contradict each other, or the fault has no
            effect or can never match a request.
    """
    fault = convert(plain(fault), Fault, where="fault")
    if fault.api is not None and fault.api not in API_BY_NAME:
        raise _error("api", fault.api, one_of(API_BY_NAME, fault.api))
    if fault.broker is not None and fault.broker not in versions_by_broker:
        raise _error("broker", fault.broker, one_of(versions_by_broker))
    for name in ("delay_before_s", "delay_s"):
        _check_delay(name, getattr(fault, name))
    for name in ("before", "then"):
        _check_actions(name, getattr(fault, name))
    _check_effects(fault)
    if fault.partition is not None:
        parse_partition(fault.partition, where="fault")
    if fault.resource is not None and ":" not in fault.resource:
        raise _error("resource", fault.resource, "a type and a name, such as 'group:billing' or 'user:alice'")
    if fault.topic_id is not None and not re.fullmatch("[A-Za-z0-9_-]{22}", fault.topic_id):
        raise _error("topic_id", fault.topic_id, "the 22 characters of `TopicView.topic_id`")
    request_fields.check(fault.where, fault.api)
    if fault.stale and fault.api not in _STALE_APIS:
        raise _error("api", fault.api, f"{' or '.join(_STALE_APIS)} with stale=True")
    if fault.api is None:
        for name in ("error", "versions"):
            if getattr(fault, name) is not None:
                raise _error("api", None, f"the API that {name}={_text(getattr(fault, name))} refers to")
        return fault
    api = API_BY_NAME[fault.api]
    brokers = versions_by_broker.values() if fault.broker is None else [versions_by_broker[fault.broker]]
    versions = _versions(fault, api, [supported[api.key] for supported in brokers if api.key in supported])
    _check_kinds(fault, api)
    if fault.error is not None:
        _check_error(fault, api, versions)
    return fault


def checked_in_advance(fault: Fault) -> Fault:
    """Validate a fault that is added later, when the brokers and their releases may be others; see `checked`."""
    broker = fault.broker if isinstance(fault.broker, int) else 0
    return checked(fault, {broker: {api.key: api.versions for api in API_BY_NAME.values()}})


def _error(field: str, value: object, expected: str) -> ConfigError:
    return ConfigError.of(field, value, expected, where="fault")


def _given(fault: Fault, name: str) -> bool:
    return getattr(fault, name) not in (None, False)


Delay = float | tuple[float, float] | None
"""A delay in seconds, a range to draw it from, or none."""


def _check_delay(name: str, delay_s: Delay) -> None:
    low_s, high_s = delay_range(delay_s)
    if not 0 <= low_s <= high_s < inf:
        raise _error(name, delay_s, "seconds >= 0, or a range of them")


def delay_range(delay_s: Delay) -> tuple[float, float]:
    """Return the minimum and maximum of a delay, in seconds."""
    delay_s = delay_s or 0.0
    low_s, high_s = (delay_s, delay_s) if isinstance(delay_s, int | float) else delay_s
    return low_s, high_s


def actions_of(value: Any) -> tuple[Action, ...]:
    """Return the actions of `Fault.before` or `Fault.then` in order."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)


def _check_actions(name: str, value: Any) -> None:
    """Check the form of actions. `handles/faults.py` checks their commands and arguments."""
    actions = actions_of(value)
    if value is not None and not actions:
        raise _error(name, value, "an event, a function, or a list of them")
    for action in actions:
        if not (isinstance(action, Mapping) and "do" in action) and not callable(action):
            raise _error(name, action, "an event such as {'do': 'clear_faults'}, a function, or a list of them")


def _check_effects(fault: Fault) -> None:
    if not any(_given(fault, effect) for effect in _EFFECTS):
        given = {field: value for field, value in msgspec.structs.asdict(fault).items() if value not in (None, False)}
        expected = one_of(_EFFECTS)
        raise ConfigError(f"fault has no effect: set {expected}", field="fault", value=given, expected=expected)
    for name, others in _CONTRADICTIONS.items():
        for other in others:
            if _given(fault, name) and _given(fault, other):
                raise _error(other, _text(getattr(fault, other)), f"none with {name}: they contradict each other")
    if fault.handles is False and not (fault.error or fault.drop or fault.silent):
        raise _error("handles", False, "error, drop or silent with it: the request has no result to return")


def _versions(fault: Fault, api: Api, supported: list[Versions]) -> list[int]:
    """Return the versions that the fault can match: those in its filter that a broker supports."""
    try:
        wanted = Versions.parse("0+" if fault.versions is None else fault.versions)
    except ValueError:
        raise _error("versions", fault.versions, "versions such as '0-3', '4+' or '2'") from None
    matching = sorted({each for some in supported for each in some if each in wanted})
    if not matching:
        ranges = ", ".join(dict.fromkeys(map(str, supported)))
        if not ranges:
            raise _error("api", api.name, "an API that a broker supports")
        raise _error("versions", fault.versions, f"some of {api.name} {ranges}")
    return matching


def _check_kinds(fault: Fault, api: Api) -> None:
    kinds = filters_of(api)
    for kind, value in fault.named.items():
        if kind not in kinds:
            expected = f"{' or '.join(kinds)}: {api.name} has no {kind}" if kinds else f"none: {api.name} has no {kind}"
            raise _error(kind, value, expected)


def _check_error(fault: Fault, api: Api, versions: list[int]) -> None:
    places = [
        place
        for version in versions
        for place in error_places(api_of_version(api, version))
        if version in place.versions
    ]
    names = [code.name for code in ErrorCode if any(code in place.errors for place in places)]
    if _text(fault.error) not in names:
        raise _error("error", _text(fault.error), f"an error of {api.name}, {one_of(names, fault.error)}")


def _text(value: object) -> object:
    return value.name if isinstance(value, ErrorCode) else value
