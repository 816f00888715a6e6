"""A `[[load]]` of a workload: requests of administration tools about many groups.

Requests are sent in passes over all groups of the load. A request that gets an error is not repeated; if the error says
that a coordinator has moved, the next pass looks the coordinator up first. Events of a load have the source "load" and
no member.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fakebroker.client.admin.group_handlers import add_members_request
from fakebroker.client.backoff import Backoff
from fakebroker.client.brokers import Brokers, Exchange
from fakebroker.client.coordinators import COORDINATOR_MOVED, find_coordinators
from fakebroker.client.errors import BrokerUnreachable, ConnectionLost, UnsupportedVersion
from fakebroker.client.member.reactions import error_in
from fakebroker.client.member.requests import fetched_offsets
from fakebroker.client.transport import Transport
from fakebroker.client.versions import is_batched
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.proposals.batch_join.messages import BatchJoinGroupResponse
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup, found_in
from fakebroker.replay.members.events import Event, Source
from fakebroker.replay.members.request_events import exchange_event
from fakebroker.replay.script.script import Script
from fakebroker.replay.workload.loads import Load, LoadKind

_RETRY_MS = 100.0
_LOOK_UP_MS = 1_000.0
"""Time before the first request at which its coordinators are looked up: its latency does not include the look-up."""

_NO_COORDINATOR, _ANY = -1, -2
"""In place of a node id: the group has no coordinator; any broker can be asked."""

_ABOUT_SEVERAL_GROUPS: tuple[LoadKind, ...] = ("find-coordinators", "fetch-offsets", "describe-groups")

_BATCHED: Mapping[LoadKind, type[Message]] = {
    "find-coordinators": FindCoordinatorRequest,
    "fetch-offsets": OffsetFetchRequest,
}
"""Requests about several groups that old brokers do not support (KIP-699, KIP-709)."""

_SESSION_TIMEOUT_MS, _REBALANCE_TIMEOUT_MS = 45_000, 300_000
"""Timeouts of added instances: Kafka's defaults."""


def groups_of(load: Load, scripts: Iterable[Script]) -> dict[str, list[str]]:
    """Return the groups of a load, each with the instances to add: static members that do not start before the load."""
    groups: dict[str, list[str]] = {}
    for script in scripts:
        if load.groups in (None, script.population):
            instances = groups.setdefault(script.group, [])
            if load.kind == "add-members" and script.instance_id and script.acts[0].at_ms >= load.at_s * 1000:
                instances.append(script.instance_id)
    return groups


def groups_per_request(load: Load, brokers: Iterable[Mapping[int, Versions]] = ()) -> int:
    """Return the number of groups in a request; `brokers` are the versions of each, by API key."""
    kind = _BATCHED.get(load.kind)
    if load.kind == "add-members" or (
        kind is not None and not all(is_batched(kind, each[kind.API_KEY].last) for each in brokers)
    ):
        return 1
    return load.batch


class _Planned(NamedTuple):
    """A request to one broker about some groups; ListGroups is about none."""

    node_id: int
    groups: tuple[str, ...]


class Turns(NamedTuple):
    """Which requests of a load with a rate are sent by one of the simulations that share it.

    Example: all simulations together send 10 requests in a pass over all groups. The simulations before this one send 3
    of them, so `first` is 3 and `per_pass` is 10. This one has two requests about its groups. It sends the requests 3
    and 4, 13 and 14, 23 and 24 ... of the load, counted from 0, each at the time of its number.

    Attributes:
        first: Its first request.
        per_pass: Number of requests about all groups of the load, in all simulations.
        batch: Number of groups in a request: 1 if a broker does not support more.
    """

    first: int
    per_pass: int
    batch: int


