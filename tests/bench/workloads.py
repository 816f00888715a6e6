"""The loads of the benchmark: what each connection sends, prepared against a running broker."""

import itertools
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.schema import Message
from tests.bench.plan import Batch, Copy, Plan, Step, position_of_field, step, steps_like
from tests.bench.servers import FETCHED, PARTITIONS, PRODUCED
from tests.support.wire_client import WireClient

SESSION_MS = 1_200_000
"""Longer than any run: members send requests only while their load runs."""
JOIN, SYNC, HEARTBEAT, COMMIT, PRODUCE, FETCH, FIND, OFFSET_FETCH = 2, 1, 2, 2, 7, 11, 4, 8
"""Versions. The mock cluster decodes the first six correctly, and does not support the last two (KIP-699, KIP-709)."""
FIND_ONE, INIT, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END = 1, 0, 0, 0, 0, 0
"""Versions of requests of transactions, which all releases since 0.11 support, and the mock cluster."""
PRODUCER_IN_BATCH = 43
"""Position of the producer id in a record batch."""
KEYS, GROUPS = 1_000, 100
NUMBERS = 100
"""Number of values of the numbers that the generator draws."""
BATCH, LARGE_BATCH = 100, 1_000
"""Numbers of records of 1 KiB. The mock cluster returns one batch per partition, so 1 MiB must be one batch."""
_salts = itertools.count()


