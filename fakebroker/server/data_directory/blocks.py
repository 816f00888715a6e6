"""The format of log and checkpoint files: blocks of entries, each written at once and protected by a checksum.

A block has a header and entries, all numbers are big-endian:

    header   magic "FBLK", size of the entries (u32), safe size of the file (u64), CRC32C of the entries (u32),
             CRC32C of the header (u32)
    entry    kind (u8), size of the payload (u32), payload

The checksum of the header covers the number of the file and the offset of the block, too, so that nothing else is taken
for a header: neither the content of an entry nor a block of another file.

The first block of a log has one entry of kind 0, with the size of the log before it (u64), which is complete. So a log
is noticed that was shortened later.

The safe size is how much of the file is on disk before anything is written after the block. A failure of the machine
damages only what is behind it. A block without entries has only this to say, or ends a checkpoint.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from fakebroker.protocol.records import crc32c

MAGIC: Final = b"FBLK"
_HEADER: Final = struct.Struct(">4sIQII")
_CHECKED: Final = struct.Struct(">QQIQI")
"""What the checksum of a header covers: number of the file, offset, size of the entries, safe size, their checksum."""
_ENTRY: Final = struct.Struct(">BI")
_SIZE: Final = struct.Struct(">Q")
HEADER_BYTES: Final = _HEADER.size
ENTRY_OVERHEAD_BYTES: Final = _ENTRY.size
READ_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of a file are read at once, unless a block is larger."""

Entry = tuple[int, memoryview]
"""Kind and payload."""
Read = Callable[[int, int], bytes]
"""Reads bytes of a file: number of bytes, offset. Returns fewer at its end. (As `os.pread` for a descriptor.)"""


class Header(NamedTuple):
    """The header of a block: size and checksum of its entries, and the safe size of the file."""

    size_bytes: int
    safe_bytes: int
    checksum: int


class Block:
    """A block that is being filled."""

    def __init__(self) -> None:
        self._data = bytearray(HEADER_BYTES)

    @property
    def size_bytes(self) -> int:
        """Size of the block with its header."""
        return len(self._data)

    @property
    def is_empty(self) -> bool:
        """Whether it has no entries."""
        return len(self._data) == HEADER_BYTES

    def add(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        """Add an entry.

        Args:
            kind: Its kind, 1 to 255.
            parts: Its payload, in parts, which are copied.
        """
        data = self._data
        data += _ENTRY.pack(kind, sum([len(part) for part in parts]))
        for part in parts:
            data += part

    def encoded(self, number: int, offset: int, safe_bytes: int) -> bytearray:
        """Return the bytes of the block for its place in a file. They are valid until `clear`.

        Args:
            number: Number of the file.
            offset: Where the block starts.
            safe_bytes: The safe size of the file.
        """
        size = len(self._data) - HEADER_BYTES
        with memoryview(self._data) as view, view[HEADER_BYTES:] as entries:
            checksum = crc32c(entries)
        header_checksum = crc32c(_CHECKED.pack(number, offset, size, safe_bytes, checksum))
        _HEADER.pack_into(self._data, 0, MAGIC, size, safe_bytes, checksum, header_checksum)
        return self._data

    def clear(self) -> None:
        """Remove all entries."""
        del self._data[HEADER_BYTES:]


def start_of_log(previous_bytes: int) -> Block:
    """Return the first block of a log.

    Args:
        previous_bytes: The size of the log before it; 0 if there is none.
    """
    block = Block()
    block.add(0, [_SIZE.pack(previous_bytes)])
    return block


START_BYTES: Final = start_of_log(0).size_bytes


def read_start(read: Read, number: int) -> int | None:
    """Return the size of the log before a log; None if the first block is not intact."""
    start = memoryview(read(START_BYTES, 0))
    header = read_header(start, 0, number, 0)
    if header is None or len(start) < START_BYTES or crc32c(start[HEADER_BYTES:]) != header.checksum:
        return None
    return int(_SIZE.unpack_from(start, START_BYTES - _SIZE.size)[0])


def read_entries(read: Read, number: int, size_bytes: int, offset: int = 0) -> Generator[Entry, None, int]:
    """Yield the entries of a file, block by block, each block after its checksum is verified.

    Args:
        read: Reads the file.
        number: Number of the file.
        size_bytes: Its size.
        offset: The offset of the first block.

    Returns:
        The offset at which the first thing starts that is not an intact block, or the size of the file.
    """
    unpack, overhead = _ENTRY.unpack_from, ENTRY_OVERHEAD_BYTES
    wanted = READ_BYTES
    while offset < size_bytes:
        chunk = memoryview(read(wanted, offset))
        start = 0
        while (header := read_header(chunk, start, number, offset + start)) is not None:
            end = start + HEADER_BYTES + header.size_bytes
            if end > len(chunk):
                break
            at = start + HEADER_BYTES
            if crc32c(chunk[at:end]) != header.checksum:
                return offset + start
            while at < end:
                kind, length = unpack(chunk, at)
                at += overhead
                yield kind, chunk[at : at + length]
                at += length
            start = end
        # What is left is the start of a block that continues behind the chunk; if the chunk already began with it, or
        # the file ends before it does, the block is not intact.
        block_bytes = HEADER_BYTES + (header.size_bytes if header else 0)
        if not start and (header is None or wanted >= block_bytes or offset + block_bytes > size_bytes):
            return offset
        offset += start
        wanted = max(READ_BYTES, block_bytes)
    return offset


def read_header(data: memoryview, at: int, number: int, offset: int) -> Header | None:
    """Return the header that is in `data` at `at`.

    Args:
        data: A part of a file.
        at: Index of the header in it.
        number: Number of the file.
        offset: Offset of the header in the file.

    Returns:
        The header; or None if there is no intact one.
    """
    if len(data) - at < HEADER_BYTES:
        return None
    magic, size, safe, checksum, header_checksum = _HEADER.unpack_from(data, at)
    if magic != MAGIC or header_checksum != crc32c(_CHECKED.pack(number, offset, size, safe, checksum)):
        return None
    return Header(size, safe, checksum)
