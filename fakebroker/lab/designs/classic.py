"""The classic protocol: the group coordinator of `coordinator`, and the member of `client.member`."""

from collections.abc import Hashable, Mapping

from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.coordinator.api import JoinGroup, JoinResult, SyncGroup, SyncResult
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import STABLE
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.group_history import Change, ChangedGroup
from fakebroker.coordinator.group_records import GroupRecord, OffsetRecord, Record
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort
from fakebroker.lab.designs.effects_member import ALIVE, EffectsMember
from fakebroker.lab.designs.group_coordinator import GroupCoordinator, never
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
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


class ClassicCoordinator(GroupCoordinator):
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: What it acts through.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort) -> None:
        config = CoordinatorConfig(
            group_initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            group_max_session_timeout_ms=settings.max_session_timeout_ms,
            offsets_topic_num_partitions=settings.offsets_partitions,
        )
        super().__init__(config, port)

    # lab.design.Coordinator

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

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._coordinator.groups.classic.get(group_id)
        return group is not None and group.state is STABLE and len(group.members) == links and not group.pending_members

    def rest(self, group_id: str) -> None:
        for member in self._group(group_id).members.values():
            member.keeper = never

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        group = self._group(group_id)
        for member in group.members.values():
            heard_ms = last_ms[self._links[member.member_id]]
            deadline_ms = max(member.deadline_ms, heard_ms + member.session_timeout_ms)
            self._coordinator.groups.resume_session(group, member, deadline_ms)

    # Requests

    def _group(self, group_id: str) -> Group:
        group = self._coordinator.groups.classic.get(group_id)
        assert group is not None, f"group {group_id!r}: expected a group that rests"
        return group

    def _heartbeat(self, link: Link, request: HeartbeatRequest, now_ms: float) -> None:
        self._links[request.member_id] = link
        error = self._coordinator.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id, now_ms
        )
        self._port.reply(link, HeartbeatResponse(error_code=error) if error else ALIVE)

    def _leave(self, link: Link, request: LeaveGroupRequest, now_ms: float) -> None:
        members = [(each.member_id, each.group_instance_id) for each in request.members]
        self._leaving.update(member_id for member_id, _ in members)
        error, errors = self._coordinator.leave_group(request.group_id, members, now_ms)
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

    def _key_of(self, record: Record) -> tuple[Hashable, bool]:
        match record:
            case GroupRecord(group_id, value):
                return ("group", group_id), value is None
            case OffsetRecord(group_id, topic, index, offset):
                return ("offset", group_id, topic, index), offset is None
        raise AssertionError(f"{record}: expected a record of a classic group")

    def _removed(self, group: ChangedGroup) -> list[str]:
        change = group.pending_change
        if not isinstance(change, Change):
            return []
        return list(dict.fromkeys([*change.left, *(each for moment in change.moments for each in moment.left)]))


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
