"""`Segment`: consecutive record batches of a compacted log in one object. Does not depend on logs or compaction.

A log can have a million batches of one record each. As objects of their own, they would take twice the memory, and
compressed they take a sixth to a ninth of it.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import accumulate

from cramjam import zstd

from fakebroker.protocol.records import RecordBatch, encode_batch, iterate_records, record_keys

_BASE_OFFSET, _LAST_OFFSET_DELTA, _LAST_OFFSET_DELTA_AT = struct.Struct(">q"), struct.Struct(">i"), 23
_LEVEL = 1  # Of zstd: higher ones take longer, and save nothing.


class Segment:
    """Consecutive batches, which are not modified. Compressed ones are decompressed whenever they are read.

    Keys are compared by their hashes of 64 bits. Kafka's cleaner also compares hashes (`SkimpyOffsetMap`).

    Attributes:
        offsets: The offsets of the records with a key, without control records and records of aborted transactions.
        hashes: The hashes of their keys.
        doomed: Offsets of records that a pass drops in any case: tombstones, records without a key, and records of
            aborted transactions.
        record_count: The number of records, control records included.
        is_transactional: Whether a batch is transactional.
        is_compressed: Whether the batches are kept compressed.
        last_offset: The last offset of the last batch.
        size_bytes: The size of all batches, not compressed.
    """

    __slots__ = (
        "_data",
        "_starts",
        "doomed",
        "hashes",
        "is_compressed",
        "is_transactional",
        "last_offset",
        "offsets",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        batches: Iterable[bytes],
        offsets: Iterable[int],
        hashes: Iterable[int],
        doomed: Sequence[int] = (),
        *,
        record_count: int,
        is_transactional: bool = False,
    ) -> None:
        pieces = list(batches)
        self._data = data = b"".join(pieces)
        self._starts = array("I", accumulate(map(len, pieces[:-1]), initial=0))
        self.is_compressed = False
        self.size_bytes = len(data)
        self.last_offset = _last_offset_at(data, self._starts[-1])
        self.offsets, self.hashes = array("q", offsets), array("q", hashes)
        self.doomed = doomed
        self.record_count = record_count
        self.is_transactional = is_transactional

    @property
    def data(self) -> bytes:
        """The batches, one after the other."""
        return bytes(zstd.decompress(self._data)) if self.is_compressed else self._data

    def compressed(self) -> "Segment":
        """Return the same batches, kept compressed."""
        if self.is_compressed:
            return self
        twin = copy(self)
        twin._data, twin.is_compressed = bytes(zstd.compress(self._data, _LEVEL)), True
        return twin

    def batches(self, offset: int = 0) -> Iterator[RecordBatch]:
        """Yield the batches, from the first batch that ends at the offset or after it."""
        starts, data = self._starts, self.data
        first = bisect_left(starts, offset, key=partial(_last_offset_at, data))
        for number in range(first, len(starts)):
            end = starts[number + 1] if number + 1 < len(starts) else len(data)
            yield RecordBatch(data[starts[number] : end])

    def superseded(self, last_offsets: Mapping[int, int]) -> set[int]:
        """Return the offsets of the records to drop, given the last offset of each hash: superseded and doomed ones."""
        last = last_offsets.get
        found = {at for at, key in zip(self.offsets, self.hashes, strict=True) if last(key, at) > at}
        found.update(self.doomed)
        return found

    def without(self, dropped: Collection[int]) -> "Segment | None":
        """Return a segment without some of its records; None if no record is left. It must not be transactional."""
        if len(self._starts) != len(self.offsets) or self.record_count != len(self.offsets):
            batches = (without(batch, dropped) for batch in self.batches())
            return self.with_batches([batch for batch in batches if batch is not None], dropped)
        # Each batch has one record.
        if len(dropped) == len(self.offsets):
            return None
        data, starts = self.data, self._starts
        rows = zip(starts, [*starts[1:], len(data)], self.offsets, self.hashes, strict=True)
        kept = [(data[start:end], at, key) for start, end, at, key in rows if at not in dropped]
        return Segment(*zip(*kept, strict=True), record_count=len(kept))

    def with_batches(self, batches: Sequence[RecordBatch], dropped: Collection[int]) -> "Segment | None":
        """Return a segment with the remaining batches, after these records were dropped; None without batches."""
        if not batches:
            return None
        rows = zip(self.offsets, self.hashes, strict=True)
        kept = [(at, key) for at, key in rows if at not in dropped]
        return Segment(
            [batch.data for batch in batches],
            [at for at, _ in kept],
            [key for _, key in kept],
            record_count=sum(batch.record_count for batch in batches),
            is_transactional=self.is_transactional,
        )

    def followed_by(self, other: "Segment") -> "Segment":
        """Return the batches of both segments as one."""
        joined = Segment(
            (self.data, other.data),
            self.offsets + other.offsets,
            self.hashes + other.hashes,
            (*self.doomed, *other.doomed),
            record_count=self.record_count + other.record_count,
            is_transactional=self.is_transactional or other.is_transactional,
        )
        joined._starts = self._starts + array("I", [self.size_bytes + start for start in other._starts])
        joined.last_offset = other.last_offset
        return joined


def _last_offset_at(data: bytes, start: int) -> int:
    """Return the last offset of the batch that starts here."""
    delta: int = _LAST_OFFSET_DELTA.unpack_from(data, start + _LAST_OFFSET_DELTA_AT)[0]
    base_offset: int = _BASE_OFFSET.unpack_from(data, start)[0]
    return base_offset + delta


def segment_of(batches: Sequence[RecordBatch], aborted: Collection[int] | None) -> Segment:
    """Return a segment with these batches, at least one.

    Args:
        batches: The batches.
        aborted: The base offsets of the batches whose transactions were aborted; None if no batch is transactional.
    """
    offsets, hashes, doomed = list[int](), list[int](), list[int]()
    record_count = 0
    for batch in batches:
        if aborted is not None and batch.is_control:
            record_count += batch.record_count
            continue
        is_aborted = aborted is not None and batch.base_offset in aborted
        for offset, key, has_value in record_keys(batch):
            record_count += 1
            if key is not None and not is_aborted:
                offsets.append(offset)
                hashes.append(hash(key))
            if key is None or is_aborted or not has_value:
                doomed.append(offset)
    return Segment(
        [batch.data for batch in batches],
        offsets,
        hashes,
        doomed,
        record_count=record_count,
        is_transactional=aborted is not None and any(batch.is_transactional for batch in batches),
    )


def without(batch: RecordBatch, offsets: Collection[int]) -> RecordBatch | None:
    """Return a batch without some of its records, or None if no record is left.

    Its offsets and its header fields for producers and transactions do not change.
    """
    found = [offset for offset in range(batch.base_offset, batch.last_offset + 1) if offset in offsets]
    if not found:
        return batch
    kept = [record for record in iterate_records(batch) if record.offset not in offsets]
    if not kept:
        return None
    data = encode_batch(
        kept,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        compression=batch.compression,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    return RecordBatch(data)
