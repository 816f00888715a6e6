"""Applications whose broker is killed. Each knows what was acknowledged, and what was requested when it was killed."""

import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from fakebroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from fakebroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from fakebroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from fakebroker.protocol.records import Record, decode_records, encode_batch, split_batches
from fakebroker.protocol.transaction_markers import AbortedBatches
from fakebroker.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from tests.support.group_requests import commit_of, join_request, offset_to_commit, sync_request
from tests.support.wire_client import WireClient

RECORDS, TRANSACTIONS = "records", "transactions"
"""The topics of the loads."""
_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_MOST_ATTEMPTS = 2_000
T = TypeVar("T")


class Load(Protocol):
    """An application. Its connection breaks in the middle of a `step` when the broker dies."""

    def step(self, wire: WireClient) -> None:
        """Change something, and remember when it is acknowledged."""
        ...

    def check(self, wire: WireClient) -> None:
        """After a restart: check that all that was acknowledged is there, and learn what became of the last request."""
        ...


def retried(attempt: Callable[[], tuple[int, T]]) -> T:
    """Repeat a request while the coordinator is loading. It returns its error, which must be none, and a value."""
    for _ in range(_MOST_ATTEMPTS):
        error, value = attempt()
        if error not in _LOADING:
            break
    assert error == ErrorCode.NONE, ErrorCode(error)
    return value


class Commits:
    """Commits growing offsets of several groups."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._acknowledged: dict[str, int] = {}
        self._pending: tuple[str, int] | None = None

    def step(self, wire: WireClient) -> None:
        group = f"commits-{self._rng.randrange(20)}"
        offset = self._acknowledged.get(group, 0) + self._rng.randint(1, 1_000)
        self._pending = group, offset
        request = commit_of(offset_to_commit(0, offset), group_id=group, topic=RECORDS)
        response = wire.ask(request, OffsetCommitResponse, 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        self._acknowledged[group], self._pending = offset, None

    def check(self, wire: WireClient) -> None:
        for group in {*self._acknowledged, *(self._pending or ())[:1]}:
            expected = {self._acknowledged.get(group, -1)}
            if self._pending and self._pending[0] == group:
                expected.add(self._pending[1])
            found = committed_offset(wire, str(group))
            assert found in expected, group
            if found >= 0:
                self._acknowledged[str(group)] = found
        self._pending = None


def committed_offset(wire: WireClient, group: str) -> int:
    """Return the committed offset of a group for the first partition of `RECORDS`; -1 if there is none."""
    topics = [OffsetFetchRequestTopic(name=RECORDS, partition_indexes=[0])]

    def attempt() -> tuple[int, OffsetFetchResponse]:
        response = wire.ask(OffsetFetchRequest(group_id=group, topics=topics), OffsetFetchResponse, 7)
        return response.error_code, response

    return retried(attempt).topics[0].partitions[0].committed_offset


class Records:
    """An idempotent producer. It repeats the batch that was not acknowledged, which must be written once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._values: list[bytes] = []
        self._pending: list[bytes] = []
        self._producer: tuple[int, int] | None = None

    def step(self, wire: WireClient) -> None:
        if self._producer is None:
            self._producer = init_producer(wire, None)
        if not self._pending:
            count, padding = self._rng.randint(1, 5), self._rng.randrange(3_000)
            self._pending = [b"%d:" % (len(self._values) + n) + bytes(padding) for n in range(count)]
        error = produced(wire, RECORDS, self._pending, *self._producer, sequence=len(self._values))
        assert error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        self._values += self._pending
        self._pending = []

    def check(self, wire: WireClient) -> None:
        found = read(wire, RECORDS)
        assert found in (self._values, self._values + self._pending), "acknowledged records in order, each once"
        if self._pending:
            self.step(wire)
            assert read(wire, RECORDS) == self._values, "the repeated batch is written once"


