"""The topics that a consumer subscribes to, parsed from its JoinGroup metadata.

The coordinator needs them to decide which committed offsets may be deleted; all other metadata is opaque to it. Clients
use the stricter parser in `protocol/consumer_protocol.py`, which this package must not import.
"""

import struct

from fakebroker.utf8 import decode_utf8

_VERSION_AND_COUNT = struct.Struct(">hi")
_STRING_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")


def parse_subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a `ConsumerProtocolSubscription`, or `None` if `metadata` is not one.

    The bytes are parsed as version 0 (topics, nullable user data), regardless of the version that they state: all later
    versions start with these fields (Kafka's `ClassicGroup.computeSubscribedTopics`).
    """
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        topics = []
        for _ in range(count):
            (length,) = _STRING_LENGTH.unpack_from(metadata, position)
            start = position + _STRING_LENGTH.size
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.append(decode_utf8(metadata[start:position]))
        (length,) = _BYTES_LENGTH.unpack_from(metadata, position)
    except struct.error:
        return None
    user_data_end = position + _BYTES_LENGTH.size + max(length, 0)
    return tuple(topics) if count >= 0 and user_data_end <= len(metadata) else None
