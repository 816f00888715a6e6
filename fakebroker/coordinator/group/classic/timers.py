"""Which timer of a group runs out, where several could. What happens then is the business of its procedure."""

from fakebroker.coordinator.group.batch_join import gathering
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.rebalance import expire_join, expire_pending, expire_session, expire_sync


def fire_earliest_timer(group: Group, now_ms: float) -> None:
    """Lets the one timer run out that is due first.

    At the same deadline sessions come first, in the order the members were added, then pending ids in the order they
    were told, then the join timer, then the sync timer, and last the time of those who are expected. Whoever keeps
    sessions of the group is told before.
    """
    for member in group.members.values():
        if member.keeper is not None:
            member.keeper(group.group_id)
    deadline_ms = group.earliest_deadline()
    for member in group.members.values():
        if member.session_ends_ms == deadline_ms:
            return expire_session(group, member, now_ms)
    for member_id, pending_deadline_ms in group.pending_members.items():
        if pending_deadline_ms == deadline_ms:
            return expire_pending(group, member_id, now_ms)
    if group.join_deadline_ms == deadline_ms:
        return expire_join(group, now_ms)
    if group.sync_deadline_ms == deadline_ms:
        return expire_sync(group, now_ms)
    return gathering.expire(group, now_ms)
