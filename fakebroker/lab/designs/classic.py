"""The classic protocol: the group coordinator of `coordinator.group`, and the member of `client.member`."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import inf

from fakebroker.client.member import requests
from fakebroker.client.member.effects import Discover, Fatal, FetchMetadata, GroupRequest, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.coordinator.group.api import ItemResults, JoinGroup, JoinResult, OffsetToCommit, SyncGroup, SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import STABLE
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.history import discard_change
from fakebroker.coordinator.group.records import GroupRecord, OffsetRecord, Record
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Beat, CoordinatorPort, CoordinatorSettings, Design, Idle, Link, MemberPort, Records
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition, by_topic

_ALIVE = HeartbeatResponse()


class ClassicMember:
    """A member of the classic protocol; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: What it acts through.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort) -> None:
        self._member, self._port = Member(settings), port
        self._node_id: int | None = None
        self._link: Link | None = None
        self._is_connected = False
        self._held: list[GroupRequest] = []
        self._in_flight: deque[GroupRequest] = deque()
        self._metadata_due_ms = inf
        self._member_id = ""
        # Whether the generation is complete, the owned partitions, and those of them whose offset is known.
        self._reported: tuple[bool, tuple[TopicPartition, ...], frozenset[TopicPartition]] = False, (), frozenset()

    # lab.design.Member

    def start(self, now_ms: float) -> None:
        self._member.start(now_ms)
        self._act(now_ms)

    def leave(self, now_ms: float) -> None:
        self._update_positions()
        self._member.leave(now_ms)
        self._act(now_ms)

    def found(self, node_id: int | None, now_ms: float) -> None:
        if node_id is None:
            self._member.discovery_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
        else:
            if self._link is None or node_id != self._node_id:
                self._connect(node_id)
            self._member.discovered(now_ms)
        self._act(now_ms)

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        self._update_positions()
        self._metadata_due_ms = now_ms + self._port.metadata_max_age_ms
        self._member.metadata(partition_counts, now_ms)
        self._act(now_ms)

    def connected(self, link: Link, now_ms: float) -> None:
        self._is_connected = True
        held, self._held = self._held, []
        for request in held:
            self._send(request)

    def disconnected(self, link: Link, now_ms: float) -> None:
        if link is self._link:
            self._forget_link()
            self._member.connection_lost(now_ms)
            self._act(now_ms)

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        if link is not self._link:
            return
        request = self._in_flight.popleft()
        if type(message) is not HeartbeatResponse or message.error_code:
            self._update_positions()
        self._member.answered(request, message, now_ms)  # type: ignore[arg-type]  # what the coordinator sends
        self._act(now_ms)

    def next_deadline(self) -> float:
        due_ms = self._member.next_deadline()
        return self._metadata_due_ms if due_ms is None else min(due_ms, self._metadata_due_ms)

    def tick(self, now_ms: float) -> None:
        if self._member.next_commit_ms <= now_ms:
            self._update_positions()
        self._member.tick(now_ms)
        if self._metadata_due_ms <= now_ms:
            self._metadata_due_ms = inf
            if self._member.is_leader:
                self._port.fetch_metadata()
        self._act(now_ms)

    def idle(self) -> Idle | None:
        member = self._member
        until_ms = member.idle_until()
        if until_ms == -inf or member.state is not MemberState.PART_OF_GROUP or not self._is_connected:
            return None
        beats = [Beat(member.next_heartbeat_ms, member.settings.heartbeat_interval_ms, self._heartbeat(), _ALIVE)]
        if member.next_commit_ms < inf and member.assigned:
            commit = requests.offset_commit(member.identity, dict.fromkeys(member.assigned, 0))
            interval_ms = member.settings.commit_interval_ms
            beats.append(Beat(member.next_commit_ms, interval_ms, commit, _committed(commit, 0), is_commit=True))
        return Idle(tuple(beats), min(until_ms, self._metadata_due_ms))

    def beats_skipped(self, beat: Beat, next_due_ms: float, last_ms: float) -> None:
        if beat.is_commit:
            self._member.commits_skipped(next_due_ms)
        else:
            self._member.heartbeats_skipped(next_due_ms, last_ms)

    # Effects

    def _heartbeat(self) -> HeartbeatRequest:
        return requests.heartbeat(self._member.identity)

    def _update_positions(self) -> None:
        self._member.positions.update(self._port.positions())

    def _act(self, now_ms: float) -> None:
        member = self._member
        while member.effects:
            effects, member.effects = member.effects, []
            for effect in effects:
                match effect:
                    case Discover():
                        self._drop_link()
                        self._port.find_coordinator()
                    case Send(request):
                        self._send(request)
                    case FetchMetadata():
                        self._port.fetch_metadata()
                    case Fatal():
                        self._port.failed(effect.message)
        self._report()

    def _report(self) -> None:
        """Report the owned partitions and their first offsets, if they have changed."""
        member = self._member
        if member.member_id != self._member_id:
            self._member_id = member.member_id
            self._port.identified(self._member_id)
        positions = member.positions
        known = frozenset(partition for partition in member.assigned if partition in positions)
        report = member.is_in_generation, member.assigned, known
        if report == self._reported:
            return
        before, self._reported = self._reported[2], report
        if member.is_in_generation:
            started = known - before
            self._port.assigned({each: positions[each] if each in started else None for each in member.assigned})
        else:
            self._port.stopped(keep=member.assigned)

    # Connections

    def _send(self, request: GroupRequest) -> None:
        if self._link is None or not self._is_connected:
            self._held.append(request)
        else:
            self._in_flight.append(request)
            self._port.send(self._link, request)

    def _connect(self, node_id: int) -> None:
        self._drop_link()
        self._node_id = node_id
        self._link = self._port.connect(node_id)

    def _drop_link(self) -> None:
        if self._link is not None:
            self._port.close(self._link)
        self._forget_link()

    def _forget_link(self) -> None:
        self._link, self._is_connected = None, False
        self._held.clear()
        self._in_flight.clear()


