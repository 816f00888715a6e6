"""A member's way through its group, one state at a time; errors stand in test_reactions.py."""

import pytest

from fakebroker.client.member.effects import CommitRejected, Fatal, FetchMetadata, Revoked, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import TRANSITIONS, MemberState
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.consumer_protocol import Subscription, decode_assignment, decode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.client.member_harness import (
    COMMIT_MS,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    MemberHarness,
    fetched,
    joined,
    partitions_in,
    positions_in,
)

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


# Into the group


def test_a_member_finds_its_coordinator_joins_syncs_and_fetches_its_offsets() -> None:
    bench = MemberHarness()
    join = bench.start_joining()
    assert (join.group_id, join.member_id, join.protocol_type) == ("g", "", "consumer")
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert [protocol.name for protocol in join.protocols] == ["range"]
    assert decode_subscription(join.protocols[0].metadata, "range", "", None).topics == ("t",)

    sync = bench.follow(join)
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (1, "m", "range", [])
    assert bench.state() is MemberState.SYNCING

    fetch = bench.assign(sync, P0, P1)
    assert bench.state() is MemberState.PART_OF_GROUP
    assert fetch is not None
    assert (partitions_in(fetch), fetch.require_stable) == ([P0, P1], True)
    bench.answer(fetch, fetched({P0: 7, P1: -1}))
    assert bench.member.positions == {P0: 7, P1: 0}


def test_the_leader_assigns_for_everybody_by_the_partition_counts() -> None:
    bench = MemberHarness()
    other = Subscription(member_id="n", topics=("t", "u"))
    assert bench.lead(bench.start_joining(), other).topics == ("t", "u")
    bench.member.metadata({"t": 3, "u": 1, "else": 9}, bench.now_ms)
    sync = bench.sent(SyncGroupRequest)
    assert {item.member_id: decode_assignment(item.assignment) for item in sync.assignments} == {
        "m": (P0, P1),
        "n": (P2, ("u", 0)),
    }


def test_the_leader_assigns_nothing_of_a_topic_that_does_not_exist() -> None:
    bench = MemberHarness()
    bench.lead(bench.start_joining())
    bench.member.metadata({}, bench.now_ms)
    sync = bench.sent(SyncGroupRequest)
    assert [decode_assignment(item.assignment) for item in sync.assignments] == [()]


def test_a_static_leader_that_comes_back_sends_no_assignments_but_looks_after_the_partition_counts() -> None:
    bench = MemberHarness(instance_id="i", commit_interval_ms=0)
    join = bench.start_joining()
    assert join.group_instance_id == "i"
    response = joined("m", "m")
    response.skip_assignment = True
    response.members = [JoinGroupResponseMember(member_id="m", metadata=join.protocols[0].metadata)]
    bench.answer(join, response)
    assert bench.only(FetchMetadata).topics == ("t",)
    bench.member.metadata({"t": 1}, bench.now_ms)
    sync = bench.sent(SyncGroupRequest)
    assert sync.assignments == []
    bench.assign(sync, P0)
    bench.member.metadata({"t": 2}, bench.now_ms)
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_member_under_its_leaders_former_id_is_no_leader() -> None:
    """What versions 5 to 8 tell a static leader that was replaced (KIP-814)."""
    bench = MemberHarness(instance_id="i")
    bench.answer(bench.start_joining(), joined("i-new", "i-old"))
    assert bench.sent(SyncGroupRequest).assignments == []


def test_offsets_are_read_from_old_versions_too() -> None:
    bench = MemberHarness()
    fetch = bench.assign(bench.follow(bench.start_joining()), P0)
    assert fetch is not None
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=5, metadata="", error_code=0)
    old = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])
    bench.answer(fetch, old)
    assert bench.member.positions == {P0: 5}


