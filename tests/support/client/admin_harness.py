"""An admin client and its fake cluster in one process, and the requests that the client has sent."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import Results
from fakebroker.client.errors import AdminError
from fakebroker.errors import WaitTimeout

T = TypeVar("T")

CLIENT_ID = "admin"
PARTITION = ("orders", 0)
_NO_RESPONSE = "no response"
_DEADLINE_S = 30.0


@asynccontextmanager
async def cluster_and_admin(
    brokers: Any = 3, *, topics: dict[str, int] | None = None, admin: dict[str, Any] | None = None, **cluster: Any
) -> AsyncIterator[tuple[FakeCluster, Admin]]:
    """Start a cluster with the topic "orders", and open an admin client with short back-offs.

    Args:
        brokers: Passed to `FakeCluster`.
        topics: Other topics.
        admin: Further arguments of `Admin`.
        cluster: Further arguments of `FakeCluster`.
    """
    # Not the async context manager: its nursery would wrap a test's exceptions in groups.
    with FakeCluster(brokers, topics=topics or {"orders": 4}, seed=1, **cluster) as fake:
        settings: dict[str, Any] = {"client_id": CLIENT_ID, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5} | (
            admin or {}
        )
        async with Admin(fake.bootstrap_servers, **settings) as client:
            yield fake, client


async def answered(call: Callable[[], Awaitable[T]], *retried: str) -> T:
    """Repeat a call with a short timeout until there was a response within it, which a busy machine may not manage.

    Args:
        call: The call.
        retried: Further texts of errors after which it is repeated.

    Raises:
        AdminError: The call has failed after a response.
        WaitTimeout: The call has timed out after a response.
    """

    def is_early(error: Exception) -> bool:
        return any(text in str(error) for text in (_NO_RESPONSE, *retried))

    with trio.fail_after(_DEADLINE_S):
        while True:
            try:
                result = await call()
            except (AdminError, WaitTimeout) as error:
                if not is_early(error):
                    raise
            else:
                failed = result.errors.values() if isinstance(result, Results) else ()
                if not any(map(is_early, failed)):
                    return result


def groups_of(cluster: FakeCluster, node_id: int, count: int) -> list[str]:
    """Return names of groups that a broker coordinates."""
    names = (f"group-{number}" for number in range(1_000))
    return [name for name in names if cluster.group(name).coordinator().node_id == node_id][:count]


def sent_requests(cluster: FakeCluster, *apis: str) -> list[str]:
    """Return the client's requests of these APIs, each as "BROKER API vVERSION GROUPS"."""
    return [
        f"{call.node_id} {call.api.name} v{call.api_version} {' '.join(_groups_in(call.request))}"
        for call in cluster.journal.requests(client_id=CLIENT_ID)
        if call.api.name in apis
    ]


def _groups_in(request: Any) -> Iterable[str]:
    for field in ("coordinator_keys", "groups", "group_ids", "groups_names"):
        if groups := getattr(request, field, None):
            return [each if isinstance(each, str) else each.group_id for each in groups]
    return [getattr(request, "key", "") or request.group_id]
