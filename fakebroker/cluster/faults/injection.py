"""The active faults of a cluster: they select requests, delay them, and change or delay the responses.

`RequestPath` asks them on the way of a request. Does not depend on `Cluster`: the time and random numbers are
arguments. The server closes connections, and calls `FaultInjector.corrupted` for the bytes of a response.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Boundaries, Call, Peer
from fakebroker.cluster.faults import request_fields
from fakebroker.cluster.faults.actions import MAX_ERROR_LENGTH, MAX_ERRORS, BoundAction, PendingActions
from fakebroker.cluster.faults.error_catalog import (
    GROUP_KEY,
    TRANSACTION_KEY,
    Part,
    Place,
    TopicName,
    error_places,
    filters_of,
    has_names,
    requested_parts,
)
from fakebroker.cluster.faults.error_responses import (
    InjectedError,
    error_struct,
    merge,
    put_error,
    refusal,
    restore_order,
    split,
)
from fakebroker.cluster.faults.rule import Action, Delay, Fault, actions_of, checked, delay_range
from fakebroker.cluster.faults.stale_metadata import StaleMetadata
from fakebroker.cluster.topics import Topics
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fakebroker.protocol.schema import Message, Versions
from fakebroker.topic_partition import topic_id_text
from fakebroker.validation import plain

Send = Callable[[Call, Message | None, float], None]
"""Sends the response to a call at a time in milliseconds. None: the call gets no response."""

Bind = Callable[[Action], BoundAction]
"""Checks an action, and returns it in a form that can be run.

Raises:
    ConfigError: The action is invalid.
