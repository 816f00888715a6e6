"""All operations: importing this module registers them."""

from fakebroker.control.routes import (  # noqa: F401
    blocked_groups,
    brokers,
    clusters_routes,
    documents,
    groups,
    handles,
    journal,
    records,
    stream,
    transactions,
    waits,
)
from fakebroker.control.routes.operations import OPERATIONS

handles.register()  # The operations of the other modules have precedence.

__all__ = ["OPERATIONS"]
