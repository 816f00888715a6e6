"""The clusters that transcripts run on: the pure core in virtual time, and a cluster over TCP with the manual clock.

A target sends requests, advances the clock and runs commands of the cluster.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.definition import perform
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.views import BrokerView, view_group
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.conform.members import Members
from fakebroker.conform.player import SentRequest
from fakebroker.conform.texts import group_text, rewrite_group_text
from fakebroker.conform.transcript import Step, Transcript
from fakebroker.proposals.consumer_rewrite.group import RewriteGroup
from fakebroker.proposals.consumer_rewrite.rewrite_broker import coordinator_at
from fakebroker.proposals.consumer_rewrite.states import CoordinatorState
from fakebroker.protocol.schema import Message
from fakebroker.server.clock import ManualClock
from fakebroker.server.fake_cluster import FakeCluster, internals
from fakebroker.topic_partition import TopicPartition
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, response as response_of
from tests.support.wire_client import WireClient, until

_DEFAULTS: dict[str, object] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""No initial delay, because most transcripts do not test it. One offsets partition, so that broker 1 is the first
coordinator of every group; and one partition of transactional ids."""


class _AnswersAtOnce:
    """What is the same on targets whose clock stands still between steps."""

    async def settle(self, requests: Collection[SentRequest], answers: int) -> None:
        """Do nothing: what can be answered is answered."""

    async def repeats(self, step: Step, outcome: str, expected: str, attempt: int) -> bool:
        return False


def _leader_of(cluster: Cluster, place: TopicPartition) -> int:
    topic = cluster.topics.get(place[0])
    partition = None if topic is None else topic.partition(place[1])
    return NO_LEADER if partition is None else partition.leader_id


def _topic_ids(cluster: Cluster) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in cluster.topics}


def _rewrite_group(cluster: Cluster, group_id: str) -> tuple[CoordinatorState, RewriteGroup | None]:
    broker = cluster.coordinator_of(group_id)
    if broker is None or broker.proposed is None:
        return CoordinatorState.DOWN, None
    coordinator = coordinator_at(broker)
    return coordinator.state_of(group_id), coordinator.group(group_id)


# The core


