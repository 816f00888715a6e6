"""Filters for the requests in a journal: validation, matching, and descriptions for error messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from fakebroker.cluster.call import Call
from fakebroker.cluster.journal.dropped_calls import DroppedKind
from fakebroker.cluster.request_ids import (
    TopicRef,
    names_generations,
    names_members,
    names_producers,
    names_topics,
    names_transactions,
)
from fakebroker.errors import ConfigError, ErrorCode, check_integer, check_number, one_of, shown
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.topic_partition import parse_partition


class Filters(TypedDict, total=False):
    """Filters besides the API and the client id; a request must match all of them.

    Attributes:
        group: The request contains this group id.
        member: The request names this member by its member id, instance id or client id; or it is a JoinGroup whose
            response assigns this member id.
        instance_id: The request contains this `group.instance.id`.
        topic: The request names this topic, by name or by id; or it is a Fetch whose response has the topic.
        partition: The request names this partition, such as "orders-0"; or with a number, any partition with this
            index, or that of `topic`. It is found where `topic` is.
        transactional_id: The request names this transactional id.
        producer_id: The request names this producer id, also in record batches; or its response assigns it.
        generation: The request has this generation, or in a consumer group (KIP-848) this member epoch.
        principal: The client is authenticated as this user, such as "alice" or "User:alice".
        broker: The request was sent to the broker with this node id.
        connection: The request was received on the connection with this number.
        version: The request has this version of the API.
        error: The response contains this error, by Kafka's name; "NONE" matches responses without errors.
        fault: Whether a fault was injected into the request.
        since: The request was received at this time or later: milliseconds since the epoch, by the brokers' clock.
        until: The request was received before this time, as `since`.
    """

    group: str
    member: str
    instance_id: str
    topic: str
    partition: int | str
    transactional_id: str
    producer_id: int
    generation: int
    principal: str
    broker: int
    connection: int
    version: int
    error: str | ErrorCode
    fault: bool
    since: float
    until: float


class StepFilters(Filters, total=False):
    """Filters besides the API."""

    client_id: str


Step = str | tuple[str, StepFilters]
"""One step of `assert_order`: the name of an API, or a pair of a name and filters."""

TopicName = Callable[[bytes], str | None]
"""A function that returns the name of the topic with an id; None if it is not known."""

_FILTERS: Mapping[str, Callable[[Call, Any], bool]] = {
    "client_id": lambda call, client_id: call.client_id == client_id,
    "group": lambda call, group_id: group_id in call.group_ids,
    "member": lambda call, member: _names_member(call, member),
    "instance_id": lambda call, instance_id: instance_id in call.instance_ids,
    "transactional_id": lambda call, transactional_id: transactional_id in call.transactional_ids,
    "producer_id": lambda call, producer_id: producer_id in call.producer_ids,
    "generation": lambda call, generation: generation in call.generations,
    "principal": lambda call, principal: principal in (call.principal, call.principal.removeprefix("User:")),
    "broker": lambda call, node_id: call.node_id == node_id,
    "connection": lambda call, connection_id: call.connection_id == connection_id,
    "version": lambda call, version: call.api_version == version,
    "error": lambda call, error: call.has_response and error in (call.errors or (ErrorCode.NONE,)),
    "fault": lambda call, fault: (call.fault is not None) == fault,
    "since": lambda call, since_ms: call.received_ms >= since_ms,
    "until": lambda call, until_ms: call.received_ms < until_ms,
}
_PLACES = ("topic", "partition")
"""Filters that are matched together: by the same partition of a request."""
_NAMES = (*_FILTERS, *_PLACES)
_TEXTS = ("client_id", "group", "member", "instance_id", "topic", "transactional_id", "principal")
_NUMBERS = ("producer_id", "generation", "connection", "version")
_TIMES = ("since", "until")

_DROPPED_FILTERS: Mapping[str, Callable[[DroppedKind, Any], bool]] = {
    "client_id": lambda kind, client_id: kind.client_id in (None, client_id),
    "group": lambda kind, group_id: kind.groups is None or group_id in kind.groups,
    "member": lambda kind, _: kind.api is None or names_members(kind.api),
    "instance_id": lambda kind, _: kind.api is None or names_members(kind.api),
    "topic": lambda kind, _: kind.api is None or names_topics(API_BY_NAME[kind.api]),
    "partition": lambda kind, _: kind.api is None or names_topics(API_BY_NAME[kind.api]),
    "transactional_id": lambda kind, _: kind.api is None or names_transactions(kind.api),
    "producer_id": lambda kind, _: kind.api is None or names_producers(kind.api),
    "generation": lambda kind, _: kind.api is None or names_generations(kind.api),
    "principal": lambda kind, _: True,
    "broker": lambda kind, node_id: kind.broker in (None, node_id),
    "connection": lambda kind, connection_id: kind.connection in (None, connection_id),
    "version": lambda kind, version: kind.version in (None, version),
    "error": lambda kind, _: True,
    "fault": lambda kind, fault: kind.has_fault in (None, fault),
    "since": lambda kind, since_ms: kind.last_ms is None or kind.last_ms >= since_ms,
    "until": lambda kind, _: True,  # The time of the first request of a kind is not known.
}
"""Whether dropped requests of a kind may match, by filter. They do not if one of the functions returns False."""


class Matcher:
    """Tests whether requests match.

    Args:
        api: The name of the API; None matches any.
        filters: The other filters, by name; a filter that is None matches any request.
        node_ids: The node ids that `broker` may have: those of present and removed brokers.
        topic_name: Returns the name of a topic by its id.

    Raises:
        ConfigError: There is no such API, broker, error or filter, or a filter has the wrong type.
    """

    def __init__(
        self, api: str | None, filters: Mapping[str, object], node_ids: Iterable[int], topic_name: TopicName
    ) -> None:
        self._api = api
        self._given = _checked(api, filters, node_ids)
        self._tests = [(_FILTERS[name], value) for name, value in self._given.items() if name not in _PLACES]
        self._topic, self._partition = self._given.get("topic"), self._given.get("partition")
        self._finds_places = len(self._tests) < len(self._given)
        self._topic_name = topic_name

    def __call__(self, call: Call) -> bool:
        if self._api not in (None, call.api.name):
            return False
        if not all(test(call, value) for test, value in self._tests):
            return False
        return not self._finds_places or any(self._is_place(*place) for place in call.partitions)

    def _is_place(self, topic: TopicRef, partition: int | None) -> bool:
        if self._partition not in (None, partition):
            return False
        name = topic if isinstance(topic, str) else self._topic_name(topic)
        return self._topic in (None, name)

    @property
    def given(self) -> dict[str, Any]:
        """The filters that are given, by name, as plain values; `api` is one of them."""
        named = {} if self._api is None else {"api": self._api}
        return named | {
            name: value.name if isinstance(value, ErrorCode) else value for name, value in self._given.items()
        }

    def implies(self, other: "Matcher") -> bool:
        """Return whether this matcher has all filters of another, so that it matches only what the other matches."""
        return other.given.items() <= self.given.items()

    def may_match(self, kind: DroppedKind) -> bool:
        """Return whether dropped requests of a kind may match."""
        if self._api is not None and kind.api not in (None, self._api):
            return False
        return all(_DROPPED_FILTERS[name](kind, value) for name, value in self._given.items())


def _checked(api: str | None, filters: Mapping[str, object], node_ids: Iterable[int]) -> dict[str, Any]:
    """Validate filters, and return those that are given."""
    for name, value in filters.items():
        if name not in _NAMES:
            raise ConfigError.unknown(name, value, one_of(_NAMES, name), kind="filter")
    given = {name: value for name, value in filters.items() if value is not None}
    if api is not None:
        _check_known("api", api, API_BY_NAME)
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise ConfigError.of(name, given[name], "a string")
    for name in _NUMBERS:
        check_integer(name, given.get(name, 0), least=-2 if name == "generation" else 0)
    if "broker" in given:
        _check_known("broker", given["broker"], dict.fromkeys(node_ids))
    for name in _TIMES:
        check_number(name, given.get(name, 0), least=0)
    if "error" in given:
        given["error"] = _error(given["error"])
    if not isinstance(given.get("fault", False), bool):
        raise ConfigError.of("fault", given["fault"], "True or False")
    if "partition" in given:
        topic, given["partition"] = _partition(given["partition"])
        if topic is not None and given.setdefault("topic", topic) != topic:
            raise ConfigError.of("partition", filters["partition"], f"a partition of topic {given['topic']!r}")
    return given


def _partition(partition: object) -> tuple[str | None, int]:
    """Return the topic and the index of the filter `partition`; the topic is None if the filter is a number."""
    if isinstance(partition, str) and not partition.isdecimal():
        return parse_partition(partition)
    if isinstance(partition, str):
        return None, int(partition)
    check_integer("partition", partition, least=0)
    assert isinstance(partition, int)
    return None, partition


def _names_member(call: Call, member: str) -> bool:
    ids = (*call.member_ids, *call.instance_ids)
    return member in ids or (call.client_id == member and bool(ids))


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
    named = ", ".join(f"{name}={shown(value)}" for name, value in filters.items() if value is not None)
    return str(api or "request") + (f" with {named}" if named else "")


def _check_known(field: str, name: object, known: Iterable[object]) -> None:
    if name not in known:
        raise ConfigError.of(field, name, one_of(known, name))


def _error(error: object) -> ErrorCode:
    name = error.name if isinstance(error, ErrorCode) else error
    _check_known("error", name, ErrorCode.__members__)
    return ErrorCode[str(name)]
