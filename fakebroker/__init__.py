"""A fake Kafka cluster for everything that has to do with group coordination.

The public names are imported on first use, because pytest imports this package in every run, for its plugin.
"""

TYPE_CHECKING = False  # Importing `typing` would take most of the time of this package.

if TYPE_CHECKING:
    from typing import Any

    from fakebroker.client.admin.admin import Admin
    from fakebroker.client.consumer.consumer import Consumer
    from fakebroker.client.security import ClientSecurity
    from fakebroker.cluster.acl_rules import AclRule
    from fakebroker.cluster.emulation import Broker
    from fakebroker.cluster.faults.rule import Fault
    from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
    from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
    from fakebroker.errors import (
        ClusterStopped,
        ConfigError,
        ErrorCode,
        FakebrokerError,
        IncompleteHistoryError,
        IncompleteJournalError,
        ListenError,
        PollError,
        ProtocolError,
        WaitTimeout,
    )
    from fakebroker.server.clock import Scaled
    from fakebroker.server.fake_cluster import FakeCluster
    from fakebroker.server.journal_files import read_journal
    from fakebroker.server.waits.polling import Polled

__version__ = "0.1.0"

_HOMES = {
    "AclRule": "fakebroker.cluster.acl_rules",
    "Admin": "fakebroker.client.admin.admin",
    "Broker": "fakebroker.cluster.emulation",
    "ClientSecurity": "fakebroker.client.security",
    "ClusterStopped": "fakebroker.errors",
    "ConfigError": "fakebroker.errors",
    "Consumer": "fakebroker.client.consumer.consumer",
    "ErrorCode": "fakebroker.errors",
    "FakeCluster": "fakebroker.server.fake_cluster",
    "Fault": "fakebroker.cluster.faults.rule",
    "FakebrokerError": "fakebroker.errors",
    "IncompleteHistoryError": "fakebroker.errors",
    "IncompleteJournalError": "fakebroker.errors",
    "ListenError": "fakebroker.errors",
    "PollError": "fakebroker.errors",
    "Polled": "fakebroker.server.waits.polling",
    "ProtocolError": "fakebroker.errors",
    "WaitTimeout": "fakebroker.errors",
    "GroupSeed": "fakebroker.cluster.seeding.seed",
    "MemberSeed": "fakebroker.cluster.seeding.seed",
    "Scaled": "fakebroker.server.clock",
    "TransactionSeed": "fakebroker.cluster.seeding.transaction_seed",
    "read_journal": "fakebroker.server.journal_files",
}

__all__ = [
    "AclRule",
    "Admin",
    "Broker",
    "ClientSecurity",
    "ClusterStopped",
    "ConfigError",
    "Consumer",
    "ErrorCode",
    "FakeCluster",
    "FakebrokerError",
    "Fault",
    "GroupSeed",
    "IncompleteHistoryError",
    "IncompleteJournalError",
    "ListenError",
    "MemberSeed",
    "PollError",
    "Polled",
    "ProtocolError",
    "Scaled",
    "TransactionSeed",
    "WaitTimeout",
    "__version__",
    "read_journal",
]


def __getattr__(name: str) -> "Any":
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'fakebroker' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
