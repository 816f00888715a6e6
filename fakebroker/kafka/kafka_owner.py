"""Handles on a real Kafka: which requests their commands, views and conditions are (trio).

`KafkaOwner` runs them. What only a fake cluster can do raises `NotOnKafka`. Conditions are sampled: a wait looks
again and again, with one batch of requests for all its parts.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

import trio

from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import (
    GroupDescription,
    MemberDescription,
    NewTopic,
    Node,
    TransactionDescription,
)
from fakebroker.client.errors import AdminError, BrokerUnreachable, ConnectionLost, error_code
from fakebroker.client.security import ClientSecurity
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.client.trio_brokers import TrioBrokers
from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclRule
from fakebroker.cluster.configs.definitions import config_text
from fakebroker.cluster.configs.settings import AUTHORIZER
from fakebroker.cluster.handles.brokers import BrokerHandle
from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.conditions import Condition, Found, HandleCondition, handle_conditions, has_predicates
from fakebroker.cluster.handles.definition import NONE, Definition, Handle, key_of
from fakebroker.cluster.handles.group import GroupHandle, state_matches
from fakebroker.cluster.handles.topic import PartitionHandle, PartitionView, TopicHandle, TopicView
from fakebroker.cluster.handles.transaction import TransactionHandle
from fakebroker.cluster.inspect.phrases import columns, counted, listed
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import HangingTransaction, TransactionView, checked_filters
from fakebroker.cluster.inspect.views import BrokerView, GroupView, MemberView, RecordView
from fakebroker.cluster.seeding.producer import ProducedRecord, RecordSeed, by_partition, in_batches, seeds_of
from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.conform.raw_cluster import RawCluster
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE, GroupState
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import (
    ClusterStopped,
    ConditionNotMet,
    ConfigError,
    ErrorCode,
    FakebrokerError,
    NotOnKafka,
    ProtocolError,
    WaitTimeout,
    and_more,
    check_integer,
    cut_line,
    one_of,
    printable,
)
from fakebroker.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.records import Record, iterate_records, split_batches
from fakebroker.protocol.transaction_markers import AbortedBatches
from fakebroker.security.acls import Acl
from fakebroker.server.event_loops import LoopEvent, run_in_thread
from fakebroker.server.waits import WaitOwner, now_s
from fakebroker.topic_partition import (
    PartitionMap,
    PartitionName,
    TopicPartition,
    parse_partition,
    partition_name,
    partition_names,
    topic_id_text,
)

T = TypeVar("T")

CLIENT_ID = "fakebroker-test"
"""The client id of the requests that handles send."""

UNKNOWN = -1
"""A number that Kafka does not tell."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.2
"""How long a wait pauses between two samples: at first and after a change, and after many samples that were equal."""

