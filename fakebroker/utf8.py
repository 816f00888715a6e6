"""Decoding of UTF-8 as Kafka does it, with Java's `new String(bytes, UTF_8)`. Does not depend on other modules."""

import re

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8. Malformed bytes become U+FFFD, as many as in Java.

    Java replaces a surrogate, complete or not, by one character, Python each of its bytes; otherwise they agree.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
