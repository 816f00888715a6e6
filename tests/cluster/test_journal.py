"""The journal without sockets: modes, limits, and the properties of calls."""

import gc
import weakref
from typing import Any

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.journal.journal import SMALL_RESPONSE_BYTES, Journal, new_journal
from fakebroker.cluster.journal.message_size import OBJECT_FACTOR
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from fakebroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import heartbeat_request, join_request

BODY_BYTES = 100
HELD_BYTES = OBJECT_FACTOR * (BODY_BYTES + SMALL_RESPONSE_BYTES)


def call_of(request: Message, response: Message | None = None, version: int | None = None) -> Call:
    api = api_of(request)
    call = Call(
        ClusterHarness().peer(), api, api.versions.last if version is None else version, 1, "app", request, BODY_BYTES
    )
    call.response = response
    return call


def harness(mode: str, max_calls: int = 100, **config: Any) -> ClusterHarness:
    with_journal = ClusterHarness(config=config)
    with_journal.cluster.journal = new_journal(mode, max_calls, 10_000)
    return with_journal


def answer(journal: Journal, call: Call, wire_bytes: int = 0) -> None:
    """Answer a call, with its response if it has one."""
    call.answered_ms = 0.0
    journal.add_response(call, wire_bytes)


def fetched(data: bytes | memoryview) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=1,
        aborted_transactions=None,
        records=data,  # type: ignore[arg-type]
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


def fetch(response: FetchResponse | None = None) -> Call:
    return call_of(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], forgotten_topics_data=[]), response, 12)


# Limits


def test_the_oldest_requests_are_dropped_first_and_counted() -> None:
    journal = Journal(max_calls=3)
    calls = [call_of(heartbeat_request("g", generation_id=number)) for number in range(5)]
    for call in calls:
        journal.add(call)
    assert (list(journal), journal.dropped, journal.added, journal.bytes) == (calls[2:], 2, 5, 3 * HELD_BYTES)


def test_bytes_are_limited() -> None:
    journal = Journal(max_bytes=2 * HELD_BYTES)
    calls = [call_of(heartbeat_request("g", generation_id=number)) for number in range(5)]
    for call in calls:
        journal.add(call)
    assert (list(journal), journal.dropped, journal.bytes) == (calls[3:], 3, 2 * HELD_BYTES)


def test_a_journal_of_size_0_drops_every_request() -> None:
    journal = Journal(max_calls=0)
    journal.add(call_of(heartbeat_request("g")))
    assert (len(journal), journal.dropped, journal.bytes) == (0, 1, 0)


def test_responses_count_when_they_are_known(subtests: pytest.Subtests) -> None:
    log = bytes(1_000_000)
    for data in (log, memoryview(log)[:500_000], memoryview(log)):  # Shared with a log: kept in memory by the response.
        with subtests.test(size=len(data), kind=type(data).__name__):
            journal = Journal()
            parked, other = fetch(), call_of(heartbeat_request("g"))
            journal.add(parked)
            journal.add(other)
            assert journal.bytes == 2 * HELD_BYTES
            parked.response = fetched(data)
            answer(journal, parked, len(data) + 50)
            assert journal.bytes == 2 * HELD_BYTES + len(data) + 50 * OBJECT_FACTOR


def test_a_response_drops_the_oldest_calls() -> None:
    journal = Journal(max_bytes=3 * HELD_BYTES + 2_000_000)
    calls = [fetch(fetched(bytes(1_000_000))) for _ in range(4)]
    for call in calls:
        journal.add(call)
        answer(journal, call, 1_000_000)
    assert (list(journal), journal.dropped) == (calls[2:], 2)
    assert journal.bytes == 2 * (HELD_BYTES + 1_000_000)


def test_the_response_to_a_dropped_call_does_not_count() -> None:
    journal = Journal(max_calls=1)
    early, late = fetch(fetched(bytes(5000))), call_of(heartbeat_request("g"))
    journal.add(early)
    journal.add(late)
    answer(journal, early, 5000)
    assert (list(journal), journal.bytes) == ([late], HELD_BYTES)


