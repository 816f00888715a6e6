"""A consumer of the rewrite design without a driver."""

from typing import Any

from fakebroker.client.member.rewrite.rewrite_member import RewriteMember
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.client.member.rewrite.states import RewriteMemberState
from fakebroker.proposals.consumer_rewrite.messages import (
    RewriteJoinGroupRequest,
    RewriteJoinGroupResponse,
    RewriteOwnedTopic,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.topic_partition import TopicPartition, by_topic
from tests.support.client.base_harness import BaseHarness, R
from tests.support.group_responses import commit_response, offset_fetch_response

SESSION_MS = 9_000
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000
RETRY_MS = 100


def join_answer(generation_id: int, consumer_id: str, *partitions: TopicPartition) -> RewriteJoinGroupResponse:
    owned = [RewriteOwnedTopic(topic_name=topic, partitions=each) for topic, each in by_topic(partitions).items()]
    return RewriteJoinGroupResponse(group_generation_id=generation_id, consumer_id=consumer_id, partitions_to_own=owned)


class RewriteHarness(BaseHarness[RewriteMember]):
    """A consumer of the group "g" that subscribes to the topic "t"; it is not started.

    Args:
        settings: Settings other than the defaults here.
    """

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "group_id": "g",
            "client_id": "c",
            "topics": ("t",),
            "session_timeout_ms": SESSION_MS,
            "heartbeat_frequency": SESSION_MS / HEARTBEAT_MS,
            "commit_interval_ms": COMMIT_MS,
            "retry_backoff_ms": RETRY_MS,
        }
        super().__init__(RewriteMember(RewriteSettings(**(defaults | settings))))

    def state(self) -> RewriteMemberState:
        return self.member.state

    def sent(self, kind: type[R]) -> R:
        """Take the effects, and return the only request among them, which must be of this class."""
        (request,) = self.requests()
        assert isinstance(request, kind), request
        return request

    def sent_join(self) -> RewriteJoinGroupRequest:
        """Take the effects, and return the only JoinGroup among them."""
        (join,) = [request for request in self.requests() if isinstance(request, RewriteJoinGroupRequest)]
        return join

    def start_joining(self) -> RewriteJoinGroupRequest:
        """Start the consumer and return its first JoinGroup."""
        self.member.start(self.now_ms)
        self.effects()
        self.discovered()
        return self.sent(RewriteJoinGroupRequest)

    def enter(self, *partitions: TopicPartition) -> None:
        """Take the consumer into generation 1 as "g-1", with these partitions and the offset 5 in each."""
        partitions = partitions or (("t", 0),)
        self.respond(self.start_joining(), join_answer(1, "g-1", *partitions))
        self.respond(self.sent(OffsetFetchRequest), offset_fetch_response(dict.fromkeys(partitions, 5)))
        assert self.state() is RewriteMemberState.PART_OF_GROUP

    def beat(self) -> HeartbeatRequest:
        """Advance to the next heartbeat and return it."""
        self.advance(self.member.next_heartbeat_ms - self.now_ms)
        return self.sent(HeartbeatRequest)

    def beat_and_pass(self) -> None:
        self.respond(self.beat(), HeartbeatResponse())

    def accept(self, commit: OffsetCommitRequest) -> None:
        self.respond(commit, commit_response(commit))
