"""All operations: importing this module registers them."""

from fakebroker.control.routes import (
    blocked_groups,
    brokers,
    clusters_routes,
    documents,
    faults,
    groups,
    journal,
    records,
    stream,
    transactions,
)
from fakebroker.control.routes.operations import OPERATIONS

__all__ = [
    "OPERATIONS",
    "blocked_groups",
    "brokers",
    "clusters_routes",
    "documents",
    "faults",
    "groups",
    "journal",
    "records",
    "stream",
    "transactions",
]
