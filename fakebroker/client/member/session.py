"""What a group member knows, and the requests it makes of that.

Decides nothing: when to send what, and what an answer leads to, stands in `member.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from fakebroker.client.member import requests
from fakebroker.client.member.agenda import Agenda, Timer
from fakebroker.client.member.assignors import Subscription, TopicPartition
from fakebroker.client.member.effects import Discover, Effect, Fatal, GroupRequest, OffsetUnknown, Revoked, Send
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.requests import Identity
from fakebroker.client.member.states import TRANSITIONS, MemberState
from fakebroker.client.member.subscription import encode_subscription
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


class Session:
    """The half of a member that keeps and sends; see `Member`.

    Attributes:
        state: Where the member stands; see `MemberState`.
        effects: What it wants done since the driver last took them.
        identity: Its member id and generation.
        coordinator: The broker its requests are for; `None` while it is looked for.
        assigned: The partitions it owns.
        giving_up: Those of them that are about to go, while the application is asked or the last commit is out.
        positions: The next offset of each owned partition, as far as known: set from the committed offset when it is
            assigned (see `MemberSettings.starts_at_zero`), then advanced by the application. A commit sends them.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.DOWN
        self.effects: list[Effect] = []
        self.positions: dict[TopicPartition, int] = {}
        self._reset()

    def _reset(self) -> None:
        self.identity = Identity(self.settings.group_id, self.settings.instance_id)
        self.coordinator: Coordinator | None = None
        self.assigned: tuple[TopicPartition, ...] = ()
        self.giving_up: tuple[TopicPartition, ...] = ()
        self.positions.clear()
        self._agenda = Agenda(self.settings.retry_backoff_ms)
        self._last_held: tuple[tuple[TopicPartition, ...], int] | None = None

    def awaits(self, request: object) -> bool:
        """Whether the answer to this request still matters."""
        return self._agenda.awaits(request)

    @property
    def member_id(self) -> str:
        return self.identity.member_id

    @property
    def generation_id(self) -> int:
        return self.identity.generation_id

    def _enter(self, state: MemberState) -> None:
        """The one place where `state` changes; timers go with the state they were set in, but for the session's own."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"member {self.member_id!r}: no way from {self.state} to {state}")
        self.state = state
        in_session = state in (MemberState.PART_OF_GROUP, MemberState.STOPPED)
        self._agenda.keep(*(Timer.HEARTBEAT, Timer.SESSION) if in_session else ())

    def _stop(self) -> None:
        if self.state is not MemberState.DOWN:
            self._enter(MemberState.DOWN)
            self._reset()

    def _fail(self, error: ErrorCode, sentence: str, now_ms: float) -> None:
        self._revoke(self.assigned, now_ms, lost=True)
        self.effects.append(Fatal(error, sentence, now_ms, self.identity))
        self._stop()

    def _send(self, request: GroupRequest, scheduled_ms: float) -> None:
        self._agenda.expect(request, self.identity)
        self.effects.append(Send(request, scheduled_ms))

    def _back_off(self, now_ms: float) -> None:
        self._agenda.set(Timer.RETRY, now_ms + self._agenda.backoff_ms())

    def _discover(self, scheduled_ms: float) -> None:
        self.effects.append(Discover(scheduled_ms))

    def _heartbeat(self, due_ms: float, now_ms: float) -> None:
        self._agenda.repeat(Timer.HEARTBEAT, due_ms, self.settings.heartbeat_interval_ms, now_ms)
        self._send(requests.heartbeat(self.identity), due_ms)

    def beat(self, now_ms: float) -> None:
        """Send a heartbeat now, before it is due; nothing outside of a session."""
        if Timer.HEARTBEAT in self._agenda:
            self._heartbeat(now_ms, now_ms)

    @property
    def next_heartbeat_ms(self) -> float:
        """When the next heartbeat is due; infinite outside of a session."""
        return self._agenda.due_ms(Timer.HEARTBEAT)

    @property
    def session_ends_ms(self) -> float:
        """When the coordinator is given up unless it is heard of before; infinite outside of a session."""
        return self._agenda.due_ms(Timer.SESSION)

    def rests_until(self) -> float:
        """When something else than a heartbeat is due, if all heartbeats are answered; at once with answers to come."""
        return -inf if self._agenda.expects_any else self._agenda.next_deadline_without(Timer.HEARTBEAT, Timer.SESSION)

    def commit_at_rest(self, due_ms: float, until_ms: float) -> OffsetCommitRequest | None:
        """The commit that is due, if nothing else but heartbeats is due until then; else nothing has happened.

        Whoever asks sends it and lets `committed` know that it was answered without an error.
        """
        agenda = self._agenda
        others_ms = agenda.next_deadline_without(Timer.HEARTBEAT, Timer.SESSION, Timer.COMMIT)
        if agenda.due_ms(Timer.COMMIT) != due_ms or others_ms <= until_ms:
            return None
        known = {partition: self.positions[partition] for partition in self.assigned if partition in self.positions}
        return requests.offset_commit(self.identity, known) if known else None

    def committed(self, due_ms: float) -> None:
        """The commit that was due then was sent and answered without an error."""
        self._agenda.set_last(Timer.COMMIT, due_ms + self.settings.commit_interval_ms)
        self._agenda.succeeded()

    def beaten(self, next_due_ms: float, answered_ms: float) -> None:
        """Heartbeats have been sent in the member's place, and all were answered without an error.

        Args:
            next_due_ms: When the next one is due.
            answered_ms: When the last answer came.
        """
        self._agenda.set_last(Timer.HEARTBEAT, next_due_ms)
        self._agenda.succeeded()
        self._alive(answered_ms)

    def _alive(self, now_ms: float) -> None:
        """The coordinator has been heard of."""
        self._agenda.set(Timer.SESSION, now_ms + self.settings.session_timeout_ms)

    def _commit_due(self, due_ms: float, now_ms: float) -> None:
        if self.settings.commit_interval_ms:
            self._agenda.repeat(Timer.COMMIT, due_ms, self.settings.commit_interval_ms, now_ms)
        self._commit(due_ms)

    def _commit(self, scheduled_ms: float) -> None:
        known = {partition: self.positions[partition] for partition in self.assigned if partition in self.positions}
        if known:
            self._send(requests.offset_commit(self.identity, known), scheduled_ms)

    def _fetch_offsets(self, scheduled_ms: float) -> None:
        unknown = [partition for partition in self.assigned if partition not in self.positions]
        if unknown:
            self._send(requests.offset_fetch(self.identity, unknown), scheduled_ms)

    def _start_from(self, offsets: Iterable[tuple[TopicPartition, int]], now_ms: float) -> None:
        """Take committed offsets for positions, unless the application has set one already."""
        owned, unknown = frozenset(self.assigned), []
        for partition, offset in offsets:
            if partition not in owned or partition in self.positions:
                continue
            if offset >= 0 or self.settings.starts_at_zero:
                self.positions[partition] = max(offset, 0)
            else:
                unknown.append(partition)
        if unknown:
            self.effects.append(OffsetUnknown(tuple(unknown), now_ms))

    def _send_join(self, scheduled_ms: float) -> None:
        settings = self.settings
        subscription = Subscription(
            member_id=self.member_id,
            topics=settings.topics,
            owned_partitions=self.assigned,
            generation_id=self.generation_id,
        )
        metadata = encode_subscription(
            subscription, previous=self._last_held if settings.protocol == "sticky" else None
        )
        request = requests.join_group(
            self.identity, settings.session_timeout_ms, settings.rebalance_timeout_ms, settings.protocol, metadata
        )
        self._send(request, scheduled_ms)

    def _revoke(self, revoked: tuple[TopicPartition, ...], now_ms: float, *, lost: bool) -> None:
        gone = frozenset(revoked)
        self.assigned = tuple(partition for partition in self.assigned if partition not in gone)
        self.giving_up = ()
        for partition in revoked:
            self.positions.pop(partition, None)
        if revoked:
            self.effects.append(Revoked(revoked, lost, now_ms))
