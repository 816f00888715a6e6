"""One member of a consumer group, without sockets and clocks: calls go in, effects come out (classic protocol).

Behaves as Kafka's Java consumer does (`AbstractCoordinator`, `ConsumerCoordinator`). Whoever drives it carries out
`effects` after each call and calls `tick` when `next_deadline` has come. It must not know what carries its requests,
nor which versions they travel in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fakebroker.client.member import requests
from fakebroker.client.member.agenda import Timer
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.effects import (
    Assigned,
    CommitFailed,
    Discover,
    Effect,
    Fatal,
    FetchMetadata,
    GroupRequest,
    GroupResponse,
    OffsetUnknown,
    Revoked,
    Revoking,
    Send,
)
from fakebroker.client.member.leading import Leader
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.reactions import Reaction, error_in, reaction_to
from fakebroker.client.member.requests import Identity
from fakebroker.client.member.session import Coordinator
from fakebroker.client.member.states import TRANSITIONS, MemberState
from fakebroker.client.member.subscription import decode_assignment
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = [
    "TRANSITIONS",
    "Assigned",
    "CommitFailed",
    "Discover",
    "Effect",
    "Fatal",
    "FetchMetadata",
    "Member",
    "MemberSettings",
    "MemberState",
    "OffsetUnknown",
    "Revoked",
    "Revoking",
    "Send",
]

_COMMITTING = (MemberState.PART_OF_GROUP, MemberState.STOPPED)

# What a round may take over the rebalance timeout before its coordinator counts as lost (JOIN_GROUP_TIMEOUT_LAPSE).
_ROUND_GRACE_MS = 5_000


class Member(Leader):
    """One group member; what can be read off it stands at `Session`."""

    def _reset(self) -> None:
        super()._reset()
        self._stable = False  # the generation is complete: it outlives a change of coordinator
        self._rejoin_wanted = False  # another round is called for, once this one is over or the coordinator is found
        self._is_held = False  # the application has been asked to give partitions up, and has not answered yet

    @property
    def is_in_generation(self) -> bool:
        """Whether what it commits is accepted: its generation is complete, the coordinator may be looked for though."""
        return self._stable

    def start(self, now_ms: float) -> None:
        """Look for the coordinator, then join. A member that is not down is started already."""
        if self.state is MemberState.DOWN:
            self._enter(MemberState.DISCOVERING)
            self._discover(now_ms)

    def leave(self, now_ms: float, *, remove_static: bool = False) -> None:
        """Commit, tell the coordinator and stop; answers are not waited for.

        Args:
            now_ms: The time.
            remove_static: A static member too tells the coordinator. As a rule it does not, so that it may come back
                within its session timeout without a rebalance (KIP-345).
        """
        if self.state in _COMMITTING and self.settings.commit_interval_ms:
            self._commit(now_ms)
        self._revoke(self.assigned, now_ms, lost=not self._stable)
        self._part("the consumer is being closed", now_ms, remove_static=remove_static)

    def expire(self, now_ms: float) -> None:
        """The application has not polled for too long: leave without a commit; the partitions are lost (KIP-62)."""
        self._revoke(self.assigned, now_ms, lost=True)
        self._part("the application has not polled for the rebalance timeout", now_ms)

    def _part(self, reason: str, now_ms: float, *, remove_static: bool = False) -> None:
        if self.coordinator and self.member_id and (self.settings.instance_id is None or remove_static):
            self._send(requests.leave_group(self.identity, reason), now_ms)
        self._stop()

    def crash(self, now_ms: float) -> None:
        """Stop without a word to anybody."""
        self.effects.clear()
        self._stop()

    def commit(self, now_ms: float) -> None:
        """Commit the positions now; fails with `CommitFailed` outside a complete generation."""
        if self.state in _COMMITTING:
            self._commit(now_ms)
        elif self.state is MemberState.REDISCOVERING:
            self.effects.append(CommitFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms))
        else:
            self.effects.append(CommitFailed(ErrorCode.REBALANCE_IN_PROGRESS, now_ms))

    def subscribe(self, topics: Iterable[str], now_ms: float) -> None:
        """Subscribe to these topics in place of the former ones; a member of a group rejoins with them."""
        self.settings = replace(self.settings, topics=tuple(topics))
        if self.state is MemberState.PART_OF_GROUP:
            self._rejoin(now_ms)
        elif self.state in (MemberState.JOINING, MemberState.SYNCING, MemberState.REDISCOVERING):
            self._rejoin_wanted = True

    def revoked(self, now_ms: float) -> None:
        """The application has had its say about the partitions of `Revoking`; they may go."""
        if self._is_held:
            self._is_held = False
            if self.state is MemberState.STOPPED:
                self._commit_and_join(now_ms)

    def discovered(self, node_id: int, host: str, port: int, now_ms: float) -> None:
        """The coordinator is this broker. A member that was in a generation goes on in it, with a heartbeat at once."""
        if self.state not in (MemberState.DISCOVERING, MemberState.REDISCOVERING):
            return
        self.coordinator = Coordinator(node_id, host, port)
        if not self._stable:
            self._join(now_ms, now_ms)
            return
        self._enter(MemberState.PART_OF_GROUP)
        self._alive(now_ms)
        self._heartbeat(now_ms, now_ms)
        if self._rejoin_wanted:
            self._rejoin(now_ms)
            return
        self._fetch_offsets(now_ms)
        if self.settings.commit_interval_ms:  # what became of the last commit is not known
            self._commit_due(now_ms, now_ms)

    def discovery_failed(self, error: ErrorCode, now_ms: float) -> None:
        """Nobody could say who the coordinator is; without an answer at all the error is NETWORK_EXCEPTION."""
        if self.state not in (MemberState.DISCOVERING, MemberState.REDISCOVERING):
            return
        if error.retriable:
            self._back_off(now_ms)
        else:
            self._refuse("FindCoordinator", error, now_ms)

    def connection_lost(self, now_ms: float) -> None:
        """The connection to the coordinator is gone, or could not be made. Nothing in flight will be answered."""
        if self.coordinator is not None:
            self._lose_coordinator(now_ms)

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        """The topics have so many partitions.

        A leader that waits for it assigns; topics that are missing have no partitions. One that has assigned by other
        counts starts a rebalance; topics that are missing are as they were.
        """
        if self._group:
            self._assign(partition_counts, now_ms)
        elif self._counts_differ(partition_counts):
            self._rejoin_wanted = True
            if self.state is MemberState.PART_OF_GROUP:
                self._rejoin(now_ms)

    def answered(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        """A request was answered. Answers from before a loss of the coordinator or a stop are ignored."""
        sent_as = self._agenda.take(request)
        if sent_as is None:
            return
        error = error_in(response)
        if error is ErrorCode.NONE:
            self._succeeded(response, sent_as, now_ms)
        else:
            self._failed(response, error, sent_as, now_ms)
        if self.state is MemberState.STOPPED and isinstance(response, OffsetCommitResponse):
            self._join_when_committed(now_ms)

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, in milliseconds since the Unix epoch."""
        return self._agenda.next_deadline()

    def tick(self, now_ms: float) -> None:
        """Do what is due, earliest first."""
        while (due := self._agenda.take_due(now_ms)) is not None:
            self._expired(*due, now_ms)

    def _expired(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        match timer:
            case Timer.HEARTBEAT:
                self._heartbeat(due_ms, now_ms)
            case Timer.COMMIT:
                self._commit_due(due_ms, now_ms)
            case Timer.RETRY:
                self._retry(due_ms, now_ms)
            case Timer.ROUND if self.state is MemberState.STOPPED:
                self._join(due_ms, now_ms)
            case Timer.SESSION | Timer.ROUND:
                self._lose_coordinator(now_ms)

    def _retry(self, due_ms: float, now_ms: float) -> None:
        match self.state:
            case MemberState.JOINING:
                self._join(due_ms, now_ms)
            case MemberState.STOPPED:
                self._commit(due_ms)
                self._join_when_committed(now_ms)
            case MemberState.PART_OF_GROUP:
                self._fetch_offsets(due_ms)
            case _:
                self._discover(due_ms)

    def _lose_coordinator(self, now_ms: float) -> None:
        self.coordinator = None
        self._agenda.expect_nothing()
        self._group = []
        self._enter(MemberState.REDISCOVERING)
        self._back_off(now_ms)

    def _rejoin(self, now_ms: float) -> None:
        """Into the next round; what was consumed is committed first (`onJoinPrepare`)."""
        self._rejoin_wanted = True
        self._enter(MemberState.STOPPED)
        self._agenda.set(Timer.ROUND, now_ms + self.settings.rebalance_timeout_ms)
        if self.settings.awaits_revocation and not self.giving_up:
            self._ask_to_give_up(self._unwanted(), now_ms)
        if not self._is_held:
            self._commit_and_join(now_ms)

    def _unwanted(self) -> tuple[TopicPartition, ...]:
        """What goes before the round: all that an eager member has; a cooperative one's of topics that it has left."""
        if not self.settings.is_cooperative:
            return self.assigned
        return tuple(partition for partition in self.assigned if partition[0] not in self.settings.topics)

    def _ask_to_give_up(self, partitions: tuple[TopicPartition, ...], now_ms: float) -> None:
        self.giving_up, self._is_held = partitions, bool(partitions)
        if partitions:
            self.effects.append(Revoking(partitions, now_ms))

    def _commit_and_join(self, now_ms: float) -> None:
        if self.settings.commit_interval_ms:
            self._commit(now_ms)
        self._join_when_committed(now_ms)

    def _join_when_committed(self, now_ms: float) -> None:
        awaited = self._agenda.expects(OffsetCommitRequest) or Timer.RETRY in self._agenda
        if not awaited and not self._is_held:
            self._join(now_ms, now_ms)

    def _join(self, scheduled_ms: float, now_ms: float) -> None:
        lost = self.generation_id < 0
        going = self.assigned if lost or not self.settings.is_cooperative else self.giving_up
        self._revoke(going, now_ms, lost=lost)
        self._stable = self._rejoin_wanted = self._is_held = False
        self._lead_no_more()
        self._enter(MemberState.JOINING)
        self._agenda.set(Timer.ROUND, now_ms + self.settings.rebalance_timeout_ms + _ROUND_GRACE_MS)
        self._send_join(scheduled_ms)

    def _succeeded(self, response: GroupResponse, sent_as: Identity, now_ms: float) -> None:
        self._agenda.succeeded()
        match response:
            case HeartbeatResponse():
                self._agenda.set_anew(Timer.SESSION, now_ms + self.settings.session_timeout_ms)
            case JoinGroupResponse():
                self._joined(response, now_ms)
            case SyncGroupResponse():
                self._synced(response, sent_as, now_ms)
            case OffsetFetchResponse() if sent_as == self.identity:
                self._start_from(requests.fetched_offsets(response), now_ms)

    def _joined(self, response: JoinGroupResponse, now_ms: float) -> None:
        self.identity = replace(self.identity, member_id=response.member_id, generation_id=response.generation_id)
        self._enter(MemberState.SYNCING)
        self._alive(now_ms)
        self._agenda.set(Timer.ROUND, now_ms + self.settings.rebalance_timeout_ms + _ROUND_GRACE_MS)
        self._agenda.set(Timer.HEARTBEAT, now_ms + self.settings.heartbeat_interval_ms)
        if response.protocol_type not in (None, requests.PROTOCOL_TYPE):
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's type is {response.protocol_type!r}", now_ms)
        elif response.leader == response.member_id:
            self._lead(response, now_ms)
        else:
            self._send(requests.sync_group(self.identity, self.settings.protocol, {}), now_ms)

    def _synced(self, response: SyncGroupResponse, sent_as: Identity, now_ms: float) -> None:
        if sent_as != self.identity:  # the generation was lost meanwhile, by the answer to a heartbeat
            self._join(now_ms, now_ms)
            return
        try:
            assigned = decode_assignment(response.assignment)
        except ProtocolError as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error), now_ms)
            return
        self._enter(MemberState.PART_OF_GROUP)
        self._stable = True
        self._last_held = assigned, self.generation_id
        if self.settings.commit_interval_ms:
            self._agenda.set(Timer.COMMIT, now_ms + self.settings.commit_interval_ms)
        self._take_over(assigned, now_ms)

    def _take_over(self, assigned: tuple[TopicPartition, ...], now_ms: float) -> None:
        before, after = frozenset(self.assigned), frozenset(assigned)
        revoked = tuple(partition for partition in self.assigned if partition not in after)
        added = tuple(partition for partition in assigned if partition not in before)
        if self.settings.awaits_revocation:
            self.assigned = assigned + revoked
            self._ask_to_give_up(revoked, now_ms)
        else:
            self._revoke(revoked, now_ms, lost=False)
            self.assigned = assigned
        self.effects.append(Assigned(added, self.generation_id, now_ms))
        self._fetch_offsets(now_ms)
        if revoked or self._rejoin_wanted:  # what was revoked the next round gives to others (KIP-429)
            self._rejoin(now_ms)

    def _failed(self, response: GroupResponse, error: ErrorCode, sent_as: Identity, now_ms: float) -> None:
        reaction = reaction_to(error, response)
        outside_round = isinstance(response, HeartbeatResponse | OffsetCommitResponse)
        if reaction is Reaction.REDISCOVER:
            self._lose_coordinator(now_ms)
        elif reaction is Reaction.RETRY:
            self._try_later(response, now_ms)
        elif reaction is Reaction.FATAL and (sent_as == self.identity or not outside_round):
            self._refuse(type(response).__name__.removesuffix("Response"), error, now_ms)
        elif outside_round:
            self._unwelcome(response, reaction, error, sent_as, now_ms)
        else:
            if isinstance(response, JoinGroupResponse) and reaction is Reaction.TAKE_MEMBER_ID:
                self.identity = replace(self.identity, member_id=response.member_id, generation_id=-1)
            self._forget(reaction)
            self._join(now_ms, now_ms)

    def _refuse(self, api: str, error: ErrorCode, now_ms: float) -> None:
        self._fail(error, f"{api} for group {self.settings.group_id!r} was answered {error.name}", now_ms)

    def _try_later(self, response: GroupResponse, now_ms: float) -> None:
        match response:
            case HeartbeatResponse() if Timer.HEARTBEAT in self._agenda:
                self._agenda.set(Timer.HEARTBEAT, now_ms + self._agenda.backoff_ms())
            case OffsetCommitResponse() if self.state is MemberState.PART_OF_GROUP:
                self._agenda.set(Timer.COMMIT, now_ms + self._agenda.backoff_ms())
            case OffsetCommitResponse() if self.state is MemberState.STOPPED:
                self._back_off(now_ms)
            case OffsetFetchResponse() if self.state is MemberState.PART_OF_GROUP:
                self._back_off(now_ms)
            case JoinGroupResponse():
                self._back_off(now_ms)

    def _unwelcome(
        self, response: GroupResponse, reaction: Reaction, error: ErrorCode, sent_as: Identity, now_ms: float
    ) -> None:
        """A heartbeat or commit was refused; what an earlier generation sent has no consequences."""
        if isinstance(response, OffsetCommitResponse):
            self.effects.append(CommitFailed(error, now_ms))
        if sent_as != self.identity or self.state is MemberState.JOINING:  # there the answer to the join decides
            return
        if reaction is Reaction.REJOIN:
            if isinstance(response, HeartbeatResponse):
                self._alive(now_ms)
            if self.state is MemberState.PART_OF_GROUP:
                self._rejoin(now_ms)
        elif reaction is not Reaction.REPORT:
            self._forget(reaction)
            if self._agenda.expects(SyncGroupRequest):
                self._agenda.keep(Timer.ROUND)  # one request of a round at a time: its answer comes first
            else:
                self._join(now_ms, now_ms)

    def _forget(self, reaction: Reaction) -> None:
        if reaction is Reaction.FORGET_GENERATION:
            self.identity = replace(self.identity, generation_id=-1)
        elif reaction is Reaction.FORGET_MEMBER_ID:
            self.identity = replace(self.identity, generation_id=-1, member_id="")
