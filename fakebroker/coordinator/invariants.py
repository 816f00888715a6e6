"""Invariants of a group, which hold whenever no procedure of the group is running. Used by tests; read-only."""

from collections import Counter
from collections.abc import Callable
from math import inf

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)


class InvariantError(AssertionError):
    """A group breaks an invariant."""


def check(group: Group) -> None:
    """Check the invariants of a group.

    Raises:
        InvariantError: The group breaks a rule, which the message names.
    """
    rule = group.extension.broken_rule() or next((rule for rule, holds in _RULES if not holds(group)), None)
    if rule is not None:
        raise InvariantError(f"group {group.group_id!r} in state {group.state.value} breaks a rule: {rule}")


class StepChecker:
    """Checks the rules about changes, by comparing a group with its state at the last check."""

    def __init__(self) -> None:
        self._seen: dict[Group, tuple[int, str | None]] = {}

    def check_step(self, group: Group) -> None:
        """Compare generation and protocol of a group with those at its last check, and keep them for the next.

        Raises:
            InvariantError: The generation has decreased, or has changed its protocol.
        """
        generation_id, protocol_name = self._seen.get(group, (0, None))
        if group.generation_id < generation_id:
            raise InvariantError(
                f"group {group.group_id!r}: generation_id={group.generation_id}: expected at least {generation_id}"
            )
        if group.generation_id == generation_id and group.protocol_name != protocol_name:
            raise InvariantError(f"group {group.group_id!r}: generation {generation_id} has changed its protocol")
        self._seen[group] = (group.generation_id, group.protocol_name)


def _static_members_match(group: Group) -> bool:
    static = [member for member in group.members.values() if member.instance_id is not None]
    return len(static) == len(group.static_members) and all(
        group.static_members.get(member.instance_id or "") == member.member_id for member in static
    )


def _is_in_generation(group: Group) -> bool:
    return group.state is COMPLETING_REBALANCE or group.state is STABLE


def _awaited_ids_are_known(group: Group) -> bool:
    """Awaited ids belong to members; in a Stable group also to static members that were replaced before a sync."""
    former_ids = [member_id for member_id in group.awaiting_sync if member_id not in group.members]
    return len(former_ids) <= (len(group.static_members) if group.state is STABLE else 0)


def _counts_match(group: Group) -> bool:
    members = group.members.values()
    repeating = sum(len(member.protocols) > len(dict(member.protocols)) for member in members)
    named = Counter(name for member in members for name, _ in member.protocols)
    return group.protocol_counts == named and group.repeating_members == repeating


def _names_protocol_twice(group: Group) -> bool:
    """Return whether a member has named a protocol twice. Then the group may never select one, as in Kafka."""
    return group.repeating_members > 0


def _can_expire_or_is_waiting(group: Group, member_id: str) -> bool:
    waiting = (group.parked_joins, group.parked_syncs, group.extension.waiting_joins)
    return group.members[member_id].deadline_ms < inf or any(member_id in each for each in waiting)


def _stored_generation_is_not_newer(group: Group) -> bool:
    return group.stored_generation_id <= group.generation_id


_RULES: tuple[tuple[str, Callable[[Group], object]], ...] = (
    ("a group of the coordinator is not Dead", lambda g: g.state is not DEAD),
    (
        "an Empty group has no members and no protocol",
        lambda g: g.state is not EMPTY or not (g.members or g.protocol_name),
    ),
    ("a generation has members", lambda g: not _is_in_generation(g) or bool(g.members)),
    ("the key of a member is its id", lambda g: all(m.member_id == i for i, m in g.members.items())),
    ("the leader is a member", lambda g: g.leader_id in g.members if g.members else g.leader_id is None),
    ("the instance ids of static members, and no others, are mapped to their member ids", _static_members_match),
    ("a pending id is not a member", lambda g: not any(i in g.members for i in g.pending_members)),
    ("members have a protocol type", lambda g: g.protocol_type is not None or not (g.members or g.generation_id)),
    ("the counts of supported protocols match the members' protocols", _counts_match),
    (
        "some protocol is supported by all members",
        lambda g: not g.members or len(g.members) in g.protocol_counts.values() or _names_protocol_twice(g),
    ),
    (
        "the protocol of a generation is supported by all its members",
        lambda g: not _is_in_generation(g) or all(m.supports([g.protocol_name or ""]) for m in g.members.values()),
    ),
    (
        "only a consumer group has subscribed topics in a generation",
        lambda g: not _is_in_generation(g) or g.subscribed_topics is None or g.protocol_type == CONSUMER_PROTOCOL_TYPE,
    ),
    ("joins are parked while a rebalance is prepared", lambda g: g.state is PREPARING_REBALANCE or not g.parked_joins),
    ("a parked join belongs to a member", lambda g: all(i in g.members for i in g.parked_joins)),
    (
        "no more joins are parked than the group may have members",
        lambda g: len(g.parked_joins) <= max(g.config.group_max_size, 1),
    ),
    (
        "members are new while a rebalance is prepared",
        lambda g: g.state is PREPARING_REBALANCE or not any(m.is_new for m in g.members.values()),
    ),
    (
        "syncs are parked while a rebalance is completed",
        lambda g: g.state is COMPLETING_REBALANCE or not g.parked_syncs,
    ),
    (
        "a parked sync belongs to a member, and is no longer awaited",
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
    ("an awaited sync belongs to a member", _awaited_ids_are_known),
    (
        "the join timer runs exactly while a rebalance is prepared",
        lambda g: (g.join_deadline_ms < inf) == (g.state is PREPARING_REBALANCE) or _names_protocol_twice(g),
    ),
    ("the sync timer runs while a sync is awaited", lambda g: g.sync_deadline_ms < inf or not g.awaiting_sync),
    (
        "the sync timer runs within a generation only",
        lambda g: g.sync_deadline_ms == inf or _is_in_generation(g),
    ),
    (
        "the session of a member runs, or an answer to the member is pending",
        lambda g: all(_can_expire_or_is_waiting(g, i) for i in g.members),
    ),
    ("the stored generation is not newer than the group's generation", _stored_generation_is_not_newer),
    (
        "a group with members has a deadline",
        lambda g: not g.members or g.earliest_deadline() < inf or _names_protocol_twice(g),
    ),
    ("the group is scheduled no later than its earliest deadline", lambda g: g.scheduled_ms <= g.earliest_deadline()),
)
