"""The handles of a topic and of a partition: their views, commands and conditions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.topic_configs import TopicConfigValue
from fakebroker.cluster.handles.conditions import condition
from fakebroker.cluster.handles.definition import Handle, Owner, check_type, command, holding, view
from fakebroker.cluster.handles.local import Instant
from fakebroker.cluster.inspect.phrases import counted, listed
from fakebroker.cluster.inspect.views import RecordView, batches_of, record_count
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.producer import Headers, ProducedRecord, RecordSeed, Timestamp, produce, seeds_of
from fakebroker.cluster.seeding.transaction_seed import ProducerEpoch, ProducerId, seed_hanging_transaction
from fakebroker.cluster.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, Partition, Topic
from fakebroker.errors import ConfigError, check_integer, nearest, one_of
from fakebroker.topic_partition import PartitionMap, partition_name, topic_id_text
from fakebroker.validation import Count, Data


class PartitionView(msgspec.Struct, frozen=True):
    """One partition.

    Attributes:
        partition: Its number.
        leader: Node id of the leader; -1 if there is none.
        leader_epoch: The epoch of the leader.
        replicas: Node ids of its replicas.
        in_sync: Node ids of the replicas that are in sync.
        adding: Node ids of the replicas that a reassignment in progress adds.
        removing: Node ids of the replicas that it removes.
        log_start_offset: The offset of its first record.
        log_end_offset: The offset of the next record.
        last_stable_offset: The end for consumers with `isolation.level=read_committed`: the first offset of an open
            transaction, or else the log end offset.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


class TopicView(msgspec.Struct, frozen=True):
    """One topic with its partitions.

    Attributes:
        name: Its name.
        partitions: Its partitions.
        is_internal: Whether it is __consumer_offsets or __transaction_state.
        topic_id: Its id, as Kafka's tools print it. A topic that is created again has another id.
    """

    name: str
    partitions: tuple[PartitionView, ...]
    is_internal: bool
    topic_id: str


def topic_view(cluster: Cluster, topic: Topic) -> TopicView:
    """Return the view of a topic."""
    partitions = tuple(_partition_view(cluster, each) for each in topic.partitions)
    return TopicView(topic.name, partitions, topic.is_internal, topic_id_text(topic.topic_id))


def _partition_view(cluster: Cluster, partition: Partition) -> PartitionView:
    return PartitionView(
        partition.index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replicas),
        tuple(cluster.in_sync(partition)),
        tuple(partition.adding),
        tuple(partition.removing),
        partition.log.log_start_offset,
        partition.log.log_end_offset,
        partition.log.last_stable_offset,
    )


def _existing(cluster: Cluster, name: str) -> Topic:
    topic = cluster.topics.get(name)
    if topic is None:
        raise ConfigError.of("topic", name, one_of([each.name for each in cluster.topics], name))
    return topic


def _describe(cluster: Cluster, name: str) -> str:
    topic = cluster.topics.get(name)
    if topic is None:
        known = [each.name for each in cluster.topics]
        near = nearest(name, known)
        hint = f"; nearest: `{near}`" if near else ""
        return f"no topic `{name}`{hint}" + (f"; others: {listed(known)}" if known else "")
    ends = [f"{each.index}: {each.log.log_start_offset} to {each.log.log_end_offset}" for each in topic.partitions]
    return (
        f"topic {name} has {counted(record_count(cluster, name), 'record')}; offsets of partitions: {', '.join(ends)}"
    )


