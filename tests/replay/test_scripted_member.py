"""Scripted members: each action of a script, and the events of their requests."""

import math

import pytest

from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.replay.members.scripted_member import LEAVE_TIMEOUT_MS
from fakebroker.replay.script.script import Act
from tests.support.replay.scripted_member_harness import MEMBER_ID, ScriptedMemberHarness
from tests.support.virtual_time import START_MS

START_ACT = Act(0.0, "start")


def test_events_have_the_fields_of_each_request_and_response() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(3_000.0, "leave"))
    harness.errors[JoinGroupRequest] = [ErrorCode.MEMBER_ID_REQUIRED]
    harness.run(4_000)
    required, joined = harness.of("JoinGroup")
    assert (required.error, required.member_id, required.generation) == (79, MEMBER_ID, None)
    assert joined[7:10] == ("g-0", 1, 0)
    assert (joined.leader, joined.protocol, joined.members, joined.member_id) == (MEMBER_ID, "range", 1, MEMBER_ID)
    (synced,) = harness.of("SyncGroup")
    assert (synced.assigned, synced.generation, synced.broker) == (["orders-0", "orders-1"], 1, 1)
    (fetched,) = harness.of("OffsetFetch")
    assert fetched.offsets == [("orders-0", 40), ("orders-1", 40)]
    beat = harness.of("Heartbeat")[0]
    assert (beat.version, beat.generation, beat.member_id, beat.latency_us, beat.error) == (4, 1, MEMBER_ID, 1000, 0)
    assert harness.of("LeaveGroup")[0].member_id == MEMBER_ID
    assert {event.group for event in harness.events} == {"g"}
    assert not any(event.missing for event in harness.events)


def test_actions_are_recorded_as_acts() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "leave"), instance_id="i")
    harness.run(3_000)
    start, leave = harness.of("start", "leave")
    assert (start.kind, start.version, start.broker, start.member_id, start.generation) == ("act", -1, -1, None, None)
    assert (leave.sent_us - start.sent_us, leave.member_id, leave.generation) == (1_500_000, MEMBER_ID, 1)
    assert leave.instance_id == "i"


def test_committed_offsets_advance_at_the_rate() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(6_000.0, "leave"))
    harness.run(7_000)
    first, second, last = harness.of("OffsetCommit")
    assert first.offsets is not None
    assert second.offsets is not None
    assert last.offsets is not None
    assert [offset for _, offset in first.offsets] == pytest.approx([40 + 250] * 2, abs=1)
    assert [offset for _, offset in second.offsets] == pytest.approx([40 + 500] * 2, abs=1)
    assert [offset for _, offset in last.offsets] == pytest.approx([40 + 600] * 2, abs=1)


def test_a_rejected_commit_has_no_offsets() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.errors[OffsetCommitRequest] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    harness.run(2_600)
    event = harness.of("OffsetCommit")[0]
    assert (event.error, event.offsets) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_leave_commits_leaves_the_group_and_disconnects() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "leave"))
    harness.run(1_600)
    assert [event.api for event in harness.events[-3:]] == ["leave", "OffsetCommit", "LeaveGroup"]
    assert (harness.disconnects, harness.scripted.is_done, harness.scripted.is_joined) == (1, True, False)
    assert harness.scripted.next_deadline() == math.inf


def test_a_static_member_leaves_without_leave_group() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "leave"), instance_id="i")
    harness.run(1_600)
    assert not harness.of("LeaveGroup")
    assert harness.scripted.is_done


def test_the_response_to_leave_group_is_awaited_until_the_leave_timeout() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "leave"))
    harness.mute = (LeaveGroupRequest,)
    harness.run(1_500 + LEAVE_TIMEOUT_MS - 1)
    assert not harness.scripted.is_done
    harness.run(1_500 + LEAVE_TIMEOUT_MS)
    assert harness.scripted.is_done
    assert (harness.events[-1].api, harness.events[-1].missing, harness.disconnects) == ("LeaveGroup", "unanswered", 1)


def test_a_crash_drops_the_pending_request_and_disconnects() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "crash"))
    harness.mute = (HeartbeatRequest,)
    harness.run(1_600)
    crash, beat = harness.events[-2:]
    assert (crash.api, beat.api, beat.missing, beat.latency_us, beat.error) == (
        "crash",
        "Heartbeat",
        "cut off",
        None,
        None,
    )
    assert (harness.scripted.is_done, harness.disconnects) == (True, 1)


