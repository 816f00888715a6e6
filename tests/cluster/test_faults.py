"""Injected faults without sockets: which requests match, the responses, and whether requests take effect."""

import math
from typing import Any

import pytest

from fakebroker.cluster.faults.error_catalog import PLACES, Place, kinds_of
from fakebroker.cluster.faults.error_responses import ERROR_FIELDS, InjectedError, put_error, refusal
from fakebroker.cluster.faults.injection import READS, ActiveFault
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.registry import APIS, Api
from tests.support.cluster.cluster_harness import ClusterHarness, batch, carried, response
from tests.support.cluster.fetching_client import FetchingClient
from tests.support.group_requests import join_request
from tests.support.message_versions import filled

TOPICS = {"orders": 2, "news": 2}
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture
def h() -> ClusterHarness:
    return ClusterHarness(topics=TOPICS, config={"group.initial.rebalance.delay.ms": 0})


def fail(h: ClusterHarness, api: str | None, **options: Any) -> ActiveFault:
    return h.cluster.faults.add(Fault(api=api, **options), h.now_ms)


def heartbeats(h: ClusterHarness, count: int, **options: Any) -> list[str]:
    """Send heartbeats and return their errors: WITHOUT_FAULT, or that of a fault."""
    return [ErrorCode(h.ask(HEARTBEAT, 4, **options).error_code).name for _ in range(count)]


WITHOUT_FAULT, WITH_FAULT = "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR"
"""The errors of a heartbeat: the member is unknown, unless the fault NOT_COORDINATOR applies."""


def commit(offset: int, *partitions: tuple[str, int], group_id: str = "g") -> OffsetCommitRequest:
    """Return a request that commits an offset for each partition."""
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
                    for name, index in partitions
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(topic for topic, _ in partitions)
        ],
    )


def errors(result: Any) -> dict[tuple[str, int], str]:
    """Return the error of each partition in a response."""
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code).name
        for topic in result.topics
        for partition in topic.partitions
    }


def committed(h: ClusterHarness, group_id: str = "g") -> dict[tuple[str, int], int]:
    offsets = h.cluster.brokers[1].coordinator.offsets.fetch(group_id, None)[1]
    return {(topic, index): offset.offset for topic, index, offset in offsets if offset is not None}


# The catalog of errors


def test_the_catalog_has_every_api() -> None:
    assert set(PLACES) == {api.name for api in APIS}


def test_every_error_can_be_encoded(subtests: pytest.Subtests) -> None:
    for api in APIS:
        for place in PLACES[api.name]:
            for version in [each for each in api.request.VERSIONS if each in place.versions]:
                with subtests.test(api=api.name, path=place.response_path, version=version):
                    assert_errors_can_be_encoded(api, place, version)


def assert_errors_can_be_encoded(api: Api, place: Place, version: int) -> None:
    """Encode and decode a response with each error of a place, and find the error there."""
    request, real_response = filled(api.request, version), filled(api.response, version)
    for error in sorted(place.errors):
        injected = InjectedError(error, place, version, {}, lambda topic_id: None)
        if api.name in READS and place.response_path:
            with_error = put_error(injected, real_response)
        else:
            with_error = refusal(injected, api.response, request)
        struct: Any = carried(with_error, version)
        for array in place.response_path:
            (struct,) = getattr(struct, array)
        (name,) = [field.name for field in struct.FIELDS if field.name in ERROR_FIELDS]
        assert getattr(struct, name) == error


# Which requests match


def test_times_limits_the_number_of_responses(h: ClusterHarness) -> None:
    fault = fail(h, "Heartbeat", error="NOT_COORDINATOR", times=2)
    assert heartbeats(h, 3) == [WITH_FAULT, WITH_FAULT, WITHOUT_FAULT]
    assert fault.hits == 2