@pytest.mark.parametrize("mode", ["full", "headers"])
def test_a_call_that_exceeds_the_limit_alone_is_kept_without_messages(mode: str) -> None:
    journal = new_journal(mode, 100, 20_000)
    small, large, last = call_of(heartbeat_request("g")), fetch(), call_of(heartbeat_request("g"))
    for call in (small, large, last):
        journal.add(call)
    large.response = fetched(bytes(50_000))
    answer(journal, large, 50_000)
    first, kept, _ = journal
    assert (first.api.name, kept.api.name, kept.number, journal.dropped) == ("Heartbeat", "Fetch", 2, 0)
    assert (kept.request, kept.response, kept.has_response, kept.answered_ms) == (None, None, True, 0.0)
    assert journal.bytes <= 20_000
    assert (large.response is not None, journal.at(2)) == (True, kept)  # The call itself has its messages.


def test_a_request_that_exceeds_the_limit_alone_is_kept_without_messages(subtests: pytest.Subtests) -> None:
    for mode in ("full", "headers"):
        with subtests.test(mode=mode):
            journal = new_journal(mode, 100, HELD_BYTES + 100)
            large = call_of(heartbeat_request("g"))
            large.size = 10_000
            journal.add(call_of(heartbeat_request("g")))
            journal.add(large)
            _, kept = journal
            assert (kept.request, kept.group_ids, kept.has_response) == (None, ("g",), False)
            large.response = HeartbeatResponse(error_code=0)
            answer(journal, large)
            _, kept = journal
            assert (kept.has_response, kept.answered_ms, journal.dropped) == (True, 0.0, 0)


