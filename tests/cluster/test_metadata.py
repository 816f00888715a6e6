"""Metadata: brokers, topics by name, by id and all, and topics that are created by a request."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import NOT_REQUESTED, ClusterHarness, versions

ALL_VERSIONS = versions("Metadata")


def request(*names: str | None, topic_id: bytes = ZERO_UUID, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic_id) for name in names], **fields)


def request_for_all(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


def errors(response: Any) -> dict[str | None, ErrorCode]:
    """Return the error of each topic by name."""
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


def test_brokers_topics_and_leaders_in_each_version(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness({"news": 3}, brokers=3)
    harness.partition(1).leader_epoch = 4
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
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
            assert topic.topic_authorized_operations == response.cluster_authorized_operations == NOT_REQUESTED


def test_all_topics_include_the_offsets_topic_after_a_coordinator_was_found(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 1, "sports": 1})
            response = harness.ask(request_for_all(version), version)
            assert [topic.name for topic in response.topics] == ["news", "sports"]
            harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            response = harness.ask(request_for_all(version), version)
            assert {topic.name: topic.is_internal for topic in response.topics} == {
                "__consumer_offsets": version >= 1,
                "news": False,
                "sports": False,
            }


def test_an_empty_list_requests_no_topics_from_version_1_on(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS[1:]:
        with subtests.test(version=version):
            assert ClusterHarness().ask(request(), version).topics == []


def test_a_topic_is_created_and_returned_by_the_same_request(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(config={"num.partitions": 4})
            (topic,) = harness.ask(request("fresh", "fresh"), version).topics
            assert (topic.error_code, topic.name, len(topic.partitions)) == (ErrorCode.NONE, "fresh", 4)
            assert "fresh" in harness.cluster.topics


def test_a_topic_is_not_created(subtests: pytest.Subtests) -> None:
    for setting, allowed, name, error in [
        (False, True, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, False, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, True, "no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, True, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (False, True, "..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, True, "a.b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, False, "__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]:
        with subtests.test(name=name, setting=setting, allowed=allowed):
            harness = ClusterHarness({"a_b": 1}, config={"auto.create.topics.enable": setting})
            response = harness.ask(request(name, allow_auto_topic_creation=allowed), 13)
            assert errors(response) == {name: error}
            assert response.topics[0].is_internal == (name == "__transaction_state")
            assert name not in harness.cluster.topics


def test_the_transactions_topic_is_created_with_50_partitions() -> None:
    (topic,) = ClusterHarness().ask(request("__transaction_state"), 13).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 50)


def test_topics_are_found_by_id_and_those_without_id_are_ignored(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    topic_id = harness.topic().topic_id
    topics = [
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None, topic_id=b"?" * 16),
        MetadataRequestTopic(name="ignored", topic_id=ZERO_UUID),
    ]
    for version in ALL_VERSIONS[12:]:
        with subtests.test(version=version):
            response = harness.ask(MetadataRequest(topics=topics), version)
            assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
                ("news", topic_id, ErrorCode.NONE),
                (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
            ]


def test_a_topic_without_name_and_id_fails_the_request(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS[12:]:
        with subtests.test(version=version):
            response = ClusterHarness().ask(request(None, "news"), version)
            assert errors(response) == dict.fromkeys(("", "news"), ErrorCode.UNKNOWN_SERVER_ERROR)
            assert response.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version >= 13 else ErrorCode.NONE)
            assert (response.brokers, response.cluster_id, response.controller_id) == ([], None, -1)
            assert response.cluster_authorized_operations == NOT_REQUESTED
    response = ClusterHarness().ask(request(None, topic_id=b"1" * 16), 12)
    assert errors(response) == {None: ErrorCode.UNKNOWN_TOPIC_ID}


def test_ids_and_missing_names_are_invalid_in_versions_10_and_11(subtests: pytest.Subtests) -> None:
    for version in (10, 11):
        for name, topic_id in [(None, ZERO_UUID), ("news", b"1" * 16)]:
            with subtests.test(version=version, name=name):
                response = ClusterHarness().ask(request(name, topic_id=topic_id), version)
                assert (response.brokers, response.cluster_id, response.controller_id) == ([], None, -1)
                (topic,) = response.topics
                assert (topic.error_code, topic.name, topic.topic_id) == (
                    ErrorCode.INVALID_REQUEST,
                    name or "",
                    topic_id,
                )


def test_authorized_operations_are_returned_on_request(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS[8:]:
        with subtests.test(version=version):
            of_cluster = version <= 10
            response = ClusterHarness().ask(
                request(
                    "news",
                    include_topic_authorized_operations=True,
                    include_cluster_authorized_operations=of_cluster,
                ),
                version,
            )
            assert response.topics[0].topic_authorized_operations == 3576
            assert response.cluster_authorized_operations == (8096 if of_cluster else NOT_REQUESTED)


def test_topics_that_do_not_exist_have_authorized_operations(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS[8:]:
        for asked in (True, False):
            with subtests.test(version=version, asked=asked):
                wanted = request("missing", "a/b", allow_auto_topic_creation=False)
                wanted.include_topic_authorized_operations = asked
                response = ClusterHarness().ask(wanted, version)
                assert errors(response) == {
                    "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
                }
                operations = {topic.topic_authorized_operations for topic in response.topics}
                assert operations == {3576 if asked else NOT_REQUESTED}


def test_brokers_that_are_down_in_each_version(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, config={"default.replication.factor": 2})
    harness.cluster.brokers[1].up = False
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
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
