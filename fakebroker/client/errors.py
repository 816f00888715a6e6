"""The exceptions that the clients raise, and error codes read from responses.

Errors in arguments are `ConfigError`, timeouts `WaitTimeout`; both are defined in `fakebroker.errors`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.schema import Versions
from fakebroker.topic_partition import TopicPartition, format_partitions

# Names are Kafka's or those of the consumer rewrite design, without "Exception": hence no suffix "Error".
# ruff: noqa: N818

_CODES = {int(error): error for error in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the error code of a number in a response; an unknown number counts as UNKNOWN_SERVER_ERROR."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


# Connections


class BrokerUnreachable(FakebrokerError):
    """No connection could be established, or the peer is not a Kafka broker.

    Args:
        broker: The broker, such as "broker 127.0.0.1:9092".
        why: The reason.
    """

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(f"{broker} cannot be reached: {why}")
        self.broker, self.why = broker, why

    @classmethod
    def of_all(cls, reasons: "Sequence[BrokerUnreachable]") -> "BrokerUnreachable":
        """Combine the errors of several brokers into one."""
        brokers = ", ".join(each.broker.removeprefix("broker ") for each in reasons)
        return cls(f"brokers {brokers}", "; ".join(dict.fromkeys(each.why for each in reasons)))


class AuthenticationFailed(FakebrokerError):
    """The broker has refused the credentials, or its certificate is not valid: connecting again would fail, too.

    Args:
        broker: The broker, such as "broker 127.0.0.1:9092".
        why: The reason.
    """

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(f"{broker}: {why}")
        self.broker, self.why = broker, why


class ConnectionLost(FakebrokerError):
    """The connection was closed. Whether the broker has processed the requests in flight is unknown."""


class RequestTimedOut(ConnectionLost):
    """There was no response in time. The client has closed the connection."""


class ClientClosed(ConnectionLost):
    """The client was closed before the response arrived."""


class UnsupportedVersion(FakebrokerError):
    """The broker does not support the API in a version that this client supports and the request needs.

    Attributes:
        hint: Appended to the message.
    """

    hint: ClassVar[str] = ""

    def __init__(self, api: str, theirs: Versions | None, ours: Versions, broker: str = "the broker") -> None:
        super().__init__(f"{api}: {broker} supports {theirs or 'no version'}, this client {ours}{self.hint}")
        self.api, self.theirs, self.ours, self.broker = api, theirs, ours, broker


# Consumer


class ConsumerError(FakebrokerError):
    """Base class of the errors that the consumer raises."""


class InvalidSubscription(ConsumerError):
    """The argument is not a topic, pattern or partition, or conflicts with the current subscription."""


class EmptySubscription(ConsumerError):
    """Nothing is subscribed to or assigned."""


class InitialOffsetUnknown(ConsumerError):
    """The start position is unknown: no offset is committed, and there is no reset policy.

    Attributes:
        partitions: The partitions that need a `seek`.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(
            f"partitions {format_partitions(self.partitions)}: no offset is committed and auto_offset_reset is None, "
            "expected a seek to an offset"
        )


