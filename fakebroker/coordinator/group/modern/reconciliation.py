"""The next step of one member towards its target assignment (Kafka's `CurrentAssignmentBuilder`).

A partition moves in two steps: its owner confirms that it has given it up, then another member gets it.
"""

from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.member import NO_PARTITIONS, ConsumerGroupMember, Partitions, overlap
from fakebroker.coordinator.group.modern.states import STABLE, UNKNOWN, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from fakebroker.errors import ErrorCode

FREE = -1
"""The epoch of a partition that no member has."""

_NO_INDEXES: frozenset[int] = frozenset()


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What the next step of a member depends on.

    Attributes:
        target: The target assignment of the member.
        target_epoch: The epoch of the target assignment.
        subscribed_topic_ids: The topics that the member is subscribed to, of those that exist.
        subscription_changed: Whether this heartbeat changed the subscription.
        owned: The partitions that the member reports in this heartbeat, or None if it does not report them.
        epoch_of: Returns the epoch of a partition's owner, or `FREE`.
        raises_epoch: Whether a member that has given up partitions, and has to give up others, gets the next epoch,
            as before KAFKA-19974.
        sets_previous_epoch: Whether a member that gives up unsubscribed topics has its present epoch as the previous
            one, too, as since 4.3.
    """

    target: Partitions
    target_epoch: int
    subscribed_topic_ids: Collection[bytes]
    subscription_changed: bool
    owned: Partitions | None
    epoch_of: Callable[[bytes, int], int]
    raises_epoch: bool = False
    sets_previous_epoch: bool = True

    def next_state(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Return the member after this heartbeat; the member itself if nothing changes.

        Raises:
            HeartbeatError: FENCED_MEMBER_EPOCH: the state of the member is unknown, and it has not given up everything.
        """
        if member.state is STABLE:
            if member.member_epoch != self.target_epoch:
                return self._advance(member, member.member_epoch)
            return self._without_unsubscribed(member) if self.subscription_changed else member
        if member.state is UNREVOKED_PARTITIONS:
            if self._still_owns(member.pending_revocation):
                return self._without_unsubscribed(member) if self.subscription_changed else member
            # If the subscription changed before there was a new target, the epoch must not pass that of the target.
            next_epoch = min(member.member_epoch + 1, self.target_epoch)
            return self._advance(member, next_epoch if self.raises_epoch else member.member_epoch)
        if member.state is UNRELEASED_PARTITIONS:
            return self._advance(member, member.member_epoch)
        assert member.state is UNKNOWN
        if self.owned is None or self.owned:
            text = (
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin."
            )
            raise HeartbeatError(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return self._advance(member, self.target_epoch)

    def _still_owns(self, revoked: Partitions) -> bool:
        return self.owned is None or overlap(self.owned, revoked)

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Take away the partitions of topics that the member is not subscribed to, without regard to the target."""
        kept = {topic: indexes for topic, indexes in member.assigned.items() if topic in self.subscribed_topic_ids}
        if len(kept) == len(member.assigned):
            return member
        revoked = dict(member.pending_revocation)
        for topic, indexes in member.assigned.items():
            if topic not in kept:
                revoked[topic] = revoked.get(topic, _NO_INDEXES) | indexes
        if self._still_owns(revoked):
            moved = member.moved_to(UNREVOKED_PARTITIONS, member.member_epoch, kept, revoked)
            return moved if self.sets_previous_epoch else replace(moved, previous_epoch=member.previous_epoch)
        return replace(member, assigned=kept)

    def _advance(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        """Return the member on its way to the target; `epoch` is its epoch if it first has to give up partitions."""
        kept: dict[bytes, frozenset[int]] = {}
        revoked: dict[bytes, frozenset[int]] = {}
        added: dict[bytes, frozenset[int]] = {}
        is_blocked = False
        for topic in dict.fromkeys([*self.target, *member.assigned]):
            is_subscribed = topic in self.subscribed_topic_ids
            target = self.target.get(topic, _NO_INDEXES) if is_subscribed else _NO_INDEXES
            assigned = member.assigned.get(topic, _NO_INDEXES)
            wanted = target - assigned
            # What the member itself is giving up is free for it.
            own = member.pending_revocation.get(topic, _NO_INDEXES)
            free = frozenset(index for index in wanted if index in own or self.epoch_of(topic, index) == FREE)
            is_blocked = is_blocked or len(free) < len(wanted)
            for sets, indexes in ((kept, assigned & target), (revoked, assigned - target), (added, free)):
                if indexes:
                    sets[topic] = indexes
        if revoked and self._still_owns(revoked):
            return member.moved_to(UNREVOKED_PARTITIONS, epoch, kept, revoked)
        for topic, indexes in added.items():
            kept[topic] = kept.get(topic, _NO_INDEXES) | indexes
        state = UNRELEASED_PARTITIONS if is_blocked else STABLE
        return member.moved_to(state, self.target_epoch, kept, NO_PARTITIONS)
