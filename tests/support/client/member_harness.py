"""A member of the classic protocol without a driver."""

from typing import Any

from fakebroker.client.member.effects import Assigned, Discover, FetchMetadata, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.protocol.consumer_protocol import Subscription, encode_assignment, encode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition
from tests.support.client.base_harness import BaseHarness
from tests.support.group_responses import join_response, offset_fetch_response

SESSION_MS = 10_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000


class MemberHarness(BaseHarness[Member]):
    """A member of the group "g" that subscribes to the topic "t"; it is not started.

    `start_joining`, `follow` and `assign` are steps into the group, and `enter` takes all of them.

    Args:
        settings: Settings of the member other than the defaults here.
    """

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "group_id": "g",
            "client_id": "c",
            "topics": ("t",),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "commit_interval_ms": COMMIT_MS,
        }
        super().__init__(Member(MemberSettings(**(defaults | settings))))

    def state(self) -> MemberState:
        """Return the state. This is a method because type checkers assume that a property keeps its value."""
        return self.member.state

    # Steps into a group; each step starts in the state in which the previous step ends.

    def start_joining(self) -> JoinGroupRequest:
        """Start the member, find its coordinator, and return its JoinGroup."""
        self.member.start(self.now_ms)
        self.only(Discover)
        self.discovered()
        return self.sent(JoinGroupRequest)

    def follow(self, join: JoinGroupRequest, generation_id: int = 1, member_id: str = "m") -> SyncGroupRequest:
        """Complete the join with another member as the leader; return the SyncGroup."""
        self.respond(join, join_response(member_id, "leader", generation_id))
        return self.sent(SyncGroupRequest)

    def lead(self, join: JoinGroupRequest, *others: Subscription) -> FetchMetadata:
        """Complete the join with this member ("m") as the leader; return its look-up of partition counts."""
        response = join_response("m", "m")
        response.members = [
            JoinGroupResponseMember(member_id="m", metadata=join.protocols[0].metadata),
            *(
                JoinGroupResponseMember(
                    member_id=o.member_id, metadata=encode_subscription(o.topics, o.owned_partitions, o.generation_id)
                )
                for o in others
            ),
        ]
        self.respond(join, response)
        return self.only(FetchMetadata)

    def assign(self, sync: SyncGroupRequest, *partitions: TopicPartition) -> OffsetFetchRequest | None:
        """Complete the SyncGroup with an assignment; return the request for the offsets of new partitions, if any."""
        self.respond(sync, SyncGroupResponse(assignment=encode_assignment(partitions)))
        effects = self.effects()
        assert any(isinstance(effect, Assigned) for effect in effects), effects
        fetches = [e.request for e in effects if isinstance(e, Send) and isinstance(e.request, OffsetFetchRequest)]
        return fetches[0] if fetches else None

    def enter(self, *partitions: TopicPartition) -> "MemberHarness":
        """Take all steps to be a follower with these partitions, each at offset 10."""
        fetch = self.assign(self.follow(self.start_joining()), *partitions)
        if fetch is not None:
            self.respond(fetch, offset_fetch_response(dict.fromkeys(partitions, 10)))
        return self

    def sent_heartbeat(self) -> HeartbeatRequest:
        """Advance to the next heartbeat and return it."""
        self.advance(HEARTBEAT_MS)
        return self.sent(HeartbeatRequest)
