"""Responses that are bytes or shared equal those of each request, for any request, in any state of the cluster."""

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from fakebroker.cluster import call as call_module
from fakebroker.cluster.call import Call, Peer, UndecodedCall, read_call
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.handlers import offset_commit
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.request_path import RequestPath
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol import frames
from fakebroker.protocol.codec import encode
from fakebroker.protocol.frames import request_frame, response_frame
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import (
    ANONYMOUS,
    Acl,
    AclOperation,
    AclPermission,
    AclStore,
    ResourcePattern,
    ResourceType,
)
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.coordinator.commits import commit_in_transaction
from tests.support.group_requests import commit_of, offset_to_commit
from tests.support.soak import examples, soak

GROUPS = ["g0", "g1", "g2", "billing", "", "x" * 126, "x" * 127, "grüße-群組"]
TOPICS = ["news", "orders", "no-such-topic", "x" * 126, "x" * 127, "grüße"]
PLAIN_GROUPS = st.sampled_from(GROUPS[:6]) | st.from_regex("[a-z]{1,8}", fullmatch=True)

keys = st.lists(PLAIN_GROUPS, max_size=200) | st.lists(st.sampled_from(GROUPS) | st.text(max_size=3), max_size=5)
partitions = st.lists(st.integers(0, 3) | st.sampled_from([-1, 2**31 - 1]), max_size=5)
topics = st.lists(
    st.builds(OffsetFetchRequestTopics, name=st.sampled_from(TOPICS), partition_indexes=partitions), max_size=3
)
fetched_groups = st.lists(
    st.builds(
        OffsetFetchRequestGroup,
        group_id=PLAIN_GROUPS | st.sampled_from(GROUPS),
        member_id=st.sampled_from([None, None, None, "m"]),
        member_epoch=st.sampled_from([-1, 3]),
        topics=topics | topics | topics | st.none(),
    ),
    max_size=150,
)


def cluster_with_offsets(seed: int) -> ClusterHarness:
    """Return a cluster of three brokers with committed offsets, whose coordinators were moved as the seed says."""
    harness = ClusterHarness({"news": 4, "orders": 4}, brokers=3, config={"offsets.topic.num.partitions": 5})
    cluster = harness.cluster
    for number, group_id in enumerate(GROUPS[:4]):
        for index in range(3):
            metadata = ["", "m", "é" * 70][index]
            offset = offset_to_commit(index, [7, -1, 2**40][number % 3], committed_metadata=metadata)
            coordinator = cluster.coordinator_of(group_id)
            assert coordinator is not None
            commit = commit_of(offset, group_id=group_id)
            harness.ask(commit, 8, broker=coordinator.node_id)
    for group_id in GROUPS[1:3] if seed % 5 == 0 else ():  # In transactions that are open.
        coordinator = cluster.coordinator_of(group_id)
        assert coordinator is not None
        offsets = [("news", 0, 9), ("news", 3, 9)]
        errors = commit_in_transaction(coordinator.coordinator, offsets, harness.now_ms, group_id=group_id)
        assert errors == [ErrorCode.NONE, ErrorCode.NONE]
    for index in range(5):
        match (seed >> (3 * index)) % 8:
            case 0:
                how, to = Failover(stale_ms=1_000), 1
            case 1:
                how, to = Failover(load_ms=None), 2
            case 2:
                how, to = Failover(load_fails=True), 3
            case 3:
                how, to = Failover(zombie=True), 2
            case _:
                continue
        cluster.controller.set_leader(cluster.offsets_partition(index), to, harness.now_ms, how)
    if seed % 7 == 0:
        cluster.controller.stop_broker(cluster.brokers[3], harness.now_ms, Failover(), elect=False)
    cluster.tick(harness.now_ms)
    return harness


def handled(harness: ClusterHarness, frame: bytes, *, undecoded: bool, broker: int = 1) -> Call:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_module, "_MIN_UNDECODED_BYTES", 0 if undecoded else len(frame) + 1)
        call = read_call(Peer(harness.cluster.brokers[broker], "127.0.0.1", 1), frame)
    harness.cluster.requests.handle(call, harness.now_ms)
    return call


def encoded(call: Call) -> bytes:
    return call.body if call.body is not None else encode(call.response, call.api_version)


def test_acls_hide_groups_and_topics_in_large_requests_too() -> None:
    harness = cluster_with_offsets(1)
    broker = harness.cluster.coordinator_of("g1")
    assert broker is not None
    allowed = [(ResourceType.GROUP, "g1"), (ResourceType.TOPIC, "news")]
    harness.cluster.acls = AclStore(
        Acl(ResourcePattern(kind, name), ANONYMOUS, "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
        for kind, name in allowed
    )
    named = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("news", "orders")]
    fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=named) for each in ("g0", "g1")])
    found = check_equal(harness, FindCoordinatorRequest(coordinator_keys=["g0", "g1"]), 4, broker.node_id)
    hidden, shown = check_equal(harness, fetched, 8, broker.node_id).response.groups
    assert [each.error_code for each in found.response.coordinators] == [ErrorCode.GROUP_AUTHORIZATION_FAILED, 0]
    assert hidden.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [topic.partitions[0].error_code for topic in shown.topics] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def check_equal(harness: ClusterHarness, request: Message, version: int, broker: int) -> Call:
    """Check that the call has the same response, and the same messages for readers, decoded at once or later."""
    frame = request_frame(request, version, 1, "client")[4:]
    expected = handled(harness, frame, undecoded=False, broker=broker)
    call = handled(harness, frame, undecoded=True, broker=broker)
    assert encoded(call) == encoded(expected)
    assert (call.request, call.response) == (expected.request, expected.response)
    assert call.summarize() == expected.summarize()
    return call


