"""Fast-forwards idle members: their heartbeats and commits are computed instead of being simulated one by one.

A member is idle while its group is stable and the member only sends heartbeats and commits. Each of these requests
succeeds. It changes only the committed offsets and the deadlines of the session, at the coordinator and at the member.
So these deadlines are suspended while the member is idle.

The member is woken when its script or a timer is due, and before anything may change its group or read its offsets.
Then its requests are recorded, its last commit is handled, and the deadlines are restored. State and events are exactly
the same as if each request were simulated.

If a heartbeat or a commit is due while the other one is in flight, both are simulated.
"""

from collections.abc import Callable, Sequence
from math import floor, inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.request_events import SentRequest, answered_event, commit_event, to_us
from fakebroker.replay.simulation.idle_sessions import Session, accepting_session, session_of
from fakebroker.replay.simulation.network import Network
from fakebroker.replay.simulation.scheduler import ACTION, ARRIVAL, LATENCY_MS, RESPONSE, TIMER, Position, Scheduler

_ROUND_TRIP_MS = 2 * LATENCY_MS

_HEARTBEATS = ("Heartbeat", "ConsumerGroupHeartbeat")

_MAX_COMMITS = 64
"""Maximum number of commits of a member that are recorded together. It limits how far events and progress lag."""


class IdleMembers:
    """The idle members of a simulation.

    Each stage of a request (due, arrival at the broker, response) has a `Position` in the order of all calls. When a
    member is woken at a position, its last request has passed the stages with earlier positions.

    Args:
        drivers: The drivers of all members, ordered by number.
        cluster: The cluster.
        scheduler: The scheduler of the simulation.
        network: Handles commits.
        recorder: Records heartbeats and commits.
        plan: Schedules the next deadline of a member that is no longer idle.

    Attributes:
        numbers: Numbers of the drivers of idle members. While a member is idle, `scheduled_ms` of its driver is when it
            is woken.
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
        until_ms, connection = scripted.idle_until, driver.connection
        if until_ms == -inf or connection is None or not connection.is_open:
            return False
        client = scripted.member
        heartbeat_ms = client.next_heartbeat_ms
        if min(heartbeat_ms, client.next_commit_ms) + LATENCY_MS <= connection.busy_until_ms:  # It is throttled.
            return False
        if heartbeat_ms == inf or client.session_deadline_ms <= heartbeat_ms + _ROUND_TRIP_MS:
            return False
        if heartbeat_ms >= until_ms:
            return False
        session = self._accepting(driver)
        if session is None or session.deadline_ms <= heartbeat_ms + LATENCY_MS:
            return False
        if any(rule.fault.api in (None, *_HEARTBEATS) for rule in self._cluster.faults.active):
            return False
        until_ms = self._first_simulated_commit(driver, session, until_ms)
        if heartbeat_ms >= until_ms:
            return False
        self.numbers.add(driver.number)
        session.suspend(self._wake_before_timer)
        self._schedule_waking(driver, until_ms)
        return True

    def _accepting(self, driver: MemberDriver) -> Session | None:
        """Return the member's session if the connected broker would accept its heartbeats, else None."""
        broker: BrokerNode = driver.connection.broker
        if broker.node_id != driver.member.node_id:
            return None
        return accepting_session(broker, driver.member.member.identity)

    def _first_simulated_commit(self, driver: MemberDriver, session: Session, until_ms: float) -> float:
        """Return when the first commit is due that cannot be skipped; `until_ms` if it is not due before."""
        client, script = driver.member.member, driver.member.script
        due_ms = client.next_commit_ms
        if due_ms >= until_ms:
            return until_ms
        if not (_has_committed_all(driver, session) and self._accepts_commits(driver, session)):
            return due_ms
        last_ms = min(until_ms, due_ms + _MAX_COMMITS * script.commit_interval_ms)
        while due_ms < last_ms:
            if _meets_heartbeat(driver, due_ms):
                return due_ms
            due_ms += script.commit_interval_ms
        return last_ms

    def _accepts_commits(self, driver: MemberDriver, session: Session) -> bool:
        """Return whether the commits of a member would succeed, and only the last one would have a lasting effect."""
        cluster, broker, group = self._cluster, driver.connection.broker, session.group
        if self._network.keeps_order or cluster.faults.active or cluster.append_failures.active:
            return False
        if not session.keeps_offsets:
            return False
        partition = cluster.offsets_partition(group.partition)
        if not cluster.has_enough_replicas(partition, log_config(cluster, broker, partition.topic)):
            return False
        for name, index in driver.member.member.positions:
            topic = cluster.topics.find(name, b"", by_id=False)
            if topic is None or topic.partition(index) is None:
                return False
        return True

    def _commit_first(self, driver: MemberDriver, due_ms: float) -> bool:
        """Handle the first commit of an idle member when it is due, if the member can stay idle meanwhile.

        All commits are recorded when the member is woken, and only the last commit is handled then. The first commit is
        handled in time as well, because the first commits of a group determine the order in which its offsets are
        returned.

        Returns:
            Whether the member stays idle.
        """
        scripted, session = driver.member, self._session_of(driver)
        if scripted.member.next_commit_ms != due_ms or _meets_heartbeat(driver, due_ms):
            return False
        if not self._network.can_commit_at_once(driver.connection, due_ms, due_ms + _ROUND_TRIP_MS):
            return False
        if not self._accepts_commits(driver, session):
            return False
        committed = scripted.positions_at(due_ms)
        if not committed:
            return False
        identity, arrival_ms = scripted.member.identity, due_ms + LATENCY_MS
        self._network.commit(driver.connection.broker, identity, committed, arrival_ms)
        self._schedule_waking(driver, self._first_simulated_commit(driver, session, scripted.idle_until))
        return True

    def _schedule_waking(self, driver: MemberDriver, until_ms: float) -> None:
        driver.scheduled_ms = until_ms
        if until_ms < inf:
            self._scheduler.schedule(until_ms, ACTION, driver.number, self._act, driver, until_ms)

    # Waking

    def _act(self, driver: MemberDriver, due_ms: float) -> None:
        """Record what an idle member has done; wake it if it has to do something else now."""
        is_planned = driver.number in self.numbers and driver.scheduled_ms == due_ms
        if is_planned and not self._commit_first(driver, due_ms):
            self._wake(driver, (due_ms, ACTION, driver.number))
            if not self.begin(driver):
                driver.tick(due_ms)

    def _wake_before_timer(self, group_id: str) -> None:
        """Wake the members of a group before one of its timers expires (`Member.keeper` of the coordinator)."""
        self.wake(group_id, (self._scheduler.clock.moment_ms, TIMER, -1))

    def wake(self, group_id: str, position: Position) -> None:
        """Wake the idle members of a group; their state is as if each request before the position was simulated."""

        for driver in self._by_group.get(group_id, ()):
            if driver.number in self.numbers:
                self._wake(driver, position)
                self._plan(driver)

    def wake_all(self, position: Position) -> list[MemberDriver]:
        """Wake the idle members of all groups; return them, because their next deadlines are not scheduled yet."""
        woken = [self._drivers[number] for number in sorted(self.numbers)]
        for driver in woken:
            self._wake(driver, position)
        return woken

    def settle_commits(self, group_id: str, position: Position) -> None:
        """Handle the commits of a group that arrived before a position, because its offsets are read then."""
        for driver in self._by_group.get(group_id, ()):
            commit_ms = driver.member.member.next_commit_ms
            if driver.number in self.numbers and (commit_ms + LATENCY_MS, ARRIVAL, driver.number) < position:
                self._wake(driver, position)
                if not self.begin(driver):
                    self._plan(driver)

    def _wake(self, driver: MemberDriver, position: Position) -> None:
        self.numbers.discard(driver.number)
        driver.scheduled_ms = inf
        client, script = driver.member.member, driver.member.script
        heartbeat_ms, commit_ms = client.next_heartbeat_ms, client.next_commit_ms
        interval_ms = client.heartbeat_interval_ms
        heartbeats = _answered_before(position, heartbeat_ms, interval_ms, driver.number)
        commits = _answered_before(position, commit_ms, script.commit_interval_ms, driver.number)
        heartbeat_ms += heartbeats * interval_ms
        commit_ms += commits * script.commit_interval_ms
        # In the order of the last ones, which decides between the next ones if they are due at the same time.
        if heartbeat_ms - interval_ms < commit_ms - script.commit_interval_ms:
            self._skip_heartbeats(driver, heartbeats)
            self._skip_commits(driver, commits)
        else:
            self._skip_commits(driver, commits)
            self._skip_heartbeats(driver, heartbeats)
        has_arrived = (heartbeat_ms + LATENCY_MS, ARRIVAL, driver.number) < position
        arrived_ms = heartbeat_ms - (0 if has_arrived else interval_ms) + LATENCY_MS
        self._session_of(driver).resume(arrived_ms if heartbeats or has_arrived else -inf)
        self._network.schedule_timer(driver.connection.broker.coordinator.queue.next_deadline())
        if (min(heartbeat_ms, commit_ms), ACTION, driver.number) < position:
            self._begin_request(driver, min(heartbeat_ms, commit_ms), position)

    def _skip_heartbeats(self, driver: MemberDriver, count: int) -> None:
        """Record heartbeats of an idle member that were answered."""
        if not count:
            return
        scripted = driver.member
        client, interval_ms = scripted.member, scripted.member.heartbeat_interval_ms
        due_ms, request = client.next_heartbeat_ms, client.heartbeat_request()
        sent, latency_us = self._sent(driver, due_ms, driver.connection.versions.version_for(type(request)))
        event = answered_event(sent, latency_us, request, self._session_of(driver).response(), scripted.script)
        self._recorder.add_heartbeats(event, count, interval_ms, due_ms)
        client.heartbeats_skipped(due_ms + count * interval_ms, due_ms + (count - 1) * interval_ms + _ROUND_TRIP_MS)

    def _skip_commits(self, driver: MemberDriver, count: int) -> None:
        """Record commits of an idle member that were answered, and handle the last one."""
        if not count:
            return
        scripted = driver.member
        due_ms, interval_ms = scripted.member.next_commit_ms, scripted.script.commit_interval_ms
        last_ms = due_ms + (count - 1) * interval_ms
        committed = scripted.commits_skipped(last_ms)
        if not committed:
            return
        self._network.commit(driver.connection.broker, scripted.member.identity, committed, last_ms + LATENCY_MS)
        version = driver.connection.versions.version_for(OffsetCommitRequest)
        sent, latency_us = self._sent(driver, due_ms, version)
        event = commit_event(sent, latency_us, scripted.member.identity, scripted.script)
        self._recorder.add_commits(event, count, interval_ms, due_ms, scripted.growth_of(committed))

    def _sent(self, driver: MemberDriver, due_ms: float, version: int) -> tuple[SentRequest, int]:
        """Return what an event records about a request that was sent on time, and its latency in microseconds."""
        at_us = to_us(due_ms)
        return SentRequest(at_us, at_us, version, driver.member.node_id), to_us(due_ms + _ROUND_TRIP_MS) - at_us

    def _session_of(self, driver: MemberDriver) -> Session:
        return session_of(driver.connection.broker, driver.group, driver.member.member.member_id)

    def _begin_request(self, driver: MemberDriver, due_ms: float, position: Position) -> None:
        """Schedule the arrival of a request that was sent before a position, or its response if it has arrived."""
        scripted, network, connection = driver.member, self._network, driver.connection
        scripted.tick(due_ms)
        request = scripted.take_request()
        if request is None:  # A member without partitions has nothing to commit.
            return
        version = connection.versions.version_of(request)
        scripted.sent(version, due_ms)
        call = network.call(connection, request, version, scripted.script.member)
        connection.pending.append(driver)
        if (due_ms + LATENCY_MS, ARRIVAL, driver.number) >= position:
            network.send(call, due_ms)
        elif not isinstance(request, OffsetCommitRequest):
            network.send_response(call, self._session_of(driver).response(), due_ms + LATENCY_MS)
        else:
            response = network.commit_at_once(call, due_ms + LATENCY_MS)
            network.send_response(call, response, due_ms + LATENCY_MS)


