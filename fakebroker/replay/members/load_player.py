"""Plays one `[[load]]`: the requests of an administrator's tools, beside the members. Their events have no member.

Knows which broker each request goes to, and when; sockets are the wire's business. A request that was answered with an
error is not repeated; groups whose coordinator has moved are looked up again before the next pass over all groups.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fakebroker.client.admin.group_handlers import add_members_request
from fakebroker.client.member.reactions import error_in
from fakebroker.client.member.requests import fetched_offsets
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.clock import Clock
from fakebroker.replay.members.coordinator_lookup import Lookups, found_in
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.exchange import to_us
from fakebroker.replay.members.link import Link
from fakebroker.replay.members.wire import Wire
from fakebroker.replay.script.script import Script
from fakebroker.replay.workload.loads import Load

_RETRY_MS = 100.0
_NOBODY = -1
_FIRST_WITH_BATCHES: dict[type[Message], int] = {FindCoordinatorRequest: 4, OffsetFetchRequest: 8}
"""The first version that asks about several groups (KIP-699, KIP-709)."""

_SESSION_TIMEOUT_MS, _REBALANCE_TIMEOUT_MS = 45_000, 300_000
"""Of instances that are added: Kafka's defaults."""

_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def groups_of(load: Load, scripts: Iterable[Script]) -> dict[str, list[str]]:
    """The groups that a load is about, each with the instances that it adds: static members that start later."""
    groups: dict[str, list[str]] = {}
    for script in scripts:
        if load.groups in (None, script.population):
            instances = groups.setdefault(script.group, [])
            if load.kind == "add-members" and script.instance_id and script.acts[0].at_ms >= load.at_s * 1000:
                instances.append(script.instance_id)
    return groups


@dataclass(slots=True, eq=False)
class _Question:
    """A request to one broker about some groups."""

    node_id: int
    groups: tuple[str, ...]
    scheduled_ms: float = 0.0
    sent_ms: float = math.inf
    version: int = -1


