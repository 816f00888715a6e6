"""HTTP control of fake clusters: the server (`server.py`), its client (`client/`), `fakebroker top` and the web page.

The server runs in the loop of its cluster. Depends on `server`; everything but the client requires the extra `control`.
The client is imported on first use. Start with `server.py`, `app.py` and `routes/operations.py`.
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
