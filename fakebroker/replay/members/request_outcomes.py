"""The meanings of "lost", "unanswered", "cut off" and "unexpected": codes, and sentences for documents.

Plain data; does not depend on Spark.
"""

from fakebroker.client.errors import ClientClosed, RequestTimedOut
from fakebroker.errors import ErrorCode, FakebrokerError

ORDINARY_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""Error codes that a healthy cluster returns: during rebalances, to the first JoinGroup of a dynamic member, and to a
commit that was due before the response with the next epoch of its member (KIP-848)."""

LOST, UNANSWERED, CUT_OFF = "lost", "unanswered", "cut off"
"""The values of the column `missing` of events: why a request has no response. It is null if there is a response."""

MEANINGS = {
    "unexpected_errors": "number of responses with an error other than REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED and "
    "STALE_MEMBER_EPOCH; requests without a response are not among them",
    "lost": "number of requests whose connection was refused, or closed before the response",
    "unanswered": "number of requests without a response for as long as the client waits: its session timeout; for "
    "JoinGroup its rebalance timeout plus 5 s; for SyncGroup the shorter of the two; for LeaveGroup 5 s; for loads and "
    "look-ups 30 s",
    "cut_off": "number of requests that were pending when the replay ended, when it was interrupted, or when a script "
    "stopped its member; they are neither `lost` nor `unanswered`",
}
"""Definitions of the counts of requests by their keys in `summary.json`, for documents and reports."""


def missing_because(failure: FakebrokerError) -> str:
    """Return why a request has no response, as in `Event.missing`, from `Exchange.failure`."""
    if isinstance(failure, RequestTimedOut):
        return UNANSWERED
    return CUT_OFF if isinstance(failure, ClientClosed) else LOST


def is_failure(error: int | None, missing: str | None) -> bool:
    """Return whether a request counts as failed in reports: unexpected error, lost or unanswered.

    Args:
        error: The error code in the response; None without a response.
        missing: Why there is no response, as in `Event.missing`.
    """
    return missing in (LOST, UNANSWERED) if error is None else error not in ORDINARY_ERRORS
