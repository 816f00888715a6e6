"""The records of a seeded consumer group (KIP-848), whose members all have their target in one epoch."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fakebroker.coordinator.consumer.assignors import GroupSpec, MemberSpec
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.member import ConsumerGroupMember, Partitions
from fakebroker.coordinator.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    group_epoch_record,
    subscription_record,
    target_assignment_record,
)
from fakebroker.coordinator.consumer.subscriptions import TopicMetadata, metadata_hash
from fakebroker.coordinator.records import KeyedRecord
from fakebroker.topic_partition import TopicPartition


class SeededMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a seeded consumer group.

    Attributes:
        assigned: Its partitions; None if the assignor distributes them.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    assigned: Sequence[TopicPartition] | None


def member_id_of(new_id: bytes) -> str:
    """Return a member id as clients make it: 16 bytes as Kafka's `Uuid.toString` writes them."""
    return urlsafe_b64encode(new_id).decode().rstrip("=")


def group_records(
    group_id: str,
    epoch: int,
    members: Sequence[SeededMember],
    topics: Sequence[str],
    assignor: str | None,
    config: ConsumerGroupConfig,
) -> Iterator[KeyedRecord]:
    """Yield the records of a group in which nothing is to be reconciled.

    Args:
        group_id: The group.
        epoch: The epoch of the group, of its target assignment, and of its members.
        members: The members.
        topics: The topics that they subscribe to, which exist.
        assignor: The assignor that they name; None for the default.
        config: The settings of the coordinator.
    """
    names = frozenset(topics)
    target = _target(members, topics, assignor, config)
    joined = [
        ConsumerGroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=names,
            server_assignor=assignor,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            member_epoch=epoch,
            previous_epoch=0,
            assigned=target[member.member_id],
        )
        for member in members
    ]
    yield from (subscription_record(group_id, member) for member in joined)
    yield group_epoch_record(group_id, epoch, metadata_hash(names if members else (), config.topics))
    yield from (target_assignment_record(group_id, member.member_id, member.assigned) for member in joined)
    yield assignment_epoch_record(group_id, epoch)
    yield from (current_assignment_record(group_id, member, config.release) for member in joined)


def _target(
    members: Sequence[SeededMember], topics: Sequence[str], assignor: str | None, config: ConsumerGroupConfig
) -> Mapping[str, Partitions]:
    found = {name: topic for name in topics if (topic := config.topics.named(name)) is not None}
    if any(member.assigned is not None for member in members):
        return {member.member_id: _by_id(member.assigned or (), found) for member in members}
    ids = frozenset(topic.topic_id for topic in found.values())
    specs = {
        member.member_id: MemberSpec(member.instance_id, ids, {})
        for member in sorted(members, key=lambda member: member.member_id)
    }
    counts = {topic.topic_id: topic.partition_count for topic in found.values()}
    assign = config.assignors[assignor or next(iter(config.assignors))]
    target = assign(GroupSpec(specs, counts, homogeneous=True)) if members else {}
    return {member.member_id: target.get(member.member_id, {}) for member in members}


def _by_id(partitions: Sequence[TopicPartition], topics: Mapping[str, TopicMetadata]) -> Partitions:
    indexes: dict[bytes, set[int]] = {}
    for name, index in partitions:
        indexes.setdefault(topics[name].topic_id, set()).add(index)
    return {topic_id: frozenset(some) for topic_id, some in indexes.items()}
