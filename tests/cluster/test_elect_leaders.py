"""ElectLeaders: preferred and unclean elections, their results and errors."""

from typing import Any

import pytest

from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.cluster.cluster_harness import ClusterHarness, response, versions
from tests.support.cluster.failover_harness import FailoverHarness
from tests.support.cluster.replicas import TWO_REPLICAS, leaders, start_broker, stop_brokers
from tests.support.group_requests import join_request

PREFERRED, UNCLEAN = 0, 1


def elect(
    harness: ClusterHarness,
    partitions: dict[str, list[int]] | None,
    election_type: int = PREFERRED,
    *,
    version: int = 2,
    broker: int = 1,
    timeout_ms: int = 60_000,
) -> Any:
    """Send a request for partitions by topic, None for all."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in partitions.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms)
    return harness.ask(request, version, broker=broker)


def errors(elected: Any) -> dict[str, ErrorCode]:
    """Return the errors of a response by partition, such as "news-0"."""
    return {
        f"{topic.topic}-{each.partition_id}": ErrorCode(each.error_code)
        for topic in elected.replica_election_results
        for each in topic.partition_result
    }


def messages(elected: Any) -> list[str | None]:
    return [each.error_message for topic in elected.replica_election_results for each in topic.partition_result]


def test_the_preferred_leader_is_elected_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("ElectLeaders"):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2}, brokers=2)
            stop_brokers(harness, 1)
            start_broker(harness, 1)
            assert leaders(harness) == [2, 2]
            epoch = harness.partition().leader_epoch
            elected = elect(harness, {"news": [0, 1, 7], "none": [0]}, version=version)
            assert elected.error_code == 0
            assert errors(elected) == {
                "news-0": ErrorCode.NONE,
                "news-1": ErrorCode.ELECTION_NOT_NEEDED,
                "news-7": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert messages(elected) == [
                None,
                "broker 2 is the leader of news-1 already",
                "there is no partition news-7",
                "there is no partition none-0",
            ]
            assert (leaders(harness), harness.partition().leader_epoch) == ([1, 2], epoch + 1)


def test_a_request_for_all_partitions_returns_those_that_needed_an_election(subtests: pytest.Subtests) -> None:
    for version in versions("ElectLeaders"):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2, "sports": 1}, brokers=2)
            stop_brokers(harness, 2)
            start_broker(harness, 2)
            elected = elect(harness, None, version=version)
            assert errors(elected) == {"news-1": ErrorCode.NONE, "sports-0": ErrorCode.NONE}
            assert [topic.topic for topic in elected.replica_election_results] == ["news", "sports"]
            assert leaders(harness) == [1, 2]


def test_a_preferred_leader_that_is_down_is_not_elected() -> None:
    harness = ClusterHarness({"news": 1}, brokers=2)
    stop_brokers(harness, 1)
    elected = elect(harness, {"news": [0]}, broker=2)
    assert errors(elected) == {"news-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert messages(elected) == ["broker 1, the preferred leader of news-0, is down"]


def test_a_preferred_election_without_leader_elects_any_replica() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
    stop_brokers(harness, 1, elect=False)
    assert leaders(harness) == [NO_LEADER]
    assert errors(elect(harness, {"news": [0]}, broker=2)) == {"news-0": ErrorCode.NONE}
    assert leaders(harness) == [2]
    stop_brokers(harness, 2)
    expected = {"news-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert errors(elect(harness, {"news": [0]}, broker=3)) == expected


def test_an_unclean_election_from_version_1_on(subtests: pytest.Subtests) -> None:
    for version in versions("ElectLeaders")[1:]:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3}, brokers=4, config=TWO_REPLICAS)
            stop_brokers(harness, 1, elect=False)
            elected = elect(harness, {"news": [0, 1]}, UNCLEAN, version=version, broker=4)
            assert errors(elected) == {"news-0": ErrorCode.NONE, "news-1": ErrorCode.ELECTION_NOT_NEEDED}
            assert leaders(harness) == [2, 2, 3]
            stop_brokers(harness, 2)
            elected = elect(harness, None, UNCLEAN, version=version, broker=4)
            assert errors(elected) == {"news-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
            assert messages(elected) == ["no replica of news-0 is up: expected one of [1, 2]"]


def test_invalid_requests_elect_nothing(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"election_type": 2}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT),
    ]
    for fields, error in cases:
        with subtests.test(**fields):
            harness = ClusterHarness(brokers=2)
            elected = elect(harness, {"news": [0]}, **fields)
            assert (elected.error_code, errors(elected)) == (error, {"news-0": error})
            elected = elect(harness, None, **fields)
            assert (elected.error_code, errors(elected)) == (error, {})
            assert elect(harness, {}, **fields).error_code == 0


def test_an_election_moves_a_coordinator_and_answers_its_parked_joins() -> None:
    group = FailoverHarness()
    harness = group.cluster_harness
    group.move_coordinator(2)
    second = harness.ask(join_request(), 9, broker=2).member_id
    parked = harness.send(join_request(member_id=second), 9, broker=2)
    assert parked.response is None
    assert errors(elect(harness, {"__consumer_offsets": [0]}, broker=3)) == {"__consumer_offsets-0": ErrorCode.NONE}
    assert response(parked).error_code == ErrorCode.NOT_COORDINATOR
    assert (group.heartbeat(2), group.found_coordinator()) == (ErrorCode.NOT_COORDINATOR, 1)
    assert group.committed(1) == 7
