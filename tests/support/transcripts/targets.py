"""The clusters that transcripts run on: the pure core in virtual time, and a cluster over TCP with the manual clock.

A target sends requests, advances the clock and runs commands of the cluster.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.cluster_commands import ClusterCommands
from fakebroker.cluster.commands.events import perform
from fakebroker.cluster.inspect.views import BrokerView, GroupView, view_group
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.coordinator.rewrite.group import RewriteGroup
from fakebroker.coordinator.rewrite.states import CoordinatorState
from fakebroker.protocol.schema import Message
from fakebroker.server.clock import ManualClock
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.topic_partition import TopicPartition
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, response
from tests.support.transcripts.parser import Transcript
from tests.support.wire_client import WireClient, until

_DEFAULTS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""No initial delay, because most transcripts do not test it. One offsets partition, so that broker 1 is the first
coordinator of every group; and one partition of transactional ids."""


class SentTranscriptRequest(Protocol):
    """A request on its own connection, and its answer."""

    @property
    def is_answered(self) -> bool: ...

    def receive(self) -> Message: ...

    def is_connection_closed(self) -> bool:
        """Return whether the connection was closed because its broker is stopped."""
        ...


class Target(Protocol):
    """A cluster that a transcript runs on."""

    def brokers(self) -> tuple[BrokerView, ...]: ...

    def coordinator_of(self, group_id: str) -> int:
        """Return the node id of a group's coordinator, or NO_LEADER."""
        ...

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the node id of the coordinator of a transactional id, or NO_LEADER."""
        ...

    def leader_of(self, place: TopicPartition) -> int:
        """Return the node id of a partition's leader; NO_LEADER if there is no leader or no such partition."""
        ...

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of all topics by name."""
        ...

    def send(self, client_id: str, node_id: int, request: Message, version: int) -> SentTranscriptRequest: ...

    def advance(self, by_ms: int) -> None: ...

    def perform(self, event: Mapping[str, Any]) -> None: ...

    def group(self, group_id: str) -> GroupView: ...

    def rewrite_group(self, group_id: str) -> tuple[CoordinatorState, RewriteGroup | None]:
        """Return the state of the coordinator for a group of the proposal `rewrite`, and the group."""
        ...

    def close(self) -> None: ...


def _leader_of(cluster: Cluster, place: TopicPartition) -> int:
    topic = cluster.topics.get(place[0])
    partition = None if topic is None else topic.partition(place[1])
    return NO_LEADER if partition is None else partition.leader_id


def _topic_ids(cluster: Cluster) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in cluster.topics}


def _rewrite_group(cluster: Cluster, group_id: str) -> tuple[CoordinatorState, RewriteGroup | None]:
    broker = cluster.coordinator_of(group_id)
    if broker is None or broker.rewrite is None:
        return CoordinatorState.DOWN, None
    coordinator = broker.rewrite.coordinator
    return coordinator.state_of(group_id), coordinator.group(group_id)


# The core


class CoreRequest:
    """A request to the core."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @property
    def is_answered(self) -> bool:
        return self.call.answered_ms is not None

    def receive(self) -> Message:
        message = response(self.call)
        assert isinstance(message, Message)
        return message

    def is_connection_closed(self) -> bool:
        return not self.call.broker.up


