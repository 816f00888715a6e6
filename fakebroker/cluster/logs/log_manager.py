"""`LogManager`: deletes expired records and compacts topics, at times of the brokers' clock (Kafka's LogManager).

Does not depend on requests. Records are checked at multiples of `log.retention.check.interval.ms` and
`log.cleaner.backoff.ms` after the start of the cluster, but only when there may be something to do.
"""

from collections.abc import Callable, Iterator
from math import ceil, inf
from typing import Any

from fakebroker.cluster.configs.log_config import LogConfig
from fakebroker.cluster.topics import Partition, Topics
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue

_LAST_MS = 253_402_300_799_000
"""The end of the year 9999; records that expire later never expire."""


class LogManager:
    """The times of the next checks.

    Args:
        topics: The topics of the cluster.
        config_of: Returns the configs of a partition at its leader or last leader; None if that was removed.
        start_ms: The brokers' time at the start of the cluster, in milliseconds.
        retention_interval_ms: The time between two checks for expired records.
        cleaner_interval_ms: Returns the time between two checks for records to compact, which is a dynamic config.
        queue: The timers of the cluster.
    """

    def __init__(
        self,
        topics: Topics,
        config_of: Callable[[Partition], LogConfig | None],
        start_ms: float,
        retention_interval_ms: int,
        cleaner_interval_ms: Callable[[], int],
        queue: TimerQueue[Any],
    ) -> None:
        self._topics = topics
        self._config_of = config_of
        self._start_ms = start_ms
        self._retention_interval_ms = retention_interval_ms
        self._cleaner_interval_ms = cleaner_interval_ms
        self._retention, self._cleaning = TimedValue("retention"), TimedValue("compaction")
        self._timers = queue.service(Rank.LOGS, self._check)

    def appended(self, config: LogConfig, now_ms: float) -> None:
        """Schedule the next checks after an append to a topic with these configs."""
        if config.retention_ms >= 0 and self._retention.scheduled_ms - now_ms > self._retention_interval_ms:
            self._timers.set(self._retention, self._after(now_ms, self._retention_interval_ms))
        if config.is_compacted:
            self._timers.schedule(self._cleaning, self._after(now_ms, self._cleaner_interval()))

    def schedule(self, now_ms: float) -> None:
        """Schedule the next checks after a check, or after configs, topics or logs were changed otherwise."""
        expires_ms = min((_expires_ms(*led) for led in self._led()), default=inf)
        self._timers.set(self._retention, self._at_or_after(max(expires_ms, now_ms + 1), self._retention_interval_ms))
        compacts_ms = min((_compacts_ms(*led) for led in self._led()), default=inf)
        self._timers.set(self._cleaning, self._at_or_after(max(compacts_ms, now_ms + 1), self._cleaner_interval()))

    def _check(self, check: TimedValue[str], due_ms: float, now_ms: float) -> None:
        """Perform the check that is due, together with the other one if that is due, too."""
        deletes = check is self._retention or now_ms >= self._retention.scheduled_ms
        compacts = check is self._cleaning or now_ms >= self._cleaning.scheduled_ms
        for partition, config in self._led():
            if deletes and config.retention_ms >= 0:
                partition.log.delete_before(now_ms - config.retention_ms)
            if compacts and config.is_compacted:
                partition.log.compact(now_ms, config.min_compaction_lag_ms, config.delete_retention_ms)
        self.schedule(now_ms)

    def _cleaner_interval(self) -> int:
        return max(1, self._cleaner_interval_ms())

    def _led(self) -> Iterator[tuple[Partition, LogConfig]]:
        """Yield partitions with their configs. Skips internal topics, and partitions whose last leader was removed."""
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
        if time_ms > _LAST_MS:
            return inf
        return self._start_ms + ceil((time_ms - self._start_ms) / interval_ms) * interval_ms


def _expires_ms(partition: Partition, config: LogConfig) -> float:
    """Return when the oldest records of a partition expire."""
    return inf if config.retention_ms < 0 else partition.log.oldest_timestamp_ms + config.retention_ms + 1


def _compacts_ms(partition: Partition, config: LogConfig) -> float:
    """Return when a partition can be compacted."""
    return partition.log.next_compaction_ms if config.is_compacted else inf
