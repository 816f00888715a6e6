"""ConsumerGroupHeartbeat as plain data, and the checks that do not depend on the group."""

from collections.abc import Callable, Collection, Iterator

import msgspec

from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ClassicMemberMetadata,
    Partitions,
)
from fakebroker.errors import ErrorCode

_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


class ConsumerGroupHeartbeat(msgspec.Struct, kw_only=True):
    """One ConsumerGroupHeartbeat request (KIP-848). `None` and -1 mean that a value has not changed.

    Attributes:
        member_epoch: That of the member; 0 to join, -1 to leave, -2 to leave for a while as a static member.
        client_host: In Kafka's form, such as "/127.0.0.1".
        subscribed_topic_regex: A regular expression for names of topics, in addition to those in
            `subscribed_topic_names`; "" for none.
        owned: The partitions that the member has.
        may_describe: Whether the client may describe a topic; None if it may describe all. Regular expressions do not
            find other topics.
        requires_member_id: Whether also a member that joins has to give its id (versions 1 and up).
        classic: Set if the request is a JoinGroup (`classic_members.join`).
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    may_describe: Callable[[str], bool] | None = None
    requires_member_id: bool = False
    classic: ClassicMemberMetadata | None = None

    @property
    def is_joining(self) -> bool:
        return self.member_epoch == JOINING_EPOCH

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member reports everything, as it does after an error: then the response has its assignment."""
        return self.rebalance_timeout_ms != -1 and self.has_subscription and self.owned is not None

    @property
    def has_subscription(self) -> bool:
        """Whether the request has names of topics, or a regular expression."""
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None


class HeartbeatResult(msgspec.Struct):
    """The result of a ConsumerGroupHeartbeat.

    Attributes:
        message: The message of an error.
        assignment: What the member may use; None if it has not changed.
        regexes_to_resolve: All regular expressions of the group, if they are to be resolved next, in a step of its own.
    """

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    regexes_to_resolve: Collection[str] = ()


def check(request: ConsumerGroupHeartbeat, assignors: Collection[str]) -> None:
    """Check a request by itself, in Kafka's order (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).

    Raises:
        HeartbeatError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    fault = next(_faults(request), None)
    if fault is not None:
        raise HeartbeatError(ErrorCode.INVALID_REQUEST, fault)
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        known = ", ".join(assignors)
        text = f"ServerAssignor {wanted} is not supported. Supported assignors: {known}."
        raise HeartbeatError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _faults(request: ConsumerGroupHeartbeat) -> Iterator[str]:
    needs_id = request.requires_member_id or request.member_epoch > 0 or request.member_epoch == LEAVING_EPOCH
    if needs_id and _is_blank(request.member_id):
        yield "MemberId can't be empty."
    if _is_blank(request.group_id):
        yield "GroupId can't be empty."
    if _is_blank(request.instance_id):
        yield "InstanceId can't be empty."
    if _is_blank(request.rack_id):
        yield "RackId can't be empty."
    if request.is_joining:
        if request.rebalance_timeout_ms == -1:
            yield "RebalanceTimeoutMs must be provided in first request."
        if request.owned is None or request.owned:
            yield "TopicPartitions must be empty when (re-)joining."
        if not request.has_subscription:
            yield "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif request.member_epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            yield "InstanceId can't be null."
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        yield "MemberEpoch is invalid."


def _is_blank(value: str | None) -> bool:
    return value is not None and not value.strip(_JAVA_WHITESPACE)