def test_a_restarted_member_joins_without_its_old_member_id() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "crash"), Act(2_500.0, "start"))
    harness.run(3_000)
    assert harness.scripted.is_joined
    assert [event.member_id for event in harness.of("start", "crash")] == [None, MEMBER_ID, None]
    assert harness.times_s("JoinGroup") == [0.0, 2.5]


def test_a_start_of_a_running_member_has_no_effect() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "start"))
    harness.run(2_000)
    assert len(harness.of("JoinGroup")) == 1


def test_a_paused_member_sends_nothing_and_processes_responses_late() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "pause", 3_000.0))
    harness.mute = (HeartbeatRequest,)
    harness.run(1_600)
    harness.scripted.answered(HeartbeatResponse(), START_MS + 2_000)
    harness.mute = ()
    harness.run(5_000)
    assert harness.times_s("Heartbeat") == [1.0, 4.5]
    assert harness.of("Heartbeat")[0].latency_us == pytest.approx(3_500_000, abs=10_000)
    assert harness.of("Heartbeat")[1].scheduled_us == (START_MS + 2_001) * 1000
    assert harness.scripted.is_joined


def test_positions_do_not_advance_during_a_pause() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_000.0, "pause", 3_000.0), Act(5_000.0, "leave"))
    harness.run(6_000)
    last = harness.of("OffsetCommit")[-1]
    assert [offset for _, offset in last.offsets or []] == pytest.approx([40 + 200] * 2, abs=1)


def test_a_paused_member_notices_a_lost_connection_late() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "pause", 3_000.0))
    harness.run(1_600)
    harness.scripted.connection_lost(START_MS + 1_700)
    harness.run(4_499)
    assert harness.scripted.member.state is MemberState.PART_OF_GROUP
    harness.run(5_500)
    assert harness.scripted.is_joined
    assert harness.times_s("Heartbeat")[-1] > 4.5


@pytest.mark.parametrize("commit_interval_ms", [0, 2_500])
def test_a_slow_member_sends_heartbeats_but_does_not_rejoin(commit_interval_ms: int) -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "slow", 5_000.0), commit_interval_ms=commit_interval_ms)
    harness.errors[HeartbeatRequest] = [ErrorCode.NONE, *[ErrorCode.REBALANCE_IN_PROGRESS] * 4]
    harness.run(6_400)
    assert harness.times_s("Heartbeat") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert harness.times_s("JoinGroup") == [0.0]
    assert harness.times_s("OffsetCommit") == []
    harness.run(7_000)
    assert harness.times_s("JoinGroup") == [0.0, 6.5]
    assert harness.scripted.is_joined


def test_a_slow_member_commits_once_when_it_polls_again() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_000.0, "slow", 7_900.0))
    harness.run(9_000)
    assert harness.times_s("OffsetCommit") == [8.9]
    assert len(harness.of("Heartbeat")) == 8


def test_a_slow_member_leaves_at_the_rebalance_timeout_and_rejoins() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_000.0, "slow", 10_000.0))
    harness.run(10_900)
    assert harness.times_s("LeaveGroup") == [9.0]
    assert harness.times_s("OffsetCommit") == []
    assert (harness.scripted.is_joined, harness.scripted.is_done) == (False, False)
    harness.run(11_500)
    assert harness.times_s("JoinGroup") == [0.0, 11.0]
    assert harness.scripted.is_joined


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_slow_member_sends_no_heartbeats_after_the_rebalance_timeout(instance_id: str | None) -> None:
    """Its heartbeats during a rebalance end, too: they would be those of another member."""
    harness = ScriptedMemberHarness(
        START_ACT, Act(1_500.0, "slow", 10_000.0), instance_id=instance_id, commit_interval_ms=0
    )
    harness.errors[HeartbeatRequest] = [ErrorCode.NONE, *[ErrorCode.REBALANCE_IN_PROGRESS] * 20]
    harness.run(11_400)
    assert harness.times_s("Heartbeat") == [float(second) for second in range(1, 10)]


