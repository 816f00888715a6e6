"""Look-ups of coordinators, and the errors after which requests are sent again.

`Brokers` sends the look-ups of all clients, in batches if a broker has them, and learns the addresses found. When to
ask again, each client decides with its `Backoff`.
"""

from collections.abc import Iterable

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest

KEY_TYPES = {"group": 0, "transaction": 1, "share": 2}
"""Types of coordinators (Kafka's `FindCoordinatorRequest.CoordinatorType`)."""

COORDINATOR_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
"""Errors in responses after which the coordinator is looked up again."""

COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
"""Errors after which a request is sent again to the same coordinator."""

RETRIABLE_ERRORS = (*COORDINATOR_BUSY, *COORDINATOR_MOVED, ErrorCode.NETWORK_EXCEPTION)
"""Errors after which a request is sent again, to the same coordinator or after another look-up."""


def find_coordinators(keys: Iterable[str], key_type: str = "group") -> FindCoordinatorRequest:
    """Return the request that looks up the coordinators of keys."""
    return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=KEY_TYPES[key_type])
