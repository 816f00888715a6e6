"""Members of consumer groups (KIP-848) in transcripts: their state, and the requests they send.

Does not depend on a cluster. Clients choose member ids: member A has the id "A", unless a step names another id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fakebroker.cluster.logs.coordinator_records import record_key, record_value
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.conform.transcript import Step
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.records import current_assignment_record
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.releases import NEWEST
from fakebroker.topic_partition import TopicPartition, by_topic, parse_partition

_NULL = ["null"]
"""The option `topics=null`."""
_TIMEOUT_MS = 60_000

TopicIds = Mapping[str, bytes]


@dataclass(slots=True)
class TranscriptConsumer:
    """The consumer of a member: its subscription, which a later join repeats, and the partitions it was assigned."""

    topics: list[str] = field(default_factory=lambda: ["news"])
    assigned: tuple[TopicPartition, ...] = ()

    def heartbeat(
        self, step: Step, group_id: str, identity: tuple[str, int, str | None], topic_ids: TopicIds
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the ConsumerGroupHeartbeat of a step. A heartbeat that joins, or with `full`, contains all fields."""
        options = step.options
        member_id, epoch, instance_id = identity
        is_complete = epoch == 0 or "full" in options
        owned = options.get("owns", "null" if not is_complete else "none" if epoch == 0 else "all")
        topics = options.get("topics", [] if is_complete else _NULL)
        if topics != _NULL:
            self.topics = [] if topics == ["none"] else topics or self.topics
        return ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=_unquoted(options.get("rack")),
            rebalance_timeout_ms=options.get("timeout", _TIMEOUT_MS if is_complete else -1),
            subscribed_topic_names=None if topics == _NULL else self.topics,
            subscribed_topic_regex=_unquoted(options.get("regex")),
            server_assignor=_unquoted(options.get("assignor")),
            topic_partitions=None if owned == "null" else _reported(self.owned(owned), topic_ids),
        )

    def owned(self, text: str) -> Iterable[TopicPartition]:
        """Parse the partitions that a member reports: `none`, `all` that are assigned, or a list, news-0,1,sport-2."""
        if text in ("none", "all"):
            return self.assigned if text == "all" else ()
        owned: list[TopicPartition] = []
        for item in text.split(","):
            owned.append((owned[-1][0], int(item)) if item.isdigit() and owned else parse_partition(item))
        return owned

    def receive(self, response: ConsumerGroupHeartbeatResponse, topic_ids: TopicIds) -> None:
        """Remember the assignment of a successful response."""
        if response.member_epoch <= 0:
            self.assigned = ()
        elif response.assignment is not None:
            self.assigned = places(response, topic_ids)


def _unquoted(text: str | None) -> str | None:
    return "" if text == '""' else text


def _reported(owned: Iterable[TopicPartition], topic_ids: TopicIds) -> list[HeartbeatTopicPartitions]:
    return [
        HeartbeatTopicPartitions(topic_id=topic_ids.get(topic, b"?" * 16), partitions=indexes)
        for topic, indexes in by_topic(owned).items()
    ]


def places(response: ConsumerGroupHeartbeatResponse, topic_ids: TopicIds) -> tuple[TopicPartition, ...]:
    """Return the partitions that a response assigns, ordered."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    topics = [] if response.assignment is None else response.assignment.topic_partitions
    return tuple(sorted((names[topic.topic_id], index) for topic in topics for index in topic.partitions))


def describe(step: Step, group_id: str) -> ConsumerGroupDescribeRequest:
    """Return the ConsumerGroupDescribe of a step, for the groups that it names, or else for the member's group."""
    groups = ["" if word == '""' else word for word in step.words] or [group_id]
    return ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations="operations" in step.options)


def stored(step: Step, group_id: str, member_id: str, epoch: int, topic_ids: TopicIds) -> ProduceRequest:
    """Return the request that writes the state of a member to __consumer_offsets, which a coordinator then loads."""
    assigned = by_topic(map(parse_partition, step.words)).items()
    member = ConsumerGroupMember(
        member_id=member_id,
        member_epoch=epoch,
        previous_epoch=epoch,
        state=MemberState[step.options["state"]],
        assigned={topic_ids[topic]: frozenset(indexes) for topic, indexes in assigned},
    )
    written = current_assignment_record(group_id, member, NEWEST)
    record = Record(0, 1_000, record_key(written), record_value(written))
    data = [PartitionProduceData(index=0, records=encode_batch([record]))]
    topics = [TopicProduceData(name=OFFSETS_TOPIC, partition_data=data)]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)