def test_matched_requests(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        # "x" for each of four heartbeats to which the fault applies.
        ({"nth": 2}, "-x--"),
        ({"every": 2}, "-x-x"),
        ({"every": 2, "times": 1}, "-x--"),
        ({"client_id": "client"}, "xxxx"),
        ({"client_id": "other"}, "----"),
        ({"versions": "0-3"}, "----"),
        ({"versions": "4+"}, "xxxx"),
        ({"group": "g", "member": "m"}, "xxxx"),
        ({"member": "client"}, "xxxx"),
        ({"group": "h"}, "----"),
        ({"member": "i"}, "----"),
        ({"broker": 1}, "xxxx"),
    ]
    for options, expected in cases:
        with subtests.test(options=options):
            h = ClusterHarness(topics=TOPICS)
            fault = fail(h, "Heartbeat", error=ErrorCode.NOT_COORDINATOR, **options)
            assert "".join("x" if error == WITH_FAULT else "-" for error in heartbeats(h, 4)) == expected
            assert fault.hits == expected.count("x")


def test_requests_to_other_brokers_do_not_match() -> None:
    h = ClusterHarness(brokers=2)
    fail(h, "Heartbeat", error="NOT_COORDINATOR", broker=2)
    fail(h, "Heartbeat", error="COORDINATOR_NOT_AVAILABLE", broker=1)
    assert heartbeats(h, 1, broker=2) == [WITH_FAULT]
    assert heartbeats(h, 1, broker=1) == ["COORDINATOR_NOT_AVAILABLE"]


def test_probability_is_reproducible_with_the_seed(h: ClusterHarness) -> None:
    runs = []
    for harness in (h, ClusterHarness(topics=TOPICS)):
        fault = fail(harness, "Heartbeat", error="NOT_COORDINATOR", probability=0.5)
        runs.append(heartbeats(harness, 40))
        assert fault.seen == 40
        assert 10 < fault.hits < 30
    assert runs[0] == runs[1]


def test_after_s_and_for_s_limit_the_time(h: ClusterHarness) -> None:
    fail(h, "Heartbeat", error="NOT_COORDINATOR", after_s=1, for_s=2)
    by_second = []
    for _ in range(4):
        by_second += heartbeats(h, 1)
        h.advance(1000)
    assert by_second == [WITHOUT_FAULT, WITH_FAULT, WITH_FAULT, WITHOUT_FAULT]


def test_a_fault_is_over_when_it_applies_to_no_further_request(h: ClusterHarness, subtests: pytest.Subtests) -> None:
    cases: tuple[tuple[dict[str, Any], list[bool]], ...] = (
        ({}, [False, False, False]),
        ({"times": 2}, [False, True, True]),
        ({"nth": 3}, [False, False, True]),
        ({"every": 2, "times": 1}, [False, True, True]),
        ({"probability": 0.0001}, [False, False, False]),
    )
    for options, over in cases:
        with subtests.test(options=options):
            fault = fail(h, "Heartbeat", error="NOT_COORDINATOR", **options)
            found = []
            for _ in over:
                heartbeats(h, 1)
                found.append(fault.is_over(h.now_ms))
            h.cluster.faults.remove(fault)
            assert found == over
    with subtests.test("after_s, for_s"):
        fault = fail(h, "Heartbeat", error="NOT_COORDINATOR", after_s=2, for_s=3)
        assert [fault.is_over(h.now_ms + ms) for ms in (0, 2000, 4999, 5000)] == [False, False, False, True]


def test_the_first_matching_fault_applies(h: ClusterHarness) -> None:
    fail(h, "Heartbeat", error="NOT_COORDINATOR", times=1)
    second = fail(h, "Heartbeat", error="COORDINATOR_NOT_AVAILABLE", nth=1)
    assert heartbeats(h, 3) == [WITH_FAULT, "COORDINATOR_NOT_AVAILABLE", WITHOUT_FAULT]
    assert second.seen == 2


def test_a_removed_fault_has_no_effect(h: ClusterHarness) -> None:
    fault = fail(h, "Heartbeat", error="NOT_COORDINATOR")
    h.cluster.faults.remove(fault)
    h.cluster.faults.remove(fault)
    assert heartbeats(h, 1) == [WITHOUT_FAULT]