class LoadPlayer:
    """One load.

    Args:
        load: What is asked, and how often.
        groups: All groups that it is about, in their order, with the instances that it is to add to each.
        start_ms: When the replay starts.
        wire: Makes connections: one to each broker that is asked.
        lookups: Finds coordinators.
        record: Takes each event.

    Attributes:
        is_done: Whether all is asked and answered.
    """

    def __init__(
        self,
        load: Load,
        groups: Mapping[str, Sequence[str]],
        start_ms: float,
        wire: Wire,
        clock: Clock,
        lookups: Lookups,
        record: Callable[[Event], None],
    ) -> None:
        self.is_done = False
        self._load, self._groups = load, groups
        self._wire, self._clock, self._lookups, self._record = wire, clock, lookups, record
        self._due_ms = start_ms + load.at_s * 1000
        self._end_ms = math.inf if load.for_s is None else self._due_ms + load.for_s * 1000
        self._passes = 0
        self._plan: deque[_Question] = deque()  # what is left of this pass
        self._coordinators: dict[str, int] = {}
        self._sought = 0  # groups whose coordinator is being looked up
        self._links: dict[int, Link] = {}
        self._held: dict[Link, list[_Question]] = {}
        self._in_flight: dict[Link, deque[_Question]] = {}
        self._unanswered = 0

    def next_deadline(self) -> float:
        """When `turn` has something to do."""
        waits = self._sought or (self._load.rate_per_s is None and self._unanswered)
        return self._end_ms if waits and not self._is_over else self._due_ms

    def turn(self, now_ms: float) -> None:
        """Ask what is due."""
        while self._due_ms <= now_ms and self.next_deadline() <= now_ms:
            # In an open loop what was due in time is asked, however late this is.
            moment_ms = now_ms if self._load.rate_per_s is None else self._due_ms
            if moment_ms >= self._end_ms or not (self._plan or self._begin_pass(now_ms)):
                break
            self._ask(self._plan.popleft(), now_ms)
        if now_ms >= self._end_ms:
            self._end()

    def stop(self) -> None:
        """Answers are not waited for any longer; they are owed."""
        for questions in self._in_flight.values():
            for question in questions:
                self._record_answer(question, None)

    @property
    def _is_over(self) -> bool:
        return self._due_ms == math.inf

    def _end(self) -> None:
        """Nothing more is asked."""
        self._due_ms = math.inf
        self._plan.clear()
        self.is_done = not self._unanswered

    # What is asked

    def _begin_pass(self, now_ms: float) -> bool:
        """Make the plan for a pass over all groups; False if there is none, or none yet."""
        if self._passes and self._load.for_s is None:
            self._end()
            return False
        needs_coordinators = self._load.kind in ("fetch-offsets", "describe-groups", "add-members")
        if needs_coordinators:
            missing = [group for group in self._groups if group not in self._coordinators]
            self._sought = len(missing)
            for group in missing:
                self._lookups.discover(group, self, now_ms)
            if missing:
                return False
        self._plan.extend(self._questions())
        if not self._plan:
            self._end()
            return False
        if needs_coordinators and not self._passes:
            self._due_ms = now_ms  # the look-ups before it are not what is measured
        self._passes += 1
        return True

    def _questions(self) -> Iterator[_Question]:
        if self._load.kind == "list-groups":
            yield from (_Question(node_id, ()) for node_id in self._lookups.nodes)
            return
        anybody = next(iter(self._lookups.nodes))
        by_node: dict[int, list[str]] = {}
        for group in self._groups:
            by_node.setdefault(self._coordinators.get(group, anybody), []).append(group)
        for node_id, groups in by_node.items():
            if node_id != _NOBODY:
                batch = 1 if self._load.kind == "add-members" else self._load.batch
                for index in range(0, len(groups), batch):
                    yield _Question(node_id, tuple(groups[index : index + batch]))

    def _request(self, groups: tuple[str, ...]) -> Message:
        match self._load.kind:
            case "find-coordinators":
                return FindCoordinatorRequest(coordinator_keys=list(groups))
            case "fetch-offsets":
                asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
                return OffsetFetchRequest(groups=asked)
            case "describe-groups":
                return DescribeGroupsRequest(groups=list(groups))
            case "add-members":
                (group,) = groups
                return add_members_request(group, self._groups[group], _SESSION_TIMEOUT_MS, _REBALANCE_TIMEOUT_MS)
        return ListGroupsRequest()

    # From the look-ups

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        self._coordinators[group] = node_id
        self._lookups.nodes[node_id] = (host, port)
        self._sought -= 1

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        if error.retriable:
            self._wait_a_while()
        else:
            self._coordinators[group] = _NOBODY
        self._sought -= 1

    def seeks_again(self) -> bool:
        return False

    def _wait_a_while(self) -> None:
        self._due_ms = max(self._due_ms, self._clock.now_ms() + _RETRY_MS)

    # The way out and back

    def _ask(self, question: _Question, now_ms: float) -> None:
        question.scheduled_ms = now_ms
        if self._load.rate_per_s is not None:
            question.scheduled_ms = self._due_ms
            self._due_ms += 1000 / self._load.rate_per_s
        self._unanswered += 1
        link = self._links.get(question.node_id) or self._connect(question.node_id)
        if link is None:
            self._lose([question])
        elif link.spoken is None:
            self._held[link].append(question)
        else:
            self._send(link, question, now_ms)

    def _connect(self, node_id: int) -> Link | None:
        """A connection to a broker; None if the brokers no longer count it among themselves."""
        address = self._lookups.nodes.get(node_id)
        if address is None:
            return None
        link = self._links[node_id] = self._wire.connect(address, self)
        self._held[link], self._in_flight[link] = [], deque()
        return link

    def _send(self, link: Link, question: _Question, now_ms: float) -> None:
        request = self._request(question.groups)
        question.version = link.version_for(request)
        if question.version < _FIRST_WITH_BATCHES.get(type(request), 0) and len(question.groups) > 1:
            first, *others = question.groups
            question.groups = (first,)
            self._plan.extendleft(_Question(question.node_id, (group,)) for group in reversed(others))
            request = self._request(question.groups)
        question.sent_ms = now_ms
        self._in_flight[link].append(question)
        self._wire.send(link, request, question.version, CLIENT_ID, self)

    def opened(self, link: Link) -> None:
        held, self._held[link] = self._held[link], []
        for question in held:
            self._send(link, question, self._clock.now_ms())

    def answered(self, link: Link, response: Any) -> None:
        question = self._in_flight[link].popleft()
        self._unanswered -= 1
        errors = _errors(response)
        if any(error in _MOVED for error in errors):
            self._forget_coordinators(question)
        self._record_answer(question, response, next(filter(None, errors), 0))
        self.is_done = self._is_over and not self._unanswered

    def lost(self, link: Link, why: str) -> None:
        self._links = {node_id: each for node_id, each in self._links.items() if each is not link}
        self._lose([*self._in_flight.pop(link), *self._held.pop(link)])

    def _lose(self, questions: Iterable[_Question]) -> None:
        for question in questions:
            self._unanswered -= 1
            self._forget_coordinators(question)
            self._record_answer(question, None, lost=True)
        if self._load.rate_per_s is None:
            self._wait_a_while()
        self.is_done = self._is_over and not self._unanswered

    def _forget_coordinators(self, question: _Question) -> None:
        for group in question.groups:
            self._coordinators.pop(group, None)

    def _record_answer(
        self, question: _Question, response: Any, error: int | None = None, *, lost: bool = False
    ) -> None:
        groups, now_ms = question.groups, self._clock.now_ms()
        is_sent = question.sent_ms != math.inf
        is_finding = self._load.kind == "find-coordinators"
        event = Event(
            scheduled_us=to_us(question.scheduled_ms),
            sent_us=to_us(question.sent_ms if is_sent else now_ms),
            latency_us=None if response is None else to_us(now_ms - question.scheduled_ms),
            api=api_of(self._request(groups)).name,
            version=question.version,
            broker=question.node_id,
            group=groups[0] if len(groups) == 1 else None,
            error=error,
            lookups=len(groups) if is_finding else None,
            until_us=to_us(now_ms) if lost else None,
            lost=lost,
            offsets=_offsets(response) if len(groups) == 1 and not error else None,
            found=found_in(groups, response) if isinstance(response, FindCoordinatorResponse) else None,
        )
        self._record(event)


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
        case JoinGroupResponse():
            return [each.error_code for each in response.member_join_response_list]
    raise TypeError(response)


def _offsets(response: Any) -> list[tuple[str, int]] | None:
    if not isinstance(response, OffsetFetchResponse):
        return None
    return [(f"{topic}-{partition}", offset) for (topic, partition), offset in fetched_offsets(response)]