_ATTEMPTS_S = 30.0
"""How long a request is repeated while leaders or coordinators move."""
_RETRY_S = 0.05
_READ_COMMITTED = 1
_FETCH_BYTES = 16 * 2**20
_ALL_REPLICAS = -1
_BATCH_BYTES = 1_000_000
"""The size of record batches that all brokers accept by default (`message.max.bytes`)."""
_MOST_LOOKS = 5
_NAMED_IN_ACLS = ("topic", "group", "transactional_id")
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""Errors of a partition whose leader has just been elected, or is being elected."""
_SHOWN_PARTITIONS, _SHOWN_RECORDS, _SHOWN_GROUPS = 16, 8, 10


class Clients(NamedTuple):
    """The clients of a `KafkaCluster`; all of them belong to its loop.

    Attributes:
        admin: Groups, offsets, transactions and topics, with retries.
        brokers: Produce and Fetch.
        raw: Single requests: ACLs, deletions, the settings of a broker and the records of `__consumer_offsets`.
    """

    admin: Admin
    brokers: TrioBrokers
    raw: RawCluster


class KafkaLoop:
    """A trio loop in a thread of its own, in which the clients of a `KafkaCluster` run.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas.
        security: How connections are encrypted and authenticated.

    Attributes:
        clients: The clients, from the start on.
    """

    clients: Clients

    def __init__(self, bootstrap_servers: str, security: ClientSecurity) -> None:
        self._bootstrap_servers, self._security = bootstrap_servers, security
        self._token: trio.lowlevel.TrioToken | None = None
        self._calls: trio.Nursery
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start the thread, and connect.

        Raises:
            BrokerUnreachable, AuthenticationFailed: The cluster cannot be used.
        """
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def _run(self, started: threading.Event) -> None:
        try:
            trio.run(self._serve, started)
        except BaseException as error:  # Raised by `start`.
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            self._failure = error
        finally:
            self._token = None
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        async with trio.open_nursery() as connections:
            raw = RawCluster(self._bootstrap_servers, connections, self._security)
            await raw.open()
            transport = TransportSecurity(self._security)
            brokers = TrioBrokers(self._bootstrap_servers, CLIENT_ID, connections, security=transport)
            async with Admin(self._bootstrap_servers, CLIENT_ID, security=self._security) as admin:
                self.clients = Clients(admin, brokers, raw)
                async with trio.open_nursery() as self._calls:
                    self._token = trio.lowlevel.current_trio_token()
                    started.set()
                    await trio.sleep_forever()
            connections.cancel_scope.cancel()

    def call(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the loop, and return its result. May be called in any other thread.

        Raises:
            ClusterStopped: The loop was stopped meanwhile, or does not run.
        """
        if self._token is None:
            raise ClusterStopped("this KafkaCluster is not open: expected a use within 'with' or 'async with'")
        future: Future[T] = Future()

        async def run() -> None:
            try:
                future.set_result(await step())
            except trio.Cancelled:
                future.cancel()
                raise
            except BaseException as error:  # It is raised in the thread that has called.
                future.set_exception(error)

        try:
            self._token.run_sync_soon(self._calls.start_soon, run)
            return future.result()
        except (CancelledError, trio.RunFinishedError):
            raise ClusterStopped("this KafkaCluster was closed meanwhile") from None

    def stop(self) -> None:
        """Cancel what runs, and end the thread."""
        token = self._token
        if token is not None and self._thread is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(lambda: self._calls.cancel_scope.cancel())
            self._thread.join()


class KafkaOwner(WaitOwner):
    """Runs the methods of handles on a real Kafka.

    Args:
        loop: The loop of the clients.
        prefix: Begins the names of all topics, groups and transactional ids in Kafka.
        allows_acls: Whether ACLs may be changed.
        is_owned: Whether the test is alone on this Kafka. Then the first ACL is added with others that allow everything
            to everyone, as on a fake cluster: Kafka denies what no ACL allows, as soon as a resource has one.
        is_clean: Whether topics and groups that may be deleted were deleted at the beginning.

    Attributes:
        foreign_topics, foreign_groups: Names in Kafka that existed before the test. Handles on them are refused.
        named_topics, named_groups: Names in Kafka that handles have named.
    """

    def __init__(self, loop: KafkaLoop, prefix: str, *, allows_acls: bool, is_owned: bool, is_clean: bool) -> None:
        self.loop, self.prefix, self.allows_acls = loop, prefix, allows_acls
        self.is_owned, self.is_clean = is_owned, is_clean
        self.foreign_topics: set[str] = set()
        self.foreign_groups: set[str] = set()
        self.named_topics: dict[str, None] = {}
        self.named_groups: dict[str, None] = {}
        self.acls: dict[Acl, None] = {}
        self.description = "this Kafka"
        self.next_partition: dict[str, int] = {}
        self.last_seen = ""
        self.start_over: Callable[[], Awaitable[None]]

    @property
    def clients(self) -> Clients:
        """The clients of the loop."""
        return self.loop.clients

    # Names

    def real(self, name: str) -> str:
        """Return the name in Kafka. Internal topics have the same name."""
        return name if name in INTERNAL_TOPICS else self.prefix + name

    def own(self, real: str) -> str:
        """Return the name in the test: the reverse of `real`."""
        return real if real in INTERNAL_TOPICS else real.removeprefix(self.prefix)

    def own_places(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return partitions with the names of their topics in the test."""
        return [(self.own(topic), index) for topic, index in places]

    def is_own(self, real: str) -> bool:
        """Return whether views of the whole cluster show this topic, group or transactional id."""
        return real.startswith(self.prefix)

    def note(self, handle: Handle) -> None:
        """Remember that the test uses a topic or a group.

        Raises:
            ConfigError: It existed before the test.
        """
        if isinstance(handle, GroupHandle):
            kind, name, named, foreign = "group", handle.group_id, self.named_groups, self.foreign_groups
        elif isinstance(handle, TopicHandle | PartitionHandle) and handle.topic not in INTERNAL_TOPICS:
            kind, name, named, foreign = "topic", handle.topic, self.named_topics, self.foreign_topics
        else:
            return
        real = self.real(name)
        if real in foreign:
            raise existed_before(kind, real, self.description, is_clean=self.is_clean)
        named[real] = None

    # The methods of handles

    def perform(self, handle: Handle, definition: Definition, arguments: dict[str, Any]) -> Any:
        run = OPERATIONS.get(definition.name)
        if run is None:
            raise NotOnKafka.fake(_text_of(handle, definition))
        return self.loop.call(lambda: _in_time(lambda: run(self, handle, **arguments), definition.name))

    # Waits

    def watch(self, condition: Condition[Any]) -> "KafkaWatch":
        return KafkaWatch(self, condition)

    def look(self, leaves: Sequence[HandleCondition[Any]]) -> list[Found | None]:
        for leaf in leaves:
            self.check(leaf)
        sample = Sample(self)
        found = self.loop.call(lambda: _in_time(lambda: sample.of_all(leaves), "a look at a condition"))
        self.last_seen = sample.seen
        return found

    def check(self, leaf: HandleCondition[Any]) -> None:
        """Check that a condition can be evaluated.

        Raises:
            NotOnKafka: Kafka does not tell.
            ConfigError: The topic or group existed before the test.
        """
        handle = leaf.definition.of(self, leaf.key)
        if leaf.definition.name not in CONDITIONS:
            raise NotOnKafka.fake(_text_of(handle, leaf.definition))
        self.note(handle)

    def call(self, step: Callable[[], T]) -> T:
        return step()

    async def call_async(self, step: Callable[[], T]) -> T:
        return await run_in_thread(step)

    def state_text(self, condition: Condition[Any]) -> str:
        """Return the state of the things that a condition is about, as text."""
        leaves = handle_conditions(condition)
        return self.loop.call(lambda: _in_time(lambda: _states_of(self, leaves), "a look at the state"))


class KafkaWatch:
    """A pending wait: it samples its condition, often while something changes, and seldom otherwise."""

    def __init__(self, owner: KafkaOwner, condition: Condition[Any]) -> None:
        self.found: Found | None = None
        self.error: Exception | None = None
        self.changes = 0
        self._owner, self._condition = owner, condition
        self._has_predicates = has_predicates(condition)
        self._pause_s = FIRST_PAUSE_S
        self._next_s = 0.0
        self._last = ""

    def begin(self) -> None:
        if not self._has_predicates:
            self._sample()

    def _sample(self) -> None:
        leaves = handle_conditions(self._condition)
        try:
            results = dict(zip(map(id, leaves), self._owner.look(leaves), strict=True))
        except (FakebrokerError, TypeError) as error:
            self.error = error
            return
        self.found = self._condition.evaluate(lambda leaf: results[id(leaf)])
        seen = self._owner.last_seen
        self._pause_s = FIRST_PAUSE_S if seen != self._last else min(self._pause_s * 1.5, LONGEST_PAUSE_S)
        self._last, self._next_s = seen, now_s() + self._pause_s

    def _sleep_s(self, until_s: float) -> float:
        """Return how long to sleep until the next sample, or until the end of the pause."""
        return max(0.0, (until_s if self._has_predicates else min(self._next_s, until_s)) - now_s())

    def _is_over(self) -> bool:
        return self.found is not None or self.error is not None

    def pause(self, changes: int, timeout_s: float) -> None:
        until_s = now_s() + timeout_s
        while not self._is_over():
            threading.Event().wait(self._sleep_s(until_s))  # `time.sleep` may be replaced in tests that freeze the time
            if self._has_predicates:
                return  # The waiting thread calls them, and looks at the rest of the condition then.
            if now_s() >= min(self._next_s, until_s):
                self._sample()
            if now_s() >= until_s:
                return

    async def pause_async(self, changes: int, timeout_s: float) -> None:
        until_s = now_s() + timeout_s
        while not self._is_over():
            await LoopEvent().wait(self._sleep_s(until_s))
            if self._has_predicates:
                return
            if now_s() >= min(self._next_s, until_s):
                await run_in_thread(self._sample)
            if now_s() >= until_s:
                return

    def state(self, *, has_timed_out: bool = True) -> str:
        return self._owner.state_text(self._condition)

    def close(self) -> None:
        """Do nothing: nothing waits in Kafka."""


def existed_before(kind: str, real: str, where: str, *, is_clean: bool) -> ConfigError:
    """Return the error for a topic or a group that the test would share with others.

    Args:
        kind: "topic" or "group".
        real: Its name in Kafka.
        where: Which Kafka.
        is_clean: Whether what can be deleted was deleted.
    """
    expected = "a name that is free: it existed before the test. If it may be deleted, use clean=True or --kafka-clean"
    if is_clean:
        expected = "a name that is free: it existed before the test, and has members or offsets of other topics"
    return ConfigError.of(kind, real, expected, where=where)


def _text_of(handle: Handle, definition: Definition) -> str:
    """Return a method as its caller has written it, such as "cluster.group('billing').hold"."""
    kind, key = definition.thing, key_of(handle)
    if kind == "partition":
        return f"cluster.topic({key['topic']!r}).partition(...).{definition.method.__name__}"
    named = f"{kind}({', '.join(map(repr, key.values()))})" if key else kind
    return ".".join(filter(None, ["cluster", named, definition.method.__name__]))


async def _in_time(step: Callable[[], Awaitable[T]], name: str) -> T:
    """Run a step. What Kafka refuses is a `ConfigError`, as on a fake cluster.

    Raises:
        ConfigError: Kafka has refused it.
        WaitTimeout: It took too long.
    """
    try:
        with trio.fail_after(2 * _ATTEMPTS_S):
            return await step()
    except AdminError as error:
        raise ConfigError(str(error)) from error
    except trio.TooSlowError:
        raise WaitTimeout(f"{name} was not done within {2 * _ATTEMPTS_S:g} s") from None


# Topics


async def _topics(owner: KafkaOwner, names: Collection[str]) -> dict[str, MetadataResponseTopic]:
    """Return existing topics by their names in the test, with Metadata of any broker."""
    if not names:
        return {}
    wanted = [MetadataRequestTopic(name=owner.real(name)) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    response: MetadataResponse = await owner.clients.brokers.request(request)
    return {owner.own(each.name or ""): each for each in response.topics if not each.error_code}


async def _topic(owner: KafkaOwner, name: str) -> MetadataResponseTopic:
    """Return a topic.

    Raises:
        ConfigError: There is no such topic.
    """
    found = (await _topics(owner, [name])).get(name)
    if found is None:
        known = [owner.own(each) for each in await owner.clients.admin.list_topics() if owner.is_own(each)]
        raise ConfigError.of("topic", name, one_of(known, name))
    return found


def _indexes(topic: MetadataResponseTopic, name: str, partition: int | None) -> list[int]:
    total = len(topic.partitions)
    if partition is None:
        return sorted(each.partition_index for each in topic.partitions)
    check_integer("partition", partition, least=0, most=total - 1, where=f"topic {name!r}")
    return [partition]


async def _offsets_of(
    owner: KafkaOwner,
    places: Iterable[TopicPartition],
    which: Literal["earliest", "latest"],
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """Look up offsets of partitions, by their names in the test. Partitions that do not exist are left out."""
    wanted: dict[TopicPartition, Literal["earliest", "latest"] | int] = {
        (owner.real(topic), index): which for topic, index in places
    }
    if not wanted:
        return {}
    level: Literal["read_committed", "read_uncommitted"] = "read_committed" if committed else "read_uncommitted"
    found = await owner.clients.admin.list_offsets(wanted, isolation_level=level)
    return {(owner.own(topic), index): each.offset for (topic, index), each in found.values_by_key.items()}


async def _read(owner: KafkaOwner, name: str, partition: int | None, *, committed: bool) -> list[RecordView]:
    """Read the records of a topic up to its present end."""
    indexes = _indexes(await _topic(owner, name), name, partition)
    places = [(name, index) for index in indexes]
    starts = await _offsets_of(owner, places, "earliest")
    ends = await _offsets_of(owner, places, "latest", committed=committed)
    positions = {index: starts.get((name, index), 0) for index in indexes}
    found: dict[int, list[RecordView]] = {index: [] for index in indexes}
    with trio.fail_after(_ATTEMPTS_S):
        while left := {index: at for index, at in positions.items() if at < ends.get((name, index), 0)}:
            for index, data in (await _fetched(owner, name, left, committed=committed)).items():
                aborted = AbortedBatches(data.aborted_transactions or () if committed else ())
                for batch in split_batches(data.records or b""):
                    is_aborted = aborted.contain(batch)
                    if batch.last_offset < positions[index] or batch.base_offset >= ends[name, index]:
                        continue
                    if not is_aborted and not batch.is_control:
                        found[index] += [
                            RecordView(name, index, each.offset, each.timestamp_ms, each.key, each.value, each.headers)
                            for each in iterate_records(batch)
                            if positions[index] <= each.offset < ends[name, index]
                        ]
                    positions[index] = batch.last_offset + 1
                if not data.records:  # Compaction has removed the rest.
                    positions[index] = ends[name, index]
    return [record for index in indexes for record in found[index]]


async def _fetched(
    owner: KafkaOwner, name: str, positions: Mapping[int, int], *, committed: bool
) -> dict[int, PartitionData]:
    """Fetch from partitions of one topic. Those whose leaders are unknown now are left out, after a pause."""
    topic, found = await _topic(owner, name), dict[int, PartitionData]()
    by_leader: dict[int, list[int]] = {}
    for each in topic.partitions:
        if each.partition_index in positions:
            by_leader.setdefault(each.leader_id, []).append(each.partition_index)
    for leader, indexes in by_leader.items():
        if leader < 0:
            continue
        partitions = [
            FetchPartition(partition=index, fetch_offset=positions[index], partition_max_bytes=_FETCH_BYTES)
            for index in indexes
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=_READ_COMMITTED if committed else 0,
            topics=[FetchTopic(topic=topic.name or "", partitions=partitions)],
        )
        try:
            response: FetchResponse = await owner.clients.brokers.request(request, leader)
        except (ConnectionLost, BrokerUnreachable):
            continue
        for data in (data for each in response.responses for data in each.partitions):
            error = error_code(data.error_code)
            if error not in (ErrorCode.NONE, *_MOVED):
                raise FakebrokerError(f"{name}-{data.partition_index} cannot be read: {error.name}")
            if not error:
                found[data.partition_index] = data
        if len(found) < len(positions) and not any(data.records for data in found.values()):
            await trio.sleep(_RETRY_S)
        elif any(data.records for data in found.values()):
            # A response has a limit. Partitions without records may be beyond it.
            found = {index: data for index, data in found.items() if data.records}
    return found


async def _topic_view(owner: KafkaOwner, name: str, topic: MetadataResponseTopic) -> TopicView:
    places = [(name, each.partition_index) for each in topic.partitions]
    starts, ends = await _offsets_of(owner, places, "earliest"), await _offsets_of(owner, places, "latest")
    stable = await _offsets_of(owner, places, "latest", committed=True)
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    listed_topic = ListPartitionReassignmentsTopics(
        name=topic.name or "", partition_indexes=[each.partition_index for each in partitions]
    )
    request = ListPartitionReassignmentsRequest(timeout_ms=int(_ATTEMPTS_S * 1000), topics=[listed_topic])
    response: ListPartitionReassignmentsResponse = await owner.clients.brokers.request(request)
    moving = {each.partition_index: each for found in response.topics for each in found.partitions}
    views = []
    for each in partitions:
        index = each.partition_index
        move = moving.get(index)
        views.append(
            PartitionView(
                index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(move.adding_replicas) if move else (),
                tuple(move.removing_replicas) if move else (),
                starts.get((name, index), UNKNOWN),
                ends.get((name, index), UNKNOWN),
                stable.get((name, index), UNKNOWN),
            )
        )
    return TopicView(name, tuple(views), topic.is_internal, topic_id_text(topic.topic_id))


async def _describe_topic(owner: KafkaOwner, handle: TopicHandle) -> TopicView:
    return await _topic_view(owner, handle.topic, await _topic(owner, handle.topic))


async def _all_topics(owner: KafkaOwner) -> list[TopicView]:
    names = [
        owner.own(each)
        for each in await owner.clients.admin.list_topics()
        if owner.is_own(each) and each not in owner.foreign_topics
    ]
    return [await _topic_view(owner, name, topic) for name, topic in sorted((await _topics(owner, names)).items())]


async def _records(
    owner: KafkaOwner, handle: TopicHandle, partition: int | None = None, committed: bool = False
) -> list[RecordView]:
    return await _read(owner, handle.topic, partition, committed=committed)


async def _end_offsets(owner: KafkaOwner, handle: TopicHandle, committed: bool = False) -> PartitionMap[int]:
    topic = await _topic(owner, handle.topic)
    places = [(handle.topic, index) for index in _indexes(topic, handle.topic, None)]
    return PartitionMap(await _offsets_of(owner, places, "latest", committed=committed))


async def create_topics(owner: KafkaOwner, topics: Sequence[NewTopic]) -> None:
    """Create topics, by their names in Kafka, and wait until all brokers know their leaders."""
    if topics:
        (await owner.clients.admin.create_topics(topics)).all()
        created = await owner.clients.raw.topics([each.name for each in topics])
        counts = {each.name: max(1, each.num_partitions, len(created[each.name].partitions)) for each in topics}
        await owner.clients.raw.wait_for_leaders(counts)


async def _create_topic(
    owner: KafkaOwner,
    handle: TopicHandle,
    partitions: int = 1,
    replication_factor: int | None = None,
    configs: Mapping[str, Any] | None = None,
) -> None:
    settings = {key: config_text(each) for key, each in (configs or {}).items()}
    await create_topics(owner, [NewTopic(owner.real(handle.topic), partitions, replication_factor or -1, settings)])


async def _create_partitions(owner: KafkaOwner, handle: TopicHandle, total: int) -> None:
    await owner.clients.raw.create_partitions(owner.real(handle.topic), total)


async def _delete_topic(owner: KafkaOwner, handle: TopicHandle) -> None:
    await _topic(owner, handle.topic)
    faults = await owner.clients.raw.delete_topics([owner.real(handle.topic)])
    if faults:
        raise ConfigError(faults[0])
    await owner.clients.raw.wait_until_gone(owner.real(handle.topic))


async def _produce(
    owner: KafkaOwner,
    handle: TopicHandle,
    values: Sequence[Any] = (),
    *,
    records: Sequence[RecordSeed] = (),
    key: Any = None,
    partition: int | None = None,
    headers: Any = None,
    timestamp: int | None = None,
) -> list[ProducedRecord]:
    """Produce with acks=all. Unlike on a fake cluster, some partitions may have the records if another refuses them."""
    seeds = seeds_of(values, records, key, partition, headers, timestamp)
    topic = await _topic(owner, handle.topic)
    available = sorted(each.partition_index for each in topic.partitions if each.leader_id >= 0)
    field, now_ms = "records" if records else "values", int(time.time() * 1000)
    turn = owner.next_partition.get(handle.topic, 0)
    chosen, by_index, taken = by_partition(
        seeds, handle.topic, len(topic.partitions), available, turn, now_ms, field=field
    )
    owner.next_partition[handle.topic] = turn + taken
    offsets = {index: iter(await _append(owner, handle.topic, index, each)) for index, each in by_index.items()}
    return [ProducedRecord(index, next(offsets[index])) for index in chosen]


async def _append(owner: KafkaOwner, name: str, index: int, records: Sequence[Record]) -> list[int]:
    """Append records to a partition, and return their offsets."""
    offsets: list[int] = []
    for batch in in_batches(records, _BATCH_BYTES):
        data = TopicProduceData(
            name=owner.real(name), partition_data=[PartitionProduceData(index=index, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=None, acks=_ALL_REPLICAS, timeout_ms=int(_ATTEMPTS_S * 1000), topic_data=[data]
        )
        with trio.fail_after(_ATTEMPTS_S):
            while True:
                leaders = {each.partition_index: each.leader_id for each in (await _topic(owner, name)).partitions}
                error = ErrorCode.LEADER_NOT_AVAILABLE
                if leaders.get(index, -1) >= 0:
                    response: ProduceResponse = await owner.clients.brokers.request(request, leaders[index])
                    (found,) = response.responses[0].partition_responses
                    error = error_code(found.error_code)
                    if not error:
                        (sent,) = split_batches(batch)
                        offsets += range(found.base_offset, found.base_offset + sent.record_count)
                        break
                if error not in _MOVED:
                    expected = f"records that the leader of {name}-{index} accepts, not {error.name}"
                    raise ConfigError(f"values: expected {expected}", field="values", expected=expected)
                await trio.sleep(_RETRY_S)
    return offsets


async def _describe_partition(owner: KafkaOwner, handle: PartitionHandle) -> PartitionView:
    topic = await _topic(owner, handle.topic)
    (index,) = _indexes(topic, handle.topic, handle.partition)
    return (await _topic_view(owner, handle.topic, topic)).partitions[index]


# Groups


async def group_views(owner: KafkaOwner, names: Collection[str]) -> dict[str, GroupView]:
    """Describe groups, by their names in the test. Those that do not exist are Dead."""
    if not names:
        return {}
    reals = {owner.real(name): name for name in names}
    for _ in range(_MOST_LOOKS):
        # The generation stands in the log only. The group may change between two looks.
        stored = {real: await _stored_generation(owner, real) for real in reals}
        described = await owner.clients.admin.describe_groups(reals)
        if stored == {real: await _stored_generation(owner, real) for real in reals}:
            break
    views = {}
    for real, name in reals.items():
        found = described[real]
        if isinstance(found, AdminError):
            if found.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise found
            views[name] = GroupView.of(name, None)
        elif found.state == DEAD:
            views[name] = GroupView.of(name, None)
        else:
            views[name] = _group_view(owner, name, found, *stored[real])
    return views


async def _stored_generation(owner: KafkaOwner, real: str) -> tuple[int, str | None]:
    """Return the last generation of a classic group and its leader, from its records in `__consumer_offsets`."""
    try:
        records = await owner.clients.raw.records_of_group(real)
    except FakebrokerError:  # The user may not read the topic.
        return UNKNOWN, None
    for record in reversed(records):
        if isinstance(record, CoordinatorRecord) and isinstance(record.key, GroupMetadataKey):
            value = record.value
            return (value.generation, value.leader) if isinstance(value, GroupMetadataValue) else (0, None)
    return 0, None


def _group_view(
    owner: KafkaOwner, name: str, found: GroupDescription, generation_id: int, leader_id: str | None
) -> GroupView:
    is_classic = found.group_epoch is None
    return GroupView(
        group_id=name,
        state=found.state,
        generation_id=generation_id if found.group_epoch is None else found.group_epoch,
        protocol_type=found.protocol_type or None,
        protocol_name=found.protocol_name or None,
        leader_id=leader_id if is_classic else None,
        members=tuple(_member_view(owner, found, each) for each in found.members),
        type="classic" if is_classic else "consumer",
        assignment_epoch=found.assignment_epoch,
        history=Timeline(name, (), 0.0),
    )


def _member_view(owner: KafkaOwner, group: GroupDescription, member: MemberDescription) -> MemberView:
    assignment, metadata = member.assignment_data, member.metadata
    if group.group_epoch is not None:
        assignment = encode_assignment(owner.own_places(member.assignment or ()))
        metadata = encode_subscription(sorted(map(owner.own, member.subscribed_topic_names or ())))
    elif owner.prefix and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        with suppress(ProtocolError):
            assignment = (
                encode_assignment(owner.own_places(decode_assignment(assignment))) if assignment else assignment
            )
            said = decode_subscription(metadata)
            metadata = encode_subscription(map(owner.own, said.topics), owner.own_places(said.owned_partitions))
    return MemberView(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        session_timeout_ms=UNKNOWN,
        rebalance_timeout_ms=UNKNOWN,
        assignment=assignment,
        metadata=metadata,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name or None,
        member_epoch=member.member_epoch,
        target_names=partition_names(owner.own_places(member.target_assignment or ())),
        rack_id=member.rack_id,
        subscribed_topic_regex=member.subscribed_topic_regex or "",
        type="consumer" if group.group_epoch is not None and not member.is_classic else "classic",
    )


async def _describe_group(owner: KafkaOwner, handle: GroupHandle) -> GroupView:
    return (await group_views(owner, [handle.group_id]))[handle.group_id]


async def _all_groups(owner: KafkaOwner) -> list[GroupView]:
    names = [
        owner.own(each.group_id)
        for each in await owner.clients.admin.list_groups()
        if owner.is_own(each.group_id) and each.group_id not in owner.foreign_groups
    ]
    return list((await group_views(owner, sorted(names))).values())


async def committed_offsets(owner: KafkaOwner, names: Collection[str]) -> dict[str, PartitionMap[CommittedOffset]]:
    """Return the committed offsets of groups, by their names in the test. The time of a commit is not known."""
    if not names:
        return {}
    reals = {owner.real(name): name for name in names}
    found = await owner.clients.admin.list_group_offsets(dict.fromkeys(reals))
    found.all()
    return {
        reals[real]: PartitionMap(
            {
                (owner.own(topic), index): CommittedOffset(each.offset, UNKNOWN, each.leader_epoch, each.metadata)
                for (topic, index), each in sorted(offsets.items())
                if each is not None
            }
        )
        for real, offsets in found.values_by_key.items()
    }


async def _group_offsets(owner: KafkaOwner, handle: GroupHandle) -> PartitionMap[CommittedOffset]:
    return (await committed_offsets(owner, [handle.group_id]))[handle.group_id]


async def _lag(owner: KafkaOwner, handle: GroupHandle, committed: bool = False) -> PartitionMap[int]:
    offsets = await _group_offsets(owner, handle)
    ends = await _offsets_of(owner, offsets, "latest", committed=committed)
    return PartitionMap({place: max(0, end - offsets[place].offset) for place, end in ends.items()})


async def _group_coordinator(owner: KafkaOwner, handle: GroupHandle) -> BrokerView:
    real = owner.real(handle.group_id)
    node = (await owner.clients.admin.find_coordinators([real])).all()[real]
    return _broker_view(node)


async def _set_offsets(
    owner: KafkaOwner, handle: GroupHandle, offsets: Mapping[PartitionName, Any], force: bool = False
) -> None:
    if force:
        raise NotOnKafka.fake("cluster.group(...).set_offsets with force=True")
    real = owner.real(handle.group_id)
    places = {parse_partition(name, "offsets"): None if offset == NONE else offset for name, offset in offsets.items()}
    topics = await _topics(owner, {topic for topic, _ in places})
    for topic, index in places:
        if topic not in topics or index >= len(topics[topic].partitions):
            raise ConfigError.of("offsets", f"{topic}-{index}", "a partition that exists")
    committed = {(owner.real(topic), index): at for (topic, index), at in places.items() if at is not None}
    deleted = [(owner.real(topic), index) for (topic, index), at in places.items() if at is None]
    if committed:
        (await owner.clients.admin.alter_group_offsets({real: committed})).all()
    if deleted:
        (await owner.clients.admin.delete_group_offsets({real: deleted})).all()


async def _delete_group(owner: KafkaOwner, handle: GroupHandle) -> None:
    (await owner.clients.admin.delete_groups([owner.real(handle.group_id)])).all()


async def _evict(owner: KafkaOwner, handle: GroupHandle, member: str) -> None:
    view = await _describe_group(owner, handle)
    meant = [each for each in view.members if member in (each.member_id, each.instance_id)]
    meant = meant or [each for each in view.members if each.client_id == member]
    if len(meant) != 1:
        known = [each.instance_id or each.client_id for each in view.members]
        raise ConfigError.of("member", member, one_of(known, member), where=f"group {handle.group_id!r}")
    (found,), real = meant, owner.real(handle.group_id)
    ids = {"instance_ids": [found.instance_id]} if found.instance_id else {"member_ids": [found.member_id]}
    (await owner.clients.admin.remove_members_from_group(real, **ids)).all()  # type: ignore[arg-type]


# Transactions


async def _transaction_views(owner: KafkaOwner, names: Collection[str]) -> dict[str, TransactionView]:
    """Describe transactional ids, by their names in the test. Those that do not exist are Dead."""
    if not names:
        return {}
    found = await owner.clients.admin.describe_transactions([owner.real(name) for name in names])
    return {name: _transaction_view(owner, name, found[owner.real(name)]) for name in names}


def _transaction_view(owner: KafkaOwner, name: str, found: TransactionDescription | AdminError) -> TransactionView:
    if isinstance(found, AdminError) and found.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise found
    known = None if isinstance(found, AdminError) else found
    return TransactionView(
        transactional_id=name,
        state=known.state if known else DEAD,
        pending_state=None,
        producer_id=known.producer_id if known else UNKNOWN,
        producer_epoch=known.producer_epoch if known else UNKNOWN,
        timeout_ms=known.timeout_ms if known else 0,
        start_ms=known.start_ms if known else None,
        last_update_ms=UNKNOWN if known else 0,
        partition_names=partition_names(
            (owner.own(topic), index) for topic, index in (known.partitions if known else ())
        ),
        coordinator=known.coordinator.node_id if known else None,
        is_held=False,
        awaited_markers=(),
        deadline_ms=None,
        history=TransactionTimeline(name, (), 0.0),
    )


async def _describe_transaction(owner: KafkaOwner, handle: TransactionHandle) -> TransactionView:
    return (await _transaction_views(owner, [handle.transactional_id]))[handle.transactional_id]


async def _all_transactions(
    owner: KafkaOwner,
    handle: ClusterHandle,
    state: str | None = None,
    producer_id: int | None = None,
    longer_than_s: float | None = None,
) -> list[TransactionView]:
    checked_filters(state, producer_id, longer_than_s)
    listings = await owner.clients.admin.list_transactions(
        states=[] if state is None else [state],
        producer_ids=[] if producer_id is None else [producer_id],
        duration_ms=None if longer_than_s is None else int(longer_than_s * 1000),
    )
    names = [owner.own(each.transactional_id) for each in listings if owner.is_own(each.transactional_id)]
    return list((await _transaction_views(owner, names)).values())


async def _hanging(owner: KafkaOwner, handle: ClusterHandle) -> list[HangingTransaction]:
    admin = owner.clients.admin
    topics = await _topics(owner, [each.name for each in await _all_topics(owner)])
    places = [(owner.real(name), each.partition_index) for name, topic in topics.items() for each in topic.partitions]
    ids = [each.transactional_id for each in await admin.list_transactions()]
    described = (await admin.describe_transactions(ids)).values_by_key if ids else {}
    known = {(each.producer_id, place) for each in described.values() for place in each.partitions}
    return [
        HangingTransaction(
            topic=owner.own(topic),
            partition=index,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            first_offset=each.transaction_start_offset,
            last_timestamp_ms=each.last_timestamp_ms,
        )
        for (topic, index), producers in sorted((await admin.describe_producers(places)).all().items())
        for each in producers
        if each.transaction_start_offset is not None and (each.producer_id, (topic, index)) not in known
    ]


async def _transaction_coordinator(owner: KafkaOwner, handle: TransactionHandle) -> BrokerView:
    real = owner.real(handle.transactional_id)
    node = (await owner.clients.admin.find_coordinators([real], "transaction")).all()[real]
    return _broker_view(node)


async def _fence_producer(owner: KafkaOwner, handle: TransactionHandle) -> None:
    if (await _describe_transaction(owner, handle)).state == DEAD:
        raise ConfigError.of("transactional_id", handle.transactional_id, "an existing id")
    (await owner.clients.admin.fence_producers([owner.real(handle.transactional_id)])).all()


# Brokers and ACLs


def _broker_view(node: Node) -> BrokerView:
    return BrokerView(node.node_id, node.host, node.port, True, node.rack)


async def _brokers(owner: KafkaOwner, handle: Handle) -> list[BrokerView]:
    nodes = (await owner.clients.admin.describe_cluster()).nodes
    return sorted(map(_broker_view, nodes), key=lambda each: each.node_id)


async def _broker(owner: KafkaOwner, handle: BrokerHandle) -> BrokerView:
    brokers = {each.node_id: each for each in await _brokers(owner, handle)}
    if handle.node_id not in brokers:
        raise ConfigError.of("node_id", handle.node_id, one_of(brokers))
    return brokers[handle.node_id]


async def _change_acl(
    owner: KafkaOwner,
    method: str,
    permission: Literal["allow", "deny"],
    principal: str,
    operation: Any,
    **resource: Any,
) -> None:
    if not owner.allows_acls:
        raise NotOnKafka.fake(f"cluster.acls.{method}; or a Kafka whose ACLs may be changed (--kafka-acls)")
    named: dict[str, Any] = {
        name: owner.real(value) if name in _NAMED_IN_ACLS and value not in (None, "*") else value
        for name, value in resource.items()
    }
    rule = AclRule(principal=principal, operation=operation, permission=permission, **named)
    raw = owner.clients.raw
    try:
        if method == "remove":
            if rule.acl not in owner.acls:
                raise ConfigError.of("principal", principal, "an ACL that this test has added")
            await raw.remove_acls([rule.acl])
            del owner.acls[rule.acl]
            return
        opposite = AclRule(principal=principal, operation=operation, permission="deny", **named).acl
        if method == "allow" and opposite in owner.acls:
            await raw.remove_acls([opposite])
            del owner.acls[opposite]
        first = ALLOW_EVERYTHING if owner.is_owned and not owner.acls else ()
        await raw.add_acls([*first, rule.acl])
        owner.acls.update(dict.fromkeys((*first, rule.acl)))
    except FakebrokerError as error:
        if ErrorCode.SECURITY_DISABLED.name in str(error):
            raise NotOnKafka.fake(f"cluster.acls.{method}; or a Kafka with {AUTHORIZER}") from None
        raise


async def _allow(owner: KafkaOwner, handle: Handle, **arguments: Any) -> None:
    await _change_acl(owner, "allow", "allow", **arguments)


async def _deny(owner: KafkaOwner, handle: Handle, **arguments: Any) -> None:
    await _change_acl(owner, "deny", "deny", **arguments)


async def _remove_acl(
    owner: KafkaOwner, handle: Handle, permission: Literal["allow", "deny"], **arguments: Any
) -> None:
    await _change_acl(owner, "remove", permission, **arguments)


# The whole cluster


async def _expect(owner: KafkaOwner, handle: Handle, condition: Condition[Any]) -> None:
    leaves = handle_conditions(condition)
    for leaf in leaves:
        owner.check(leaf)
    found = dict(zip(map(id, leaves), await Sample(owner).of_all(leaves), strict=True))
    if condition.evaluate(lambda leaf: found[id(leaf)]) is None:
        raise ConditionNotMet(f"{condition}: it does not hold\n{await _states_of(owner, leaves)}")


async def _report(owner: KafkaOwner, handle: Handle) -> str:
    """Return what Kafka tells of the test's topics and groups: partitions, the last records, and the groups."""
    topics, groups = await _all_topics(owner), await _all_groups(owner)
    committed = await committed_offsets(owner, [each.group_id for each in groups])
    rows = []
    for topic in topics:
        for each in topic.partitions:
            place = topic.name, each.partition
            of_groups = [(group, offsets[place].offset) for group, offsets in committed.items() if place in offsets]
            for number, (group, offset) in enumerate(of_groups or [("-", None)]):
                lag = "-" if offset is None else str(max(0, each.log_end_offset - offset))
                first = (partition_name(place), str(each.log_start_offset), str(each.log_end_offset))
                rows.append(
                    (*(first if not number else ("", "", "")), group, "-" if offset is None else str(offset), lag)
                )
    lines = [f"{owner.description}: what it tells of this test's topics and groups"]
    if rows:
        lines += ["", *columns([("partition", "start", "end", "group", "committed", "lag"), *rows[:_SHOWN_PARTITIONS]])]
        lines += and_more(len(rows), _SHOWN_PARTITIONS, "rows")
    records = [record for topic in topics for record in await _read(owner, topic.name, None, committed=False)]
    if records:
        newest = sorted(records, key=lambda each: each.timestamp)[-_SHOWN_RECORDS:]
        places = [
            f"  {each.topic}-{each.partition} @{each.offset}  key {each.key!r}, value {each.value!r}" for each in newest
        ]
        lines += ["", "last records:", *map(cut_line, places), *and_more(len(records), _SHOWN_RECORDS, "records")]
    lines += ["", *(str(each) for each in groups[:_SHOWN_GROUPS]), *and_more(len(groups), _SHOWN_GROUPS, "groups")]
    return "\n".join(lines).rstrip()


async def _states_of(owner: KafkaOwner, leaves: Iterable[HandleCondition[Any]]) -> str:
    """Return the states of the things that conditions are about, as text."""
    handles = {repr(handle): handle for leaf in leaves for handle in [leaf.definition.of(owner, leaf.key)]}
    return "\n".join([await _state_of(owner, handle) for handle in handles.values()])


def _without_prefix(owner: KafkaOwner, kind: str, name: str, known: Collection[str]) -> str:
    """Return a line if there is something new with the same name, but without the prefix."""
    if name not in known:
        return ""
    used = f"cluster.name({name!r}), which returns {owner.real(name)!r}"
    return f"\nThere is a new {kind} {name!r} without the prefix: the application has to use {used}."


async def _state_of(owner: KafkaOwner, handle: Handle) -> str:
    """Return the state of what a handle names, for the error of a wait."""
    if isinstance(handle, GroupHandle):
        offsets = (await committed_offsets(owner, [handle.group_id]))[handle.group_id]
        said = [f"{partition_name(place)} at {each.offset}" for place, each in offsets.items()]
        view = await _describe_group(owner, handle)
        text = f"{view}\n" + printable(f"committed by {handle.group_id}: {listed(said) if said else 'nothing'}")
        if owner.prefix and handle.group_id not in owner.foreign_groups:
            listings = await owner.clients.admin.list_groups()
            text += _without_prefix(owner, "group", handle.group_id, {each.group_id for each in listings})
        return text
    if isinstance(handle, TopicHandle | PartitionHandle):
        topic = (await _topics(owner, [handle.topic])).get(handle.topic)
        hint = ""
        if owner.prefix and handle.topic not in owner.foreign_topics:
            hint = _without_prefix(owner, "topic", handle.topic, {*await owner.clients.admin.list_topics()})
        if topic is None:
            return f"no topic `{handle.topic}`{hint}"
        view_of_topic = await _topic_view(owner, handle.topic, topic)
        ends = [
            f"{each.partition}: {each.log_start_offset} to {each.log_end_offset}" for each in view_of_topic.partitions
        ]
        count = len(await _read(owner, handle.topic, None, committed=False))
        return f"topic {handle.topic} has {counted(count, 'record')}; offsets of partitions: {', '.join(ends)}{hint}"
    if isinstance(handle, TransactionHandle):
        return str(await _describe_transaction(owner, handle))
    return ", ".join(f"broker {each.node_id} is up" for each in await _brokers(owner, handle))


# Conditions


class Sample:
    """One look at what conditions are about. What several of them need is asked for once.

    Attributes:
        seen: What was found, as text: two samples with the same text are equal.
    """

    def __init__(self, owner: KafkaOwner) -> None:
        self._owner = owner
        self._groups: dict[str, GroupView] = {}
        self._offsets: dict[str, PartitionMap[CommittedOffset]] = {}
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._ends: dict[bool, dict[TopicPartition, int]] = {}
        self._starts: dict[TopicPartition, int] = {}
        self.seen = ""

    async def of_all(self, leaves: Sequence[HandleCondition[Any]]) -> list[Found | None]:
        """Return what each condition finds; None if it does not hold."""
        by_name: dict[str, list[HandleCondition[Any]]] = {}
        for leaf in leaves:
            by_name.setdefault(leaf.definition.name, []).append(leaf)

        def keys(key: str, *names: str) -> set[str]:
            return {leaf.key[key] for name in names for leaf in by_name.get(name, ())}

        owner = self._owner
        with_records = by_name.get("topic.has", []) + by_name.get("partition.has", [])

        async def look_at_groups() -> None:
            self._groups = await group_views(owner, keys("group_id", "group.stable", "group.state", "group.member"))

        async def look_at_offsets() -> None:
            self._offsets = await committed_offsets(owner, keys("group_id", "group.committed"))

        async def look_at_topics() -> None:
            self._topics = await _topics(owner, keys("topic", "topic.has", "topic.exists", "partition.has"))
            places = [(leaf.key["topic"], index) for leaf in with_records for index in self._partitions(leaf)]
            if places:
                self._starts = await _offsets_of(owner, places, "earliest")
                for committed in {leaf.arguments.get("committed", False) for leaf in with_records}:
                    self._ends[committed] = await _offsets_of(owner, places, "latest", committed=committed)

        async with trio.open_nursery() as nursery:
            for look in (look_at_groups, look_at_offsets, look_at_topics):
                nursery.start_soon(look)
        found = [await self._of(leaf) for leaf in leaves]
        self.seen = repr(
            (self._groups, self._offsets, sorted(self._topics), self._ends, [each is None for each in found])
        )
        return found

    def _partitions(self, leaf: HandleCondition[Any]) -> list[int]:
        topic = self._topics.get(leaf.key["topic"])
        indexes = [] if topic is None else [each.partition_index for each in topic.partitions]
        return [each for each in indexes if each == leaf.key.get("partition", each)]

    async def _of(self, leaf: HandleCondition[Any]) -> Found | None:
        owner, key, arguments = self._owner, leaf.key, leaf.arguments
        value: Any = None
        match leaf.definition.name:
            case "group.stable" | "group.state":
                value = self._group_in_state(leaf)
            case "group.member":
                if arguments.get("state") is not None:
                    raise NotOnKafka.fake(f"{leaf}: Kafka does not tell the states of members")
                view, above = self._groups[key["group_id"]], arguments.get("above")
                for each in view.members:
                    names = (each.member_id, each.instance_id, each.client_id)
                    epoch = each.member_epoch
                    if arguments["member"] in names and epoch is not None and (above is None or epoch > above):
                        value = view
            case "group.committed":
                offset = self._offsets[key["group_id"]].get(parse_partition(arguments["partition"]))
                value = offset if offset is not None and offset.offset >= arguments["at_least"] else None
            case "topic.exists":
                topic, wanted = self._topics.get(key["topic"]), arguments.get("partitions")
                if topic is not None and wanted in (None, len(topic.partitions)):
                    value = await _topic_view(owner, key["topic"], topic)
            case "topic.has" | "partition.has":
                value = await self._records(leaf)
            case "transaction.state":
                if arguments.get("pending") is not None:
                    raise NotOnKafka.fake(f"{leaf}: Kafka does not tell pending states")
                name = key["transactional_id"]
                found = (await _transaction_views(owner, [name]))[name]
                value = found if found.state == arguments["state"] else None
            case "broker.up":
                nodes = {each.node_id: each for each in await _brokers(owner, ClusterHandle(owner))}
                value = nodes.get(key["node_id"])
        return None if value is None else Found(value)

    def _group_in_state(self, leaf: HandleCondition[Any]) -> GroupView | None:
        view, above = self._groups[leaf.key["group_id"]], leaf.arguments.get("above")
        if above is not None and view.generation_id == UNKNOWN:
            raise NotOnKafka.fake(f"{leaf}: this user may not read generations in __consumer_offsets")
        is_stable = leaf.definition.name == "group.stable"
        holds = state_matches(
            view.state,
            view.generation_id,
            len(view.members),
            state=GroupState.STABLE.value if is_stable else leaf.arguments.get("state"),
            members=leaf.arguments.get("members"),
            above=above,
        )
        return view if holds else None

    async def _records(self, leaf: HandleCondition[Any]) -> list[RecordView] | None:
        name, committed = leaf.key["topic"], leaf.arguments.get("committed", False)
        indexes, least = self._partitions(leaf), leaf.arguments["at_least"]
        if not indexes:
            return None
        ends = self._ends[committed]
        most = sum(ends.get((name, each), 0) - self._starts.get((name, each), 0) for each in indexes)
        if most < least:  # Markers and records that compaction has removed count for offsets, too: there are not more.
            return None
        found = await _read(self._owner, name, leaf.key.get("partition"), committed=committed)
        return found if len(found) >= least else None


CONDITIONS = frozenset(
    {
        *("group.stable", "group.state", "group.member", "group.committed"),
        *("topic.has", "topic.exists", "partition.has", "transaction.state", "broker.up"),
    }
)


async def _reset(owner: KafkaOwner, handle: Handle) -> None:
    await owner.start_over()


OPERATIONS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "topics": lambda owner, handle: _all_topics(owner),
    "groups": lambda owner, handle: _all_groups(owner),
    "transactions": _all_transactions,
    "hanging_transactions": _hanging,
    "report": _report,
    "expect": _expect,
    "reset": _reset,
    "group.describe": _describe_group,
    "group.offsets": _group_offsets,
    "group.lag": _lag,
    "group.coordinator": _group_coordinator,
    "group.set_offsets": _set_offsets,
    "group.delete": _delete_group,
    "group.evict": _evict,
    "topic.describe": _describe_topic,
    "topic.records": _records,
    "topic.end_offsets": _end_offsets,
    "topic.create": _create_topic,
    "topic.create_partitions": _create_partitions,
    "topic.delete": _delete_topic,
    "topic.produce": _produce,
    "partition.describe": _describe_partition,
    "transaction.describe": _describe_transaction,
    "transaction.coordinator": _transaction_coordinator,
    "transaction.fence_producer": _fence_producer,
    "broker.describe": _broker,
    "brokers.describe": _brokers,
    "acls.allow": _allow,
    "acls.deny": _deny,
    "acls.remove": _remove_acl,
}
"""What a real Kafka can do, by the name of the method."""