def test_the_call_names_its_fault(h: ClusterHarness) -> None:
    active = fail(h, "Heartbeat", error="NOT_COORDINATOR", times=1)
    calls = [h.send(HEARTBEAT, 4) for _ in range(2)]
    assert [call.fault for call in calls] == [active.fault, None]


def test_a_fault_of_a_group_matches_every_api_that_names_it(h: ClusterHarness) -> None:
    fail(h, None, group="g", throttle_time_ms=7)
    assert h.ask(HEARTBEAT, 4).throttle_time_ms == 7
    assert h.ask(commit(1, ("orders", 0)), 8).throttle_time_ms == 7
    assert h.ask(DescribeGroupsRequest(groups=["other", "g"]), 5).throttle_time_ms == 7
    assert h.ask(DescribeGroupsRequest(groups=["other"]), 5).throttle_time_ms == 0
    assert h.ask(MetadataRequest(topics=[]), 9).throttle_time_ms == 0


# The place of the error, and requests that take effect in spite of it


def test_a_rejected_commit_has_no_effect(h: ClusterHarness) -> None:
    fail(h, "OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS")
    error = "COORDINATOR_LOAD_IN_PROGRESS"
    result = h.ask(commit(5, ("orders", 0), ("news", 1)), 8)
    assert errors(result) == {("orders", 0): error, ("news", 1): error}
    assert committed(h) == {}


def test_with_handles_a_commit_takes_effect_in_spite_of_the_error(h: ClusterHarness) -> None:
    fail(h, "OffsetCommit", error="REQUEST_TIMED_OUT", handles=True)
    assert errors(h.ask(commit(5, ("orders", 0)), 8)) == {("orders", 0): "REQUEST_TIMED_OUT"}
    assert committed(h) == {("orders", 0): 5}


@pytest.mark.parametrize("version", [8, 10])
def test_one_partition_of_a_commit_is_rejected(h: ClusterHarness, version: int) -> None:
    fail(h, "OffsetCommit", error="UNKNOWN_TOPIC_OR_PARTITION", partition="orders-1")
    request = commit(5, ("orders", 0), ("orders", 1), ("news", 1))
    for topic in request.topics:
        topic.topic_id = h.topic(topic.name).topic_id
    result = h.ask(request, version)
    assert [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in result.topics] == [
        [(0, 0), (1, 3)],
        [(1, 0)],
    ]
    assert committed(h) == {("orders", 0): 5, ("news", 1): 5}


def test_with_handles_one_partition_takes_effect_in_spite_of_the_error(h: ClusterHarness) -> None:
    fail(h, "OffsetCommit", error="UNKNOWN_TOPIC_OR_PARTITION", topic="news", handles=True)
    result = h.ask(commit(5, ("orders", 0), ("news", 1)), 8)
    assert errors(result) == {("orders", 0): "NONE", ("news", 1): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert committed(h) == {("orders", 0): 5, ("news", 1): 5}


@pytest.mark.parametrize(("handles", "offsets"), [(True, {("orders", 0): 5}), (None, {})])
def test_drop_closes_the_connection(h: ClusterHarness, handles: bool | None, offsets: dict[Any, int]) -> None:
    fail(h, "OffsetCommit", drop=True, handles=handles)
    call = h.send(commit(5, ("orders", 0)), 8)
    assert h.cluster.requests.answered == [call]
    assert (call.response, call.answered_ms) == (None, None)
    assert committed(h) == offsets


@pytest.mark.parametrize(("handles", "offsets"), [(True, {("orders", 0): 5}), (None, {})])
def test_silent_sends_no_response(h: ClusterHarness, handles: bool | None, offsets: dict[Any, int]) -> None:
    fail(h, "OffsetCommit", silent=True, handles=handles)
    call = h.send(commit(5, ("orders", 0)), 8)
    h.advance(3_600_000)
    assert h.cluster.requests.answered == []
    assert call.response is None
    assert committed(h) == offsets


def offset_fetch(version: int) -> OffsetFetchRequest:
    """Return a request for two partitions of the group "g" and, in versions with several groups, of "h"."""
    if version < 8:
        topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])
        return OffsetFetchRequest(group_id="g", topics=[topic])
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", "h")])


