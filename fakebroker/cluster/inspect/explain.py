"""Explanations of a group in English: its state, what caused it, which requests it waits for, and until when."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.deadlines import delays_of, is_session_running, offsets_removal, timers_of
from fakebroker.cluster.inspect.explain_consumer_group import (
    ConsumerGroupExplanation,
    offsets_in_transactions,
)
from fakebroker.cluster.inspect.journal_queries import MemberRequests, requests_of_members
from fakebroker.cluster.inspect.phrases import MAX_NAMES, counted, listed, lower_first, seconds_text
from fakebroker.cluster.inspect.timelines import names_in, short_names, with_names
from fakebroker.cluster.inspect.views import ConsumerGroupReader
from fakebroker.cluster.topics import OFFSETS_TOPIC, Partition
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group_history import Moment
from fakebroker.errors import ErrorCode, printable


def explain(cluster: Cluster, group_id: str, now_ms: float) -> str:
    """Return sentences that explain the state of a group.

    Args:
        cluster: The cluster.
        group_id: The group, which need not exist.
        now_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
    """
    moments = cluster.history.of(group_id)
    broker = cluster.coordinator_of(group_id)
    group = broker.coordinator.groups.classic.get(group_id) if broker else None
    if OFFSETS_TOPIC in cluster.first_use.due_ms:
        sentences = before_first_use(cluster, group_id, OFFSETS_TOPIC, now_ms)
    elif broker is None:
        sentences = without_coordinator(cluster, group_id, cluster.offsets_partition_of(group_id))
    elif error := broker.coordinator.error_for(group_id):
        partition = cluster.offsets_partition_of(group_id)
        loading = cluster.group_moves.loading.get(partition.index)
        sentences = not_served(group_id, broker, error, partition, loading, now_ms)
    elif broker.proposed is not None and (found := broker.proposed.explain(group_id, broker.node_id, now_ms)):
        sentences = found
    elif (consumer_group := broker.coordinator.groups.consumer.get(group_id)) is not None:
        reader = ConsumerGroupReader(cluster, broker, consumer_group)
        sentences = ConsumerGroupExplanation(reader, moments, now_ms).sentences()
    elif group is None:
        sentences = _without_group(cluster, group_id, moments, now_ms)
    else:
        sentences = _GroupExplanation(cluster, broker, group, moments, now_ms).sentences()
    zombies = cluster.group_moves.zombies(cluster.offsets_partition_of(group_id).index)
    return printable(" ".join([*sentences, *_delays(cluster, group_id, now_ms), *zombies_of(zombies)]))


def _delays(cluster: Cluster, group_id: str, now_ms: float) -> Iterator[str]:
    """Yield sentences on requests and responses that are delayed, and on clients whose requests are not read."""
    delays = list(delays_of(cluster, lambda call: group_id in call.group_ids))
    for at_ms, call, text in delays[:MAX_NAMES]:
        until = f"in {seconds_text(at_ms - now_ms)}" if at_ms < inf else "when release_sync() is called"
        yield f"{text} {until}; the request was received {seconds_text(now_ms - call.received_ms)} ago."
    if delays[MAX_NAMES:]:
        yield f"{counted(len(delays) - MAX_NAMES, 'more request')} of the group are delayed."
    broker = cluster.coordinator_of(group_id)
    if broker is None or not cluster.quotas.throttled:
        return
    group = broker.coordinator.groups.get(group_id)
    members = group.members.values() if group else ()
    for client_id in dict.fromkeys(member.client_id for member in members):
        left_ms = cluster.quotas.throttled.get((broker.node_id, client_id), 0) - now_ms
        if left_ms > 0:
            yield f"Client {client_id} has exceeded a quota: its requests are read again in {seconds_text(left_ms)}."


def zombies_of(node_ids: Sequence[int]) -> Iterator[str]:
    """Yield a sentence on brokers that are zombies of a coordinator."""
    if len(node_ids) == 1:
        yield f"Broker {node_ids[0]} also acts as its coordinator: it is a zombie."
    elif node_ids:
        yield f"Brokers {', '.join(map(str, node_ids))} also act as its coordinator: they are zombies."


# Without a group


def without_coordinator(cluster: Cluster, key: str, partition: Partition) -> Iterator[str]:
    """Yield sentences on a group or a transactional id whose partition has no leader."""
    replicas = partition.replicas
    down = [node_id for node_id in replicas if not cluster.brokers[node_id].up]
    on_brokers = listed(map(str, replicas)) + (f"; down: {listed(map(str, down))}" if down else "")
    name = f"{partition.topic.name}-{partition.index}"
    yield f"{key} has no coordinator: {name} has no leader. Its replicas are on brokers {on_brokers}."
    yield "FindCoordinator fails with COORDINATOR_NOT_AVAILABLE."


def before_first_use(cluster: Cluster, key: str, topic: str, now_ms: float) -> Iterator[str]:
    """Yield sentences on a group or a transactional id whose internal topic has no coordinators yet."""
    due_ms = cluster.first_use.due_ms[topic]
    if topic in cluster.topics:
        yield f"{key} has no coordinator yet: {topic} is new, and is loaded in {seconds_text(due_ms - now_ms)}."
        yield "Requests fail with NOT_COORDINATOR."
        return
    if not cluster.can_create(topic):
        yield f"{key} has no coordinator: {topic} cannot be created, because its replicas need more brokers."
    elif due_ms == inf:
        yield f"{key} has no coordinator yet: no client has looked for one, so that {topic} does not exist."
    else:
        yield f"{key} has no coordinator yet: {topic} is created in {seconds_text(due_ms - now_ms)}."
    yield "FindCoordinator fails with COORDINATOR_NOT_AVAILABLE, other requests with NOT_COORDINATOR."


def not_served(
    key: str,
    broker: BrokerNode,
    error: ErrorCode,
    partition: Partition,
    loading: tuple[float, bool] | None,
    now_ms: float,
) -> Iterator[str]:
    """Yield sentences on a group or a transactional id whose coordinator is loading, or has failed to load."""
    name = f"{partition.topic.name}-{partition.index}"
    if loading is None:
        yield f"{key} is not available: broker {broker.node_id} failed to load {name}."
        yield f"Requests fail with {error.name} until the partition has another leader."
        return
    until = "until finish_loading() is called" if loading[0] == inf else f"for {seconds_text(loading[0] - now_ms)} more"
    yield f"{key} is being loaded: broker {broker.node_id} loads {name} {until}. Requests fail with {error.name}."


def _without_group(cluster: Cluster, group_id: str, moments: Sequence[Moment], now_ms: float) -> Iterator[str]:
    yield f"{group_id} is Dead: there is no such group."
    dropped = cluster.history.dropped_of(group_id)
    if not moments and dropped.count:
        yield f"It was removed: {dropped}."
    elif not moments and dropped:
        yield f"It is not known whether it has existed: {dropped}."
    elif not moments:
        yield "No member has joined it, and no offset was committed."
    else:
        cause = with_names(moments[-1].cause, names_in(moments))
        yield f"It was removed {seconds_text(now_ms - moments[-1].at_ms)} ago. Cause: {cause}."


# A group


class _GroupExplanation:
    """The explanation of a group that exists at its coordinator.

    Args:
        cluster: The cluster.
        broker: The coordinator.
        group: The group.
        moments: Its history, oldest first.
        now_ms: The time by the brokers' clock.
    """

    def __init__(
        self, cluster: Cluster, broker: BrokerNode, group: Group, moments: Sequence[Moment], now_ms: float
    ) -> None:
        self.cluster, self.broker, self.group, self.now_ms = cluster, broker, group, now_ms
        here = [moment for moment in moments if moment.coordinator_id == broker.node_id]
        self.last_transition = next((moment for moment in reversed(here) if moment.is_transition), None)
        client_ids = {change.member_id: change.client_id for moment in here for change in moment.changes}
        self.names = short_names([*group.members, *group.pending_members, *names_in(here)], client_ids)
        timers = list(timers_of(group, broker, self._named_members()))
        self.phase = next((each for each in timers if each.kind in ("join", "sync", "initial_delay")), None)
        self.by_member = {each.member_ids[0]: each for each in timers if each.kind in ("session", "pending_member")}
        self.requests: MemberRequests | None = None

    def _named_members(self) -> set[str]:
        """Return the members whose sessions are mentioned: those that the group waits for, and the first to expire."""
        group = self.group
        if group.state is PREPARING_REBALANCE:
            missing = (each for each in group.members if each not in group.parked_joins)
        else:
            missing = (each for each in (group.leader_id or "", *group.awaiting_sync) if each in group.members)
        named = set(islice(missing, MAX_NAMES + 1))
        running = [member for member in group.members.values() if is_session_running(group, member)]
        if running:
            named.add(min(running, key=lambda member: member.deadline_ms).member_id)
        return named

    def sentences(self) -> Iterator[str]:
        group = self.group
        last = self.last_transition
        since_ms = last.at_ms if last else group.state_since_ms
        state = f"{group.group_id} has been in {group.state.value} for {seconds_text(self.now_ms - since_ms)}"
        yield f"{state}. Cause: {with_names(last.cause, self.names)}." if last else f"{state}."
        dropped = self.cluster.history.dropped_of(group.group_id)
        if dropped and last is None:
            yield f"The cause is not known: {dropped}."
        if group.is_held:
            overdue = ": then the state ends at once, because its timer has expired" if group.is_overdue else ""
            yield f"It is held in this state until it is released{overdue}."
        yield from _BY_STATE[group.state](self)
        yield from offsets_in_transactions(self.broker, group.group_id)
        yield from self.group.extension.explain(self._left)

    def empty(self) -> Iterator[str]:
        group = self.group
        members = "no members" if group.protocol_type else "never had members"
        yield f"It has {members} and has {counted(len(list(group.offsets)), 'committed offset')}."
        yield from self._pending()
        yield from self._offsets()

    def preparing(self) -> Iterator[str]:
        group = self.group
        yield f"{len(group.parked_joins)} of {len(group.members)} members have joined this rebalance."
        if group.is_initial_rebalance:
            yield from self._initial_delay()
        missing = [member for member in group.members.values() if member.member_id not in group.parked_joins]
        for member in missing[:MAX_NAMES]:
            yield from self._missing(member)
        if missing[MAX_NAMES:]:
            yield f"Waiting for {counted(len(missing) - MAX_NAMES, 'more member')}."
        yield from self._pending()
        yield from self._new_members()
        if not group.is_initial_rebalance:
            yield from self._end_of_phase()

    def _initial_delay(self) -> Iterator[str]:
        group = self.group
        wait = f"it waits for more members for {self._left(group.join_deadline_ms)}"
        if group.initial_remaining_ms:
            wait += f", and up to {seconds_text(group.initial_remaining_ms)} longer if new members keep joining"
        yield f"The group was empty, so {wait}."
        if self.phase and self.phase.state is None and not self.phase.removes:
            yield self.phase.text

    def _end_of_phase(self) -> Iterator[str]:
        if self.phase:
            yield f"The group waits at most {self._left(self.phase.at_ms)} longer; then {lower_first(self.phase.text)}"

    def _missing(self, member: Member) -> Iterator[str]:
        """Yield what a member that has not rejoined does, and until when the group waits for it."""
        name, requests = self._describe(member), self._requests()
        beats = requests.heartbeats(member.member_id)
        session = self.by_member.get(member.member_id)
        yield f"Waiting for {name}, which has not rejoined."
        if len(beats) > 1:
            interval = seconds_text((beats[-1] - beats[0]) / (len(beats) - 1))
            yield f"It sends a Heartbeat every {interval}, which extends its session, but no JoinGroup."
        if session:
            further = "further " if beats else ""
            yield f"If it sends no {further}request, it is removed in {self._left(session.at_ms)}: its session expires."
        if member.instance_id is not None and self.phase:
            yield "The join timer does not remove static members."

    def _new_members(self) -> Iterator[str]:
        """Yield a sentence on the new member that is removed first because its JoinGroup has waited for too long."""
        timers = (
            each for each in self.by_member.values() if each.kind == "session" and not each.restarts_with_requests
        )
        first = min(timers, key=lambda each: each.at_ms, default=None)
        if first is not None:
            yield f"In {self._left(first.at_ms)}: {lower_first(first.text)}"

    def completing(self) -> Iterator[str]:
        leader = self.group.members[self.group.leader_id or ""]
        if self.group.is_sync_held(leader.member_id):
            yield f"The SyncGroup of the leader {self._describe(leader)} was received and is held."
        else:
            yield f"Waiting for the SyncGroup of the leader {self._describe(leader)}, which has the assignment."
            yield from self._session(leader.member_id)
        yield from self._unsynced(leader.member_id)

    def stable(self) -> Iterator[str]:
        group = self.group
        size = counted(len(group.members), "member")
        yield f"Generation {group.generation_id} with protocol {group.protocol_name!r} has {size}."
        yield f"The leader is {self.names[group.leader_id or '']}."
        yield from self._unsynced()
        yield from self._silent()
        yield from self._pending()
        yield from self._offsets()

    def _unsynced(self, mentioned: str = "") -> Iterator[str]:
        """Yield sentences on members whose SyncGroup is missing; the member id `mentioned` is not repeated."""
        group = self.group
        missing = [member_id for member_id in group.awaiting_sync if member_id != mentioned]
        if missing:
            yield f"Waiting for the SyncGroup of {listed(self.names.get(each, each) for each in missing)}."
        for member_id in missing[:MAX_NAMES]:
            yield from self._session(member_id)
        if group.awaiting_sync:
            yield from self._end_of_phase()

    def _session(self, member_id: str) -> Iterator[str]:
        """Yield when a member is removed although the phase has not ended."""
        if session := self.by_member.get(member_id):
            name, left = self.names[member_id], self._left(session.at_ms)
            yield f"If {name} sends no request, it is removed in {left}: its session expires."

    def _silent(self) -> Iterator[str]:
        """Yield a sentence on the member whose session expires first, once more than half of its session has passed."""
        sessions = [each for each in self.by_member.values() if each.kind == "session"]
        first = min(sessions, key=lambda each: each.at_ms, default=None)
        if first is None:
            return
        member = self.group.members[first.member_ids[0]]
        if first.at_ms - self.now_ms < member.session_timeout_ms / 2:
            yield f"In {self._left(first.at_ms)}: {lower_first(first.text)}"

    def _pending(self) -> Iterator[str]:
        for member_id, deadline_ms in list(self.group.pending_members.items())[:MAX_NAMES]:
            name, left = self.names[member_id], self._left(deadline_ms)
            yield f"{name} was assigned its member id, and must join with it within {left}."

    def _offsets(self) -> Iterator[str]:
        if removal := offsets_removal(self.group, self.broker):
            yield f"In {self._left(removal.at_ms)}: {lower_first(removal.text)}"

    def _requests(self) -> MemberRequests:
        if self.requests is None:
            since_ms = self.last_transition.at_ms if self.last_transition else self.group.state_since_ms
            self.requests = requests_of_members(self.cluster, self.group, since_ms)
        return self.requests

    def _describe(self, member: Member) -> str:
        """Return a member's name with details: static or its client id, and how long ago its last request was."""
        name = self.names[member.member_id]
        details = ["static"] if member.instance_id is not None else []
        if not name.startswith(member.client_id) and member.instance_id is None:
            details.append(member.client_id)
        last = self._requests().last(member.member_id)
        if last is not None:
            details.append(f"last request: {last.api.name}, {seconds_text(self.now_ms - last.received_ms)} ago")
        elif member.deadline_ms < inf and not member.is_new:
            # Heartbeat, JoinGroup, SyncGroup and OffsetCommit restart the session, and so does a new generation.
            since_ms = member.deadline_ms - member.session_timeout_ms
            details.append(f"session restarted {seconds_text(self.now_ms - since_ms)} ago")
        return f"{name} ({', '.join(details)})" if details else name

    def _left(self, deadline_ms: float) -> str:
        return seconds_text(deadline_ms - self.now_ms)


_BY_STATE = {
    EMPTY: _GroupExplanation.empty,
    PREPARING_REBALANCE: _GroupExplanation.preparing,
    COMPLETING_REBALANCE: _GroupExplanation.completing,
    STABLE: _GroupExplanation.stable,
}
