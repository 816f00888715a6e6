"""A group member without rebalances: joining, heartbeats, commits and leaving. For errors see test_member_errors.py."""

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
from tests.support.client.member_harness import COMMIT_MS, HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, MemberHarness
from tests.support.group_responses import committed_offsets, join_response, offset_fetch_response, requested_partitions
from tests.support.virtual_time import START_MS

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


# Joining


def test_a_member_joins_syncs_and_fetches_its_offsets() -> None:
    harness = MemberHarness()
    join = harness.start_joining()
    assert (join.group_id, join.member_id, join.protocol_type) == ("g", "", "consumer")
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert [protocol.name for protocol in join.protocols] == ["range"]
    assert decode_subscription(join.protocols[0].metadata, "range", "", None).topics == ("t",)

    sync = harness.follow(join)
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (1, "m", "range", [])
    assert harness.state() is MemberState.SYNCING

    fetch = harness.assign(sync, P0, P1)
    assert harness.state() is MemberState.PART_OF_GROUP
    assert fetch is not None
    assert (requested_partitions(fetch), fetch.require_stable) == ([P0, P1], True)
    harness.respond(fetch, offset_fetch_response({P0: 7, P1: -1}))
    assert harness.member.positions == {P0: 7, P1: 0}


def test_the_leader_assigns_partitions_to_all_members() -> None:
    harness = MemberHarness()
    other = Subscription(member_id="n", topics=("t", "u"))
    assert harness.lead(harness.start_joining(), other).topics == ("t", "u")
    harness.member.metadata({"t": 3, "u": 1, "else": 9}, harness.now_ms)
    sync = harness.sent(SyncGroupRequest)
    assert {item.member_id: decode_assignment(item.assignment) for item in sync.assignments} == {
        "m": (P0, P1),
        "n": (P2, ("u", 0)),
    }


def test_the_leader_assigns_no_partitions_of_a_topic_that_does_not_exist() -> None:
    harness = MemberHarness()
    harness.lead(harness.start_joining())
    harness.member.metadata({}, harness.now_ms)
    sync = harness.sent(SyncGroupRequest)
    assert [decode_assignment(item.assignment) for item in sync.assignments] == [()]


def test_a_static_leader_that_returns_does_not_assign_but_watches_partition_counts() -> None:
    """The JoinGroup response then has `skip_assignment` (KIP-814)."""
    harness = MemberHarness(instance_id="i", commit_interval_ms=0)
    join = harness.start_joining()
    assert join.group_instance_id == "i"
    response = join_response("m", "m")
    response.skip_assignment = True
    response.members = [JoinGroupResponseMember(member_id="m", metadata=join.protocols[0].metadata)]
    harness.respond(join, response)
    assert harness.only(FetchMetadata).topics == ("t",)
    harness.member.metadata({"t": 1}, harness.now_ms)
    sync = harness.sent(SyncGroupRequest)
    assert sync.assignments == []
    harness.assign(sync, P0)
    harness.member.metadata({"t": 2}, harness.now_ms)
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_static_leader_is_a_follower_if_the_response_names_its_former_member_id() -> None:
    """JoinGroup responses of versions 5 to 8 have the former member id when the leader returns (KIP-814)."""
    harness = MemberHarness(instance_id="i")
    harness.respond(harness.start_joining(), join_response("i-new", "i-old"))
    assert harness.sent(SyncGroupRequest).assignments == []


def test_offsets_are_read_from_responses_before_version_8() -> None:
    harness = MemberHarness()
    fetch = harness.assign(harness.follow(harness.start_joining()), P0)
    assert fetch is not None
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=5, metadata="", error_code=0)
    old = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])
    harness.respond(fetch, old)
    assert harness.member.positions == {P0: 5}


def test_a_committed_offset_does_not_replace_a_position_that_the_application_has_set() -> None:
    harness = MemberHarness()
    fetch = harness.assign(harness.follow(harness.start_joining()), P0)
    assert fetch is not None
    harness.member.positions[P0] = 99
    harness.respond(fetch, offset_fetch_response({P0: 7}))
    assert harness.member.positions == {P0: 99}