def test_a_position_that_the_application_set_first_stays() -> None:
    bench = MemberHarness()
    fetch = bench.assign(bench.follow(bench.start_joining()), P0)
    assert fetch is not None
    bench.member.positions[P0] = 99
    bench.answer(fetch, fetched({P0: 7}))
    assert bench.member.positions == {P0: 99}


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "sentence"),
    [
        ("connect", b"", "the group's type is 'connect'"),
        ("consumer", b"\0", "ConsumerProtocolSubscription: malformed"),
    ],
)
def test_a_group_that_is_not_ours_to_lead_is_fatal(protocol_type: str, metadata: bytes, sentence: str) -> None:
    bench = MemberHarness()
    response = joined("m", "m")
    response.protocol_type = protocol_type
    response.members = [JoinGroupResponseMember(member_id="n", metadata=metadata)]
    bench.answer(bench.start_joining(), response)
    assert sentence in bench.only(Fatal).message


def test_an_assignment_of_no_bytes_is_fatal() -> None:
    """What a leader that forgot the member leaves it with; the Java client gives up too."""
    bench = MemberHarness()
    bench.answer(bench.follow(bench.start_joining()), SyncGroupResponse(assignment=b""))
    assert bench.only(Fatal).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Heartbeats


def test_heartbeats_go_out_at_their_interval_whenever_they_are_looked_for() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    joined_ms = bench.now_ms
    bench.now_ms += HEARTBEAT_MS + 1_000
    bench.member.tick(bench.now_ms)
    late = bench.only(Send)
    assert late.scheduled_ms == joined_ms + HEARTBEAT_MS
    assert late.request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert bench.member.next_deadline() == joined_ms + 2 * HEARTBEAT_MS


def test_heartbeats_that_a_very_late_tick_missed_are_not_made_up_for() -> None:
    bench = MemberHarness(commit_interval_ms=0, session_timeout_ms=100_000).enter(P0)
    bench.now_ms += 4.5 * HEARTBEAT_MS
    bench.member.tick(bench.now_ms)
    assert len(bench.effects()) == 1
    assert bench.member.next_deadline() == bench.now_ms + HEARTBEAT_MS


def test_a_member_heartbeats_while_it_waits_for_its_assignment() -> None:
    bench = MemberHarness()
    bench.follow(bench.start_joining())
    bench.advance(HEARTBEAT_MS)
    assert bench.sent(HeartbeatRequest).generation_id == 1


def test_a_coordinator_that_answers_no_heartbeat_for_a_session_timeout_is_looked_for() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.advance(HEARTBEAT_MS)
    bench.answer(bench.sent(HeartbeatRequest), HeartbeatResponse())
    bench.advance(SESSION_MS - 1)
    assert bench.state() is MemberState.PART_OF_GROUP
    bench.effects()
    bench.advance(1)
    assert bench.state() is MemberState.REDISCOVERING
    assert bench.member.assigned == (P0,)


def test_a_heartbeat_answered_during_a_rebalance_counts_as_a_sign_of_life() -> None:
    bench = MemberHarness().enter(P0)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    assert bench.state() is MemberState.STOPPED
    bench.advance(SESSION_MS - 1)
    assert bench.state() is MemberState.STOPPED


# Positions and commits


def test_positions_are_committed_at_their_interval() -> None:
    bench = MemberHarness(heartbeat_interval_ms=9_000).enter(P0, P1)
    bench.member.positions[P1] = 20
    bench.advance(COMMIT_MS)
    send = bench.only(Send)
    assert send.scheduled_ms == START_MS + COMMIT_MS
    assert isinstance(send.request, OffsetCommitRequest)
    assert (send.request.generation_id_or_member_epoch, send.request.member_id) == (1, "m")
    assert positions_in(send.request) == {P0: 10, P1: 20}


def test_a_partition_without_a_position_and_one_that_is_not_owned_are_not_committed() -> None:
    bench = MemberHarness()
    bench.assign(bench.follow(bench.start_joining()), P0, P1)
    bench.member.positions.update({P1: 5, P2: 6})
    bench.member.commit(bench.now_ms)
    assert positions_in(bench.sent(OffsetCommitRequest)) == {P1: 5}


def test_a_member_without_an_interval_commits_when_it_is_told_to() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.advance(HEARTBEAT_MS)
    assert isinstance(bench.only(Send).request, HeartbeatRequest)
    bench.member.commit(bench.now_ms)
    commit = bench.sent(OffsetCommitRequest)
    assert positions_in(commit) == {P0: 10}
    bench.refuse(commit, 14)
    bench.advance(100)
    assert bench.sent(OffsetCommitRequest) == commit