class Transactions:
    """A transactional producer: transactions of several batches and an offset, most of which are committed."""

    GROUP = "transactional"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._committed: list[bytes] = []
        self._open: list[bytes] = []
        self._is_committing = False
        self._producer: tuple[int, int] | None = None
        self._written = self._sequence = 0
        self._offset = self._open_offset = -1
        """Offset of the last transaction that was committed, and with the open one."""

    def step(self, wire: WireClient) -> None:
        if self._producer is None:
            self._producer, self._sequence = init_producer(wire, TRANSACTIONS), 0
        if self._open and self._rng.random() < 0.3:
            self._end(wire, is_committing=self._rng.random() < 0.7)
            return
        if self._open and self._rng.random() < 0.2:
            self._commit_offset(wire)
            return
        if not self._open:
            self._add_partition(wire)
        value = b"%d" % self._written
        self._written += 1
        error = produced(wire, TRANSACTIONS, [value], *self._producer, sequence=self._sequence, is_transactional=True)
        assert error is ErrorCode.NONE
        self._sequence += 1
        self._open.append(value)

    def _add_partition(self, wire: WireClient) -> None:
        assert self._producer is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONS,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TRANSACTIONS, partitions=[0])],
        )

        def attempt() -> tuple[int, None]:
            response = wire.ask(request, AddPartitionsToTxnResponse, 3)
            return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, None

        retried(attempt)

    def _commit_offset(self, wire: WireClient) -> None:
        """Commit the number of written records as an offset in the transaction."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        identity: dict[str, Any] = {"transactional_id": TRANSACTIONS, "group_id": self.GROUP}
        identity |= {"producer_id": producer_id, "producer_epoch": epoch}
        add = AddOffsetsToTxnRequest(**identity)
        retried(lambda: (wire.ask(add, AddOffsetsToTxnResponse, 3).error_code, None))
        offset = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._written, committed_metadata=None
        )
        topic = TxnOffsetCommitRequestTopic(name=RECORDS, partitions=[offset])
        commit = TxnOffsetCommitRequest(topics=[topic], **identity)
        response = wire.ask(commit, TxnOffsetCommitResponse, 2)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        self._open_offset = self._written

    def _end(self, wire: WireClient, *, is_committing: bool) -> None:
        assert self._producer is not None
        self._is_committing = is_committing
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=TRANSACTIONS, producer_id=producer_id, producer_epoch=epoch, committed=is_committing
        )
        retried(lambda: (wire.ask(request, EndTxnResponse, 3).error_code, None))
        if is_committing:
            self._committed, self._offset = self._committed + self._open, self._open_offset
        self._open, self._open_offset, self._is_committing = [], self._offset, False

    def check(self, wire: WireClient) -> None:
        earlier = self._producer
        # Completes or aborts the open transaction.
        self._producer, self._sequence = init_producer(wire, TRANSACTIONS), 0
        if earlier:
            assert earlier[0] == self._producer[0]
            assert earlier[1] < self._producer[1], "the epoch of the earlier producer is fenced"
        found = read(wire, TRANSACTIONS, is_committed=True)
        whole = self._committed + self._open if self._is_committing else self._committed
        assert found in (self._committed, whole), "a transaction is committed as a whole, or not at all"
        is_committed = len(found) == len(whole)
        expected = self._open_offset if is_committed and self._is_committing else self._offset
        assert committed_offset(wire, self.GROUP) == expected, "the offset is committed with the records"
        self._committed, self._open, self._is_committing = found, [], False
        self._offset = self._open_offset = expected


class StaticMembers:
    """Groups of one static member; those that are stable continue after a restart."""

    RECENT = 20

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stable: list[tuple[str, str, int]] = []
        self._count = 0

    def step(self, wire: WireClient) -> None:
        self._count += 1
        group = f"static-{self._count}"
        joined = wire.ask(join_request(group, group_instance_id="instance"), JoinGroupResponse, 9)
        assert joined.error_code == ErrorCode.NONE
        if self._rng.random() < 0.2:
            return  # The group never becomes stable.
        assignment = {joined.member_id: group.encode()}
        sync = sync_request(joined.member_id, group, joined.generation_id, assignment, group_instance_id="instance")
        assert wire.ask(sync, SyncGroupResponse, 5).error_code == ErrorCode.NONE
        self._stable.append((group, joined.member_id, joined.generation_id))

    def check(self, wire: WireClient) -> None:
        for group, member_id, generation_id in self._stable[-self.RECENT :]:
            beat = HeartbeatRequest(
                group_id=group, generation_id=generation_id, member_id=member_id, group_instance_id="instance"
            )
            retried(lambda beat=beat: (wire.ask(beat, HeartbeatResponse, 4).error_code, None))  # type: ignore[misc]  # mypy does not infer lambdas with defaults
            sync = sync_request(member_id, group, generation_id, group_instance_id="instance")
            assert wire.ask(sync, SyncGroupResponse, 5).assignment == group.encode()
        self._stable.clear()  # Their sessions expire.


class Metadata:
    """Creates and deletes topics with configs, and creates ACLs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._topics: dict[str, bytes] = {}
        self._acls: set[str] = set()
        self._pending = ""
        self._count = 0

    def step(self, wire: WireClient) -> None:
        self._count += 1
        action = self._rng.randrange(3)
        if action == 0:
            self._create_acl(wire, f"User:{self._count}")
        elif action == 1 or len(self._topics) < 5:
            self._create_topic(wire, f"topic-{self._count}")
        else:
            self._delete_topic(wire, self._rng.choice(sorted(self._topics)))
        self._pending = ""

    def _create_acl(self, wire: WireClient, principal: str) -> None:
        self._pending = principal
        creation = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=RECORDS,
            resource_pattern_type=PatternType.LITERAL,
            principal=principal,
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermission.ALLOW,
        )
        response = wire.ask(CreateAclsRequest(creations=[creation]), CreateAclsResponse, 3)
        assert response.results[0].error_code == ErrorCode.NONE
        self._acls.add(principal)

    def _create_topic(self, wire: WireClient, name: str) -> None:
        self._pending = name
        config = CreatableTopicConfig(name="retention.ms", value=str(len(name) * 1_000_000))
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[config])
        [result] = wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7).topics
        assert result.error_code == ErrorCode.NONE
        self._topics[name] = result.topic_id

    def _delete_topic(self, wire: WireClient, name: str) -> None:
        self._pending = name
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)
        [result] = wire.ask(request, DeleteTopicsResponse, 5).responses
        assert result.error_code == ErrorCode.NONE
        del self._topics[name]

    def check(self, wire: WireClient) -> None:
        response = wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        topics = {topic.name: topic for topic in response.topics if (topic.name or "").startswith("topic-")}
        found = {str(name): topic.topic_id for name, topic in topics.items() if name != self._pending}
        self._topics = {name: topic_id for name, topic_id in self._topics.items() if name != self._pending}
        assert found == self._topics
        assert all(len(topic.partitions) == 2 for topic in topics.values())
        for name in list(found)[-3:]:
            assert retention_ms(wire, name) == str(len(name) * 1_000_000)
        if self._pending in topics:
            self._topics[self._pending] = topics[self._pending].topic_id

        acls = principals(wire)
        assert acls - {self._pending} == self._acls - {self._pending}
        self._acls, self._pending = acls, ""