def test_the_place_of_a_group_error_depends_on_the_version(h: ClusterHarness) -> None:
    fail(h, "OffsetFetch", error="NOT_COORDINATOR", group="g")
    partitions = h.ask(offset_fetch(1), 1).topics[0].partitions
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in partitions] == [
        (0, -1, 16),
        (1, -1, 16),
    ]
    assert h.ask(offset_fetch(7), 7).error_code == ErrorCode.NOT_COORDINATOR
    first, second = h.ask(offset_fetch(8), 8).groups
    assert (first.group_id, first.error_code, first.topics) == ("g", 16, [])
    assert (second.group_id, second.error_code, len(second.topics[0].partitions)) == ("h", 0, 2)


def test_one_partition_of_an_offset_fetch(h: ClusterHarness) -> None:
    fail(h, "OffsetFetch", error="UNSTABLE_OFFSET_COMMIT", partition="orders-1")
    assert list(errors(h.ask(offset_fetch(7), 7)).values()) == ["NONE", "UNSTABLE_OFFSET_COMMIT"]
    all_partitions = OffsetFetchRequest(group_id="g", topics=None)
    h.ask(commit(5, ("orders", 0), ("orders", 1)), 8)
    assert list(errors(h.ask(all_partitions, 7)).values()) == ["NONE", "UNSTABLE_OFFSET_COMMIT"]


def test_one_key_of_find_coordinator(h: ClusterHarness) -> None:
    fail(h, "FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", group="g")
    old = h.ask(FindCoordinatorRequest(key="g"), 3)
    assert (old.error_code, old.node_id, old.host, old.port) == (15, -1, "", -1)
    assert old.error_message == "The coordinator is not available."
    found = h.ask(FindCoordinatorRequest(coordinator_keys=["g", "f", "g", "e"]), 4).coordinators
    assert [(each.key, each.error_code, each.node_id, each.error_message) for each in found] == [
        ("g", 15, -1, "The coordinator is not available."),
        ("f", 0, 1, ""),
        ("g", 15, -1, "The coordinator is not available."),
        ("e", 0, 1, ""),
    ]
    transactional = h.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]), 4).coordinators
    assert [each.error_code for each in transactional] == [0]


def test_parts_with_an_error_stay_in_the_order_of_the_request(subtests: pytest.Subtests, h: ClusterHarness) -> None:
    fail(h, "OffsetFetch", error="NOT_COORDINATOR", group="g")
    fail(h, "DescribeGroups", error="NOT_COORDINATOR", group="g")
    fail(h, "DeleteGroups", error="NOT_COORDINATOR", group="g")
    fail(h, "OffsetCommit", error="TOPIC_AUTHORIZATION_FAILED", partition="orders-0")
    fail(h, "LeaveGroup", error="UNKNOWN_MEMBER_ID", member="b")
    groups = ["f", "g", "e", "g"]

    with subtests.test("OffsetFetch"):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=[]) for each in groups])
        results = h.ask(request, 8).groups
        assert [(each.group_id, each.error_code) for each in results] == [("f", 0), ("g", 16), ("e", 0), ("g", 16)]
    with subtests.test("DescribeGroups"):
        results = h.ask(DescribeGroupsRequest(groups=groups), 5).groups
        assert [(each.group_id, each.error_code) for each in results] == [("f", 0), ("g", 16), ("e", 0), ("g", 16)]
    with subtests.test("DeleteGroups"):
        results = h.ask(DeleteGroupsRequest(groups_names=groups[:3]), 2).results
        assert [(each.group_id, each.error_code) for each in results] == [("f", 69), ("g", 16), ("e", 69)]
    with subtests.test("OffsetCommit"):
        results_by_partition = errors(h.ask(commit(5, ("orders", 0), ("orders", 1), ("news", 0)), 8))
        assert list(results_by_partition.items()) == [
            (("orders", 0), "TOPIC_AUTHORIZATION_FAILED"),
            (("orders", 1), "NONE"),
            (("news", 0), "NONE"),
        ]
    with subtests.test("LeaveGroup"):
        leave = LeaveGroupRequest(group_id="x", members=[MemberIdentity(member_id=each) for each in "abc"])
        assert [each.member_id for each in h.ask(leave, 4).members] == ["a", "b", "c"]


