"""Views of brokers and groups of both kinds: immutable values that describe one point in time."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.base import View
from fakebroker.cluster.inspect.timelines import Timeline, short_names
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.classic.extension import ReservedPlace
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE, GroupState
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.coordinator.pending_offsets import PendingOffset
from fakebroker.errors import ConfigError, ProtocolError, and_more, check_integer, one_of, printable
from fakebroker.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fakebroker.protocol.records import Header, RecordBatch, iterate_records
from fakebroker.protocol.transaction_markers import AbortedBatches
from fakebroker.topic_partition import (
    PartitionMap,
    PartitionTuple,
    TopicPartition,
    format_partitions,
    parse_partitions,
    partition_names,
)

if TYPE_CHECKING:
    from fakebroker.cluster.broker import BrokerNode
    from fakebroker.cluster.cluster import Cluster


# Consumer groups: the names of partitions, and the holders of those that others wait for


class AwaitedPartition(msgspec.Struct, frozen=True):
    """A partition that a member is to get, and that another member still holds.

    Attributes:
        holder_id: The member id of the other member.
        is_revoked: Whether the coordinator has asked the holder to give the partition up. If not, the response to the
            holder's next heartbeat does.
        until_ms: When the holder is removed, by the brokers' clock. With `is_revoked`, unless it gives the partition up
            before; otherwise, unless it sends a heartbeat before.
    """

    topic: str
    partition: int
    holder_id: str
    is_revoked: bool
    until_ms: float


class ConsumerGroupReader:
    """A consumer group with the names of its partitions.

    Args:
        cluster: The cluster.
        broker: The coordinator of the group.
        group: The group, which must not change while it is read.
    """

    def __init__(self, cluster: "Cluster", broker: "BrokerNode", group: ConsumerGroup) -> None:
        self.cluster = cluster
        self.broker = broker
        self.group = group
        groups = broker.coordinator.groups.consumer
        self.assignor = groups.assignor_of(group)
        self.session_timeout_ms = groups.session_timeout_ms(group.group_id)

    def named(self, partitions: Partitions) -> tuple[TopicPartition, ...]:
        """Return partitions by the names of their topics, sorted. Partitions of deleted topics are left out."""
        names = ((self.cluster.topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
        return tuple(sorted((name, index) for name, indexes in names if name is not None for index in indexes))

    def session_timeout_of(self, member: ConsumerGroupMember) -> int:
        """Return the session timeout of a member in milliseconds."""
        return self.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """Return the part of the target assignment that a member has."""
        return self.group.target.get(member.member_id, NO_PARTITIONS)

    def awaited_by(self, member: ConsumerGroupMember) -> tuple[AwaitedPartition, ...]:
        """Return the partitions of a member's target that other members hold, sorted."""
        awaited = []
        for topic_id, indexes in self.target_of(member).items():
            name = self.cluster.topics.name_of(topic_id)
            wanted = indexes - member.assigned.get(topic_id, frozenset())
            if name is None or not wanted:
                continue
            for index in sorted(wanted):
                holder = self._holders.get((topic_id, index))
                if holder is not None and holder is not member:
                    is_revoked = index in holder.pending_revocation.get(topic_id, frozenset())
                    until_ms = self.removed_ms(holder, is_revoked=is_revoked)
                    awaited.append(AwaitedPartition(name, index, holder.member_id, is_revoked, until_ms))
        return tuple(sorted(awaited, key=lambda each: (each.topic, each.partition)))

    @cached_property
    def _holders(self) -> dict[tuple[bytes, int], ConsumerGroupMember]:
        """The member that has a partition, or has to give it up and has not confirmed."""
        return {
            (topic_id, index): member
            for member in self.group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, indexes in partitions.items()
            for index in indexes
        }

    def removed_ms(self, holder: ConsumerGroupMember, *, is_revoked: bool) -> float:
        """Return when a member is removed unless it gives partitions up (`is_revoked`), or sends a heartbeat before."""
        session_ms = self.group.session_deadlines[holder.member_id]
        timer = self.group.rebalance_deadlines.get(holder.member_id) if is_revoked else None
        return session_ms if timer is None else timer[0]


