"""What a fault is, as plain data: which requests it meets, and what goes wrong with them.

Knows the tables of the protocol, to refuse a fault that can never meet a request; no cluster and no sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from fakebroker.cluster.faults.error_catalog import PLACES, kinds_of
from fakebroker.cluster.faults.stale_metadata import STALE_APIS
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule: the requests that it meets, and what becomes of them. What is not given meets every request.

    Of the faults that meet a request the first one added does its work; those after it do not see the request.

    Attributes:
        api: The API by Kafka's name, such as "OffsetCommit"; None is any.
        versions: The versions of it, such as "0-3", "4+" or "2".
        broker: The node id of the broker asked.
        client_id: The client's name for itself.
        group: The group that the request names, alone or among others. An error is then given for that group alone
            where the API has one for each; the same holds for members, topics and partitions.
        member_id: The member.
        instance_id: The static member, by its `group.instance.id`.
        topic: The topic.
        partition: The partition as Kafka writes it, such as "orders-0".
        nth: Only the so manieth of the requests that all the above meets, from 1 on.
        every: Only each so manieth of them.
        probability: How likely each of them is met; drawn from the seed of the cluster.
        after_s: It begins so many seconds of the brokers' time after it was added.
        for_s: It ends so many seconds of the brokers' time after its begin.
        times: How often it does its work at most.
        error: The error in the response, by Kafka's name, put where this API and version puts it.
        delay_s: The answer comes so many seconds of the brokers' time later; or a drawn number between two.
        drop: The connection is closed in place of an answer.
        silent: There is no answer, ever; what else the connection asks waits for it in vain.
        stale: Metadata and FindCoordinator name the leaders and coordinators of when the fault was added.
        twice: The answer is sent twice.
        cut_bytes: So many bytes of the answer are sent, at least one too few; then the connection is closed.
        garble_bytes: So many bytes of the answer, behind its correlation id, are others than they should be; drawn.
        throttle_time_ms: What the response says of throttling. The connection is muted for so long, in the clients'
            time: what it asks then waits (KIP-219).
        handles: Whether the request takes effect. By default one that gets no answer or an error does not. So a commit
            is applied and its answer lost with `drop=True, handles=True`.
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
        """Whether the request is handled."""
        return not (self.error or self.drop or self.silent) if self.handles is None else self.handles

    @property
    def code(self) -> ErrorCode | None:
        """The error."""
        return ErrorCode[self.error] if isinstance(self.error, str) else self.error

    @property
    def named(self) -> dict[str, Any]:
        """The things that it names, by their kinds."""
        kinds = ("group", "member_id", "instance_id", "topic")
        named = {kind: value for kind in kinds if (value := getattr(self, kind)) is not None}
        if self.partition is not None:
            topic, _, index = self.partition.rpartition("-")
            named |= {"topic": topic, "partition": int(index)}
        return named


_ACTS = ("error", "delay_s", "drop", "silent", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms")
_CONTRADICTIONS = {
    # Without an answer there is nothing to do to it; one that is delayed may be lost then.
    "drop": ("error", "silent", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "silent": ("error", "delay_s", "stale", "twice", "cut_bytes", "garble_bytes", "throttle_time_ms"),
    "cut_bytes": ("twice", "throttle_time_ms"),
    "stale": ("error",),
    "nth": ("every", "times"),
    "partition": ("topic",),
}
_AT_LEAST_ONE = ("nth", "every", "times", "cut_bytes", "garble_bytes", "throttle_time_ms")

_MOST_MS = 2**31 - 1
"""What an answer can say."""


def check(fault: Fault, spoken: Mapping[int, Mapping[int, Versions]]) -> None:
    """Refuse a fault that can never do anything.

    Args:
        fault: The fault.
        spoken: For each broker what it answers: versions by the key of the API.

    Raises:
        ConfigError: It names what is not there, or what its API has not; or it contradicts itself.
    """
    if fault.api is not None and fault.api not in API_BY_NAME:
        raise ConfigError(f"fault: unknown API {fault.api!r}, expected one of {', '.join(API_BY_NAME)}")
    if fault.broker is not None and fault.broker not in spoken:
        raise ConfigError(f"fault: no broker {fault.broker}, expected one of {', '.join(map(str, spoken))}")
    _check_numbers(fault)
    _check_acts(fault)
    _check_partition(fault)
    if fault.stale and fault.api not in STALE_APIS:
        raise ConfigError(f"fault: stale with api={fault.api!r}, expected {' or '.join(STALE_APIS)}")
    if fault.api is None:
        if fault.error is not None or fault.versions is not None:
            raise ConfigError("fault: an error and versions are of one API, expected api to name it")
        return
    api = API_BY_NAME[fault.api]
    brokers = spoken.values() if fault.broker is None else [spoken[fault.broker]]
    versions = _versions(fault, api, [speaks[api.key] for speaks in brokers if api.key in speaks])
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
    if (fault.throttle_time_ms or 0) > _MOST_MS:
        raise ConfigError(f"fault: throttle_time_ms={fault.throttle_time_ms}, expected at most {_MOST_MS}")
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
    """The shortest and the longest delay, in seconds."""
    delay_s = fault.delay_s or 0.0
    low_s, high_s = (delay_s, delay_s) if isinstance(delay_s, int | float) else delay_s
    return low_s, high_s


def _check_acts(fault: Fault) -> None:
    if not any(_given(fault, act) for act in _ACTS):
        raise ConfigError(f"fault: nothing goes wrong, expected one of {', '.join(_ACTS)}")
    for name, others in _CONTRADICTIONS.items():
        for other in others:
            if _given(fault, name) and _given(fault, other):
                raise ConfigError(f"fault: {name} and {other} contradict each other, expected one of them")
    if fault.handles is False and not (fault.error or fault.drop or fault.silent):
        raise ConfigError("fault: handles=False leaves nothing to answer, expected error, drop or silent with it")


def _check_partition(fault: Fault) -> None:
    if fault.partition is not None:
        topic, _, index = fault.partition.rpartition("-")
        if not topic or not index.isdecimal():
            raise ConfigError(f"fault: partition={fault.partition!r}, expected topic and number, such as 'orders-0'")


def _versions(fault: Fault, api: Api, answered: list[Versions]) -> list[int]:
    """The versions that it can meet."""
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
