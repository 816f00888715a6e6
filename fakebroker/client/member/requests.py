"""The requests of a group member, built from what it knows, and offsets read from an answer.

Each is built in its newest shape; a connection puts it into the shape of the version that it speaks. Knows nothing of a
member's states.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fakebroker.client.member.assignors import TopicPartition
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is to its coordinator. Without an id `member_id` is "", in no generation `generation_id` is -1."""

    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1


def join_group(
    who: Identity, session_timeout_ms: int, rebalance_timeout_ms: int, protocol: str, metadata: bytes
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=who.group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
    )


def sync_group(who: Identity, protocol: str, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=who.group_id,
        generation_id=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def heartbeat(who: Identity) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=who.group_id,
        generation_id=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
    )


def leave_group(who: Identity, reason: str) -> LeaveGroupRequest:
    member = MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id, reason=reason)
    return LeaveGroupRequest(group_id=who.group_id, members=[member])


def offset_commit(who: Identity, positions: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=positions[topic, index], committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(positions).items()
        ],
    )


def offset_fetch(who: Identity, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    """Stable offsets only, as Kafka's consumer asks (KIP-447)."""
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=who.group_id, topics=topics)], require_stable=True
    )


def fetched_offsets(response: OffsetFetchResponse) -> Iterator[tuple[TopicPartition, int]]:
    """Each partition with its committed offset, -1 where there is none, from an answer of any version."""
    for topic in response.topics:
        yield from (((topic.name, found.partition_index), found.committed_offset) for found in topic.partitions)
    for group in response.groups:
        for named in group.topics:
            yield from (((named.name, found.partition_index), found.committed_offset) for found in named.partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes of partitions, topic by topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