class TopicHandle(Handle):
    """A topic, which need not exist yet: `cluster.topic("orders")`.

    Attributes:
        topic: The name of the topic.
    """

    _kind = "topic"
    _keys = ("topic",)
    _path = "topics"

    def __init__(self, owner: Owner, topic: str) -> None:
        super().__init__(owner)
        check_type("topic", topic, str, "a string")
        self.topic = topic

    def partition(self, partition: int) -> "PartitionHandle":
        """Return the handle of a partition, by its number."""
        return PartitionHandle(self._owner, self.topic, partition)

    # Views

    @view
    def describe(self) -> TopicView:
        """Return the topic with its partitions.

        Raises:
            ConfigError: There is no such topic.
        """
        local = self._local
        return local.run(lambda: topic_view(local.cluster, _existing(local.cluster, self.topic)))

    @view
    def records(self, partition: int | None = None, *, committed: bool = False) -> list[RecordView]:
        """Return the records of the topic, ordered by partition and offset: those that any consumer could read now.

        Without `committed`, records of open and of aborted transactions are among them.

        Records that retention, compaction or DeleteRecords have removed are missing, as are control records. Internal
        topics can be read, too.

        Args:
            partition: The number of the partition; None for all.
            committed: Whether the consumer has `isolation.level=read_committed`: records of aborted transactions are
                missing, and the records from the first open transaction on.

        Raises:
            ConfigError: There is no such topic or partition.
        """
        local = self._local
        found = local.run(lambda: batches_of(local.cluster, self.topic, partition, committed=committed))
        return [record for each in found for record in each.records()]

    @view
    def end_offsets(self, *, committed: bool = False) -> PartitionMap[int]:
        """Return the log end offset of each partition: `end_offsets()["orders-0"]`.

        It is the offset of the next record. Markers of transactions, which no consumer gets, have offsets, too.

        Args:
            committed: Whether the consumer has `isolation.level=read_committed`. Then it is the last stable offset: the
                first offset of an open transaction, or without one the log end offset.

        Raises:
            ConfigError: There is no such topic.
        """
        local = self._local
        partitions = local.run(lambda: _existing(local.cluster, self.topic).partitions)
        return PartitionMap(
            {
                (self.topic, each.index): each.log.last_stable_offset if committed else each.log.log_end_offset
                for each in partitions
            }
        )

    # Conditions

    @condition(after_requests=True)
    def has(self, at: Instant, at_least: Count, *, committed: bool = False) -> list[RecordView] | None:
        """The topic has at least this many records, also of open and aborted transactions.

        Args:
            at_least: The number of records.
            committed: Whether the consumer has `isolation.level=read_committed`; see `records`.
        """
        if (
            at.cluster.topics.get(self.topic) is None
            or record_count(at.cluster, self.topic, committed=committed) < at_least
        ):
            return None
        found = batches_of(at.cluster, self.topic, committed=committed)
        return [record for each in found for record in each.records()]

    @condition()
    def exists(self, at: Instant, partitions: Count | None = None) -> TopicView | None:
        """The topic exists.

        Args:
            partitions: The number of its partitions; None for any.
        """
        topic = at.cluster.topics.get(self.topic)
        if topic is None or partitions not in (None, len(topic.partitions)):
            return None
        return topic_view(at.cluster, topic)

    def _state_text(self, at: Instant) -> str:
        return _describe(at.cluster, self.topic)

    # Commands

    @command
    def create(
        self,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> None:
        """Create a topic and distribute its partitions evenly over the brokers.

        The first partitions of successive topics have different leaders: each topic starts at the next broker.

        Args:
            partitions: Number of partitions.
            replication_factor: Number of replicas of each partition. None: the broker setting
                `default.replication.factor`, but at most the number of brokers.
            configs: Topic configs by Kafka's names, such as `{"cleanup.policy": "compact"}`.

        Raises:
            ConfigError: The topic exists, its name is not legal, or an argument is out of range. Or the name
                differs from another topic's name only in dots and underscores, such as "a.b" and "a_b".
        """
        local = self._local
        local.change(lambda: local.cluster.create_new_topic(self.topic, partitions, replication_factor, configs or {}))

    @command
    def create_partitions(self, total: int) -> None:
        """Add partitions to a topic until it has `total`.

        Args:
            total: The new number of partitions, greater than the current one.

        Raises:
            ConfigError: The topic does not exist or is internal, or `total` is out of range.
        """
        local = self._local
        local.change(lambda: local.cluster.create_partitions(self.topic, total))

    @command
    def delete(self) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        Raises:
            ConfigError: The topic does not exist or is internal.
        """
        local = self._local
        local.change(lambda: local.cluster.delete_topic(local.cluster.existing_topic(self.topic)))

    @command
    def produce(
        self,
        values: Sequence[Data] = (),
        *,
        records: Sequence[RecordSeed] = (),
        key: Data = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> list[ProducedRecord]:
        """Append records to a topic, like a producer with `acks=all`.

        The records are checked like the records of a Produce request, and complete the Fetch requests that wait for
        them. All of them are appended, or none. Text stands for its bytes in UTF-8. In JSON and TOML, other bytes are
        given in base64, as {"base64": "/w=="}. Faults do not apply, and the journal has no request.

        `produce(["a", "b"])` produces values. `produce(records=[{"value": "a", "key": "1"}])` gives each record a key,
        headers, a timestamp and a partition of its own.

        Args:
            values: The values of the records. A value that is None, which is null in JSON, is a tombstone.
            records: Instead of values: `fakebroker.RecordSeed`s, or mappings with their fields.
            key: The key of all records.
            partition: Number of the partition. None: with a key, the partition that Kafka's default partitioner chooses
                (murmur2); without a key, the records go in turn to the partitions that have a leader.
            headers: The headers of all records, by name; or a list of pairs, in which a name may occur twice.
            timestamp: The timestamp of all records, in milliseconds since the Unix epoch. None: the time of the
                brokers' clock.

        Returns:
            A pair (partition, offset) for each record, with these attributes, in the order of the records.

        Raises:
            ConfigError: The topic or partition does not exist or has no leader, or its leader does not accept the
                records. The error names Kafka's error, such as MESSAGE_TOO_LARGE. Or `records` is given beside
                `values` or an option of all records.
        """
        seeds = seeds_of(values, records, key, partition, headers, timestamp)
        local = self._local

        def append() -> list[ProducedRecord]:
            return produce(local.cluster, self.topic, seeds, local.now_ms(), field="records" if records else "values")

        return local.run(append)

    @holding("release_reassignments")
    def hold_reassignments(self) -> None:
        """Hold reassignments of the topic's partitions before they complete, until `release_reassignments`.

        The replicas that a reassignment adds do not get in sync. So AlterPartitionReassignments succeeds, Metadata and
        ListPartitionReassignments show the added and the removed replicas, and the leader stays. Applies to
        reassignments in progress and to later ones; the topic need not exist yet. A reassignment that only removes
        replicas or changes their order completes at once. Clients can cancel or replace a reassignment meanwhile.

        Without a hold, a reassignment completes at once, unless a broker is down or its copies are throttled (by the
        configs `leader.replication.throttled.rate`, `leader.replication.throttled.replicas` and the same configs for
        followers). A throttled copy takes the size of the log divided by the rate, by the brokers' clock. Throttled
        copies from or to one broker run one after the other.

        Returns:
            A context manager that releases the reassignments.
        """
        local = self._local
        local.run(lambda: local.cluster.controller.hold_copies(self.topic, local.now_ms()))

    @command
    def release_reassignments(self) -> None:
        """Release held reassignments of the topic's partitions.

        Reassignments that are not throttled have completed when the command returns. Throttled ones continue.

        Raises:
            ConfigError: The reassignments of the topic are not held.
        """
        local = self._local

        def release() -> None:
            held = local.cluster.controller.copies.held_topics
            if self.topic not in held:
                known = one_of(sorted(map(repr, held)), none="but there is none")
                raise ConfigError.of("topic", self.topic, f"a topic whose reassignments are held, {known}")
            local.cluster.controller.release_copies(self.topic, local.now_ms())

        local.run(release)

    @command
    def finish_reassignments(self) -> None:
        """Complete the reassignments of the topic's partitions, even if they are held or throttled.

        Those that wait for a broker that is down continue to wait. A hold applies to later reassignments.
        """
        local = self._local
        local.change(lambda: local.cluster.controller.finish_copies(self.topic, local.now_ms()))


class PartitionHandle(Handle):
    """A partition, which need not exist yet: `cluster.topic("orders").partition(0)`.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
    """

    _kind = "partition"
    _keys = ("topic", "partition")
    _path = "topics/{topic}/partitions"

    def __init__(self, owner: Owner, topic: str, partition: int) -> None:
        super().__init__(owner)
        check_type("topic", topic, str, "a string")
        check_integer("partition", partition, least=0)
        self.topic, self.partition = topic, partition

    @view
    def describe(self) -> PartitionView:
        """Return the partition.

        Raises:
            ConfigError: There is no such topic or partition.
        """
        local = self._local
        return local.run(lambda: _partition_view(local.cluster, self._existing()))

    @condition(after_requests=True)
    def has(self, at: Instant, at_least: Count) -> list[RecordView] | None:
        """The partition has at least this many records that a consumer can read.

        Args:
            at_least: The number of records.
        """
        topic = at.cluster.topics.get(self.topic)
        if topic is None or self.partition >= len(topic.partitions):
            return None
        if record_count(at.cluster, self.topic, self.partition) < at_least:
            return None
        return [record for each in batches_of(at.cluster, self.topic, self.partition) for record in each.records()]

    def _state_text(self, at: Instant) -> str:
        topic = at.cluster.topics.get(self.topic)
        missing = topic is not None and self.partition >= len(topic.partitions)
        return f"no partition {self.topic}-{self.partition}\n" * missing + _describe(at.cluster, self.topic)

    @command
    def move_leader(self, /, to: int | None, **how: Annotated[Any, Failover]) -> None:
        """Move the leader of a partition of __consumer_offsets or __transaction_state, and with it the coordinator.

        `GroupHandle.move_coordinator` finds the partition of a group. Leaders of other topics move with
        `brokers.elect_preferred`, reassignments, and when brokers stop.

        Args:
            to: Node id of the new leader. None: the partition has no leader until it is moved again, or its previous
                leader restarts.
            how: Options of the failover; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The partition or broker does not exist, the topic is not internal, the broker is down, or an
                option is out of range or without effect.
        """
        local = self._local
        if self.topic not in INTERNAL_TOPICS:
            raise ConfigError.of("topic", self.topic, one_of(INTERNAL_TOPICS))

        def partition() -> Partition:
            local.cluster.first_use.finish(self.topic, local.now_ms())
            if self.topic == OFFSETS_TOPIC:
                local.cluster.topics.show_offsets_topic()
            return self._existing()

        local.move_leader(partition, to, Failover(**how))

    @command
    def seed_hanging_transaction(
        self,
        *,
        offset: Annotated[int, Meta(ge=0)] | None = None,
        records: Annotated[int, Meta(ge=1, le=100_000)] = 1,
        producer_id: ProducerId | None = None,
        epoch: ProducerEpoch = 0,
    ) -> None:
        """Leave a transaction open in the partition that no coordinator knows: a hanging transaction (KIP-664).

        Nothing ends it but WriteTxnMarkers of an admin client (`abortTransaction`), or the deletion of its records.
        Until then the last stable offset of the partition stays at its first record.

        Args:
            offset: The offset of its first record, from the end of the log on. Other records are appended up to it.
                None: the end of the log.
            records: Number of its records. Their values are their offsets, as text.
            producer_id: The producer id. None: the next one that is not in use.
            epoch: The producer epoch.

        Raises:
            ConfigError: The partition does not exist or has no leader, its log ends after the offset or more than
                1,000,000 records before it, or its leader refuses the records up to the offset.
        """
        local = self._local

        def seed() -> None:
            self._existing()
            seed_hanging_transaction(
                local.cluster,
                partition_name((self.topic, self.partition)),
                offset=offset,
                records=records,
                producer_id=producer_id,
                epoch=epoch,
                now_ms=local.now_ms(),
            )

        local.change(seed)

    def _existing(self) -> Partition:
        topic = _existing(self._local.cluster, self.topic)
        check_integer(
            "partition", self.partition, least=0, most=len(topic.partitions) - 1, where=f"topic {self.topic!r}"
        )
        return topic.partitions[self.partition]
