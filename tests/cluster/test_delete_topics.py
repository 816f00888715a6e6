"""DeleteTopics: by name and by id, each at most once."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

ALL_VERSIONS = versions("DeleteTopics")
UNKNOWN_ID = b"?" * 16


def by_name(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    return states(*((name, ZERO_UUID) for name in names))


def states(*topics: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    named = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=named, timeout_ms=1000)


def results(response: Any) -> list[tuple[str | None, bytes, ErrorCode]]:
    return [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in response.responses]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_by_name(version: int) -> None:
    harness = ClusterHarness({"news": 1, "sports": 1})
    topic_id = harness.topic().topic_id if version >= 6 else ZERO_UUID
    response = harness.ask(by_name(version, "news", "absent"), version)
    assert results(response) == [
        ("news", topic_id, ErrorCode.NONE),
        ("absent", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert response.responses[0].error_message is None
    assert response.responses[1].error_message == ("there is no topic 'absent'" if version >= 5 else None)
    assert "news" not in harness.cluster.topics
    assert "sports" in harness.cluster.topics


def test_by_id() -> None:
    harness = ClusterHarness({"news": 1})
    topic_id = harness.topic().topic_id
    assert results(harness.ask(states((None, topic_id), (None, UNKNOWN_ID)), 6)) == [
        ("news", topic_id, ErrorCode.NONE),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert "news" not in harness.cluster.topics


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        pytest.param([("news", 0), ("news", 0)], [("news", 0)], id="name twice"),
        pytest.param([(None, 1), (None, 1)], [(None, 1)], id="id twice"),
        pytest.param([("news", 0), (None, 1)], [("news", 1), ("news", 1)], id="name and id of one topic"),
        pytest.param([("news", 1)], [("news", 1)], id="name and id in one place"),
        pytest.param([(None, 0)], [(None, 0)], id="neither"),
    ],
)
def test_requests_that_delete_nothing(
    topics: list[tuple[str | None, int]], expected: list[tuple[str | None, int]]
) -> None:
    harness = ClusterHarness({"news": 1})
    ids = (ZERO_UUID, harness.topic().topic_id)
    response = harness.ask(states(*((name, ids[which]) for name, which in topics)), 6)
    assert results(response) == [(name, ids[which], ErrorCode.INVALID_REQUEST) for name, which in expected]
    assert "news" in harness.cluster.topics


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_deletion_can_be_forbidden(version: int) -> None:
    harness = ClusterHarness({"news": 1}, config={"delete.topic.enable": False})
    error = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert results(harness.ask(by_name(version, "news"), version)) == [("news", ZERO_UUID, error)]
    assert "news" in harness.cluster.topics


def test_internal_topics_stay() -> None:
    harness = ClusterHarness()
    assert results(harness.ask(by_name(5, "__consumer_offsets"), 5))[0][2] == ErrorCode.INVALID_REQUEST
    assert "__consumer_offsets" in harness.cluster.topics


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_time_left_nothing_is_done(timeout_ms: int) -> None:
    harness = ClusterHarness()
    asked = DeleteTopicsRequest(topic_names=["news"], timeout_ms=timeout_ms)
    assert results(harness.ask(asked, 5))[0][2] == ErrorCode.REQUEST_TIMED_OUT
    assert "news" in harness.cluster.topics
