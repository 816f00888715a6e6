"""The checksum of record batches."""

from collections.abc import Callable
from functools import cache


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC-32C of data that follows data with the CRC-32C `before`."""
    return _implementation()(data, before)


@cache
def _implementation() -> Callable[[bytes | bytearray | memoryview, int], int]:
    """Import the package `crc32c` when a checksum is needed: its import reads the metadata of installed packages."""
    import crc32c

    return crc32c.crc32c
