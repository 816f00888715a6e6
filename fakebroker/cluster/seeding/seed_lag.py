"""The committed offsets of seeded groups, and the records that are produced so that their lag is real."""

from collections.abc import Generator, Iterable, Mapping

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.seeding import producer
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ConfigError, shown
from fakebroker.protocol.records import Record
from fakebroker.topic_partition import TopicPartition

MAX_RECORDS = 1_000_000
"""The largest number of records that are produced for the seeds of one call."""

_RECORDS_PER_STEP = 500


class Commit(msgspec.Struct, frozen=True):
    """A committed offset of a seed, given as an offset, a lag, or both.

    Attributes:
        group_id: The group.
        partition: The partition.
        offset: The committed offset; None: the end of the log minus the lag.
        lag: The number of offsets from the committed offset to the end of the log; None for any.
    """

    group_id: str
    partition: Partition
    offset: int | None
    lag: int | None

    @property
    def name(self) -> str:
        """The name of the partition, such as "orders-0"."""
        return f"{self.partition.topic.name}-{self.partition.index}"

    @property
    def least_end(self) -> int:
        """The end that the log needs at least."""
        start = self.partition.log.log_start_offset if self.offset is None else self.offset
        return 0 if self.lag is None else start + self.lag

    def resolved(self, end: int) -> int:
        """Return the committed offset.

        Args:
            end: The end of the log, after the missing records have been produced.

        Raises:
            ConfigError: The offset is beyond the end, or contradicts the lag.
        """
        if self.offset is None:
            return end - (self.lag or 0)
        if self.offset > end:
            expected = f"0 to {end}, the end of its log; with a lag as well, missing records are produced"
            raise self.error("offsets", self.offset, expected)
        if self.lag is not None and self.offset + self.lag != end:
            expected = f"{end - self.offset}, because the offset is {self.offset} and the log ends at {end}"
            raise self.error("lag", self.lag, expected)
        return self.offset

    def error(self, field: str, value: object, expected: str) -> ConfigError:
        """Return the error of a field: "offsets" or "lag"."""
        return ConfigError.of(f"{field}.{self.name}", value, expected, where=f"group {shown(self.group_id)}")


class MissingRecords:
    """The records that must be produced, so that the logs reach the ends that seeds need.

    Their keys and values are their offsets as text.

    Args:
        cluster: The cluster.
        commits: The committed offsets of all seeds.

    Raises:
        ConfigError: The seeds need too many records.
    """

    def __init__(self, cluster: Cluster, commits: Iterable[Commit]) -> None:
        self._cluster = cluster
        self._deciding: dict[TopicPartition, Commit] = {}
        self._appended: list[tuple[Partition, int, int]] = []
        self._prepared: list[tuple[Partition, list[producer.PreparedBatch]]] = []
        for commit in commits:
            known = self._deciding.setdefault(_key(commit.partition), commit)
            if commit.least_end > known.least_end:
                self._deciding[_key(commit.partition)] = commit
        total = 0
        for commit in self._deciding.values():
            total += self._missing(commit)
            if total > MAX_RECORDS:
                expected = f"a lag for which at most {MAX_RECORDS} records are produced, in all partitions"
                raise commit.error("lag", commit.lag, expected)

    def end_of(self, partition: Partition) -> int:
        """Return the end of a log after the missing records have been produced."""
        commit = self._deciding.get(_key(partition))
        end = partition.log.log_end_offset
        return end if commit is None else max(end, commit.least_end)

    def _missing(self, commit: Commit) -> int:
        return max(0, commit.least_end - commit.partition.log.log_end_offset)

    def prepare(self, now_ms: float) -> Generator[None, None, None]:
        """Encode the records in steps, and check that the leaders accept them, without changing the cluster.

        Raises:
            ConfigError: The leader of a partition does not accept them, or would delete some because of their size.
        """
        for commit in self._deciding.values():
            if not self._missing(commit):
                continue
            partition, size_bytes = commit.partition, commit.partition.log.size_bytes
            batches: list[producer.PreparedBatch] = []
            end = partition.log.log_end_offset
            for start in range(end, commit.least_end, _RECORDS_PER_STEP):
                offsets = range(start, min(start + _RECORDS_PER_STEP, commit.least_end))
                texts = [b"%d" % offset for offset in offsets]
                records = [Record(0, int(now_ms), text, text) for text in texts]
                try:
                    found = producer.prepare(self._cluster, partition, records, now_ms)
                except ConfigError as error:
                    expected = f"a lag without missing records, because they cannot be produced: {error}"
                    raise commit.error("lag", commit.lag, expected) from None
                size_bytes += sum(each.prepared.batch.size_bytes for each in found)
                batches += found
                yield
            self._check_size(commit, size_bytes)
            self._prepared.append((partition, batches))

    def _check_size(self, commit: Commit, size_bytes: int) -> None:
        leader = self._cluster.leader_of(commit.partition)
        assert leader is not None
        limit_bytes = log_config(self._cluster, leader, commit.partition.topic).keep_bytes
        if 0 <= limit_bytes < size_bytes:
            raise commit.error("lag", commit.lag, f"a lag whose records fit in {limit_bytes} bytes")

    def produce(self, now_ms: float) -> Generator[None, None, None]:
        """Append the prepared records in steps.

        Raises:
            ConfigError: A partition has been deleted, or has lost its leader.
        """
        for partition, batches in self._prepared:
            topic = self._cluster.topics.get(partition.topic.name)
            if topic is not partition.topic or self._cluster.leader_of(partition) is None:
                name = f"{partition.topic.name}-{partition.index}"
                raise ConfigError.of("partition", name, "a partition that has a leader now")
            for batch in batches:
                start = partition.log.log_end_offset
                producer.append(self._cluster, [batch], now_ms)
                self._appended.append((partition, start, partition.log.log_end_offset))
                yield

    def undo(self) -> None:
        """Remove the records that were produced, except those after which others have appended records."""
        for partition, start, end in reversed(self._appended):
            if partition.log.log_end_offset == end:
                partition.log.truncate_to(start)


def _key(partition: Partition) -> TopicPartition:
    return partition.topic.name, partition.index


def resolved(commits: Iterable[Commit], missing: MissingRecords) -> Mapping[TopicPartition, int]:
    """Return the committed offsets by partition.

    Raises:
        ConfigError: An offset is beyond the end of the log, or contradicts a lag.
    """
    return {_key(commit.partition): commit.resolved(missing.end_of(commit.partition)) for commit in commits}
