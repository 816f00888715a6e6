"""Fast-forwards idle members: their heartbeats are counted instead of being simulated one by one.

A member is idle while its group is stable and the member only sends heartbeats. Each of them succeeds and changes only
the deadlines of the session, at the coordinator and at the member. So these deadlines are suspended while the member is
idle. It is woken when its script or a timer is due, and before anything may change its group: then its heartbeats are
recorded and the deadlines restored. State and events are exactly those of simulating each heartbeat.

An idle member may also commit, unless a heartbeat is in flight at the same time. The coordinator then handles the
commit at once: no arrival or response is scheduled, and the event is recorded.
"""

from collections.abc import Callable, Iterable, Sequence
from math import floor, inf

from fakebroker.client.member import requests
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.states import STABLE
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.request_events import SentRequest, commit_event, heartbeat_event, is_accepted, to_us
from fakebroker.replay.simulation.network import Network
from fakebroker.replay.simulation.scheduler import ACTION, ARRIVAL, LATENCY_MS, RESPONSE, TIMER, Position, Scheduler

_ROUND_TRIP_MS = 2 * LATENCY_MS


class IdleHeartbeats:
    """The idle members of a simulation.

    Each stage of a heartbeat (due, arrival at the broker, response) has a `Position` in the order of all calls. When a
    member is woken at a position, its last heartbeat has passed the stages with earlier positions.

    Args:
        drivers: The drivers of all members, ordered by number.
        cluster: The cluster.
        scheduler: The scheduler of the simulation.
        network: Handles commits.
        recorder: Records heartbeats and commits.
        plan: Schedules the next deadline of a member that is no longer idle.

    Attributes:
        numbers: Numbers of the drivers of idle members. While a member is idle, `scheduled_ms` of its driver is when it
            does something other than a heartbeat.
    """

    def __init__(
        self,
        drivers: Sequence[MemberDriver],
        cluster: Cluster,
        scheduler: Scheduler,
        network: Network,
        recorder: EventRecorder,
        plan: Callable[[MemberDriver], None],
    ) -> None:
        self.numbers: set[int] = set()
        self._drivers, self._cluster, self._scheduler = drivers, cluster, scheduler
        self._network, self._recorder, self._plan = network, recorder, plan
        self._by_group: dict[str, list[MemberDriver]] = {}
        for driver in drivers:
            self._by_group.setdefault(driver.group, []).append(driver)

    # Becoming idle

    def begin(self, driver: MemberDriver) -> bool:
        """Make a member idle if possible; return whether it is idle."""
        scripted = driver.member
        until_ms = scripted.idle_until
        if until_ms == -inf or driver.connection is None or not driver.connection.is_open:
            return False
        client = scripted.member
        heartbeat_ms = client.next_heartbeat_ms
        if heartbeat_ms == inf or heartbeat_ms >= until_ms:
            return False
        if client.session_deadline_ms <= heartbeat_ms + _ROUND_TRIP_MS:
            return False
        registered = self._accepting_member(driver)
        if registered is None or registered.deadline_ms <= heartbeat_ms + LATENCY_MS:
            return False
        if any(rule.fault.api in (None, "Heartbeat") for rule in self._cluster.faults.active):
            return False
        self.numbers.add(driver.number)
        driver.scheduled_ms, registered.keeper = until_ms, self._wake_before_timer
        if until_ms < inf:
            self._scheduler.schedule_private(until_ms, driver.number, self._act, driver, until_ms)
        return True

    def _accepting_member(self, driver: MemberDriver) -> Member | None:
        """Return the coordinator's member if the connected broker would accept its heartbeats, else None."""
        identity = driver.member.member.identity
        broker: BrokerNode = driver.connection.broker
        if broker.node_id != driver.member.node_id:
            return None
        group = broker.coordinator.group(identity.group_id)
        if group is None or group.state is not STABLE or group.generation_id != identity.generation_id:
            return None
        registered = group.members.get(identity.member_id)
        if registered is None or identity.instance_id not in (None, registered.instance_id):
            return None
        return registered

    # Sessions

    def _wake_before_timer(self, group_id: str) -> None:
        """Wake the members of a group before one of its timers expires (`Member.keeper` of the coordinator)."""
        self.wake(group_id, (self._scheduler.clock.moment_ms, TIMER, -1))

    def _resume_session(self, driver: MemberDriver, position: Position) -> None:
        """Restore the session's deadline at the coordinator, after the heartbeats that arrived before a position."""
        coordinator, group = driver.connection.broker.coordinator, self._group(driver)
        registered = group.members[driver.member.member.member_id]
        deadline_ms = registered.deadline_ms
        arrived = self._heartbeats_before(driver, position, LATENCY_MS, ARRIVAL)
        if arrived:
            interval_ms = driver.member.script.heartbeat_interval_ms
            last_ms = driver.member.member.next_heartbeat_ms + (arrived - 1) * interval_ms
            # A later commit may have extended the session already.
            deadline_ms = max(deadline_ms, last_ms + LATENCY_MS + registered.session_timeout_ms)
        coordinator.resume_session(group, registered, deadline_ms)
        self._network.schedule_timer(coordinator.next_deadline())

    def _group(self, driver: MemberDriver) -> Group:
        """Return the coordinator's group."""
        broker: BrokerNode = driver.connection.broker
        group = broker.coordinator.group(driver.member.script.group)
        assert group is not None
        return group

    def _heartbeats_before(self, driver: MemberDriver, position: Position, after_ms: float, kind: int) -> int:
        """Return how many of the uncounted heartbeats have passed a stage before a position.

        Args:
            driver: The member's driver.
            position: The position.
            after_ms: Time from when a heartbeat is due until the stage, in milliseconds.
            kind: Kind of the scheduled call of the stage: ARRIVAL or RESPONSE.
        """
        first_ms = driver.member.member.next_heartbeat_ms + after_ms
        interval_ms = driver.member.script.heartbeat_interval_ms
        count = max(0, floor((position[0] - first_ms) / interval_ms) - 1)
        while (first_ms + count * interval_ms, kind, driver.number) < position:
            count += 1
        return count

    # Commits

    def _commit(self, driver: MemberDriver, due_ms: float) -> bool:
        """Let an idle member commit if it can stay idle; return whether it did."""
        scripted, network = driver.member, self._network
        connection, answered_ms = driver.connection, due_ms + _ROUND_TRIP_MS
        if not network.can_handle_at_once(connection, due_ms, answered_ms) or self._is_heartbeat_near(driver, due_ms):
            return False
        request = scripted.commit_while_idle(due_ms, answered_ms)
        if request is None:
            return False
        version = connection.versions.version_for(OffsetCommitRequest)
        call = network.call(connection, request, version, scripted.script.member)
        response = network.handle_at_once(call, due_ms + LATENCY_MS)
        if not is_accepted(response):
            connection.known_response = response
            return False
        at_us = to_us(due_ms)
        sent = SentRequest(at_us, at_us, version, scripted.node_id)
        self._recorder.add(commit_event(sent, to_us(answered_ms) - at_us, request, scripted.script))
        scripted.member.idle_commit_answered(due_ms)
        driver.scheduled_ms = scripted.idle_until
        self._scheduler.schedule_private(driver.scheduled_ms, driver.number, self._act, driver, driver.scheduled_ms)
        return True

    def _is_heartbeat_near(self, driver: MemberDriver, due_ms: float) -> bool:
        """Return whether a heartbeat is in flight when a commit is due, or due at the same time as the next commit."""
        script = driver.member.script
        since_ms = (due_ms - driver.member.member.next_heartbeat_ms) % script.heartbeat_interval_ms
        if since_ms < _ROUND_TRIP_MS or since_ms >= script.heartbeat_interval_ms - _ROUND_TRIP_MS:
            return True
        return (since_ms + script.commit_interval_ms) % script.heartbeat_interval_ms == 0

    # Waking

    def _act(self, driver: MemberDriver, due_ms: float) -> None:
        """Let an idle member do something other than a heartbeat: commit, else wake it."""
        is_due = driver.number in self.numbers and driver.scheduled_ms == due_ms
        if is_due and not self._commit(driver, due_ms):
            self._wake(driver, (due_ms, ACTION, driver.number))
            driver.tick(due_ms)

    def wake(self, group_id: str, position: Position) -> None:
        """Wake the idle members of a group; their state is as if each heartbeat before the position was simulated."""
        self._wake_members(self._by_group.get(group_id, ()), position)

    def wake_all(self, position: Position) -> None:
        """Wake the idle members of all groups."""
        self._wake_members(self._drivers, position)

    def _wake_members(self, drivers: Iterable[MemberDriver], position: Position) -> None:
        for driver in drivers:
            if driver.number in self.numbers:
                self._wake(driver, position)
                self._plan(driver)

    def _wake(self, driver: MemberDriver, position: Position) -> None:
        self.numbers.discard(driver.number)
        driver.scheduled_ms = inf
        self._resume_session(driver, position)
        self._record_heartbeats(driver, position)
        due_ms = driver.member.member.next_heartbeat_ms
        if (due_ms, ACTION, driver.number) < position:
            self._begin_heartbeat(driver, due_ms, position)

    def _record_heartbeats(self, driver: MemberDriver, position: Position) -> None:
        """Record the heartbeats that were answered before a position."""
        count = self._heartbeats_before(driver, position, _ROUND_TRIP_MS, RESPONSE)
        if not count:
            return
        scripted = driver.member
        client, interval_ms = scripted.member, scripted.script.heartbeat_interval_ms
        due_ms = client.next_heartbeat_ms
        at_us = to_us(due_ms)
        sent = SentRequest(at_us, at_us, driver.connection.versions.version_for(HeartbeatRequest), scripted.node_id)
        latency_us = to_us(due_ms + _ROUND_TRIP_MS) - at_us
        event = heartbeat_event(sent, latency_us, 0, requests.heartbeat(client.identity), scripted.script)
        self._recorder.add_heartbeats(event, count, interval_ms, due_ms)
        client.heartbeats_skipped(due_ms + count * interval_ms, due_ms + (count - 1) * interval_ms + _ROUND_TRIP_MS)

    def _begin_heartbeat(self, driver: MemberDriver, due_ms: float, position: Position) -> None:
        """Schedule the arrival of a heartbeat that was sent before a position, or its response if it has arrived."""
        scripted, network = driver.member, self._network
        scripted.tick(due_ms)
        request = scripted.take_request()
        assert isinstance(request, HeartbeatRequest)
        version = driver.connection.versions.version_for(HeartbeatRequest)
        scripted.sent(version, due_ms)
        call = network.call(driver.connection, request, version, scripted.script.member)
        driver.connection.pending.append(driver)
        if (due_ms + LATENCY_MS, ARRIVAL, driver.number) < position:
            network.send_response(call, HeartbeatResponse(), due_ms + LATENCY_MS)
        else:
            network.send(call, due_ms)