def test_a_zombie_sends_heartbeats_and_commits_with_its_old_member_id() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "zombie", 3_000.0))
    harness.run(2_000)
    harness.errors = {kind: [ErrorCode.UNKNOWN_MEMBER_ID] * 9 for kind in (HeartbeatRequest, OffsetCommitRequest)}
    harness.run(11_400)
    assert harness.times_s("Heartbeat") == [1.0, 8.5, 9.5, 10.5]
    assert harness.times_s("OffsetCommit") == [8.5, 11.0]
    assert {event.generation for event in harness.of("Heartbeat", "OffsetCommit")} == {1}
    assert harness.times_s("JoinGroup") == [0.0]
    harness.errors = {HeartbeatRequest: [ErrorCode.UNKNOWN_MEMBER_ID]}
    harness.run(12_500)
    assert len(harness.times_s("JoinGroup")) == 2
    assert harness.scripted.is_joined


def test_a_zombie_reconnects_when_it_ends() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(1_500.0, "zombie", 3_000.0))
    harness.run(8_600)
    harness.scripted.connection_lost(START_MS + 8_700)
    harness.run(11_400)
    assert harness.scripted.member.state is MemberState.PART_OF_GROUP
    harness.run(13_000)
    assert harness.scripted.is_joined
    assert harness.times_s("Heartbeat")[-1] >= 11.5


def test_a_lost_connection_is_recorded_and_the_member_reconnects() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.mute = (HeartbeatRequest,)
    harness.run(1_100)
    harness.mute = ()
    harness.scripted.connection_lost(START_MS + 1_200)
    harness.now_ms = START_MS + 1_200
    harness.run(1_500)
    lost = harness.of("Heartbeat")[0]
    assert (lost.missing, lost.latency_us, lost.error, lost.version) == ("lost", None, None, 4)
    assert harness.disconnects == 0
    assert harness.times_s("Heartbeat") == [1.0, 1.3]


def test_a_request_without_a_connection_has_no_version() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.scripted.tick(START_MS)
    assert harness.scripted.take_discovery() == START_MS
    harness.scripted.discovered(1, "b1", 9092, START_MS)
    assert isinstance(harness.scripted.take_request(), JoinGroupRequest)
    harness.scripted.connection_lost(START_MS + 5)
    (event,) = harness.of("JoinGroup")
    assert (event.version, event.missing, event.sent_us) == (-1, "lost", (START_MS + 5) * 1000)


def test_a_member_reconnects_to_a_moved_coordinator() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.errors[HeartbeatRequest] = [ErrorCode.NOT_COORDINATOR]
    harness.run(1_500)
    assert harness.disconnects == 1
    assert harness.times_s("Heartbeat") == [1.0, 1.1]
    assert (harness.scripted.node_id, harness.scripted.address, harness.scripted.is_joined) == (1, ("b1", 9092), True)


def test_a_failed_look_up_is_repeated() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.scripted.tick(START_MS)
    assert harness.scripted.take_discovery() == START_MS
    assert harness.scripted.take_discovery() is None
    harness.scripted.discovery_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, START_MS + 1)
    harness.run(500)
    assert harness.scripted.is_joined


def test_a_member_disconnects_after_a_fatal_error() -> None:
    harness = ScriptedMemberHarness(START_ACT, Act(3_000.0, "leave"))
    harness.errors[JoinGroupRequest] = [ErrorCode.GROUP_MAX_SIZE_REACHED]
    harness.run(1_000)
    assert (harness.disconnects, harness.scripted.is_joined, harness.scripted.is_done) == (1, False, False)
    harness.run(3_000)
    assert harness.scripted.is_done


def test_a_closed_loop_sends_each_heartbeat_when_the_last_one_is_answered() -> None:
    harness = ScriptedMemberHarness(START_ACT, closed_loop=True)
    harness.run(0)
    harness.now_ms = harness.scripted.member.next_heartbeat_ms
    harness.scripted.tick(harness.now_ms)
    for number in range(20):
        assert isinstance(harness.scripted.take_request(), HeartbeatRequest), number
        harness.scripted.sent(4, harness.now_ms)
        harness.now_ms += 2
        harness.scripted.answered(HeartbeatResponse(), harness.now_ms)
    assert [event.latency_us for event in harness.of("Heartbeat")] == [2_000] * 20


def test_a_pending_request_at_the_end_is_cut_off() -> None:
    harness = ScriptedMemberHarness(START_ACT)
    harness.mute = (HeartbeatRequest,)
    harness.run(1_100)
    harness.scripted.finish(START_MS + 2_000)
    assert (harness.events[-1].api, harness.events[-1].missing, harness.events[-1].latency_us) == (
        "Heartbeat",
        "cut off",
        None,
    )