class ClassicCoordinator:
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: What it acts through.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort) -> None:
        self._port = port
        config = CoordinatorConfig(
            group_initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            group_max_session_timeout_ms=settings.max_session_timeout_ms,
            offsets_topic_num_partitions=settings.offsets_partitions,
        )
        self._coordinator = Coordinator(config, port.new_id, self._append, on_change=self._on_change)
        self._links: dict[str, Link] = {}  # By member id.
        self._leaving: set[str] = set()

    # lab.design.Coordinator

    def elected(self, partition: int, now_ms: float) -> None:
        self._coordinator.start_loading(partition)

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        self._coordinator.finish_loading(partition, records.values(), now_ms)
        self._answer()

    def resigned(self, partition: int, now_ms: float) -> None:
        self._coordinator.resign(partition, now_ms)
        self._answer()

    def topics_changed(self, now_ms: float) -> None:
        """The leader of the group notices this."""

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        match message:
            case HeartbeatRequest():
                self._heartbeat(link, message, now_ms)
            case JoinGroupRequest():
                self._coordinator.join_group(message.group_id, _join(message), link, now_ms)
            case SyncGroupRequest():
                self._links[message.member_id] = link
                self._coordinator.sync_group(message.group_id, _sync(message), link, now_ms)
            case OffsetCommitRequest():
                self._commit(link, message, now_ms)
            case OffsetFetchRequest():
                self._port.reply(link, self._fetched(message, now_ms))
            case LeaveGroupRequest():
                self._leave(link, message, now_ms)
        self._answer()

    def disconnected(self, link: Link, now_ms: float) -> None:
        """Kafka's coordinator does not know connections."""

    def next_deadline(self) -> float:
        due_ms = self._coordinator.next_deadline()
        return inf if due_ms is None else due_ms

    def tick(self, now_ms: float) -> None:
        self._coordinator.tick(now_ms)
        self._answer()

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._coordinator.group(group_id)
        return group is not None and group.state is STABLE and len(group.members) == links and not group.pending_members

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        return {}

    def rest(self, group_id: str) -> None:
        for member in self._group(group_id).members.values():
            member.keeper = _never

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        group = self._group(group_id)
        for member in group.members.values():
            heard_ms = last_ms[self._links[member.member_id]]
            deadline_ms = max(member.deadline_ms, heard_ms + member.session_timeout_ms)
            self._coordinator.resume_session(group, member, deadline_ms)

    # Requests

    def _group(self, group_id: str) -> Group:
        group = self._coordinator.group(group_id)
        assert group is not None, f"group {group_id!r}: expected a group that rests"
        return group

    def _heartbeat(self, link: Link, request: HeartbeatRequest, now_ms: float) -> None:
        self._links[request.member_id] = link
        error = self._coordinator.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id, now_ms
        )
        self._port.reply(link, HeartbeatResponse(error_code=error) if error else _ALIVE)

    def _commit(self, link: Link, request: OffsetCommitRequest, now_ms: float) -> None:
        offsets = [
            OffsetToCommit(topic=topic.name, partition=each.partition_index, offset=each.committed_offset)
            for topic in request.topics
            for each in topic.partitions
        ]
        self._coordinator.commit_offsets(
            *(request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id),
            *(offsets, now_ms, lambda errors: self._port.reply(link, _committed(request, errors[0]))),
        )

    def _fetched(self, request: OffsetFetchRequest, now_ms: float) -> OffsetFetchResponse:
        group = request.groups[0]
        wanted = [(topic.name, index) for topic in group.topics or () for index in topic.partition_indexes]
        error, found = self._coordinator.fetch_offsets(group.group_id, wanted, now_ms)
        offsets = {(topic, index): -1 if each is None else each.offset for topic, index, each in found}
        topics = [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=offsets[topic, index], metadata="", error_code=0
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)]
        )

    def _leave(self, link: Link, request: LeaveGroupRequest, now_ms: float) -> None:
        members = [(each.member_id, each.group_instance_id) for each in request.members]
        self._leaving.update(member_id for member_id, _ in members)
        done = partial(self._left, link, members)
        self._coordinator.leave_group(request.group_id, members, now_ms, done)

    def _left(self, link: Link, members: list[tuple[str, str | None]], result: ItemResults) -> None:
        error, errors = result
        response = LeaveGroupResponse(
            error_code=error,
            members=[
                MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=each)
                for (member_id, instance_id), each in zip(members, errors, strict=False)
            ],
        )
        self._port.reply(link, response)

    # What the coordinator does

    def _answer(self) -> None:
        answers, self._coordinator.answers = self._coordinator.answers, []
        for link, result in answers:
            match result:
                case JoinResult():
                    if result.member_id:
                        self._links[result.member_id] = link  # type: ignore[assignment]  # tokens are links
                    self._port.reply(link, _joined(result))  # type: ignore[arg-type]
                case SyncResult():
                    self._port.reply(link, _synced(result))  # type: ignore[arg-type]

    def _append(self, partition: int, records: tuple[Record, ...], done: Callable[[ErrorCode], None]) -> None:
        keyed: dict[Hashable, Record | None] = {}
        for record in records:
            match record:
                case GroupRecord(group_id, value):
                    keyed["group", group_id] = record if value is not None else None
                case OffsetRecord(group_id, topic, index, offset):
                    keyed["offset", group_id, topic, index] = record if offset is not None else None

        def stored(is_stored: bool) -> None:
            done(ErrorCode.NONE if is_stored else ErrorCode.NOT_COORDINATOR)
            self._answer()

        self._port.append(partition, keyed, stored)

    def _on_change(self, group: Group, now_ms: float) -> None:
        change = group.pending_change
        if change is not None:
            removed = dict.fromkeys([*change.left, *(each for moment in change.moments for each in moment.left)])
            discard_change(group, now_ms)
            for member_id in removed:
                self._links.pop(member_id, None)
                if member_id in self._leaving:
                    self._leaving.discard(member_id)
                else:
                    self._port.expelled(group.group_id, member_id)


def _never(group_id: str) -> None:
    """The keeper of sessions that are suspended: no other timer of a group that rests expires."""


def _join(request: JoinGroupRequest) -> JoinGroup:
    return JoinGroup(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id="member",
        client_host="/lab",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_member_id=True,
        supports_skip_assignment=True,
    )


def _joined(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in result.members
        ],
    )


def _sync(request: SyncGroupRequest) -> SyncGroup:
    return SyncGroup(
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )


def _synced(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def _committed(request: OffsetCommitRequest, error: int) -> OffsetCommitResponse:
    """Return the response to a commit, with one error for all its partitions."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


DESIGN = Design(
    name="classic",
    summary="Kafka's classic protocol: members send heartbeats and rejoin, their leader assigns",
    member=ClassicMember,
    coordinator=ClassicCoordinator,
    beats=frozenset({HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset(INVARIANTS),
)
