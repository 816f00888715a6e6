"""A `[[load]]` of a workload: requests of administration tools about many groups.

Requests are sent in passes over all groups of the load. A request that gets an error is not repeated; if the error says
that a coordinator has moved, the next pass looks the coordinator up first. Events of a load have the source "load" and
no member.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fakebroker.client.admin.group_handlers import add_members_request
from fakebroker.client.coordinators import COORDINATOR_MOVED, find_coordinators
from fakebroker.client.member.reactions import error_in
from fakebroker.client.member.requests import fetched_offsets
from fakebroker.client.transport import Transport, TransportConnection
from fakebroker.client.versions import is_batched
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.messages import BatchJoinGroupResponse
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from fakebroker.protocol.registry import api_of
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup, found_in
from fakebroker.replay.members.events import Event, Source
from fakebroker.replay.members.request_events import to_us
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, missing_after
from fakebroker.replay.script.script import Script
from fakebroker.replay.workload.loads import Load, LoadKind

_RETRY_MS = 100.0
_NO_COORDINATOR = -1
_ABOUT_SEVERAL_GROUPS: tuple[LoadKind, ...] = ("find-coordinators", "fetch-offsets", "describe-groups")

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


@dataclass(slots=True, eq=False)
class _GroupsRequest:
    """A request to one broker about some groups. Times are in milliseconds since the Unix epoch.

    Attributes:
        node_id: Node id of the broker.
        groups: The groups; empty for ListGroups.
        scheduled_ms: When it was due.
        sent_ms: When it was sent; infinite until then.
        version: Its version; -1 before it is sent.
    """

    node_id: int
    groups: tuple[str, ...]
    scheduled_ms: float = 0.0
    sent_ms: float = math.inf
    version: int = -1


class AdminLoad:
    """Sends the requests of one load; a `CoordinatorListener` and a `ConnectionUser`.

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
    ) -> None:
        self.is_done = False
        self._load, self._groups = load, groups
        self._transport, self._now_ms, self._lookup, self._record = transport, now_ms, lookup, record
        self._due_ms = start_ms + load.at_s * 1000
        self._end_ms = math.inf if load.for_s is None else self._due_ms + load.for_s * 1000
        self._passes = 0
        self._planned: deque[_GroupsRequest] = deque()  # The remaining requests of this pass.
        self._coordinators: dict[str, int] = {}  # Node ids by group.
        self._pending_lookups = 0
        self._connections: dict[int, TransportConnection] = {}
        self._held: dict[TransportConnection, list[_GroupsRequest]] = {}  # Sent when the connection is open.
        self._pending: dict[TransportConnection, deque[_GroupsRequest]] = {}
        self._unanswered = 0  # Requests that are held or pending.

    def next_deadline(self) -> float:
        """Return when to call `process`, in milliseconds since the Unix epoch; infinite for never."""
        waits = self._pending_lookups or (self._load.rate_per_s is None and self._unanswered)
        return self._end_ms if waits and not self._is_over else self._due_ms

    def process(self, now_ms: float) -> None:
        """Send the requests that are due."""
        while self._due_ms <= now_ms and self.next_deadline() <= now_ms:
            # An open loop sends all requests that were due before the end, even if they are late.
            due_ms = now_ms if self._load.rate_per_s is None else self._due_ms
            if due_ms >= self._end_ms or not (self._planned or self._begin_pass(now_ms)):
                break
            self._submit(self._planned.popleft(), now_ms)
        if now_ms >= self._end_ms:
            self._end()

    def stop(self) -> None:
        """Record pending requests as cut off."""
        for requests in self._pending.values():
            for request in requests:
                missing = missing_after(self._now_ms() - request.sent_ms, CUT_OFF)
                self._record_answer(request, None, missing=missing)

    @property
    def _is_over(self) -> bool:
        return self._due_ms == math.inf

    def _end(self) -> None:
        """Stop sending requests."""
        self._due_ms = math.inf
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
        needs_coordinators = self._load.kind in ("fetch-offsets", "describe-groups", "add-members")
        if needs_coordinators:
            missing = [group for group in self._groups if group not in self._coordinators]
            self._pending_lookups = len(missing)
            for group in missing:
                self._lookup.discover(group, self, now_ms)
            if missing:
                return False
        self._planned.extend(self._requests())
        if not self._planned:
            self._end()
            return False
        if needs_coordinators and not self._passes:
            self._due_ms = now_ms  # so that latencies do not include the first look-ups
        self._passes += 1
        return True

    def _requests(self) -> Iterator[_GroupsRequest]:
        if self._load.kind == "list-groups":
            yield from (_GroupsRequest(node_id, ()) for node_id in self._lookup.nodes)
            return
        any_node = next(iter(self._lookup.nodes))
        by_node: dict[int, list[str]] = {}
        for group in self._groups:
            by_node.setdefault(self._coordinators.get(group, any_node), []).append(group)
        for node_id, groups in by_node.items():
            if node_id != _NO_COORDINATOR:
                batch = 1 if self._load.kind == "add-members" else self._load.batch
                for index in range(0, len(groups), batch):
                    yield _GroupsRequest(node_id, tuple(groups[index : index + batch]))

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
        self._lookup.nodes[node_id] = (host, port)
        self._pending_lookups -= 1

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        if error.retriable:
            self._back_off()
        else:
            self._coordinators[group] = _NO_COORDINATOR
        self._pending_lookups -= 1

    def is_rejoining(self) -> bool:
        return False

    def _back_off(self) -> None:
        self._due_ms = max(self._due_ms, self._now_ms() + _RETRY_MS)

    # Requests and responses

    def _submit(self, request: _GroupsRequest, now_ms: float) -> None:
        request.scheduled_ms = now_ms
        if self._load.rate_per_s is not None:
            request.scheduled_ms = self._due_ms
            self._due_ms += 1000 / self._load.rate_per_s
        self._unanswered += 1
        connection = self._connections.get(request.node_id) or self._connect(request.node_id)
        if connection is None:
            self._lose([request])
        elif connection.versions is None:
            self._held[connection].append(request)
        else:
            self._send(connection, request, now_ms)

    def _connect(self, node_id: int) -> TransportConnection | None:
        """Return a new connection to a broker; None if the broker has left the cluster."""
        address = self._lookup.nodes.get(node_id)
        if address is None:
            return None
        connection = self._connections[node_id] = self._transport.connect(address, self)
        self._held[connection], self._pending[connection] = [], deque()
        return connection

    def _send(self, connection: TransportConnection, request: _GroupsRequest, now_ms: float) -> None:
        message = self._message(request.groups)
        assert connection.versions is not None
        request.version = connection.versions.version_of(message)
        if len(request.groups) > 1 and not is_batched(type(message), request.version):  # one group per request
            first, *others = request.groups
            request.groups = (first,)
            self._planned.extendleft(_GroupsRequest(request.node_id, (group,)) for group in reversed(others))
            message = self._message(request.groups)
        request.sent_ms = now_ms
        self._pending[connection].append(request)
        self._transport.send(connection, message, request.version, CLIENT_ID, self)

    def opened(self, connection: TransportConnection) -> None:
        held, self._held[connection] = self._held[connection], []
        for request in held:
            self._send(connection, request, self._now_ms())

    def answered(self, connection: TransportConnection, response: Any) -> None:
        request = self._pending[connection].popleft()
        self._unanswered -= 1
        errors = _errors(response)
        if any(error in COORDINATOR_MOVED for error in errors):
            self._forget_coordinators(request)
        self._record_answer(request, response, next(filter(None, errors), 0))
        self.is_done = self._is_over and not self._unanswered

    def lost(self, connection: TransportConnection, why: str) -> None:
        self._connections = {node_id: each for node_id, each in self._connections.items() if each is not connection}
        self._lose([*self._pending.pop(connection), *self._held.pop(connection)])

    def _lose(self, requests: Iterable[_GroupsRequest]) -> None:
        for request in requests:
            self._unanswered -= 1
            self._forget_coordinators(request)
            self._record_answer(request, None, missing=LOST)
        if self._load.rate_per_s is None:
            self._back_off()
        self.is_done = self._is_over and not self._unanswered

    def _forget_coordinators(self, request: _GroupsRequest) -> None:
        for group in request.groups:
            self._coordinators.pop(group, None)

    def _record_answer(
        self, request: _GroupsRequest, response: Any, error: int | None = None, *, missing: str | None = None
    ) -> None:
        groups, now_ms, message = request.groups, self._now_ms(), self._message(request.groups)
        is_sent, is_finding = request.sent_ms != math.inf, isinstance(message, FindCoordinatorRequest)
        event = Event(
            scheduled_us=to_us(request.scheduled_ms),
            sent_us=to_us(request.sent_ms if is_sent else now_ms),
            latency_us=None if response is None else to_us(now_ms - request.scheduled_ms),
            api=api_of(message).name,
            version=request.version,
            broker=request.node_id,
            group=groups[0] if len(groups) == 1 else None,
            error=error,
            lookups=len(groups) if self._load.kind in _ABOUT_SEVERAL_GROUPS else None,
            until_us=to_us(now_ms) if missing == LOST else None,
            missing=missing,
            offsets=_offsets(response) if len(groups) == 1 and not error else None,
            found=found_in(message, response) if is_finding and response is not None else None,
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
            return [error_in(response)]
        case ListGroupsResponse():
            return [response.error_code]
        case BatchJoinGroupResponse():
            return [each.error_code for each in response.member_join_response_list]
    raise TypeError(response)


def _offsets(response: Any) -> list[tuple[str, int]] | None:
    if not isinstance(response, OffsetFetchResponse):
        return None
    return [(f"{topic}-{partition}", offset) for (topic, partition), offset in fetched_offsets(response)]
