"""The classic protocol: the group coordinator of `coordinator.group`, and the member of `client.member`."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import inf

from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.coordinator.group.api import ItemResults, JoinGroup, JoinResult, OffsetToCommit, SyncGroup, SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import STABLE
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.history import Change, ChangedGroup, discard_change
from fakebroker.coordinator.group.records import GroupRecord, OffsetRecord, Record
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort, Records
from fakebroker.lab.designs.effects_member import ALIVE, EffectsMember
from fakebroker.lab.designs.offset_responses import commit_response, committed_partitions, fetch_response
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.schema import Message


class ClassicMember(EffectsMember):
    """A member of the classic protocol; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: What it acts through.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort) -> None:
        self._classic = Member(settings)
        super().__init__(self._classic, port, settings.heartbeat_interval_ms, settings.commit_interval_ms)

    @property
    def _consumes(self) -> bool:
        return self._classic.is_in_generation

    @property
    def _refreshes_metadata(self) -> bool:
        return self._classic.is_leader


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
        self._port.reply(link, HeartbeatResponse(error_code=error) if error else ALIVE)

    def _commit(self, link: Link, request: OffsetCommitRequest, now_ms: float) -> None:
        offsets = [
            OffsetToCommit(topic=topic.name, partition=each.partition_index, offset=each.committed_offset)
            for topic in request.topics
            for each in topic.partitions
        ]
        self._coordinator.commit_offsets(
            *(request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id),
            *(offsets, now_ms, lambda errors: self._port.reply(link, commit_response(request, errors[0]))),
        )

    def _fetched(self, request: OffsetFetchRequest, now_ms: float) -> OffsetFetchResponse:
        group_id = request.groups[0].group_id
        error, found = self._coordinator.fetch_offsets(group_id, committed_partitions(request), now_ms)
        offsets = {(topic, index): each.offset for topic, index, each in found if each is not None}
        return fetch_response(request, offsets, error)

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

    def _on_change(self, group: ChangedGroup, now_ms: float) -> None:
        change = group.pending_change
        if isinstance(change, Change):
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


DESIGN = Design(
    name="classic",
    summary="Kafka's classic protocol: members send heartbeats and rejoin, their leader assigns",
    member=ClassicMember,
    coordinator=ClassicCoordinator,
    beats=frozenset({HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset(INVARIANTS),
)