"""

READS = ("Fetch", "ListOffsets", "Metadata", "OffsetFetch", "DescribeLogDirs", "DescribeTopicPartitions")
"""APIs that only read. Their errors are put into the real response, because null in a request may mean everything."""


def bind_function(action: Action) -> BoundAction:
    """Bind an action that is a function. Events are bound by `handles/faults.py`, which knows the commands.

    Raises:
        ConfigError: The action is an event.
    """
    if not callable(action):
        raise ConfigError.of("action", action, "a function: only a cluster with handles can run events", where="fault")
    return BoundAction(name_of(action), action)


def bound_actions(field: str, value: Any, bind: Bind) -> tuple[BoundAction, ...]:
    """Bind the actions in a field of a fault.

    Raises:
        ConfigError: An action is invalid.
    """
    bound = []
    for index, action in enumerate(actions_of(value)):
        try:
            bound.append(bind(action))
        except ConfigError as error:
            path = f"{field}[{index}]" if isinstance(value, list) else field
            raise ConfigError.all_of([mistake.within(path) for mistake in error.mistakes]) from None
    return tuple(bound)


def name_of(function: Any) -> str:
    """Return the name of a function, for errors."""
    return getattr(function, "__qualname__", None) or repr(function)


def plain_fault(fault: Fault) -> dict[str, object]:
    """Return the fields of a fault that differ from their defaults, as plain values; functions by their names."""
    fields = msgspec.structs.asdict(fault).items()
    values = {name: plain(value) for name, value in fields if name != "error" and value != _DEFAULTS[name]}
    if callable(values.get("where")):
        values["where"] = name_of(values["where"])
    for name in _ACTIONS.intersection(values):
        actions = [name_of(action) if callable(action) else action for action in actions_of(values[name])]
        values[name] = actions if len(actions) > 1 else actions[0]
    return values if fault.code is None else {**values, "error": fault.code.name}


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Fault)}
_ACTIONS = {"before", "then"}
_FIRST_GARBLED = 8  # The index after the size of the frame and the correlation id.


class ActiveFault:
    """An active fault, and how often it was applied.

    Attributes:
        id: Its number in the cluster, from 1, as text.
        fault: The rule.
        added_ms: When it was added, by the brokers' time, in milliseconds.
        seen: How many requests matched its filters, regardless of `nth`, `every` and `probability`.
        hits: How many requests it was applied to.
        stale_metadata: For a fault with `stale`, the leaders at the time when it was added.
        before, then: Its actions before and after a request is handled.
        errors: The first errors of its actions, as text.
    """

    __slots__ = (
        "_named",
        "_versions",
        "added_ms",
        "before",
        "errors",
        "fault",
        "hits",
        "id",
        "seen",
        "stale_metadata",
        "then",
    )

    def __init__(
        self,
        id: str,  # noqa: A002  # its name in HTTP
        fault: Fault,
        now_ms: float,
        stale_metadata: StaleMetadata | None = None,
        before: tuple[BoundAction, ...] = (),
        then: tuple[BoundAction, ...] = (),
    ) -> None:
        self.id = id
        self.fault = fault
        self.stale_metadata = stale_metadata
        self.before, self.then = before, then
        self.errors: list[str] = []
        self.added_ms = now_ms
        self.seen = self.hits = 0
        self._named: Part = fault.named
        self._versions = None if fault.versions is None else Versions.parse(fault.versions)

    def applies_to(self, call: Call, topic_name: TopicName, random: Callable[[], float]) -> bool:
        """Count a request, and return whether the fault applies to it.

        `after_s` and `for_s` apply to the time when the request was received.
        """
        if not self._matches(call, topic_name):
            return False
        self.seen += 1
        fault = self.fault
        if fault.nth not in (None, self.seen) or (fault.every is not None and self.seen % fault.every):
            return False
        if fault.probability is not None and random() >= fault.probability:
            return False
        self.hits += 1
        return True

    def _matches(self, call: Call, topic_name: TopicName) -> bool:
        fault = self.fault
        return (
            fault.api in (None, call.api.name)
            and fault.broker in (None, call.broker.node_id)
            and fault.client_id in (None, call.client_id)
            and (fault.times is None or self.hits < fault.times)
            and (self._versions is None or call.api_version in self._versions)
            and self._is_on(call.received_ms)
            and (fault.error is None or place_of(fault, call) is not None)
            and (not self._named or self._matches_names(call, topic_name))
            and (fault.where is None or self._has_fields(call))
        )

    def _is_on(self, now_ms: float) -> bool:
        since_s = self._since_s(now_ms)
        return since_s >= 0 and (self.fault.for_s is None or since_s < self.fault.for_s)

    def is_over(self, now_ms: float) -> bool:
        """Whether the fault applies to no further request: its `times`, `nth` or `for_s` have passed."""
        fault = self.fault
        return (
            (fault.times is not None and self.hits >= fault.times)
            or (fault.nth is not None and self.seen >= fault.nth)
            or (fault.for_s is not None and self._since_s(now_ms) >= fault.for_s)
        )

    def _since_s(self, now_ms: float) -> float:
        return (now_ms - self.added_ms) / 1000 - self.fault.after_s

    def _matches_names(self, call: Call, topic_name: TopicName) -> bool:
        if not set(self._named) <= set(filters_of(call.api)):
            return False
        named = _names_for(self.fault, call)
        parts = (
            fetched_parts(call, topic_name)
            if call.api.name == "Fetch"
            else requested_parts(call.api, call.request, call.api_version, topic_name)
        )
        return any(has_names(part, named) for part in parts)

    def _has_fields(self, call: Call) -> bool:
        """Return whether the request has the fields of `where`. A function that fails matches no request."""
        try:
            return request_fields.holds(self.fault.where, call)
        except Exception as error:
            if len(self.errors) < MAX_ERRORS:
                self.errors.append(f"where at {call!r}: {error!r}"[:MAX_ERROR_LENGTH])
            return False


class DelayedRequest(NamedTuple):
    """A request that a fault delays before it is handled.

    Attributes:
        call: The request.
        fault: The fault.
        stops: How often its broker had been stopped when it was received.
    """

    call: Call
    fault: ActiveFault
    stops: int


DelayedResponse = TimedValue[tuple[Call, Message | None]]
"""A response that a fault delays, with its call; None if there is no response to send."""


class FaultInjector:
    """The active faults of a cluster, and the requests and responses that they delay.

    Args:
        brokers: The brokers of the cluster, by node id.
        topics: The topics of the cluster.
        random: Returns a random number in [0, 1).
        send: Called to send each response.
        queue: The timers of the cluster.
        handle_late: Called with a request whose delay is over, and the time.

    Attributes:
        by_id: All faults since the last reset, also those that were removed, by id.
        active: The faults that were not removed, oldest first. The first one that applies to a request is used.
        actions: The actions that are due.
    """

    def __init__(
        self,
        brokers: Mapping[int, BrokerNode],
        topics: Topics,
        random: Callable[[], float],
        send: Send,
        queue: TimerQueue[Any],
        handle_late: Callable[[DelayedRequest, float], None],
    ) -> None:
        self.active: list[ActiveFault] = []
        self.by_id: dict[str, ActiveFault] = {}
        self._added = 0
        self.actions = PendingActions()
        self._brokers = brokers
        self._topics = topics
        self._random = random
        self._send = send
        self._handle_late = handle_late
        self._delayed: Timers[DelayedResponse] = queue.service(Rank.FAULTS, self._send_delayed)
        self._delayed_to: dict[Peer, DelayedResponse] = {}
        self._delayed_requests: Timers[TimedValue[DelayedRequest]] = queue.service(
            Rank.DELAYED_REQUESTS, self._handle_delayed
        )
        self._late: dict[TimedValue[DelayedRequest], None] = {}

    def add(self, fault: Fault, now_ms: float, bind: Bind = bind_function) -> ActiveFault:
        """Activate a fault.

        Args:
            fault: The fault.
            now_ms: The time.
            bind: Binds its actions.

        Raises:
            ConfigError: The fault is invalid, has no effect, or can never match a request.
        """
        fault = checked(fault, {node_id: broker.versions for node_id, broker in self._brokers.items()})
        self._added += 1
        added = ActiveFault(
            str(self._added),
            fault,
            now_ms,
            StaleMetadata(self._brokers, self._topics) if fault.stale else None,
            bound_actions("before", fault.before, bind),
            bound_actions("then", fault.then, bind),
        )
        self.active.append(added)
        self.by_id[added.id] = added
        return added

    def remove(self, fault: ActiveFault) -> None:
        """Deactivate a fault. Responses that it delays are still sent."""
        if fault in self.active:
            self.active.remove(fault)

    def count(self, now_ms: float) -> int:
        """Return the number of faults that may still apply to requests."""
        return sum(not fault.is_over(now_ms) for fault in self.active)

    def reset(self, fresh: "FaultInjector") -> None:
        """Deactivate all faults, drop delayed requests and responses, and use the random numbers of a new injector."""
        self.active.clear()
        self.by_id.clear()
        self.actions.clear()
        for response, _ in list(self._delayed):
            self._delayed.cancel(response)
        for request in self._late:
            self._delayed_requests.cancel(request)
        self._late.clear()
        self._delayed_to.clear()
        self._random = fresh._random

    def pick(self, call: Call) -> ActiveFault | None:
        """Set `call.fault` to the first fault that applies. Returns None if there is none."""
        for each in self.active:
            if each.applies_to(call, self._topics.name_of, self._random):
                call.fault = each.fault
                return each
        return None

    # Before a request is handled

    def delay_request(self, call: Call, fault: ActiveFault, now_ms: float) -> bool:
        """Delay a request if its fault requires that, and return whether it is delayed."""
        delay_ms = self._draw_ms(fault.fault.delay_before_s)
        if delay_ms > 0:
            call.boundaries_or_none = Boundaries(None)
            late = TimedValue(DelayedRequest(call, fault, call.broker.stops))
            self._late[late] = None
            self._delayed_requests.schedule(late, now_ms + delay_ms)
        return delay_ms > 0

    def next_request(self) -> float:
        """Return when the next delayed request is due, in milliseconds; infinite if no request is delayed."""
        return min([late.scheduled_ms for late in self._late], default=inf)

    def _handle_delayed(self, late: TimedValue[DelayedRequest], due_ms: float, now_ms: float) -> None:
        del self._late[late]
        self._handle_late(late.value, now_ms)

    def _draw_ms(self, delay_s: Delay) -> float:
        """Return a delay in milliseconds, drawn from its range."""
        low_s, high_s = delay_range(delay_s)
        return 1000 * (low_s + (high_s - low_s) * self._random() if high_s > low_s else low_s)

    # Errors and other changes of a response

    def has_error_in_a_part(self, call: Call) -> bool:
        """Whether the error of the fault of a call is an error of a part of the request, such as a partition."""
        return bool(self._error_of(call).place.response_path)

    def split(self, call: Call) -> tuple[Any, Any]:
        """Return the request with the parts that get the error, and the request with the others; None for no parts."""
        error = self._error_of(call)
        return split(error, call.request) if error.place.request_path else (call.request, None)

    def refusal(self, call: Call, refused: Any, response: Message | None) -> Message:
        """Return the response with the error for some parts of a request.

        Args:
            call: The request.
            refused: The request with these parts; None if the error is for a request without parts.
            response: The response to the other parts, which is changed; None if there are none.
        """
        error = self._error_of(call)
        if error.code is ErrorCode.UNSUPPORTED_VERSION and call.api.name == "ApiVersions":
            call.response_version = 0  # Every client can read version 0 (KIP-511).
        refused_response = refusal(error, call.api.response, call.request if refused is None else refused)
        if response is None:
            return refused_response
        merge(error, response, refused_response, error.place.response_path)
        restore_order(error, call.request, response)
        return response

    def changed(self, call: Call, response: Message) -> Message:
        """Return the real response to a call with the error or the stale leaders of its fault."""
        fault = call.fault
        assert fault is not None
        if fault.error:
            error = self._error_of(call)
            response = put_error(error, response)
            if isinstance(response, FetchResponse) and error.place.response_path:
                _add_omitted_partitions(error, response, call)
        elif fault.stale:
            stale = next(each.stale_metadata for each in self.active if each.fault is fault and each.stale_metadata)
            stale.apply(call.request, response, call.peer.listener)
        return response

    def _error_of(self, call: Call) -> InjectedError:
        fault = call.fault
        assert fault is not None
        place = place_of(fault, call)
        assert place is not None
        assert fault.code is not None
        named = _names_for(fault, call)
        if getattr(call.request, "key_type", GROUP_KEY) == TRANSACTION_KEY and "transactional_id" in named:
            named = {"group": named["transactional_id"]}  # the kind of all keys of coordinators in messages
        return InjectedError(fault.code, place, call.api_version, named, self._topics.name_of)

    # After a request was handled

    def delay_response(self, call: Call, response: Message | None, now_ms: float) -> bool:
        """Delay a response if the fault of its call requires that, and return whether it is delayed."""
        assert call.fault is not None
        delay_ms = self._draw_ms(call.fault.delay_s)
        if delay_ms > 0:
            self._delayed_to[call.peer] = delayed = TimedValue((call, response))
            self._delayed.schedule(delayed, now_ms + delay_ms)
        return delay_ms > 0

    def _send_delayed(self, delayed: DelayedResponse, due_ms: float, now_ms: float) -> None:
        call, response = delayed.value
        self._delayed_to.pop(call.peer, None)
        self._send(call, response, now_ms)

    def forget(self, peer: Peer) -> None:
        """Drop the delayed response to a connection that was closed, so that it does not stay in memory."""
        delayed = self._delayed_to.pop(peer, None)
        if delayed is not None:
            delayed.value = (delayed.value[0], None)

    def delayed_requests(self) -> Iterator[tuple[float, Call]]:
        """Yield the requests that are delayed, each with the time when it is handled, earliest first."""
        for timer, at_ms in self._delayed_requests:
            call, _, stops = timer.value
            if call.broker.stops == stops and self._brokers.get(call.node_id) is call.broker:
                yield at_ms, call

    def delayed_responses(self) -> Iterator[tuple[float, Call]]:
        """Yield the calls whose responses are delayed, each with the time of its response, earliest first."""
        for timer, at_ms in self._delayed:
            call, response = timer.value
            if response is not None:
                yield at_ms, call

    def corrupted(self, fault: Fault, frame: bytearray) -> bytearray:
        """Garble, truncate or repeat the frame of a response, and return the bytes to send."""
        positions = list(range(_FIRST_GARBLED, len(frame))) if fault.garble_bytes else []
        for _ in range(min(fault.garble_bytes or 0, len(positions))):
            frame[positions.pop(int(self._random() * len(positions)))] ^= 1 + int(self._random() * 255)
        if fault.cut_bytes is not None:
            del frame[min(fault.cut_bytes, len(frame) - 1) :]
        return frame * 2 if fault.twice else frame


def _names_for(fault: Fault, call: Call) -> dict[str, Any]:
    """Return the names in the filters of a fault. All parts of a call belong to a member with its client id."""
    named = fault.named
    if named.get("member") == call.client_id:
        del named["member"]
    return named


def place_of(fault: Fault, call: Call) -> Place | None:
    """Return the place of a fault's error in the response to a call; None if its version has no place for the error.

    Of several places, a fault that names a partition uses the last, which is the partition. One that names a topic or a
    member uses the first that is not the whole response. Others use the first.
    """
    places = [
        place for place in error_places(call.api) if call.api_version in place.versions and fault.code in place.errors
    ]
    if fault.partition is not None:
        return places[-1] if places else None
    if fault.topic or fault.topic_id or fault.member or fault.resource:
        return next((place for place in places if place.response_path), next(iter(places), None))
    return next(iter(places), None)


def fetched_parts(call: Call, topic_name: TopicName) -> list[Part]:
    """Return the partitions of a Fetch, including the partitions of its fetch session (KIP-227)."""
    return [
        {
            "topic": topic or topic_name(topic_id),
            "partition": index,
            "topic_id": None if topic else topic_id_text(topic_id),
        }
        for topic, topic_id, index in call.broker.fetch_sessions.requested(call.request)
    ]


def _add_omitted_partitions(error: InjectedError, response: FetchResponse, call: Call) -> None:
    """Add covered partitions that the response omits, because they are in a fetch session and have no changes."""
    present = {
        (each.topic, each.topic_id, data.partition_index) for each in response.responses for data in each.partitions
    }
    keys = call.broker.fetch_sessions.requested(call.request)
    for (topic, topic_id, index), part in zip(keys, fetched_parts(call, error.topic_name), strict=True):
        if error.covers(part) and (topic, topic_id, index) not in present:
            data = error_struct(error, PartitionData, index)
            response.responses.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data]))
