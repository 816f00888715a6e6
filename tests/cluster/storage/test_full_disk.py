"""A full disk: what is refused changes nothing, what is acknowledged is stored, and what cannot be refused waits."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.storage.entries import Kind
from fakebroker.cluster.storage.entry_writer import SPARE_BYTES
from fakebroker.errors import DiskFullError, ErrorCode
from fakebroker.protocol.codec import encode
from fakebroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fakebroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, batch, versions
from tests.support.cluster.stored_clusters import MemoryStorage, durable, leader_epochs, restored, stored

CONFIG: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
MANY_PARTITIONS = 3_000


def topic(name: str, partitions: int) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[])


REQUESTS: dict[str, Message] = {
    "CreateTopics": CreateTopicsRequest(topics=[topic("wide", MANY_PARTITIONS)]),
    "CreateTopics, many": CreateTopicsRequest(topics=[topic(f"n{number}", -1) for number in range(1_000)]),
    "CreatePartitions": CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=MANY_PARTITIONS, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    ),
    "CreateAcls": CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2, resource_name=str(n), principal="User:x", host="*", operation=3, permission_type=3
            )
            for n in range(1_000)
        ]
    ),
    "AlterUserScramCredentials": AlterUserScramCredentialsRequest(
        deletions=[],
        upsertions=[
            ScramCredentialUpsertion(name=str(n), mechanism=2, iterations=4096, salt=b"salt", salted_password=b"s")
            for n in range(500)
        ],
    ),
    "AlterClientQuotas": AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=str(n))],
                ops=[OpData(key="producer_byte_rate", value=1000.0, remove=False)],
            )
            for n in range(1_000)
        ],
        validate_only=False,
    ),
    "IncrementalAlterConfigs": IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=32,  # a group
                resource_name=str(n),
                configs=[AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")],
            )
            for n in range(500)
        ],
        validate_only=False,
    ),
}
"""Requests after which much more is stored than before."""


def cluster() -> tuple[ClusterHarness, MemoryStorage, Callable[[], None]]:
    """Return a cluster that stores its state, its storage, and what is called before responses are sent."""
    harness = ClusterHarness({"a": 2}, brokers=3, config=CONFIG)
    storage, writer = stored(harness)
    return harness, storage, writer.write_changes


def answered(harness: ClusterHarness, request: Message) -> set[ErrorCode]:
    """Send a request in its newest version (with names of topics), and return the errors in its response."""
    version = {"Produce": 12, "DeleteTopics": 5}.get(api_of(request).name, versions(api_of(request).name)[-1])
    size_bytes = len(encode(request, version))
    call = harness.send(request, version, broker=harness.cluster.controller_id, size_bytes=size_bytes)
    return set(call.errors) or {ErrorCode.NONE}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_change_is_made_only_if_all_of_it_can_be_stored(name: str) -> None:
    harness, storage, write = cluster()
    assert answered(harness, REQUESTS[name]) == {ErrorCode.NONE}
    before = sum(len(payload) for _, payload in storage.entries)
    write()
    written = sum(len(payload) for _, payload in storage.entries) - before
    assert written > 10_000

    harness, storage, write = cluster()
    storage.free_bytes = SPARE_BYTES + written - 1
    before_refusal = durable(harness.cluster)
    assert answered(harness, REQUESTS[name]) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert durable(harness.cluster) == before_refusal
    storage.free_bytes = SPARE_BYTES + 8 * written
    assert answered(harness, REQUESTS[name]) == {ErrorCode.NONE}
    write()
    assert durable(restored(storage.entries, brokers=3, config=CONFIG).cluster) == durable(harness.cluster)


def test_several_changes_before_a_response_do_not_share_space() -> None:
    harness, storage, write = cluster()
    storage.free_bytes = SPARE_BYTES + 1_000_000
    refused = 0
    for number in range(10):  # Each claims some 90,000 bytes, and needs fewer.
        request = CreateTopicsRequest(topics=[topic(f"wide{number}", MANY_PARTITIONS)])
        [error] = answered(harness, request)
        refused += error == ErrorCode.KAFKA_STORAGE_ERROR
        [produced] = answered(harness, produce(bytes(100_000)))
        assert produced in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    write()
    assert 0 < refused < 10
    assert storage.free_bytes >= SPARE_BYTES
    assert durable(restored(storage.entries, brokers=3, config=CONFIG).cluster) == durable(harness.cluster)


def produce(value: bytes) -> ProduceRequest:
    data = TopicProduceData(name="a", partition_data=[PartitionProduceData(index=0, records=batch(value))])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])


def test_commands_ask_for_the_space_of_new_partitions() -> None:
    harness, storage, write = cluster()
    commands = LocalCluster(
        Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
    )
    storage.free_bytes = SPARE_BYTES + 10_000
    before = durable(harness.cluster)
    with pytest.raises(DiskFullError, match="the disk is full"):
        commands.topic("wide").create(100_000)
    with pytest.raises(DiskFullError, match="the disk is full"):
        commands.topic("a").create_partitions(100_000)
    assert durable(harness.cluster) == before
    commands.topic("narrow").create(10)
    write()
    assert durable(restored(storage.entries, brokers=3, config=CONFIG).cluster) == durable(harness.cluster)


def test_a_client_does_not_create_a_topic_without_space() -> None:
    harness, storage, write = cluster()
    storage.free_bytes = SPARE_BYTES - 1
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in answered(harness, wanted)
    storage.free_bytes = inf
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in answered(harness, wanted)
    write()
    assert durable(restored(storage.entries, brokers=3, config=CONFIG).cluster) == durable(harness.cluster)


def test_elections_without_space_wait_and_all_else_is_refused() -> None:
    harness, storage, write = cluster()
    assert answered(harness, CreateTopicsRequest(topics=[topic("wide", MANY_PARTITIONS)])) == {ErrorCode.NONE}
    write()
    stored_epochs = leader_epochs(restored(storage.entries, brokers=3, config=CONFIG).cluster)
    storage.free_bytes = 10_000
    for node_id in (2, 3):
        harness.cluster.controller.stop_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())
        write()
    assert leader_epochs(restored(storage.entries, brokers=3, config=CONFIG).cluster) != stored_epochs, "some fit"
    assert max(leader_epochs(restored(storage.entries, brokers=3, config=CONFIG).cluster)[-MANY_PARTITIONS:]) == 1
    for request in (produce(b"x"), DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000)):
        assert answered(harness, request) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert "wide" in harness.cluster.topics
    storage.free_bytes = 10 * SPARE_BYTES
    assert answered(harness, produce(b"x")) == {ErrorCode.NONE}
    write()
    twin = restored(storage.entries, brokers=3, config=CONFIG).cluster
    assert durable(twin) == durable(harness.cluster)
    assert leader_epochs(twin) == [epoch + 1 for epoch in leader_epochs(harness.cluster)]


def test_expired_records_and_removed_acls_wait_for_space() -> None:
    harness, storage, write = cluster()
    commands = LocalCluster(
        Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
    )
    with commands.acls.deny("User:x", "READ", topic="a"):
        for number in range(3):
            assert answered(harness, produce(b"%d" % number)) == {ErrorCode.NONE}
        write()
        count = len(storage.entries)
        storage.free_bytes = 0
        log = harness.partition(0, "a").log
        log.retain(1)
    write_sections(harness)
    write()
    assert len(storage.entries) == count
    assert log.log_start_offset == 2
    assert answered(harness, produce(b"x")) == {ErrorCode.KAFKA_STORAGE_ERROR}
    storage.free_bytes = inf
    write()
    assert [kind for kind, _ in storage.entries[count:]] == [Kind.START, Kind.START, Kind.ACLS]
    twin = restored(storage.entries, brokers=3, config=CONFIG).cluster
    assert durable(twin) == durable(harness.cluster)


def write_sections(harness: ClusterHarness) -> None:
    """Note that a command may have changed sections, as the server does after each."""
    writer: Any = harness.cluster.storage
    writer.sections_may_differ = True


def test_a_topic_that_waits_can_be_deleted() -> None:
    harness, storage, write = cluster()
    storage.free_bytes = 0
    harness.cluster.topics.create("b", [[1]])
    log = harness.partition(0, "b").log
    log.log_end_offset = 5
    log.truncate_before(5)
    write()
    harness.cluster.topics.delete(harness.topic("b"))
    storage.free_bytes = inf
    write()
    twin = restored(storage.entries, brokers=3, config=CONFIG).cluster
    assert durable(twin) == durable(harness.cluster)
    assert Kind.START not in [kind for kind, _ in storage.entries]


def test_a_snapshot_whose_topics_do_not_fit_is_not_restored() -> None:
    harness, storage, write = cluster()
    commands = LocalCluster(
        Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
    )
    commands.topic("wide").create(MANY_PARTITIONS)
    write()
    wide_bytes = max(len(content) for kind, content in storage.entries if kind == Kind.TOPIC)
    snapshot = commands.snapshot()
    commands.topic("wide").delete()
    write()
    storage.free_bytes = SPARE_BYTES + wide_bytes
    with pytest.raises(DiskFullError, match="the disk is full"):
        commands.restore(snapshot)
    assert "wide" not in harness.cluster.topics
    storage.free_bytes = SPARE_BYTES + 4 * wide_bytes
    commands.restore(snapshot)
    assert "wide" in harness.cluster.topics
