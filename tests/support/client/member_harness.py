"""A group member without a driver: tests take its effects, write the responses and move the clock."""

from typing import Any, TypeVar

from fakebroker.client.member.effects import (
    Assigned,
    Discover,
    Effect,
    FetchMetadata,
    GroupRequest,
    GroupResponse,
    Send,
)
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.protocol.consumer_protocol import Subscription, encode_assignment, encode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition
from tests.support.group_responses import error_response, join_response, offset_fetch_response
from tests.support.virtual_time import START_MS

SESSION_MS = 10_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000

E = TypeVar("E", bound=Effect)
R = TypeVar("R", bound=GroupRequest)


class MemberHarness:
    """A member of the group "g" that subscribes to the topic "t"; it is not started.

    The clock `now_ms` is `START_MS` at first and changes only in `advance`. The test writes all responses; there is no
    coordinator. `start_joining`, `follow` and `assign` are steps into the group, and `enter` takes all of them.

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
        self.member = Member(MemberSettings(**(defaults | settings)))
        self.now_ms = START_MS

    def state(self) -> MemberState:
        """Return the state. This is a method because type checkers assume that a property keeps its value."""
        return self.member.state

    def effects(self) -> list[Effect]:
        """Take the effects since the last call."""
        effects, self.member.effects = self.member.effects, []
        return effects

    def only(self, kind: type[E]) -> E:
        """Take the effects, and return the only one, which must be of this class."""
        effects = self.effects()
        assert [type(effect) for effect in effects] == [kind], effects
        effect = effects[0]
        assert isinstance(effect, kind)
        return effect

    def sent(self, kind: type[R]) -> R:
        """Take the effects, and return the only request of this class among them."""
        requests = [effect.request for effect in self.effects() if isinstance(effect, Send)]
        found = [request for request in requests if isinstance(request, kind)]
        assert len(found) == 1, requests
        return found[0]

    def advance(self, duration_ms: float) -> None:
        """Move the clock, with a `tick` at every deadline."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.member.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.member.tick(self.now_ms)
        self.now_ms = end_ms

    def respond(self, request: GroupRequest, response: GroupResponse) -> None:
        self.member.answered(request, response, self.now_ms)

    def respond_error(self, request: GroupRequest, error: int) -> None:
        """Respond with an error, in the error field of the API."""
        self.respond(request, error_response(request, error))

    def discovered(self) -> None:
        self.member.discovered(self.now_ms)

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
