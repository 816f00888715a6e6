"""Failures of appends of coordinators to their internal topics, which tests request. Plain data."""

from fakebroker.coordinator.persistence import APPEND_ERRORS
from fakebroker.errors import ConfigError, ErrorCode, one_of


class AppendFailure:
    """The next appends of coordinators to one partition of an internal topic fail.

    Attributes:
        id: Its number, from 1, as text.
        topic: `__consumer_offsets` or `__transaction_state`.
        partition: The index of the partition.
        error: The error of the log.
        times: How many appends fail; None for all.
        hits: How many have failed.
    """

    __slots__ = ("error", "hits", "id", "partition", "times", "topic")

    def __init__(self, number: int, topic: str, partition: int, error: ErrorCode, times: int | None) -> None:
        self.id = str(number)
        self.topic, self.partition, self.error, self.times = topic, partition, error, times
        self.hits = 0


class AppendFailures:
    """The failures that were requested and not removed.

    Attributes:
        active: The failures, oldest first, including those whose `times` are used up.
        by_id: All failures since the last reset, also those that were removed, by id.
    """

    def __init__(self) -> None:
        self.active: list[AppendFailure] = []
        self.by_id: dict[str, AppendFailure] = {}
        self._count = 0

    def add(self, topic: str, partition: int, error: ErrorCode, times: int | None) -> AppendFailure:
        """Let appends to a partition of an internal topic fail."""
        self._count += 1
        added = AppendFailure(self._count, topic, partition, error, times)
        self.active.append(added)
        self.by_id[added.id] = added
        return added

    def remove(self, failure: AppendFailure) -> None:
        """Let no more appends fail because of a failure, if it was not removed before."""
        if failure in self.active:
            self.active.remove(failure)

    def pick(self, topic: str, partition: int) -> AppendFailure | None:
        """Return the first failure for an append to a partition; the caller counts it in `hits`."""
        place = topic, partition
        return next(
            (each for each in self.active if (each.topic, each.partition) == place and each.hits != each.times), None
        )


def checked_error(error: ErrorCode | str) -> ErrorCode:
    """Return the error of an append.

    Raises:
        ConfigError: Appends do not fail with this error.
    """
    names = [code.name for code in APPEND_ERRORS]
    name = error.name if isinstance(error, ErrorCode) else error
    if name not in names:
        raise ConfigError.of("error", name, f"an error of an append, {one_of(names, name)}")
    return ErrorCode[name]
