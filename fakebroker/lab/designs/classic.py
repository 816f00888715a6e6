"""The classic protocol: the group coordinator of `coordinator`, and the member of `client.member`."""

from collections.abc import Hashable, Mapping

import msgspec
from msgspec.structs import astuple

from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import STABLE
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.group_history import ChangedGroup
from fakebroker.coordinator.records import CoordinatorRecord, Record
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort
from fakebroker.lab.designs.effects_member import ALIVE, EffectsMember
from fakebroker.lab.designs.group_coordinator import GroupCoordinator, never
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message


class ClassicMember(EffectsMember):
    """A member of the classic protocol; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
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


class _Sender(msgspec.Struct):
    """The context of a request: the link for the response, and what a coordinator wants to know of a client."""

    link: Link
    api_version: int = 9
    client_id: str = "member"
    client_host: str = "/lab"
    may_describe: None = None


class ClassicCoordinator(GroupCoordinator):
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
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
                self._coordinator.join_group(message, _Sender(link), now_ms)
            case SyncGroupRequest():
                self._links[message.member_id] = link
                self._coordinator.sync_group(message, _Sender(link), now_ms)
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
        error = self._coordinator.heartbeat(request, now_ms)
        self._port.reply(link, HeartbeatResponse(error_code=error) if error else ALIVE)

    def _leave(self, link: Link, request: LeaveGroupRequest, now_ms: float) -> None:
        self._leaving.update(each.member_id for each in request.members)
        self._port.reply(link, self._coordinator.leave_group(request.group_id, request.members, now_ms))

    # What the coordinator does

    def _answer(self) -> None:
        answers, self._coordinator.answers = self._coordinator.answers, []
        for sender, response in answers:
            assert isinstance(sender, _Sender)
            if isinstance(response, JoinGroupResponse) and response.member_id:
                self._links[response.member_id] = sender.link
            self._port.reply(sender.link, response)

    def _key_of(self, record: Record) -> tuple[Hashable, bool]:
        assert isinstance(record, CoordinatorRecord), f"{record}: expected a record of a classic group"
        return astuple(record.key), record.value is None

    def _removed(self, group: ChangedGroup) -> list[str]:
        change = group.pending_change
        if change is None:
            return []
        return list(dict.fromkeys([*change.left, *(each for moment in change.moments for each in moment.left)]))


DESIGN = Design(
    name="classic",
    summary="Kafka's classic protocol: members send heartbeats and rejoin, their leader assigns",
    member=ClassicMember,
    coordinator=ClassicCoordinator,
    beats=frozenset({HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset(INVARIANTS),
)