def member_names(group: ConsumerGroup, others: Iterable[str] = (), moments: Sequence[Moment] = ()) -> dict[str, str]:
    """Return a short name for each member and each former member, with its client id if its id is a UUID.

    Args:
        group: The group.
        others: The ids of former members.
        moments: The history of the group, oldest first, from which the client ids of former members are known.
    """
    client_ids = {member.member_id: member.client_id for member in group.members.values()}
    ids = dict.fromkeys((*client_ids, *others))
    former = ids.keys() - client_ids
    for moment in reversed(moments):
        if not former:
            break
        found = {change.member_id: change.client_id for change in moment.changes if change.member_id in former}
        client_ids |= found
        former -= found.keys()
    return short_names(ids, client_ids)


# Decoded records of topics, without a client


class RecordView(msgspec.Struct, frozen=True):
    """One record.

    Attributes:
        timestamp: Milliseconds since the Unix epoch; -1 for none.
        key: None for a record without a key.
        value: None for a tombstone.
        headers: Pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class BatchView(NamedTuple):
    """One record batch of a partition, which does not change afterwards.

    Attributes:
        topic: The topic.
        partition: Number of the partition.
        batch: The batch.
        first_offset: Records before this offset have been deleted, or are not wanted.
    """

    topic: str
    partition: int
    batch: RecordBatch
    first_offset: int

    def records(self) -> Iterator[RecordView]:
        """Decode the records."""
        for record in iterate_records(self.batch):
            if record.offset >= self.first_offset:
                yield RecordView(
                    self.topic,
                    self.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                )


def batches_of(
    cluster: Cluster, topic: str, partition: int | None = None, offset: int = 0, *, committed: bool = False
) -> list[BatchView]:
    """Return the batches of a topic that a consumer could read now, without control batches.

    Args:
        cluster: The cluster.
        topic: The topic.
        partition: The partition; None for all.
        offset: Where to start in each partition, if the log does not start later.
        committed: Whether the consumer has `isolation.level=read_committed`: batches of aborted transactions are left
            out, and the batches from the first open transaction on.

    Raises:
        ConfigError: There is no such topic or partition.
    """
    found = list[BatchView]()
    for each in _partitions(cluster, topic, partition):
        log, first = each.log, max(offset, each.log.log_start_offset)
        end = log.last_stable_offset if committed else log.log_end_offset
        aborted = AbortedBatches(log.producers.aborted_in(first, end) if committed else ())
        found.extend(
            BatchView(topic, each.index, batch, first)
            for batch in log.batches_from(first)
            if batch.base_offset < end and not aborted.contain(batch) and not batch.is_control
        )
    return found


def record_count(cluster: Cluster, topic: str, partition: int | None = None, *, committed: bool = False) -> int:
    """Return the number of records that a consumer could read now. For the arguments see `batches_of`."""
    return sum(
        # Only a batch of which records were deleted has to be decoded.
        each.batch.record_count if each.batch.base_offset >= each.first_offset else sum(1 for _ in each.records())
        for each in batches_of(cluster, topic, partition, committed=committed)
    )


def _partitions(cluster: Cluster, name: str, partition: int | None) -> list[Partition]:
    topic = cluster.topics.get(name)
    if topic is None:
        known = [each.name for each in cluster.topics]
        raise ConfigError.of("topic", name, one_of(known, name))
    if partition is None:
        return topic.partitions
    check_integer("partition", partition, least=0, most=len(topic.partitions) - 1, where=f"topic {name!r}")
    return [topic.partitions[partition]]


# Brokers and groups of both kinds


GroupType = Literal["classic", "consumer"]
"""Kafka's names of the kinds of groups."""


