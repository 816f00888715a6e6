"""What a consumer raises. Each sentence names the thing, what it is, and what was expected."""

from collections.abc import Iterable

from fakebroker.client.member.assignors import TopicPartition
from fakebroker.errors import ErrorCode, FakebrokerError


class ConsumerError(FakebrokerError):
    """Base of what a consumer raises on purpose."""


class InvalidSubscription(ConsumerError):  # noqa: N818  # the design's name: SubscriptionNotValidException
    """What was to be subscribed to is no topic or pattern, or does not go with what is subscribed to already."""


class EmptySubscription(ConsumerError):  # noqa: N818  # the design's name: SubscriptionIsEmptyException
    """Nothing is subscribed to or assigned."""


class InitialOffsetUnknown(ConsumerError):  # noqa: N818  # the design's name: ConsumeInitOffsetNotKnownException
    """Where to begin is not known: nothing is committed, and no reset policy is set.

    Attributes:
        partitions: Those that `seek` has to give an offset to.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(
            f"partitions {named(self.partitions)}: no offset is committed and auto_offset_reset is None, "
            "expected a seek to an offset"
        )


class OffsetOutOfRange(ConsumerError):  # noqa: N818  # Kafka's name
    """The log does not have the offset any more, or not yet, and no reset policy is set."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            f"partition {named([partition])}: offset {offset} is out of range and auto_offset_reset is None, "
            "expected an offset that the log has"
        )


class PartitionsNotAssigned(ConsumerError):  # noqa: N818  # the design's: InvalidPartitionsToCommitOffsetException
    """Something was asked of partitions that are not this consumer's."""

    def __init__(self, partitions: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(f"partitions {named(self.partitions)}: not assigned, expected some of {named(assigned)}")


class CommitFailed(ConsumerError):  # noqa: N818  # Kafka's name
    """Offsets were not committed.

    Attributes:
        error: Why.
    """

    def __init__(self, error: ErrorCode, group_id: str) -> None:
        self.error = error
        super().__init__(f"commit of group {group_id!r}: {error.name}, expected NONE{_ADVICE.get(error, '')}")


class BrokerRefused(ConsumerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """A broker has answered an error that asking again does not mend.

    Attributes:
        error: The error.
    """

    def __init__(self, what: str, error: ErrorCode) -> None:
        self.error = error
        super().__init__(f"{what}: {error.name}, expected NONE")


class RecordsUnreadable(ConsumerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """What a leader has sent is damaged, or too large for what was asked for; it is asked for again."""

    def __init__(self, partition: TopicPartition, offset: int, fault: Exception) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(f"partition {named([partition])} at offset {offset}: {fault}")


class GroupFailed(ConsumerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """The consumer is out of its group for a reason that cannot be mended by joining again.

    Attributes:
        error: What the coordinator said.
    """

    def __init__(self, error: ErrorCode, sentence: str) -> None:
        self.error = error
        super().__init__(sentence)


_ADVICE = {
    ErrorCode.REBALANCE_IN_PROGRESS: "; the group is rebalancing, the next poll joins it",
    ErrorCode.ILLEGAL_GENERATION: "; the group has rebalanced, and the partitions may be another's",
    ErrorCode.UNKNOWN_MEMBER_ID: "; the group goes on without this consumer, the next poll joins it",
}


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as Kafka writes them: orders-0, orders-1."""
    return ", ".join(f"{topic}-{index}" for topic, index in partitions) or "none"
