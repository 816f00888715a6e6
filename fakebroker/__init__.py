"""A fake Kafka cluster for everything that has to do with group coordination.

The names below are imported when they are first asked for: pytest loads this package in every run, for the plugin.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError, ListenError, ProtocolError
    from fakebroker.server.fake_cluster import FakeCluster

__version__ = "0.1.0"

__all__ = ["ConfigError", "ErrorCode", "FakeCluster", "FakebrokerError", "ListenError", "ProtocolError", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fakebroker' has no attribute {name!r}")
    module = "fakebroker.server.fake_cluster" if name == "FakeCluster" else "fakebroker.errors"
    return getattr(importlib.import_module(module), name)