class BrokerView(msgspec.Struct, frozen=True):
    """One broker: its address, whether it is up, and its rack."""

    node_id: int
    host: str
    port: int
    up: bool
    rack: str | None = None

    @classmethod
    def of(cls, broker: BrokerNode) -> "BrokerView":
        return cls(broker.node_id, broker.host, broker.port, broker.up, broker.rack)


class MemberView(msgspec.Struct, frozen=True):
    """One member of a group.

    A member of a consumer group (KIP-848) also has an epoch, a state and a target.

    Attributes:
        client_id: The client id. In a classic group, as in Kafka, a member that takes over an instance id gets the
            client id of the former member.
        client_host: In Kafka's form, such as "/127.0.0.1".
        instance_id: `group.instance.id` of a static member, else None.
        session_timeout_ms: The session timeout. In a consumer group, members of the consumer protocol have the group's
            timeout; members of the classic protocol have their own.
        assignment: The bytes that the leader assigned to it, in the format of the group's protocol type. In consumer
            groups the partitions that the member may use, in the format of classic consumers.
        metadata: The bytes of its subscription, in the same format: for the group's protocol, or while none is
            selected, for the first protocol of the member.
        protocol_type: The protocol type of the group; "consumer" for consumers.
        protocol_name: The protocol of `metadata`; None for a registered instance. In consumer groups the assignor.
        is_expected: Whether it is a registered instance that has not become a member yet (KAFKA-8397).
        member_epoch: The epoch in a consumer group: 0 for a member that joins, -2 for a static member that has left for
            a while; None in a classic group. The following attributes have their defaults there, too.
        previous_epoch: The epoch before the last change of the epoch; -1 for a new member.
        state: Kafka's name: STABLE, UNREVOKED_PARTITIONS (it has to give up partitions), UNRELEASED_PARTITIONS (it
            waits for partitions of others), UNKNOWN.
        pending_revocation_names: The names of `pending_revocation`, such as "orders-0"; in JSON they are
            `pending_revocation`.
        target_names: The names of `target`; in JSON they are `target`.
        awaited: The partitions of its target that other members still hold.
        rack_id: The rack of the client.
        server_assignor: The assignor that it asks for.
        subscribed_topic_regex: The regular expression that it subscribes to; "" if there is none.
        type: The protocol that it uses, "classic" or "consumer": a consumer group can have members of both protocols.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    metadata: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None
    is_expected: bool = False
    member_epoch: int | None = None
    previous_epoch: int | None = None
    state: str | None = None
    pending_revocation_names: tuple[str, ...] = msgspec.field(default=(), name="pending_revocation")
    target_names: tuple[str, ...] = msgspec.field(default=(), name="target")
    awaited: tuple[AwaitedPartition, ...] = ()
    rack_id: str | None = None
    server_assignor: str | None = None
    subscribed_topic_regex: str = ""
    type: GroupType = "classic"

    @property
    def pending_revocation(self) -> PartitionTuple:
        """The partitions that it has to give up and has not confirmed."""
        return parse_partitions(self.pending_revocation_names)

    @property
    def target(self) -> PartitionTuple:
        """Its part of the target assignment."""
        return parse_partitions(self.target_names)

    @property
    def assigned_partitions(self) -> PartitionTuple | None:
        """The assigned partitions; None if the member is not a consumer, or the bytes are malformed."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            return PartitionTuple(decode_assignment(self.assignment) if self.assignment else ())
        except ProtocolError:
            return None

    @property
    def subscribed_topics(self) -> tuple[str, ...] | None:
        """The topics that it subscribes to; None if the member is not a consumer, or the bytes are malformed."""
        return None if self._subscription is None else self._subscription.topics

    @property
    def owned_partitions(self) -> PartitionTuple | None:
        """The partitions that it owned when it joined; None if it is not a consumer, or the bytes are malformed.

        In a consumer group those that it holds now: that it may use, or has to give up.
        """
        if self.member_epoch is not None:
            return PartitionTuple(sorted((*(self.assigned_partitions or ()), *self.pending_revocation)))
        return None if self._subscription is None else PartitionTuple(self._subscription.owned_partitions)

    @property
    def _subscription(self) -> Subscription | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            return decode_subscription(self.metadata, self.protocol_name or "", self.member_id, self.instance_id)
        except ProtocolError:
            return None

    @classmethod
    def of(cls, member: Member, group: Group) -> "MemberView":
        # A member that has joined during a rebalance may lack the protocol of the last generation.
        names = [name for name, _ in member.protocols]
        protocol = group.protocol_name if group.protocol_name in names else next(iter(names), None)
        return cls(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.assignment,
            b"" if protocol is None else member.metadata_for(protocol),
            group.protocol_type,
            protocol,
        )

    @classmethod
    def of_consumer(cls, group: ConsumerGroupReader, member: ConsumerGroupMember) -> "MemberView":
        """Return the view of a member of a consumer group."""
        assigned, target = group.named(member.assigned), group.target_of(member)
        return cls(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            session_timeout_ms=group.session_timeout_of(member),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignment=encode_assignment(assigned),
            metadata=encode_subscription(sorted(member.subscribed_topic_names)),
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=group.assignor,
            member_epoch=member.member_epoch,
            previous_epoch=member.previous_epoch,
            state=member.state.name,
            pending_revocation_names=partition_names(group.named(member.pending_revocation)),
            # Most members have their target, whose names are not looked up again.
            target_names=partition_names(assigned if target == member.assigned else group.named(target)),
            awaited=group.awaited_by(member),
            rack_id=member.rack_id,
            server_assignor=member.server_assignor,
            subscribed_topic_regex=member.subscribed_topic_regex,
            type="consumer" if member.classic is None else "classic",
        )

    @classmethod
    def of_reserved(cls, place: ReservedPlace, group: Group) -> "MemberView":
        """Return the view of a registered instance."""
        ids = place.member_id, place.client_id, place.client_host, place.instance_id
        timeouts = place.session_timeout_ms, place.rebalance_timeout_ms
        return cls(*ids, *timeouts, b"", protocol_type=group.protocol_type, is_expected=True)

    @classmethod
    def of_former(cls, member_id: str) -> "MemberView":
        """Return the view of a member that has left: only its id is known."""
        return cls(member_id, "", "", None, 0, 0, b"")


