"""The consumer protocol of KIP-848: the coordinator assigns, members reconcile with their heartbeats.

The coordinator is from `coordinator`, the member from `client.member.consumer`. Session timeout and heartbeat
interval of a scenario are configs of the group, because brokers have them. Partitions are assigned by `uniform`, the
default; the assignor of a scenario is one of the classic protocol.

A member that joins first gets an empty assignment. All others still have theirs, so the group is complete then, and
what moves to the new member afterwards counts as rebalances of its own.
"""

from collections.abc import Hashable, Iterable, Mapping
from hashlib import md5

from msgspec.structs import astuple

from fakebroker.client.member.consumer.consumer_member import ConsumerMember as GroupMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.consumer.states import ConsumerMemberState
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import is_bare
from fakebroker.coordinator.consumer.member import LEAVING_EPOCH
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.consumer.subscriptions import TopicMetadata, topic_hash
from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.group_history import ChangedGroup
from fakebroker.coordinator.records import CoordinatorRecord, Record
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort
from fakebroker.lab.designs.effects_member import EffectsMember
from fakebroker.lab.designs.group_coordinator import GroupCoordinator, never
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.schema import Message

_CLIENT = OwnContext(0, "member", "/lab")
"""The context of all requests."""


def topic_id(topic: str) -> bytes:
    """Return the id of a topic."""
    return md5(topic.encode(), usedforsecurity=False).digest()


class ConsumerMember(EffectsMember):
    """A member of the consumer protocol; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort) -> None:
        consumer = ConsumerMemberSettings(
            group_id=settings.group_id,
            client_id=settings.client_id,
            topics=settings.topics,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            commit_interval_ms=settings.commit_interval_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
        )
        self._consumer = GroupMember(consumer, port.new_id)
        super().__init__(self._consumer, port, settings.heartbeat_interval_ms, settings.commit_interval_ms)

    @property
    def _consumes(self) -> bool:
        return self._consumer.is_in_generation

    def _changes_nothing(self, message: Message) -> bool:
        is_beat = isinstance(message, ConsumerGroupHeartbeatResponse) and not is_change(message)
        return is_beat and self._consumer.state is ConsumerMemberState.STABLE

    def _alive(self) -> Message:
        member = self._consumer
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=int(member.heartbeat_interval_ms),
        )

    def _topic_ids(self, topics: Iterable[str]) -> Mapping[str, bytes]:
        return {topic: topic_id(topic) for topic in topics}


class LabTopics:
    """The topics of a broker; a `TopicImage`.

    Args:
        port: What knows them.
    """

    def __init__(self, port: CoordinatorPort) -> None:
        self._port = port
        self.version = self.created_version = 1

    def names(self) -> Iterable[str]:
        return self._port.partition_counts()

    def named(self, name: str) -> TopicMetadata | None:
        count = self._port.partition_counts().get(name)
        return None if count is None else TopicMetadata(topic_id(name), name, count)

    def hash_of(self, name: str) -> int:
        return topic_hash(TopicMetadata(topic_id(name), name, self._port.partition_counts()[name]), ())

    def name_of(self, topic_id_: bytes) -> str | None:
        return next((name for name in self.names() if topic_id(name) == topic_id_), None)


class ConsumerCoordinator(GroupCoordinator):
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort) -> None:
        self._topics = LabTopics(port)
        config = CoordinatorConfig(
            offsets_topic_num_partitions=settings.offsets_partitions,
            consumer=ConsumerGroupConfig(topics=self._topics, group_config=port.group_config, assignment_interval_ms=0),
        )
        super().__init__(config, port)

    # lab.design.Coordinator

    def topics_changed(self, now_ms: float) -> None:
        """The next heartbeat of each group notices this."""
        self._topics.version += 1
        self._topics.created_version = self._topics.version

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        match message:
            case ConsumerGroupHeartbeatRequest():
                self._heartbeat(link, message, now_ms)
            case OffsetCommitRequest():
                self._commit(link, message, now_ms)
            case OffsetFetchRequest():
                self._port.reply(link, self._fetched(message, now_ms))

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._coordinator.groups.consumer.get(group_id)
        if group is None or len(group.members) != links or group.metadata_version != self._topics.version:
            return False
        return group.state is ConsumerGroupState.STABLE

    def rest(self, group_id: str) -> None:
        group = self._group(group_id)
        group.keepers = dict.fromkeys(group.members, never)

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        group = self._group(group_id)
        timeout_ms = self._coordinator.groups.consumer.session_timeout_ms(group_id)
        for member_id in list(group.keepers):
            deadline_ms = max(group.session_deadlines[member_id], last_ms[self._links[member_id]] + timeout_ms)
            self._coordinator.groups.resume_consumer_session(group, member_id, deadline_ms)

    # Requests

    def _group(self, group_id: str) -> ConsumerGroup:
        return self._coordinator.groups.consumer[group_id]

    def _heartbeat(self, link: Link, request: ConsumerGroupHeartbeatRequest, now_ms: float) -> None:
        member_id, epoch = request.member_id, request.member_epoch
        if epoch == LEAVING_EPOCH:
            self._leaving.add(member_id)
        else:
            self._links[member_id] = link
        self._port.reply(link, self._coordinator.consumer_group_heartbeat(request, _CLIENT, now_ms))

    # What the coordinator does

    def _key_of(self, record: Record) -> tuple[Hashable, bool]:
        assert isinstance(record, CoordinatorRecord), f"{record}: expected a record of a consumer group"
        return (type(record.key), *astuple(record.key)), record.value is None

    def _removed(self, group: ChangedGroup) -> list[str]:
        change = group.pending_change
        if change is None:
            return []
        return [each for moment in change.moments if moment.state_to != "Dead" for each in moment.left]


def is_change(message: Message) -> bool:
    """Return whether a heartbeat or its response says more than that the member is alive."""
    if isinstance(message, ConsumerGroupHeartbeatRequest):
        return message.member_epoch <= 0 or not is_bare(message)
    return isinstance(message, ConsumerGroupHeartbeatResponse) and (
        message.assignment is not None or message.member_epoch <= 0
    )


DESIGN = Design(
    name="consumer",
    summary="Kafka's consumer protocol (KIP-848): the coordinator assigns, members reconcile with their heartbeats",
    member=ConsumerMember,
    coordinator=ConsumerCoordinator,
    beats=frozenset(
        {
            *(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
            *(OffsetCommitRequest, OffsetCommitResponse),
        }
    ),
    is_change=is_change,
    guarantees=frozenset(INVARIANTS),
)
