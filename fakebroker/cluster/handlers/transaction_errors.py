"""The errors of transaction coordinators in the versions of requests."""

from fakebroker.errors import ErrorCode


def in_version(error: ErrorCode, *, has_fenced: bool) -> ErrorCode:
    """Return an error as a version has it: versions before KIP-588 have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and not has_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
