"""The topics a consumer subscribes to, read from the metadata it joins with.

The only place in this package that reads bytes: whether a group is subscribed to a topic decides which of its offsets
may be deleted. Nothing else of the metadata is read. Consumers use `protocol/consumer_protocol.py`, which is stricter,
and which this package cannot import.
"""

import struct

_VERSION_AND_COUNT = struct.Struct(">hi")
_STRING_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")


def parse_subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a `ConsumerProtocolSubscription`, or `None` if `metadata` is not one.

    Read as version 0, which every later version starts with, regardless of the version in the bytes (Kafka's
    `ClassicGroup.computeSubscribedTopics`): topics, then the nullable user data.
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
            topics.append(metadata[start:position].decode(errors="replace"))
        (length,) = _BYTES_LENGTH.unpack_from(metadata, position)
    except struct.error:
        return None
    user_data_end = position + _BYTES_LENGTH.size + max(length, 0)
    return tuple(topics) if count >= 0 and user_data_end <= len(metadata) else None