class PendingOffsetView(msgspec.Struct, frozen=True):
    """An offset that was committed in a transaction which has not ended.

    Attributes:
        producer_id: The producer of the transaction.
    """

    producer_id: int
    topic: str
    partition: int
    offset: int


class GroupDescription(View, frozen=True, kw_only=True):
    """One group, of either kind, without its history.

    Attributes:
        state: Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable; Dead if there is no such group. Of
            consumer groups (KIP-848): Empty, Assigning, Reconciling, Stable.
        generation_id: The generation; of a consumer group the group epoch.
        protocol_type: `consumer` for consumers; None for a group that only has offsets.
        protocol_name: The protocol, for consumers the assignor; None during a join phase and without members.
        leader_id: The member id of the leader. Consumer groups have none.
        members: The members in the order in which they first joined, then the expected instances.
        pending_offsets: The offsets in transactions that are open: they are stored when these are committed.
        type: Kafka's group type: "classic", or "consumer" for consumer groups (KIP-848); None if there is no such
            group.
        assignment_epoch: The group epoch for which a consumer group's target assignment was computed; None in a classic
            group.
    """

    group_id: str
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: tuple[MemberView, ...]
    pending_offsets: tuple[PendingOffsetView, ...] = ()
    type: GroupType | None = None
    assignment_epoch: int | None = None


