"""The fast way with heartbeats and commits in virtual time: heartbeats that nothing comes of are counted, not played.

A member rests while its group is stable, it awaits nothing, and has nothing due but heartbeats. Each of them is
answered without an error, and changes nothing but two numbers of that one member: when its session ends, at either end.
So its coordinator is told that the session is kept, and they are made up for when something may change the group. That
leaves exactly what playing them one by one leaves. A commit with no heartbeat on its way beside it does not wake its
member either: it goes to the coordinator, and its answer is nothing but an event.
"""

from collections.abc import Iterable
from math import floor, inf
from typing import TYPE_CHECKING

from fakebroker.client.member import requests
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.states import STABLE
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.members.exchange import Sent, commit_event, heartbeat_event, is_accepted, to_us
from fakebroker.replay.simulation.virtual_time import ARRIVAL, DEED, DELAY_MS, REACH, TIMER, Place

if TYPE_CHECKING:
    from fakebroker.replay.simulation.simulation import Line, Simulation

_ROUND_TRIP_MS = 2 * DELAY_MS


class Resting:
    """Who of a simulation rests.

    Args:
        house: The simulation.
    """

    def __init__(self, house: "Simulation") -> None:
        self._house = house
        self._cluster = house.fake.cluster
        self._lines: dict[str, list[Line]] = {}
        for line in house.lines:
            self._lines.setdefault(line.actor.script.group, []).append(line)

    # Falling to rest

    def begin(self, line: "Line") -> bool:
        """Let a member rest, if it can."""
        actor = line.actor
        until_ms = actor.rests_until
        if until_ms == -inf or not line.is_open:
            return False
        member = actor.member
        beat_ms = member.next_heartbeat_ms
        if beat_ms == inf or beat_ms >= until_ms or member.session_deadline_ms <= beat_ms + _ROUND_TRIP_MS:
            return False
        known = self._welcome_member(line)
        if known is None or known.deadline_ms <= beat_ms + DELAY_MS:
            return False
        if any(rule.fault.api in (None, "Heartbeat") for rule in self._cluster.faults.active):
            return False
        line.rests, line.planned_ms, known.keeper = True, until_ms, self._let_go
        if until_ms < inf:
            self._house.agenda.note_alone(until_ms, line.number, self._stir, line, until_ms)
        return True

    def _welcome_member(self, line: "Line") -> Member | None:
        """The member as the broker knows it that gets its heartbeats, if that answers them without an error."""
        identity = line.actor.member.identity
        if line.broker.node_id != line.actor.node_id:
            return None
        group = line.broker.coordinator.group(identity.group_id)
        if group is None or group.state is not STABLE or group.generation_id != identity.generation_id:
            return None
        known = group.members.get(identity.member_id)
        if known is None or identity.instance_id not in (None, known.instance_id):
            return None
        return known

    # Sessions

    def _let_go(self, group_id: str) -> None:
        """A timer of a group runs out."""
        self.wake(group_id, (self._house.clock.moment_ms, TIMER, -1))

    def _resume_session(self, line: "Line", place: Place) -> None:
        """Let the coordinator have got all heartbeats that arrive before this, and see to the session again."""
        coordinator, group, known = line.broker.coordinator, self._group(line), self._known(line)
        deadline_ms = known.deadline_ms
        arrived = self._beats_before(line, place, DELAY_MS, ARRIVAL)
        if arrived:
            last_ms = line.actor.member.next_heartbeat_ms + (arrived - 1) * line.actor.script.heartbeat_interval_ms
            # A commit may have come later.
            deadline_ms = max(deadline_ms, last_ms + DELAY_MS + known.session_timeout_ms)
        coordinator.resume_session(group, known, deadline_ms)
        self._house.network.note_timer(coordinator.next_deadline())

    def _group(self, line: "Line") -> Group:
        """The group as its coordinator knows it."""
        group = line.broker.coordinator.group(line.actor.script.group)
        assert group is not None
        return group

    def _known(self, line: "Line") -> Member:
        """The member as its coordinator knows it."""
        return self._group(line).members[line.actor.member.member_id]

    def _beats_before(self, line: "Line", place: Place, after_ms: float, kind: int) -> int:
        """How many heartbeats from the next one on have come so far, so long after they were due, before something."""
        first_ms = line.actor.member.next_heartbeat_ms + after_ms
        interval_ms = line.actor.script.heartbeat_interval_ms
        beats = max(0, floor((place[0] - first_ms) / interval_ms) - 1)
        while (first_ms + beats * interval_ms, kind, line.number) < place:
            beats += 1
        return beats

    # Commits

    def _commit(self, line: "Line", due_ms: float) -> bool:
        """Let a member commit at rest, if that is all it does now."""
        house, actor, network = self._house, line.actor, self._house.network
        answered_ms = due_ms + _ROUND_TRIP_MS
        if not house.is_alone_until(line, due_ms, answered_ms) or self._beats_beside(line, due_ms):
            return False
        request = actor.commit_at_rest(due_ms, answered_ms)
        if request is None:
            return False
        version = line.spoken.version_for(OffsetCommitRequest)
        call = network.call(line, request, version, actor.script.member)
        response = network.handle_alone(call, due_ms + DELAY_MS)
        if not is_accepted(response):
            line.answer = response
            return False
        at_us = to_us(due_ms)
        sent = Sent(at_us, at_us, version, actor.node_id)
        house.rows.add(commit_event(sent, to_us(answered_ms) - at_us, request, actor.script))
        actor.member.idle_commit_answered(due_ms)
        line.planned_ms = actor.rests_until
        house.agenda.note_alone(line.planned_ms, line.number, self._stir, line, line.planned_ms)
        return True

    def _beats_beside(self, line: "Line", due_ms: float) -> bool:
        """Whether a heartbeat is on its way then, or due together with the next commit, where their order counts."""
        script = line.actor.script
        since_ms = (due_ms - line.actor.member.next_heartbeat_ms) % script.heartbeat_interval_ms
        if since_ms < _ROUND_TRIP_MS or since_ms >= script.heartbeat_interval_ms - _ROUND_TRIP_MS:
            return True
        return (since_ms + script.commit_interval_ms) % script.heartbeat_interval_ms == 0

    # Waking up

    def _stir(self, line: "Line", due_ms: float) -> None:
        """A member does something else than send a heartbeat."""
        if line.rests and line.planned_ms == due_ms and not self._commit(line, due_ms):
            self._wake(line, (due_ms, DEED, line.number))
            line.planned_ms = due_ms
            line.ring(due_ms)

    def wake(self, group_id: str, place: Place) -> None:
        """Let all members of a group be where playing heartbeats one by one would have them before something."""
        self._wake_lines(self._lines.get(group_id, ()), place)

    def wake_all(self, place: Place) -> None:
        """The same for all groups."""
        self._wake_lines(self._house.lines, place)

    def _wake_lines(self, lines: Iterable["Line"], place: Place) -> None:
        for line in lines:
            if line.rests:
                self._wake(line, place)
                line.plan()

    def _wake(self, line: "Line", place: Place) -> None:
        line.rests, line.planned_ms = False, inf
        self._resume_session(line, place)
        self._make_up_for_beats(line, place)
        due_ms = line.actor.member.next_heartbeat_ms
        if (due_ms, DEED, line.number) < place:
            self._begin_beat(line, due_ms, place)

    def _make_up_for_beats(self, line: "Line", place: Place) -> None:
        beats = self._beats_before(line, place, _ROUND_TRIP_MS, REACH)
        if not beats:
            return
        actor = line.actor
        member, interval_ms = actor.member, actor.script.heartbeat_interval_ms
        due_ms = member.next_heartbeat_ms
        request = requests.heartbeat(member.identity)
        at_us = to_us(due_ms)
        sent = Sent(at_us, at_us, line.spoken.version_for(HeartbeatRequest), actor.node_id)
        event = heartbeat_event(sent, to_us(due_ms + _ROUND_TRIP_MS) - at_us, 0, request, actor.script)
        self._house.rows.add_heartbeats(event, beats, interval_ms, due_ms)
        member.heartbeats_skipped(due_ms + beats * interval_ms, due_ms + (beats - 1) * interval_ms + _ROUND_TRIP_MS)

    def _begin_beat(self, line: "Line", due_ms: float, place: Place) -> None:
        """A heartbeat is on its way, or the answer to it."""
        network = self._house.network
        line.actor.tick(due_ms)
        request = line.actor.take_request()
        assert isinstance(request, HeartbeatRequest)
        version = line.spoken.version_for(HeartbeatRequest)
        line.actor.sent(version, due_ms)
        call = network.call(line, request, version, line.actor.script.member)
        if (due_ms + DELAY_MS, ARRIVAL, line.number) < place:
            network.return_late(call, HeartbeatResponse(), due_ms + DELAY_MS)
        else:
            network.send(call, due_ms)