def test_a_commit_outside_a_generation_fails_at_once() -> None:
    bench = MemberHarness()
    join = bench.start_joining()
    bench.member.commit(bench.now_ms)
    assert bench.only(CommitRejected).error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.assign(bench.follow(join), P0)
    bench.member.connection_lost(bench.now_ms)
    bench.member.commit(bench.now_ms)
    assert bench.only(CommitRejected).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# The end


def test_a_member_that_leaves_commits_gives_up_its_partitions_and_says_so() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.leave(bench.now_ms)
    commit, revoked, leave = bench.effects()
    assert isinstance(commit, Send)
    assert isinstance(commit.request, OffsetCommitRequest)
    assert revoked == Revoked((P0,), False, bench.now_ms)
    assert isinstance(leave, Send)
    assert isinstance(leave.request, LeaveGroupRequest)
    assert [(m.member_id, m.group_instance_id) for m in leave.request.members] == [("m", None)]
    assert bench.state() is MemberState.DOWN
    bench.refuse(commit.request, 82)
    assert bench.effects() == []


@pytest.mark.parametrize(("remove_static", "left"), [(False, []), (True, [("m", "i")])])
def test_a_static_member_leaves_without_a_word_unless_it_is_to_be_removed(
    remove_static: bool, left: list[tuple[str, str]]
) -> None:
    bench = MemberHarness(instance_id="i", commit_interval_ms=0).enter(P0)
    bench.member.leave(bench.now_ms, remove_static=remove_static)
    leaves = [e.request for e in bench.effects() if isinstance(e, Send) and isinstance(e.request, LeaveGroupRequest)]
    assert [(m.member_id, m.group_instance_id) for leave in leaves for m in leave.members] == left


def test_a_member_that_has_no_id_or_no_coordinator_has_nobody_to_leave() -> None:
    bench = MemberHarness()
    bench.start_joining()
    bench.member.leave(bench.now_ms)
    assert bench.effects() == []
    bench = MemberHarness().enter()
    bench.member.connection_lost(bench.now_ms)
    bench.member.leave(bench.now_ms)
    assert bench.effects() == []


def test_a_member_that_crashes_says_nothing_at_all() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.commit(bench.now_ms)
    bench.member.crash(bench.now_ms)
    assert (bench.effects(), bench.state(), bench.member.assigned) == ([], MemberState.DOWN, ())
    assert bench.member.next_deadline() is None


def test_a_member_that_is_down_can_be_started_again_as_somebody_new() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.crash(bench.now_ms)
    bench.member.leave(bench.now_ms)
    assert bench.effects() == []
    assert bench.start_joining().member_id == ""
    bench.member.start(bench.now_ms)
    assert bench.effects() == []


# Settings and states


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"assignor": "rand"}, "assignor='rand': expected one of range, roundrobin, sticky, cooperative-sticky"),
        ({"heartbeat_interval_ms": 10_000}, "heartbeat_interval_ms=10000: expected less than .* 10000"),
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms=0: expected a number > 0"),
        ({"commit_interval_ms": -1}, "commit_interval_ms=-1: expected a number >= 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        MemberHarness(**settings)


def test_every_state_can_be_reached_and_left() -> None:
    reached, pending = {MemberState.DOWN}, [MemberState.DOWN]
    while pending:
        for state in TRANSITIONS[pending.pop()]:
            if state not in reached:
                reached.add(state)
                pending.append(state)
    assert reached == set(MemberState) == set(TRANSITIONS)
    assert all(MemberState.DOWN in ways for state, ways in TRANSITIONS.items() if state is not MemberState.DOWN)


def test_a_way_that_is_not_in_the_table_is_a_mistake_of_ours() -> None:
    member = Member(MemberSettings(group_id="g", client_id="c", topics=("t",)))
    with pytest.raises(AssertionError, match="no way from"):
        member._enter(MemberState.SYNCING)


def test_the_topics_of_a_group_are_asked_for_once_each() -> None:
    bench = MemberHarness(topics=("t", "u"))
    effect = bench.lead(bench.start_joining(), Subscription(member_id="n", topics=("u", "v")))
    assert effect == FetchMetadata(("t", "u", "v"), bench.now_ms)