def test_metadata_with_an_error_still_lists_the_brokers(h: ClusterHarness) -> None:
    fail(h, "Metadata", error="LEADER_NOT_AVAILABLE", topic="orders", times=2)
    for topics in (None, [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="news")]):
        result = h.ask(MetadataRequest(topics=topics), 9)
        topic_results = {topic.name: (topic.error_code, len(topic.partitions)) for topic in result.topics}
        assert topic_results == {"orders": (5, 0), "news": (0, 2)}
        assert [broker.node_id for broker in result.brokers] == [1]


def test_errors_of_metadata_as_a_whole_and_of_a_topic(h: ClusterHarness) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    fail(h, "Metadata", error="UNKNOWN_SERVER_ERROR", topic="orders", times=1)
    fail(h, "Metadata", error="UNKNOWN_SERVER_ERROR")
    results = [h.ask(request, version) for version in (13, 13, 12)]
    errors_by_request = [(each.error_code, [topic.error_code for topic in each.topics]) for each in results]
    assert errors_by_request == [(0, [-1]), (-1, []), (0, [-1])]


def test_one_partition_of_metadata(h: ClusterHarness) -> None:
    fail(h, "Metadata", error="LEADER_NOT_AVAILABLE", partition="orders-1")
    (topic,) = h.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9).topics
    assert topic.error_code == 0
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [(0, 1), (5, -1)]


def produce(acks: int) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=batch(b"a")) for index in range(2)]
    return ProduceRequest(
        acks=acks, timeout_ms=0, topic_data=[TopicProduceData(name="orders", partition_data=partitions)]
    )


def test_one_partition_of_a_produce(h: ClusterHarness) -> None:
    fail(h, "Produce", error="NOT_LEADER_OR_FOLLOWER", partition="orders-0")
    (topic,) = h.ask(produce(-1), 9).responses
    assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [
        (0, 6, -1),
        (1, 0, 0),
    ]
    assert [h.partition(index, "orders").log.log_end_offset for index in range(2)] == [0, 1]


def test_an_error_for_acks_0_closes_the_connection(h: ClusterHarness) -> None:
    fail(h, "Produce", error="NOT_LEADER_OR_FOLLOWER")
    call = h.send(produce(0), 9)
    assert h.cluster.requests.answered == [call]
    assert (call.response, call.closes_connection) == (None, True)
    assert h.partition(0, "orders").log.log_end_offset == 0


def test_one_partition_of_a_produce_with_acks_0(h: ClusterHarness) -> None:
    fail(h, "Produce", error="NOT_LEADER_OR_FOLLOWER", partition="orders-0")
    call = h.send(produce(0), 9)
    assert h.cluster.requests.answered == [call]
    assert (call.response, call.closes_connection) == (None, True)
    assert [h.partition(index, "orders").log.log_end_offset for index in range(2)] == [0, 1]


def test_an_unchanged_partition_of_a_fetch_session_gets_the_error(h: ClusterHarness) -> None:
    client = FetchingClient(h)
    client.fetch({0: 0, 1: 0})
    fault = fail(h, "Fetch", error="NOT_LEADER_OR_FOLLOWER", partition="news-1", times=1)
    (topic,) = client.fetch().responses
    assert [(each.partition_index, each.error_code, each.records) for each in topic.partitions] == [(1, 6, b"")]
    assert client.fetch().responses == []
    assert fault.hits == 1


def test_a_fetch_that_fails_does_not_wait(h: ClusterHarness) -> None:
    fail(h, "Fetch", error="OFFSET_OUT_OF_RANGE")
    request = FetchingClient(h).request({0: 0})
    request.max_wait_ms = 60_000
    result = h.ask(request, 12)
    assert [each.error_code for each in result.responses[0].partitions] == [1]


