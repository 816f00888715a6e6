"""Classic members in consumer groups and online migration on the wire: each version, settings, releases, views."""

from typing import Any

import pytest

from fakebroker.cluster.inspect.deadlines import deadlines_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.views import view_group
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.releases import Release
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY
from tests.support.group_requests import heartbeat_request, join_request, sync_request
from tests.support.subtests import subtest_for_each

SUBSCRIPTION = encode_subscription(["news"])
PLACES = [("news", index) for index in range(4)]


def cluster(**config: object) -> ClusterHarness:
    """Return a cluster with these settings, with "_" for "."."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    return ClusterHarness({"news": 4}, config={**NO_INITIAL_DELAY, **named})


def beat(harness: ClusterHarness, member_id: str, epoch: int = 0, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["news"], "topic_partitions": [], **fields}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return harness.ask(request, 1)


def join(harness: ClusterHarness, member_id: str = "m", version: int = 9, **fields: Any) -> Any:
    fields = {"protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)], **fields}
    return harness.ask(join_request("g", member_id, version=version, **fields), version)


def sync(harness: ClusterHarness, member_id: str, generation_id: int, version: int = 5, **fields: Any) -> Any:
    return harness.ask(sync_request(member_id, "g", generation_id, version=version, **fields), version)


def classic_group(harness: ClusterHarness) -> str:
    """Make a stable classic group of one member, and return its id."""
    member_id: str = join(harness, "", version=3).member_id
    assignments = {member_id: encode_assignment(PLACES)}
    assert sync(harness, member_id, 1, assignments=assignments).error_code == 0
    return member_id


def test_joins_and_syncs_in_each_version() -> None:
    for version in versions("JoinGroup"):
        harness = cluster()
        beat(harness, "a", subscribed_topic_names=[])
        first = join(harness, "", version)
        assert first.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE)
        joined = join(harness, first.member_id, version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 2, "range")
        assert (joined.leader, joined.members, joined.member_id) == ("", [], first.member_id)
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.skip_assignment is False
    for version in versions("SyncGroup"):
        synced = sync(harness, joined.member_id, 2, version)
        assert (synced.error_code, decode_assignment(synced.assignment)) == (0, tuple(PLACES))
        expected = ("consumer", "range") if version >= 5 else (None, None)
        assert (synced.protocol_type, synced.protocol_name) == expected


def test_rejected_joins_have_the_format_of_their_version() -> None:
    harness = cluster()
    beat(harness, "a")
    for version in versions("JoinGroup"):
        refused = join(harness, "m", version, protocols=[])
        assert (refused.error_code, refused.generation_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, -1)
        assert (refused.protocol_name, refused.leader, refused.member_id) == (None if version >= 7 else "", "", "")


def test_version_0_of_a_join_has_one_timeout() -> None:
    harness = cluster()
    beat(harness, "a")
    join(harness, "m", 0, session_timeout_ms=12_000)
    classic = view_group(harness.cluster, "g", harness.now_ms).members[1]
    assert (classic.session_timeout_ms, classic.rebalance_timeout_ms) == (12_000, 12_000)


def test_commits_of_classic_members_in_each_version() -> None:
    harness = cluster()
    beat(harness, "a")
    join(harness)
    for version in versions("OffsetCommit")[1:]:  # Version 0 has no member.
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="news", topic_id=harness.topic().topic_id, partitions=[partition])]
        errors = [
            harness.ask(
                OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="m", topics=topics),
                version,
            )
            .topics[0]
            .partitions[0]
            .error_code
            for epoch in (3, 2)
        ]
        assert errors == [0, ErrorCode.ILLEGAL_GENERATION]


def test_leaving_in_each_version() -> None:
    for version in versions("LeaveGroup"):
        harness = cluster()
        beat(harness, "a")
        join(harness)
        leaving: dict[str, Any] = {"member_id": "m"}
        if version >= 3:
            leaving = {"members": [MemberIdentity(member_id="m", group_instance_id=None)]}
        left = harness.ask(LeaveGroupRequest(group_id="g", **leaving), version)
        assert (left.error_code, [each.error_code for each in left.members]) == (0, [0] if version >= 3 else [])
        assert [each.member_id for each in view_group(harness.cluster, "g", harness.now_ms).members] == ["a"]


def test_a_classic_group_is_upgraded_and_downgraded() -> None:
    harness = cluster()
    classic = classic_group(harness)
    assert beat(harness, "a").member_epoch == 2
    (described,) = harness.ask(
        ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1
    ).groups
    assert [(each.member_id, each.member_epoch, each.member_type) for each in described.members] == [
        (classic, 1, 0),
        ("a", 2, 1),
    ]
    rejoin = harness.ask(heartbeat_request("g", classic, 1), 4)
    assert rejoin.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    beat(harness, "a", -1)
    assert view_group(harness.cluster, "g", harness.now_ms).type == "classic"
    assert harness.ask(heartbeat_request("g", classic, 1), 4).error_code == ErrorCode.ILLEGAL_GENERATION
    again = join(harness, classic)
    assert (again.generation_id, again.leader) == (3, classic)


@subtest_for_each(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("UPGRADE", True, False),
        ("Downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_the_migration_policy(policy: str, upgrades: bool, downgrades: bool) -> None:
    harness = cluster(group_consumer_migration_policy=policy)
    classic_group(harness)
    assert beat(harness, "a").error_code == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    harness = cluster(group_consumer_migration_policy=policy)
    beat(harness, "a")
    join(harness)
    beat(harness, "a", -1)
    assert view_group(harness.cluster, "g", harness.now_ms).type == ("classic" if downgrades else "consumer")


def test_the_migration_policy_of_other_settings_and_releases() -> None:
    config = cluster().cluster.config
    name = "group.consumer.migration.policy"
    assert config.text(name) == config.of_release(Release(4, 0)).text(name) == "bidirectional"
    assert config.of_release(Release(3, 9)).text(name) == "disabled"
    with pytest.raises(ConfigError, match="expected one of disabled, downgrade, upgrade, bidirectional"):
        cluster(group_consumer_migration_policy="both")


def test_group_max_size_limits_downgrades_and_group_consumer_max_size_upgrades() -> None:
    harness = cluster(group_max_size=1)
    beat(harness, "a")
    for member_id in ("m", "n"):
        join(harness, member_id)
    beat(harness, "a", -1)
    assert view_group(harness.cluster, "g", harness.now_ms).type == "consumer"
    harness = cluster(group_consumer_max_size=1)
    classic_group(harness)
    assert beat(harness, "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_views_deadlines_and_explanations_of_classic_members() -> None:
    harness = cluster()
    beat(harness, "a")
    join(harness, "m", session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
    view = view_group(harness.cluster, "g", harness.now_ms)
    assert [(each.member_id, each.type, each.session_timeout_ms) for each in view.members] == [
        ("a", "consumer", 45_000),
        ("m", "classic", 10_000),
    ]

    def timers() -> list[tuple[str, tuple[str, ...], float | None]]:
        return [(each.kind, each.member_ids, each.in_s) for each in deadlines_of(harness.cluster, "g", harness.now_ms)]

    assert timers() == [("session", ("m",), 10), ("sync", ("m",), 20), ("session", ("a",), 45)]
    text = explain(harness.cluster, "g", harness.now_ms)
    assert "m, which uses the classic protocol, has 20.0 s to send its SyncGroup." in text
    sync(harness, "m", 3)
    beat(harness, "b")
    harness.ask(heartbeat_request("g", "m", 3), 4)
    assert ("join", ("m",), 20) in timers()
    text = explain(harness.cluster, "g", harness.now_ms)
    assert "m, which uses the classic protocol, has 20.0 s to rejoin." in text
    harness.advance(6_000)
    assert "If m sends no heartbeat, it is removed in 4.0 s" in explain(harness.cluster, "g", harness.now_ms)
    (moment,) = view_group(harness.cluster, "g", harness.now_ms).history.moments[-1:]
    assert "join of m" in [each.what for each in moment.timers] or moment.cause.startswith("heartbeat of b")