class CoreTarget:
    """The pure core in virtual time, without sockets and threads."""

    def __init__(self, transcript: Transcript) -> None:
        self._harness = ClusterHarness(
            transcript.topics,
            transcript.brokers,
            _DEFAULTS | transcript.config,
            transcript.as_version,
            transcript.proposals,
        )
        self._cluster = self._harness.cluster
        environment = ClusterHarnessEnvironment(self._harness)
        self._commands = ClusterCommands(self._cluster, environment, new_cluster=lambda: self._cluster)

    def brokers(self) -> tuple[BrokerView, ...]:
        return tuple(BrokerView.of(broker) for broker in self._cluster.brokers.values())

    def coordinator_of(self, group_id: str) -> int:
        broker = self._cluster.coordinator_of(group_id)
        return broker.node_id if broker else NO_LEADER

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        broker = self._cluster.transaction_coordinator_of(transactional_id)
        return broker.node_id if broker else NO_LEADER

    def leader_of(self, place: TopicPartition) -> int:
        return _leader_of(self._cluster, place)

    def topic_ids(self) -> dict[str, bytes]:
        return _topic_ids(self._cluster)

    def send(self, client_id: str, node_id: int, request: Message, version: int) -> CoreRequest:
        return CoreRequest(self._harness.send(request, version, broker=node_id, client_id=client_id))

    def advance(self, by_ms: int) -> None:
        self._harness.advance(by_ms)

    def perform(self, event: Mapping[str, Any]) -> None:
        perform(self._commands, event)
        self._harness.advance(0)  # handles timers that are due now

    def group(self, group_id: str) -> GroupView:
        return view_group(self._cluster, group_id, self._harness.now_ms)

    def rewrite_group(self, group_id: str) -> tuple[CoordinatorState, RewriteGroup | None]:
        return _rewrite_group(self._cluster, group_id)

    def close(self) -> None:
        """Do nothing: the core has no resources."""


# TCP


class TcpRequest:
    """A request over TCP that has arrived. The journal of the cluster shows whether it is answered."""

    def __init__(
        self, cluster: FakeCluster, broker: BrokerView, client_id: str, request: Message, version: int
    ) -> None:
        journal = cluster.cluster.journal
        before = journal.added
        self._wire = WireClient(broker, client_id)
        self._wire.send(request, version)
        until(lambda: journal.added > before, cluster)
        self._call = cluster.requests()[-1]

    @property
    def is_answered(self) -> bool:
        return self._call.answered_ms is not None

    def receive(self) -> Message:
        message = self._wire.receive()
        self.close()
        return message

    def is_connection_closed(self) -> bool:
        return not self._call.broker.up and self._wire.is_closed_by_broker()

    def close(self) -> None:
        self._wire.socket.close()


class TcpTarget:
    """A cluster over TCP with the manual clock, and one connection per request."""

    def __init__(self, transcript: Transcript) -> None:
        self._cluster = FakeCluster(
            transcript.brokers,
            transcript.topics,
            _DEFAULTS | transcript.config,
            seed=1,
            as_version=transcript.as_version,
            proposals=transcript.proposals,
            clock="manual",
        )
        self._cluster.__enter__()
        self._exchanges: list[TcpRequest] = []

    def brokers(self) -> tuple[BrokerView, ...]:
        return self._cluster.brokers

    def coordinator_of(self, group_id: str) -> int:
        broker = self._cluster.cluster.coordinator_of(group_id)
        return broker.node_id if broker else NO_LEADER

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        broker = self._cluster.call(lambda: self._cluster.cluster.transaction_coordinator_of(transactional_id))
        return broker.node_id if broker else NO_LEADER

    def leader_of(self, place: TopicPartition) -> int:
        return _leader_of(self._cluster.cluster, place)

    def topic_ids(self) -> dict[str, bytes]:
        return self._cluster.call(lambda: _topic_ids(self._cluster.cluster))

    def send(self, client_id: str, node_id: int, request: Message, version: int) -> TcpRequest:
        broker = next(each for each in self.brokers() if each.node_id == node_id)
        self._exchanges.append(TcpRequest(self._cluster, broker, client_id, request, version))
        return self._exchanges[-1]

    def advance(self, by_ms: int) -> None:
        assert isinstance(self._cluster.clock, ManualClock)
        self._cluster.clock.advance(by_ms / 1000)

    def perform(self, event: Mapping[str, Any]) -> None:
        perform(self._cluster, event)

    def group(self, group_id: str) -> GroupView:
        return self._cluster.group(group_id)

    def rewrite_group(self, group_id: str) -> tuple[CoordinatorState, RewriteGroup | None]:
        return self._cluster.call(lambda: _rewrite_group(self._cluster.cluster, group_id))

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.close()
        self._cluster.__exit__(None, None, None)
