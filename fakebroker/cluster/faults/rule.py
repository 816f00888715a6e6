"""A fault as plain data: the requests it matches and its effect on them; and validation of a new fault.

Depends on the protocol's tables, to reject faults that can never match a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from fakebroker.cluster.faults.error_catalog import PLACES, kinds_of
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Versions
from fakebroker.topic_partition import parse_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule: which requests it matches, and its effect. A filter that is not given matches every request.

    The first matching fault applies; faults added after it do not count the request.

    Attributes:
        api: The API by Kafka's name, such as "OffsetCommit"; None is any.
        versions: Versions of the API, such as "0-3", "4+" or "2".
        broker: The node id of the broker that receives the request.
        client_id: The client's name.
        group: A group that the request names, alone or among others. An error is then returned for that group only, if
            the API has one for each; the same holds for members, topics and partitions.
        member_id: A member.
        instance_id: A static member, by its `group.instance.id`.
        topic: A topic.
        partition: A partition as Kafka writes it, such as "orders-0".
        nth: Only the nth of the requests that match all of the above, counted from 1.
        every: Only every nth of them.
        probability: The probability that it applies to each of them; drawn from the seed of the cluster.
        after_s: Starts this many seconds of the brokers' time after it was added.
        for_s: Ends this many seconds of the brokers' time after its start.
        times: The maximum number of times that it applies.
        error: The error in the response, by Kafka's name, where this API and version has it.
        delay_s: Seconds of the brokers' time by which the response is delayed, or a range to draw them from.
        drop: The connection is closed instead of a response.
        silent: There is no response. Further requests on the connection get no response either.
        stale: Metadata and FindCoordinator return the leaders and coordinators of the time when the fault was added.
        twice: The response is sent twice.
        cut_bytes: Only this many bytes of the response are sent, at most all but one; then the connection is closed.
        garble_bytes: This many random bytes of the response, after its correlation id, are changed.
        throttle_time_ms: The throttle time in the response. The connection is muted for as long, by the clients' time
            (KIP-219).
        handles: Whether the request takes effect. By default a request without a response or with an error does not. A
            commit that is applied although its response is lost is `drop=True, handles=True`.
    """

    api: str | None
    versions: str | None = None
    broker: int | None = None
    client_id: str | None = None
    group: str | None = None
    member_id: str | None = None
    instance_id: str | None = None
    topic: str | None = None
    partition: str | None = None
    nth: int | None = None
    every: int | None = None
    probability: float | None = None
    after_s: float = 0.0
    for_s: float | None = None
    times: int | None = None
    error: ErrorCode | str | None = None
    delay_s: float | tuple[float, float] | None = None
    drop: bool = False
    silent: bool = False
    stale: bool = False
    twice: bool = False
    cut_bytes: int | None = None
    garble_bytes: int | None = None
    throttle_time_ms: int | None = None
    handles: bool | None = None

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
        """The names in its filters: group, member, topic, partition."""
        kinds = ("group", "member_id", "instance_id", "topic")
        named = {kind: value for kind in kinds if (value := getattr(self, kind)) is not None}
        if self.partition is not None:
            named["topic"], named["partition"] = parse_partition(self.partition, where="fault")
        return named


