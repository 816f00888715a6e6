"""An admin client beside a fake cluster, in one trio; retries come soon, and conversations are told in few words."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.cluster.call import Call

CLIENT_ID = "admin"

PARTITION = ("orders", 0)


@asynccontextmanager
async def administered(
    brokers: Any = 3, *, topics: dict[str, int] | None = None, admin: dict[str, Any] | None = None, **cluster: Any
) -> AsyncIterator[tuple[FakeCluster, Admin]]:
    """A cluster with topic `orders`, and an admin client of it.

    Args:
        brokers: What `FakeCluster` takes.
        topics: The topics, if others.
        admin: More arguments of `Admin`.
        cluster: More arguments of `FakeCluster`.
    """
    # Closed by hand: a trio task tree would wrap what a test raises.
    fake = FakeCluster(brokers, topics=topics or {"orders": 4}, seed=1, **cluster)
    with fake:
        settings: dict[str, Any] = {"client_id": CLIENT_ID, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5} | (
            admin or {}
        )
        async with Admin(fake.bootstrap_servers, **settings) as client:
            yield fake, client


def groups_of(cluster: FakeCluster, node_id: int, count: int) -> list[str]:
    """Groups that a broker coordinates."""
    names = (f"group-{number}" for number in range(1_000))
    return [name for name in names if cluster.coordinator_of(name).node_id == node_id][:count]


def talk(cluster: FakeCluster, *apis: str) -> list[str]:
    """What the client asked with these APIs: broker, API, version, and the groups in each request."""
    return [told(call) for call in cluster.requests(client_id=CLIENT_ID) if call.api.name in apis]


def told(call: Call) -> str:
    return f"{call.node_id} {call.api.name} v{call.api_version} {' '.join(names(call.request))}"


def names(request: Any) -> Iterable[str]:
    """The groups in a request."""
    for field in ("coordinator_keys", "groups", "groups_names"):
        if many := getattr(request, field, None):
            return [each if isinstance(each, str) else each.group_id for each in many]
    return [getattr(request, "key", "") or request.group_id]