# Modes


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("none", 1, 1), "journal='none': expected one of off, headers, full"),
        (("full", -1, 1), "journal_calls=-1: expected an integer >= 0"),
        (("full", 1, -1), "journal_bytes=-1: expected an integer >= 0"),
    ],
)
def test_invalid_arguments(arguments: tuple[str, int, int], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        new_journal(*arguments)


def test_off_keeps_nothing() -> None:
    cluster = harness("off")
    cluster.ask(heartbeat_request("g"), 4)
    assert (list(cluster.cluster.journal), cluster.cluster.journal.dropped) == ([], 0)


def test_headers_keeps_everything_except_messages() -> None:
    cluster = harness("headers")
    joined = cluster.ask(join_request(), 9)
    cluster.ask(heartbeat_request("g"), 3)
    first, second = cluster.cluster.journal
    assert (first.request, first.response, first.has_response) == (None, None, True)
    assert (first.api.name, first.api_version, first.client_id) == ("JoinGroup", 9, "client")
    assert (first.group_ids, first.member_ids) == (("g",), (joined.member_id,))
    assert (first.errors, first.latency_ms) == ((ErrorCode.MEMBER_ID_REQUIRED,), 0.0)
    assert (second.api_version, second.member_ids, second.errors) == (3, ("m",), (ErrorCode.UNKNOWN_MEMBER_ID,))


def test_headers_of_a_parked_call_are_completed_by_its_response() -> None:
    cluster = harness("headers", **{"group.initial.rebalance.delay.ms": 3000})
    call = cluster.send(join_request(), 3)
    (kept,) = cluster.cluster.journal
    assert (kept.answered_ms, kept.latency_ms, kept.has_response, kept.member_ids) == (None, None, False, ())
    cluster.advance(3000)
    assert call.response.member_id  # The call itself keeps its messages until it is answered.
    (kept,) = cluster.cluster.journal
    assert (kept.latency_ms, kept.has_response, kept.errors) == (3000, True, ())
    assert (kept.member_ids, kept.response) == ((call.response.member_id,), None)


class _Heartbeat(HeartbeatRequest, weakref=True):
    """A request that supports weak references."""


def test_headers_releases_messages_without_a_query() -> None:
    journal = new_journal("headers", 1000, 1_000_000)
    watched = []
    for number in range(300):
        request = _Heartbeat(group_id="g", generation_id=number, member_id="m")
        call = call_of(heartbeat_request("g"))
        call.request = request
        watched.append(weakref.ref(request))
        journal.add(call)
        if number % 100:  # Calls 0, 100 and 200 stay pending.
            answer(journal, call)
    del request, call
    gc.collect()
    assert [number for number, reference in enumerate(watched) if reference() is not None] == [0, 100, 200]
    assert len(journal) == 300


def test_headers_releases_dropped_calls() -> None:
    journal = new_journal("headers", 2, 1_000_000)
    watched = []
    for number in range(100):
        call = call_of(heartbeat_request("g"))
        call.request = _Heartbeat(group_id="g", generation_id=number, member_id="m")
        watched.append(weakref.ref(call.request))
        journal.add(call)
    del call
    assert len(list(journal)) == 2
    gc.collect()
    assert [number for number, reference in enumerate(watched) if reference() is not None] == [98, 99]


def test_headers_updates_the_copy_of_a_dropped_call_that_is_answered() -> None:
    journal = new_journal("headers", 1, 1_000_000)
    call = call_of(heartbeat_request(), HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    journal.add(call)
    (kept,) = journal
    journal.add(call_of(heartbeat_request()))
    answer(journal, call)
    assert (kept.answered_ms, kept.errors) == (0.0, (ErrorCode.NOT_COORDINATOR,))


def test_headers_counts_the_bytes_of_names() -> None:
    journal = new_journal("headers", 1000, HELD_BYTES * 20)
    for _ in range(1000):
        call = call_of(heartbeat_request("g"))
        journal.add(call)
        answer(journal, call)
    kept = list(journal)
    assert len(kept) > 100  # With their messages, 20 would fit.
    assert (journal.bytes, journal.added) == (len(kept) * len("appgm"), 1000)


def test_messages_of_pending_calls_count_in_full() -> None:
    request_bytes = OBJECT_FACTOR * BODY_BYTES
    journal = new_journal("headers", 1000, request_bytes * 20)
    for _ in range(100):
        journal.add(call_of(heartbeat_request("g")))
    assert (len(list(journal)), journal.bytes, journal.dropped) == (20, request_bytes * 20, 80)


# Order of responses


def test_a_delayed_response_has_the_number_of_requests_before_it() -> None:
    cluster = harness("full", **{"group.initial.rebalance.delay.ms": 3000})
    delayed = cluster.send(join_request(), 3)
    immediate = cluster.send(heartbeat_request("g"), 4)
    cluster.advance(3000)
    assert (delayed.answered_after, immediate.answered_after) == (2, 0)


# Groups, members and errors of a call


@pytest.mark.parametrize(
    ("request_message", "group_ids", "member_ids"),
    [
        (heartbeat_request("g"), ("g",), ("m",)),
        (join_request(), ("g",), ()),
        (join_request("g", "m"), ("g",), ("m",)),
        (FindCoordinatorRequest(key="a"), ("a",), ()),
        (FindCoordinatorRequest(coordinator_keys=["a", "b"]), ("a", "b"), ()),
        (FindCoordinatorRequest(key="a", key_type=1), (), ()),
        (OffsetFetchRequest(group_id="a"), ("a",), ()),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(group_id="a", member_id="m", topics=None),
                    OffsetFetchRequestGroup(group_id="b", topics=None),
                ]
            ),
            ("a", "b"),
            ("m",),
        ),
        (LeaveGroupRequest(group_id="g", member_id="m"), ("g",), ("m",)),
        (
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m"), MemberIdentity(member_id="n")]),
            ("g",),
            ("m", "n"),
        ),
    ],
)
def test_groups_and_members(request_message: Message, group_ids: tuple[str, ...], member_ids: tuple[str, ...]) -> None:
    call = call_of(request_message)
    assert (call.group_ids, call.member_ids) == (group_ids, member_ids)


def test_a_join_without_member_id_has_the_assigned_member_id() -> None:
    response = JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        generation_id=-1,
        protocol_name=None,
        leader="",
        member_id="assigned",
        members=[],
    )
    assert call_of(join_request(), response).member_ids == ("assigned",)
    assert call_of(join_request("g", "known"), response).member_ids == ("known",)


def test_errors_of_the_response_and_of_its_parts() -> None:
    leave = LeaveGroupRequest(group_id="g", members=[])
    members = [
        MemberResponse(member_id="m", group_instance_id=None, error_code=code)
        for code in (0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
    ]
    response = LeaveGroupResponse(error_code=0, members=members)
    assert call_of(leave, response).errors == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    found = FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)]
    )
    assert call_of(FindCoordinatorRequest(), found).errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    assert call_of(leave).errors == ()
