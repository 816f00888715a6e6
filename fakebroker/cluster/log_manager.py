"""`LogManager`: deletes expired records and compacts topics, at times of the brokers' clock (Kafka's LogManager).

Does not depend on requests. Records are checked at multiples of `log.retention.check.interval.ms` and
`log.cleaner.backoff.ms` after the start of the cluster, but only when there may be something to do.
"""

from collections.abc import Callable, Iterator
from math import ceil, inf

from fakebroker.cluster.configs.log_config import LogConfig
from fakebroker.cluster.topics import Partition, Topics


class LogManager:
    """The times of the next checks.

    Args:
        topics: The topics of the cluster.
        config_of: Returns the configs of a partition's leader; None if it has no leader.
        start_ms: The brokers' time at the start of the cluster, in milliseconds.
        retention_interval_ms: The time between two checks for expired records.
        cleaner_interval_ms: The time between two checks for records to compact.
    """

    def __init__(
        self,
        topics: Topics,
        config_of: Callable[[Partition], LogConfig | None],
        start_ms: float,
        retention_interval_ms: int,
        cleaner_interval_ms: int,
    ) -> None:
        self._topics = topics
        self._config_of = config_of
        self._start_ms = start_ms
        self._retention_interval_ms = retention_interval_ms
        self._cleaner_interval_ms = cleaner_interval_ms
        self._retention_ms = self._cleaning_ms = inf

    def appended(self, config: LogConfig, now_ms: float) -> None:
        """Schedule the next checks after an append to a topic with these configs."""
        if config.retention_ms >= 0:
            self._retention_ms = min(self._retention_ms, self._after(now_ms, self._retention_interval_ms))
        if config.is_compacted:
            self._cleaning_ms = min(self._cleaning_ms, self._after(now_ms, self._cleaner_interval_ms))

    def schedule(self, now_ms: float) -> None:
        """Schedule the next checks after configs, topics or logs were changed otherwise."""
        self._retention_ms = self._after(now_ms, self._retention_interval_ms)
        self._cleaning_ms = self._after(now_ms, self._cleaner_interval_ms)

    def next_deadline(self) -> float | None:
        """Return the time of the next check, in milliseconds of the brokers' time; None if none is needed."""
        due_ms = min(self._retention_ms, self._cleaning_ms)
        return None if due_ms == inf else due_ms

    def tick(self, now_ms: float) -> None:
        """Perform the checks that are due."""
        if now_ms >= self._retention_ms:
            expires_ms = min((_delete_expired(*led, now_ms) for led in self._led()), default=inf)
            self._retention_ms = self._at_or_after(max(expires_ms, now_ms + 1), self._retention_interval_ms)
        if now_ms >= self._cleaning_ms:
            due_ms = min((_compact(*led, now_ms) for led in self._led()), default=inf)
            self._cleaning_ms = self._at_or_after(max(due_ms, now_ms + 1), self._cleaner_interval_ms)

    def _led(self) -> Iterator[tuple[Partition, LogConfig]]:
        """Yield the partitions that have a leader, with their configs, except those of internal topics."""
        for topic in self._topics:
            for partition in () if topic.is_internal else topic.partitions:
                config = self._config_of(partition)
                if config is not None:
                    yield partition, config

    def _after(self, time_ms: float, interval_ms: int) -> float:
        """Return the time of the first check after a time."""
        return self._start_ms + ((time_ms - self._start_ms) // interval_ms + 1) * interval_ms

    def _at_or_after(self, time_ms: float, interval_ms: int) -> float:
        """Return the time of the first check at a time or after it."""
        return inf if time_ms == inf else self._start_ms + ceil((time_ms - self._start_ms) / interval_ms) * interval_ms


def _delete_expired(partition: Partition, config: LogConfig, now_ms: float) -> float:
    """Delete the expired records of a partition. Return when the next ones expire."""
    if config.retention_ms < 0:
        return inf
    oldest_ms = partition.log.delete_before(now_ms - config.retention_ms)
    return oldest_ms + config.retention_ms + 1


def _compact(partition: Partition, config: LogConfig, now_ms: float) -> float:
    """Compact a partition. Return when to do it again."""
    if not config.is_compacted:
        return inf
    return partition.log.compact(now_ms, config.min_compaction_lag_ms, config.delete_retention_ms)