class OffsetOutOfRange(ConsumerError):
    """The log does not contain the offset, and there is no reset policy."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            f"partition {format_partitions([partition])}: offset {offset} is out of range and auto_offset_reset is "
            "None, expected an offset in the log"
        )


class PartitionsNotAssigned(ConsumerError):
    """The partitions are not assigned to this consumer."""

    def __init__(self, partitions: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(
            f"partitions {format_partitions(self.partitions)}: not assigned, "
            f"expected some of {format_partitions(assigned)}"
        )


class CommitFailed(ConsumerError):
    """Offsets were not committed.

    Args:
        error: The coordinator's error.
        group_id: The group.
        why: Text to append to the message.

    Attributes:
        error: The coordinator's error; REQUEST_TIMED_OUT if there was no response in time.
    """

    def __init__(self, error: ErrorCode, group_id: str, why: str = "") -> None:
        self.error = error
        super().__init__(f"commit of group {group_id!r}: {error.name}, expected NONE{_ADVICE.get(error, '')}{why}")


_ADVICE = {
    ErrorCode.REBALANCE_IN_PROGRESS: "; the group is rebalancing, the next poll joins it",
    ErrorCode.ILLEGAL_GENERATION: "; the group has rebalanced, and other members may own the partitions",
    ErrorCode.UNKNOWN_MEMBER_ID: "; the group has removed this consumer, the next poll joins again",
}


class BrokerRefused(ConsumerError):
    """A broker returned an error that retrying does not resolve.

    Attributes:
        error: The broker's error.
    """

    def __init__(self, what: str, error: ErrorCode) -> None:
        self.error = error
        super().__init__(f"{what}: {error.name}, expected NONE")


class RecordsUnreadable(ConsumerError):
    """Fetched records are damaged, or larger than the fetch size. The next poll fetches them again."""

    def __init__(self, partition: TopicPartition, offset: int, fault: Exception) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(f"partition {format_partitions([partition])} at offset {offset}: {fault}")


class GroupFailed(ConsumerError):
    """The coordinator rejected the consumer or its look-up of offsets, and a retry does not resolve that.

    Attributes:
        error: The coordinator's error; REQUEST_TIMED_OUT if a look-up timed out.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        super().__init__(message)


# Admin client


class AdminError(FakebrokerError):
    """A request of the admin client failed for one key: a group, topic, broker ...

    Args:
        key: The group, topic, broker ...
        api: The API, by Kafka's name.
        error: The error code.
        why: Details, if known.

    Attributes:
        what: The message without the key.
    """

    kind: ClassVar[str] = "key"

    def __init__(self, key: str, api: str, error: ErrorCode, why: str | None = None) -> None:
        self.key, self.api, self.error = key, api, error
        self.what = f"{api} failed with {error.name}" + (f": {why}" if why else "")
        super().__init__(f"{self.kind} {key!r}: {self.what}")


class GroupError(AdminError):
    """A request failed for one group.

    Attributes:
        partitions: The errors by partition if single partitions failed; empty if the group as a whole failed.
    """

    kind = "group"

    def __init__(
        self,
        group: str,
        api: str,
        error: ErrorCode,
        why: str | None = None,
        partitions: Mapping[TopicPartition, ErrorCode] | None = None,
    ) -> None:
        super().__init__(group, api, error, why)
        self.partitions = dict(partitions or {})

    @property
    def group(self) -> str:
        return self.key


class TransactionError(AdminError):
    """A request failed for one transactional id."""

    kind = "transactional id"


class PartitionError(AdminError):
    """A request failed for one partition.

    Attributes:
        partition: The partition.
    """

    kind = "partition"

    def __init__(self, partition: TopicPartition, api: str, error: ErrorCode, why: str | None = None) -> None:
        super().__init__(format_partitions([partition]), api, error, why)
        self.partition = partition


class MemberError(AdminError):
    """A request failed for one member, named by its instance id or its member id."""

    kind = "member"

    @property
    def instance_id(self) -> str:
        return self.key


class TopicError(AdminError):
    """A request failed for one topic."""

    kind = "topic"

    @property
    def topic(self) -> str:
        return self.key


class BrokerError(AdminError):
    """A request failed at one broker."""

    kind = "broker"


class NoBatchedFindCoordinators(UnsupportedVersion):
    """The broker looks up one coordinator per request (before KIP-699), and `fall_back` is False."""

    hint = " for several keys per request; fall_back=False forbids one request per key"


class NoBatchedOffsetFetch(UnsupportedVersion):
    """The broker returns the offsets of one group per request (before KIP-709), and `fall_back` is False."""

    hint = NoBatchedFindCoordinators.hint


class NoBatchJoin(UnsupportedVersion):
    """The broker does not support JoinGroup for several members (the batch-join proposal)."""

    hint = "; adding members needs a broker with the batch-join proposal"
