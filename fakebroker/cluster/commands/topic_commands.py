"""Commands for topics: create and delete them, append records, hold reassignments of partitions."""

from collections.abc import Mapping, Sequence

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import command
from fakebroker.cluster.commands.handles import Hold
from fakebroker.cluster.configs.topic_configs import TopicConfigValue
from fakebroker.cluster.seeding.producer import Headers, ProducedRecord, Timestamp, produce
from fakebroker.errors import ConfigError, one_of
from fakebroker.validation import Data


class TopicCommands(CommandsBase):
    """Commands for topics, their records, and their replicas."""

    @command
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> None:
        """Create a topic and distribute its partitions evenly over the brokers.

        The first partitions of successive topics have different leaders: each topic starts at the next broker.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            replication_factor: Number of replicas of each partition. None: the broker setting
                `default.replication.factor`, but at most the number of brokers.
            configs: Topic configs by Kafka's names, such as `{"cleanup.policy": "compact"}`.

        Raises:
            ConfigError: The topic exists, its name is not legal, or an argument is out of range. Or the name
                differs from another topic's name only in dots and underscores, such as "a.b" and "a_b".
        """
        self._change(lambda: self._cluster.create_new_topic(name, partitions, replication_factor, configs or {}))

    @command
    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic until it has `total`.

        Args:
            name: Name of the topic.
            total: The new number of partitions, greater than the current one.

        Raises:
            ConfigError: The topic does not exist or is internal, or `total` is out of range.
        """
        self._change(lambda: self._cluster.create_partitions(name, total))

    @command
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        Args:
            name: Name of the topic.

        Raises:
            ConfigError: The topic does not exist or is internal.
        """
        cluster = self._cluster
        self._change(lambda: cluster.delete_topic(cluster.existing_topic(name)))

    @command
    def produce(
        self,
        topic: str,
        values: Sequence[Data],
        *,
        key: Data = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> list[ProducedRecord]:
        """Append records to a topic, like a producer with `acks=all`.

        The records are checked like the records of a Produce request, and complete the Fetch requests that wait for
        them. All of them are appended, or none. Text stands for its bytes in UTF-8. In JSON and TOML, other bytes are
        given in base64, as {"base64": "/w=="}. Faults do not apply, and the journal has no request.

        Args:
            topic: Name of the topic, which must exist.
            values: The values of the records. None, which is null in JSON: a tombstone.
            key: The key of all records.
            partition: Number of the partition. None: with a key, the partition that Kafka's default partitioner chooses
                (murmur2); without a key, the records go in turn to the partitions that have a leader.
            headers: The headers of all records, by name; or a list of pairs, in which a name may occur twice.
            timestamp: The timestamp of all records, in milliseconds since the Unix epoch. None: the time of the
                brokers' clock.

        Returns:
            A pair (partition, offset) for each record, with these attributes, in the order of the values.

        Raises:
            ConfigError: The topic or partition does not exist or has no leader, or its leader does not accept the
                records. The error names Kafka's error, such as MESSAGE_TOO_LARGE.
        """

        def append() -> list[ProducedRecord]:
            now_ms = self._now_ms()
            return produce(
                self._cluster,
                topic,
                values,
                key=key,
                partition=partition,
                headers=headers or {},
                timestamp_ms=int(now_ms) if timestamp is None else timestamp,
                now_ms=now_ms,
            )

        return self._run(append)

    @command
    def hold_reassignments(self, topic: str | None = None) -> Hold:
        """Hold reassignments of partitions before they complete, until `release_reassignments`.

        The replicas that a reassignment adds do not get in sync. So AlterPartitionReassignments succeeds, Metadata and
        ListPartitionReassignments show the added and the removed replicas, and the leader stays. Applies to
        reassignments in progress and to later ones. A reassignment that only removes replicas or changes their order
        completes at once. Clients can cancel or replace a reassignment meanwhile.

        Without a hold, a reassignment completes at once, unless a broker is down or its copies are throttled (by the
        configs `leader.replication.throttled.rate`, `leader.replication.throttled.replicas` and the same configs for
        followers). A throttled copy takes the size of the log divided by the rate, by the brokers' clock. Throttled
        copies from or to one broker run one after the other.

        Args:
            topic: Name of a topic, which need not exist yet. None: all topics.

        Returns:
            A context manager that releases the reassignments.
        """
        self._run(lambda: self._cluster.controller.hold_copies(topic, self._now_ms()))
        return Hold(lambda: self._run(lambda: self._cluster.controller.release_copies(topic, self._now_ms())))

    @command
    def release_reassignments(self, topic: str | None = None) -> None:
        """Release reassignments that are held.

        Those that are not throttled have completed when the command returns. Throttled ones continue.

        Args:
            topic: The topic that was given to `hold_reassignments`, or None if it was None.

        Raises:
            ConfigError: The reassignments of the topic are not held.
        """

        def release() -> None:
            held = self._cluster.controller.copies.held_topics
            if topic not in held:
                known = one_of(sorted(map(repr, held)), none="but none is held")
                raise ConfigError.of("topic", topic, f"what hold_reassignments was given, {known}")
            self._cluster.controller.release_copies(topic, self._now_ms())

        self._run(release)

    @command
    def finish_reassignments(self) -> None:
        """Complete all reassignments in progress, even if they are held or throttled.

        Those that wait for a broker that is down continue to wait. Holds apply to later reassignments.
        """
        self._change(lambda: self._cluster.controller.finish_copies(self._now_ms()))