@soak
@settings(max_examples=examples(60, soak=3_000))
@given(keys, st.integers(0, 2**15), st.sampled_from([4, 5, 6]), st.sampled_from([0, 0, 0, 1, 2, -1]))
@example(["a"] * 2_000, 0, 4, 0)
def test_find_coordinator(found: list[str], seed: int, version: int, key_type: int) -> None:
    harness = cluster_with_offsets(seed)
    call = check_equal(
        harness, FindCoordinatorRequest(key_type=key_type, coordinator_keys=found), version, 1 + seed % 3
    )
    is_usual = key_type >= 0 and all(key.isascii() and len(key) < 127 for key in found)
    assert isinstance(call, UndecodedCall) is is_usual
    assert (call.body is not None) is (is_usual and key_type == 0)


@soak
@settings(max_examples=examples(60, soak=3_000))
@given(fetched_groups, st.integers(0, 2**15), st.sampled_from([8, 9]), st.booleans())
def test_offset_fetch(groups: list[OffsetFetchRequestGroup], seed: int, version: int, require_stable: bool) -> None:
    harness = cluster_with_offsets(seed)
    request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    call = check_equal(harness, request, version, 1 + seed % 3)
    is_usual = all(
        group.group_id.isascii()
        and len(group.group_id) < 127
        and (version < 9 or group.member_id is None)
        and group.topics
        and all(len(topic.name.encode()) < 127 for topic in group.topics)
        for group in groups
    )
    may_be_unstable = require_stable and call.broker.coordinator.offsets.has_pending
    assert (call.body is not None) is (is_usual and not may_be_unstable)


@soak
@settings(max_examples=examples(80, soak=5_000))
@given(st.data())
def test_damaged_requests_are_rejected_alike(data: st.DataObject) -> None:
    harness = cluster_with_offsets(1)
    fetched = OffsetFetchRequest(groups=data.draw(fetched_groups))
    found = FindCoordinatorRequest(coordinator_keys=data.draw(keys))
    request, version = data.draw(st.sampled_from([(found, 4), (fetched, 8), (fetched, 9)]))
    frame = bytearray(request_frame(request, version, 1, "client")[4:])
    start = len(request_frame(FindCoordinatorRequest(), 4, 1, "client")) - 4 - 3
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(start, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    damaged = bytes(frame[: data.draw(st.integers(start, len(frame)))])
    outcomes: list[Any] = []
    for undecoded in (False, True):
        try:
            call = handled(harness, damaged, undecoded=undecoded)
            outcomes.append((encoded(call), call.request))
        except ProtocolError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_calls_with_faults_have_messages() -> None:
    harness = cluster_with_offsets(1)
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    frame = request_frame(request, 4, 1, "client")[4:]
    harness.cluster.faults.add(Fault(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"), harness.now_ms)
    call = handled(harness, frame, undecoded=True)
    assert call.body is None
    assert [each.error_code for each in call.response.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


def test_dropped_calls_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = cluster_with_offsets(1)
    frame = request_frame(FindCoordinatorRequest(coordinator_keys=GROUPS[:4]), 4, 1, "client")[4:]
    calls = [handled(harness, frame, undecoded=True) for _ in range(3)]
    decoded: list[object] = []
    monkeypatch.setattr(call_module, "decode", lambda *arguments, **_: decoded.append(arguments))
    journal = Journal(max_calls=1)
    for call in calls:
        journal.add(call)
    assert journal.dropped == 2
    assert [kind.calls for kind in journal.dropped_calls] == [2]
    assert decoded == []


committed_topics = st.lists(
    st.builds(
        OffsetCommitRequestTopic,
        name=st.sampled_from(["news", "orders", "no-such-topic"]),
        topic_id=st.sampled_from([ZERO_UUID, b"\1" * 16]),
        partitions=st.lists(st.integers(0, 4).map(offset_to_commit), max_size=4),
    ),
    max_size=4,
)


@soak
@settings(max_examples=examples(50, soak=1000))
@given(requests=st.lists(committed_topics, min_size=1, max_size=6), version=st.sampled_from([1, 2, 7, 8, 9]))
def test_shared_responses_to_commits_equal_those_of_each_request(
    requests: list[list[OffsetCommitRequestTopic]], version: int
) -> None:
    harness = ClusterHarness({"news": 4, "orders": 4})
    before = len(frames._shared_responses)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_commit, "_SUCCESSES", offset_commit._Successes())
        patch.setattr(offset_commit, "_MOST_SHARED", 2)
        for topics in requests * 2:
            request = OffsetCommitRequest(group_id="g", topics=topics)
            shared = harness.ask(request, version)
            with pytest.MonkeyPatch.context() as without:
                without.setattr(RequestPath, "may_answer_with_bytes", False)
                own = harness.ask(request, version)
            assert own is not shared
            assert own == shared
            assert response_frame(own, version, 5) == response_frame(shared, version, 5)
            assert len(frames._shared_responses) <= before + 2
        for response in offset_commit._SUCCESSES.values():
            frames.forget_shared_response(response)
    assert len(frames._shared_responses) == before
