"""The fast way with heartbeats and commits in virtual time: heartbeats that nothing comes of are counted, not played.

A member rests while its group is stable, it awaits nothing, and has nothing due but heartbeats. Each of them is
answered without an error, and changes nothing but two numbers of that one member: when its session ends, at either end.
So they are made up for when somebody needs to know: when something may change the group, and before its sessions are
looked at. That leaves exactly what playing them one by one leaves. A commit with no heartbeat on its way beside it does
not wake its member either: it goes to the coordinator, and its answer is nothing but an event.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import floor, inf
from typing import TYPE_CHECKING

from fakebroker.client import requests
from fakebroker.coordinator.group import STABLE, Group
from fakebroker.coordinator.member import Member
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.exchange import Sent, commit_event, heartbeat_event, is_accepted, to_us
from fakebroker.replay.virtual_time import ARRIVAL, DEED, DELAY_MS, REACH, TIMER, Place

if TYPE_CHECKING:
    from fakebroker.replay.simulation import Line, Simulation

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
        self._looks: list[tuple[float, int, Group]] = []  # When the coordinator looks at sessions of groups at rest.
        self._noted_ms: dict[str, float] = {}
        self._numbers = count()
        house.network.before_timers = self._before_timers
        house.network.after_timers = self._after_timers
        self._due: list[Group] = []

    # Falling to rest

    def begin(self, line: "Line") -> bool:
        """Let a member rest, if it can."""
        actor = line.actor
        until_ms = actor.rests_until
        if until_ms == -inf or not line.is_open:
            return False
        member = actor.member
        beat_ms = member.next_heartbeat_ms
        if beat_ms == inf or beat_ms >= until_ms or member.session_ends_ms <= beat_ms + _ROUND_TRIP_MS:
            return False
        group = self._stable_group(line)
        if group is None or beat_ms + DELAY_MS + group.members[member.member_id].session_timeout_ms < group.wakeup_ms:
            return False
        if any(rule.fault.api in (None, "Heartbeat") for rule in self._cluster.faults.rules):
            return False
        line.rests, line.planned_ms = True, until_ms
        self._note_look(group)
        if until_ms < inf:
            self._house.agenda.note_alone(until_ms, line.number, self._stir, line, until_ms)
        return True

    def _stable_group(self, line: "Line") -> Group | None:
        """The member's group where it sends its heartbeats, if that answers them without an error."""
        identity = line.actor.member.identity
        if line.broker.node_id != line.actor.node_id:
            return None
        group = line.broker.coordinator.group(identity.group_id)
        if group is None or group.state is not STABLE or group.generation_id != identity.generation_id:
            return None
        known = group.members.get(identity.member_id)
        if known is None or identity.instance_id not in (None, known.instance_id):
            return None
        return group

    def _note_look(self, group: Group) -> None:
        if self._noted_ms.get(group.group_id) != group.wakeup_ms:
            self._noted_ms[group.group_id] = group.wakeup_ms
            heappush(self._looks, (group.wakeup_ms, next(self._numbers), group))

    # Sessions

    def _before_timers(self) -> None:
        """Bring the sessions up to date that are about to be looked at; wake the group if one of them is over."""
        now_ms = self._house.clock.moment_ms
        while self._looks and self._looks[0][0] <= now_ms:
            _, _, group = heappop(self._looks)
            self._noted_ms.pop(group.group_id, None)
            at_rest = [line for line in self._lines[group.group_id] if line.rests]
            for line in at_rest:
                self._extend_session(line, (now_ms, TIMER, -1))
            if group.earliest_deadline() <= now_ms:
                self.wake(group.group_id, (now_ms, TIMER, -1))
            elif at_rest:
                self._due.append(group)

    def _after_timers(self) -> None:
        for group in self._due:
            self._note_look(group)
        self._due.clear()

    def _extend_session(self, line: "Line", place: Place) -> None:
        """Let the coordinator have got all heartbeats that arrive before this."""
        arrived = self._beats_before(line, place, DELAY_MS, ARRIVAL)
        if arrived:
            script = line.actor.script
            last_ms = line.actor.member.next_heartbeat_ms + (arrived - 1) * script.heartbeat_interval_ms
            known = self._known(line)
            # A commit may have come later.
            known.deadline_ms = max(known.deadline_ms, last_ms + DELAY_MS + known.session_timeout_ms)

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
        if not house.is_alone_until(line, due_ms, answered_ms) or self._beats_beside(line, due_ms, answered_ms):
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
        actor.member.committed(due_ms)
        self._note_look(self._group(line))
        line.planned_ms = actor.rests_until
        house.agenda.note_alone(line.planned_ms, line.number, self._stir, line, line.planned_ms)
        return True

    def _beats_beside(self, line: "Line", due_ms: float, answered_ms: float) -> bool:
        """Whether a heartbeat is on its way then, or due together with the next commit, where their order counts."""
        first_ms, interval_ms = line.actor.member.next_heartbeat_ms, line.actor.script.heartbeat_interval_ms
        beats = self._beats_before(line, (due_ms, DEED, line.number), 0.0, DEED)
        if first_ms + beats * interval_ms <= answered_ms:
            return True
        if beats and first_ms + (beats - 1) * interval_ms + _ROUND_TRIP_MS > due_ms:
            return True
        next_ms = due_ms + line.actor.script.commit_interval_ms
        beats = self._beats_before(line, (next_ms, DEED, line.number), 0.0, DEED)
        return first_ms + beats * interval_ms == next_ms

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
        self._make_up_for_beats(line, place)
        due_ms = line.actor.member.next_heartbeat_ms
        if (due_ms, DEED, line.number) < place:
            self._begin_beat(line, due_ms, place)

    def _make_up_for_beats(self, line: "Line", place: Place) -> None:
        beats = self._beats_before(line, place, _ROUND_TRIP_MS, REACH)
        if not beats:
            return
        self._extend_session(line, place)
        actor = line.actor
        member, interval_ms = actor.member, actor.script.heartbeat_interval_ms
        due_ms = member.next_heartbeat_ms
        request = requests.heartbeat(member.identity)
        at_us = to_us(due_ms)
        sent = Sent(at_us, at_us, line.spoken.version_for(HeartbeatRequest), actor.node_id)
        event = heartbeat_event(sent, to_us(due_ms + _ROUND_TRIP_MS) - at_us, 0, request, actor.script)
        self._house.rows.add_heartbeats(event, beats, interval_ms, due_ms)
        member.beaten(due_ms + beats * interval_ms, due_ms + (beats - 1) * interval_ms + _ROUND_TRIP_MS)

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
            known = self._known(line)
            known.deadline_ms = due_ms + DELAY_MS + known.session_timeout_ms
            network.return_late(call, HeartbeatResponse(), due_ms + DELAY_MS)
        else:
            network.send(call, due_ms)
