"""Racks of brokers: what clients see of them, replicas in different racks, and fetches from followers (KIP-392)."""

from collections.abc import Sequence
from typing import Any

import pytest

from fakebroker.cluster.replication.replica_placement import RACK_AWARE_SELECTOR, spread_over_racks
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_cluster import DescribeClusterRequest
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, batch, response, versions
from tests.support.cluster.replicas import create_topics, new_topic, replicas, start_broker, stop_brokers

THREE_RACKS = ("a", "b", "c")
RACK_AWARE: dict[str, object] = {"replica.selector.class": RACK_AWARE_SELECTOR}


# What clients see


def test_metadata_and_describe_cluster_have_the_racks_of_brokers() -> None:
    harness = ClusterHarness(brokers=3, racks=("a", None, "b"))
    metadata = harness.ask(MetadataRequest(topics=[]), 12)
    assert [(broker.node_id, broker.rack) for broker in metadata.brokers] == [(1, "a"), (2, None), (3, "b")]
    described = harness.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    assert [(broker.broker_id, broker.rack) for broker in described.brokers] == [(1, "a"), (2, None), (3, "b")]


def test_the_rack_is_a_config_of_the_broker(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(brokers=2, racks=("a", None))
    for node_id, rack in ((1, "a"), (2, None)):
        with subtests.test(node_id=node_id):
            resource = DescribeConfigsResource(
                resource_type=4, resource_name=str(node_id), configuration_keys=["broker.rack"]
            )
            (result,) = harness.ask(DescribeConfigsRequest(resources=[resource]), 4, broker=node_id).results
            assert [(each.value, each.read_only) for each in result.configs] == [(rack, True)]


# Placement


def racks_of(harness: ClusterHarness, topic: str) -> list[list[str | None]]:
    """Return the racks of the replicas of each partition of a topic."""
    return [[harness.cluster.brokers[node_id].rack for node_id in each] for each in replicas(harness, topic)]


def test_replicas_are_in_different_racks() -> None:
    harness = ClusterHarness({}, brokers=6, racks=("a", "a", "b", "b", "c", "c"))
    create_topics(harness, new_topic("news", partitions=6, factor=3))
    assert all(sorted(map(str, racks)) == ["a", "b", "c"] for racks in racks_of(harness, "news"))
    assert sorted(each[0] for each in replicas(harness, "news")) == [1, 2, 3, 4, 5, 6]


def test_topics_of_one_partition_are_led_by_all_brokers_in_turn() -> None:
    harness = ClusterHarness({}, brokers=4, racks=("a", "a", "b", "b"))
    for name in ("p", "q", "r", "s"):
        create_topics(harness, new_topic(name, partitions=1, factor=2))
    assert [replicas(harness, name)[0][0] for name in ("p", "q", "r", "s")] == [1, 3, 2, 4]
    assert all(
        sorted(map(str, racks)) == ["a", "b"] for name in ("p", "q", "r", "s") for racks in racks_of(harness, name)
    )


def test_more_replicas_than_racks_use_racks_again() -> None:
    harness = ClusterHarness({}, brokers=4, racks=("a", "a", "a", "b"))
    create_topics(harness, new_topic("news", partitions=2, factor=4))
    assert [sorted(each) for each in replicas(harness, "news")] == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert [racks[:2] for racks in racks_of(harness, "news")] == [["a", "b"], ["b", "a"]]


def test_a_broker_that_is_down_follows_in_its_rack_but_never_leads() -> None:
    harness = ClusterHarness({}, brokers=3, racks=THREE_RACKS)
    stop_brokers(harness, 2)
    create_topics(harness, new_topic("news", partitions=3, factor=3))
    assert all(sorted(each) == [1, 2, 3] and each[0] != 2 for each in replicas(harness, "news"))


def test_brokers_without_a_rack_form_a_rack_of_their_own() -> None:
    harness = ClusterHarness(brokers=4, racks=("a", None, "a", None))
    assigned = spread_over_racks(4, 2, harness.cluster.brokers.values())
    assert [{harness.cluster.brokers[node_id].rack for node_id in each} for each in assigned] == [{"a", None}] * 4


def test_without_racks_replicas_are_spread_round_robin() -> None:
    harness = ClusterHarness({}, brokers=3)
    create_topics(harness, new_topic("news", partitions=3, factor=2))
    assert replicas(harness, "news") == [(1, 2), (2, 3), (3, 1)]


# Fetches from followers


def fetch(
    harness: ClusterHarness, rack_id: str, *, broker: int = 1, version: int = 11, offset: int = 0, replica_id: int = -1
) -> Any:
    """Fetch "news-0" as a consumer in a rack, with a long wait. Returns the partition in the response."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    topic = FetchTopic(
        topic="news" if version < 13 else "",
        topic_id=harness.topic().topic_id if version >= 13 else ZERO_UUID,
        partitions=[part],
    )
    request = FetchRequest(max_wait_ms=60_000, min_bytes=2**20, topics=[topic], rack_id=rack_id)
    if version < 15:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id=replica_id)
    call = harness.send(request, version, broker=broker)
    if call.response is None:
        harness.advance(60_000)
    return response(call).responses[0].partitions[0]


def rack_harness(racks: Sequence[str | None] = THREE_RACKS, config: dict[str, object] | None = None) -> ClusterHarness:
    """Return a cluster whose broker 1 leads "news-0", with one record. The other brokers are followers."""
    harness = ClusterHarness(brokers=len(racks), racks=racks, config=RACK_AWARE if config is None else config)
    harness.partition().log.append(batch(b"one"), 0)
    assert harness.partition().leader_id == 1
    return harness


def test_a_leader_refers_consumers_to_the_follower_in_their_rack(subtests: pytest.Subtests) -> None:
    for version in versions("Fetch"):
        with subtests.test(version=version):
            harness = rack_harness()
            if version < 11:
                assert fetch(harness, "", version=version).records
                continue
            referred = fetch(harness, "b", version=version)
            assert (referred.error_code, referred.preferred_read_replica, referred.records) == (0, 2, b"")
            assert (referred.high_watermark, referred.last_stable_offset, referred.log_start_offset) == (1, 1, 0)
            read = fetch(harness, "b", version=version, broker=2)
            assert (read.error_code, read.preferred_read_replica) == (0, -1)
            assert b"one" in read.records


def test_the_leader_answers_itself(subtests: pytest.Subtests) -> None:
    cases: dict[str, tuple[Sequence[str | None], dict[str, object], dict[str, Any]]] = {
        "without a selector": (THREE_RACKS, {}, {"rack_id": "b"}),
        "with Kafka's default selector": (
            THREE_RACKS,
            {"replica.selector.class": "org.apache.kafka.common.replica.LeaderSelector"},
            {"rack_id": "b"},
        ),
        "in the rack of the client": (("a", "a", "b"), RACK_AWARE, {"rack_id": "a"}),
        "to clients without a rack": (THREE_RACKS, RACK_AWARE, {"rack_id": ""}),
        "to clients in a rack without a replica": (THREE_RACKS, RACK_AWARE, {"rack_id": "z"}),
        "to followers": (THREE_RACKS, RACK_AWARE, {"rack_id": "b", "replica_id": 2}),
    }
    for name, (racks, config, arguments) in cases.items():
        with subtests.test(name):
            fetched = fetch(rack_harness(racks, config), **arguments)
            assert (fetched.preferred_read_replica, fetched.error_code) == (-1, 0)
            assert b"one" in fetched.records


def test_the_leader_answers_itself_before_2_4() -> None:
    harness = ClusterHarness(brokers=3, racks=THREE_RACKS, config=RACK_AWARE, as_version="2.3")
    harness.partition().log.append(batch(b"one"), 0)
    assert b"one" in fetch(harness, "b").records


def test_a_follower_that_is_down_is_no_read_replica() -> None:
    harness = rack_harness(("a", "b", "b"))
    assert fetch(harness, "b").preferred_read_replica == 3
    stop_brokers(harness, 3)
    assert fetch(harness, "b").preferred_read_replica == 2
    stop_brokers(harness, 2)
    assert b"one" in fetch(harness, "b").records
    start_broker(harness, 2)
    assert fetch(harness, "b").preferred_read_replica == 2


def test_an_offset_out_of_range_is_an_error_of_the_leader_and_of_the_follower() -> None:
    harness = rack_harness()
    for broker in (1, 2):
        assert fetch(harness, "b", broker=broker, offset=9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_broker_without_a_replica_refuses_consumers() -> None:
    harness = rack_harness(("a", "b", "c", "d"))
    assert fetch(harness, "d", broker=4).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_stale_epoch_of_a_consumer_is_refused_before_it_is_referred() -> None:
    harness = rack_harness()
    harness.partition().leader_epoch = 5
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20, current_leader_epoch=4)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="news", partitions=[part])], rack_id="b"
    )
    (fetched,) = harness.ask(request, 12).responses[0].partitions
    assert (fetched.error_code, fetched.preferred_read_replica) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