def test_a_leader_of_a_group_of_another_type_fails(subtests: pytest.Subtests) -> None:
    for protocol_type, metadata, message in (
        ("connect", b"", "the group's type is 'connect'"),
        ("consumer", b"\0", "ConsumerProtocolSubscription malformed"),
    ):
        with subtests.test(protocol_type=protocol_type, metadata=metadata):
            harness = MemberHarness()
            response = join_response("m", "m")
            response.protocol_type = protocol_type
            response.members = [JoinGroupResponseMember(member_id="n", metadata=metadata)]
            harness.respond(harness.start_joining(), response)
            assert message in harness.only(Fatal).message


def test_an_empty_assignment_is_fatal() -> None:
    """A member receives an assignment of no bytes if the leader omitted the member; Kafka's consumer fails, too."""
    harness = MemberHarness()
    harness.respond(harness.follow(harness.start_joining()), SyncGroupResponse(assignment=b""))
    assert harness.only(Fatal).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Heartbeats


def test_a_late_tick_does_not_shift_the_heartbeat_schedule() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    joined_ms = harness.now_ms
    harness.now_ms += HEARTBEAT_MS + 1_000
    harness.member.tick(harness.now_ms)
    heartbeat = harness.only(Send)
    assert heartbeat.scheduled_ms == joined_ms + HEARTBEAT_MS
    assert heartbeat.request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert harness.member.next_deadline() == joined_ms + 2 * HEARTBEAT_MS


def test_heartbeats_missed_by_a_late_tick_are_skipped() -> None:
    harness = MemberHarness(commit_interval_ms=0, session_timeout_ms=100_000).enter(P0)
    harness.now_ms += 4.5 * HEARTBEAT_MS
    harness.member.tick(harness.now_ms)
    assert len(harness.effects()) == 1
    assert harness.member.next_deadline() == harness.now_ms + HEARTBEAT_MS


def test_a_member_sends_heartbeats_while_it_waits_for_its_assignment() -> None:
    harness = MemberHarness()
    harness.follow(harness.start_joining())
    assert harness.sent_heartbeat().generation_id == 1


def test_the_coordinator_is_looked_up_after_a_session_timeout_without_a_response() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    harness.respond(harness.sent_heartbeat(), HeartbeatResponse())
    harness.advance(SESSION_MS - 1)
    assert harness.state() is MemberState.PART_OF_GROUP
    harness.effects()
    harness.advance(1)
    assert harness.state() is MemberState.REDISCOVERING
    assert harness.member.assigned == (P0,)


def test_a_coordinator_that_was_found_again_is_given_up_after_a_session_timeout_as_well() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    harness.member.connection_lost(harness.now_ms)
    harness.discovered()
    harness.advance(SESSION_MS - 1)
    assert harness.state() is MemberState.PART_OF_GROUP
    harness.advance(1)
    assert harness.state() is MemberState.REDISCOVERING


def test_the_error_of_a_rebalance_in_progress_extends_the_session() -> None:
    harness = MemberHarness().enter(P0)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.state() is MemberState.STOPPED
    harness.advance(SESSION_MS - 1)
    assert harness.state() is MemberState.STOPPED


# Commits


def test_positions_are_committed_at_their_interval() -> None:
    harness = MemberHarness(heartbeat_interval_ms=9_000).enter(P0, P1)
    harness.member.positions[P1] = 20
    harness.advance(COMMIT_MS)
    send = harness.only(Send)
    assert send.scheduled_ms == START_MS + COMMIT_MS
    assert isinstance(send.request, OffsetCommitRequest)
    assert (send.request.generation_id_or_member_epoch, send.request.member_id) == (1, "m")
    assert committed_offsets(send.request) == {P0: 10, P1: 20}


def test_only_owned_partitions_with_a_position_are_committed() -> None:
    harness = MemberHarness()
    harness.assign(harness.follow(harness.start_joining()), P0, P1)
    harness.member.positions.update({P1: 5, P2: 6})
    harness.member.commit(harness.now_ms)
    assert committed_offsets(harness.sent(OffsetCommitRequest)) == {P1: 5}


