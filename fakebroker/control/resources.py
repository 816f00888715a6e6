"""All operations: importing this fills their table."""

from fakebroker.control import (
    documents,
    news,
    resources_brokers,
    resources_clusters,
    resources_faults,
    resources_groups,
    resources_journal,
)
from fakebroker.control.operations import OPERATIONS

__all__ = [
    "OPERATIONS",
    "documents",
    "news",
    "resources_brokers",
    "resources_clusters",
    "resources_faults",
    "resources_groups",
    "resources_journal",
]
