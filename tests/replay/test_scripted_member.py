"""Scripted members: each action of a script, and the events of their requests."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_assignment
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.scripted_member import LEAVE_TIMEOUT_MS, ScriptedMember
from fakebroker.replay.script.script import Act
from tests.support.replay.simulated_replays import script

START = 1_700_000_000_000.0
MEMBER_ID = "g-0-id"
PARTITIONS = (("orders", 0), ("orders", 1))


class Stage:
    """A scripted member with a broker that answers each request without an error after a millisecond.

    Attributes:
        errors: Errors in the responses to the next requests of a type.
        mute: Types of requests that get no response.
    """

    def __init__(self, *acts: Act, closed_loop: bool = False, **changes: Any) -> None:
        self.events: list[Event] = []
        self.scripted = ScriptedMember(
            script("g", 0, *acts, **changes), START, self.events.append, closed_loop=closed_loop
        )
        self.errors: dict[type[GroupRequest], list[ErrorCode]] = {}
        self.mute: tuple[type[GroupRequest], ...] = ()
        self.disconnects = 0
        self.generation = 0
        self.now_ms = START

    def run(self, until_ms: float) -> None:
        """Advance the time to `until_ms` after the start."""
        self.follow()
        while (due_ms := self.scripted.next_deadline()) <= START + until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.scripted.tick(self.now_ms)
            self.follow()
        self.now_ms = max(self.now_ms, START + until_ms)

    def follow(self) -> None:
        """Do what the member requests, as a driver does."""
        while self.scripted.has_work:
            self.disconnects += self.scripted.take_disconnect()
            if self.scripted.take_discovery() is not None:
                self.scripted.discovered(1, "b1", 9092, self.now_ms)
            if self.scripted.take_metadata() is not None:
                self.scripted.metadata({"orders": 2}, self.now_ms)
            request = self.scripted.take_request()
            if request is None:
                return
            self.scripted.sent(4, self.now_ms)
            if isinstance(request, self.mute):
                return
            self.now_ms += 1
            self.scripted.answered(self.answer(request), self.now_ms)

    def answer(self, request: GroupRequest) -> GroupResponse:
        error = next(iter(self._errors(type(request))), ErrorCode.NONE)
        match request:
            case JoinGroupRequest():
                return self._joined(request, error)
            case SyncGroupRequest():
                return SyncGroupResponse(error_code=error, assignment=b"" if error else encode_assignment(PARTITIONS))
            case OffsetCommitRequest():
                committed = [
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in request.topics[0].partitions
                ]
                return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=committed)])
            case OffsetFetchRequest():
                fetched = [
                    OffsetFetchResponsePartitions(partition_index=index, committed_offset=40, metadata="", error_code=0)
                    for _, index in PARTITIONS
                ]
                topics = [OffsetFetchResponseTopics(name="orders", partitions=fetched)]
                return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
            case LeaveGroupRequest():
                return LeaveGroupResponse(error_code=error)
        return HeartbeatResponse(error_code=error)

    def _errors(self, kind: type[GroupRequest]) -> Iterator[ErrorCode]:
        errors = self.errors.get(kind, [])
        if errors:
            yield errors.pop(0)

    def _joined(self, request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
        self.generation += error is ErrorCode.NONE
        member = JoinGroupResponseMember(member_id=MEMBER_ID, metadata=request.protocols[0].metadata)
        return JoinGroupResponse(
            error_code=error,
            generation_id=self.generation if error is ErrorCode.NONE else -1,
            protocol_name="range",
            leader=MEMBER_ID,
            member_id=MEMBER_ID,
            members=[member],
        )

    def of(self, *apis: str) -> list[Event]:
        return [event for event in self.events if event.api in apis]

    def times_s(self, api: str) -> list[float]:
        """Return when requests were sent: seconds from the start, rounded to tenths."""
        return [round(event.sent_us / 1e6 - START / 1e3, 1) for event in self.of(api)]


START_ACT = Act(0.0, "start")


def test_events_have_the_fields_of_each_request_and_response() -> None:
    stage = Stage(START_ACT, Act(3_000.0, "leave"))
    stage.errors[JoinGroupRequest] = [ErrorCode.MEMBER_ID_REQUIRED]
    stage.run(4_000)
    required, joined = stage.of("JoinGroup")
    assert (required.error, required.member_id, required.generation) == (79, MEMBER_ID, None)
    assert joined[7:10] == ("g-0", 1, 0)
    assert (joined.leader, joined.protocol, joined.members, joined.member_id) == (MEMBER_ID, "range", 1, MEMBER_ID)
    (synced,) = stage.of("SyncGroup")
    assert (synced.assigned, synced.generation, synced.broker) == (["orders-0", "orders-1"], 1, 1)
    (fetched,) = stage.of("OffsetFetch")
    assert fetched.offsets == [("orders-0", 40), ("orders-1", 40)]
    beat = stage.of("Heartbeat")[0]
    assert (beat.version, beat.generation, beat.member_id, beat.latency_us, beat.error) == (4, 1, MEMBER_ID, 1000, 0)
    assert stage.of("LeaveGroup")[0].member_id == MEMBER_ID
    assert {event.group for event in stage.events} == {"g"}
    assert not any(event.lost for event in stage.events)


def test_actions_are_recorded_as_acts() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "leave"), instance_id="i")
    stage.run(3_000)
    start, leave = stage.of("start", "leave")
    assert (start.kind, start.version, start.broker, start.member_id, start.generation) == ("act", -1, -1, None, None)
    assert (leave.sent_us - start.sent_us, leave.member_id, leave.generation) == (1_500_000, MEMBER_ID, 1)
    assert leave.instance_id == "i"


def test_committed_offsets_advance_at_the_rate() -> None:
    stage = Stage(START_ACT, Act(6_000.0, "leave"))
    stage.run(7_000)
    first, second, last = stage.of("OffsetCommit")
    assert first.offsets is not None
    assert second.offsets is not None
    assert last.offsets is not None
    assert [offset for _, offset in first.offsets] == pytest.approx([40 + 250] * 2, abs=1)
    assert [offset for _, offset in second.offsets] == pytest.approx([40 + 500] * 2, abs=1)
    assert [offset for _, offset in last.offsets] == pytest.approx([40 + 600] * 2, abs=1)


def test_a_rejected_commit_has_no_offsets() -> None:
    stage = Stage(START_ACT)
    stage.errors[OffsetCommitRequest] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stage.run(2_600)
    event = stage.of("OffsetCommit")[0]
    assert (event.error, event.offsets) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_leave_commits_leaves_the_group_and_disconnects() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "leave"))
    stage.run(1_600)
    assert [event.api for event in stage.events[-3:]] == ["leave", "OffsetCommit", "LeaveGroup"]
    assert (stage.disconnects, stage.scripted.is_done, stage.scripted.is_joined) == (1, True, False)
    assert stage.scripted.next_deadline() == math.inf


def test_a_static_member_leaves_without_leave_group() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "leave"), instance_id="i")
    stage.run(1_600)
    assert not stage.of("LeaveGroup")
    assert stage.scripted.is_done


def test_the_response_to_leave_group_is_awaited_until_the_leave_timeout() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "leave"))
    stage.mute = (LeaveGroupRequest,)
    stage.run(1_500 + LEAVE_TIMEOUT_MS - 1)
    assert not stage.scripted.is_done
    stage.run(1_500 + LEAVE_TIMEOUT_MS)
    assert stage.scripted.is_done
    assert (stage.events[-1].api, stage.events[-1].lost, stage.disconnects) == ("LeaveGroup", True, 1)


def test_a_crash_drops_the_pending_request_and_disconnects() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "crash"))
    stage.mute = (HeartbeatRequest,)
    stage.run(1_600)
    crash, beat = stage.events[-2:]
    assert (crash.api, beat.api, beat.lost, beat.latency_us, beat.error) == ("crash", "Heartbeat", True, None, None)
    assert (stage.scripted.is_done, stage.disconnects) == (True, 1)


def test_a_restarted_member_joins_without_its_old_member_id() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "crash"), Act(2_500.0, "start"))
    stage.run(3_000)
    assert stage.scripted.is_joined
    assert [event.member_id for event in stage.of("start", "crash")] == [None, MEMBER_ID, None]
    assert stage.times_s("JoinGroup") == [0.0, 2.5]


def test_a_start_of_a_running_member_has_no_effect() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "start"))
    stage.run(2_000)
    assert len(stage.of("JoinGroup")) == 1


def test_a_paused_member_sends_nothing_and_processes_responses_late() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "pause", 3_000.0))
    stage.mute = (HeartbeatRequest,)
    stage.run(1_600)
    stage.scripted.answered(HeartbeatResponse(), START + 2_000)
    stage.mute = ()
    stage.run(5_000)
    assert stage.times_s("Heartbeat") == [1.0, 4.5]
    assert stage.of("Heartbeat")[0].latency_us == pytest.approx(3_500_000, abs=10_000)
    assert stage.of("Heartbeat")[1].scheduled_us == (START + 2_001) * 1000
    assert stage.scripted.is_joined


def test_positions_do_not_advance_during_a_pause() -> None:
    stage = Stage(START_ACT, Act(1_000.0, "pause", 3_000.0), Act(5_000.0, "leave"))
    stage.run(6_000)
    last = stage.of("OffsetCommit")[-1]
    assert [offset for _, offset in last.offsets or []] == pytest.approx([40 + 200] * 2, abs=1)


def test_a_paused_member_notices_a_lost_connection_late() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "pause", 3_000.0))
    stage.run(1_600)
    stage.scripted.connection_lost(START + 1_700)
    stage.run(4_499)
    assert stage.scripted.member.state is MemberState.PART_OF_GROUP
    stage.run(5_500)
    assert stage.scripted.is_joined
    assert stage.times_s("Heartbeat")[-1] > 4.5


@pytest.mark.parametrize("commit_interval_ms", [0, 2_500])
def test_a_slow_member_sends_heartbeats_but_does_not_rejoin(commit_interval_ms: int) -> None:
    stage = Stage(START_ACT, Act(1_500.0, "slow", 5_000.0), commit_interval_ms=commit_interval_ms)
    stage.errors[HeartbeatRequest] = [ErrorCode.NONE, *[ErrorCode.REBALANCE_IN_PROGRESS] * 4]
    stage.run(6_400)
    assert stage.times_s("Heartbeat") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert stage.times_s("JoinGroup") == [0.0]
    assert stage.times_s("OffsetCommit") == []
    stage.run(7_000)
    assert stage.times_s("JoinGroup") == [0.0, 6.5]
    assert stage.scripted.is_joined


def test_a_slow_member_commits_once_when_it_polls_again() -> None:
    stage = Stage(START_ACT, Act(1_000.0, "slow", 7_900.0))
    stage.run(9_000)
    assert stage.times_s("OffsetCommit") == [8.9]
    assert len(stage.of("Heartbeat")) == 8


def test_a_slow_member_leaves_at_the_rebalance_timeout_and_rejoins() -> None:
    stage = Stage(START_ACT, Act(1_000.0, "slow", 10_000.0))
    stage.run(10_900)
    assert stage.times_s("LeaveGroup") == [9.0]
    assert stage.times_s("OffsetCommit") == []
    assert (stage.scripted.is_joined, stage.scripted.is_done) == (False, False)
    stage.run(11_500)
    assert stage.times_s("JoinGroup") == [0.0, 11.0]
    assert stage.scripted.is_joined


def test_a_zombie_sends_heartbeats_and_commits_with_its_old_member_id() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "zombie", 3_000.0))
    stage.run(2_000)
    stage.errors = {kind: [ErrorCode.UNKNOWN_MEMBER_ID] * 9 for kind in (HeartbeatRequest, OffsetCommitRequest)}
    stage.run(11_400)
    assert stage.times_s("Heartbeat") == [1.0, 8.5, 9.5, 10.5]
    assert stage.times_s("OffsetCommit") == [8.5, 11.0]
    assert {event.generation for event in stage.of("Heartbeat", "OffsetCommit")} == {1}
    assert stage.times_s("JoinGroup") == [0.0]
    stage.errors = {HeartbeatRequest: [ErrorCode.UNKNOWN_MEMBER_ID]}
    stage.run(12_500)
    assert len(stage.times_s("JoinGroup")) == 2
    assert stage.scripted.is_joined


def test_a_zombie_reconnects_when_it_ends() -> None:
    stage = Stage(START_ACT, Act(1_500.0, "zombie", 3_000.0))
    stage.run(8_600)
    stage.scripted.connection_lost(START + 8_700)
    stage.run(11_400)
    assert stage.scripted.member.state is MemberState.PART_OF_GROUP
    stage.run(13_000)
    assert stage.scripted.is_joined
    assert stage.times_s("Heartbeat")[-1] >= 11.5


def test_a_lost_connection_is_recorded_and_the_member_reconnects() -> None:
    stage = Stage(START_ACT)
    stage.mute = (HeartbeatRequest,)
    stage.run(1_100)
    stage.mute = ()
    stage.scripted.connection_lost(START + 1_200)
    stage.now_ms = START + 1_200
    stage.run(1_500)
    lost = stage.of("Heartbeat")[0]
    assert (lost.lost, lost.latency_us, lost.error, lost.version) == (True, None, None, 4)
    assert stage.disconnects == 0
    assert stage.times_s("Heartbeat") == [1.0, 1.3]


def test_a_request_without_a_connection_has_no_version() -> None:
    stage = Stage(START_ACT)
    stage.scripted.tick(START)
    assert stage.scripted.take_discovery() == START
    stage.scripted.discovered(1, "b1", 9092, START)
    assert isinstance(stage.scripted.take_request(), JoinGroupRequest)
    stage.scripted.connection_lost(START + 5)
    (event,) = stage.of("JoinGroup")
    assert (event.version, event.lost, event.sent_us) == (-1, True, (START + 5) * 1000)


def test_a_member_reconnects_to_a_moved_coordinator() -> None:
    stage = Stage(START_ACT)
    stage.errors[HeartbeatRequest] = [ErrorCode.NOT_COORDINATOR]
    stage.run(1_500)
    assert stage.disconnects == 1
    assert stage.times_s("Heartbeat") == [1.0, 1.1]
    assert (stage.scripted.node_id, stage.scripted.address, stage.scripted.is_joined) == (1, ("b1", 9092), True)


def test_a_failed_look_up_is_repeated() -> None:
    stage = Stage(START_ACT)
    stage.scripted.tick(START)
    assert stage.scripted.take_discovery() == START
    assert stage.scripted.take_discovery() is None
    stage.scripted.discovery_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, START + 1)
    stage.run(500)
    assert stage.scripted.is_joined


def test_a_member_disconnects_after_a_fatal_error() -> None:
    stage = Stage(START_ACT, Act(3_000.0, "leave"))
    stage.errors[JoinGroupRequest] = [ErrorCode.GROUP_MAX_SIZE_REACHED]
    stage.run(1_000)
    assert (stage.disconnects, stage.scripted.is_joined, stage.scripted.is_done) == (1, False, False)
    stage.run(3_000)
    assert stage.scripted.is_done


def test_a_closed_loop_sends_each_heartbeat_when_the_last_one_is_answered() -> None:
    stage = Stage(START_ACT, closed_loop=True)
    stage.run(0)
    stage.now_ms = stage.scripted.member.next_heartbeat_ms
    stage.scripted.tick(stage.now_ms)
    for number in range(20):
        assert isinstance(stage.scripted.take_request(), HeartbeatRequest), number
        stage.scripted.sent(4, stage.now_ms)
        stage.now_ms += 2
        stage.scripted.answered(HeartbeatResponse(), stage.now_ms)
    assert [event.latency_us for event in stage.of("Heartbeat")] == [2_000] * 20


def test_a_pending_request_at_the_end_is_not_lost() -> None:
    stage = Stage(START_ACT)
    stage.mute = (HeartbeatRequest,)
    stage.run(1_100)
    stage.scripted.finish(START + 2_000)
    assert (stage.events[-1].api, stage.events[-1].lost, stage.events[-1].latency_us) == ("Heartbeat", False, None)
