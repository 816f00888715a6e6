"""Partitions that are read without group membership: where reading starts, and automatic commits."""

from collections.abc import Callable, Iterable

from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.fetcher import Fetcher
from fakebroker.client.consumer.group_offsets import GroupOffsets, OffsetOperation
from fakebroker.client.errors import GroupFailed
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition


class ManualAssignment:
    """The partitions of `Consumer.assign`; none if topics are subscribed to.

    With a group id in the settings, reading starts at its committed offsets, and commits are for it.

    Args:
        settings: The consumer's settings.
        fetcher: Reads the partitions.
        offsets: Commits, and looks up offsets.
        reset: Applies the reset policy to partitions without a committed offset.

    Attributes:
        partitions: The partitions.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        fetcher: Fetcher,
        offsets: GroupOffsets,
        reset: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self.partitions: tuple[TopicPartition, ...] = ()
        self._settings, self._fetcher, self._offsets, self._reset = settings, fetcher, offsets, reset
        self._initial: OffsetOperation | None = None  # the look-up of the committed offsets
        self._commit_ms = 0.0  # when the next automatic commit is due

    def assign(self, partitions: tuple[TopicPartition, ...], now_ms: float) -> None:
        """Replace the partitions; reading of those that stay goes on."""
        self._fetcher.remove([partition for partition in self.partitions if partition not in partitions])
        if self._initial is not None:
            self._offsets.cancel(self._initial)
            self._initial = None
        self.partitions = partitions
        self._commit_ms = now_ms + self._settings.commit_interval_ms

    def commit(self, now_ms: float) -> None:
        """Commit the positions, as the member does for its partitions; ignored without automatic commits."""
        if self.partitions and self._settings.group_id and self._settings.commit_interval_ms:
            self._commit_ms = now_ms + self._settings.commit_interval_ms
            if positions := self._fetcher.positions():
                self._offsets.commit(Identity(self._settings.group_id, None), positions)

    def commit_if_due(self, now_ms: float) -> None:
        """Commit the positions, if the interval of automatic commits is over."""
        if self._commit_ms <= now_ms:
            self.commit(now_ms)

    def take_failure(self) -> GroupFailed | None:
        """Begin to read where the committed offsets are known now; return the error of their look-up."""
        operation = self._initial
        if operation is None or operation.error is None:
            return None
        self._initial = None
        if operation.error is not ErrorCode.NONE:
            return GroupFailed(operation.error, f"group {self._settings.group_id!r}: {operation.error.name}")
        for partition, offset in operation.offsets.items():
            if partition in self.partitions and partition not in self._fetcher:
                if offset >= 0:
                    self._fetcher.start(partition, offset)
                else:
                    self._reset([partition])
        return None

    def start(self, without_offset: Iterable[TopicPartition]) -> None:
        """Look up committed offsets, or apply the reset policy, where reading has not begun.

        Args:
            without_offset: Partitions that have no offset, and no reset policy.
        """
        known = frozenset(without_offset)
        unstarted = [each for each in self.partitions if each not in self._fetcher and each not in known]
        if not unstarted or self._initial is not None:
            return
        if self._settings.group_id is None:
            self._reset(unstarted)
        else:
            self._initial = self._offsets.look_up(Identity(self._settings.group_id, None), unstarted)
