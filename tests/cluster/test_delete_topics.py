"""DeleteTopics: topics by name and by id, and requests that delete nothing."""

from typing import Any

import pytest

from fakebroker.cluster.first_use import FirstUseMode
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, response, versions
from tests.support.cluster.replicas import create_topics, new_topic
from tests.support.group_requests import commit_of, heartbeat_request, join_request, offset_to_commit

ALL_VERSIONS = versions("DeleteTopics")
UNKNOWN_ID = b"?" * 16


def request_by_name(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    return request(*((name, ZERO_UUID) for name in names))


def request(*topics: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    """Return a request of version 6, for topics by name and id."""
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=states, timeout_ms=1000)


def results(response: Any) -> list[tuple[str | None, bytes, ErrorCode]]:
    return [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in response.responses]


def test_delete_by_name_in_each_version(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 1, "sports": 1})
            topic_id = harness.topic().topic_id if version >= 6 else ZERO_UUID
            response = harness.ask(request_by_name(version, "news", "absent"), version)
            assert results(response) == [
                ("news", topic_id, ErrorCode.NONE),
                ("absent", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            assert response.responses[0].error_message is None
            assert response.responses[1].error_message == ("there is no topic 'absent'" if version >= 5 else None)
            assert "news" not in harness.cluster.topics
            assert "sports" in harness.cluster.topics


def test_delete_by_id() -> None:
    harness = ClusterHarness({"news": 1})
    topic_id = harness.topic().topic_id
    assert results(harness.ask(request((None, topic_id), (None, UNKNOWN_ID)), 6)) == [
        ("news", topic_id, ErrorCode.NONE),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert "news" not in harness.cluster.topics


def test_duplicates_and_ambiguous_topics_are_not_deleted(subtests: pytest.Subtests) -> None:
    no_id, topic_id = ZERO_UUID, ClusterHarness({"news": 1}).topic().topic_id  # Every harness generates the same ids.
    cases: dict[str, tuple[list[tuple[str | None, bytes]], list[tuple[str | None, bytes]]]] = {
        "name twice": ([("news", no_id), ("news", no_id)], [("news", no_id)]),
        "id twice": ([(None, topic_id), (None, topic_id)], [(None, topic_id)]),
        "name and id of one topic": ([("news", no_id), (None, topic_id)], [("news", topic_id), ("news", topic_id)]),
        "name and id together": ([("news", topic_id)], [("news", topic_id)]),
        "neither name nor id": ([(None, no_id)], [(None, no_id)]),
    }
    for case, (topics, expected) in cases.items():
        with subtests.test(case):
            harness = ClusterHarness({"news": 1})
            response = harness.ask(request(*topics), 6)
            assert results(response) == [(*topic, ErrorCode.INVALID_REQUEST) for topic in expected]
            assert "news" in harness.cluster.topics


def test_deletion_can_be_disabled(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 1}, config={"delete.topic.enable": False})
            error = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
            response = harness.ask(request_by_name(version, "news"), version)
            assert results(response) == [("news", ZERO_UUID, error)]
            assert "news" in harness.cluster.topics


def delete_internal(harness: ClusterHarness, name: str) -> None:
    former_id = harness.topic(name).topic_id
    assert results(harness.ask(request_by_name(5, name), 5)) == [(name, ZERO_UUID, ErrorCode.NONE)]
    assert name not in harness.cluster.topics
    assert harness.cluster.topics.find("", former_id, by_id=True) is None


def find(harness: ClusterHarness, key: str, key_type: int) -> ErrorCode:
    """Return the error of FindCoordinator."""
    (found,) = harness.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4).coordinators
    return ErrorCode(found.error_code)


@pytest.mark.parametrize("first_use", ["ready", "kafka"])
def test_all_groups_are_deleted_with_their_topic(first_use: FirstUseMode) -> None:
    harness = ClusterHarness(brokers=2, config={"group.initial.rebalance.delay.ms": 5_000}, first_use=first_use)
    find(harness, "g", 0)
    harness.advance(1_000)
    assert find(harness, "g", 0) == 0
    node_id = harness.cluster.offsets_partition_of("g").leader_id
    commit = commit_of(offset_to_commit(0, 5))
    assert harness.ask(commit, 8, broker=node_id).topics[0].partitions[0].error_code == ErrorCode.NONE
    parked = harness.send(join_request("h"), 3, broker=harness.cluster.offsets_partition_of("h").leader_id)
    assert not parked.has_response

    delete_internal(harness, "__consumer_offsets")

    assert response(parked).error_code == ErrorCode.NOT_COORDINATOR
    for broker in (1, 2):
        assert harness.ask(heartbeat_request(), 4, broker=broker).error_code == ErrorCode.NOT_COORDINATOR
        assert harness.ask(ListGroupsRequest(), 4, broker=broker).groups == []
    if first_use == "kafka":
        assert find(harness, "g", 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.advance(1_000)
    assert find(harness, "g", 0) == ErrorCode.NONE
    assert harness.ask(commit, 8, broker=node_id).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert [each.group_id for each in harness.ask(ListGroupsRequest(), 4, broker=node_id).groups] == ["g"]


@pytest.mark.parametrize("first_use", ["ready", "kafka"])
def test_all_transactional_ids_are_deleted_with_their_topic(first_use: FirstUseMode) -> None:
    harness = ClusterHarness(first_use=first_use)
    find(harness, "t", 1)
    harness.advance(1_000)
    assert find(harness, "t", 1) == ErrorCode.NONE
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    first = harness.ask(init, 4)
    assert first.error_code == ErrorCode.NONE

    delete_internal(harness, "__transaction_state")

    assert harness.ask(init, 4).error_code == ErrorCode.NOT_COORDINATOR
    if first_use == "kafka":
        assert find(harness, "t", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.advance(1_000)
    assert find(harness, "t", 1) == ErrorCode.NONE
    again = harness.ask(init, 4)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, 0)
    assert again.producer_id != first.producer_id


def test_a_client_creates_a_topic_of_groups_that_was_deleted() -> None:
    harness = ClusterHarness()
    harness.cluster.topics.show_offsets_topic()
    delete_internal(harness, "__consumer_offsets")
    (created,) = create_topics(harness, new_topic("__consumer_offsets", partitions=7))
    assert created.error_code == ErrorCode.NONE
    assert harness.ask(heartbeat_request(), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_no_topic_is_deleted_if_the_timeout_is_not_positive() -> None:
    harness = ClusterHarness()
    for timeout_ms in (0, -1):
        response = harness.ask(DeleteTopicsRequest(topic_names=["news"], timeout_ms=timeout_ms), 5)
        assert results(response)[0][2] == ErrorCode.REQUEST_TIMED_OUT, timeout_ms
        assert "news" in harness.cluster.topics
