"""Explanations of a group in English: its state, what caused it, which requests it waits for, and until when."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.timeline import names_in, short_names, with_names
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.group.batch_join.batch_join_extension import expected_instances
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.history import Moment
from fakebroker.errors import ErrorCode

_MAX_NAMES = 8
"""The maximum number of members that are named; the others are counted."""


def explain(cluster: Cluster, group_id: str, now_ms: float) -> str:
    """Return sentences that explain the state of a group.

    Args:
        cluster: The cluster.
        group_id: The group, which need not exist.
        now_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
    """
    moments = cluster.history.of(group_id)
    broker = cluster.coordinator_of(group_id)
    group = broker.coordinator.group(group_id) if broker else None
    if broker is None:
        sentences = _without_coordinator(cluster, group_id)
    elif error := broker.coordinator.error_for(group_id):
        sentences = _not_served(cluster, group_id, broker, error, now_ms)
    elif group is None:
        sentences = _without_group(group_id, moments, now_ms)
    else:
        at_coordinator = [moment for moment in moments if moment.coordinator_id == broker.node_id]
        sentences = _GroupExplanation(group, at_coordinator, now_ms).sentences()
    return " ".join([*sentences, *_zombies(cluster, group_id)])


def _zombies(cluster: Cluster, group_id: str) -> Iterator[str]:
    node_ids = cluster.controller.zombies(cluster.offsets_partition_of(group_id).index)
    if len(node_ids) == 1:
        yield f"Broker {node_ids[0]} also acts as its coordinator: it is a zombie."
    elif node_ids:
        yield f"Brokers {', '.join(map(str, node_ids))} also act as its coordinator: they are zombies."


# Without a group


def _partition_name(cluster: Cluster, group_id: str) -> str:
    return f"{OFFSETS_TOPIC}-{cluster.offsets_partition_of(group_id).index}"


def _without_coordinator(cluster: Cluster, group_id: str) -> Iterator[str]:
    replicas = cluster.offsets_partition_of(group_id).replicas
    down = [node_id for node_id in replicas if not cluster.brokers[node_id].up]
    on_brokers = _listed(map(str, replicas)) + (f"; down: {_listed(map(str, down))}" if down else "")
    name = _partition_name(cluster, group_id)
    yield f"{group_id} has no coordinator: {name} has no leader. Its replicas are on brokers {on_brokers}."
    yield "FindCoordinator fails with COORDINATOR_NOT_AVAILABLE."


def _not_served(cluster: Cluster, group_id: str, broker: BrokerNode, error: ErrorCode, now_ms: float) -> Iterator[str]:
    name = _partition_name(cluster, group_id)
    loading = cluster.controller.loading.get(cluster.offsets_partition_of(group_id).index)
    if loading is None:
        yield f"{group_id} is not available: broker {broker.node_id} failed to load {name}."
        yield f"Requests fail with {error.name} until the partition has another leader."
        return
    until = "until finish_loading() is called" if loading[0] == inf else f"for {_seconds(loading[0] - now_ms)} more"
    yield f"{group_id} is being loaded: broker {broker.node_id} loads {name} {until}. Requests fail with {error.name}."


def _without_group(group_id: str, moments: Sequence[Moment], now_ms: float) -> Iterator[str]:
    yield f"{group_id} is Dead: there is no such group."
    if not moments:
        yield "No member has joined it, and no offset was committed."
    else:
        cause = with_names(moments[-1].cause, names_in(moments))
        yield f"It was removed {_seconds(now_ms - moments[-1].at_ms)} ago. Cause: {cause}."


# A group


class _GroupExplanation:
    """The explanation of a group that exists at its coordinator.

    Args:
        group: The group.
        moments: Its history at this coordinator, oldest first.
        now_ms: The time by the brokers' clock.
    """

    def __init__(self, group: Group, moments: Sequence[Moment], now_ms: float) -> None:
        self.group, self.now_ms = group, now_ms
        self.last_transition = next((moment for moment in reversed(moments) if moment.is_transition), None)
        self.names = short_names([*group.members, *group.pending_members, *names_in(moments)])

    def sentences(self) -> Iterator[str]:
        group = self.group
        last = self.last_transition
        since_ms = last.at_ms if last else group.state_since_ms
        state = f"{group.group_id} has been in {group.state.value} for {_seconds(self.now_ms - since_ms)}"
        yield f"{state}. Cause: {with_names(last.cause, self.names)}." if last else f"{state}."
        if group.is_held:
            yield "It is held in this state until it is released."
        yield from _BY_STATE[group.state](self)
        yield from self._expected()

    def empty(self) -> Iterator[str]:
        group = self.group
        members = "no members" if group.protocol_type else "never had members"
        yield f"It has {members} and has {_count(len(list(group.offsets)), 'committed offset')}."
        yield from self._pending()

    def preparing(self) -> Iterator[str]:
        group = self.group
        yield f"{len(group.parked_joins)} of {len(group.members)} members have joined this rebalance."
        if group.is_initial_rebalance:
            wait = f"it waits for more members for {self._left(group.join_deadline_ms)}"
            longer = f", and up to {_seconds(group.initial_remaining_ms)} longer if new members keep joining"
            yield f"The group was empty, so {wait}{longer if group.initial_remaining_ms else ''}."
        missing = [member for member in group.members.values() if member.member_id not in group.parked_joins]
        for member in missing[:_MAX_NAMES]:
            yield f"Waiting for {self._describe(member)}, which has not rejoined; {self._removal(member)}."
        if missing[_MAX_NAMES:]:
            yield f"Waiting for {_count(len(missing) - _MAX_NAMES, 'more member')}."
        yield from self._pending()

    def completing(self) -> Iterator[str]:
        leader = self.group.members[self.group.leader_id or ""]
        if self.group.is_sync_held(leader.member_id):
            yield f"The SyncGroup of the leader {self._describe(leader)} was received and is held."
        else:
            yield f"Waiting for the SyncGroup of the leader {self._describe(leader)}, which has the assignment."
        yield from self._unsynced(leader.member_id)

    def stable(self) -> Iterator[str]:
        group = self.group
        size = _count(len(group.members), "member")
        yield f"Generation {group.generation_id} with protocol {group.protocol_name!r} has {size}."
        yield f"The leader is {self.names[group.leader_id or '']}."
        yield from self._unsynced()

    def _unsynced(self, mentioned: str = "") -> Iterator[str]:
        """Yield sentences on members whose SyncGroup is missing; the member id `mentioned` is not repeated."""
        group = self.group
        names = [self.names.get(member_id, member_id) for member_id in group.awaiting_sync if member_id != mentioned]
        if names:
            yield f"Waiting for the SyncGroup of {_listed(names)}."
        if group.awaiting_sync:
            yield f"Members that do not send a SyncGroup within {self._left(group.sync_deadline_ms)} are removed."

    def _pending(self) -> Iterator[str]:
        for member_id, deadline_ms in list(self.group.pending_members.items())[:_MAX_NAMES]:
            name, left = self.names[member_id], self._left(deadline_ms)
            yield f"{name} was assigned its member id, and must join with it within {left}."

    def _expected(self) -> Iterator[str]:
        """Yield sentences on registered instances that have not joined (KAFKA-8397), and on the joins held back."""
        expectations = expected_instances(self.group)
        missing = _listed(expected.instance_id for expected in expectations.missing)
        left = self._left(expectations.deadline_ms())
        if expectations.waiting:
            joins = "1 join is" if len(expectations.waiting) == 1 else f"{len(expectations.waiting)} joins are"
            yield f"{joins} held back until the registered instances {missing} join, for at most {left} more."
        elif expectations.instances:
            yield f"The registered instances {missing} have not joined."
            yield f"If none of them joins, the first registration expires in {left}."

    def _describe(self, member: Member) -> str:
        """Return a member's name with details: static or its client id, and how long ago its last request was."""
        name = self.names[member.member_id]
        details = ["static"] if member.instance_id is not None else []
        if not name.startswith(member.client_id) and member.instance_id is None:
            details.append(member.client_id)
        if member.deadline_ms < inf and not member.is_new:
            # Heartbeat, JoinGroup, SyncGroup and OffsetCommit restart the session.
            last_request_ms = member.deadline_ms - member.session_timeout_ms
            details.append(f"last request {_seconds(self.now_ms - last_request_ms)} ago")
        return f"{name} ({', '.join(details)})" if details else name

    def _removal(self, member: Member) -> str:
        """Return when a member that has not rejoined is removed: its session expires, or the join phase ends."""
        join_ends_ms, session_ends_ms = self.group.join_deadline_ms, member.deadline_ms
        if member.instance_id is not None:
            return (
                f"the join phase ends in {self._left(join_ends_ms)}, but a static member is only removed when its "
                f"session expires, in {self._left(session_ends_ms)}"
            )
        if session_ends_ms < join_ends_ms:
            return f"it is removed in {self._left(session_ends_ms)} unless it sends a request"
        return f"it is removed in {self._left(join_ends_ms)} unless it rejoins"

    def _left(self, deadline_ms: float) -> str:
        return _seconds(deadline_ms - self.now_ms)


_BY_STATE = {
    EMPTY: _GroupExplanation.empty,
    PREPARING_REBALANCE: _GroupExplanation.preparing,
    COMPLETING_REBALANCE: _GroupExplanation.completing,
    STABLE: _GroupExplanation.stable,
}


def _count(count: int, what: str) -> str:
    """Return a number and a noun, such as "1 member" or "2 members"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _seconds(duration_ms: float) -> str:
    return f"{max(0.0, duration_ms) / 1000:.1f} s"


def _listed(names: Iterable[str]) -> str:
    """Return the first names, separated by commas, and the number of the others."""
    all_names = list(names)
    omitted = len(all_names) - _MAX_NAMES
    return ", ".join(all_names[:_MAX_NAMES]) + (f" and {omitted} more" if omitted > 0 else "")