class Broker:
    """A running broker, to which each request of a plan is sent once. A context manager."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._wires = ExitStack()
        self.wire = self.connected()

    def connected(self) -> WireClient:
        """Return a new connection, which the broker has accepted: the mock cluster accepts only a few at a time."""
        wire = self._wires.enter_context(WireClient(BrokerView(1, "127.0.0.1", self.port, up=True)))
        topics = [MetadataRequestTopic(name=name) for name in (PRODUCED, FETCHED)]  # The mock cluster creates them.
        wire.ask(MetadataRequest(topics=topics), MetadataResponse, version=4)
        return wire

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self._wires.close()


@dataclass(frozen=True)
class Workload:
    """A load.

    Attributes:
        name: Its name in results.
        what: Its description in tables.
        unit: What a request consists of, such as "keys"; or what requests are parts of.
        units: How many of them; less than 1 for parts.
        connections: Number of connections.
        depth: Number of requests in flight per connection.
        prepare: Makes its plan, given the broker and the number of connections.
        on_mock: Whether the mock cluster supports it.
    """

    name: str
    what: str
    unit: str
    units: float
    connections: int
    depth: int
    prepare: Callable[[Broker, int], Plan]
    on_mock: bool = True


@dataclass(frozen=True)
class Member:
    """The only member of its group."""

    group_id: str
    member_id: str
    generation_id: int

    def join(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"abcd")],
        )

    def joined(self, response: object) -> "Member":
        assert isinstance(response, JoinGroupResponse)
        assert response.error_code == 0, response
        return replace(self, member_id=response.member_id, generation_id=response.generation_id)

    def sync(self) -> SyncGroupRequest:
        assignments = [SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"wxyz")]
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=assignments,
        )


def members(broker: Broker, count: int) -> list[Member]:
    """Return members that have joined and synced."""
    salt = f"{os.getpid()}-{next(_salts)}"
    wires = [broker.connected() for _ in range(count)]
    new = [Member(f"load-{salt}-{number:04}", "", -1) for number in range(count)]
    for wire, one in zip(wires, new, strict=True):
        wire.send(one.join(), JOIN)
    # The initial rebalance delay of the mock cluster is 3 s and cannot be configured; all groups wait at the same time.
    joined = [one.joined(wire.receive()) for wire, one in zip(wires, new, strict=True)]
    for wire, one in zip(wires, joined, strict=True):
        wire.send(one.sync(), SYNC)
    for wire in wires:
        synced = wire.receive()
        assert isinstance(synced, SyncGroupResponse)
        assert synced.error_code == 0, synced
    return joined


def heartbeats(broker: Broker, connections: int) -> Plan:
    requests = [
        HeartbeatRequest(group_id=one.group_id, generation_id=one.generation_id, member_id=one.member_id)
        for one in members(broker, connections)
    ]
    return steps_like(step(broker.wire, requests[0], HEARTBEAT)[0], requests, HEARTBEAT)


def rebalances(broker: Broker, connections: int) -> Plan:
    """JoinGroup and SyncGroup in turn; each JoinGroup starts a generation, whose number SyncGroup contains."""
    plan = []
    for one in members(broker, connections):
        join, response = step(broker.wire, one.join(), JOIN)
        request = one.joined(response).sync()
        sync, _ = step(broker.wire, request, SYNC)
        read_at = position_of_field(response, "generation_id", JOIN, join.response)
        written_at = position_of_field(request, "generation_id", SYNC, sync.request)
        plan.append([replace(join, copies=(Copy(read_at, 1, written_at, 4),)), sync])
    return plan


def commits(broker: Broker, connections: int) -> Plan:
    requests = []
    for one in members(broker, connections):
        request = _commit(one.group_id, 1)
        request.generation_id_or_member_epoch, request.member_id = one.generation_id, one.member_id
        requests.append(request)
    return steps_like(step(broker.wire, requests[0], COMMIT)[0], requests, COMMIT)


def found_coordinators(broker: Broker, connections: int) -> Plan:
    keys = [f"group~000000-{number:06}" for number in range(KEYS)]
    return [[step(broker.wire, FindCoordinatorRequest(coordinator_keys=keys), FIND)[0]]] * connections


def fetched_offsets(broker: Broker, connections: int) -> Plan:
    """Offsets of groups that have committed some."""
    for number in range(NUMBERS):
        for place in range(GROUPS):
            broker.wire.send(_commit(_numbered(number, place), PARTITIONS), COMMIT)
        for _ in range(GROUPS):
            response = broker.wire.receive()
            assert isinstance(response, OffsetCommitResponse)
            assert not any(one.error_code for one in response.topics[0].partitions), response
    return _fetched_offsets(broker, [_numbered(0, place) for place in range(GROUPS)], connections)


def missing_offsets(broker: Broker, connections: int) -> Plan:
    """Offsets of groups that do not exist."""
    return _fetched_offsets(broker, [f"other~000000-{place:06}" for place in range(GROUPS)], connections)


def _fetched_offsets(broker: Broker, group_ids: list[str], connections: int) -> Plan:
    topics = [OffsetFetchRequestTopics(name=PRODUCED, partition_indexes=list(range(PARTITIONS)))]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in group_ids]
    return [[step(broker.wire, OffsetFetchRequest(groups=groups), OFFSET_FETCH)[0]]] * connections


def _numbered(number: int, place: int) -> str:
    return f"group~{number:06}-{place:06}"


def _commit(group_id: str, partitions: int) -> OffsetCommitRequest:
    committed = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1_000 + index, committed_metadata="")
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=PRODUCED, partitions=committed)]
    )


def produced(broker: Broker, connections: int) -> Plan:
    return [[step(broker.wire, _produce(PRODUCED, index, BATCH), PRODUCE)[0]] for index in range(connections)]


def _produce(topic: str, partition: int, count: int) -> ProduceRequest:
    now_ms = int(time.time() * 1000)
    records = [Record(offset=offset, timestamp_ms=now_ms, key=None, value=bytes(1024)) for offset in range(count)]
    data = PartitionProduceData(index=partition, records=encode_batch(records))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetched(broker: Broker, connections: int) -> Plan:
    plan = []
    for index in range(connections):
        step(broker.wire, _produce(FETCHED, index, LARGE_BATCH), PRODUCE)
        partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=FETCHED, partitions=[partition])]
        )
        plan.append([step(broker.wire, request, FETCH)[0]])
    return plan


def transactions(broker: Broker, connections: int) -> Plan:
    """InitProducerId once; then transactions of a record and an offset."""
    salt = f"{os.getpid()}-{next(_salts)}"
    for key_type in (0, 1):  # The first look-ups create the internal topics.
        broker.wire.ask(FindCoordinatorRequest(key=salt, key_type=key_type), FindCoordinatorResponse, FIND_ONE)
    return [_transaction(broker, f"load-{salt}-{number:04}", number % PARTITIONS) for number in range(connections)]


def _transaction(broker: Broker, name: str, partition: int) -> list[Step]:
    first = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    init, found = step(broker.wire, first, INIT)
    assert isinstance(found, InitProducerIdResponse)
    producer: dict[str, Any] = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
    record = Record(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=bytes(100))
    batch = encode_batch([record], **producer, base_sequence=0, is_transactional=True)
    data = PartitionProduceData(index=partition, records=batch)
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    requests: list[tuple[Message, int]] = [
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=found.producer_id,
                v3_and_below_producer_epoch=found.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=PRODUCED, partitions=[partition])],
            ),
            ADD_PARTITIONS,
        ),
        (
            ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name=PRODUCED, partition_data=[data])],
            ),
            PRODUCE,
        ),
        (AddOffsetsToTxnRequest(transactional_id=name, **producer, group_id=name), ADD_OFFSETS),
        (
            TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=name,
                **producer,
                topics=[TxnOffsetCommitRequestTopic(name=PRODUCED, partitions=[offset])],
            ),
            COMMIT_OFFSETS,
        ),
        (EndTxnRequest(transactional_id=name, **producer, committed=True), END),
    ]
    # The epoch follows the producer id in all messages, and in record batches.
    from_position, size = position_of_field(found, "producer_id", INIT, init.response), 10
    steps, copies = [], []
    for number, (request, version) in enumerate(requests, start=1):
        one, _ = step(broker.wire, request, version)
        if isinstance(request, ProduceRequest):
            one = replace(one, batch=Batch(one.request.index(batch), len(batch)))
            position = one.request.index(batch) + PRODUCER_IN_BATCH
        else:
            is_add = isinstance(request, AddPartitionsToTxnRequest)
            field = "v3_and_below_producer_id" if is_add else "producer_id"
            position = position_of_field(request, field, version, one.request)
        steps.append(one)
        copies.append(Copy(from_position, number, position, size))
    return [replace(init, copies=tuple(copies), repeats=False), *steps]


HEARTBEATS = Workload("heartbeats", "Heartbeat, 100 connections", "requests", 1, 100, 1, heartbeats)
ONE_CONNECTION = Workload("heartbeats_1", "Heartbeat, one connection", "requests", 1, 1, 1, heartbeats)
WORKLOADS = (
    HEARTBEATS,
    Workload("heartbeats_500", "Heartbeat, 500 connections", "requests", 1, 500, 1, heartbeats),
    Workload("heartbeats_16", "Heartbeat, 100 connections, 16 in flight", "requests", 1, 100, 16, heartbeats),
    ONE_CONNECTION,
    Workload(
        "rebalances", "JoinGroup and SyncGroup, 100 single-member groups", "requests", 1, 100, 1, rebalances,
        on_mock=False,
    ),
    Workload("commits", "OffsetCommit, 100 connections, 1 partition", "requests", 1, 100, 1, commits),
    Workload(
        "transactions", "Transactions of one record and one offset, 10 connections", "transactions", 1 / 5, 10, 1,
        transactions,
    ),
    Workload(
        "keys", f"FindCoordinator v4, {KEYS:,} keys", "keys", KEYS, 10, 1, found_coordinators, on_mock=False
    ),
    Workload(
        "offsets", f"OffsetFetch v8, {GROUPS} groups with 4 offsets", "groups", GROUPS, 10, 1, fetched_offsets,
        on_mock=False,
    ),
    Workload(
        "missing_offsets", f"OffsetFetch v8, {GROUPS} groups without offsets", "groups", GROUPS, 10, 1, missing_offsets,
        on_mock=False,
    ),
    Workload("produce", "Produce, 100 records of 1 KiB", "requests", 1, PARTITIONS, 1, produced),
    Workload("fetch", "Fetch, 1 MiB", "requests", 1, PARTITIONS, 1, fetched),
)  # fmt: skip
