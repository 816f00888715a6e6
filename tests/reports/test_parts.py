"""Parts of a report: errors by a fault, idle requests, waiting responses, deleted records; and faults that missed."""

import pytest

from fakebroker import ConditionNotMet, FakeCluster
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.records import Record, encode_batch
from tests.support.client.wire_producer import WireProducer
from tests.support.trio_runner import in_trio_with_sockets
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.fake_cluster(1, {"orders": 1}, clock="manual")


def lines(cluster: FakeCluster) -> list[list[str]]:
    return [line.split() for line in cluster.report().splitlines()]


def beat(wire: WireClient, group_id: str) -> None:
    wire.ask(HeartbeatRequest(group_id=group_id, generation_id=1, member_id="x"), HeartbeatResponse)


def test_an_error_by_a_fault_says_so(fake_cluster: FakeCluster) -> None:
    with (
        WireClient(fake_cluster.brokers[0], "app") as wire,
        fake_cluster.inject_fault("Heartbeat", group="g", error="NOT_COORDINATOR"),
    ):
        beat(wire, "g")
        beat(wire, "other")
    found = lines(fake_cluster)
    assert ["1", "x", "Heartbeat", "NOT_COORDINATOR", "'app'", "g", "by", "a", "fault"] in found
    assert ["1", "x", "Heartbeat", "UNKNOWN_MEMBER_ID", "'app'", "other"] in found
    assert ["0.000", "s", "'app'", "1", "Heartbeat", "NOT_COORDINATOR", "g", "(fault)"] in found


def test_idle_heartbeats_of_consumer_groups_are_counted(fake_cluster: FakeCluster) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        epoch = wire.ask(request, ConsumerGroupHeartbeatResponse, 1).member_epoch
        again = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        for _ in range(3):
            wire.ask(again, ConsumerGroupHeartbeatResponse, 1)
    found = lines(fake_cluster)
    assert ["0.000", "s", "'app'", "1", "ConsumerGroupHeartbeat", "-", "g", "epoch", "0"] in found
    assert ["...", "3", "ConsumerGroupHeartbeat", "of", "'app'"] in found


def test_a_late_response_says_how_late(fake_cluster: FakeCluster) -> None:
    with (
        WireClient(fake_cluster.brokers[0], "app") as wire,
        fake_cluster.inject_fault("Heartbeat", delay_s=2.5, times=1),
    ):
        wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"))
        fake_cluster.wait(fake_cluster.requested("Heartbeat"))
        assert "Heartbeat  -      g (fault) (no response yet)" in fake_cluster.report()
        fake_cluster.advance(2.5)
        wire.receive()
    assert "g (fault) (answered after 2.5 s)" in fake_cluster.report()


def test_deleted_records_are_not_counted(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("orders").produce(["a", "b", "c"])
    topic = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), DeleteRecordsResponse, 2)
    assert ["orders-0", "1", "3", "-", "-", "-", "-"] in lines(fake_cluster)


@in_trio_with_sockets
async def test_a_missed_fault_is_an_error_at_the_end_of_an_async_cluster() -> None:
    with pytest.raises(ConditionNotMet, match=r"^inject_fault\(api='Heartbeat', drop=True\) was applied to no"):
        async with FakeCluster(1) as cluster:
            cluster.inject_fault("Heartbeat", drop=True)


@in_trio_with_sockets
async def test_a_wait_in_a_task_says_what_its_arguments_are(fake_cluster: FakeCluster) -> None:
    with pytest.raises(TypeError, match=r"^wait_async\(\) got .* 'timeout': .*; did you mean 'timeout_s'\?$"):
        await fake_cluster.wait_async(fake_cluster.group("g").stable(), timeout=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^holds\(\) got .* 'x': expected one of condition$"):
        fake_cluster.holds(fake_cluster.group("g").stable(), x=1)  # type: ignore[call-arg]


@pytest.mark.fake_cluster(1, {"orders": 6})
def test_only_the_first_of_the_last_records_are_shown(fake_cluster: FakeCluster) -> None:
    """Four records of each partition, and eight in all."""
    for partition in range(6):
        fake_cluster.topic("orders").produce(["a"] * 5, partition=partition)
    text = fake_cluster.report().split("last records:")[1].split("\n\n")[0].splitlines()[1:]
    assert [line.split()[:2] for line in text[:5]] == [
        *(["orders-0", f"@{offset}"] for offset in range(1, 5)),
        ["orders-1", "@1"],
    ]
    assert text[8:] == ["... and 22 more records"]


def test_an_offset_of_zero_is_not_nothing(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").set_offsets({"orders-0": 0})
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("g", "h")]
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        wire.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 9)
    (line,) = (each for each in fake_cluster.report().splitlines() if " OffsetFetch " in each)
    assert line.endswith("g, h orders-0=0, orders-0=nothing")


def test_states_of_records_in_transactions(fake_cluster: FakeCluster) -> None:
    orders = fake_cluster.topic("orders")
    orders.produce(["before"])
    for commits in (False, True):
        producer = WireProducer(fake_cluster, "t")
        producer.begin(("orders", 0), b"aborted" if not commits else b"committed")
        producer.end(commit=commits)
    orders.partition(0).seed_hanging_transaction()
    lines = fake_cluster.report().splitlines()
    found = [line.split("value ")[1] for line in lines if line.startswith("  orders-0 @")]
    assert found == [
        "b'before', no headers",
        "b'aborted', no headers  (aborted)",
        "b'committed', no headers",
        "b'5', no headers  (not yet committed)",
    ]
    assert any(line.startswith("  orders-0   4 (1 aborted, an open transaction from 5 on)  6") for line in lines)


@pytest.mark.fake_cluster(1, {"orders": 20})
def test_of_many_partitions_only_those_in_use_are_shown(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("orders").produce(["a"], partition=3)
    fake_cluster.group("g").set_offsets({"orders-5": 0})
    topic = FetchTopic(topic="orders", partitions=[FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=9)])
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        wire.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[topic]), FetchResponse, 11)
    found = [line.split()[0] for line in fake_cluster.report().splitlines() if line.startswith("  orders-")]
    assert found == ["orders-3", "orders-5", "orders-7", "orders-3"]  # The last one is a record.


def test_a_produce_request_shows_its_first_values(fake_cluster: FakeCluster) -> None:
    values = [[b"a"], [b"b", b"c" * 50, b"d"]]
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        for each in values:
            records = encode_batch([Record(at, 0, None, value) for at, value in enumerate(each)])
            data = PartitionProduceData(index=0, records=records)
            topic = TopicProduceData(name="orders", partition_data=[data])
            wire.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic]), ProduceResponse, 9)
        broken = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=records[:-1])])
        wire.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=[broken]), ProduceResponse, 9)
    found = [
        line.split("orders-0 ")[1]
        for line in fake_cluster.report().splitlines()
        if " Produce  " in line and " s  " in line
    ]
    assert found == ["1 record (b'a') at 0", f"3 records (b'b', b'{'c' * 25}..., ...) at 1", "0 records at no offset"]