class GroupView(GroupDescription, frozen=True, kw_only=True):
    """One group, of either kind.

    Attributes:
        history: Its timeline.
    """

    history: Timeline

    @classmethod
    def of(
        cls,
        group_id: str,
        group: Group | None,
        history: Timeline | None = None,
        pending_offsets: Iterable[PendingOffset] = (),
    ) -> "GroupView":
        history = history or Timeline(group_id, (), 0.0)
        if group is None:
            return cls(
                group_id=group_id,
                state=GroupState.DEAD.value,
                generation_id=0,
                protocol_type=None,
                protocol_name=None,
                leader_id=None,
                members=(),
                history=history,
            )
        members = tuple(MemberView.of(member, group) for member in group.members.values())
        members += tuple(MemberView.of_reserved(place, group) for place in group.extension.reserved_places)
        return cls(
            group_id=group_id,
            state=group.state.value,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
            members=members,
            history=history,
            pending_offsets=_pending_views(pending_offsets),
            type="classic",
        )

    @classmethod
    def of_consumer_group(
        cls, cluster: Cluster, broker: BrokerNode, group: ConsumerGroup, history: Timeline | None = None
    ) -> "GroupView":
        """Return the view of a consumer group."""
        reader = ConsumerGroupReader(cluster, broker, group)
        return cls(
            group_id=group.group_id,
            state=group.state.value,
            generation_id=group.group_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=reader.assignor,
            leader_id=None,
            members=tuple(MemberView.of_consumer(reader, member) for member in group.members.values()),
            history=history or Timeline(group.group_id, (), 0.0),
            pending_offsets=_pending_views(broker.coordinator.offsets.pending_of(group.group_id)),
            type="consumer",
            assignment_epoch=group.assignment_epoch,
        )

    @property
    def pending_partitions(self) -> PartitionTuple:
        """The partitions with pending offsets, for which requests for stable offsets get UNSTABLE_OFFSET_COMMIT."""
        return PartitionTuple(dict.fromkeys((each.topic, each.partition) for each in self.pending_offsets))

    def timeline(self) -> Timeline:
        """Return the group's transitions with their causes; `str()` draws them as text."""
        return self.history

    def __str__(self) -> str:
        return self.text()

    def text(self, max_members: int | None = None) -> str:
        """Describe the group in a line, and each of its members, or the first `max_members`, in another one."""
        lines = [f"  {self._line_of(member)}" for member in self.members[:max_members]]
        more = and_more(len(self.members), len(lines), "members")
        return "\n".join(map(printable, [self._head(), *lines, *(f"  {line}" for line in more)]))

    def _head(self) -> str:
        numbers, kind = f"generation {self.generation_id}", "protocol"
        if self.assignment_epoch is not None:
            numbers, kind = f"epoch {self.generation_id}, assignment epoch {self.assignment_epoch}", "assignor"
        head = f"{self.group_id}: {self.state}, {numbers}, {kind} {self.protocol_name or '-'}"
        if self.pending_offsets:
            head += f", offsets pending for {format_partitions(self.pending_partitions)}"
        return head

    def _line_of(self, member: MemberView) -> str:
        line = f"{member.member_id} at {member.client_host[1:] or '-'}"
        line += ", leader" if member.member_id == self.leader_id else ""
        line += f", static {member.instance_id!r}" if member.instance_id else ""
        line += ", expected" if member.is_expected else ""
        if member.member_epoch is not None:
            line += f", epoch {member.member_epoch}, has {format_partitions(member.assigned_partitions or ())}"
        if member.pending_revocation_names:
            line += f", has to give up {', '.join(member.pending_revocation_names)}"
        if member.awaited:
            awaited = [(each.topic, each.partition) for each in member.awaited]
            line += f", waits for {format_partitions(awaited)}"
        return line


def _pending_views(pending: Iterable[PendingOffset]) -> tuple[PendingOffsetView, ...]:
    return tuple(
        PendingOffsetView(each.producer_id, each.topic, each.partition, each.committed.offset) for each in pending
    )


