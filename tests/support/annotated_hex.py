"""Notation for bytes in tests: hexadecimal numbers with comments."""


def annotated_hex(text: str) -> bytes:
    """Parse lines of hexadecimal numbers; a comment starts with `#`."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))
