"""The states of a consumer group and of its members (KIP-848), and the transitions between members' states."""

from collections.abc import Mapping
from enum import Enum


class ConsumerGroupState(Enum):
    """The states of a consumer group (Kafka's `ConsumerGroup.ConsumerGroupState`), as clients see them.

    The state is not stored; it is derived from epochs and members (`ConsumerGroup.state`):

    EMPTY: No members.
    ASSIGNING: The group epoch is newer than the assignment epoch. The next heartbeat runs the assignor.
    RECONCILING: A member has not reached its part of the target assignment.
    STABLE: All members have reached their parts of the target assignment.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(Enum):
    """The states of a member (Kafka's `MemberState`), with the values in the log.

    STABLE: The member has all partitions of its current assignment. In the assignment epoch, this is its whole target.
    UNREVOKED_PARTITIONS: The member has to give up partitions, and has not confirmed this yet. It stays in its epoch,
        and its rebalance timer runs.
    UNRELEASED_PARTITIONS: The member is at the epoch of the assignment, and waits for partitions that other members
        have not given up.
    UNKNOWN: The log has a state, written by a newer coordinator, that this coordinator does not know. The member has to
        give up all partitions.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


STABLE = MemberState.STABLE
UNREVOKED_PARTITIONS = MemberState.UNREVOKED_PARTITIONS
UNRELEASED_PARTITIONS = MemberState.UNRELEASED_PARTITIONS
UNKNOWN = MemberState.UNKNOWN

_KNOWN = (STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS)

TRANSITIONS: Mapping[MemberState, tuple[MemberState, ...]] = {
    STABLE: _KNOWN,
    UNREVOKED_PARTITIONS: _KNOWN,
    UNRELEASED_PARTITIONS: _KNOWN,
    UNKNOWN: _KNOWN,
}
"""The states that a heartbeat can lead to. A member also stays in its state, with another epoch or other partitions."""
