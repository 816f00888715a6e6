"""A member of a consumer group of KIP-848 without a driver."""

from itertools import count
from typing import Any

from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.consumer.states import ConsumerMemberState
from fakebroker.client.member.effects import Discover
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.topic_partition import TopicPartition, by_topic
from tests.support.client.base_harness import BaseHarness
from tests.support.group_responses import offset_fetch_response

INTERVAL_MS = 5_000
COMMIT_MS = 7_000
REBALANCE_MS = 60_000
REQUEST_MS = 30_000
RETRY_MS = 100
TOPIC_IDS = {"t": b"t" * 16, "u": b"u" * 16}
NAMES = {topic_id: name for name, topic_id in TOPIC_IDS.items()}


def assignment(*partitions: TopicPartition) -> HeartbeatAssignment:
    """Build the assignment of a response."""
    topics = by_topic(partitions).items()
    return HeartbeatAssignment(
        topic_partitions=[HeartbeatTopicPartitions(topic_id=TOPIC_IDS[name], partitions=each) for name, each in topics]
    )


def reported(request: ConsumerGroupHeartbeatRequest) -> list[TopicPartition] | None:
    """Return the partitions that a heartbeat reports as owned; None if it reports no change."""
    topics = request.topic_partitions
    return None if topics is None else [(NAMES[t.topic_id], index) for t in topics for index in t.partitions]


class ConsumerMemberHarness(BaseHarness[ConsumerMember]):
    """A member of the group "g" that subscribes to the topic "t" as "m-1"; it is not started.

    Args:
        settings: Settings other than the defaults here.
    """

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "group_id": "g",
            "client_id": "c",
            "topics": ("t",),
            "rebalance_timeout_ms": REBALANCE_MS,
            "commit_interval_ms": COMMIT_MS,
            "retry_backoff_ms": RETRY_MS,
            "request_timeout_ms": REQUEST_MS,
        }
        ids = count(1)
        super().__init__(ConsumerMember(ConsumerMemberSettings(**(defaults | settings)), lambda: f"m-{next(ids)}"))

    def state(self) -> ConsumerMemberState:
        """Return the state. This is a method because type checkers assume that a property keeps its value."""
        return self.member.state

    def sent_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Take the effects, and return the only heartbeat among them."""
        return self.sent(ConsumerGroupHeartbeatRequest)

    def accept(
        self,
        request: ConsumerGroupHeartbeatRequest,
        epoch: int,
        assigned: HeartbeatAssignment | None = None,
        *,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """Respond to a heartbeat."""
        response = ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assigned,
        )
        self.respond(request, response)

    def name_topics(self, *topics: str) -> None:
        """Report the ids of topics, by default of all."""
        ids = {name: TOPIC_IDS[name] for name in topics or TOPIC_IDS}
        self.member.metadata(dict.fromkeys(ids, 6), self.now_ms, topic_ids=ids)

    # Steps into a group

    def start_joining(self) -> ConsumerGroupHeartbeatRequest:
        """Start the member, find its coordinator, and return its first heartbeat."""
        self.member.start(self.now_ms)
        assert isinstance(self.effects()[-1], Discover)
        self.discovered()
        return self.sent_heartbeat()

    def assign(self, request: ConsumerGroupHeartbeatRequest, epoch: int, *partitions: TopicPartition) -> None:
        """Name the topics, respond with the first assignment, and to the acknowledgement; offsets are 10."""
        self.name_topics()
        self.accept(request, epoch, assignment(*partitions))
        requests = self.requests()
        for each in requests:
            if isinstance(each, OffsetFetchRequest):
                self.respond(each, offset_fetch_response(dict.fromkeys(partitions, 10)))
            else:
                assert isinstance(each, ConsumerGroupHeartbeatRequest)
                self.accept(each, epoch)

    def enter(self, *partitions: TopicPartition, epoch: int = 1) -> "ConsumerMemberHarness":
        """Take all steps to be a stable member with these partitions, each at offset 10."""
        self.assign(self.start_joining(), epoch, *partitions)
        assert self.state() is ConsumerMemberState.STABLE
        return self

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        """Advance to the next heartbeat and return it."""
        self.advance(self.member.next_heartbeat_ms - self.now_ms)
        return self.sent_heartbeat()
