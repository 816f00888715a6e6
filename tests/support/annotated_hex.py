"""Bytes as tests write them by hand: hexadecimal numbers with comments."""


def annotated_hex(text: str) -> bytes:
    """Return the bytes of lines of hexadecimal numbers; comments start with `#`."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))