def init_producer(wire: WireClient, transactional_id: str | None) -> tuple[int, int]:
    """Send InitProducerId until it succeeds, and return id and epoch."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    def attempt() -> tuple[int, tuple[int, int]]:
        response = wire.ask(request, InitProducerIdResponse, 4)
        return response.error_code, (response.producer_id, response.producer_epoch)

    return retried(attempt)


def produced(
    wire: WireClient,
    topic: str,
    values: Iterable[bytes],
    producer_id: int,
    epoch: int,
    *,
    sequence: int,
    is_transactional: bool = False,
) -> ErrorCode:
    """Send a batch to the first partition of a topic, and return the error in the response."""
    data = encode_batch(
        [Record(number, 1_000, None, value) for number, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    request = ProduceRequest(
        transactional_id=topic if is_transactional else None,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])],
    )
    response = wire.ask(request, ProduceResponse, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def read(wire: WireClient, topic: str, *, is_committed: bool = False) -> list[bytes]:
    """Return the values of all records of the first partition of a topic; without those of aborted transactions."""
    found: list[bytes] = []
    offset = 0
    while True:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(is_committed),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        [data] = wire.ask(request, FetchResponse, 12).responses[0].partitions
        assert data.error_code == ErrorCode.NONE
        aborted = AbortedBatches(data.aborted_transactions or ())
        batches = split_batches(bytes(data.records or b""))
        if not batches:
            return found
        for batch in batches:
            offset = batch.last_offset + 1
            if not (is_committed and aborted.contain(batch)) and not batch.is_control:
                found += [record.value or b"" for record in decode_records(batch)]


def retention_ms(wire: WireClient, topic: str) -> str | None:
    """Return a config of a topic."""
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=["retention.ms"])
    [result] = wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4).results
    return result.configs[0].value


def principals(wire: WireClient) -> set[str]:
    """Return the principals of all ACLs."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    response = wire.ask(request, DescribeAclsResponse, 3)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return {acl.principal for resource in response.resources for acl in resource.acls}
