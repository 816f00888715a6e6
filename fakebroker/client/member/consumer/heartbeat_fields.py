"""The fields of heartbeats: everything when joining, and after that only what has changed."""

from fakebroker.client.member.consumer.assignment import LocalAssignment, as_topics
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.requests import Identity
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2


def heartbeat(identity: Identity, member_epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat that reports no changes."""
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        member_epoch=member_epoch,
        instance_id=identity.instance_id,
    )


class HeartbeatFields:
    """What the coordinator knows from the last heartbeats (Kafka's `HeartbeatState.SentFields`)."""

    __slots__ = ("_assignment", "_assignor", "_pattern", "_rebalance_timeout_ms", "_topics")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """An error was returned, or no response: the next heartbeat contains everything again."""
        self._rebalance_timeout_ms: int | None = None
        self._topics: frozenset[str] | None = None
        self._pattern: str | None = None
        self._assignor: str | None = None
        self._assignment: LocalAssignment | None = None

    @property
    def is_known(self) -> bool:
        """Whether the coordinator knows everything, so that a heartbeat without changes reports nothing."""
        return self._assignment is not None

    def next_heartbeat(
        self,
        identity: Identity,
        member_epoch: int,
        settings: ConsumerMemberSettings,
        assignment: LocalAssignment,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat with the fields that have changed since the last one; with all of them to join."""
        joins = member_epoch == JOINING_EPOCH
        request = heartbeat(identity, member_epoch)
        if joins or settings.rebalance_timeout_ms != self._rebalance_timeout_ms:
            request.rebalance_timeout_ms = self._rebalance_timeout_ms = settings.rebalance_timeout_ms
        topics = frozenset(settings.topics)
        if joins or topics != self._topics:
            request.subscribed_topic_names, self._topics = list(settings.topics), topics
        if settings.pattern != self._pattern or (joins and settings.pattern is not None):
            request.subscribed_topic_regex, self._pattern = settings.pattern or "", settings.pattern
        if settings.server_assignor is not None and (joins or settings.server_assignor != self._assignor):
            request.server_assignor = self._assignor = settings.server_assignor
        if joins or assignment != self._assignment:
            request.topic_partitions, self._assignment = as_topics(assignment.partitions), assignment
        if joins:
            request.rack_id = settings.rack_id
        return request