def test_an_error_of_the_fetch_session(h: ClusterHarness) -> None:
    fail(h, "Fetch", error="FETCH_SESSION_ID_NOT_FOUND", versions="7+")
    result = h.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    assert (result.error_code, result.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_with_handles_a_parked_join_takes_effect_in_spite_of_the_error() -> None:
    h = ClusterHarness()
    member_id = h.ask(join_request("g", ""), 9).member_id
    fail(h, "JoinGroup", error="COORDINATOR_NOT_AVAILABLE", handles=True)
    call = h.send(join_request("g", member_id), 9)
    assert call.response is None
    h.advance(10_000)
    result = response(call)
    assert (result.error_code, result.members, result.generation_id) == (15, [], -1)
    group = h.cluster.brokers[1].coordinator.groups.classic.get("g")
    assert group is not None
    assert group.generation_id == 1


def test_one_leaving_member_is_rejected(h: ClusterHarness) -> None:
    fail(h, "LeaveGroup", error="FENCED_INSTANCE_ID", member="i")
    members = [MemberIdentity(member_id="m"), MemberIdentity(member_id="", group_instance_id="i")]
    result = h.ask(LeaveGroupRequest(group_id="g", members=members), 4)
    assert [(each.group_instance_id, each.error_code) for each in result.members] == [(None, 25), ("i", 82)]
    fail(h, "LeaveGroup", error="NOT_COORDINATOR", member="m")
    result = h.ask(LeaveGroupRequest(group_id="g", members=members[:1]), 4)
    assert (result.error_code, result.members) == (ErrorCode.NOT_COORDINATOR, [])


def test_unsupported_version_of_api_versions_is_answered_in_version_0(h: ClusterHarness) -> None:
    fail(h, "ApiVersions", error="UNSUPPORTED_VERSION")
    call = h.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    assert call.response_version == 0
    result: Any = carried(call.response, 0)
    assert result.error_code == ErrorCode.UNSUPPORTED_VERSION


# Delays, throttling and corrupted bytes


def test_a_response_is_delayed(h: ClusterHarness) -> None:
    fail(h, "OffsetCommit", delay_s=2)
    call = h.send(commit(5, ("orders", 0)), 8)
    assert committed(h) == {("orders", 0): 5}
    assert call.response is None
    assert h.cluster.next_deadline() == h.now_ms + 2000
    h.advance(1999)
    assert call.response is None
    h.advance(1)
    assert errors(response(call)) == {("orders", 0): "NONE"}
    assert call.answered_ms == h.now_ms


def test_a_delayed_request_comes_after_the_answers_of_timers_that_expire_with_it() -> None:
    h = ClusterHarness(config={"group.initial.rebalance.delay.ms": 3000})
    fail(h, "Heartbeat", delay_before_s=3)
    heartbeat = h.send(HEARTBEAT, 4)
    join = h.send(join_request(), 0)
    h.cluster.tick(h.now_ms + 3000)  # also the end of the initial delay
    assert [call for call in h.cluster.requests.answered if call in (heartbeat, join)] == [join, heartbeat]


def test_a_delay_is_drawn_from_a_range(h: ClusterHarness) -> None:
    fail(h, "Heartbeat", delay_s=(1, 2))
    calls = [h.send(HEARTBEAT, 4) for _ in range(20)]
    h.advance(999)
    assert h.cluster.requests.answered == []
    while (deadline_ms := h.cluster.next_deadline()) is not None and deadline_ms <= h.now_ms + 1001:
        h.advance(deadline_ms - h.now_ms)
    delays_ms = [(call.answered_ms or 0) - call.received_ms for call in calls]
    assert all(1000 <= delay_ms <= 2000 for delay_ms in delays_ms)
    assert len(set(delays_ms)) > 10


def test_throttling_does_not_change_shared_responses(h: ClusterHarness) -> None:
    fail(h, "Heartbeat", throttle_time_ms=300, times=1)
    assert [h.ask(HEARTBEAT, 4).throttle_time_ms for _ in range(2)] == [300, 0]


def corrupted(h: ClusterHarness, **options: Any) -> bytes:
    return bytes(h.cluster.faults.corrupted(Fault(api=None, **options), bytearray(range(20))))


def test_corrupted_bytes_of_a_response(h: ClusterHarness) -> None:
    frame = bytes(range(20))
    assert corrupted(h, delay_s=1) == frame
    assert corrupted(h, twice=True) == frame * 2
    assert corrupted(h, cut_bytes=5) == frame[:5]
    assert corrupted(h, cut_bytes=500) == frame[:19]
    garbled = corrupted(h, garble_bytes=10)
    assert garbled[:8] == frame[:8]
    assert sum(one != other for one, other in zip(garbled, frame, strict=True)) == 10
    assert corrupted(ClusterHarness(), garble_bytes=10) == garbled
    all_garbled = corrupted(h, garble_bytes=500)
    assert all(one != other for one, other in zip(all_garbled[8:], frame[8:], strict=True))


# Invalid faults


INVALID_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"api": "Heartbeats", "drop": True}, "fault: api='Heartbeats': expected one of Produce, "),
    ({"api": "Heartbeat", "drop": True, "versions": "5-7"}, "versions='5-7': expected some of Heartbeat 0-4"),
    ({"api": "Heartbeat", "drop": True, "versions": "new"}, "versions='new': expected versions such as '0-3'"),
    ({"api": "Heartbeat", "drop": True, "broker": 7}, "broker=7: expected one of 1"),
    (
        {"api": "Heartbeat", "error": "OFFSET_OUT_OF_RANGE"},
        "error='OFFSET_OUT_OF_RANGE': expected an error of Heartbeat, one of UNK",
    ),
    ({"api": "Heartbeat", "error": ErrorCode.NONE, "drop": True}, "error='NONE': expected an error of Heartbeat"),
    (
        {"api": "Fetch", "error": "FETCH_SESSION_ID_NOT_FOUND", "versions": "4-6"},
        "expected an error of Fetch, ",
    ),
    (
        {"api": "Metadata", "group": "g", "drop": True},
        "topic or topic_id or partition: Metadata has no group",
    ),
    ({"api": "ApiVersions", "group": "g", "drop": True}, "group='g': expected none: ApiVersions has no group"),
    ({"api": "Fetch", "partition": "orders", "drop": True}, "partition='orders': expected a topic and a number"),
    (
        {"api": "Fetch", "partition": "o-1", "topic": "o", "drop": True},
        "topic='o': expected none with partition",
    ),
    ({"api": "Heartbeat"}, "fault has no effect: set one of error, before, delay_before_s, then, delay_s, drop"),
    ({"api": "Heartbeat", "stale": True}, "api='Heartbeat': expected FindCoordinator or Metadata with stale=True"),
    ({"api": "Metadata", "stale": True, "drop": True}, "stale=True: expected none with drop"),
    (
        {"api": "Heartbeat", "drop": True, "error": "NOT_COORDINATOR"},
        "expected none with drop: they contradict each other",
    ),
    ({"api": "Heartbeat", "silent": True, "delay_s": 1}, "delay_s=1.0: expected none with silent"),
    ({"api": "Heartbeat", "cut_bytes": 4, "twice": True}, "twice=True: expected none with cut_bytes"),
    ({"api": "Heartbeat", "drop": True, "nth": 2, "times": 3}, "times=3: expected none with nth"),
    ({"api": "Heartbeat", "delay_s": 1, "handles": False}, "handles=False: expected error, drop or silent with it"),
    ({"api": "Heartbeat", "delay_s": (2, 1)}, "delay_s=(2.0, 1.0): expected seconds >= 0, or a range of them"),
    ({"api": "Heartbeat", "delay_s": -1}, "delay_s=-1"),
    ({"api": "Heartbeat", "delay_s": (1,)}, "delay_s=[1]: expected a number or a list of 2 or none"),
    ({"api": "Heartbeat", "drop": True, "times": 0}, "times=0: expected an integer >= 1"),
    (
        {"api": "Heartbeat", "drop": True, "probability": 1.5},
        "probability=1.5: expected a number > 0 and <= 1",
    ),
    ({"api": "Heartbeat", "drop": True, "for_s": 0}, "for_s=0"),
    ({"api": "Heartbeat", "drop": True, "for_s": math.nan}, "for_s=nan"),
    ({"api": "Heartbeat", "drop": True, "after_s": math.nan}, "after_s=nan"),
    ({"api": "Heartbeat", "drop": True, "after_s": math.inf}, "after_s=inf"),
    ({"api": "Heartbeat", "delay_s": math.inf}, "delay_s=inf"),
    (
        {"api": "Heartbeat", "throttle_time_ms": 2**31},
        "expected an integer from 1 to 2147483647 or none",
    ),
    ({"api": None, "error": "NOT_COORDINATOR"}, "api=None: expected the API that error="),
]
"""The fields of invalid faults, and a part of the error."""


