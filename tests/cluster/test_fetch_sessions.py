"""Fetch sessions (KIP-227): what later requests and responses may leave out, and how a session ends."""

from typing import Any

import pytest

from fakebroker.cluster.logs.fetch_sessions import EVICTION_MS
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, batch

VERSIONS = range(7, 19)
ONE = batch(b"a")


class Client:
    """One consumer and its session."""

    def __init__(self, harness: ClusterHarness, version: int = 12) -> None:
        self.harness = harness
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(
        self, offsets: dict[int, int] | None = None, forget: list[int] | None = None, max_bytes: int = 2**20
    ) -> FetchRequest:
        by_id = self.version >= 13
        name = "" if by_id else "news"
        topic_id = self.harness.topic().topic_id if by_id else ZERO_UUID
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**20)
            for index, offset in (offsets or {}).items()
        ]
        forgotten = ForgottenTopic(topic=name, topic_id=topic_id, partitions=forget or [])
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[forgotten] if forget else [],
        )

    def fetch(self, *args: Any, **fields: Any) -> Any:
        """Fetch, and take what was answered as a client would."""
        answer = self.harness.ask(self.request(*args, **fields), self.version)
        if answer.error_code == ErrorCode.NONE:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer


def told(answer: Any) -> dict[int, int]:
    """The partitions in a response and how many bytes each has."""
    return {each.partition_index: len(each.records) for topic in answer.responses for each in topic.partitions}


def append(harness: ClusterHarness, index: int, times: int = 1) -> None:
    for _ in range(times):
        harness.partition(index).log.append(ONE, 0)


def test_a_session_tells_of_news_alone(subtests: pytest.Subtests) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3})
            client = Client(harness, version)
            assert told(client.fetch({0: 0, 1: 0, 2: 0})) == {0: 0, 1: 0, 2: 0}
            assert client.session_id == 1
            assert told(client.fetch()) == {}
            append(harness, 1)
            assert told(client.fetch()) == {1: 69}
            assert told(client.fetch({1: 1})) == {}
            assert told(client.fetch()) == {}


def test_partitions_come_and_go(subtests: pytest.Subtests) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3})
            client = Client(harness, version)
            client.fetch({0: 0, 1: 0})
            for index in range(3):
                append(harness, index)
            assert told(client.fetch({2: 1}, forget=[0])) == {1: 69, 2: 0}


def test_a_moved_log_start_and_an_error_are_news() -> None:
    harness = ClusterHarness(brokers=2)
    append(harness, 0, times=2)
    client = Client(harness)
    client.fetch({0: 2})
    harness.partition().log.truncate_before(1)
    assert told(client.fetch()) == {0: 0}
    assert told(client.fetch()) == {}
    harness.partition().leader_id = 2
    harness.partition().replicas = (2,)
    errors = [client.fetch().responses[0].partitions[0].error_code for _ in range(2)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    harness.partition().leader_id = 1
    harness.partition().replicas = (1,)
    assert told(client.fetch()) == {0: 0}, "the end of an error is news"


def test_partitions_with_records_go_to_the_end() -> None:
    harness = ClusterHarness({"news": 3})
    client = Client(harness)
    client.fetch({0: 0, 1: 0, 2: 0})
    for index in range(3):
        append(harness, index, times=5)
    served = [[index for index, size in told(client.fetch(max_bytes=1)).items() if size] for _ in range(4)]
    assert served == [[0], [1], [2], [0]]


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, ErrorCode.NONE),
    ],
)
def test_a_request_must_fit_its_session(
    subtests: pytest.Subtests, session_id: int, epoch: int, error: ErrorCode
) -> None:
    for version in VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            client = Client(harness, version)
            client.fetch({0: 0})
            client.session_id, client.epoch = session_id, epoch
            answer = client.fetch()
            assert (answer.error_code, answer.responses) == (error, [])
            assert answer.session_id == (1 if error is ErrorCode.NONE else 0)


@pytest.mark.parametrize(("before", "after"), [(12, 13), (13, 12)])
def test_a_session_is_by_name_or_by_id(before: int, after: int) -> None:
    client = Client(ClusterHarness(), before)
    client.fetch({0: 0})
    client.version = after
    assert client.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_ends_a_session() -> None:
    harness = ClusterHarness()
    client = Client(harness)
    client.fetch({0: 0})
    sessions = harness.cluster.brokers[1].fetch_sessions
    assert len(sessions) == 1
    client.epoch = -1
    answer = client.fetch({0: 0})
    assert (answer.error_code, answer.session_id, told(answer)) == (ErrorCode.NONE, 0, {0: 0})
    assert len(sessions) == 0


def test_a_full_request_replaces_its_session() -> None:
    harness = ClusterHarness()
    client = Client(harness)
    client.fetch({0: 0})
    client.epoch = 0
    assert client.fetch({0: 0}).session_id == 2
    assert len(harness.cluster.brokers[1].fetch_sessions) == 1


def test_a_session_without_partitions_ends() -> None:
    harness = ClusterHarness()
    client = Client(harness)
    client.fetch({0: 0})
    assert client.fetch(forget=[0]).session_id == 0
    assert len(harness.cluster.brokers[1].fetch_sessions) == 0


def test_epochs_start_over_at_1() -> None:
    harness = ClusterHarness()
    client = Client(harness)
    client.fetch({0: 0})
    sessions = harness.cluster.brokers[1].fetch_sessions
    sessions._sessions[1].epoch = client.epoch = 2**31 - 1
    client.fetch()
    client.epoch = 1
    assert client.fetch().error_code == ErrorCode.NONE


def test_a_request_that_waited_while_its_session_went_on() -> None:
    harness = ClusterHarness()
    client = Client(harness)
    client.fetch({0: 0})
    request = client.request()
    request.max_wait_ms = 500
    waiting = harness.send(request, 12)
    client.epoch += 1
    assert client.fetch().error_code == ErrorCode.NONE
    harness.advance(500)
    assert waiting.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_no_slots_no_sessions() -> None:
    client = Client(ClusterHarness(config={"max.incremental.fetch.session.cache.slots": 0}))
    assert client.fetch({0: 0}).session_id == 0


@pytest.mark.parametrize(
    ("old_size", "touched_after_ms", "asked_after_ms", "new_size", "is_evicted"),
    [
        pytest.param(1, 0, 0, 2, False, id="new sessions are safe"),
        pytest.param(2, 0, EVICTION_MS, 1, False, id="in use until just now"),
        pytest.param(2, 0, EVICTION_MS + 1, 1, True, id="unused for long"),
        pytest.param(1, EVICTION_MS + 1, 0, 2, True, id="old, and smaller"),
        pytest.param(2, EVICTION_MS + 1, 0, 2, False, id="old, and as large"),
    ],
)
def test_full_cache(old_size: int, touched_after_ms: int, asked_after_ms: int, new_size: int, is_evicted: bool) -> None:
    harness = ClusterHarness({"news": 2}, config={"max.incremental.fetch.session.cache.slots": 1})
    old, new = Client(harness), Client(harness)
    old.fetch(dict.fromkeys(range(old_size), 0))
    harness.advance(touched_after_ms)
    old.fetch()
    harness.advance(asked_after_ms)
    assert new.fetch(dict.fromkeys(range(new_size), 0)).session_id == (2 if is_evicted else 0)
    error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if is_evicted else ErrorCode.NONE
    assert old.fetch().error_code == error
