"""Keys and groups of large requests as bytes: split, but not decoded. For brokers that copy them to the response.

Each function accepts the usual form of a request and returns None for everything else, valid or not: the caller then
decodes the request with its declaration, which reports malformed bytes.
"""

from itertools import repeat

from fakebroker.protocol.types import read_unsigned_varint

_MAX_SHORT = 0x7F
"""The largest length, plus one, that takes one byte."""


def coordinator_keys(frame: bytes, position: int) -> tuple[int, list[bytes]] | None:
    """Split the keys of a FindCoordinator request, version 4 and later.

    Args:
        frame: The frame.
        position: Where the message starts.

    Returns:
        The key type, and the keys: each is a compact string in ASCII, with its length.
    """
    try:
        key_type = frame[position]
        count, position = read_unsigned_varint(frame, position + 1)
        start = position
        keys: list[bytes] = []
        add = keys.append
        for _ in repeat(None, count - 1):
            size = frame[position]
            if not 0 < size <= _MAX_SHORT:
                return None
            stop = position + size
            add(frame[position:stop])
            position = stop
        is_usual = count > 0 and frame[position] == 0 and frame[start:position].isascii()
    except (IndexError, ValueError):
        return None
    return (key_type, keys) if is_usual and key_type <= _MAX_SHORT else None


def offset_fetch_groups(frame: bytes, position: int, version: int) -> tuple[bool, list[tuple[bytes, bytes]]] | None:
    """Split the groups of an OffsetFetch request, versions 8 and 9.

    Args:
        frame: The frame.
        position: Where the message starts.
        version: The version of the request.

    Returns:
        Whether stable offsets are required; and for each group its id, a compact string in ASCII with its length, and
        the bytes of its list of topics. The list is not empty, not null, and not checked; lists that are equal have
        equal bytes.
    """
    try:
        count, position = read_unsigned_varint(frame, position)
        groups: list[tuple[bytes, bytes]] = []
        add = groups.append
        for _ in repeat(None, count - 1):
            size = frame[position]
            if not 0 < size <= _MAX_SHORT:
                return None
            stop = position + size
            group_id = frame[position:stop]
            if version >= 9:  # The member id must be null; its epoch is ignored.
                if frame[stop] != 0:
                    return None
                stop += 5
            position = _end_of_topics(frame, stop)
            if frame[position] != 0 or not group_id.isascii():
                return None
            add((group_id, frame[stop:position]))
            position += 1
        require_stable = frame[position]
        is_usual = count > 0 and require_stable <= 1 and frame[position + 1] == 0
    except (IndexError, ValueError):
        return None
    return (require_stable == 1, groups) if is_usual else None


def _end_of_topics(frame: bytes, position: int) -> int:
    """Return the position after a list of topics with partitions.

    Raises:
        ValueError: A list is null or empty, or a length or count takes several bytes, or there are tagged fields.
    """
    topics = frame[position]
    if not 1 < topics <= _MAX_SHORT:
        raise ValueError
    position += 1
    for _ in repeat(None, topics - 1):
        size = frame[position]
        if not 0 < size <= _MAX_SHORT:
            raise ValueError
        position += size
        partitions = frame[position]
        if not 0 < partitions <= _MAX_SHORT:
            raise ValueError
        position += 4 * partitions - 3
        if frame[position] != 0:
            raise ValueError
        position += 1
    return position