def test_invalid_faults_are_rejected(subtests: pytest.Subtests, h: ClusterHarness) -> None:
    for fields, error in INVALID_FAULTS:
        with subtests.test(fields=fields):
            with pytest.raises(ConfigError) as caught:
                h.cluster.faults.add(Fault(**fields), h.now_ms)
            assert error in str(caught.value)
            assert h.cluster.faults.active == []


def test_an_error_given_by_its_number(h: ClusterHarness) -> None:
    added = h.cluster.faults.add(Fault(api="OffsetCommit", error=16), h.now_ms)  # type: ignore[arg-type]  # is converted
    assert added.fault == Fault(api="OffsetCommit", error=ErrorCode.NOT_COORDINATOR)


def test_an_api_that_no_broker_supports_is_rejected() -> None:
    h = ClusterHarness(as_version="2.0")
    with pytest.raises(ConfigError, match="api='OffsetDelete': expected an API that a broker supports"):
        fail(h, "OffsetDelete", drop=True)


def test_kinds_of_names_in_each_api() -> None:
    named = {api.name: set(kinds_of(api)) for api in APIS}
    assert named["OffsetCommit"] == {"group", "member_id", "instance_id", "topic", "topic_id", "partition"}
    assert named["Metadata"] == {"topic", "topic_id", "partition"}
    assert named["ListGroups"] == set()