_EFFECTS = ("error", "delay_s", "drop", "silent", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms")
_CONTRADICTIONS = {
    # A lost response cannot be changed, but it can be lost after a delay.
    "drop": ("error", "silent", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "silent": ("error", "delay_s", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "cut_bytes": ("twice", "throttle_time_ms"),
    "stale": ("error",),
    "nth": ("every", "times"),
    "partition": ("topic",),
}
_AT_LEAST_ONE = ("nth", "every", "times", "cut_bytes", "garble_bytes", "throttle_time_ms")

_MAX_THROTTLE_MS = 2**31 - 1
"""The maximum value of the field."""

_STALE_APIS = ("FindCoordinator", "Metadata")
"""The APIs that report leaders and coordinators."""


def check(fault: Fault, versions_by_broker: Mapping[int, Mapping[int, Versions]]) -> None:
    """Reject a fault that can never match a request or has no effect.

    Args:
        fault: The fault.
        versions_by_broker: The versions that each broker supports, by node id and API key.

    Raises:
        ConfigError: An API, broker, version, error or filter is unknown, or two settings contradict each other.
    """
    if fault.api is not None and fault.api not in API_BY_NAME:
        raise ConfigError(f"fault: unknown API {fault.api!r}, expected one of {', '.join(API_BY_NAME)}")
    if fault.broker is not None and fault.broker not in versions_by_broker:
        raise ConfigError(f"fault: no broker {fault.broker}, expected one of {', '.join(map(str, versions_by_broker))}")
    _check_numbers(fault)
    _check_effects(fault)
    if fault.partition is not None:
        parse_partition(fault.partition, where="fault")
    if fault.stale and fault.api not in _STALE_APIS:
        raise ConfigError(f"fault: stale with api={fault.api!r}, expected {' or '.join(_STALE_APIS)}")
    if fault.api is None:
        if fault.error is not None or fault.versions is not None:
            raise ConfigError("fault: an error and versions are of one API, expected api to name it")
        return
    api = API_BY_NAME[fault.api]
    brokers = versions_by_broker.values() if fault.broker is None else [versions_by_broker[fault.broker]]
    versions = _versions(fault, api, [answered[api.key] for answered in brokers if api.key in answered])
    _check_kinds(fault, api)
    if fault.error is not None:
        _check_error(fault, api, versions)


def _given(fault: Fault, name: str) -> bool:
    return getattr(fault, name) not in (None, False)


def _check_numbers(fault: Fault) -> None:
    for name in _AT_LEAST_ONE:
        value = getattr(fault, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"fault: {name}={value!r}, expected a whole number of 1 or more")
    if (fault.throttle_time_ms or 0) > _MAX_THROTTLE_MS:
        raise ConfigError(f"fault: throttle_time_ms={fault.throttle_time_ms}, expected at most {_MAX_THROTTLE_MS}")
    if fault.probability is not None and not 0 < fault.probability <= 1:
        raise ConfigError(f"fault: probability={fault.probability!r}, expected more than 0 and at most 1")
    if not 0 <= fault.after_s < inf or not (fault.for_s is None or fault.for_s > 0):
        raise ConfigError(f"fault: after_s={fault.after_s}, for_s={fault.for_s}: expected 0 or more, and more than 0")
    try:
        low_s, high_s = delay_range(fault)
    except ValueError:
        low_s, high_s = -1.0, -1.0
    if not 0 <= low_s <= high_s < inf:
        raise ConfigError(f"fault: delay_s={fault.delay_s!r}, expected seconds of 0 or more, or a range of them")


def delay_range(fault: Fault) -> tuple[float, float]:
    """Return the minimum and maximum delay in seconds."""
    delay_s = fault.delay_s or 0.0
    low_s, high_s = (delay_s, delay_s) if isinstance(delay_s, int | float) else delay_s
    return low_s, high_s


def _check_effects(fault: Fault) -> None:
    if not any(_given(fault, effect) for effect in _EFFECTS):
        raise ConfigError(f"fault: nothing goes wrong, expected one of {', '.join(_EFFECTS)}")
    for name, others in _CONTRADICTIONS.items():
        for other in others:
            if _given(fault, name) and _given(fault, other):
                raise ConfigError(f"fault: {name} and {other} contradict each other, expected one of them")
    if fault.handles is False and not (fault.error or fault.drop or fault.silent):
        raise ConfigError("fault: handles=False leaves nothing to answer, expected error, drop or silent with it")


def _versions(fault: Fault, api: Api, answered: list[Versions]) -> list[int]:
    """Return the versions of requests that the fault can match."""
    try:
        wanted = api.request.VERSIONS if fault.versions is None else Versions.parse(fault.versions)
    except ValueError:
        raise ConfigError(f"fault: versions={fault.versions!r}, expected such as '0-3', '4+' or '2'") from None
    met = [each for each in api.request.VERSIONS if each in wanted and any(each in versions for versions in answered)]
    if not met:
        there = ", ".join(dict.fromkeys(map(str, answered))) or "none: no broker meant here has this API"
        raise ConfigError(f"fault: {api.name} versions {fault.versions or 'at all'}, expected some of {there}")
    return met


def _check_kinds(fault: Fault, api: Api) -> None:
    kinds = kinds_of(api)
    for kind in fault.named:
        if kind not in kinds:
            raise ConfigError(f"fault: {api.name} names no {kind}, expected {' or '.join(kinds) or 'nothing of it'}")


def _check_error(fault: Fault, api: Api, versions: list[int]) -> None:
    places = [place for place in PLACES[api.name] if any(version in place.versions for version in versions)]
    possible = [code for code in ErrorCode if any(code in place.errors for place in places)]
    if fault.error not in {*possible, *(code.name for code in possible)}:
        names = ", ".join(code.name for code in possible)
        raise ConfigError(f"fault: {api.name} never gives {_error_name(fault.error)}, expected one of {names}")


def _error_name(error: object) -> str:
    return error.name if isinstance(error, ErrorCode) else repr(error)
