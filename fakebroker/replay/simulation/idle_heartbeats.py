"""Fast-forwards the heartbeats and commits of idle members: they are counted instead of being simulated one by one.

A member is idle while its group is stable and it awaits nothing and does nothing but send heartbeats. Each of them is
answered without an error and changes only two numbers of that member: when its session ends, on either side. So its
coordinator is told that the session is kept up, and the heartbeats are made up for when something may change the
group. That leaves exactly the state and the events of simulating them one by one. A commit, with no heartbeat under
way at the same time, does not end idleness either: the coordinator handles it, and its response is only an event.
"""

from collections.abc import Iterable, Sequence
from math import floor, inf

from fakebroker.client.member import requests
from fakebroker.cluster.cluster import Cluster
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.states import STABLE
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.request_events import SentRequest, commit_event, heartbeat_event, is_accepted, to_us
from fakebroker.replay.simulation.network import Network
from fakebroker.replay.simulation.scheduler import ACTION, ARRIVAL, LATENCY_MS, RESPONSE, TIMER, Position, Scheduler
from fakebroker.replay.simulation.simulated_member import SimulatedMember

_ROUND_TRIP_MS = 2 * LATENCY_MS


class IdleHeartbeats:
    """The idle members of a simulation.

    Args:
        members: All members.
        cluster: The brokers.
        scheduler: The time.
        network: Handles commits.
        recorder: Records heartbeats and commits.
    """

    def __init__(
        self,
        members: Sequence[SimulatedMember],
        cluster: Cluster,
        scheduler: Scheduler,
        network: Network,
        recorder: EventRecorder,
    ) -> None:
        self._members, self._cluster, self._scheduler = members, cluster, scheduler
        self._network, self._recorder = network, recorder
        self._by_group: dict[str, list[SimulatedMember]] = {}
        for member in members:
            self._by_group.setdefault(member.scripted.script.group, []).append(member)

    # The begin of idleness

    def begin(self, member: SimulatedMember) -> bool:
        """Let a member be idle, if it can; return whether it is."""
        scripted = member.scripted
        until_ms = scripted.idle_until
        if until_ms == -inf or not member.is_open:
            return False
        client = scripted.member
        heartbeat_ms = client.next_heartbeat_ms
        if heartbeat_ms == inf or heartbeat_ms >= until_ms:
            return False
        if client.session_deadline_ms <= heartbeat_ms + _ROUND_TRIP_MS:
            return False
        known = self._valid_member(member)
        if known is None or known.deadline_ms <= heartbeat_ms + LATENCY_MS:
            return False
        if any(rule.fault.api in (None, "Heartbeat") for rule in self._cluster.faults.active):
            return False
        member.is_idle, member.planned_ms, known.keeper = True, until_ms, self._session_expires
        if until_ms < inf:
            self._scheduler.schedule_private(until_ms, member.number, self._act, member, until_ms)
        return True

    def _valid_member(self, member: SimulatedMember) -> Member | None:
        """Return the coordinator's member, if its broker receives the heartbeats and answers without an error."""
        identity = member.scripted.member.identity
        if member.broker.node_id != member.scripted.node_id:
            return None
        group = member.broker.coordinator.group(identity.group_id)
        if group is None or group.state is not STABLE or group.generation_id != identity.generation_id:
            return None
        known = group.members.get(identity.member_id)
        if known is None or identity.instance_id not in (None, known.instance_id):
            return None
        return known

    # Sessions

    def _session_expires(self, group_id: str) -> None:
        """A timer of a group expires."""
        self.wake(group_id, (self._scheduler.clock.moment_ms, TIMER, -1))

    def _resume_session(self, member: SimulatedMember, position: Position) -> None:
        """Let the coordinator have received all heartbeats up to a position, and time the session again."""
        coordinator, group, known = member.broker.coordinator, self._group(member), self._known(member)
        deadline_ms = known.deadline_ms
        arrived = self._heartbeats_before(member, position, LATENCY_MS, ARRIVAL)
        if arrived:
            interval_ms = member.scripted.script.heartbeat_interval_ms
            last_ms = member.scripted.member.next_heartbeat_ms + (arrived - 1) * interval_ms
            # A commit may have come later.
            deadline_ms = max(deadline_ms, last_ms + LATENCY_MS + known.session_timeout_ms)
        coordinator.resume_session(group, known, deadline_ms)
        self._network.schedule_timer(coordinator.next_deadline())

    def _group(self, member: SimulatedMember) -> Group:
        """Return the coordinator's group."""
        group = member.broker.coordinator.group(member.scripted.script.group)
        assert group is not None
        return group

    def _known(self, member: SimulatedMember) -> Member:
        """Return the coordinator's member."""
        return self._group(member).members[member.scripted.member.member_id]

    def _heartbeats_before(self, member: SimulatedMember, position: Position, after_ms: float, kind: int) -> int:
        """Return how many heartbeats, from the next one on, have reached a stage before a position.

        Args:
            member: The member.
            position: The position.
            after_ms: When a heartbeat reaches the stage, after it was due.
            kind: The kind of call of the stage.
        """
        first_ms = member.scripted.member.next_heartbeat_ms + after_ms
        interval_ms = member.scripted.script.heartbeat_interval_ms
        count = max(0, floor((position[0] - first_ms) / interval_ms) - 1)
        while (first_ms + count * interval_ms, kind, member.number) < position:
            count += 1
        return count

    # Commits

    def _commit(self, member: SimulatedMember, due_ms: float) -> bool:
        """Let an idle member commit, if that is all it does now; return whether it is idle still."""
        scripted, network = member.scripted, self._network
        answered_ms = due_ms + _ROUND_TRIP_MS
        if not network.is_alone_until(member, due_ms, answered_ms) or self._is_heartbeat_near(member, due_ms):
            return False
        request = scripted.commit_while_idle(due_ms, answered_ms)
        if request is None:
            return False
        version = member.versions.version_for(OffsetCommitRequest)
        call = network.call(member, request, version, scripted.script.member)
        response = network.handle_at_once(call, due_ms + LATENCY_MS)
        if not is_accepted(response):
            member.answer = response
            return False
        at_us = to_us(due_ms)
        sent = SentRequest(at_us, at_us, version, scripted.node_id)
        self._recorder.add(commit_event(sent, to_us(answered_ms) - at_us, request, scripted.script))
        scripted.member.idle_commit_answered(due_ms)
        member.planned_ms = scripted.idle_until
        self._scheduler.schedule_private(member.planned_ms, member.number, self._act, member, member.planned_ms)
        return True

    def _is_heartbeat_near(self, member: SimulatedMember, due_ms: float) -> bool:
        """Return whether a heartbeat is under way then, or due together with the next commit: their order counts."""
        script = member.scripted.script
        since_ms = (due_ms - member.scripted.member.next_heartbeat_ms) % script.heartbeat_interval_ms
        if since_ms < _ROUND_TRIP_MS or since_ms >= script.heartbeat_interval_ms - _ROUND_TRIP_MS:
            return True
        return (since_ms + script.commit_interval_ms) % script.heartbeat_interval_ms == 0

    # The end of idleness

    def _act(self, member: SimulatedMember, due_ms: float) -> None:
        """An idle member does something other than send a heartbeat."""
        if member.is_idle and member.planned_ms == due_ms and not self._commit(member, due_ms):
            self._wake(member, (due_ms, ACTION, member.number))
            member.planned_ms = due_ms
            member.tick(due_ms)

    def wake(self, group_id: str, position: Position) -> None:
        """Bring the idle members of a group to the state that simulating each heartbeat gives before a position."""
        self._wake_members(self._by_group.get(group_id, ()), position)

    def wake_all(self, position: Position) -> None:
        """Do so for all groups."""
        self._wake_members(self._members, position)

    def _wake_members(self, members: Iterable[SimulatedMember], position: Position) -> None:
        for member in members:
            if member.is_idle:
                self._wake(member, position)
                member.plan()

    def _wake(self, member: SimulatedMember, position: Position) -> None:
        member.is_idle, member.planned_ms = False, inf
        self._resume_session(member, position)
        self._record_heartbeats(member, position)
        due_ms = member.scripted.member.next_heartbeat_ms
        if (due_ms, ACTION, member.number) < position:
            self._begin_heartbeat(member, due_ms, position)

    def _record_heartbeats(self, member: SimulatedMember, position: Position) -> None:
        """Record the heartbeats that were answered before a position."""
        count = self._heartbeats_before(member, position, _ROUND_TRIP_MS, RESPONSE)
        if not count:
            return
        scripted = member.scripted
        client, interval_ms = scripted.member, scripted.script.heartbeat_interval_ms
        due_ms = client.next_heartbeat_ms
        at_us = to_us(due_ms)
        sent = SentRequest(at_us, at_us, member.versions.version_for(HeartbeatRequest), scripted.node_id)
        latency_us = to_us(due_ms + _ROUND_TRIP_MS) - at_us
        event = heartbeat_event(sent, latency_us, 0, requests.heartbeat(client.identity), scripted.script)
        self._recorder.add_heartbeats(event, count, interval_ms, due_ms)
        client.heartbeats_skipped(due_ms + count * interval_ms, due_ms + (count - 1) * interval_ms + _ROUND_TRIP_MS)

    def _begin_heartbeat(self, member: SimulatedMember, due_ms: float, position: Position) -> None:
        """Put a heartbeat under way that was sent before a position, or its response."""
        scripted, network = member.scripted, self._network
        scripted.tick(due_ms)
        request = scripted.take_request()
        assert isinstance(request, HeartbeatRequest)
        version = member.versions.version_for(HeartbeatRequest)
        scripted.sent(version, due_ms)
        call = network.call(member, request, version, scripted.script.member)
        if (due_ms + LATENCY_MS, ARRIVAL, member.number) < position:
            network.send_response(call, HeartbeatResponse(), due_ms + LATENCY_MS)
        else:
            network.send(call, due_ms)
