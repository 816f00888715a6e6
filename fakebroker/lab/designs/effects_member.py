"""The member of a design whose pure member is in `client.member`: its effects become calls of the port."""

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf

from fakebroker.client.member import requests
from fakebroker.client.member.effects import Discover, Fatal, FetchMetadata, GroupRequest, Send
from fakebroker.client.member.group_member import NO_TOPIC_IDS, GroupMember
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Beat, Idle, Link, MemberPort
from fakebroker.lab.designs.offset_responses import commit_response
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition

ALIVE = HeartbeatResponse()
"""The response to a heartbeat without an error."""


class EffectsMember:
    """A member that a `client.member` decides for; a `lab.design.Member`.

    Args:
        member: The member.
        port: Carries out its actions.
        heartbeat_interval_ms, commit_interval_ms: The intervals of its beats; 0 for no commits.
    """

    def __init__(
        self, member: GroupMember, port: MemberPort, heartbeat_interval_ms: float, commit_interval_ms: float
    ) -> None:
        self._member = member
        self._port = port
        self._heartbeat_interval_ms, self._commit_interval_ms = heartbeat_interval_ms, commit_interval_ms
        self._node_id: int | None = None
        self._link: Link | None = None
        self._is_connected = False
        self._held: list[GroupRequest] = []
        self._in_flight: deque[GroupRequest] = deque()
        self._metadata_due_ms = inf
        self._is_fetching_metadata = False
        self._member_id = ""
        # Whether the generation is complete, the owned partitions, and those of them whose offset is known.
        self._reported: tuple[bool, tuple[TopicPartition, ...], frozenset[TopicPartition]] = False, (), frozenset()

    # What the members of different designs answer differently

    @property
    def _consumes(self) -> bool:
        """Whether the member belongs to a complete generation."""
        raise NotImplementedError

    @property
    def _refreshes_metadata(self) -> bool:
        """Whether the member has to look for changes of partition counts."""
        return False

    def _changes_nothing(self, message: Message) -> bool:
        """Whether a response only says that the member is alive."""
        return type(message) is HeartbeatResponse and not message.error_code

    def _alive(self) -> Message:
        """Return the response to a heartbeat without an error."""
        return ALIVE

    def _topic_ids(self, topics: Iterable[str]) -> Mapping[str, bytes]:
        """Return the ids of topics, for members that need them."""
        return NO_TOPIC_IDS

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
        self._is_fetching_metadata = False
        self._metadata_due_ms = now_ms + self._port.metadata_max_age_ms
        self._member.metadata(partition_counts, now_ms, topic_ids=self._topic_ids(partition_counts))
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
        if not self._changes_nothing(message):
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
            if self._refreshes_metadata:
                self._fetch_metadata()
        self._act(now_ms)

    def idle(self) -> Idle | None:
        member = self._member
        until_ms = member.idle_until()
        if until_ms == -inf or member.next_heartbeat_ms == inf or not self._consumes or not self._is_connected:
            return None
        if self._is_fetching_metadata:
            return None
        beats = [Beat(member.next_heartbeat_ms, self._heartbeat_interval_ms, member.heartbeat_request(), self._alive())]
        if member.next_commit_ms < inf and member.assigned:
            commit = requests.offset_commit(member.identity, dict.fromkeys(member.assigned, 0))
            interval_ms = self._commit_interval_ms
            beats.append(Beat(member.next_commit_ms, interval_ms, commit, commit_response(commit, 0), is_commit=True))
        return Idle(tuple(beats), min(until_ms, self._metadata_due_ms))

    def beats_skipped(self, beat: Beat, next_due_ms: float, last_ms: float) -> None:
        if beat.is_commit:
            self._member.commits_skipped(next_due_ms)
        else:
            self._member.heartbeats_skipped(next_due_ms, last_ms)

    # Effects

    def _fetch_metadata(self) -> None:
        self._is_fetching_metadata = True
        self._port.fetch_metadata()

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
                        self._fetch_metadata()
                    case Fatal():
                        self._port.failed(effect.message)
        self._report()

    def _report(self) -> None:
        """Report changes of the owned partitions, and their first offsets."""
        member = self._member
        if member.member_id != self._member_id:
            self._member_id = member.member_id
            self._port.identified(self._member_id)
        positions = member.positions
        known = frozenset(partition for partition in member.assigned if partition in positions)
        report = self._consumes, member.assigned, known
        if report == self._reported:
            return
        before, self._reported = self._reported[2], report
        if self._consumes:
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
