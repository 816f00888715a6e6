"""Skips the beats of groups in which nothing happens. Does not change the result of a run, except that requests by
second are averages over the time that is skipped.

A group rests while all its live members only repeat beats, its coordinator agrees, and no event is due. Events are
known in advance, so the end of the rest is, too: each member wakes before the next event, with no beat in flight, and
so early that the last commit that is answered before the event is sent.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, inf

from msgspec.structs import replace

from fakebroker.lab.design import Beat, Idle, Link
from fakebroker.lab.script import BrokerEvent, MemberEvent, Script, TopicEvent
from fakebroker.lab.world.brokers import BrokerProcess, OffsetsTopic
from fakebroker.lab.world.context import Run
from fakebroker.lab.world.links import MemberLink
from fakebroker.lab.world.members import MemberProcess
from fakebroker.lab.world.traffic import Traffic
from fakebroker.replay.simulation.scheduler import ACTION, EVENT

_MARGIN_MS = 1.0
"""Members wake at least this long before the next event."""

_LEAST_BEATS = 2
"""A group rests if each member can skip at least this number of beats."""

_MOST_SHIFTS = 20
"""How often the time of waking is moved to find one without a beat in flight."""


@dataclass(slots=True)
class _Skipped:
    """What one member skips of one beat: its number, when the last one was sent, and when the next one is due."""

    beat: Beat
    count: int
    last_ms: float
    due_ms: float


class IdleGroups:
    """The groups of a run that rest: their beats are skipped.

    Args:
        world: The run.
        members, brokers, offsets_topic, traffic: Its parts.
        start_ms: When it starts.
        is_enabled: Whether groups rest at all.
    """

    def __init__(
        self,
        world: Run,
        members: Mapping[int, MemberProcess],
        brokers: Mapping[int, BrokerProcess],
        offsets_topic: OffsetsTopic,
        traffic: Traffic,
        *,
        start_ms: float,
        is_enabled: bool,
    ) -> None:
        self._world, self._members, self._brokers = world, members, brokers
        self._offsets_topic, self._traffic, self._start_ms = offsets_topic, traffic, start_ms
        self._is_enabled = is_enabled
        self._idle: defaultdict[str, dict[int, Idle]] = defaultdict(dict)
        self._busy_until_ms: dict[str, float] = {}  # Before this time it is not worth while to look at a group.
        self._events = _event_times(world.script, start_ms) if is_enabled else {}

    def update(self, process: MemberProcess) -> bool:
        """Let the group of a member rest if possible; return whether the member is resting."""
        if not self._is_enabled:
            return False
        if process.is_resting:
            return True
        group_id = process.group_id
        if self._world.now_ms() < self._busy_until_ms.get(group_id, -inf):
            return False
        group = self._world.ownership.groups[group_id]
        idle = process.member.idle() if process.member is not None and group.rebalance is None else None
        if idle is None or any(beat.due_ms < self._world.now_ms() for beat in idle.beats):  # Late after a pause.
            self._idle[group_id].pop(process.number, None)
            return False
        self._idle[group_id][process.number] = idle
        if len(self._idle[group_id]) != len(group.live):
            return False
        self._begin(group_id)
        return process.is_resting

    def forget(self, process: MemberProcess) -> None:
        """The process of a member has ended, or is paused."""
        self._idle[process.group_id].pop(process.number, None)

    def _begin(self, group_id: str) -> None:
        world = self._world
        node_id = self._offsets_topic.coordinator_of(group_id)
        members = [self._members[number] for number in self._idle[group_id]]
        links = [member.link for member in members]
        if any(member.loses_message for member in members):
            return
        if node_id is None or not all(link is not None and link.node_id == node_id for link in links):
            return
        if not self._brokers[node_id].is_up or not self._brokers[node_id].coordinator.is_steady(group_id, len(links)):
            return
        event_ms = self._next_event(group_id)
        idle = self._idle[group_id].values()
        until_ms = min(event_ms, *(each.until_ms for each in idle)) - _MARGIN_MS
        period_ms = min((beat.period_ms for each in idle for beat in each.beats), default=inf)
        plans = None
        is_fast = max(map(_round_trip, members)) < period_ms  # Else beats are left out while one is in flight.
        if is_fast and until_ms >= world.now_ms() + (_LEAST_BEATS + 1) * period_ms:
            self._set_due(group_id, members, self._brokers[node_id].coordinator.next_beats(group_id))
            plans = self._plan(members, until_ms)
        if plans is not None and all(self._is_worth_while(plan) for plan in plans):
            self._rest(group_id, node_id, plans)
        elif until_ms == event_ms - _MARGIN_MS:
            self._busy_until_ms[group_id] = event_ms
            self._idle[group_id].clear()

    def _is_worth_while(self, plan: tuple[MemberProcess, float, list[_Skipped]]) -> bool:
        return plan[1] > self._world.now_ms() and sum(each.count for each in plan[2]) >= _LEAST_BEATS

    def _set_due(self, group_id: str, members: list[MemberProcess], due_ms: Mapping[Link, float]) -> None:
        """Set when the coordinator sends its beats next, which members do not know."""
        for member in members if due_ms else ():
            assert member.link is not None
            at_ms = due_ms[member.link]
            idle = self._idle[group_id][member.number]
            beats = tuple(replace(beat, due_ms=at_ms) if beat.is_from_coordinator else beat for beat in idle.beats)
            self._idle[group_id][member.number] = Idle(beats, idle.until_ms)

    def _next_event(self, group_id: str) -> float:
        times = self._events[group_id]
        index = bisect_right(times, self._world.now_ms())
        return times[index] if index < len(times) else self._world.now_ms()  # The run is over.

    def _plan(
        self, members: list[MemberProcess], until_ms: float
    ) -> list[tuple[MemberProcess, float, list[_Skipped]]] | None:
        """Return when each member wakes, and its skipped beats; None if a beat would be in flight whenever all wake."""
        idle = {member.number: self._idle[member.group_id][member.number] for member in members}
        pings = [(member, beat) for member in members for beat in idle[member.number].beats if beat.is_from_coordinator]
        for _ in range(_MOST_SHIFTS):
            moved = [_start_in_flight(beat, _round_trip(member), until_ms) for member, beat in pings]
            earliest_ms = min((at_ms for at_ms in moved if at_ms is not None), default=None)
            if earliest_ms is None:
                break
            until_ms = earliest_ms
        else:
            return None
        return [(member, *_skip(idle[member.number], _round_trip(member), until_ms)) for member in members]

    def _rest(self, group_id: str, node_id: int, plans: list[tuple[MemberProcess, float, list[_Skipped]]]) -> None:
        world = self._world
        self._brokers[node_id].coordinator.rest(group_id)
        last_ms: dict[Link, float] = {}
        for member, wake_ms, skipped in plans:
            member.is_resting = True
            member.unplan()
            link = member.link
            assert link is not None
            for each in skipped:
                self._count(node_id, each)
            pings = [each.last_ms for each in skipped if each.beat.is_from_coordinator]
            if pings:
                last_ms[link] = pings[0]
            elif skipped:
                last_ms[link] = max(each.last_ms for each in skipped) + link.latency_ms
            world.scheduler.schedule(wake_ms, ACTION, member.number, self._wake_member, member, link, skipped)
        first_ms = min(wake_ms for _, wake_ms, _ in plans)
        world.scheduler.schedule(first_ms, EVENT, -1, self._wake_group, group_id, node_id, last_ms)
        self._idle[group_id].clear()

    def _count(self, node_id: int, skipped: _Skipped) -> None:
        beat, count, start_ms = skipped.beat, skipped.count, self._start_ms
        if count:
            first_ms = skipped.last_ms - (count - 1) * beat.period_ms
            times_ms = first_ms - start_ms, skipped.due_ms - start_ms
            self._traffic.repeated(node_id, beat.request, beat.response, count, *times_ms)

    def _wake_group(self, group_id: str, node_id: int, last_ms: dict[Link, float]) -> None:
        broker = self._brokers[node_id]
        broker.coordinator.wake(group_id, last_ms)
        broker.plan()

    @staticmethod
    def _wake_member(process: MemberProcess, link: MemberLink, skipped: list[_Skipped]) -> None:
        process.is_resting = False
        assert process.member is not None
        for each in sorted(skipped, key=lambda each: each.last_ms):  # Beats that are due together keep their order.
            trip_ms = link.latency_ms if each.beat.is_from_coordinator else 2 * link.latency_ms
            process.member.beats_skipped(each.beat, each.due_ms, each.last_ms + trip_ms)
        process.plan()


def _round_trip(member: MemberProcess) -> float:
    assert member.link is not None
    return 2 * member.link.latency_ms


def _start_in_flight(beat: Beat, round_trip_ms: float, at_ms: float) -> float | None:
    """Return when the beat was sent that is in flight at a time; None if there is none."""
    if at_ms < beat.due_ms:
        return None
    start_ms = beat.due_ms + floor((at_ms - beat.due_ms) / beat.period_ms) * beat.period_ms
    return start_ms if start_ms < at_ms <= start_ms + round_trip_ms else None


def _skip(idle: Idle, round_trip_ms: float, until_ms: float) -> tuple[float, list[_Skipped]]:
    """Return when a member wakes, and the beats that it skips.

    At that time, no beat is in flight, and its last commit is not sent yet. The last commit is the last one with a
    response before `until_ms`.

    Commits in beats of the coordinator count only if the member sends none: the last one that it sends replaces them.
    """
    wake_ms = until_ms
    latest_ms = until_ms - round_trip_ms
    commits = [beat for beat in idle.beats if beat.is_commit and beat.due_ms <= latest_ms]
    sent = [beat for beat in commits if not beat.is_from_coordinator]
    for beat in sent or commits:
        wake_ms = min(wake_ms, beat.due_ms + floor((latest_ms - beat.due_ms) / beat.period_ms) * beat.period_ms)
    moved = True
    while moved:
        moved = False
        for beat in idle.beats:
            start_ms = None if beat.is_from_coordinator else _start_in_flight(beat, round_trip_ms, wake_ms)
            if start_ms is not None:
                wake_ms, moved = start_ms, True
    skipped = []
    for beat in idle.beats:
        count = max(0, -floor((beat.due_ms - wake_ms) / beat.period_ms))  # Those due before `wake_ms`.
        due_ms = beat.due_ms + count * beat.period_ms
        skipped.append(_Skipped(beat, count, due_ms - beat.period_ms, due_ms))
    return wake_ms, skipped


def _event_times(script: Script, start_ms: float) -> dict[str, list[float]]:
    """Return the times of the events that may affect each group, in order; the last one is the end of the run."""
    group_of = {number: group for group in script.groups for number in group.members}
    times: dict[str, list[float]] = {group.group_id: [] for group in script.groups}
    for event in script.events:
        at_ms = start_ms + event.at_ms
        match event:
            case MemberEvent():
                of_group = times[group_of[event.member].group_id]
                of_group.append(at_ms)
                if event.do == "slow":
                    of_group.append(at_ms + event.for_ms)
            case BrokerEvent():
                for each in times.values():
                    each.append(at_ms)
            case TopicEvent():
                for group in script.groups:
                    if event.topic in group.topics:
                        times[group.group_id].append(at_ms)
    for each in times.values():
        each.append(start_ms + script.duration_ms)
        each.sort()
    return times
