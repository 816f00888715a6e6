"""The interface between group members of all protocols and their drivers, and the code that all members share.

A driver connects a member with sockets or a simulation: `ConsumerCore`, `ScriptedMember` of replays and
`EffectsMember` of the lab. It chooses the protocol when it creates the member, and uses only this interface then:

- `Member(MemberSettings(...))` for the classic protocol,
- `ConsumerMember(ConsumerMemberSettings(...), new_id)` for the consumer protocol of KIP-848; `new_id` returns an unused
  member id, such as a random UUID,
- `RewriteMember(RewriteSettings(...))` for the proposal `rewrite`.

After each call the driver takes `effects` and carries them out, and calls `tick` when `next_deadline` has passed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Protocol

from fakebroker.client.backoff import Backoff
from fakebroker.client.member import requests
from fakebroker.client.member.effects import Effect, GroupRequest, GroupResponse, OffsetUnknown, Revoked, Send
from fakebroker.client.member.pending import RequestsInFlight, Timer, Timers
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.topic_partition import TopicPartition

NO_TOPIC_IDS: Mapping[str, bytes] = MappingProxyType({})


class CommonSettings(Protocol):
    """The settings that members of all protocols have."""

    @property
    def group_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def topics(self) -> tuple[str, ...]: ...
    @property
    def commit_interval_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def starts_at_zero(self) -> bool: ...


class GroupMember(ABC):
    """A group member.

    `now_ms`, in most methods, is the current time in milliseconds since the Unix epoch.

    Attributes:
        settings: Its settings; `subscribe` changes the topics.
        state: Its state, of the states of its protocol.
        effects: Effects since the driver last took them.
        identity: Its member id and generation; with the consumer protocol, the member epoch is the generation.
        has_coordinator: Whether the coordinator is known; False while it is looked up.
        assigned: The partitions it owns.
        revoking: The owned partitions that will be revoked when the application has given them up and the last commit
            is done; empty unless the settings let the member wait for the application.
        positions: The next offset of each owned partition, where known: initially the committed offset (see
            `starts_at_zero` of the settings), then advanced by the application. Commits contain them.
    """

    settings: CommonSettings
    state: Enum
    _look_up_api = "FindCoordinator"

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.positions: dict[TopicPartition, int] = {}
        self._reset()

    def _reset(self) -> None:
        """Reset all attributes to their values in a member that is down. Subclasses also reset their own attributes."""
        self.identity = self._first_identity()
        self.has_coordinator = False
        self.assigned: tuple[TopicPartition, ...] = ()
        self.revoking: tuple[TopicPartition, ...] = ()
        self.positions.clear()
        self._timers = Timers()
        self._in_flight = RequestsInFlight()
        self._backoff = Backoff(self.settings.retry_backoff_ms)

    @abstractmethod
    def _first_identity(self) -> Identity:
        """Return the identity of a member that has not joined yet."""

    # What drivers ask

    @property
    def member_id(self) -> str:
        """The member id; "" without one."""
        return self.identity.member_id

    @property
    def generation_id(self) -> int:
        """The generation or member epoch; -1 outside of any."""
        return self.identity.generation_id

    @property
    @abstractmethod
    def is_down(self) -> bool:
        """Whether the member does nothing until `start`."""

    @property
    @abstractmethod
    def is_joined(self) -> bool:
        """Whether the member is part of its group, knows its partitions and its coordinator."""

    @property
    @abstractmethod
    def is_in_generation(self) -> bool:
        """Whether the member's partitions are known; they stay so while the coordinator is looked up again."""

    @property
    @abstractmethod
    def is_rediscovering(self) -> bool:
        """Whether the member has lost its coordinator, and looks it up again."""

    @property
    def is_discovering(self) -> bool:
        """Whether the member waits for `discovered`, for the first time or again."""
        return not self.has_coordinator and not self.is_down

    @property
    @abstractmethod
    def heartbeat_interval_ms(self) -> float:
        """The time between heartbeats; 0 while only the coordinator knows it."""

    def awaits(self, request: object) -> bool:
        """Return whether the request is in flight; responses to other requests are ignored."""
        return request in self._in_flight

    def heartbeat_request(self) -> GroupRequest:
        """Return a heartbeat that reports no changes."""
        return requests.heartbeat(self.identity)

    # Application calls

    @abstractmethod
    def start(self, now_ms: float) -> None:
        """Look up the coordinator, then join. Ignored unless the member is down."""

    @abstractmethod
    def leave(self, now_ms: float, *, remove_static: bool = False) -> None:
        """Commit, leave the group and stop, without waiting for responses.

        Args:
            now_ms: The current time.
            remove_static: Remove a static member from the group, too. By default it can return within its session
                timeout without a rebalance (KIP-345).
        """

    @abstractmethod
    def expire(self, now_ms: float) -> None:
        """Leave without a commit, because the application has not polled for too long. Partitions are lost (KIP-62)."""

    @abstractmethod
    def _stop(self) -> None:
        """Become down, and forget everything of this run."""

    def crash(self, now_ms: float) -> None:
        """Stop without sending or reporting anything. The next `start` acts as in a new process."""
        self.effects.clear()
        self._stop()

    @abstractmethod
    def commit(self, now_ms: float) -> None:
        """Commit the positions; emits `CommitRejected` outside of a generation, and without a coordinator."""

    def seek_to_committed(self, now_ms: float) -> None:
        """Look up the committed offsets again, and continue from there; ignored unless `is_joined`."""
        if self.is_joined:
            self.positions.clear()
            self._fetch_offsets(now_ms)

    @abstractmethod
    def subscribe(self, topics: Iterable[str], now_ms: float, *, pattern: str | None = None) -> None:
        """Replace the subscription.

        Args:
            topics: The topics.
            now_ms: The current time.
            pattern: A regular expression for further topics, in the syntax of RE2; only the consumer protocol has it.
        """

    def revoked(self, now_ms: float) -> None:  # noqa: B027  # most members do not wait for their application
        """The application is done with the partitions of `Revoking`."""

    # Look-ups, responses and time

    @abstractmethod
    def discovered(self, now_ms: float) -> None:
        """The coordinator was found. A member of a generation continues in it, with a heartbeat at once."""

    def _continue_generation(self, now_ms: float) -> None:
        """Ask for unknown offsets, and commit: the outcome of requests to the former coordinator is unknown."""
        self._fetch_offsets(now_ms)
        if self.settings.commit_interval_ms:
            self._commit_on_timer(now_ms, now_ms)

    def discovery_failed(self, error: ErrorCode, now_ms: float) -> None:
        """The coordinator was not found; without a response the error is NETWORK_EXCEPTION."""
        if not self.is_discovering:
            return
        if error.retriable:
            self._back_off(now_ms)
        else:
            self._fail_on_response(self._look_up_api, error, now_ms)

    @abstractmethod
    def _fail_on_response(self, api: str, error: ErrorCode, now_ms: float, text: str | None = None) -> None:
        """Lose all partitions, report an error and stop.

        Args:
            api: The API whose response has the error.
            error: The error.
            now_ms: The current time.
            text: The error message in the response.
        """

    def _lose_coordinator(self, now_ms: float) -> None:
        """Look the coordinator up again after a back-off; requests in flight fail."""
        self.has_coordinator = False
        self._in_flight.clear()
        self._coordinator_lost()
        self._back_off(now_ms)

    @abstractmethod
    def _coordinator_lost(self) -> None:
        """Change the state and the timers: there is no coordinator."""

    def connection_lost(self, now_ms: float) -> None:
        """The connection to the coordinator was lost or could not be established; requests in flight fail."""
        if self.has_coordinator:
            self._lose_coordinator(now_ms)

    @abstractmethod
    def metadata(
        self, partition_counts: Mapping[str, int], now_ms: float, *, topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS
    ) -> None:
        """Report the topics that `FetchMetadata` asks for, and their later changes.

        Args:
            partition_counts: Partition counts by topic.
            now_ms: The current time.
            topic_ids: Ids of 16 bytes by topic; only the consumer protocol needs them.
        """

    @abstractmethod
    def answered(self, request: GroupRequest, response: GroupResponse, now_ms: float) -> None:
        """A response arrived. Ignored if the coordinator was lost or the member stopped since the request."""

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, in milliseconds since the Unix epoch."""
        return self._timers.next_deadline()

    def tick(self, now_ms: float) -> None:
        """Handle expired timers, earliest first."""
        while (expired := self._timers.pop_expired(now_ms)) is not None:
            self._on_timer(*expired, now_ms)

    @abstractmethod
    def _on_timer(self, timer: Timer, due_ms: float, now_ms: float) -> None:
        """Handle one expired timer."""

    # Heartbeats and commits that a simulation handles outside of `tick`, because they change only deadlines

    @property
    def next_heartbeat_ms(self) -> float:
        """When the next heartbeat is due; infinite outside of a session."""
        return self._timers.deadline_ms(Timer.HEARTBEAT)

    @property
    def next_commit_ms(self) -> float:
        """When the next automatic commit is due; infinite if none is."""
        return self._timers.deadline_ms(Timer.COMMIT)

    @property
    def session_deadline_ms(self) -> float:
        """When the coordinator is considered lost unless a response arrives before; infinite if none is pending."""
        return self._timers.deadline_ms(Timer.SESSION)

    def idle_until(self) -> float:
        """Return when the member next has to do more than send heartbeats and automatic commits, if these succeed.

        The result is -inf if responses are pending.
        """
        if self._in_flight:
            return -inf
        return self._timers.next_deadline_except(Timer.HEARTBEAT, Timer.SESSION, Timer.COMMIT)

    def heartbeat_now(self, now_ms: float) -> None:
        """Send a heartbeat before it is due. Ignored outside of a session."""
        if Timer.HEARTBEAT in self._timers:
            self._heartbeat(now_ms, now_ms)

    def heartbeats_skipped(self, next_due_ms: float, answered_ms: float) -> None:
        """Heartbeats were sent on the member's behalf, and all succeeded.

        Args:
            next_due_ms: When the next heartbeat is due.
            answered_ms: When the last response arrived.
        """
        self._timers.set_last(Timer.HEARTBEAT, next_due_ms)
        self._backoff.reset()
        self._extend_session(answered_ms)

    def commits_skipped(self, next_due_ms: float) -> dict[TopicPartition, int]:
        """Automatic commits were sent on the member's behalf, and all succeeded.

        Args:
            next_due_ms: When the next one is due.

        Returns:
            The offsets in the last commit: the present positions.
        """
        self._timers.set_last(Timer.COMMIT, next_due_ms)
        known = self.known_positions()
        if known:
            self._backoff.reset()
        return known

    # For subclasses: timers, requests, offsets and partitions

    def _send(self, request: GroupRequest, scheduled_ms: float) -> None:
        self._in_flight.add(request, self.identity)
        self.effects.append(Send(request, scheduled_ms))

    def _retry_commit(self, now_ms: float, *, is_awaited: bool) -> None:
        """Commit again after a back-off.

        Args:
            now_ms: The current time.
            is_awaited: Whether a rebalance waits for the commit. If not, the timer of automatic commits is set.
        """
        if is_awaited:
            self._back_off(now_ms)
        else:
            self._timers.set(Timer.COMMIT, now_ms + self._backoff.next_delay_ms())

    def _back_off(self, now_ms: float) -> None:
        self._timers.set(Timer.RETRY, now_ms + self._backoff.next_delay_ms())

    def _heartbeat(self, due_ms: float, now_ms: float) -> None:
        self._timers.repeat(Timer.HEARTBEAT, due_ms, self.heartbeat_interval_ms, now_ms)
        self._send(self.heartbeat_request(), due_ms)

    @abstractmethod
    def _extend_session(self, now_ms: float) -> None:
        """The coordinator has answered a heartbeat."""

    def _commit_on_timer(self, due_ms: float, now_ms: float) -> None:
        if self.settings.commit_interval_ms:
            self._timers.repeat(Timer.COMMIT, due_ms, self.settings.commit_interval_ms, now_ms)
        self._commit(due_ms)

    def _commit(self, scheduled_ms: float) -> OffsetCommitRequest | None:
        """Send a commit of the known positions, and return it; None if there are none."""
        known = self.known_positions()
        if not known:
            return None
        request = requests.offset_commit(self.identity, known)
        self._send(request, scheduled_ms)
        return request

    def known_positions(self) -> dict[TopicPartition, int]:
        """Return what a commit contains: the positions of owned partitions."""
        return {partition: self.positions[partition] for partition in self.assigned if partition in self.positions}

    def _fetch_offsets(self, scheduled_ms: float) -> None:
        unknown = [partition for partition in self.assigned if partition not in self.positions]
        if unknown:
            self._send(self._offset_fetch(unknown), scheduled_ms)

    def _offset_fetch(self, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
        return requests.offset_fetch(self.identity, partitions)

    def _set_positions(self, offsets: Iterable[tuple[TopicPartition, int]], now_ms: float) -> None:
        """Start at committed offsets, unless the application has set a position already."""
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

    def _revoke(self, revoked: tuple[TopicPartition, ...], now_ms: float, *, lost: bool) -> None:
        gone = frozenset(revoked)
        self.assigned = tuple(partition for partition in self.assigned if partition not in gone)
        self.revoking = ()
        for partition in revoked:
            self.positions.pop(partition, None)
        if revoked:
            self.effects.append(Revoked(revoked, lost, now_ms))
