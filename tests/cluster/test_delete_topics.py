"""DeleteTopics: topics by name and by id, and requests that delete nothing."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

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


def test_internal_topics_are_not_deleted() -> None:
    harness = ClusterHarness()
    harness.cluster.topics.show_offsets_topic()
    response = harness.ask(request_by_name(5, "__consumer_offsets"), 5)
    assert results(response)[0][2] == ErrorCode.INVALID_REQUEST
    assert "__consumer_offsets" in harness.cluster.topics


def test_no_topic_is_deleted_if_the_timeout_is_not_positive() -> None:
    harness = ClusterHarness()
    for timeout_ms in (0, -1):
        response = harness.ask(DeleteTopicsRequest(topic_names=["news"], timeout_ms=timeout_ms), 5)
        assert results(response)[0][2] == ErrorCode.REQUEST_TIMED_OUT, timeout_ms
        assert "news" in harness.cluster.topics
