"""What always holds of a group between two calls, whatever the clients do.

For tests, and for whoever wants to run with a net. Reads groups and never changes them.
"""

from collections import Counter
from collections.abc import Callable
from math import inf

from fakebroker.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    Group,
)


class InvariantError(AssertionError):
    """A group is in a shape it must never be in."""


def check(group: Group) -> None:
    """Raises `InvariantError`, with a sentence that names the group and the rule, if the group breaks a rule."""
    for rule, holds in _RULES:
        if not holds(group):
            raise InvariantError(f"group {group.group_id!r} in state {group.state.value} breaks a rule: {rule}")


class History:
    """The rules about time: what a group may not do from one look at it to the next."""

    def __init__(self) -> None:
        self._seen: dict[Group, tuple[int, str | None]] = {}

    def check_step(self, group: Group) -> None:
        """Compares the group with the last look at it, and remembers it for the next."""
        generation_id, protocol_name = self._seen.get(group, (0, None))
        if group.generation_id < generation_id:
            raise InvariantError(f"group {group.group_id!r} went back from generation {generation_id}")
        if group.generation_id == generation_id and group.protocol_name != protocol_name:
            raise InvariantError(f"group {group.group_id!r} changed its protocol within generation {generation_id}")
        self._seen[group] = (group.generation_id, group.protocol_name)


def _static_members_match(group: Group) -> bool:
    static = [member for member in group.members.values() if member.instance_id is not None]
    return len(static) == len(group.static_members) and all(
        group.static_members.get(member.instance_id or "") == member.member_id for member in static
    )


def _is_in_generation(group: Group) -> bool:
    return group.state is COMPLETING_REBALANCE or group.state is STABLE


def _awaited_ids_are_known(group: Group) -> bool:
    """In a stable group a static member that was replaced before its first sync stays awaited under its former id."""
    former_ids = [member_id for member_id in group.awaiting_sync if member_id not in group.members]
    return len(former_ids) <= (len(group.static_members) if group.state is STABLE else 0)


def _counts_match(group: Group) -> bool:
    return group.protocol_counts == Counter(
        name for member in group.members.values() for name in dict.fromkeys(name for name, _ in member.protocols)
    )


def _is_cared_for(group: Group, member_id: str) -> bool:
    is_waiting = any(member_id in each for each in (group.parked_joins, group.parked_syncs, group.expected.waiting))
    return group.members[member_id].deadline_ms < inf or is_waiting


def _are_expected_outside(group: Group) -> bool:
    ids = [expected.member_id for expected in group.expected.instances.values()]
    is_member = any(each in group.members or each in group.pending_members for each in ids)
    return len(set(ids)) == len(ids) and not is_member and not group.static_members.keys() & group.expected.instances


def _is_stored_before(group: Group) -> bool:
    return group.stored is None or group.stored.generation_id <= group.generation_id


_RULES: tuple[tuple[str, Callable[[Group], object]], ...] = (
    ("a group that can be found is not Dead", lambda g: g.state is not DEAD),
    (
        "an Empty group has no members and no protocol",
        lambda g: g.state is not EMPTY or not (g.members or g.protocol_name),
    ),
    ("a generation has members", lambda g: not _is_in_generation(g) or bool(g.members)),
    ("a member is filed under its id", lambda g: all(m.member_id == i for i, m in g.members.items())),
    ("the leader is a member", lambda g: g.leader_id in g.members if g.members else g.leader_id is None),
    ("every static member, and nobody else, has its instance id mapped to it", _static_members_match),
    ("a pending id is not a member", lambda g: not any(i in g.members for i in g.pending_members)),
    ("members have a protocol type", lambda g: g.protocol_type is not None or not (g.members or g.generation_id)),
    ("the counts of supported protocols are those of the members", _counts_match),
    (
        "some protocol is supported by all members",
        lambda g: not g.members or len(g.members) in g.protocol_counts.values(),
    ),
    (
        "the protocol of a generation is supported by all its members",
        lambda g: not _is_in_generation(g) or g.protocol_counts.get(g.protocol_name or "") == len(g.members),
    ),
    (
        "only a consumer group knows the subscriptions of its generation",
        lambda g: not _is_in_generation(g) or g.subscribed_topics is None or g.protocol_type == CONSUMER_PROTOCOL_TYPE,
    ),
    ("joins are parked while a rebalance is prepared", lambda g: g.state is PREPARING_REBALANCE or not g.parked_joins),
    ("a parked join is a member's", lambda g: all(i in g.members for i in g.parked_joins)),
    (
        "no more joins are parked than the group may have members",
        lambda g: len(g.parked_joins) <= max(g.config.group_max_size, 1),
    ),
    ("a new member's join is parked", lambda g: all(i in g.parked_joins for i, m in g.members.items() if m.is_new)),
    (
        "syncs are parked while a rebalance is completed",
        lambda g: g.state is COMPLETING_REBALANCE or not g.parked_syncs,
    ),
    (
        "a parked sync is a member's that is not awaited any more",
        lambda g: all(i in g.members and i not in g.awaiting_sync for i in g.parked_syncs),
    ),
    (
        "a rebalance is completed as soon as the leader has synced",
        lambda g: g.state is not COMPLETING_REBALANCE or g.leader_id in g.awaiting_sync,
    ),
    (
        "syncs are awaited within a generation",
        lambda g: _is_in_generation(g) or not g.awaiting_sync,
    ),
    ("an awaited sync is a member's", _awaited_ids_are_known),
    (
        "the join timer runs exactly while a rebalance is prepared",
        lambda g: (g.join_deadline_ms < inf) == (g.state is PREPARING_REBALANCE),
    ),
    ("the sync timer runs while a sync is awaited", lambda g: g.sync_deadline_ms < inf or not g.awaiting_sync),
    (
        "the sync timer runs within a generation only",
        lambda g: g.sync_deadline_ms == inf or _is_in_generation(g),
    ),
    (
        "a member's session runs, or an answer is owed to the member",
        lambda g: all(_is_cared_for(g, i) for i in g.members),
    ),
    (
        "who is expected is filed under its instance id",
        lambda g: all(e.instance_id == i for i, e in g.expected.instances.items()),
    ),
    ("who is expected is no member yet", _are_expected_outside),
    (
        "joins wait only while somebody who is expected is missing",
        lambda g: not g.expected.waiting or g.expected.missing,
    ),
    (
        "the time of the waiting runs exactly while joins wait",
        lambda g: (g.expected.gathering_deadline_ms < inf) == bool(g.expected.waiting),
    ),
    (
        "a join that waits is not parked in the group too",
        lambda g: not any(i in g.parked_joins for i in g.expected.waiting),
    ),
    ("what the log has of a group is not newer than the group", _is_stored_before),
    ("a group with members has a deadline", lambda g: not g.members or g.earliest_deadline() < inf),
    ("the coordinator wakes up before every deadline", lambda g: g.wakeup_ms <= g.earliest_deadline()),
)