def find_group(cluster: Cluster, group_id: str) -> Group | None:
    """Return the classic group at its coordinator; None if there is no such group, or no coordinator."""
    broker = cluster.coordinator_of(group_id)
    return broker.coordinator.groups.classic.get(group_id) if broker else None


def timeline_of(cluster: Cluster, group_id: str, now_ms: float) -> Timeline:
    """Return the transitions of a group up to this time."""
    return Timeline(group_id, cluster.history.of(group_id), now_ms, cluster.history.dropped_of(group_id))


def view_group(cluster: Cluster, group_id: str, now_ms: float) -> GroupView:
    """Return the view of a group at this time."""
    broker = cluster.coordinator_of(group_id)
    if broker is not None and (consumer_group := broker.coordinator.groups.consumer.get(group_id)) is not None:
        return GroupView.of_consumer_group(cluster, broker, consumer_group, timeline_of(cluster, group_id, now_ms))
    history, pending = timeline_of(cluster, group_id, now_ms), pending_offsets(cluster, group_id)
    return GroupView.of(group_id, find_group(cluster, group_id), history, pending)


def view_moment(cluster: Cluster, group_id: str, moment: Moment, now_ms: float) -> GroupView:
    """Return the view of a group at a moment of its history, as far as it is known.

    State, generation, leader and the ids of the members are as at that moment. If the group has changed since, the
    other values are current. A member that has left since has only an id.
    """
    view = view_group(cluster, group_id, now_ms)
    if moment.state_to == GroupState.DEAD.value:
        return GroupView.of(group_id, None, view.history)
    now = (
        view.state,
        view.generation_id,
        view.leader_id,
        tuple(each.member_id for each in view.members if not each.is_expected),
    )
    if now == (moment.state_to, moment.generation_id, moment.leader_id, moment.members):
        return view
    members = {member.member_id: member for member in view.members}
    is_preparing = moment.state_to == GroupState.PREPARING_REBALANCE.value
    return msgspec.structs.replace(
        view,
        state=moment.state_to,
        generation_id=moment.generation_id,
        leader_id=moment.leader_id,
        type="classic" if moment.assignment_epoch is None else "consumer",
        assignment_epoch=moment.assignment_epoch,
        protocol_name=None if is_preparing or not moment.members else view.protocol_name,
        members=tuple(members.get(member_id) or MemberView.of_former(member_id) for member_id in moment.members),
    )


def view_groups(cluster: Cluster, now_ms: float) -> list[GroupView]:
    """Return the views of all groups: first the classic groups, then the consumer groups, each ordered by broker."""
    consumer = [
        GroupView.of_consumer_group(cluster, broker, group, timeline_of(cluster, group.group_id, now_ms))
        for broker in cluster.brokers.values()
        for group in broker.coordinator.groups.consumer
    ]
    classic = [
        GroupView.of(
            group.group_id,
            group,
            timeline_of(cluster, group.group_id, now_ms),
            broker.coordinator.offsets.pending_of(group.group_id),
        )
        for broker in cluster.brokers.values()
        for group in broker.coordinator.groups.classic.values()
    ]
    return classic + consumer


def committed_offsets(cluster: Cluster, group_id: str) -> PartitionMap[CommittedOffset]:
    """Return the committed offsets of a group, by topic and partition; empty if the group has no coordinator."""
    broker = cluster.coordinator_of(group_id)
    offsets = broker.coordinator.offsets.fetch(group_id, None)[1] if broker else []
    return PartitionMap({(topic, partition): offset for topic, partition, offset in offsets if offset is not None})


def pending_offsets(cluster: Cluster, group_id: str) -> list[PendingOffset]:
    """Return the offsets of a group in open transactions; none if the group has no coordinator."""
    broker = cluster.coordinator_of(group_id)
    return broker.coordinator.offsets.pending_of(group_id) if broker else []
