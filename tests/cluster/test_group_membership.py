"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all versions: their fields, and where each error is returned."""

from typing import Any

import pytest

from fakebroker.cluster.cluster import uuid_text
from fakebroker.cluster.configs.settings import SETTINGS
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster.cluster_harness import ClusterHarness, response, versions
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY, join, sync_after
from tests.support.group_requests import join_request


def new_harness(**config: object) -> ClusterHarness:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return ClusterHarness(config=NO_INITIAL_DELAY | settings)


# JoinGroup


def test_join_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("JoinGroup"):
        with subtests.test(version=version):
            harness = new_harness()
            joined = harness.ask(join_request(version=version), version)
            if version >= 4:
                required = ErrorCode.MEMBER_ID_REQUIRED
                assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (
                    required,
                    -1,
                    "",
                    [],
                )
                assert joined.protocol_name == (None if version >= 7 else "")
                joined = harness.ask(join_request(member_id=joined.member_id, version=version), version)
            assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
            assert joined.member_id.startswith("client-")
            assert joined.protocol_name == "range"
            assert joined.protocol_type == ("consumer" if version >= 7 else None)
            assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"r")]
            group = harness.cluster.brokers[1].coordinator.groups.classic.get("g")
            assert group is not None
            member = group.members[joined.member_id]
            assert member.rebalance_timeout_ms == (60_000 if version else 30_000)
            assert member.client_id == "client"


def test_an_error_of_a_join_has_an_empty_protocol_name_before_version_7(subtests: pytest.Subtests) -> None:
    for version in versions("JoinGroup"):
        with subtests.test(version=version):
            failed = new_harness().ask(join_request(member_id="unknown", version=version), version)
            assert failed.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert failed.protocol_name == (None if version >= 7 else "")
            assert (failed.generation_id, failed.leader, failed.member_id) == (-1, "", "unknown")


def test_a_static_member_rejoins_with_a_new_member_id(subtests: pytest.Subtests) -> None:
    for version in range(5, 10):
        with subtests.test(version=version):
            harness = new_harness()
            joined = join(harness, version, group_instance_id="one")
            assert joined.members[0].group_instance_id == "one"
            harness.ask(sync_after(joined, 5), 5)
            rejoined = harness.ask(join_request(group_instance_id="one"), version)
            assert (rejoined.error_code, rejoined.generation_id) == (0, 1)
            assert rejoined.member_id != joined.member_id
            if version == 9:
                assert rejoined.leader == rejoined.member_id
                assert rejoined.skip_assignment
                assert len(rejoined.members) == 1
            else:
                assert rejoined.leader == joined.member_id
                assert rejoined.members == []
            fenced = HeartbeatRequest(
                group_id="g", generation_id=1, member_id=joined.member_id, group_instance_id="one"
            )
            assert harness.ask(fenced, 4).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_parked_join_is_answered_after_the_initial_delay() -> None:
    harness = new_harness(group_initial_rebalance_delay_ms=3000)
    member_id = harness.ask(join_request(), 9).member_id
    call = harness.send(join_request(member_id=member_id), 9)
    assert (call.response, call.answered_ms) == (None, None)
    assert harness.cluster.next_deadline() == harness.now_ms + 3000
    harness.advance(2999)
    assert call.response is None
    harness.advance(1)
    assert response(call).generation_id == 1
    assert call.answered_ms == harness.now_ms


def test_session_timeouts_are_limited_by_the_settings() -> None:
    harness = new_harness(group_max_session_timeout_ms=10_000, group_min_session_timeout_ms=10_000)
    assert join(harness).error_code == 0
    for timeout_ms in (9_999, 10_001):
        failed = harness.ask(join_request(session_timeout_ms=timeout_ms), 9)
        assert failed.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert SETTINGS["group.min.session.timeout.ms"].default == 6000


# SyncGroup


def test_sync_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("SyncGroup"):
        with subtests.test(version=version):
            harness = new_harness()
            synced = harness.ask(sync_after(join(harness), version), version)
            assert (synced.error_code, synced.assignment) == (0, b"mine")
            protocol = ("consumer", "range") if version >= 5 else (None, None)
            assert (synced.protocol_type, synced.protocol_name) == protocol


def test_sync_requires_protocol_type_and_name_from_version_5_on() -> None:
    harness = new_harness()
    joined = join(harness)
    for missing in ("protocol_type", "protocol_name"):
        fields: dict[str, Any] = {missing: None}
        synced = harness.ask(sync_after(joined, 5, **fields), 5)
        assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, missing


def test_the_protocol_of_a_sync_is_checked_before_the_group_id() -> None:
    harness = new_harness()
    request = SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=[])
    assert harness.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.ask(request, 4).error_code == ErrorCode.INVALID_GROUP_ID


# Heartbeat


def test_heartbeat_in_each_version(subtests: pytest.Subtests) -> None:
    harness = new_harness()
    member_id = join(harness).member_id
    for version in versions("Heartbeat"):
        for generation_id, sender, error in [(1, member_id, 0), (2, member_id, 22), (1, "x", 25)]:
            with subtests.test(version=version, error=error):
                request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=sender)
                assert harness.ask(request, version).error_code == error


# LeaveGroup


def test_leave_of_one_member_before_version_3(subtests: pytest.Subtests) -> None:
    for version in versions("LeaveGroup")[:3]:
        with subtests.test(version=version):
            harness = new_harness()
            member_id = join(harness).member_id
            for group_id, leaving, error in [("g", "x", 25), ("g", member_id, 0), ("", member_id, 24)]:
                request = LeaveGroupRequest(group_id=group_id, member_id=leaving)
                assert harness.ask(request, version).error_code == error


def test_leave_of_many_members_from_version_3_on(subtests: pytest.Subtests) -> None:
    for version in versions("LeaveGroup")[3:]:
        with subtests.test(version=version):
            harness = new_harness()
            member_id = join(harness).member_id
            members = [MemberIdentity(member_id=each) for each in ("x", member_id, member_id)]
            left = harness.ask(LeaveGroupRequest(group_id="g", members=members), version)
            assert left.error_code == 0
            results = [(each.member_id, each.error_code) for each in left.members]
            assert results == [("x", 25), (member_id, 0), (member_id, 25)]
            left = harness.ask(LeaveGroupRequest(group_id="", members=members), version)
            assert (left.error_code, left.members) == (24, [])


def test_ids_have_the_form_of_uuids() -> None:
    assert uuid_text(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
