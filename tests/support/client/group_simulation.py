"""Group members and one coordinator in virtual time, with connections that delay messages and break."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

from msgspec.structs import replace

from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.effects import Discover, Fatal, FetchMetadata, GroupRequest, GroupResponse, Send
from fakebroker.client.member.group_member import GroupMember
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.requests import fetched_offsets
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.member import LEAVING_STATIC_EPOCH
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.invariants import check
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.topic_partition import TopicPartition
from tests.support.coordinator.consumer_group_harness import FakeTopics, check_group
from tests.support.coordinator.coordinator_adapter import CoordinatorAdapter, Respond
from tests.support.group_responses import committed_offsets, error_response
from tests.support.virtual_time import SimulatedConnection, VirtualTime

REBALANCE_REQUESTS = (JoinGroupRequest, SyncGroupRequest)
_RESTART_MS = 1_000.0
AnySettings = MemberSettings | ConsumerMemberSettings


class GroupSimulation(VirtualTime):
    """The members of the group "g" and one coordinator, which leads every offsets partition.

    A member has one connection, replaced after each look-up. Nothing happens until `start`; then `run` advances the
    virtual time, which is `START_MS` at first.

    After each step the coordinator's invariants are checked, and that no partition has two owners among the members
    that the group knows. Offsets that a member fetches must not be older than the commits that were acknowledged.

    Args:
        settings: The settings of each member. Members are down until `start`. With several for a member, each start
            draws one of them, which may be of another protocol.
        partition_counts: Partition counts by topic.
        config: The coordinator's settings.
        seed: The seed of delays and losses.
        delays_ms: The possible delays of a message; one is drawn for each message.
        failed_lookups: The share of coordinator look-ups that fail, from 0 to 1.
        migrates: Whether members of both protocols are in the group. Then a supervisor starts members with fatal errors
            again: Kafka rejects a member with the consumer protocol with UNKNOWN_SERVER_ERROR if the classic group has
            had no generation. And partitions may have two owners for a while: a group that becomes a classic one before
            all members have given up what they have to, has the targets as assignments.

    Attributes:
        acknowledged: The highest offset of each partition whose commit was acknowledged to a member.
        moved_until_ms: The coordinator answers NOT_COORDINATOR until this time.
    """

    def __init__(
        self,
        settings: Sequence[AnySettings | Sequence[AnySettings]],
        partition_counts: dict[str, int],
        config: CoordinatorConfig,
        *,
        seed: int = 0,
        delays_ms: Sequence[float] = (0.0, 1.0, 5.0, 200.0),
        failed_lookups: float = 0.2,
        migrates: bool = False,
    ) -> None:
        super().__init__(seed)
        self.topics = FakeTopics(**partition_counts)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.moved_until_ms = self.now_ms
        self._settings = [each if isinstance(each, Sequence) else (each,) for each in settings]
        self._delays_ms, self._failed_lookups, self._migrates = delays_ms, failed_lookups, migrates
        ids, member_ids = count(1), count(1)
        self._new_id = lambda: f"m-{next(member_ids)}"
        config = replace(config, consumer=replace(config.consumer, topics=self.topics))
        self.coordinator = Coordinator(config, lambda: f"{next(ids):04}")
        self._adapter = CoordinatorAdapter(self.coordinator)
        for partition in range(config.offsets_topic_num_partitions):
            self.coordinator.lead(partition, self.now_ms)
        self.members = [self._new_member(each[0]) for each in self._settings]
        self._connections: dict[GroupMember, SimulatedConnection[GroupRequest, GroupResponse]] = {}

    # Events

    def start(self, index: int) -> None:
        """Start a member that is down, as a new process: it keeps nothing of an earlier run."""
        if self.members[index].is_down:
            alternatives = self._settings[index]
            settings = alternatives[0] if len(alternatives) == 1 else self.random.choice(alternatives)
            member = self.members[index] = self._new_member(settings)
            self._call(member, member.start)

    def _new_member(self, settings: AnySettings) -> GroupMember:
        return Member(settings) if isinstance(settings, MemberSettings) else ConsumerMember(settings, self._new_id)

    def leave(self, index: int) -> None:
        self._call(self.members[index], self.members[index].leave)

    def crash(self, index: int) -> None:
        self._close_connection(self.members[index])
        self._call(self.members[index], self.members[index].crash)

    def disconnect(self, index: int) -> None:
        """Break the connection of a member, which notices at once."""
        self._close_connection(self.members[index])
        self._call(self.members[index], self.members[index].connection_lost)

    def move_coordinator(self, duration_ms: float) -> None:
        """Answer NOT_COORDINATOR for a time, except to members that leave."""
        self.moved_until_ms = self.now_ms + duration_ms

    def add_partition(self, topic: str) -> None:
        """Add a partition to a topic; all members refresh their metadata at once."""
        self.topics.grow(topic, self.partition_counts[topic] + 1)
        for member in self.members:
            self._report_metadata(member)

    # Checks

    @property
    def partition_counts(self) -> dict[str, int]:
        return {topic.name: topic.partition_count for topic in self.topics.all()}

    @property
    def known(self) -> set[str]:
        """The ids of the members that the coordinator knows."""
        groups = (*self.coordinator.groups.classic.values(), *self.coordinator.groups.consumer)
        return {member_id for group in groups for member_id in group.members}

    @property
    def on_leave(self) -> set[str]:
        """The ids of static members that have left a consumer group for a while."""
        members = [member for group in self.coordinator.groups.consumer for member in group.members.values()]
        return {member.member_id for member in members if member.member_epoch == LEAVING_STATIC_EPOCH}

    @property
    def generation_id(self) -> int:
        """The generation or group epoch; -1 without a group."""
        classic, consumer = self.coordinator.groups.classic.get("g"), self.coordinator.groups.consumer.get("g")
        return classic.generation_id if classic else consumer.group_epoch if consumer else -1

    def after_call(self) -> None:
        for group in self.coordinator.groups.classic.values():
            check(group)
        for consumer_group in self.coordinator.groups.consumer:
            check_group(consumer_group)
        if not self._migrates and (ids := self.known):
            known = [member for member in self.members if member.member_id in ids]
            owned = [partition for member in known for partition in member.assigned]
            assert len(owned) == len(set(owned)), {member.identity: member.assigned for member in known}

    def after_member_call(self, member: GroupMember) -> None:
        """Called after each call of a member."""

    def _check_offsets(self, request: GroupRequest, response: GroupResponse) -> None:
        if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            errors = [partition.error_code for topic in response.topics for partition in topic.partitions]
            for (partition, offset), error in zip(committed_offsets(request).items(), errors, strict=True):
                if error == 0:
                    self.acknowledged[partition] = max(self.acknowledged.get(partition, -1), offset)
        if isinstance(response, OffsetFetchResponse):
            for partition, offset in fetched_offsets(response):
                assert offset >= self.acknowledged.get(partition, -1), partition

    # Members

    def _call(self, member: GroupMember, call: Callable[[float], None]) -> None:
        """Call a method of a member, then carry out its effects and schedule its next deadline."""
        call(self.now_ms)
        effects, member.effects = member.effects, []
        for effect in effects:
            match effect:
                case Discover():
                    self.call_in(self._delay_ms(), partial(self._find_coordinator, member))
                case FetchMetadata():
                    self.call_in(self._delay_ms(), partial(self._report_metadata, member))
                case Send(request):
                    self._send(member, request)
                case Fatal() if self._migrates:
                    self.call_in(_RESTART_MS, partial(self.start, self.members.index(member)))
        self.call_at_deadline(member, member.next_deadline(), partial(self._call, member, member.tick))
        self.after_member_call(member)

    def _delay_ms(self) -> float:
        return self.random.choice(self._delays_ms)

    def _find_coordinator(self, member: GroupMember) -> None:
        if self.random.random() < self._failed_lookups:
            self._call(member, partial(member.discovery_failed, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._close_connection(member)
            self._call(member, member.discovered)

    def _report_metadata(self, member: GroupMember) -> None:
        counts = self.partition_counts
        ids = {topic.name: topic.topic_id for topic in self.topics.all()}
        self._call(member, lambda now_ms: member.metadata(counts, now_ms, topic_ids=ids))

    # Connections

    def _send(self, member: GroupMember, request: GroupRequest) -> None:
        if member not in self._connections:
            handle = partial(self._handle, f"c{self.members.index(member)}")
            self._connections[member] = SimulatedConnection(self, handle, self._delays_ms)
        connection = self._connections[member]
        if isinstance(request, REBALANCE_REQUESTS):
            unanswered = connection.unanswered
            assert not any(isinstance(other, REBALANCE_REQUESTS) for other in unanswered), unanswered

        def on_response(response: GroupResponse) -> None:
            self._call(member, partial(member.answered, request, response))
            self._check_offsets(request, response)

        connection.send(request, on_response)

    def _close_connection(self, member: GroupMember) -> None:
        # The requests under way arrive at once. A commit that arrived after the commits of the next connection would
        # overwrite an acknowledged commit, which Kafka allows and `_check_offsets` does not.
        if connection := self._connections.pop(member, None):
            connection.close(arrive_at_once=True)

    # The broker

    def _handle(self, client_id: str, request: GroupRequest, respond: Respond) -> None:
        if self.now_ms < self.moved_until_ms and not _leaves(request):
            respond(error_response(request, ErrorCode.NOT_COORDINATOR))
            return
        self._adapter.handle(request, client_id, respond, self.now_ms)
        self._follow_coordinator()

    def _follow_coordinator(self) -> None:
        """Send the responses that the coordinator has completed, and schedule its next deadline."""
        self._adapter.send_responses()
        self.call_at_deadline(self.coordinator, self.coordinator.queue.next_deadline(), self._expire_timers)

    def _expire_timers(self) -> None:
        self.coordinator.queue.run(self.now_ms)
        self._follow_coordinator()


def _leaves(request: GroupRequest) -> bool:
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch < 0
    return isinstance(request, LeaveGroupRequest)


_CONSUMER_CONFIG = ConsumerGroupConfig(session_timeout_ms=6_000, heartbeat_interval_ms=1_500)


def consumer_protocol_simulation(
    seed: int, assignor: str, size: int, partition_counts: dict[str, int]
) -> GroupSimulation:
    """Return a simulation of up to `size` members with the consumer protocol; every third member is static."""
    settings = [_consumer_settings(index, assignor, partition_counts) for index in range(size)]
    return GroupSimulation(settings, partition_counts, CoordinatorConfig(consumer=_CONSUMER_CONFIG), seed=seed)


def migrating_simulation(seed: int, assignor: str, size: int, partition_counts: dict[str, int]) -> GroupSimulation:
    """Return a simulation of up to `size` members, each of which starts with either protocol. None is static.

    A static member that replaces one of the other protocol has what that one had, which may be nothing, until the group
    changes again.
    """
    settings = [
        (
            replace(_classic_settings(index, assignor, partition_counts), instance_id=None),
            replace(_consumer_settings(index, None, partition_counts), instance_id=None),
        )
        for index in range(size)
    ]
    config = CoordinatorConfig(consumer=_CONSUMER_CONFIG, group_initial_rebalance_delay_ms=1_000 * (seed % 2))
    return GroupSimulation(settings, partition_counts, config, seed=seed, migrates=True)


def group_simulation(seed: int, assignor: str, size: int, partition_counts: dict[str, int]) -> GroupSimulation:
    """Return a simulation of up to `size` classic members with one assignor; every third member is static."""
    settings = [_classic_settings(index, assignor, partition_counts) for index in range(size)]
    config = CoordinatorConfig(group_initial_rebalance_delay_ms=1_000 * (seed % 2))
    return GroupSimulation(settings, partition_counts, config, seed=seed)


def _instance_id(index: int) -> str | None:
    return f"i{index}" if index % 3 == 2 else None


def _consumer_settings(index: int, assignor: str | None, topics: Iterable[str]) -> ConsumerMemberSettings:
    return ConsumerMemberSettings(
        group_id="g",
        client_id=f"c{index}",
        instance_id=_instance_id(index),
        topics=tuple(topics),
        server_assignor=assignor,
        rebalance_timeout_ms=8_000,
        commit_interval_ms=2_000,
        request_timeout_ms=5_000,
    )


def _classic_settings(index: int, assignor: str, topics: Iterable[str]) -> MemberSettings:
    return MemberSettings(
        group_id="g",
        client_id=f"c{index}",
        instance_id=_instance_id(index),
        topics=tuple(topics),
        assignor=assignor,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=8_000,
        heartbeat_interval_ms=1_500,
        commit_interval_ms=2_000,
    )
