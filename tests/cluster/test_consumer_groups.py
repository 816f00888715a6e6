"""Consumer groups on the wire: requests in each version, other APIs with such groups, settings, releases, views."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from fakebroker.cluster import snapshot
from fakebroker.cluster.configs.changes import ResourceType
from fakebroker.cluster.inspect.deadlines import deadlines_of, pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.timeline_layout import partition_ranges
from fakebroker.cluster.inspect.views import AwaitedPartition, view_group, view_groups
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.seed import GroupSeed, seed_groups
from fakebroker.coordinator.group_history import Moment
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from fakebroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.cluster.cluster_harness import NOT_REQUESTED, ClusterHarness, versions
from tests.support.cluster.consumer_group_requests import assigned, beat
from tests.support.subtests import subtest_for_each

OFF = ErrorCode.UNSUPPORTED_VERSION
NEWS = [("news", index) for index in range(4)]


def cluster(**options: Any) -> ClusterHarness:
    return ClusterHarness({"news": 4}, **options)


def describe(harness: ClusterHarness, *group_ids: str, version: int = 1, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=operations)
    groups: list[Any] = harness.ask(request, version).groups
    return groups


def shared() -> ClusterHarness:
    """Return a cluster with members a and b of group "g", which have two partitions each, in epoch 3."""
    harness = cluster()
    beat(harness, "a")
    beat(harness, "b")
    kept = assigned(beat(harness, "a", 2))
    assert kept is not None
    beat(harness, "a", 2, set(kept))
    assert len(assigned(beat(harness, "b", 3)) or []) == 2
    return harness


def test_heartbeats_in_each_version() -> None:
    for version in versions("ConsumerGroupHeartbeat"):
        harness = cluster()
        joined = beat(harness, "a", version=version)
        assert (joined.error_code, joined.error_message, joined.member_id) == (0, None, "a")
        assert (joined.member_epoch, joined.heartbeat_interval_ms, assigned(joined)) == (2, 5_000, [0, 1, 2, 3])
        assert joined.assignment.topic_partitions[0].topic_id == harness.topic().topic_id
        stays = beat(harness, "a", 2, {0, 1, 2, 3}, version)
        assert (stays.error_code, stays.member_epoch, stays.assignment) == (0, 2, None)
        left = beat(harness, "a", -1, version=version)
        assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval_ms) == (0, "a", -1, 0)


def test_only_version_0_chooses_member_ids() -> None:
    harness = cluster()
    assert len(beat(harness, "", version=0).member_id) == 22
    refused = beat(harness, "")
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    assert (refused.member_id, refused.assignment) == (None, None)


def test_new_partitions_are_assigned_by_the_next_heartbeat() -> None:
    harness = cluster()
    beat(harness, "a")
    topic = CreatePartitionsTopic(name="news", count=5, assignments=None)
    created = harness.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1_000, validate_only=False), 3)
    assert created.results[0].error_code == 0, created
    grown = beat(harness, "a", 2)
    assert (grown.member_epoch, assigned(grown)) == (3, [0, 1, 2, 3, 4])


def coordinator_id(harness: ClusterHarness, group_id: str) -> int:
    owner = harness.cluster.coordinator_of(group_id)
    assert owner is not None
    return owner.node_id


def test_a_replica_in_another_rack_starts_a_rebalance() -> None:
    harness = ClusterHarness({}, brokers=3, racks=("x", "x", "y"))
    harness.cluster.add_topic("news", [[1, 2]])
    (group_id, *_) = (str(number) for number in range(99) if coordinator_id(harness, str(number)) == 1)
    beat(harness, "a", group_id=group_id)
    controller, (partition,) = harness.cluster.controller, harness.topic().partitions
    known = 2
    for replicas, epoch in (([2, 1], 2), ([2], 3), ([1], 3), ([3], 4)):
        controller.reassign(partition, replicas, harness.now_ms, Failover())
        assert partition.replicas == tuple(replicas)
        assert beat(harness, "a", known, group_id=group_id).member_epoch == epoch, replicas
        known = epoch


def test_describe_in_each_version() -> None:
    harness = shared()
    for version in versions("ConsumerGroupDescribe"):
        (group,) = describe(harness, "g", version=version, operations=True)
        assert (group.error_code, group.error_message, group.assignor_name) == (0, None, "uniform")
        assert group.authorized_operations != NOT_REQUESTED
        first, second = group.members
        assert (first.member_id, first.member_epoch, first.client_id, first.client_host) == (
            "a",
            3,
            "client",
            "127.0.0.1",
        )
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["news"], "")
        assert first.assignment == first.target_assignment
        (part,) = first.assignment.topic_partitions
        assert (part.topic_id, part.topic_name, len(part.partitions)) == (harness.topic().topic_id, "news", 2)
        assert second.member_type == (1 if version >= 1 else -1)


@subtest_for_each(("as_version", "held"), [("4.2", [0, 1]), ("4.3", [0, 1, 2, 3]), (None, [0, 1, 2, 3])])
def test_partitions_that_a_member_has_to_give_up_are_described_since_4_3(
    as_version: str | None, held: list[int]
) -> None:
    harness = cluster(as_version=as_version)
    epoch = beat(harness, "a").member_epoch
    beat(harness, "b")
    beat(harness, "a", epoch)

    def described() -> list[tuple[list[int], list[int]]]:
        (group,) = describe(harness, "g")
        return [
            (
                [index for topic in each.assignment.topic_partitions for index in topic.partitions],
                [index for topic in each.target_assignment.topic_partitions for index in topic.partitions],
            )
            for each in group.members
        ]

    assert described() == [(held, [0, 1]), ([], [2, 3])]
    beat(harness, "a", epoch, {0, 1})
    assert described() == [([0, 1], [0, 1]), ([], [2, 3])]


def test_describe_errors() -> None:
    harness = cluster()
    commit(harness, -1, "", 9, group_id="simple")
    missing, empty, simple = describe(harness, "missing", "", "simple")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found.")
    assert (empty.error_code, empty.group_id) == (ErrorCode.INVALID_GROUP_ID, "")
    assert simple.error_message == "Group simple is not a consumer group."
    assert missing.authorized_operations == NOT_REQUESTED


def test_groups_of_both_kinds_are_listed() -> None:
    harness = shared()
    commit(harness, -1, "", 9, group_id="simple")

    def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
        request = ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters})
        groups = harness.ask(request, 5).groups
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups]

    simple, consumer = ("simple", "", "Empty", "classic"), ("g", "consumer", "Stable", "consumer")
    assert listed() == [simple, consumer]
    assert listed(types_filter=["Consumer"]) == [consumer]
    assert listed(types_filter=["classic"]) == [simple]
    assert listed(states_filter=["stable"]) == [consumer]
    assert listed(states_filter=["Reconciling"]) == []


def test_the_old_describe_does_not_know_the_group() -> None:
    harness = shared()
    for version in versions("DescribeGroups"):
        (group,) = harness.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=False), version).groups
        assert (group.group_state, group.members) == ("Dead", [])
        if version >= 6:
            expected = ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group."
            assert (group.error_code, group.error_message) == expected


def commit(harness: ClusterHarness, epoch: int, member_id: str, version: int, group_id: str = "g") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="news", topic_id=harness.topic().topic_id, partitions=[partition])]
    request = OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
    )
    error: int = harness.ask(request, version).topics[0].partitions[0].error_code
    return error


def test_members_commit_with_their_epoch_from_version_9_on() -> None:
    harness = shared()
    for version in versions("OffsetCommit"):
        expected = (OFF, OFF) if version < 9 else (ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH)
        # The partition belongs to the member since epoch 2.
        assert (commit(harness, 2, "a", version), commit(harness, 1, "a", version)) == expected
        assert (commit(harness, 3, "a", version), commit(harness, 4, "a", version)) == expected
        if version > 0:
            assert commit(harness, 3, "c", version) == ErrorCode.UNKNOWN_MEMBER_ID


@subtest_for_each(("as_version", "error"), [("4.2", ErrorCode.STALE_MEMBER_EPOCH), ("4.3", 0), (None, 0)])
def test_older_epochs_of_commits_are_accepted_since_4_3(as_version: str | None, error: int) -> None:
    harness = cluster(as_version=as_version)
    first = beat(harness, "a").member_epoch
    beat(harness, "b")
    beat(harness, "a", first)
    beat(harness, "a", first, {0, 1})
    assert view_group(harness.cluster, "g", harness.now_ms).members[0].member_epoch == first + 1
    for version in (9, 10):
        assert commit(harness, first, "a", version) == error
        assert commit(harness, first - 1, "a", version) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_new_interval_of_the_brokers_or_the_group_is_used() -> None:
    name = "consumer.assignment.interval.ms"
    harness = cluster(config={f"group.{name}": 1_000})
    beat(harness, "a")
    beat(harness, "b")
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Assigning"
    harness.cluster.broker_configs = {f"group.{name}": "0"}
    beat(harness, "b", 2)
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Reconciling"
    harness.cluster.resource_configs = {(ResourceType.GROUP, "g"): {name: "5000"}}
    beat(harness, "c")
    harness.advance(4_999)
    beat(harness, "c", 3)
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Assigning"
    harness.advance(1)
    beat(harness, "c", 3)
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Reconciling"


def test_members_fetch_offsets_with_their_epoch() -> None:
    harness = shared()
    commit(harness, 3, "a", 9)
    topic = OffsetFetchRequestTopics(name="news", topic_id=harness.topic().topic_id, partition_indexes=[0])

    def fetch(version: int, member_id: str | None, epoch: int) -> tuple[int, list[int]]:
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[topic])
        (found,) = harness.ask(OffsetFetchRequest(groups=[group]), version).groups
        return found.error_code, [each.committed_offset for topic in found.topics for each in topic.partitions]

    for version in (9, 10):
        assert fetch(version, "a", 3) == fetch(version, None, -1) == (ErrorCode.NONE, [3])
        assert fetch(version, "a", 2) == (ErrorCode.STALE_MEMBER_EPOCH, [])
        assert fetch(version, "c", 3) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    assert fetch(8, "a", 2) == (ErrorCode.NONE, [3])


@subtest_for_each(
    "options",
    [
        {"config": {"group.coordinator.rebalance.protocols": "classic"}},
        {"as_version": "3.9"},
    ],
)
def test_without_the_protocol_both_apis_are_unsupported(options: dict[str, Any]) -> None:
    harness = cluster(**options)
    refused = beat(harness, "a", version=0)
    assert (refused.error_code, refused.error_message) == (OFF, None)
    (group,) = describe(harness, "g", version=0)
    assert (group.error_code, group.group_id) == (OFF, "g")
    assert {68, 69} <= harness.cluster.brokers[1].versions.keys(), "advertised all the same"


def test_settings() -> None:
    names = {
        "heartbeat.interval.ms": 7,
        "session.timeout.ms": 1_000,
        "max.size": 1,
        "assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    }
    harness = cluster(config={f"group.consumer.{name}": value for name, value in names.items()})
    assert beat(harness, "a").heartbeat_interval_ms == 7
    assert beat(harness, "b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat(harness, "a", 2, server_assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert describe(harness, "g")[0].assignor_name == "range"
    harness.advance(1_000)
    assert beat(harness, "a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_configs_of_its_own() -> None:
    harness = cluster()
    configs = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"}
    harness.cluster.resource_configs = {(ResourceType.GROUP, "g"): configs}
    assert beat(harness, "a").heartbeat_interval_ms == 15_000
    harness.advance(59_999)
    assert beat(harness, "a", 2).error_code == ErrorCode.NONE


def test_groups_survive_moves_of_their_coordinator_and_snapshots() -> None:
    harness = cluster(brokers=2)
    taken = None
    for epoch in (0, 2, 2):
        owner = harness.cluster.coordinator_of("g")
        assert owner is not None
        fields: dict[str, Any] = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["news"], "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="a", member_epoch=epoch, **({} if epoch else fields)
        )
        response = harness.ask(request, 1, broker=owner.node_id)
        assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)
        if taken is None:
            taken = snapshot.take(harness.cluster)
            harness.cluster.controller.stop_broker(owner, harness.now_ms, Failover())
        else:
            snapshot.restore(harness.cluster, taken, harness.now_ms)


@pytest.fixture
def moving() -> ClusterHarness:
    """A cluster in which member a of group "g" has to give up two partitions, for which b waits."""
    harness = cluster()
    beat(harness, "a")
    beat(harness, "b")
    beat(harness, "a", 2)
    return harness


def test_explanations_name_members_that_have_left_by_their_client_ids() -> None:
    harness, (a, b) = cluster(), ("1" * 22, "2" * 22)
    beat(harness, a, client_id="one")
    beat(harness, b, client_id="two")
    for member_id, name in ((b, "two"), (a, "one")):
        beat(harness, member_id, -1)
        assert f"Cause: heartbeat of {name}, which leaves." in explain(harness.cluster, "g", harness.now_ms)


def test_an_explanation_of_a_target_that_is_computed_later() -> None:
    harness = cluster(config={"group.consumer.assignment.interval.ms": 1_000})
    beat(harness, "a")
    harness.advance(300)
    beat(harness, "b")
    text = explain(harness.cluster, "g", harness.now_ms)
    assert "It is a consumer group of 2 members in epoch 3; its target is that of epoch 2." in text
    assert text.endswith(
        "Targets are at least 1.0 s apart (group.consumer.assignment.interval.ms): the first heartbeat in 0.7 s runs "
        "the assignor."
    )
    harness.advance(700)
    text = explain(harness.cluster, "g", harness.now_ms)
    assert text.endswith("The next heartbeat of a member runs the assignor.")


def test_explanations() -> None:
    harness = cluster()

    def sentences() -> list[str]:
        return re.split(r"(?<=\.) ", explain(harness.cluster, "g", harness.now_ms))

    beat(harness, "a")
    assert sentences()[1:] == ["Cause: heartbeat of a, a new member.", "Epoch 2 with assignor 'uniform' has 1 member."]
    harness.advance(1_000)
    beat(harness, "b")
    assert sentences() == [
        "g has been in Reconciling for 0.0 s.",
        "Cause: heartbeat of b, a new member.",
        "It is a consumer group in epoch 3; 0 of 2 members have their target.",
        "b waits for news-2..3, which are still with a; a has to give them up from its next heartbeat on, and is "
        "removed in 44.0 s if it sends none.",
    ]
    beat(harness, "a", 2)
    harness.advance(30_000)
    beat(harness, "a", 2)
    assert sentences()[2:] == [
        "It is a consumer group in epoch 3; 0 of 2 members have their target.",
        "b waits for news-2..3, which are still with a; a has 30.0 s to give them up.",
        "If b sends no heartbeat, it is removed in 15.0 s: its session expires.",
    ]
    beat(harness, "a", 2, {0, 1})
    assert sentences()[2:4] == [
        "It is a consumer group in epoch 3; 1 of 2 members have their target.",
        "b gets the rest of its partitions with its next heartbeat.",
    ]
    beat(harness, "b", 3)
    beat(harness, "c", instance_id="i")
    beat(harness, "c", -2, instance_id="i")
    beat(harness, "b", 3)
    assert sentences()[3:] == [
        "a learns of its new target with its next heartbeat.",
        "c (static 'i') has left for a while and keeps nothing, for 45.0 s more.",
        "c (static 'i') waits for news-3, which is still with b; b has 60.0 s to give it up.",
    ]
    beat(harness, "c", -1, instance_id="i")
    assert sentences()[1:] == [
        "Cause: heartbeat of c, which leaves.",
        "It is a consumer group of 2 members in epoch 5; its target is that of epoch 4.",
        "The next heartbeat of a member runs the assignor.",
        "b has 60.0 s to give up news-3.",
    ]
    beat(harness, "a", -1)
    beat(harness, "b", -1)
    commit(harness, -1, "", 9)
    assert sentences()[1:] == [
        "Cause: heartbeat of b, which leaves.",
        "It is a consumer group without members, in epoch 7, and has 1 committed offset.",
        "In 7 d 0 h: the group is removed with 1 committed offset, unless it is used before.",
    ]


def test_a_group_without_members_is_removed_as_forecast() -> None:
    harness = cluster()
    beat(harness, "a")
    beat(harness, "a", -1)
    (removal,) = deadlines_of(harness.cluster, "g", harness.now_ms)
    assert (removal.kind, removal.state) == ("offsets_removal", "Dead")
    harness.advance(removal.in_s * 1000 - 1)
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Empty"
    harness.advance(1)
    assert view_group(harness.cluster, "g", harness.now_ms).state == "Dead"
    assert explain(harness.cluster, "g", harness.now_ms).endswith("Cause: its offsets expired.")


def test_explanations_name_a_few_members() -> None:
    harness = cluster()
    beat(harness, "a")
    for number in range(10):
        beat(harness, f"m{number}")
    text = explain(harness.cluster, "g", harness.now_ms)
    assert "2 more members do not have their target." in text


def test_deadlines(moving: ClusterHarness) -> None:
    found = [(each.kind, each.member_ids, each.in_s) for each in deadlines_of(moving.cluster, "g", moving.now_ms)]
    assert found == [("session", ("a",), 45), ("session", ("b",), 45), ("revocation", ("a",), 60)]
    assert len([each for each in pending_deadlines(moving.cluster, moving.now_ms) if each.group_id == "g"]) == 3


def test_deadlines_say_what_happens(moving: ClusterHarness) -> None:
    def found() -> list[tuple[str, str | None, str]]:
        return [(each.kind, each.state, each.text) for each in deadlines_of(moving.cluster, "g", moving.now_ms)]

    then = "and the next heartbeat of another member runs the assignor."
    assert found() == [
        ("session", "Assigning", f"If a sends no heartbeat, its session expires: it is removed, {then}"),
        ("session", "Assigning", f"If b sends no heartbeat, its session expires: it is removed, {then}"),
        ("revocation", "Assigning", f"a is removed if it has not given up partitions, {then}"),
    ]
    moving.advance(30_000)
    for member_id, epoch in (("a", 2), ("b", 3)):
        beat(moving, member_id, epoch)
    moving.advance(30_000)
    assert view_group(moving.cluster, "g", moving.now_ms).state == "Assigning"
    (last,) = found()
    expected = "If b sends no heartbeat, its session expires: it is removed, and the group becomes Empty."
    assert last == ("session", "Empty", expected)
    moving.advance(15_000)
    assert view_group(moving.cluster, "g", moving.now_ms).state == "Empty"


def test_views(moving: ClusterHarness) -> None:
    view = view_group(moving.cluster, "g", moving.now_ms)
    assert (view.type, view.state, view.generation_id, view.assignment_epoch) == ("consumer", "Reconciling", 3, 3)
    assert (view.protocol_name, view.leader_id) == ("uniform", None)
    assert view_groups(moving.cluster, moving.now_ms) == [view]
    first, second = view.members
    assert (first.session_timeout_ms, first.rebalance_timeout_ms, first.client_id) == (45_000, 60_000, "client")
    assert (first.member_epoch, first.previous_epoch, first.state) == (2, 2, "UNREVOKED_PARTITIONS")
    assert (second.member_epoch, second.previous_epoch, second.state) == (3, 0, "UNRELEASED_PARTITIONS")
    assert first.assigned_partitions == first.target
    assert first.pending_revocation == second.target
    assert sorted(first.target + second.target) == list(first.owned_partitions or ()) == NEWS
    assert (second.assigned_partitions, second.owned_partitions, second.subscribed_topics) == ((), (), ("news",))
    until_ms = moving.now_ms + 60_000
    assert first.awaited == ()
    assert second.awaited == tuple(
        AwaitedPartition(topic, index, "a", is_revoked=True, until_ms=until_ms) for topic, index in second.target
    )
    kept, moved = (", ".join(f"{topic}-{index}" for topic, index in each.target) for each in (first, second))
    assert str(view).splitlines() == [
        "g: Reconciling, epoch 3, assignment epoch 3, assignor uniform",
        f"  a at {first.client_host[1:]}, epoch 2, has {kept}, has to give up {moved}",
        f"  b at {second.client_host[1:]}, epoch 3, has none, waits for {moved}",
    ]


def test_views_before_the_holder_knows() -> None:
    harness = cluster()
    beat(harness, "a")
    beat(harness, "b", server_assignor="range", rack_id="r1")
    first, second = view_group(harness.cluster, "g", harness.now_ms).members
    assert (first.state, first.member_epoch, first.pending_revocation) == ("STABLE", 2, ())
    assert (second.rack_id, second.server_assignor) == ("r1", "range")
    assert {(each.holder_id, each.is_revoked) for each in second.awaited} == {("a", False)}
    assert {each.until_ms for each in second.awaited} == {harness.now_ms + 45_000}


def test_views_of_classic_groups() -> None:
    harness = cluster()
    commit(harness, -1, "", 9, group_id="simple")
    simple = view_group(harness.cluster, "simple", harness.now_ms)
    assert (simple.type, simple.assignment_epoch) == ("classic", None)
    assert view_group(harness.cluster, "missing", harness.now_ms).type is None


TIMELINE = """\
group g, since 2023-11-14 22:13:20.000 UTC
D Dead, E Empty, A Assigning, R Reconciling, S Stable; + joined - gone

     time  state     epoch  members  in and out            cause
    0.000  D──────▸S     2        1  +a                    heartbeat of a, a new member, at broker
                   │                                       1; a: epoch 2, news-0..3
    1.000        R◂S     3        2  +b                    heartbeat of b, a new member; b: epoch 3,
                 │                                         nothing, waits for more
    2.000        R       3        2                        heartbeat of a; a: epoch 2, news-0..1,
                 │                                         has to give up news-2..3
    3.000        R       3        2                        heartbeat of a; a: epoch 3, news-0..1
    3.000        R▸S     3        2                        heartbeat of b; b: epoch 3, news-2..3
   48.000      A◂──S     4        1  -a                    session of a expired
   48.000    E◂A         5        0  -b                    session of b expired
   48.000    E                                             now"""


def test_timelines() -> None:
    harness = cluster()
    beat(harness, "a")
    harness.advance(1_000)
    beat(harness, "b")
    harness.advance(1_000)
    beat(harness, "a", 2)
    harness.advance(1_000)
    beat(harness, "a", 2, {0, 1})
    beat(harness, "b", 3)
    harness.advance(45_000)
    timeline = view_group(harness.cluster, "g", harness.now_ms).timeline()
    assert str(timeline) == TIMELINE
    named = replace(timeline, moments=tuple(_with_uuids(each) for each in timeline.moments))
    assert "heartbeat of client-1111, a new member" in str(named)
    root = ElementTree.fromstring(timeline.svg())
    svg = "{http://www.w3.org/2000/svg}"
    bars = [
        (each.attrib["class"], each.findtext(f"{svg}title"))
        for each in root.iter(f"{svg}rect")
        if each.attrib["class"].startswith("member")
    ]
    assert bars == [
        ("member follower", "a: epoch 2, news-0..3, 2.000 s"),
        ("member revoking", "a: epoch 2, news-0..1, has to give up news-2..3, 1.000 s"),
        ("member follower", "a: epoch 3, news-0..1, 45.000 s"),
        ("member waiting", "b: epoch 3, nothing, waits for more, 2.000 s"),
        ("member follower", "b: epoch 3, news-2..3, 45.000 s"),
    ]
    texts = [each.text for each in root.iter(f"{svg}text")]
    assert {"epoch 2", "epoch 3", "waits for partitions", "has to give up partitions"} <= {*texts}


def _with_uuids(moment: Moment) -> Moment:
    """Return a moment in which members have ids as Kafka's clients make them."""
    uuids = {member_id: number * 22 for member_id, number in zip("ab", "12", strict=True)}
    changes = tuple(replace(each, member_id=uuids[each.member_id]) for each in moment.changes)
    cause = re.sub(r"\b[ab]\b(?! new)", lambda found: uuids[found[0]], moment.cause)
    members, left = (tuple(map(uuids.__getitem__, ids)) for ids in (moment.members, moment.left))
    return replace(moment, cause=cause, members=members, joined=(), left=left, changes=changes)


def test_the_timeline_of_a_group_that_changes_its_kind() -> None:
    harness = cluster()
    commit(harness, -1, "", 9)
    beat(harness, "a")
    beat(harness, "a", -1)
    timeline = view_group(harness.cluster, "g", harness.now_ms).timeline()
    states = [(each.state_from, each.state_to, each.cause) for each in timeline.moments]
    assert states == [
        ("Dead", "Empty", "first OffsetCommit"),
        ("Empty", "Stable", "heartbeat of a, a new member"),
        ("Stable", "Empty", "heartbeat of a, which leaves"),
    ]
    assert "P PreparingRebalance, C CompletingRebalance, A Assigning, R Reconciling" in str(timeline)
    assert "leader" in timeline.svg()


def test_partition_ranges() -> None:
    assert partition_ranges(["a-0", "a-1", "a-3", "b-c-3", "b-c-4"]) == "a-0..1, a-3, b-c-3..4"
    assert partition_ranges([]) == "nothing"


def test_a_group_is_not_seeded_over_a_consumer_group() -> None:
    harness = shared()
    with pytest.raises(ConfigError, match="a group that does not exist yet"):
        seed_groups(harness.cluster, [GroupSeed(group_id="g")], harness.now_ms)
