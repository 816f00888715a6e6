"""Control of clusters from outside of their process, over HTTP: the server, its client, and what there is to look at.

The client needs nothing but the base install, and is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakebroker.control.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module 'fakebroker.control' has no attribute {name!r}")
    from fakebroker.control.client.client import Client

    return Client
