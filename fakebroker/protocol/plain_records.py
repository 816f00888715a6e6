"""Check plain records of batches without decoding them, because a broker checks every record that it receives.

Plain records have consecutive offsets, no headers, and no timestamps before the base timestamp of their batch.
"""

from fakebroker.protocol.records import NULL, VARINTS, after_varint
from fakebroker.protocol.types import read_unsigned_varint

_NULL_LENGTH = NULL[0]


def check_plain(data: bytes, position: int, index: int, end_index: int) -> tuple[int, int] | None:
    """Check that records are plain.

    Args:
        data: The decompressed records of a batch.
        position: The position of the first record.
        index: The number of the first record in its batch.
        end_index: The number of the record after the last one.

    Returns:
        The position after the last record, and the largest difference between the timestamp of one of these records and
        the base timestamp; None if records may be invalid, or are not plain.
    """
    read = read_unsigned_varint
    largest, last_length = 0, 0
    try:
        # The varints are signed (zigzag): odd ones are negative. Those of one or two bytes, which are most, are decoded
        # here: this takes half the time. A first byte above 127 is followed by more bits.
        while index < end_index:
            start = position
            length = data[position]
            position += 1
            if length > 127:
                if (second := data[position]) < 128:
                    length += (second - 1) << 7
                    position += 1
                else:
                    length, position = read(data, position - 1)
            end = position + (length >> 1)
            position += 1  # attributes
            delta = data[position]
            position += 1
            if delta > 127:
                delta, position = read(data, position - 1)
            signs = length | delta
            offset_at = position
            offset = data[position]
            position += 1
            if offset > 127:
                if (second := data[position]) < 128:
                    offset += (second - 1) << 7
                    position += 1
                else:
                    offset, position = read(data, position - 1)
            key_at = position
            key_bytes = data[position]
            position += 1
            if key_bytes != _NULL_LENGTH:
                if key_bytes > 127:
                    key_bytes, position = read(data, position - 1)
                position += key_bytes >> 1
                signs |= key_bytes
            value_at = position
            value_bytes = data[position]
            position += 1
            if value_bytes != _NULL_LENGTH:
                if value_bytes > 127:
                    if (second := data[position]) < 128:
                        value_bytes += (second - 1) << 7
                        position += 1
                    else:
                        value_bytes, position = read(data, position - 1)
                position += value_bytes >> 1
                signs |= value_bytes
            has_headers = data[position] != 0
            position += 1
            if position != end or offset != index << 1 or has_headers or signs & 1:
                return None
            if delta > largest:
                largest = delta
            index += 1
            if length == last_length:  # Records of one size often follow each other: comparing takes half the time.
                index, position = _after_similar(data, (start, offset_at, key_at, value_at, end), index, end_index)
            last_length = length
    except (IndexError, ValueError):
        return None
    return position, largest >> 1


def _after_similar(data: bytes, record: tuple[int, int, int, int, int], index: int, end_index: int) -> tuple[int, int]:
    """Skip the records after a plain record that differ from it at most in offset, key and value, but not in sizes.

    Args:
        data: The records.
        record: The positions of the plain record, its offset, the length of its key, the length of its value, its end.
        index: The number of the next record.
        end_index: As for `check_plain`.

    Returns:
        The number and the position of the first record that is different, or of the end.
    """
    start, offset_at, key_at, value_at, position = record
    size_bytes, value_at = position - start, value_at - start
    head = data[start:offset_at]
    key_length, value_length = _varint_at(data, key_at), _varint_at(data, start + value_at)
    if key_length == NULL:  # The length of the value follows: one comparison instead of two.
        key_length, value_length = key_length + value_length, b""
    is_at = data.startswith
    while index < end_index:
        delta = VARINTS[index]
        if not is_at(head + delta + key_length, position):
            break
        if (value_length and not is_at(value_length, position + value_at)) or data[position + size_bytes - 1]:
            break  # It has another size, or headers.
        index += 1
        position += size_bytes
    return index, position


def _varint_at(data: bytes, position: int) -> bytes:
    """Return the bytes of a varint."""
    return data[position : after_varint(data, position)]
