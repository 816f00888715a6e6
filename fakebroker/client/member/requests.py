"""Builders of a group member's requests, and offsets read from an OffsetFetch response.

Requests have the layout of their newest version; `client.versions` converts them to the negotiated version.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

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
from fakebroker.topic_partition import TopicPartition, by_topic

PROTOCOL_TYPE = "consumer"


class Identity(msgspec.Struct, frozen=True):
    """A member's identity in requests. A member id of "" and a generation id of -1 mean none."""

    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1


def join_group(
    identity: Identity, session_timeout_ms: int, rebalance_timeout_ms: int, protocol: str, metadata: bytes
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=identity.group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
    )


def sync_group(identity: Identity, protocol: str, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=identity.group_id,
        generation_id=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def heartbeat(identity: Identity) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=identity.group_id,
        generation_id=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
    )


def leave_group(identity: Identity, reason: str) -> LeaveGroupRequest:
    member = MemberIdentity(member_id=identity.member_id, group_instance_id=identity.instance_id, reason=reason)
    return LeaveGroupRequest(group_id=identity.group_id, members=[member])


def offset_commit(identity: Identity, positions: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
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


def offset_fetch(
    identity: Identity, partitions: Iterable[TopicPartition], *, as_member: bool = False
) -> OffsetFetchRequest:
    """Request committed offsets; stable offsets only, as Kafka's consumer does (KIP-447).

    Args:
        identity: The member.
        partitions: The partitions.
        as_member: Whether the coordinator checks member id and epoch (KIP-848).
    """
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    group = OffsetFetchRequestGroup(group_id=identity.group_id, topics=topics)
    if as_member:
        group.member_id, group.member_epoch = identity.member_id, identity.generation_id
    return OffsetFetchRequest(groups=[group], require_stable=True)


def fetched_offsets(response: OffsetFetchResponse) -> Iterator[tuple[TopicPartition, int]]:
    """Yield each partition with its committed offset, or -1 for none, from a response of any version."""
    for topic in response.topics:
        yield from (((topic.name, found.partition_index), found.committed_offset) for found in topic.partitions)
    for group in response.groups:
        for named in group.topics:
            yield from (((named.name, found.partition_index), found.committed_offset) for found in named.partitions)