def test_without_a_commit_interval_a_member_commits_only_on_request() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    harness.advance(HEARTBEAT_MS)
    assert isinstance(harness.only(Send).request, HeartbeatRequest)
    harness.member.commit(harness.now_ms)
    commit = harness.sent(OffsetCommitRequest)
    assert committed_offsets(commit) == {P0: 10}
    harness.respond_error(commit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    harness.advance(100)
    assert harness.sent(OffsetCommitRequest) == commit


def test_a_commit_outside_of_a_complete_generation_is_rejected_at_once() -> None:
    harness = MemberHarness()
    join = harness.start_joining()
    harness.member.commit(harness.now_ms)
    assert harness.only(CommitRejected).error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.assign(harness.follow(join), P0)
    harness.member.connection_lost(harness.now_ms)
    harness.member.commit(harness.now_ms)
    assert harness.only(CommitRejected).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Leaving and crashing


def test_a_member_commits_revokes_its_partitions_and_sends_leave_group_when_it_leaves() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.leave(harness.now_ms)
    commit, revoked, leave = harness.effects()
    assert isinstance(commit, Send)
    assert isinstance(commit.request, OffsetCommitRequest)
    assert revoked == Revoked((P0,), False, harness.now_ms)
    assert isinstance(leave, Send)
    assert isinstance(leave.request, LeaveGroupRequest)
    assert [(m.member_id, m.group_instance_id) for m in leave.request.members] == [("m", None)]
    assert harness.state() is MemberState.DOWN
    harness.respond_error(commit.request, ErrorCode.FENCED_INSTANCE_ID)
    assert harness.effects() == []


def test_a_static_member_sends_leave_group_only_if_it_is_to_be_removed() -> None:
    for remove_static in (False, True):
        harness = MemberHarness(instance_id="i", commit_interval_ms=0).enter(P0)
        harness.member.leave(harness.now_ms, remove_static=remove_static)
        sent = [effect.request for effect in harness.effects() if isinstance(effect, Send)]
        leaves = [request for request in sent if isinstance(request, LeaveGroupRequest)]
        left = [(member.member_id, member.group_instance_id) for leave in leaves for member in leave.members]
        assert left == ([("m", "i")] if remove_static else [])


def test_without_a_member_id_or_a_coordinator_leave_group_is_not_sent() -> None:
    harness = MemberHarness()
    harness.start_joining()
    harness.member.leave(harness.now_ms)
    assert harness.effects() == []
    harness = MemberHarness().enter()
    harness.member.connection_lost(harness.now_ms)
    harness.member.leave(harness.now_ms)
    assert harness.effects() == []


def test_a_crash_has_no_effects() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.commit(harness.now_ms)
    harness.member.crash(harness.now_ms)
    assert (harness.effects(), harness.state(), harness.member.assigned) == ([], MemberState.DOWN, ())
    assert harness.member.next_deadline() is None


def test_a_member_that_crashed_can_start_again_without_its_member_id() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.crash(harness.now_ms)
    harness.member.leave(harness.now_ms)
    assert harness.effects() == []
    assert harness.start_joining().member_id == ""
    harness.member.start(harness.now_ms)
    assert harness.effects() == []


# Settings and states


def test_invalid_settings_are_rejected(subtests: pytest.Subtests) -> None:
    for name, value, message in (
        ("assignor", "rand", "assignor='rand': expected one of range, roundrobin, sticky, cooperative-sticky"),
        ("heartbeat_interval_ms", 10_000, "heartbeat_interval_ms=10000: expected less than .* 10000"),
        ("heartbeat_interval_ms", 0, "heartbeat_interval_ms=0: expected a number > 0"),
        ("commit_interval_ms", -1, "commit_interval_ms=-1: expected a number >= 0"),
    ):
        with subtests.test(name=name, value=value), pytest.raises(ConfigError, match=message):
            MemberHarness(**{name: value})


def test_every_state_is_reachable_and_can_end() -> None:
    reached, pending = {MemberState.DOWN}, [MemberState.DOWN]
    while pending:
        for state in TRANSITIONS[pending.pop()]:
            if state not in reached:
                reached.add(state)
                pending.append(state)
    assert reached == set(MemberState) == set(TRANSITIONS)
    assert all(
        MemberState.DOWN in following for state, following in TRANSITIONS.items() if state is not MemberState.DOWN
    )


def test_a_transition_that_is_not_in_the_table_is_an_assertion_error() -> None:
    member = Member(MemberSettings(group_id="g", client_id="c", topics=("t",)))
    with pytest.raises(AssertionError, match="no transition from"):
        member._enter(MemberState.SYNCING)


def test_the_leader_looks_up_each_topic_of_the_group_once() -> None:
    harness = MemberHarness(topics=("t", "u"))
    effect = harness.lead(harness.start_joining(), Subscription(member_id="n", topics=("u", "v")))
    assert effect == FetchMetadata(("t", "u", "v"), harness.now_ms)
