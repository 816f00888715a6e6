"""Where partitions are and who leads them: placement, in-sync replicas, growth and elections."""

from typing import Any

import pytest

from fakebroker.cluster.controller import Failover
from fakebroker.cluster.handlers.controller_requests import MAX_RECORDS_PER_USER_OP
from fakebroker.cluster.topics import NO_LEADER, spread
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fakebroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.test_controller import Group
from tests.cluster.test_create_topics import create, topic
from tests.cluster.test_group_apis import join
from tests.support.cluster.cluster_harness import ClusterHarness, response, versions

PREFERRED, UNCLEAN = 0, 1
TWO: dict[str, object] = {"default.replication.factor": 2}


def leaders(harness: ClusterHarness, name: str = "news") -> list[int]:
    return [partition.leader_id for partition in harness.topic(name).partitions]


def replicas(harness: ClusterHarness, name: str = "news") -> list[tuple[int, ...]]:
    return [partition.replicas for partition in harness.topic(name).partitions]


def stop(harness: ClusterHarness, *node_ids: int, elect: bool = True) -> None:
    for node_id in node_ids:
        broker = harness.cluster.brokers[node_id]
        harness.cluster.controller.stop_broker(broker, harness.now_ms, Failover(), elect=elect)


def start(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.start_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


def described(harness: ClusterHarness, broker: int = 1) -> Any:
    """What Metadata tells of the only partition of "news"."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="news")])
    (partition,) = harness.ask(request, 12, broker=broker).topics[0].partitions
    return partition


# Placement


def test_each_topic_begins_at_another_broker() -> None:
    harness = ClusterHarness({}, brokers=3)
    for name in ("a", "b", "c", "d"):
        create(harness, topic(name, partitions=4, factor=2))
    assert [leaders(harness, name) for name in ("a", "b", "c", "d")] == [
        [1, 2, 3, 1],
        [2, 3, 1, 2],
        [3, 1, 2, 3],
        [1, 2, 3, 1],
    ]
    assert replicas(harness, "b") == [(2, 3), (3, 1), (1, 2), (2, 3)]


def test_topics_named_at_the_start_begin_at_the_first_broker() -> None:
    harness = ClusterHarness({"news": 3, "sports": 2}, brokers=3)
    assert (leaders(harness), leaders(harness, "sports")) == ([1, 2, 3], [1, 2])
    harness.cluster.create_new_topic("more", 2)
    assert leaders(harness, "more") == [1, 2]


def test_topics_that_metadata_creates_take_turns_with_the_others() -> None:
    harness = ClusterHarness({}, brokers=3)
    create(harness, topic("a", partitions=1))
    harness.ask(MetadataRequest(topics=[MetadataRequestTopic(name="b")]), 12)
    assert (leaders(harness, "a"), leaders(harness, "b")) == ([1], [2])


def test_brokers_that_are_down_get_replicas_only_if_others_are_too_few() -> None:
    harness = ClusterHarness({}, brokers=4)
    stop(harness, 2, 3)
    create(harness, topic("a", partitions=2, factor=2))
    assert replicas(harness, "a") == [(1, 4), (4, 1)]
    create(harness, topic("b", partitions=2, factor=3))
    assert replicas(harness, "b") == [(4, 1, 3), (1, 4, 2)]
    assert leaders(harness, "b") == [4, 1]


def test_an_assignment_is_led_by_the_first_that_is_up() -> None:
    harness = ClusterHarness({}, brokers=3)
    stop(harness, 2)
    create(harness, topic("a", partitions=-1, factor=-1, assignments={0: [2, 3]}))
    assert (replicas(harness, "a"), leaders(harness, "a")) == ([(2, 3)], [3])
    (result,) = create(harness, topic("b", partitions=-1, factor=-1, assignments={0: [2]}))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message == "partition 0 on brokers [2], which are down: expected one that is up"


@pytest.mark.parametrize("version", versions("CreateTopics"))
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_topics_without_time(version: int, timeout_ms: int) -> None:
    harness = ClusterHarness({})
    asked = CreatableTopic(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (result,) = harness.ask(CreateTopicsRequest(topics=[asked], timeout_ms=timeout_ms), version).topics
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "a" not in harness.cluster.topics


def test_spread_when_nothing_is_down() -> None:
    assert spread(3, 2, [1, 2, 3], first=2) == [[3, 1], [1, 2], [2, 3]]


# In-sync replicas


def test_brokers_leave_the_in_sync_replicas_and_come_back() -> None:
    harness = ClusterHarness(brokers=3)
    stop(harness, 1)
    told = described(harness, 2)
    assert (told.leader_id, told.replica_nodes, told.isr_nodes, told.offline_replicas) == (2, [1, 2, 3], [2, 3], [1])
    start(harness, 1)
    told = described(harness)
    assert (told.leader_id, told.isr_nodes, told.offline_replicas) == (2, [1, 2, 3], [])


def test_the_last_leader_stays_in_sync() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4)
    stop(harness, 3, 1, 2)
    told = described(harness, 4)
    assert (told.error_code, told.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    assert (told.isr_nodes, told.offline_replicas) == ([2], [1, 2, 3])
    start(harness, 3)
    assert (described(harness).leader_id, described(harness).isr_nodes) == (3, [3])


# CreatePartitions


def grow(
    harness: ClusterHarness,
    *asked: tuple[str, int] | tuple[str, int, list[list[int]]],
    version: int = 3,
    timeout_ms: int = 60_000,
    validate_only: bool = False,
) -> list[Any]:
    topics = []
    for name, count, *assignments in asked:
        lists = [CreatePartitionsAssignment(broker_ids=each) for each in assignments[0]] if assignments else None
        topics.append(CreatePartitionsTopic(name=name, count=count, assignments=lists))
    request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    results: list[Any] = harness.ask(request, version).results
    return results


@pytest.mark.parametrize("version", versions("CreatePartitions"))
def test_more_partitions(version: int) -> None:
    harness = ClusterHarness({"news": 2}, brokers=3, config=TWO)
    (result,) = grow(harness, ("news", 4), version=version)
    assert (result.name, result.error_code, result.error_message) == ("news", ErrorCode.NONE, None)
    assert replicas(harness) == [(1, 2), (2, 3), (3, 1), (1, 2)]
    (result,) = grow(harness, ("news", 5, [[3, 2]]), version=version)
    assert result.error_code == ErrorCode.NONE
    assert (replicas(harness)[4], leaders(harness)[4]) == ((3, 2), 3)


def test_more_partitions_while_a_broker_is_down() -> None:
    harness = ClusterHarness({"news": 2}, brokers=3, config=TWO)
    stop(harness, 3)
    grow(harness, ("news", 4))
    assert replicas(harness)[2:] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("version", versions("CreatePartitions"))
def test_partitions_that_are_only_validated(version: int) -> None:
    harness = ClusterHarness({"news": 1})
    results = grow(harness, ("news", 3), ("none", 3), version=version, validate_only=True)
    assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(replicas(harness)) == 1


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'none'"),
        (("news", 2), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 2 partitions: expected 3 to 100000"),
        (("news", 1), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 1 partitions: expected 3 to 100000"),
        (("news", 0), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 0 partitions: expected 3 to 100000"),
        (("news", -1), ErrorCode.INVALID_PARTITIONS, "topic 'news' with -1 partitions: expected 3 to 100000"),
        (("news", 2**31 - 1), ErrorCode.INVALID_PARTITIONS, "expected 3 to 100000"),
        (
            ("news", MAX_RECORDS_PER_USER_OP + 3),
            ErrorCode.POLICY_VIOLATION,
            "10001 more partitions of 'news': expected at most 10000",
        ),
        (("__consumer_offsets", 9), ErrorCode.INVALID_REQUEST, "one of Kafka's own"),
        (("news", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 assignments of partitions of 'news'"),
        (("news", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected 1, one for each"),
        (("news", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 on brokers []: expected one or more"),
        (("news", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one or more, each once"),
        (("news", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected brokers out of [1, 2, 3]"),
        (("news", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected 2 replicas, as the first partition has"),
        (("news", 3, [[3, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one that is up"),
    ],
)
def test_partitions_that_are_refused(asked: Any, error: ErrorCode, message: str) -> None:
    harness = ClusterHarness({"news": 2}, brokers=3, config=TWO)
    stop(harness, 2, 3)
    (result,) = grow(harness, asked)
    assert (result.name, result.error_code) == (asked[0], error)
    assert message in result.error_message
    assert len(replicas(harness)) == 2


def test_a_topic_twice_in_one_request_does_not_grow_and_the_others_do() -> None:
    harness = ClusterHarness({"news": 1, "sports": 1})
    results = grow(harness, ("news", 2), ("sports", 2), ("news", 3))
    assert [(each.name, each.error_code) for each in results] == [
        ("news", ErrorCode.INVALID_REQUEST),
        ("sports", ErrorCode.NONE),
    ]
    assert results[0].error_message == "topic 'news' 2 times in one request: expected once"
    assert (len(replicas(harness)), len(replicas(harness, "sports"))) == (1, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_partitions_without_time(timeout_ms: int) -> None:
    harness = ClusterHarness({"news": 1})
    (result,) = grow(harness, ("news", 2), timeout_ms=timeout_ms)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert result.error_message == f"timeout_ms={timeout_ms}: expected 1 or more"
    assert len(replicas(harness)) == 1
    assert grow(harness, timeout_ms=timeout_ms) == []


def test_the_offsets_topic_does_not_grow() -> None:
    with pytest.raises(ConfigError, match="name='__consumer_offsets': expected a topic that is not internal"):
        ClusterHarness().cluster.create_partitions("__consumer_offsets", 100)


# ElectLeaders


def elect(
    harness: ClusterHarness,
    asked: dict[str, list[int]] | None,
    election_type: int = PREFERRED,
    *,
    version: int = 2,
    broker: int = 1,
    timeout_ms: int = 60_000,
) -> Any:
    partitions = None
    if asked is not None:
        partitions = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in asked.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions, timeout_ms=timeout_ms)
    return harness.ask(request, version, broker=broker)


def outcome(elected: Any) -> dict[str, ErrorCode]:
    return {
        f"{topic.topic}-{each.partition_id}": ErrorCode(each.error_code)
        for topic in elected.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", versions("ElectLeaders"))
def test_the_preferred_leader_is_elected(version: int) -> None:
    harness = ClusterHarness({"news": 2}, brokers=2)
    stop(harness, 1)
    start(harness, 1)
    assert leaders(harness) == [2, 2]
    epoch = harness.partition().leader_epoch
    elected = elect(harness, {"news": [0, 1, 7], "none": [0]}, version=version)
    assert (elected.error_code, outcome(elected)) == (
        0,
        {
            "news-0": ErrorCode.NONE,
            "news-1": ErrorCode.ELECTION_NOT_NEEDED,
            "news-7": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    messages = [each.error_message for topic in elected.replica_election_results for each in topic.partition_result]
    assert messages == [
        None,
        "broker 2 leads news-1 already",
        "there is no partition news-7",
        "there is no partition none-0",
    ]
    assert (leaders(harness), harness.partition().leader_epoch) == ([1, 2], epoch + 1)


@pytest.mark.parametrize("version", versions("ElectLeaders"))
def test_all_partitions_tell_only_of_elections(version: int) -> None:
    harness = ClusterHarness({"news": 2, "sports": 1}, brokers=2)
    stop(harness, 2)
    start(harness, 2)
    elected = elect(harness, None, version=version)
    assert outcome(elected) == {"news-1": ErrorCode.NONE}
    assert [topic.topic for topic in elected.replica_election_results] == ["news", "sports"]
    assert leaders(harness) == [1, 2]


def test_a_preferred_leader_that_is_down() -> None:
    harness = ClusterHarness({"news": 1}, brokers=2)
    stop(harness, 1)
    elected = elect(harness, {"news": [0]}, broker=2)
    assert outcome(elected) == {"news-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    (result,) = elected.replica_election_results[0].partition_result
    assert result.error_message == "broker 1, the preferred leader of news-0, is down"


def test_a_preferred_election_without_leader_takes_any() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO)
    stop(harness, 1, elect=False)
    assert leaders(harness) == [NO_LEADER]
    assert outcome(elect(harness, {"news": [0]}, broker=2)) == {"news-0": ErrorCode.NONE}
    assert leaders(harness) == [2]
    stop(harness, 2)
    expected = {"news-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert outcome(elect(harness, {"news": [0]}, broker=3)) == expected


@pytest.mark.parametrize("version", versions("ElectLeaders")[1:])
def test_an_unclean_election(version: int) -> None:
    harness = ClusterHarness({"news": 3}, brokers=4, config=TWO)
    stop(harness, 1, elect=False)
    elected = elect(harness, {"news": [0, 1]}, UNCLEAN, version=version, broker=4)
    assert outcome(elected) == {"news-0": ErrorCode.NONE, "news-1": ErrorCode.ELECTION_NOT_NEEDED}
    assert leaders(harness) == [2, 2, 3]
    stop(harness, 2)
    elected = elect(harness, None, UNCLEAN, version=version, broker=4)
    assert outcome(elected) == {"news-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    (result,) = elected.replica_election_results[0].partition_result
    assert result.error_message == "no replica of news-0 is up: expected one of [1, 2]"


@pytest.mark.parametrize(
    ("how", "error"),
    [({"election_type": 2}, ErrorCode.INVALID_REQUEST), ({"timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT)],
)
def test_elections_that_are_refused(how: dict[str, int], error: ErrorCode) -> None:
    harness = ClusterHarness(brokers=2)
    elected = elect(harness, {"news": [0]}, **how)
    assert (elected.error_code, outcome(elected)) == (error, {"news-0": error})
    elected = elect(harness, None, **how)
    assert (elected.error_code, outcome(elected)) == (error, {})
    assert elect(harness, {}, **how).error_code == 0


def test_an_election_moves_a_coordinator_and_those_who_wait_are_told() -> None:
    group = Group().sync()
    group.commit(7)
    group.move()
    second = group.h.ask(join(), 9, broker=2).member_id
    parked = group.h.send(join(second), 9, broker=2)
    assert parked.response is None
    assert outcome(elect(group.h, {"__consumer_offsets": [0]}, broker=3)) == {"__consumer_offsets-0": ErrorCode.NONE}
    assert response(parked).error_code == ErrorCode.NOT_COORDINATOR
    assert (group.beat(2), group.found()) == (ErrorCode.NOT_COORDINATOR, 1)
    assert group.committed(1) == 7
