"""One member in one's hand: its effects are taken as they come, its answers are written by the test."""

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
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition

START_MS = 1_700_000_000_000.0
SESSION_MS = 10_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 3_000
COMMIT_MS = 5_000

E = TypeVar("E", bound=Effect)
R = TypeVar("R", bound=GroupRequest)


class MemberHarness:
    """A member of the group "g" that subscribes to the topic "t", with a clock to move."""

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
        return self.member.state

    def effects(self) -> list[Effect]:
        """What the member has wanted since the last look."""
        taken = list(self.member.effects)
        self.member.effects.clear()
        return taken

    def only(self, kind: type[E]) -> E:
        """The one thing that it has wanted."""
        effects = self.effects()
        assert [type(effect) for effect in effects] == [kind], effects
        effect = effects[0]
        assert isinstance(effect, kind)
        return effect

    def sent(self, kind: type[R]) -> R:
        """The one request of this kind among what it has wanted."""
        requests = [effect.request for effect in self.effects() if isinstance(effect, Send)]
        found = [request for request in requests if isinstance(request, kind)]
        assert len(found) == 1, requests
        return found[0]

    def advance(self, duration_ms: float) -> None:
        """Move the clock, stopping at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.member.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.member.tick(self.now_ms)
        self.now_ms = end_ms

    def answer(self, request: GroupRequest, response: GroupResponse) -> None:
        self.member.answered(request, response, self.now_ms)

    def refuse(self, request: GroupRequest, error: int) -> None:
        """Answer with an error, wherever the response has its place for it."""
        self.answer(request, refusal(request, error))

    def discovered(self) -> None:
        self.member.discovered(self.now_ms)

    # On the way into a group, each starting from the state that the one before ends in.

    def start_joining(self) -> JoinGroupRequest:
        self.member.start(self.now_ms)
        self.only(Discover)
        self.discovered()
        return self.sent(JoinGroupRequest)

    def follow(self, join: JoinGroupRequest, generation_id: int = 1, member_id: str = "m") -> SyncGroupRequest:
        """The round is complete, somebody else is leader."""
        self.answer(join, joined(member_id, "leader", generation_id))
        return self.sent(SyncGroupRequest)

    def assign(self, sync: SyncGroupRequest, *partitions: TopicPartition) -> OffsetFetchRequest | None:
        """The leader gave it these; the request for their offsets where it has new ones."""
        self.answer(sync, SyncGroupResponse(assignment=encode_assignment(partitions)))
        effects = self.effects()
        assert any(isinstance(effect, Assigned) for effect in effects), effects
        fetches = [e.request for e in effects if isinstance(e, Send) and isinstance(e.request, OffsetFetchRequest)]
        return fetches[0] if fetches else None

    def enter(self, *partitions: TopicPartition) -> "MemberHarness":
        """Part of the group as a follower, with these partitions at offset 10 each."""
        fetch = self.assign(self.follow(self.start_joining()), *partitions)
        if fetch is not None:
            self.answer(fetch, fetched(dict.fromkeys(partitions, 10)))
        return self

    def lead(self, join: JoinGroupRequest, *others: Subscription) -> FetchMetadata:
        """The round is complete and it leads, itself as "m"."""
        response = joined("m", "m", 1)
        response.members = [
            JoinGroupResponseMember(member_id="m", metadata=join.protocols[0].metadata),
            *(
                JoinGroupResponseMember(
                    member_id=o.member_id, metadata=encode_subscription(o.topics, o.owned_partitions, o.generation_id)
                )
                for o in others
            ),
        ]
        self.answer(join, response)
        return self.only(FetchMetadata)


def joined(member_id: str, leader: str, generation_id: int = 1) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=member_id,
        members=[],
    )


def fetched(offsets: dict[TopicPartition, int], error: int = 0) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=partition, committed_offset=offset, metadata="", error_code=error
                )
            ],
        )
        for (topic, partition), offset in offsets.items()
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def committed(request: OffsetCommitRequest, error: int = 0) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def positions_in(request: OffsetCommitRequest) -> dict[TopicPartition, int]:
    return {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}


def partitions_in(request: OffsetFetchRequest) -> list[TopicPartition]:
    topics = request.groups[0].topics or []
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]


def refusal(request: GroupRequest, error: int) -> GroupResponse:
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id="given", members=[])
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error, assignment=b"")
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case OffsetCommitRequest():
            return committed(request, error)
        case OffsetFetchRequest():
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=error)])
    raise AssertionError(request)
