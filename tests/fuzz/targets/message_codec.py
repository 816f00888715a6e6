"""Decoders of all requests and responses in all versions: a message that can be encoded again, or a `ProtocolError`."""

from collections.abc import Iterator

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from tests.support.message_versions import MESSAGE_VERSIONS, filled

_INDEX_BYTES = 2


def run(data: bytes) -> None:
    """Decode a message.

    Args:
        data: The index of message and version in `MESSAGE_VERSIONS`, as a big-endian uint16; then the message.
    """
    cls, version = MESSAGE_VERSIONS[int.from_bytes(data[:_INDEX_BYTES], "big") % len(MESSAGE_VERSIONS)]
    try:
        message = decode(cls, data[_INDEX_BYTES:], version)
    except ProtocolError:
        return
    again = decode(cls, encode(message, version), version)
    # NaN does not equal itself, but its representation does.
    assert again == message or repr(again) == repr(message), f"{cls.__name__} v{version}: {message} became {again}"


def seeds() -> Iterator[bytes]:
    """Yield each message in its newest version, with a value in each field."""
    for index, (cls, version) in enumerate(MESSAGE_VERSIONS):
        if version == cls.VERSIONS.last:
            yield index.to_bytes(_INDEX_BYTES, "big") + encode(filled(cls, version), version)