class CoreRequest:
    """A request to the core."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @property
    def is_answered(self) -> bool:
        return self.call.answered_ms is not None

    def response(self) -> Message:
        message = response_of(self.call)
        assert isinstance(message, Message)
        return message

    @property
    def is_connection_closed(self) -> bool:
        return not self.call.broker.up


class CoreTarget(_AnswersAtOnce):
    """The pure core in virtual time, without sockets and threads."""

    def __init__(self, transcript: Transcript, release: str | None = None) -> None:
        self._harness = ClusterHarness(
            transcript.topics,
            transcript.brokers,
            _DEFAULTS | transcript.config,
            transcript.as_version or release,
            transcript.proposals,
        )
        self._cluster = self._harness.cluster
        environment = ClusterHarnessEnvironment(self._harness)
        self._commands = LocalCluster(Local(self._cluster, environment, new_cluster=lambda: self._cluster))

    def brokers(self) -> Sequence[BrokerView]:
        return tuple(BrokerView.of(broker) for broker in self._cluster.brokers.values())

    async def coordinator_of(self, group_id: str) -> int:
        broker = self._cluster.coordinator_of(group_id)
        return broker.node_id if broker else NO_LEADER

    async def transaction_coordinator_of(self, transactional_id: str) -> int:
        broker = self._cluster.transaction_coordinator_of(transactional_id)
        return broker.node_id if broker else NO_LEADER

    async def leader_of(self, place: TopicPartition) -> int:
        return _leader_of(self._cluster, place)

    async def topic_ids(self) -> dict[str, bytes]:
        return _topic_ids(self._cluster)

    async def send(self, client_id: str, node_id: int, request: Message, version: int) -> CoreRequest:
        return CoreRequest(self._harness.send(request, version, broker=node_id, client_id=client_id))

    async def advance(self, by_ms: int) -> None:
        self._harness.advance(by_ms)

    async def perform(self, event: Mapping[str, Any]) -> None:
        perform(self._commands, event)
        self._harness.advance(0)  # handles timers that are due now

    async def generation_of(self, group_id: str) -> int:
        return view_group(self._cluster, group_id, self._harness.now_ms).generation_id

    async def group_text(self, members: Members, group_id: str, expected: str) -> str:
        return group_text(members, view_group(self._cluster, group_id, self._harness.now_ms))

    async def rewrite_group_text(self, members: Members, group_id: str) -> str:
        return rewrite_group_text(members, *_rewrite_group(self._cluster, group_id))

    def close(self) -> None:
        """Do nothing: the core has no resources."""


# TCP


class TcpRequest:
    """A request over TCP that has arrived. The journal of the cluster shows whether it is answered."""

    def __init__(
        self, cluster: FakeCluster, broker: BrokerView, client_id: str, request: Message, version: int
    ) -> None:
        journal = internals(cluster).cluster.journal
        before = journal.added
        self._wire = WireClient(broker, client_id)
        self._wire.send(request, version)
        until(lambda: journal.added > before, cluster)
        self._call = cluster.journal.requests()[-1]

    @property
    def is_answered(self) -> bool:
        return self._call.answered_ms is not None

    def response(self) -> Message:
        message = self._wire.receive()
        self.close()
        return message

    @property
    def is_connection_closed(self) -> bool:
        return not self._call.broker.up and self._wire.is_closed_by_broker()

    def close(self) -> None:
        self._wire.socket.close()


class TcpTarget(_AnswersAtOnce):
    """A cluster over TCP with the manual clock, and one connection per request."""

    def __init__(self, transcript: Transcript, release: str | None = None) -> None:
        self._cluster = FakeCluster(
            transcript.brokers,
            transcript.topics,
            _DEFAULTS | transcript.config,
            seed=1,
            as_version=transcript.as_version or release or release,
            proposals=transcript.proposals,
            clock="manual",
        )
        self._cluster.__enter__()
        self._exchanges: list[TcpRequest] = []

    def brokers(self) -> Sequence[BrokerView]:
        return self._cluster.brokers

    async def coordinator_of(self, group_id: str) -> int:
        broker = internals(self._cluster).cluster.coordinator_of(group_id)
        return broker.node_id if broker else NO_LEADER

    async def transaction_coordinator_of(self, transactional_id: str) -> int:
        broker = internals(self._cluster).run(
            lambda: internals(self._cluster).cluster.transaction_coordinator_of(transactional_id)
        )
        return broker.node_id if broker else NO_LEADER

    async def leader_of(self, place: TopicPartition) -> int:
        return _leader_of(internals(self._cluster).cluster, place)

    async def topic_ids(self) -> dict[str, bytes]:
        return internals(self._cluster).run(lambda: _topic_ids(internals(self._cluster).cluster))

    async def send(self, client_id: str, node_id: int, request: Message, version: int) -> TcpRequest:
        broker = next(each for each in self.brokers() if each.node_id == node_id)
        self._exchanges.append(TcpRequest(self._cluster, broker, client_id, request, version))
        return self._exchanges[-1]

    async def advance(self, by_ms: int) -> None:
        assert isinstance(internals(self._cluster).server.clock, ManualClock)
        internals(self._cluster).server.clock.advance(by_ms / 1000)

    async def perform(self, event: Mapping[str, Any]) -> None:
        perform(self._cluster, event)

    async def generation_of(self, group_id: str) -> int:
        return self._cluster.group(group_id).describe().generation_id

    async def group_text(self, members: Members, group_id: str, expected: str) -> str:
        return group_text(members, self._cluster.group(group_id).describe())

    async def rewrite_group_text(self, members: Members, group_id: str) -> str:
        found = internals(self._cluster).run(lambda: _rewrite_group(internals(self._cluster).cluster, group_id))
        return rewrite_group_text(members, *found)

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.close()
        self._cluster.__exit__(None, None, None)
