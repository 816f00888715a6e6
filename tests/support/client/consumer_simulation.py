"""Consumers and a cluster of three brokers in virtual time, with connections that delay messages and break.

Each consumer has a connection for each broker and lane, as `fakebroker.client.consumer.consumer` has. Messages on
different connections arrive in any order.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from fakebroker.client.consumer.consumer_core import ConsumerCore
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.group_offsets import OffsetOperation
from fakebroker.client.consumer.outbound import Lane, OutboundRequest, RebalanceEvent
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import CommitFailed, ConsumerError, GroupFailed
from fakebroker.client.versions import convert_request, versions_of
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import Partition, Topic
from fakebroker.coordinator.invariants import check
from fakebroker.errors import ErrorCode
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition
from tests.support.cluster.cluster_harness import ClusterHarness, batch, carried
from tests.support.coordinator.consumer_group_harness import check_group
from tests.support.virtual_time import SimulatedConnection, VirtualTime

ClientConnection = SimulatedConnection[OutboundRequest, Message]

MAX_POLL_INTERVAL_MS = 8_000
POLL_INTERVAL_MS = 400.0
_SESSION_MS, _HEARTBEAT_MS = 6_000, 1_500
_BROKERS = (1, 2, 3)
_DELAYS_MS = (0.0, 1.0, 5.0, 200.0)


@dataclass(eq=False)
class Application:
    """An application that polls a consumer, and processes the records of a poll before the next poll.

    Attributes:
        batch: The records of the last poll.
        commit: The commit that the next poll waits for.
        group_queue: Requests of the group lane that wait for the response to `group_request`.
        stalled_until_ms: The application does not poll until then.
    """

    core: ConsumerCore
    batch: list[ConsumerRecord] = field(default_factory=list)
    commit: OffsetOperation | None = None
    group_queue: deque[OutboundRequest] = field(default_factory=deque)
    group_request: OutboundRequest | None = None
    connections: dict[tuple[int, Lane], ClientConnection] = field(default_factory=dict)
    stalled_until_ms: float = 0.0
    is_running: bool = True


def is_sync_while_loading(error: ConsumerError) -> bool:
    """Whether SyncGroup failed because the coordinator was loading: fatal in Kafka, too, with brokers since 4.0."""
    return isinstance(error, GroupFailed) and error.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def is_unreleased(error: ConsumerError) -> bool:
    """Whether the session of an earlier process of a static member still runs: a supervisor starts it again."""
    return isinstance(error, GroupFailed) and error.error is ErrorCode.UNRELEASED_INSTANCE_ID


class ConsumerSimulation(VirtualTime):
    """A cluster and the group "g" of up to `size` consumers that subscribe to all topics.

    After each step the coordinators' invariants are checked, and that only offsets of processed records are committed.

    Args:
        seed: The seed of delays and losses.
        assignor: The assignor of all consumers; with `uses_consumer_protocol` that of the brokers.
        size: The highest number of consumers.
        topics: Partition counts by topic.
        accepts_error: Whether a poll may raise an error; the application polls again then.
        commits_after_poll: Whether the applications process the records of each poll at once, and commit.
        uses_consumer_protocol: Whether the consumers have the consumer protocol instead of the classic one.

    Attributes:
        processed: The offsets of each partition whose records an application has processed.
        apps: The running applications by index, None where none runs.
    """

    def __init__(
        self,
        seed: int,
        assignor: str,
        size: int,
        topics: dict[str, int],
        *,
        accepts_error: Callable[[ConsumerError], bool] = is_sync_while_loading,
        commits_after_poll: bool = False,
        uses_consumer_protocol: bool = False,
    ) -> None:
        super().__init__(seed)
        self._uses_consumer_protocol = uses_consumer_protocol
        if uses_consumer_protocol:
            self._member_settings: dict[str, Any] = {"group_protocol": "consumer", "group_remote_assignor": assignor}
        else:
            self._member_settings = {
                "assignor": assignor,
                "session_timeout_ms": _SESSION_MS,
                "heartbeat_interval_ms": _HEARTBEAT_MS,
            }
        self._accepts_error, self._commits_after_poll = accepts_error, commits_after_poll
        config: dict[str, object] = {
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.session.timeout.ms": _SESSION_MS,
            "group.consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
        }
        self.cluster = ClusterHarness(topics, brokers=len(_BROKERS), config=config).cluster
        member_ids = count(1)
        self._new_id = lambda: f"m-{next(member_ids)}"
        self.processed: dict[TopicPartition, set[int]] = {}
        self.apps: list[Application | None] = [None] * size
        self._first_unprocessed: dict[TopicPartition, int] = {}
        self._connection_ids = count(1)
        self._correlation_ids = count(1)
        self._respond_by_call: dict[Call, Callable[[Message], None]] = {}

    # Events

    def start(self, index: int) -> None:
        """Start an application, unless it runs. The third one is a static member."""
        if self.apps[index] is None:
            settings = ConsumerSettings(
                group_id="g",
                client_id=f"c{index}",
                instance_id="static" if index == 2 else None,
                **self._member_settings,
                max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
                commit_interval_ms=2_000 if index % 2 else 0,
                auto_offset_reset="earliest",
                max_poll_records=3,
                fetch_max_wait_ms=2_000,
                metadata_max_age_ms=3_000,
            )
            app = self.apps[index] = Application(ConsumerCore(settings, self._new_id))
            app.core.subscribe(list(self.topics()), self.now_ms)
            self._keep_polling(app)

    def leave(self, index: int) -> None:
        """Let an application process its records, leave the group and end."""
        if (app := self.apps[index]) is not None:
            self._process(app)
            app.core.unsubscribe(self.now_ms)
            self._follow(app)
            self._end(index, app, keeps_group_connection=True)

    def crash(self, index: int) -> None:
        if (app := self.apps[index]) is not None:
            self._end(index, app, keeps_group_connection=False)

    def _end(self, index: int, app: Application, *, keeps_group_connection: bool) -> None:
        app.is_running = False
        for (_, lane), connection in app.connections.items():
            if lane is not Lane.GROUP or not keeps_group_connection:
                connection.close()
        self.apps[index] = None

    def stall(self, index: int) -> None:
        """Stop the polls of an application for longer than `MAX_POLL_INTERVAL_MS`, so that its member expires."""
        if (app := self.apps[index]) is not None:
            app.stalled_until_ms = self.now_ms + MAX_POLL_INTERVAL_MS + 3_000

    def disconnect(self, index: int) -> None:
        """Break one connection of an application, which notices at once."""
        if (app := self.apps[index]) is not None and app.connections:
            node_id, lane = self.random.choice(list(app.connections))
            unanswered = app.connections[node_id, lane].unanswered
            self._close(app, node_id, lane)
            if lane is Lane.GROUP:
                app.group_request = None
            for outbound in unanswered:
                app.core.unanswered(outbound, None, self.now_ms)
            self._follow(app)

    def move_coordinator(self, load_ms: float) -> None:
        """Move the group's coordinator to another broker, which takes some time to load the group."""
        self._elect_another_leader(self.cluster.offsets_partition_of("g"), Failover(load_ms=load_ms))

    def move_leader(self) -> None:
        """Move the leader of one partition to another broker."""
        partitions = [each for name in self.topics() for each in self._topic(name).partitions]
        self._elect_another_leader(self.random.choice(partitions), Failover())

    def _elect_another_leader(self, partition: Partition, failover: Failover) -> None:
        node_id = self.random.choice([each for each in _BROKERS if each != partition.leader_id])
        self.cluster.controller.set_leader(partition, node_id, self.now_ms, failover)

    def add_partition(self) -> None:
        """Add a partition to the topic "t"."""
        self.cluster.create_partitions("t", len(self._topic("t").partitions) + 1)

    def produce(self, max_records: int = 4) -> None:
        """Append up to `max_records` records to each partition."""
        for name in self.topics():
            for partition in self._topic(name).partitions:
                if size := self.random.randint(0, max_records):
                    values = [b"%d" % (partition.log.log_end_offset + index) for index in range(size)]
                    partition.log.append(batch(*values), partition.leader_epoch)

    def topics(self) -> dict[str, int]:
        """Return the partition counts of all topics that are not internal."""
        visible = [topic for topic in self.cluster.topics if not topic.name.startswith("__")]
        return {topic.name: len(topic.partitions) for topic in visible}

    def _topic(self, name: str) -> Topic:
        topic = self.cluster.topics.get(name)
        assert topic is not None
        return topic

    # Checks

    def after_call(self) -> None:
        self._follow_cluster()
        for broker in self.cluster.brokers.values():
            for group in broker.coordinator.groups.classic.values():
                check(group)
            for consumer_group in broker.coordinator.groups.consumer:
                check_group(consumer_group)
        for partition, offset in self.committed().items():
            assert offset <= self._next_unprocessed(partition), (partition, offset, self.processed.get(partition))

    def is_consumed(self) -> bool:
        """Return whether all records are processed and all offsets committed."""
        ends = {
            (topic.name, partition.index): partition.log.log_end_offset
            for topic in map(self._topic, self.topics())
            for partition in topic.partitions
        }
        processed = all(self._next_unprocessed(partition) == end for partition, end in ends.items())
        return processed and self.committed() == ends

    def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets; none while the coordinator is loading."""
        broker = self.cluster.coordinator_of("g")
        if broker is None:
            return {}
        partitions = [(name, index) for name, size in self.topics().items() for index in range(size)]
        _, found = broker.coordinator.offsets.fetch("g", partitions)
        return {(topic, index): offset.offset for topic, index, offset in found if offset is not None}

    def _next_unprocessed(self, partition: TopicPartition) -> int:
        """Return the first offset that no application has processed."""
        offset, processed = self._first_unprocessed.get(partition, 0), self.processed.get(partition, ())
        while offset in processed:
            offset += 1
        self._first_unprocessed[partition] = offset
        return offset

    # Applications

    def _keep_polling(self, app: Application) -> None:
        """Poll, and schedule the next poll."""
        if app.is_running:
            if self.now_ms >= app.stalled_until_ms:
                self._poll(app)
            self._follow(app)
            delay_ms = self.random.choice([0.1, 1.0, 2.0]) * POLL_INTERVAL_MS
            self.call_in(delay_ms, partial(self._keep_polling, app))

    def _poll(self, app: Application) -> None:
        if app.commit is None:
            self._process(app)
            app.core.begin_poll(self.now_ms)
        if self._run_callbacks(app):
            try:
                app.batch = app.core.take_records(self.now_ms)
            except ConsumerError as error:
                if self._uses_consumer_protocol and is_unreleased(error):
                    index = self.apps.index(app)
                    self.crash(index)
                    self.call_in(1_000.0, partial(self.start, index))
                elif not self._accepts_error(error):
                    raise AssertionError(f"{app.core.settings.client_id}: {error}") from error
            if self._commits_after_poll:
                self._process(app)
                with suppress(CommitFailed):
                    app.commit = app.core.commit(None, self.now_ms)

    def _process(self, app: Application) -> None:
        for record in app.batch:
            self.processed.setdefault((record.topic, record.partition), set()).add(record.offset)
        app.batch = []

    def _run_callbacks(self, app: Application) -> bool:
        """Run the rebalance callbacks; the callback for revoked partitions commits. Return whether all are done."""
        if app.commit is not None:
            if app.commit.error is None:
                return False
            app.commit = None
        while app.core.callbacks:
            event, _ = app.core.callbacks.popleft()
            if event is RebalanceEvent.REVOKED:
                try:
                    app.commit = app.core.commit(None, self.now_ms)
                except CommitFailed:
                    continue
                if app.commit is not None:
                    return False
        app.core.callbacks_done(self.now_ms)
        return True

    def _follow(self, app: Application) -> None:
        """Send the requests of a consumer after a call, and schedule its next deadline."""
        outbounds, app.core.outbound = app.core.outbound, []
        for outbound in outbounds:
            if outbound.lane is Lane.GROUP:
                app.group_queue.append(outbound)
            else:
                self._send(app, outbound)
        current = app.group_request
        if current is not None and not app.core.needs(current):
            app.group_request = None
            assert current.node_id is not None
            self._close(app, current.node_id, Lane.GROUP)
        while app.group_queue and app.group_request is None:
            outbound = app.group_queue.popleft()
            if app.core.needs(outbound):
                app.group_request = outbound
                self._send(app, outbound)
        if app.is_running:
            self.call_at_deadline(app, app.core.next_deadline(), partial(self._expire_timers, app))

    def _expire_timers(self, app: Application) -> None:
        if app.is_running:
            app.core.tick(self.now_ms)
            self._follow(app)

    def _send(self, app: Application, outbound: OutboundRequest) -> None:
        node_id = self.random.choice(_BROKERS) if outbound.node_id is None else outbound.node_id
        key = node_id, outbound.lane
        if key not in app.connections:
            peer = Peer(self.cluster.brokers[node_id], "127.0.0.1", next(self._connection_ids))
            handle = partial(self._handle, peer, app.core.settings.client_id)
            app.connections[key] = SimulatedConnection(self, handle, _DELAYS_MS)
        app.connections[key].send(outbound, partial(self._on_response, app, outbound))

    def _on_response(self, app: Application, outbound: OutboundRequest, response: Message) -> None:
        if outbound.lane is Lane.GROUP:
            app.group_request = None
        app.core.answered(outbound, response, self.now_ms)
        self._follow(app)

    def _close(self, app: Application, node_id: int, lane: Lane) -> None:
        if connection := app.connections.pop((node_id, lane), None):
            connection.close()

    # Brokers

    def _handle(
        self, peer: Peer, client_id: str, outbound: OutboundRequest, respond: Callable[[Message], None]
    ) -> None:
        """Handle a request in the newest version, with messages as they are after encoding and decoding."""
        version = versions_of(type(outbound.request)).last
        request = carried(convert_request(outbound.request, version), version)
        call = Call(peer, api_of(request), version, next(self._correlation_ids), client_id, request, 0)
        self._respond_by_call[call] = respond
        if self.cluster.requests.handle(call, self.now_ms):
            self._respond(call)
        self._follow_cluster()

    def _respond(self, call: Call) -> None:
        assert call.response is not None
        self._respond_by_call.pop(call)(carried(call.response, call.api_version))

    def _follow_cluster(self) -> None:
        """Send the responses that the cluster has completed, and schedule its next deadline."""
        while self.cluster.requests.answered:
            answered, self.cluster.requests.answered = self.cluster.requests.answered, []
            for call in answered:
                self._respond(call)
        for queue in (self.cluster.timers, self.cluster.wire_timers):
            self.call_at_deadline(queue, queue.next_deadline(), self._expire_cluster_timers)

    def _expire_cluster_timers(self) -> None:
        self.cluster.tick(self.now_ms)
        self._follow_cluster()
