"""Look-ups of coordinators: building requests, reading responses of any version, and errors that lead to a retry.

Shared by the consumer, the admin client and replays, which have their own back-offs. Does not depend on sockets or
clocks.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from fakebroker.client.versions import convert_response, is_batched
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.schema import Message

K = TypeVar("K")

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


def coordinators_in(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> list[Coordinator]:
    """Return the coordinator or error of each key in a response of any version."""
    found: list[Coordinator] = convert_response(request, response).coordinators
    return found


def batches(request: type[Message], version: int, keys: Sequence[K], max_keys: int) -> list[Sequence[K]]:
    """Divide keys into requests of `max_keys` keys, or of one key if the version is not batched (KIP-699, KIP-709)."""
    size = max_keys if is_batched(request, version) else 1
    return [keys[start : start + size] for start in range(0, len(keys), size)]
