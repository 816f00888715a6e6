"""A Kafka cluster over TCP: requests in given versions, settings, topics and coordinators (trio).

`KafkaTarget` plays transcripts on it. The clients in `fakebroker.client` choose versions and retry. Here each request
is sent once, as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

import trio

from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.security import ClientSecurity
from fakebroker.client.stream_transport import StreamConnection, StreamTransport
from fakebroker.client.transport import Address, addresses
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.cluster.logs.coordinator_records import read_record
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import Record, TransactionEnd, group_of
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.host_port import format_host_port
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fakebroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fakebroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fakebroker.protocol.records import iterate_records, split_batches
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions
from fakebroker.security.acls import Acl

M = TypeVar("M", bound=Message)

ANSWER_S = 30
"""How long an administrative request may take."""
_TOPICS_AT_ONCE = 50
_BROKER_RESOURCE = 4
_BUSY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Errors after which an administrative request is repeated."""
_AFTER_ACLS_S = 0.2
"""After this time all brokers know a new ACL."""
_LASTING_TOPIC = {"retention.ms": "-1", "segment.ms": str(2**62), "message.timestamp.type": "CreateTime"}
"""Records of transcripts are from 1970, and markers are from today: they stay in one segment, and are kept."""


class _ExactFrames:
    """Makes the frame of a request in the layout that it has, in place of a `FrameCache`."""

    def frame(self, request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
        return request_frame(request, version, correlation_id, client_id)


class KafkaRequest:
    """A request that was sent, its response, or why its connection is closed.

    Attributes:
        ended: Set when the request is answered, or its connection is closed.
        closed_because: Why the connection is closed; None if it is open.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.ended = trio.Event()
        self.closed_because: str | None = None
        self._response: Message | None = None
        self._opened = trio.Event()
        self.on_end = on_end

    @property
    def is_answered(self) -> bool:
        return self._response is not None

    @property
    def is_connection_closed(self) -> bool:
        return self._response is None and self.closed_because is not None

    def response(self) -> Message:
        assert self._response is not None
        return self._response

    async def wait_until_opened(self) -> None:
        await self._opened.wait()

    # Methods of `ConnectionUser`

    def opened(self, connection: StreamConnection) -> None:
        self._opened.set()

    def answered(self, connection: StreamConnection, response: Message) -> None:
        self._response = response
        self._end()

    def lost(self, connection: StreamConnection, why: str) -> None:
        if not self.ended.is_set():
            self.closed_because = why
            self._end()

    def _end(self) -> None:
        self._opened.set()
        self.ended.set()
        self.on_end()


Replicas = tuple[tuple[int, ...], ...]
"""The node ids of the replicas of each partition of a topic, the leader first."""


class RawCluster:
    """A cluster that transcripts are played on.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas.
        nursery: Runs the tasks of connections.
        security: How connections are encrypted and authenticated.

    Attributes:
        nodes: The addresses of the brokers by node id.
        settings: The settings of a broker, by Kafka's names.
        versions: The versions of each API that a broker supports, by API key.
        features: The finalized features with their levels.
    """

    def __init__(self, bootstrap_servers: str, nursery: trio.Nursery, security: ClientSecurity) -> None:
        self._bootstrap = addresses(bootstrap_servers)
        self._security = TransportSecurity(security)
        self.reconnect(nursery)
        self.nodes: dict[int, Address] = {}
        self._up: list[int] = []
        self.settings: dict[str, str | None] = {}
        self.versions: Mapping[int, Versions] = {}
        self.features: Mapping[str, int] = {}
        self._internal: dict[str, Replicas] = {}
        self._moved: dict[tuple[str, int], list[int]] = {}
        self._acls: dict[Acl, None] = {}
        self._offsets_read: dict[int, _OffsetsPartition] = {}

    def reconnect(self, nursery: trio.Nursery) -> None:
        """Use new connections from now on, whose tasks run in this nursery."""
        self._transport = StreamTransport("conform", nursery, security=self._security)
        self._idle: dict[Address, list[StreamConnection]] = {}

    # Requests

    async def start(
        self,
        address: Address,
        request: Message,
        version: int,
        client_id: str = "conform",
        on_end: Callable[[], None] = lambda: None,
    ) -> KafkaRequest:
        """Send a request over a connection that has no other one.

        Args:
            address: The broker's address.
            request: The request, in the layout of the version.
            version: Its version.
            client_id: `client.id` in the request.
            on_end: Called when the request is answered, or its connection is closed.
        """
        sent = KafkaRequest(on_end)
        idle = self._idle.setdefault(address, [])
        while idle and idle[-1].is_closed:
            idle.pop()
        if idle:
            connection = idle.pop()
            connection.users = {sent: None}
        else:
            connection = self._transport.connect(address, sent)
            await sent.wait_until_opened()
        if not connection.is_closed:
            frames: Any = _ExactFrames()
            self._transport.send(connection, request, version, client_id, sent, frames)

            def release() -> None:
                if not connection.is_closed:
                    idle.append(connection)
                on_end()

            sent.on_end = release
        return sent

    async def ask(self, request: Message, kind: type[M], node_id: int | None = None, version: int | None = None) -> M:
        """Send an administrative request, and return its response.

        Args:
            request: The request.
            kind: The type of the response.
            node_id: The broker; the first one that is up if None.
            version: Its version; the newest that the broker supports if None.

        Raises:
            BrokerUnreachable: The broker cannot be reached, or has closed the connection.
        """
        address = self.nodes[self._up[0] if node_id is None else node_id]
        return await self._ask_at(address, request, kind, version)

    async def _ask_at(self, address: Address, request: Message, kind: type[M], version: int | None) -> M:
        sent = await self.start(address, request, self.newest(request) if version is None else version)
        with trio.move_on_after(ANSWER_S):
            await sent.ended.wait()
        if not sent.is_answered:
            why = sent.closed_because or f"no response to {type(request).__name__} in {ANSWER_S} s"
            raise BrokerUnreachable(f"broker {format_host_port(*address)}", why)
        response = sent.response()
        assert isinstance(response, kind)
        return response

    def newest(self, request: Message) -> int:
        """Return the newest version of a request that both sides support."""
        api = api_of(request)
        theirs = self.versions.get(api.key, api.versions)
        return min(api.versions.last, theirs.last)

    # The cluster

    async def open(self) -> None:
        """Read brokers, versions, features and settings.

        Raises:
            BrokerUnreachable: No bootstrap server can be reached; the error has the reason for each.
        """
        reasons = []
        for address in self._bootstrap:
            try:
                await self._open_at(address)
            except BrokerUnreachable as error:
                reasons.append(error)
            else:
                return
        raise reasons[0] if len(reasons) == 1 else BrokerUnreachable.of_all(reasons)

    async def _open_at(self, address: Address) -> None:
        probe = KafkaRequest(lambda: None)
        connection = self._transport.connect(address, probe)
        await probe.wait_until_opened()
        if connection.negotiated is None or probe.closed_because is not None:
            why = probe.closed_because or "it has closed the connection"
            raise BrokerUnreachable(f"broker {format_host_port(*address)}", why)
        self.versions, self.features = connection.negotiated.theirs, connection.negotiated.features
        self._idle.setdefault(address, []).append(connection)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        found = await self._ask_at(address, request, MetadataResponse, None)
        self._up = sorted(each.node_id for each in found.brokers)
        self.nodes = {each.node_id: (each.host, each.port) for each in sorted(found.brokers, key=lambda b: b.node_id)}
        name = str(min(self.nodes))
        resource = DescribeConfigsResource(resource_type=_BROKER_RESOURCE, resource_name=name, configuration_keys=None)
        configs: Any = await self.ask(DescribeConfigsRequest(resources=[resource]), Message, int(name))
        (result,) = configs.results
        self.settings = {each.name: each.value for each in result.configs}

    async def topics(self, names: Sequence[str]) -> dict[str, MetadataResponseTopic]:
        """Return topics by name, also those that do not exist, whose error code is set."""
        wanted = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        found = await self.ask(request, MetadataResponse)
        return {each.name or "": each for each in found.topics}

    async def create_topics(self, replicas: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """Create topics whose records are kept, and wait until all brokers know their leaders.

        Args:
            replicas: By topic, the node ids of the replicas of each partition; the first one is the leader.

        Raises:
            FakebrokerError: The cluster has refused a topic.
        """
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in _LASTING_TOPIC.items()]
        names = list(replicas)
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
                        for index, each in enumerate(replicas[name])
                    ],
                    configs=configs,
                )
                for name in names[start : start + _TOPICS_AT_ONCE]
            ]
            response: Any = await self.ask(CreateTopicsRequest(topics=topics, timeout_ms=ANSWER_S * 1000), Message)
            _check("a topic was not created", response.topics)
        await self.wait_for_leaders({name: len(each) for name, each in replicas.items()})

    async def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until all brokers know the leaders of topics, as many partitions as each has."""
        wanted = [MetadataRequestTopic(name=name) for name in partitions]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        for node_id in self._up:
            with trio.fail_after(ANSWER_S):
                while True:
                    found = await self.ask(request, MetadataResponse, node_id)
                    leaders = {
                        each.name: [p.leader_id for p in each.partitions if p.leader_id >= 0] for each in found.topics
                    }
                    if all(len(leaders[name]) >= count for name, count in partitions.items()):
                        break
                    await trio.sleep(0.02)

    async def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic until it has `total`."""
        topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=ANSWER_S * 1000, validate_only=False)
        response: Any = await self.ask(request, Message)
        _check(f"partitions of {name} were not created", response.results)
        await self.wait_for_leaders({name: total})

    async def wait_until_gone(self, name: str) -> None:
        """Wait until no broker knows a topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        for node_id in self._up:
            with trio.fail_after(ANSWER_S):
                while not (await self.ask(request, MetadataResponse, node_id)).topics[0].error_code:
                    await trio.sleep(0.02)

    async def delete_topics(self, names: Sequence[str]) -> list[str]:
        """Delete topics. Return a sentence for each one that could not be deleted."""
        if not names:
            return []
        version = min(5, self.newest(DeleteTopicsRequest(timeout_ms=0)))  # the newest with names alone
        faults = []
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            some = list(names[start : start + _TOPICS_AT_ONCE])
            request = DeleteTopicsRequest(topic_names=some, timeout_ms=ANSWER_S * 1000)
            response: Any = await self.ask(request, Message, version=version)
            faults += [
                f"topic {each.name}: {ErrorCode(each.error_code).name}"
                for each in response.responses
                if each.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ]
        return faults

    # ACLs

    async def add_acls(self, acls: Sequence[Acl]) -> None:
        """Add ACLs.

        Raises:
            FakebrokerError: The cluster has refused one.
        """
        creations = [
            AclCreation(
                resource_type=acl.pattern.resource_type,
                resource_name=acl.pattern.name,
                resource_pattern_type=acl.pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        response: Any = await self.ask(CreateAclsRequest(creations=creations), Message)
        _check("an ACL was not added", response.results)
        self._acls.update(dict.fromkeys(acls))
        await trio.sleep(_AFTER_ACLS_S)

    async def remove_acls(self, acls: Sequence[Acl] | None = None) -> None:
        """Remove ACLs; those that do not exist are ignored.

        Args:
            acls: The ACLs; None for all that were added.
        """
        doomed = list(self._acls if acls is None else acls)
        if not doomed:
            return
        filters = [
            DeleteAclsFilter(
                resource_type_filter=acl.pattern.resource_type,
                resource_name_filter=acl.pattern.name,
                pattern_type_filter=acl.pattern.pattern_type,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in doomed
        ]
        response: Any = await self.ask(DeleteAclsRequest(filters=filters), Message)
        _check("an ACL was not removed", response.filter_results)
        for acl in doomed:
            self._acls.pop(acl, None)
        await trio.sleep(_AFTER_ACLS_S)

    # Coordinators

    async def find(self, keys: Sequence[str], key_type: int, *, node_id: int | None = None) -> dict[str, int]:
        """Return the node ids of coordinators by key; NO_LEADER for those that cannot be found now.

        Args:
            keys: Group ids or transactional ids.
            key_type: 0 for groups, 1 for transactional ids.
            node_id: The broker that is asked.
        """
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        response: Any = await self.ask(request, Message, node_id)
        return {each.key: NO_LEADER if each.error_code else each.node_id for each in response.coordinators}

    async def warm_up(self) -> None:
        """Use both internal topics, so that they are created, and wait until all their coordinators answer."""
        with trio.fail_after(2 * ANSWER_S):
            for key_type, topic in ((0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)):
                while NO_LEADER in (await self.find(["conform"], key_type)).values():
                    await trio.sleep(0.05)
                while -1 in {each[0] for each in await self._find_internal(topic)}:
                    await trio.sleep(0.05)
            for node_id, partitions in (await self._partitions_of_nodes(OFFSETS_TOPIC)).items():
                groups = [OffsetFetchRequestGroup(group_id=key, topics=None) for key in _a_key_for_each(partitions)]
                fetch = OffsetFetchRequest(groups=groups)
                await self._ask_until(fetch, node_id, lambda r: [each.error_code for each in r.groups], version=8)
            for node_id, partitions in (await self._partitions_of_nodes(TRANSACTIONS_TOPIC)).items():
                request = DescribeTransactionsRequest(transactional_ids=_a_key_for_each(partitions))
                await self._ask_until(request, node_id, lambda r: [each.error_code for each in r.transaction_states])

    async def _ask_until(
        self, request: Message, node_id: int, errors: Callable[[Any], list[int]], version: int | None = None
    ) -> Any:
        """Repeat a request while a coordinator is moving, loading or busy, and return the last response."""
        while True:
            response: Any = await self.ask(request, Message, node_id, version)
            if not any(each in _BUSY for each in errors(response)):
                return response
            await trio.sleep(0.05)

    async def _partitions_of_nodes(self, topic: str) -> dict[int, "_Partitions"]:
        replicas = await self._find_internal(topic)
        return {
            node_id: _Partitions([index for index, each in enumerate(replicas) if each[0] == node_id], len(replicas))
            for node_id in {each[0] for each in replicas}
        }

    async def wait_for_aborts(self, node_id: int, topic: str) -> None:
        """Wait until a broker has just aborted the transactions that have timed out.

        It looks every 10 s, unless `transaction.abort.timed.out.transaction.cleanup.interval.ms` is set. Uses a
        transaction of 1 ms, and waits until it is aborted.

        Args:
            node_id: The broker.
            topic: A topic that can be added to the transaction.
        """
        partitions = (await self._partitions_of_nodes(TRANSACTIONS_TOPIC))[node_id]
        key = _a_key_for_each(partitions)[0]
        # Kafka waits for the replicas of a transaction's state only as long as its timeout.
        begin = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=1_000)
        with trio.fail_after(2 * ANSWER_S):
            started: Any = await self._ask_until(begin, node_id, lambda response: [response.error_code])
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=key,
                v3_and_below_producer_id=started.producer_id,
                v3_and_below_producer_epoch=started.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )

            def errors(response: Any) -> list[int]:
                topics = response.results_by_topic_v3_and_below
                return [each.partition_error_code for topic in topics for each in topic.results_by_partition]

            await self._ask_until(added, node_id, errors, version=3)
            described: Any = None
            while described is None or described.transaction_states[0].transaction_state != "CompleteAbort":
                await trio.sleep(0.03)
                described = await self.ask(DescribeTransactionsRequest(transactional_ids=[key]), Message, node_id)

    async def internal(self, topic: str) -> Replicas:
        """Return where the partitions of an internal topic are, as far as nothing but `move` has changed it."""
        if not self._internal.get(topic):  # A topic that did not exist may exist now.
            self._internal[topic] = await self._find_internal(topic)
        return self._internal[topic]

    async def _find_internal(self, topic: str) -> Replicas:
        found = (await self.topics([topic]))[topic]
        partitions = sorted(found.partitions, key=lambda each: each.partition_index)
        return tuple(_leader_first(each.replica_nodes, each.leader_id) for each in partitions)

    async def move(self, topic: str, partition: int, to: int) -> None:
        """Make a broker the leader of a partition: another order of its replicas, then an election."""
        found = (await self.topics([topic]))[topic]
        (now,) = [each for each in found.partitions if each.partition_index == partition]
        self._moved.setdefault((topic, partition), list(now.replica_nodes))
        await self._reassign(
            topic,
            partition,
            [to, *(each for each in now.replica_nodes if each != to)][: max(2, len(now.replica_nodes))],
        )

    async def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Set the replicas of a partition, and elect the first one as its leader."""
        to = replicas[0]
        moved = ReassignablePartition(partition_index=partition, replicas=replicas)
        topics = [ReassignableTopic(name=topic, partitions=[moved])]
        await self.ask(AlterPartitionReassignmentsRequest(topics=topics), Message)
        self.forget_leaders()
        with trio.fail_after(ANSWER_S):
            while True:
                elected = [TopicPartitions(topic=topic, partitions=[partition])]
                await self.ask(ElectLeadersRequest(topic_partitions=elected), Message)
                if await self._all_know_leader(topic, partition, to):
                    self.forget_leaders()
                    return
                await trio.sleep(0.03)

    async def restore(self) -> None:
        """Give the partitions that were moved their former replicas and leaders."""
        for key in list(self._moved):
            await self.restore_partition(*key)

    async def restore_partition(self, topic: str, partition: int) -> None:
        """Give a partition its former replicas and leader, if it was moved."""
        replicas = self._moved.pop((topic, partition), None)
        if replicas is not None:
            await self._reassign(topic, partition, replicas)

    def forget_leaders(self) -> None:
        """Let `internal` ask again: leaders have changed."""
        self._internal.clear()

    async def wait_for_brokers(self, node_ids: Sequence[int]) -> None:
        """Wait until these brokers, and no other ones, are up, and their coordinators answer."""
        self._up = list(node_ids)
        self.forget_leaders()
        with trio.fail_after(2 * ANSWER_S):
            for node_id in node_ids:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                while True:
                    try:
                        found = await self.ask(request, MetadataResponse, node_id)
                    except BrokerUnreachable:  # its listener is not open yet
                        found = None
                    if found is not None and {each.node_id for each in found.brokers} == set(node_ids):
                        break
                    await trio.sleep(0.1)
            await self.warm_up()

    async def elect_preferred(self) -> None:
        """Make the first replica of each partition of internal topics its leader again, once it is in sync."""
        with trio.fail_after(2 * ANSWER_S):
            while True:
                await self.ask(ElectLeadersRequest(topic_partitions=None), Message)
                found = await self.topics([OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
                partitions = [each for topic in found.values() for each in topic.partitions]
                if all(each.leader_id == each.replica_nodes[0] for each in partitions):
                    break
                await trio.sleep(0.1)
        self.forget_leaders()
        await self.warm_up()

    async def _all_know_leader(self, topic: str, partition: int, leader: int) -> bool:
        for node_id in self._up:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = await self.ask(request, MetadataResponse, node_id)
            leaders = {each.partition_index: each.leader_id for each in found.topics[0].partitions}
            if leaders.get(partition) != leader:
                return False
        return True

    async def records_of_group(self, group_id: str) -> list[Record]:
        """Return the records of a group in `__consumer_offsets`, and the ends of transactions in its partition."""
        partitions = len(await self.internal(OFFSETS_TOPIC))
        if not partitions:
            return []
        partition = partition_for(group_id, partitions)
        read = self._offsets_read.setdefault(partition, _OffsetsPartition(partition))
        with trio.fail_after(ANSWER_S):
            async with read.lock:
                await read.read(self)
        return [each for each in read.records if isinstance(each, TransactionEnd) or group_of(each) == group_id]

    async def forget_records(self) -> None:
        """Let `records_of_group` begin at the present ends of the partitions."""
        partitions = await self.internal(OFFSETS_TOPIC)
        for index, replicas in enumerate(partitions):
            listed = ListOffsetsPartition(partition_index=index, timestamp=-1)
            topics = [ListOffsetsTopic(name=OFFSETS_TOPIC, partitions=[listed])]
            response: Any = await self.ask(ListOffsetsRequest(replica_id=-1, topics=topics), Message, replicas[0])
            end = response.topics[0].partitions[0].offset
            self._offsets_read[index] = _OffsetsPartition(index, max(0, end))


class _Partitions(NamedTuple):
    """Some partitions of an internal topic, and how many it has."""

    indexes: list[int]
    total: int


def _a_key_for_each(partitions: _Partitions) -> list[str]:
    """Return a group or a transactional id for each of these partitions."""
    found: dict[int, str] = {}
    for number in count():
        key = f"conform-{number}"
        partition = partition_for(key, partitions.total)
        if partition in partitions.indexes:
            found.setdefault(partition, key)
        if len(found) == len(partitions.indexes):
            return list(found.values())
    raise AssertionError("unreachable")


class _OffsetsPartition:
    """A partition of `__consumer_offsets`, as far as it was read."""

    def __init__(self, partition: int, start: int = 0) -> None:
        self.partition, self.next_offset = partition, start
        self.records: list[Record] = []
        self.lock = trio.Lock()

    async def read(self, cluster: RawCluster) -> None:
        """Read to the end of the partition."""
        while True:
            partition = FetchPartition(
                partition=self.partition, fetch_offset=self.next_offset, partition_max_bytes=2**20
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=0,
                topics=[FetchTopic(topic=OFFSETS_TOPIC, partitions=[partition])],
            )
            leader = (await cluster.internal(OFFSETS_TOPIC))[self.partition][0]
            response: Any = await cluster.ask(request, Message, leader, min(12, cluster.newest(request)))
            (data,) = response.responses[0].partitions
            if data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise FakebrokerError(f"{OFFSETS_TOPIC} cannot be read: TOPIC_AUTHORIZATION_FAILED")
            if data.error_code:
                cluster.forget_leaders()
                await trio.sleep(0.02)
                continue
            batches = [each for each in split_batches(data.records or b"") if each.base_offset >= self.next_offset]
            for batch in batches:
                parsed = (read_record(batch, record) for record in iterate_records(batch))
                self.records += (each for each in parsed if each is not None)
            if not batches:
                return
            self.next_offset = batches[-1].base_offset + batches[-1].last_offset_delta + 1


def _leader_first(replicas: Iterable[int], leader: int) -> tuple[int, ...]:
    return (leader, *(each for each in replicas if each != leader))


def _check(fault: str, results: Iterable[Any]) -> None:
    """Raise an error if a result has one."""
    for each in results:
        if each.error_code:
            why = f": {each.error_message}" if each.error_message else ""
            raise FakebrokerError(f"{fault}: {ErrorCode(each.error_code).name}{why}")