class AdminLoad:
    """Sends the requests of one load; a `CoordinatorListener`.

    The loop or simulation calls `process` at `next_deadline` or earlier.

    With `rate_per_s` the load is an open loop: requests are due at fixed intervals. Without `rate_per_s` it is a
    closed loop: each request is due when the previous one is answered.

    Args:
        load: The kind of its requests, their rate, and when it starts and ends.
        groups: Group ids in the order of a pass, each with the instances to add (kind "add-members" only).
        start_ms: When the replay starts, in milliseconds since the Unix epoch.
        transport: Makes connections, one to each broker that gets requests.
        now_ms: Returns the time by the members' clock, in milliseconds since the Unix epoch.
        lookup: Looks up coordinators.
        record: Receives the event of each request.
        turns: Which requests of an open loop are sent here; None for all.

    Attributes:
        is_done: Whether all requests were sent and answered.
    """

    source: Source = "load"

    def __init__(
        self,
        load: Load,
        groups: Mapping[str, Sequence[str]],
        start_ms: float,
        transport: Transport,
        now_ms: Callable[[], float],
        lookup: CoordinatorLookup,
        record: Callable[[Event], None],
        turns: Turns | None = None,
    ) -> None:
        self.is_done = False
        self._load, self._groups = load, groups
        self._now_ms, self._lookup, self._record = now_ms, lookup, record
        self._brokers = Brokers(transport, now_ms, CLIENT_ID, nodes=lookup.nodes)
        self._start_ms = start_ms + load.at_s * 1000
        self._end_ms = math.inf if load.for_s is None else self._start_ms + load.for_s * 1000
        self._turns, self._batch = turns, groups_per_request(load) if turns is None else turns.batch
        self._turn = 0 if turns is None else turns.first  # Of the next request.
        self._due_ms = self._start_ms if load.rate_per_s is None else self._time_of(self._turn)
        self._backoff, self._paused_until_ms = Backoff(_RETRY_MS), -math.inf
        self._passes = 0
        self._planned: deque[_Planned] = deque()  # The remaining requests of this pass.
        self._needs_coordinators = load.kind in ("fetch-offsets", "describe-groups", "add-members")
        self._look_up_ms = max(start_ms, self._due_ms - _LOOK_UP_MS) if self._needs_coordinators else math.inf
        self._coordinators: dict[str, int] = {}  # Node ids by group.
        self._pending_lookups = 0
        self._unanswered = 0  # Requests without a response.
        self._failures = 0  # Requests that had none.

    def next_deadline(self) -> float:
        """Return when to call `process`, in milliseconds since the Unix epoch; infinite for never."""
        due_ms = self._end_ms if self._waits and not self._is_over else max(self._due_ms, self._paused_until_ms)
        return min(due_ms, self._look_up_ms, self._brokers.next_deadline())

    def _time_of(self, turn: int) -> float:
        """Return when a request of an open loop is due. The times of all requests depend only on the load."""
        assert self._load.rate_per_s is not None
        return self._start_ms + turn * 1000 / self._load.rate_per_s

    @property
    def _waits(self) -> bool:
        """Whether the next request is sent only after a response."""
        return bool(self._pending_lookups or (self._load.rate_per_s is None and self._unanswered))

    def process(self, now_ms: float) -> None:
        """Send the requests that are due, and close a connection whose request has timed out."""
        self._brokers.tick(now_ms)
        if self._look_up_ms <= now_ms:
            self._look_up_ms = math.inf
            self._look_up(now_ms)
        while max(self._due_ms, self._paused_until_ms) <= now_ms and not self._waits:
            # An open loop sends all requests that were due before the end, even if late; not if it has not found the
            # coordinators by then.
            due_ms = now_ms if self._load.rate_per_s is None else self._due_ms
            if due_ms >= self._end_ms or not (self._planned or self._begin_pass(now_ms)):
                break
            self._submit(self._planned.popleft(), now_ms)
        if now_ms >= self._end_ms:
            self._end()

    def stop(self) -> None:
        """Record pending requests as cut off."""
        self._brokers.cut_off()

    @property
    def _is_over(self) -> bool:
        return self._due_ms == math.inf

    def _end(self) -> None:
        """Stop sending requests."""
        self._due_ms = self._look_up_ms = math.inf
        self._planned.clear()
        self.is_done = not self._unanswered

    # Requests of a pass

    def _begin_pass(self, now_ms: float) -> bool:
        """Plan a pass over all groups.

        Returns:
            False if the load is over, or if coordinators have to be looked up first.
        """
        if self._passes and self._load.for_s is None:
            self._end()
            return False
        if self._needs_coordinators and self._look_up(now_ms):
            return False
        self._planned.extend(self._requests())
        if not self._planned:
            self._end()
            return False
        self._passes += 1
        return True

    def _look_up(self, now_ms: float) -> bool:
        """Look up unknown coordinators; return whether there are any."""
        missing = [group for group in self._groups if group not in self._coordinators]
        self._pending_lookups = len(missing)
        for group in missing:
            self._lookup.discover(group, self, now_ms)
        return bool(missing)

    def _requests(self) -> Iterator[_Planned]:
        if self._load.kind == "list-groups":
            yield from (_Planned(node_id, ()) for node_id in self._lookup.nodes)
            return
        by_node: dict[int, list[str]] = {}
        for group in self._groups:
            by_node.setdefault(self._coordinators.get(group, _ANY), []).append(group)
        for node_id, groups in by_node.items():
            if node_id != _NO_COORDINATOR:
                for index in range(0, len(groups), self._batch):
                    yield _Planned(node_id, tuple(groups[index : index + self._batch]))

    def _message(self, groups: tuple[str, ...]) -> Any:
        match self._load.kind:
            case "find-coordinators":
                return find_coordinators(groups)
            case "fetch-offsets":
                all_topics = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
                return OffsetFetchRequest(groups=all_topics)
            case "describe-groups":
                return DescribeGroupsRequest(groups=list(groups))
            case "add-members":
                (group,) = groups
                return add_members_request(group, self._groups[group], _SESSION_TIMEOUT_MS, _REBALANCE_TIMEOUT_MS)
        return ListGroupsRequest()

    # CoordinatorListener

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        self._coordinators[group] = node_id
        self._pending_lookups -= 1

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        if not error.retriable:
            self._coordinators[group] = _NO_COORDINATOR
        self._pending_lookups -= 1
        if error.retriable and not self._pending_lookups:
            self._back_off()

    def is_rejoining(self) -> bool:
        return False

    def _back_off(self) -> None:
        self._paused_until_ms = self._now_ms() + self._backoff.next_delay_ms()

    # Requests and responses

    def _submit(self, planned: _Planned, now_ms: float) -> None:
        scheduled_ms = now_ms
        if self._load.rate_per_s is not None:
            scheduled_ms = self._due_ms
            self._turn += 1
            if not self._planned and self._turns is not None:
                self._turn = self._turns.first + self._passes * self._turns.per_pass
            self._due_ms = self._time_of(self._turn)
        self._send(planned, scheduled_ms)

    def _send(self, planned: _Planned, scheduled_ms: float) -> None:
        if planned.node_id == _ANY:  # A look-up: any broker, and another one after each failure.
            nodes = list(self._lookup.nodes)
            planned = _Planned(nodes[self._failures % len(nodes)], planned.groups)
        self._unanswered += 1
        done = partial(self._ended, planned)
        self._brokers.send(self._message(planned.groups), done, node_id=planned.node_id, scheduled_ms=scheduled_ms)

    def _ended(self, planned: _Planned, exchange: Exchange) -> None:
        """Record a response, or why there is none."""
        self._unanswered -= 1
        failure = exchange.failure
        if isinstance(failure, UnsupportedVersion):
            raise failure
        if failure is None:
            self._backoff.reset()
        if isinstance(failure, ProtocolError) and len(planned.groups) > 1:
            # The version allows only one group. Each other group takes the place of a later request.
            first, *others = planned.groups
            self._send(_Planned(planned.node_id, (first,)), exchange.scheduled_ms)
            rest = [_Planned(planned.node_id, (group,)) for group in others]
            if self._is_over:
                for each in rest:
                    self._send(each, exchange.scheduled_ms)
            else:
                self._planned.extendleft(reversed(rest))
            return
        errors = [] if failure is not None else _errors(exchange.response)
        if isinstance(failure, ConnectionLost | BrokerUnreachable):  # The broker is down: its groups have moved.
            known = self._coordinators
            self._coordinators = {group: node for group, node in known.items() if node != planned.node_id}
        elif any(each in COORDINATOR_MOVED for each in errors):
            for group in planned.groups:
                self._coordinators.pop(group, None)
        self._record_answer(planned, exchange, errors)
        if failure is not None:
            self._failures += 1
            if self._load.rate_per_s is None:
                self._back_off()
        self.is_done = self._is_over and not self._unanswered

    def _record_answer(self, planned: _Planned, exchange: Exchange, errors: Sequence[int]) -> None:
        groups, response = planned.groups, exchange.response
        error = None if response is None else next(filter(None, errors), 0)
        event = exchange_event(exchange, planned.node_id, self._now_ms())._replace(
            group=groups[0] if len(groups) == 1 else None,
            error=error,
            lookups=len(groups) if self._load.kind in _ABOUT_SEVERAL_GROUPS else None,
            offsets=_offsets(response) if len(groups) == 1 and not error else None,
            found=found_in(response) if isinstance(response, FindCoordinatorResponse) else None,
            source=self.source,
        )
        self._record(event)
        if len(groups) > 1 and isinstance(response, OffsetFetchResponse):
            for each in response.groups:
                one = OffsetFetchResponse(groups=[each])
                if not error_in(one):
                    self._record(event._replace(
                        kind="seen", group=each.group_id, error=0, lookups=None, offsets=_offsets(one)
                    ))  # fmt: skip


def _errors(response: Any) -> list[int]:
    match response:
        case FindCoordinatorResponse():
            return [response.error_code, *(each.error_code for each in response.coordinators)]
        case DescribeGroupsResponse():
            return [group.error_code for group in response.groups]
        case OffsetFetchResponse():
            return [error_in(response), *(error_in(OffsetFetchResponse(groups=[each])) for each in response.groups)]
        case ListGroupsResponse():
            return [response.error_code]
        case BatchJoinGroupResponse():
            return [each.error_code for each in response.member_join_response_list]
    raise TypeError(response)


def _offsets(response: Any) -> list[tuple[str, int]] | None:
    if not isinstance(response, OffsetFetchResponse):
        return None
    return [(f"{topic}-{partition}", offset) for (topic, partition), offset in fetched_offsets(response)]