def _answered_before(position: Position, due_ms: float, interval_ms: float, number: int) -> int:
    """Return how many periodic requests were answered before a position.

    Args:
        position: The position.
        due_ms: When the first one is due, in milliseconds since the Unix epoch; may be infinite.
        interval_ms: Time between two of them.
        number: The number of the member's driver.
    """
    first_ms = due_ms + _ROUND_TRIP_MS
    if (first_ms, RESPONSE, number) >= position:
        return 0
    count = max(1, floor((position[0] - first_ms) / interval_ms) - 1)
    while (first_ms + count * interval_ms, RESPONSE, number) < position:
        count += 1
    return count


def _has_committed_all(driver: MemberDriver, session: Session) -> bool:
    """Return whether the group has a committed offset for each partition that the member will commit."""
    offsets = session.group.offsets
    return all(offsets.get(name, index) is not None for name, index in driver.member.member.positions)


def _meets_heartbeat(driver: MemberDriver, due_ms: float) -> bool:
    """Return whether a commit or a heartbeat of an idle member is due while the other one is in flight."""
    client = driver.member.member
    interval_ms = client.heartbeat_interval_ms
    since_ms = (due_ms - client.next_heartbeat_ms) % interval_ms  # Since the last heartbeat was due.
    return since_ms < _ROUND_TRIP_MS or since_ms >= interval_ms - _ROUND_TRIP_MS
