"""The log of an offsets partition that makes bytes of its records only when somebody reads or truncates it.

In a simulation few logs are ever read, and making and compacting bytes is most of what a commit costs. Knows records as
coordinators write them; not what they mean.
"""

from collections import deque
from collections.abc import Sequence

from fakebroker.cluster.logs.compacted_log import DEFAULT_WINDOW_RECORDS, CompactedLog
from fakebroker.cluster.logs.offsets_topic import append_records
from fakebroker.coordinator.group.records import OffsetRecord, Record

_Key = tuple[str, str, int]


class LateLog(CompactedLog):
    """A compacted log that keeps what is written to it as it is, for as long as that will do.

    Of the records behind the window that no compaction touches, the last of each key is kept. Offsets count what is
    kept: nobody reads this log by offset.
    """

    __slots__ = ("_kept", "_window", "_window_count")

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[_Key, tuple[Record, int, float]] = {}
        self._window: deque[tuple[Sequence[Record], int, float]] = deque()
        self._window_count = 0

    def keep(self, written: Sequence[Record], leader_epoch: int, now_ms: float) -> None:
        """Append records as one batch."""
        self._window.append((written, leader_epoch, now_ms))
        self._window_count += len(written)
        self.log_end_offset += len(written)
        while self._window_count - len(self._window[0][0]) >= DEFAULT_WINDOW_RECORDS:
            self._leave()

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        self._make_bytes()
        return super().read(offset, max_bytes, at_least_one=at_least_one)

    def truncate_to(self, offset: int) -> None:
        self._make_bytes()
        super().truncate_to(offset)

    def _leave(self) -> None:
        """Let the oldest batch leave the window."""
        written, leader_epoch, now_ms = self._window.popleft()
        self._window_count -= len(written)
        for record in written:
            key = _key(record)
            if self._kept.pop(key, None) is not None:
                self.log_end_offset -= 1
            self._kept[key] = (record, leader_epoch, now_ms)

    def _make_bytes(self) -> None:
        kept, window = list(self._kept.values()), list(self._window)
        self.log_end_offset -= len(kept) + self._window_count
        self._kept.clear()
        self._window.clear()
        self._window_count = 0
        for record, leader_epoch, now_ms in kept:
            append_records(self, (record,), leader_epoch, now_ms)
        for written, leader_epoch, now_ms in window:
            append_records(self, written, leader_epoch, now_ms)


def _key(record: Record) -> _Key:
    if isinstance(record, OffsetRecord):
        return record.group_id, record.topic, record.partition
    return record.group_id, "", -1
