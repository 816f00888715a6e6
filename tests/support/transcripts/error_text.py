"""The text of error codes in transcripts."""

from fakebroker.errors import ErrorCode


def error_text(code: int) -> str:
    """Return number and name of an error code; NONE without its number."""
    return f"{code} {ErrorCode(code).name}" if code else "NONE"
