"""What a request and its response say of themselves: whose they are, and which errors are told.

Knows the messages of the APIs that name groups and members; not where requests come from, and no handlers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Field, Struct

_GROUP = 0
"""FindCoordinator's key type of groups (FindCoordinatorRequest.CoordinatorType)."""


class Exchange:
    """What can be told of a request, and of its response once there is one.

    Attributes:
        request: The decoded request; None where a journal keeps headers only.
        response: The response; None while it is owed, where none is due, and where a journal keeps headers only.
        received_ms: When the request came, by the brokers' time.
        answered_ms: When its answer was known, None while it is owed.
    """

    __slots__ = ()
    request: Any
    response: Any
    received_ms: float
    answered_ms: float | None

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that the request names, in its order."""
        find = _GROUP_IDS.get(type(self.request).__name__)
        return tuple(find(self.request)) if find else ()

    @property
    def member_ids(self) -> tuple[str, ...]:
        """The members that the request names; for a JoinGroup without member ids those that its response gives."""
        find = _MEMBER_IDS.get(type(self.request).__name__)
        found = [member_id for member_id in find(self.request) if member_id] if find else []
        if type(self.response).__name__ == "JoinGroupResponse":
            found = found or [self.response.member_id]
            found += [each.member.member_id for each in self.response.member_join_response_list]
        return tuple(dict.fromkeys(member_id for member_id in found if member_id))

    @property
    def has_response(self) -> bool:
        """Whether it was answered with a response: a Produce with acks=0 is answered without one."""
        return self.response is not None

    @property
    def errors(self) -> tuple[ErrorCode, ...]:
        """The errors that the response tells, wherever in it they stand; each once, in its order."""
        if self.response is None:
            return ()
        return tuple(dict.fromkeys(ErrorCode(number) for number in _error_codes(self.response) if number))

    @property
    def latency_ms(self) -> float | None:
        """How long the answer took by the brokers' time; None while it is owed."""
        return None if self.answered_ms is None else self.answered_ms - self.received_ms


def _error_codes(value: Struct) -> Iterator[int]:
    for field in _error_fields(type(value)):
        held = getattr(value, field.name)
        for item in held or () if field.is_array else (held,):
            if isinstance(item, Struct):
                yield from _error_codes(item)
            elif item is not None:
                yield item


_known_error_fields: dict[type[Struct], tuple[Field, ...]] = {}


def _error_fields(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of a struct that are error codes, or that have some in them."""
    if cls not in _known_error_fields:
        _known_error_fields[cls] = tuple(field for field in cls.FIELDS if is_error_code(field) or _has_errors(field))
    return _known_error_fields[cls]


def _has_errors(field: Field) -> bool:
    return isinstance(field.type, type) and bool(_error_fields(field.type))


def is_error_code(field: Field) -> bool:
    """Whether a field of a message is one of Kafka's error codes."""
    return field.name.endswith("error_code")


def _group_id(request: Any) -> list[str]:
    return [request.group_id]


def _member_id(request: Any) -> list[str]:
    return [request.member_id]


def _found_groups(request: Any) -> list[str]:
    """The keys of a FindCoordinator; before version 4 it has one."""
    return (request.coordinator_keys or [request.key]) if request.key_type == _GROUP else []


_GROUP_IDS: Mapping[str, Callable[[Any], list[str]]] = {
    "OffsetCommitRequest": _group_id,
    # Before version 8 it asks for one group.
    "OffsetFetchRequest": lambda request: [group.group_id for group in request.groups] or [request.group_id],
    "FindCoordinatorRequest": _found_groups,
    "JoinGroupRequest": _group_id,
    "HeartbeatRequest": _group_id,
    "LeaveGroupRequest": _group_id,
    "SyncGroupRequest": _group_id,
    "DescribeGroupsRequest": lambda request: request.groups,
    "DeleteGroupsRequest": lambda request: request.groups_names,
    "OffsetDeleteRequest": _group_id,
}

_MEMBER_IDS: Mapping[str, Callable[[Any], list[str]]] = {
    "OffsetCommitRequest": _member_id,
    "OffsetFetchRequest": lambda request: [group.member_id for group in request.groups],
    # From version 10 on it names many.
    "JoinGroupRequest": lambda request: (
        [member.member_id for member in request.join_group_members] or [request.member_id]
    ),
    "HeartbeatRequest": _member_id,
    # Before version 3 it names one member.
    "LeaveGroupRequest": lambda request: [member.member_id for member in request.members] or [request.member_id],
    "SyncGroupRequest": _member_id,
}
