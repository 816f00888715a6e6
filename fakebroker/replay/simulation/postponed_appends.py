"""Postponed appends to the logs of offsets partitions: records are encoded only when a log is read or truncated.

A simulation reads few of these logs, and encoding and compaction would be most of the cost of a commit.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from fakebroker.cluster.logs.compactor import DEFAULT_WINDOW_RECORDS
from fakebroker.cluster.logs.coordinator_records import append_records
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.coordinator.records import CoordinatorRecord, Record
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from fakebroker.protocol.releases import NEWEST, Release

_POSTPONED = (OffsetCommitKey, GroupMetadataKey)


class PostponedAppends:
    """The records that are not appended to a compacted log yet.

    If the end of the log may be truncated, the newest records are all kept. They are the window of compaction: a
    truncation within that window must restore earlier records. Of the records outside of the window, only the last
    record of each key is kept, in the place of the first record. So `log_end_offset` is not a real offset until the
    postponed records are appended. This has no effect, because a simulation reads these logs only from the start.

    `add` must be the only writer of the log.

    Args:
        log: The log.
        is_truncated: Whether its end may be truncated.

    Attributes:
        log: The log.
    """

    __slots__ = ("_is_truncated", "_kept", "_window", "_window_count", "log")

    def __init__(self, log: PartitionLog, *, is_truncated: bool) -> None:
        self.log = log
        self._is_truncated = is_truncated
        log.before_read = self._append_postponed
        self._kept: dict[tuple[Any, ...], tuple[Record, int, float, Release]] = {}
        self._window: deque[tuple[Sequence[Record], int, float, Release]] = deque()
        self._window_count = 0

    def add(self, written: Sequence[Record], leader_epoch: int, now_ms: float, release: Release = NEWEST) -> None:
        """Append records as one batch when the log is next read or truncated; see `append_records`.

        Offsets and ends of transactions are appended at once, because the log tells which transactions are open.
        Records of consumer groups (KIP-848) are appended at once, too, because most of them remain the last record of
        their key.
        """
        if not all(type(each) is CoordinatorRecord and type(each.key) in _POSTPONED for each in written):
            self._append_postponed()
            append_records(self.log, written, leader_epoch, now_ms, release)
            return
        self.log.log_end_offset += len(written)
        if not self._is_truncated:
            self._keep(written, leader_epoch, now_ms, release)
            return
        self._window.append((written, leader_epoch, now_ms, release))
        self._window_count += len(written)
        while self._window_count - len(self._window[0][0]) >= DEFAULT_WINDOW_RECORDS:
            self._leave_window()

    def _leave_window(self) -> None:
        """Move the oldest batch out of the window."""
        written, leader_epoch, now_ms, release = self._window.popleft()
        self._window_count -= len(written)
        for record in written:
            self.log.log_end_offset -= self._kept.pop(_key(record), None) is not None
        self._keep(written, leader_epoch, now_ms, release)

    def _keep(self, written: Sequence[Record], leader_epoch: int, now_ms: float, release: Release) -> None:
        """Keep records as the last ones of their keys."""
        for record in written:
            key = _key(record)
            self.log.log_end_offset -= key in self._kept
            self._kept[key] = (record, leader_epoch, now_ms, release)

    def _append_postponed(self) -> None:
        kept, window = list(self._kept.values()), list(self._window)
        self.log.log_end_offset -= len(kept) + self._window_count
        self._kept.clear()
        self._window.clear()
        self._window_count = 0
        for record, leader_epoch, now_ms, release in kept:
            append_records(self.log, (record,), leader_epoch, now_ms, release)
        for written, leader_epoch, now_ms, release in window:
            append_records(self.log, written, leader_epoch, now_ms, release)


def _key(record: Record) -> tuple[Any, ...]:
    assert isinstance(record, CoordinatorRecord)
    return astuple(record.key)
