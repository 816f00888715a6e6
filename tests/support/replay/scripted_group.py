"""A group of scripted members and two brokers in virtual time, with the events that the members record.

The brokers run real coordinators with a shared log. The one that leads the offsets partition serves the group "g", the
other one answers NOT_COORDINATOR. Broker 1 answers all look-ups.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from random import Random
from typing import Any

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.coordinator.group.api import JoinResult, OffsetToCommit, SyncResult
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.records import Record
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.script.script import Act, Action, Script
from tests.support.client.member_harness import committed, fetched, refusal
from tests.support.coordinator import messages
from tests.support.coordinator.coordinator_harness import result_of
from tests.support.virtual_time import VirtualTime

START_MS = 1_700_000_000_000.0
PARTITIONS = {"orders": 4, "payments": 2}
SESSION_MS, REBALANCE_MS = 6_000, 9_000
_PARTITION = 0  # the only partition of __consumer_offsets
_BROKERS = (1, 2)


def script(name: str, *acts: tuple[float, Action] | tuple[float, Action, float], **more: Any) -> Script:
    """Return the script of a member.

    Args:
        name: Name of the member.
        acts: Time in seconds, action, and optionally its duration in seconds. The member starts at second 0, unless the
            first action is another start.
        more: Fields of `Script` to override.
    """
    actions = tuple(Act(each[0] * 1000.0, each[1], each[2] * 1000.0 if len(each) > 2 else 0.0) for each in acts)
    if not actions or actions[0].deed != "start":
        actions = (Act(0.0, "start"), *actions)
    script = Script(
        "all", "g", name, None, tuple(PARTITIONS), "range", SESSION_MS, REBALANCE_MS, 1_500, 2_000, 100.0, actions
    )
    return script._replace(**more)


@dataclass(eq=False)
class _Connection:
    """A member and the number of its connection; requests sent on earlier connections get no response."""

    member: ScriptedMember
    number: int = 0


@dataclass(eq=False)
class _PendingRequest:
    """A request at a broker, and the number of the connection on which it was sent."""

    connection: _Connection
    number: int
    request: GroupRequest


class ScriptedGroup(VirtualTime):
    """Scripted members of a group with two brokers, in virtual time.

    Args:
        scripts: The scripts of the members.
        kind: The class of the brokers' coordinators.
        seed: Seed of delays and lost requests.

    Attributes:
        events: The events recorded so far.
        named: Returns the coordinator for look-ups, by default the leader; tests may replace it.
    """

    def __init__(self, scripts: Sequence[Script], kind: type[Coordinator] = Coordinator, seed: int = 0) -> None:
        super().__init__(START_MS)
        self.random = Random(seed)
        self.events: list[Event] = []
        self.named: Callable[[], int] = lambda: self._leader
        self._leader = 1
        self._log: list[Record] = []
        numbers = count(1)
        config = CoordinatorConfig(group_initial_rebalance_delay_ms=1_000, offsets_topic_num_partitions=1)
        self._coordinators = {
            node_id: kind(config, lambda: f"{next(numbers):04}", self._append) for node_id in _BROKERS
        }
        self._coordinators[1].lead(_PARTITION, START_MS)
        self._connections = [_Connection(ScriptedMember(each, START_MS, self._record)) for each in scripts]

    def _record(self, event: Event) -> None:
        """Add an event; `until_us` of a lost request is the time at which it was lost."""
        self.events.append(event._replace(until_us=round(self.now_ms * 1000)) if event.lost else event)

    def _append(self, _: int, records: Sequence[Record], done: Callable[[ErrorCode], None]) -> None:
        self._log.extend(records)
        done(ErrorCode.NONE)

    # Actions of tests

    def move(self) -> None:
        """Move the coordinator to the other broker."""
        self._coordinators[self._leader].resign(_PARTITION, self.now_ms)
        self._send_responses(self._leader)
        self._leader = _BROKERS[self._leader % len(_BROKERS)]
        self._coordinators[self._leader].start_loading(_PARTITION)
        self._coordinators[self._leader].finish_loading(_PARTITION, self._log, self.now_ms)

    def share(self) -> None:
        """Let both brokers serve the group, with the same state."""
        self._coordinators[2] = self._coordinators[1]

    def cut(self, index: int) -> None:
        """Close the connection of a member."""
        self._connections[index].number += 1
        self._connections[index].member.connection_lost(self.now_ms)

    def _next_deadline(self) -> float:
        deadlines = [connection.member.next_deadline() for connection in self._connections]
        return min([*deadlines, *(coordinator.next_deadline() or inf for coordinator in self._coordinators.values())])

    def _settle(self) -> None:
        for node_id, coordinator in self._coordinators.items():
            coordinator.tick(self.now_ms)
            self._send_responses(node_id)
        for connection in self._connections:
            connection.member.tick(self.now_ms)
            self._send_requests(connection)

    def _after(self, act: Callable[[], None]) -> None:
        self.at(self.random.choice([1.0, 2.0, 20.0]), act)

    # Requests of members

    def _send_requests(self, connection: _Connection) -> None:
        member = connection.member
        if member.take_disconnect():
            connection.number += 1
        if (since_ms := member.take_discovery()) is not None:
            self._look_up(connection, since_ms)
        if (wanted := member.take_metadata()) is not None:
            counts = {topic: PARTITIONS[topic] for topic in wanted[0]}
            self._after(lambda: member.metadata(counts, self.now_ms))
        if (request := member.take_request()) is not None:
            member.sent(9, self.now_ms)
            token, node_id = _PendingRequest(connection, connection.number, request), member.node_id
            self._after(lambda: self._arrive(node_id, token))

    def _look_up(self, connection: _Connection, since_ms: float) -> None:
        sent_ms = self.now_ms

        def answer() -> None:
            node_id = self.named()
            seeks_again = connection.member.is_rejoining
            self.events.append(
                Event(
                    scheduled_us=round(since_ms * 1000),
                    sent_us=round(sent_ms * 1000),
                    latency_us=round((self.now_ms - since_ms) * 1000),
                    api="FindCoordinator",
                    version=6,
                    broker=1,
                    group="g",
                    error=0,
                    lookups=1,
                    found=[("g", node_id, 0, seeks_again)],
                )
            )
            connection.member.discovered(node_id, f"b{node_id}", 9092, self.now_ms)

        self._after(answer)

    # Responses of brokers. A request on a closed connection may still arrive.

    def _arrive(self, node_id: int, token: _PendingRequest) -> None:
        if token.number == token.connection.number or self.random.random() < 0.5:
            self._handle(node_id, token)
            self._send_responses(node_id)

    def _answer(self, token: _PendingRequest, response: GroupResponse) -> None:
        def deliver() -> None:
            if token.number == token.connection.number:
                token.connection.member.answered(response, self.now_ms)

        self._after(deliver)

    def _send_responses(self, node_id: int) -> None:
        coordinator = self._coordinators[node_id]
        answers, coordinator.answers = coordinator.answers, []
        for token, result in answers:
            assert isinstance(token, _PendingRequest)
            assert isinstance(result, JoinResult | SyncResult)
            self._answer(token, messages.joined(result) if isinstance(result, JoinResult) else messages.synced(result))

    def _handle(self, node_id: int, token: _PendingRequest) -> None:
        coordinator, request, now_ms = self._coordinators[node_id], token.request, self.now_ms
        match request:
            case JoinGroupRequest():
                coordinator.join_group(
                    "g", messages.join(request, token.connection.member.script.member), token, now_ms
                )
            case SyncGroupRequest():
                coordinator.sync_group("g", messages.sync(request), token, now_ms)
            case HeartbeatRequest(generation_id=generation_id, member_id=member_id, group_instance_id=instance_id):
                error = coordinator.heartbeat("g", generation_id, member_id, instance_id, now_ms)
                self._answer(token, HeartbeatResponse(error_code=error))
            case OffsetCommitRequest():
                self._answer(token, _commit(coordinator, request, now_ms))
            case OffsetFetchRequest():
                self._answer(token, _fetch(coordinator, request, now_ms))
            case LeaveGroupRequest(members=members):
                leaving = [(each.member_id, each.group_instance_id) for each in members]
                error, _ = result_of(coordinator.leave_group, "g", leaving, now_ms)
                self._answer(token, LeaveGroupResponse(error_code=error))


def _commit(coordinator: Coordinator, request: OffsetCommitRequest, now_ms: float) -> OffsetCommitResponse:
    offsets = [
        OffsetToCommit(topic=topic.name, partition=p.partition_index, offset=p.committed_offset)
        for topic in request.topics
        for p in topic.partitions
    ]
    generation_id = request.generation_id_or_member_epoch
    errors = result_of(
        coordinator.commit_offsets, "g", generation_id, request.member_id, request.group_instance_id, offsets, now_ms
    )
    response = committed(request)
    for outcome, error in zip([p for topic in response.topics for p in topic.partitions], errors, strict=True):
        outcome.error_code = error
    return response


def _fetch(coordinator: Coordinator, request: OffsetFetchRequest, now_ms: float) -> GroupResponse:
    wanted = [(topic.name, index) for topic in request.groups[0].topics or [] for index in topic.partition_indexes]
    error, found = coordinator.fetch_offsets("g", wanted, now_ms)
    if error:
        return refusal(request, error)
    return fetched({(topic, index): offset.offset if offset else -1 for topic, index, offset in found})
