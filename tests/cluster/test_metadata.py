"""Metadata: brokers, topics by name, by id and all, and topics that come into being because they are asked for."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

NOT_ASKED = -(2**31)
ALL_VERSIONS = versions("Metadata")


def request(*names: str | None, topic_id: bytes = ZERO_UUID, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic_id) for name in names], **fields)


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


def named(response: Any) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_tells_of_brokers_and_leaders(version: int) -> None:
    harness = ClusterHarness({"news": 3}, brokers=3)
    harness.partition(1).leader_epoch = 4
    response = harness.ask(request("news"), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [
        (1, "localhost", 9001),
        (2, "localhost", 9002),
        (3, "localhost", 9003),
    ]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (harness.cluster.cluster_id if version >= 2 else None)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "news", False)
    assert topic.topic_id == (harness.topic().topic_id if version >= 10 else ZERO_UUID)
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 1), (1, 2), (2, 3)]
    assert topic.partitions[1].leader_epoch == (4 if version >= 7 else -1)
    assert topic.topic_authorized_operations == response.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics(version: int) -> None:
    harness = ClusterHarness({"news": 1, "sports": 1})
    response = harness.ask(everything(version), version)
    assert [topic.name for topic in response.topics] == ["news", "sports"], "no group has been looked up yet"
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    response = harness.ask(everything(version), version)
    assert {topic.name: topic.is_internal for topic in response.topics} == {
        "__consumer_offsets": version >= 1,
        "news": False,
        "sports": False,
    }


@pytest.mark.parametrize("version", ALL_VERSIONS[1:])
def test_no_topics(version: int) -> None:
    assert ClusterHarness().ask(request(), version).topics == []


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_an_unknown_topic_is_created_and_told_of_at_once(version: int) -> None:
    harness = ClusterHarness(config={"num.partitions": 4})
    (topic,) = harness.ask(request("fresh", "fresh"), version).topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (ErrorCode.NONE, "fresh", 4)
    assert "fresh" in harness.cluster.topics


@pytest.mark.parametrize(
    ("setting", "allowed", "name", "error"),
    [
        (False, True, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, False, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, True, "no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, True, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (False, True, "..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, True, "a.b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, False, "__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_topic_that_is_not_created(setting: bool, allowed: bool, name: str, error: ErrorCode) -> None:
    harness = ClusterHarness({"a_b": 1}, config={"auto.create.topics.enable": setting})
    response = harness.ask(request(name, allow_auto_topic_creation=allowed), 13)
    assert named(response) == {name: error}
    assert response.topics[0].is_internal == (name == "__transaction_state")
    assert name not in harness.cluster.topics


def test_the_transactions_topic_is_created_in_its_own_size() -> None:
    (topic,) = ClusterHarness().ask(request("__transaction_state"), 13).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 50)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version: int) -> None:
    harness = ClusterHarness()
    wanted = [
        MetadataRequestTopic(name=None, topic_id=harness.topic().topic_id),
        MetadataRequestTopic(name=None, topic_id=b"?" * 16),
        MetadataRequestTopic(name="overlooked", topic_id=ZERO_UUID),
    ]
    response = harness.ask(MetadataRequest(topics=wanted), version)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        ("news", harness.topic().topic_id, ErrorCode.NONE),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_neither_name_nor_id() -> None:
    assert named(ClusterHarness().ask(request(None), 12)) == {None: ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(("name", "topic_id"), [(None, ZERO_UUID), ("news", b"1" * 16)])
def test_versions_that_carry_ids_and_do_not_use_them(version: int, name: str | None, topic_id: bytes) -> None:
    (topic,) = ClusterHarness().ask(request(name, topic_id=topic_id), version).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.INVALID_REQUEST, name or "", topic_id)


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations(version: int) -> None:
    has_cluster = version <= 10
    asked = request("news", include_topic_authorized_operations=True, include_cluster_authorized_operations=has_cluster)
    response = ClusterHarness().ask(asked, version)
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == (8096 if has_cluster else NOT_ASKED)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_brokers_that_are_down(version: int) -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, config={"default.replication.factor": 2})
    harness.cluster.brokers[1].up = False
    response = harness.ask(request("news"), version, broker=2)
    assert [broker.node_id for broker in response.brokers] == [2]
    assert response.controller_id == (2 if version >= 1 else -1)
    led_by_1, led_by_2 = response.topics[0].partitions
    assert (led_by_1.error_code, led_by_1.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert led_by_2.leader_id == 2
    assert led_by_2.error_code == (ErrorCode.NONE if version else ErrorCode.REPLICA_NOT_AVAILABLE)
    assert led_by_2.replica_nodes == ([2, 1] if version else [2])
    assert led_by_2.isr_nodes == [2]
    assert led_by_2.offline_replicas == ([1] if version >= 5 else [])
