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
    from fakebroker.cluster.call import Call
    from fakebroker.cluster.emulation import Broker
    from fakebroker.cluster.faults.rule import Fault
    from fakebroker.cluster.handles.conditions import Condition, predicate
    from fakebroker.cluster.handles.faults import FaultView
    from fakebroker.cluster.handles.topic import PartitionView, TopicView
    from fakebroker.cluster.inspect.commits import CommitView
    from fakebroker.cluster.inspect.deadlines import Deadline
    from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
    from fakebroker.cluster.inspect.transaction_views import HangingTransaction, TransactionView
    from fakebroker.cluster.inspect.views import BrokerView, GroupView, MemberView, RecordView
    from fakebroker.cluster.seeding.producer import RecordSeed
    from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
    from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
    from fakebroker.coordinator.group_history import Moment
    from fakebroker.coordinator.offset_store import CommittedOffset
    from fakebroker.coordinator.transaction.history import TransactionMoment
    from fakebroker.errors import (
        ClusterStopped,
        ConditionNotMet,
        ConfigError,
        ErrorCode,
        FakebrokerError,
        IncompleteJournalError,
        ListenError,
        NotOnKafka,
        PollError,
        ProtocolError,
        WaitTimeout,
    )
    from fakebroker.kafka.kafka_cluster import KafkaCluster
    from fakebroker.server.clock import Scaled
    from fakebroker.server.fake_cluster import FakeCluster
    from fakebroker.server.journal_files import read_journal
    from fakebroker.server.polling import Polling

__version__ = "0.1.0"

_HOMES = {
    "AclRule": "fakebroker.cluster.acl_rules",
    "Admin": "fakebroker.client.admin.admin",
    "Broker": "fakebroker.cluster.emulation",
    "BrokerView": "fakebroker.cluster.inspect.views",
    "Call": "fakebroker.cluster.call",
    "ClientSecurity": "fakebroker.client.security",
    "ClusterStopped": "fakebroker.errors",
    "CommitView": "fakebroker.cluster.inspect.commits",
    "CommittedOffset": "fakebroker.coordinator.offset_store",
    "Condition": "fakebroker.cluster.handles.conditions",
    "ConditionNotMet": "fakebroker.errors",
    "ConfigError": "fakebroker.errors",
    "Consumer": "fakebroker.client.consumer.consumer",
    "Deadline": "fakebroker.cluster.inspect.deadlines",
    "ErrorCode": "fakebroker.errors",
    "FakeCluster": "fakebroker.server.fake_cluster",
    "FakebrokerError": "fakebroker.errors",
    "Fault": "fakebroker.cluster.faults.rule",
    "FaultView": "fakebroker.cluster.handles.faults",
    "GroupSeed": "fakebroker.cluster.seeding.seed",
    "GroupView": "fakebroker.cluster.inspect.views",
    "HangingTransaction": "fakebroker.cluster.inspect.transaction_views",
    "IncompleteJournalError": "fakebroker.errors",
    "KafkaCluster": "fakebroker.kafka.kafka_cluster",
    "ListenError": "fakebroker.errors",
    "MemberSeed": "fakebroker.cluster.seeding.seed",
    "MemberView": "fakebroker.cluster.inspect.views",
    "Moment": "fakebroker.coordinator.group_history",
    "NotOnKafka": "fakebroker.errors",
    "PartitionView": "fakebroker.cluster.handles.topic",
    "PollError": "fakebroker.errors",
    "Polling": "fakebroker.server.polling",
    "ProtocolError": "fakebroker.errors",
    "RecordSeed": "fakebroker.cluster.seeding.producer",
    "RecordView": "fakebroker.cluster.inspect.views",
    "Scaled": "fakebroker.server.clock",
    "Timeline": "fakebroker.cluster.inspect.timelines",
    "TopicView": "fakebroker.cluster.handles.topic",
    "TransactionMoment": "fakebroker.coordinator.transaction.history",
    "TransactionSeed": "fakebroker.cluster.seeding.transaction_seed",
    "TransactionTimeline": "fakebroker.cluster.inspect.timelines",
    "TransactionView": "fakebroker.cluster.inspect.transaction_views",
    "WaitTimeout": "fakebroker.errors",
    "predicate": "fakebroker.cluster.handles.conditions",
    "read_journal": "fakebroker.server.journal_files",
}

__all__ = [
    "AclRule",
    "Admin",
    "Broker",
    "BrokerView",
    "Call",
    "ClientSecurity",
    "ClusterStopped",
    "CommitView",
    "CommittedOffset",
    "Condition",
    "ConditionNotMet",
    "ConfigError",
    "Consumer",
    "Deadline",
    "ErrorCode",
    "FakeCluster",
    "FakebrokerError",
    "Fault",
    "FaultView",
    "GroupSeed",
    "GroupView",
    "HangingTransaction",
    "IncompleteJournalError",
    "KafkaCluster",
    "ListenError",
    "MemberSeed",
    "MemberView",
    "Moment",
    "NotOnKafka",
    "PartitionView",
    "PollError",
    "Polling",
    "ProtocolError",
    "RecordSeed",
    "RecordView",
    "Scaled",
    "Timeline",
    "TopicView",
    "TransactionMoment",
    "TransactionSeed",
    "TransactionTimeline",
    "TransactionView",
    "WaitTimeout",
    "__version__",
    "predicate",
    "read_journal",
]


def __getattr__(name: str) -> "Any":
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'fakebroker' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
