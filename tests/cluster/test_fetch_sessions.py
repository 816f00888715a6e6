"""Incremental fetch sessions (KIP-227): requests, responses, errors, and the end of a session."""

from typing import Any

import pytest

from fakebroker.cluster.logs.fetch_sessions import EVICTION_MS
from fakebroker.errors import ErrorCode
from tests.support.cluster.cluster_harness import ClusterHarness, batch
from tests.support.cluster.fetching_client import FetchingClient

VERSIONS = range(7, 19)
ONE = batch(b"a")


def sizes(response: Any) -> dict[int, int]:
    """Return the size of the records in bytes, for each partition in a response."""
    return {each.partition_index: len(each.records) for topic in response.responses for each in topic.partitions}


def append(harness: ClusterHarness, index: int, times: int = 1) -> None:
    for _ in range(times):
        harness.partition(index).log.append(ONE, 0)


def test_a_response_contains_only_changed_partitions(subtests: pytest.Subtests) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3})
            client = FetchingClient(harness, version)
            assert sizes(client.fetch({0: 0, 1: 0, 2: 0})) == {0: 0, 1: 0, 2: 0}
            assert client.session_id == 1
            assert sizes(client.fetch()) == {}
            append(harness, 1)
            assert sizes(client.fetch()) == {1: 69}
            assert sizes(client.fetch({1: 1})) == {}
            assert sizes(client.fetch()) == {}


def test_partitions_are_added_and_forgotten(subtests: pytest.Subtests) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3})
            client = FetchingClient(harness, version)
            client.fetch({0: 0, 1: 0})
            for index in range(3):
                append(harness, index)
            assert sizes(client.fetch({2: 1}, forget=[0])) == {1: 69, 2: 0}


def test_a_new_log_start_offset_and_an_error_are_changes() -> None:
    harness = ClusterHarness(brokers=2)
    append(harness, 0, times=2)
    client = FetchingClient(harness)
    client.fetch({0: 2})
    harness.partition().log.truncate_before(1)
    assert sizes(client.fetch()) == {0: 0}
    assert sizes(client.fetch()) == {}
    harness.partition().leader_id = 2
    harness.partition().replicas = (2,)
    errors = [client.fetch().responses[0].partitions[0].error_code for _ in range(2)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    harness.partition().leader_id = 1
    harness.partition().replicas = (1,)
    assert sizes(client.fetch()) == {0: 0}, "the first result after an error is returned"


def test_partitions_with_records_move_to_the_end() -> None:
    harness = ClusterHarness({"news": 3})
    client = FetchingClient(harness)
    client.fetch({0: 0, 1: 0, 2: 0})
    for index in range(3):
        append(harness, index, times=5)
    partitions_with_records = [
        [index for index, size in sizes(client.fetch(max_bytes=1)).items() if size] for _ in range(4)
    ]
    assert partitions_with_records == [[0], [1], [2], [0]]


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, ErrorCode.NONE),
    ],
)
def test_invalid_session_ids_and_epochs(
    subtests: pytest.Subtests, session_id: int, epoch: int, error: ErrorCode
) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            client = FetchingClient(harness, version)
            client.fetch({0: 0})
            client.session_id, client.epoch = session_id, epoch
            response = client.fetch()
            assert (response.error_code, response.responses) == (error, [])
            assert response.session_id == (1 if error is ErrorCode.NONE else 0)


@pytest.mark.parametrize(("before", "after"), [(12, 13), (13, 12)])
def test_a_session_uses_either_names_or_ids(before: int, after: int) -> None:
    client = FetchingClient(ClusterHarness(), before)
    client.fetch({0: 0})
    client.version = after
    assert client.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session() -> None:
    harness = ClusterHarness()
    client = FetchingClient(harness)
    client.fetch({0: 0})
    sessions = harness.cluster.brokers[1].fetch_sessions
    assert len(sessions) == 1
    client.epoch = -1
    response = client.fetch({0: 0})
    assert (response.error_code, response.session_id, sizes(response)) == (ErrorCode.NONE, 0, {0: 0})
    assert len(sessions) == 0


def test_a_full_request_replaces_its_session() -> None:
    harness = ClusterHarness()
    client = FetchingClient(harness)
    client.fetch({0: 0})
    client.epoch = 0
    assert client.fetch({0: 0}).session_id == 2
    assert len(harness.cluster.brokers[1].fetch_sessions) == 1


def test_a_session_without_partitions_is_closed() -> None:
    harness = ClusterHarness()
    client = FetchingClient(harness)
    client.fetch({0: 0})
    assert client.fetch(forget=[0]).session_id == 0
    assert len(harness.cluster.brokers[1].fetch_sessions) == 0


def test_epochs_wrap_around_to_1() -> None:
    harness = ClusterHarness()
    client = FetchingClient(harness)
    client.fetch({0: 0})
    sessions = harness.cluster.brokers[1].fetch_sessions
    sessions._sessions[1].epoch = client.epoch = 2**31 - 1
    client.fetch()
    client.epoch = 1
    assert client.fetch().error_code == ErrorCode.NONE


def test_a_waiting_request_whose_session_was_used_meanwhile_fails() -> None:
    harness = ClusterHarness()
    client = FetchingClient(harness)
    client.fetch({0: 0})
    request = client.request()
    request.max_wait_ms = 500
    waiting = harness.send(request, 12)
    client.epoch += 1
    assert client.fetch().error_code == ErrorCode.NONE
    harness.advance(500)
    assert waiting.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_without_slots_there_are_no_sessions() -> None:
    client = FetchingClient(ClusterHarness(config={"max.incremental.fetch.session.cache.slots": 0}))
    assert client.fetch({0: 0}).session_id == 0


@pytest.mark.parametrize(
    ("old_size", "used_after_ms", "unused_ms", "new_size", "is_evicted"),
    [
        pytest.param(1, 0, 0, 2, False, id="new"),
        pytest.param(2, 0, EVICTION_MS, 1, False, id="unused for the limit exactly"),
        pytest.param(2, 0, EVICTION_MS + 1, 1, True, id="unused for longer"),
        pytest.param(1, EVICTION_MS + 1, 0, 2, True, id="old, and smaller"),
        pytest.param(2, EVICTION_MS + 1, 0, 2, False, id="old, and as large"),
    ],
)
def test_eviction_from_a_full_cache(
    old_size: int, used_after_ms: int, unused_ms: int, new_size: int, is_evicted: bool
) -> None:
    harness = ClusterHarness({"news": 2}, config={"max.incremental.fetch.session.cache.slots": 1})
    old, new = FetchingClient(harness), FetchingClient(harness)
    old.fetch(dict.fromkeys(range(old_size), 0))
    harness.advance(used_after_ms)
    old.fetch()
    harness.advance(unused_ms)
    assert new.fetch(dict.fromkeys(range(new_size), 0)).session_id == (2 if is_evicted else 0)
    error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if is_evicted else ErrorCode.NONE
    assert old.fetch().error_code == error