def test_without_faults_calls_are_handled_directly(h: ClusterHarness) -> None:
    call = h.send(HEARTBEAT, 4)
    assert call.fault is None
    assert h.cluster.requests.answered == []


def leader(h: ClusterHarness, version: int) -> tuple[int, int]:
    (topic,) = h.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version).topics
    return topic.partitions[0].leader_id, topic.partitions[0].leader_epoch


def test_stale_metadata() -> None:
    h = ClusterHarness(topics=TOPICS, brokers=2)
    before = leader(h, 9)
    fault = fail(h, "Metadata", stale=True, times=2)
    h.cluster.controller.set_leader(h.partition(0, "orders"), 2, h.now_ms, Failover())
    h.cluster.create_new_topic("late", 1)
    assert leader(h, 9) == before == (1, 0)
    metadata = h.ask(MetadataRequest(topics=None), 9)
    leader_ids = {topic.name: topic.partitions[0].leader_id for topic in metadata.topics}
    assert leader_ids == {"orders": 1, "news": 2, "late": 1}
    assert fault.hits == 2
    assert leader(h, 9) == (2, 1)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_stale_coordinator(version: int) -> None:
    h = ClusterHarness(topics=TOPICS, brokers=2)
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")

    def coordinator() -> tuple[int, int, int]:
        result = h.ask(request, version)
        found = result.coordinators[0] if version >= 4 else result
        return found.error_code, found.node_id, found.port

    partition = h.cluster.offsets_partition_of("g")
    before, other = coordinator(), 3 - partition.leader_id
    fail(h, "FindCoordinator", stale=True, for_s=5)
    h.cluster.controller.set_leader(partition, other, h.now_ms, Failover())
    assert coordinator() == before
    h.advance(5_000)
    assert coordinator() == (0, other, 9000 + other)
