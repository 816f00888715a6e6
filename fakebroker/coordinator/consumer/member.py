"""One member of a consumer group, as immutable data, and the error of its requests."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.consumer.states import STABLE, TRANSITIONS, MemberState
from fakebroker.errors import ErrorCode


class HeartbeatError(Exception):
    """A request is rejected; no record was written.

    Attributes:
        error: The error code.
        message: Kafka's message, which clients see in the response to a ConsumerGroupHeartbeat; None if it has none.
    """

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


FREE = -1
"""The epoch of a partition that no member has."""

Partitions = Mapping[bytes, frozenset[int]]
"""Sets of partitions by topic id, without empty sets. Not modified."""

NO_PARTITIONS: Partitions = {}

AssignmentEpochs = Mapping[tuple[bytes, int], int]
"""Assignment epochs by topic id and partition."""

ALL_IN_MEMBER_EPOCH: AssignmentEpochs = {}
"""The assignment epochs of a member that has got all of its partitions in its present epoch."""

JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH = 0, -1, -2
"""Epochs in requests: of a member that joins, that leaves, and of a static member that leaves for a while."""


class ClassicMemberMetadata(msgspec.Struct, frozen=True):
    """What a member that uses the classic protocol has reported in its JoinGroup.

    Attributes:
        protocols: Pairs of name and metadata, in order of preference; at least one.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member (Kafka's `ConsumerGroupMember`).

    Attributes:
        instance_id: Set for a static member.
        client_host: In Kafka's form, such as "/127.0.0.1".
        subscribed_topic_regex: A regular expression for further topics; "" if there is none.
        rebalance_timeout_ms: How long the member may take to give up partitions; -1 until it is known.
        server_assignor: The assignor that the member votes for, if any.
        member_epoch: 0 for a new member; -2 for a static member that has left for a while.
        previous_epoch: The epoch before the last change of the epoch; -1 for a new member.
        assigned: The partitions that the member may use.
        pending_revocation: The partitions that the member has to give up and has not confirmed.
        older_epochs: The epoch in which the member got a partition, of those that it did not get in its present epoch
            (KIP-1251).
        classic: Set for a member that uses the classic protocol: its generation is its member epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    rebalance_timeout_ms: int = -1
    member_epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = STABLE
    assigned: Partitions = msgspec.field(default_factory=dict)
    pending_revocation: Partitions = msgspec.field(default_factory=dict)
    older_epochs: AssignmentEpochs = msgspec.field(default_factory=lambda: ALL_IN_MEMBER_EPOCH)
    classic: ClassicMemberMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all of its target in this epoch of the assignment."""
        return self.state is STABLE and self.member_epoch == assignment_epoch

    def moved_to(
        self, state: MemberState, member_epoch: int, assigned: Partitions, pending_revocation: Partitions
    ) -> "ConsumerGroupMember":
        """Return the member in another state. Only this method changes the state.

        Raises:
            RuntimeError: `TRANSITIONS` does not have the transition.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"member {self.member_id!r}: no transition from {self.state.name} to {state.name}")
        moved = self.in_epoch(member_epoch, assigned, pending_revocation)
        return replace(moved, state=state, previous_epoch=self.member_epoch)

    def in_epoch(
        self, member_epoch: int, assigned: Partitions, pending_revocation: Partitions = NO_PARTITIONS
    ) -> "ConsumerGroupMember":
        """Return the member in an epoch, in which it gets the partitions that it does not have yet."""
        older_epochs = self.older_epochs
        if older_epochs or member_epoch != self.member_epoch:
            older_epochs = {
                (topic_id, index): epoch
                for partitions in (assigned, pending_revocation)
                for topic_id, indexes in partitions.items()
                for index in indexes
                if (epoch := self.assignment_epoch(topic_id, index)) not in (None, member_epoch)
            } or ALL_IN_MEMBER_EPOCH
        return replace(
            self,
            member_epoch=member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
            older_epochs=older_epochs,
        )

    def assignment_epoch(self, topic_id: bytes, index: int) -> int | None:
        """Return the epoch in which the member got a partition; None if it does not have it."""
        if index in self.assigned.get(topic_id, ()) or index in self.pending_revocation.get(topic_id, ()):
            return self.older_epochs.get((topic_id, index), self.member_epoch)
        return None


def contains_all(partitions: Partitions, some: Partitions) -> bool:
    """Return whether all topics and partitions of `some` are in `partitions`."""
    return all(topic_id in partitions and indexes <= partitions[topic_id] for topic_id, indexes in some.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    """Return whether two sets have a partition in common."""
    return any(indexes & other.get(topic_id, frozenset()) for topic_id, indexes in one.items())
