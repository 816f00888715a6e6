"""Consumers of the rewrite design over real connections, with the manual clock of a cluster."""

from collections.abc import Sequence
from typing import Any

from fakebroker import FakeCluster
from fakebroker.client.member.effects import (
    Assigned,
    CommitRejected,
    Discover,
    Effect,
    Fatal,
    FetchMetadata,
    GroupRequest,
    Revoked,
    Send,
)
from fakebroker.client.member.rewrite.rewrite_member import RewriteMember
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fakebroker.protocol.schema import Message
from fakebroker.server.connections.connection import Connection
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition
from tests.support.wire_client import WireClient, broker_of, until

_VERSIONS: dict[type[Message], int] = {
    RewriteJoinGroupRequest: 0,
    HeartbeatRequest: 0,
    OffsetCommitRequest: 1,
    OffsetFetchRequest: 1,
}


class ConsumerOverTcp:
    """One consumer with a connection to its coordinator. It acts only in `act` and `tick`.

    Attributes:
        member: The state machine.
        events: Its effects other than requests and look-ups.
    """

    def __init__(self, cluster: FakeCluster, name: str, **settings: Any) -> None:
        self.cluster = cluster
        defaults: dict[str, Any] = {"group_id": "g", "client_id": name, "session_timeout_ms": 9_000}
        self.member = RewriteMember(RewriteSettings(**(defaults | settings)))
        self.events: list[Effect] = []
        self._name = name
        self._wire: WireClient | None = None
        self._peer: Connection | None = None
        self._pending: list[tuple[GroupRequest, Call]] = []

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return self.member.assigned

    def act(self, now_ms: float) -> bool:
        """Carry out the effects, and receive the responses so far. Return whether there were any."""
        effects, self.member.effects = self.member.effects, []
        for effect in effects:
            self._carry_out(effect, now_ms)
        return self._receive(now_ms) or bool(effects)

    def crash(self, now_ms: float) -> None:
        self.member.crash(now_ms)
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
        self._wire, self._peer = None, None
        self._pending.clear()

    def _carry_out(self, effect: Effect, now_ms: float) -> None:
        match effect:
            case Discover():
                self._discover(now_ms)
            case Send():
                self._send(effect.request, now_ms)
            case FetchMetadata():
                with WireClient(self._any_broker(), self._name) as wire:
                    topics = wire.ask(MetadataRequest(topics=None), MetadataResponse, 1).topics
                counts = {topic.name: len(topic.partitions) for topic in topics if topic.name is not None}
                self.member.metadata(counts, now_ms)
            case Assigned() | Revoked() | Fatal() | CommitRejected():
                self.events.append(effect)

    def _any_broker(self) -> Any:
        return next(broker for broker in self.cluster.brokers if broker.up)

    def _discover(self, now_ms: float) -> None:
        """Send the ConsumerMetadataRequest, version 0 of FindCoordinator, and connect to the coordinator."""
        self.close()
        with WireClient(self._any_broker(), self._name) as wire:
            found = wire.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)
        if found.error_code:
            self.member.discovery_failed(ErrorCode(found.error_code), now_ms)
            return
        try:
            self._wire = WireClient(broker_of(self.cluster, found.node_id), self._name)
        except ConnectionRefusedError:
            self.member.discovery_failed(ErrorCode.NETWORK_EXCEPTION, now_ms)
            return
        self.member.discovered(now_ms)

    def _send(self, request: GroupRequest, now_ms: float) -> None:
        if self._wire is None or (self._peer is not None and self._peer.is_closed):
            self.member.connection_lost(now_ms)
            return
        journal = internals(self.cluster).cluster.journal
        before = journal.added
        sent: Message = _of_one_group(request) if isinstance(request, OffsetFetchRequest) else request
        self._wire.send(sent, _VERSIONS[type(request)])
        until(lambda: journal.added > before, self.cluster)
        call = self.cluster.journal.requests()[-1]
        assert isinstance(call.peer, Connection)
        self._peer = call.peer
        self._pending.append((request, call))

    def _receive(self, now_ms: float) -> bool:
        did_receive = False
        while self._pending and self._pending[0][1].answered_ms is not None:
            assert self._wire is not None
            request, _ = self._pending.pop(0)
            try:
                response: Any = self._wire.receive()
            except ConnectionError:  # The broker has stopped with the response.
                self.close()
                self.member.connection_lost(now_ms)
                return True
            self.member.answered(request, response, now_ms)
            did_receive = True
        if self._peer is not None and self._peer.is_closed:
            self.close()
            self.member.connection_lost(now_ms)
            return True
        return did_receive


def _of_one_group(request: OffsetFetchRequest) -> OffsetFetchRequest:
    """Return the request in the layout of its first versions."""
    (group,) = request.groups
    topics = [
        OffsetFetchRequestTopic(name=topic.name, partition_indexes=topic.partition_indexes)
        for topic in group.topics or ()
    ]
    return OffsetFetchRequest(group_id=group.group_id, topics=topics)


class ConsumersOverTcp:
    """Several consumers, and the time.

    Attributes:
        now_ms: The consumers' time in whole milliseconds; the clock of the cluster follows it.
        paused: Consumers that do not act, as in a long pause.
    """

    def __init__(self, cluster: FakeCluster, names: Sequence[str], **settings: Any) -> None:
        self.cluster = cluster
        self.consumers = {name: ConsumerOverTcp(cluster, name, **settings) for name in names}
        self.paused: set[str] = set()
        self.now_ms = round(internals(cluster).server.clock.now_ms())

    def __getitem__(self, name: str) -> ConsumerOverTcp:
        return self.consumers[name]

    def _active(self) -> list[ConsumerOverTcp]:
        return [each for name, each in self.consumers.items() if name not in self.paused]

    def start(self, name: str) -> None:
        self.consumers[name].member.start(self.now_ms)
        self.settle()

    def settle(self) -> None:
        """Let all consumers act until they wait for the time or for each other."""
        is_busy = True
        while is_busy:
            is_busy = False
            for each in self._active():
                is_busy |= each.act(self.now_ms)

    def advance(self, by_ms: int) -> None:
        """Advance the time; every timer of a consumer expires at its deadline."""
        end_ms = self.now_ms + by_ms
        while True:
            self.settle()
            deadlines = [due for each in self._active() if (due := each.member.next_deadline()) is not None]
            due_ms = min([*deadlines, end_ms])
            self._advance_to(min(max(round(due_ms), self.now_ms), end_ms))
            if due_ms >= end_ms:
                break
            for each in self._active():
                each.member.tick(self.now_ms)
        for each in self._active():
            each.member.tick(self.now_ms)
        self.settle()

    def _advance_to(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.cluster.advance((now_ms - self.now_ms) / 1000)
            self.now_ms = now_ms

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Return the consumers that own each partition."""
        owners: dict[TopicPartition, list[str]] = {}
        for name, consumer in self.consumers.items():
            for partition in consumer.partitions:
                owners.setdefault(partition, []).append(name)
        return owners

    def generations(self) -> set[int]:
        """Return the generations of the consumers that have one."""
        return {each.member.generation_id for each in self._active() if each.member.member_id}

    def close(self) -> None:
        for consumer in self.consumers.values():
            consumer.close()
