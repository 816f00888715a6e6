"""DescribeGroups, ListGroups and DeleteGroups in all versions: their results, and where each error is returned.

The transcripts show the results for each state of a group.
"""

import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.describe_groups import DescribedGroup
from fakebroker.protocol.releases import Release
from tests.support.cluster.cluster_harness import NOT_REQUESTED, versions
from tests.support.cluster.group_admin_harness import BEFORE_4_0, NONE, GroupAdminHarness
from tests.support.coordinator.commits import commit

RELEASES = (BEFORE_4_0, Release(4, 0))
COORDINATOR_ERRORS = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def group_with_coordinator_error(error: ErrorCode) -> GroupAdminHarness:
    """Return a cluster in which broker 2 answers with an error for all groups; broker 1 coordinates them."""
    groups = GroupAdminHarness()
    groups.commit()
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        groups.cluster.brokers[2].coordinator.start_loading(0)
    return groups


def described(group_id: str, state: str, error: ErrorCode = NONE, message: str | None = None) -> DescribedGroup:
    """Return the description of a group without members."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


# DescribeGroups


def test_describe_a_stable_group(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    member_id = groups.create_stable_group(version=5, group_instance_id="one")
    for version in versions("DescribeGroups"):
        with subtests.test(version=version):
            [group] = groups.describe("g", version=version)
            assert (group.error_code, group.error_message, group.group_id) == (NONE, None, "g")
            assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
            assert group.authorized_operations == NOT_REQUESTED
            [member] = group.members
            assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "127.0.0.1")
            assert member.group_instance_id == ("one" if version >= 4 else None)
            assert (member.member_metadata, member.member_assignment) == (encode_subscription(["news"]), b"mine")


def test_describe_a_group_with_offsets_only(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit()
    for version in versions("DescribeGroups"):
        with subtests.test(version=version):
            assert groups.describe("g", version=version) == [described("g", "Empty")]


def test_a_missing_group_is_dead_and_an_error_from_version_6_on(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    for version in versions("DescribeGroups"):
        with subtests.test(version=version):
            error = (ErrorCode.GROUP_ID_NOT_FOUND, "Group gone not found.") if version >= 6 else (NONE, None)
            assert groups.describe("gone", version=version) == [described("gone", "Dead", *error)]


def test_members_have_metadata_only_in_a_stable_group() -> None:
    groups = GroupAdminHarness()
    leader = groups.create_stable_group()
    assert groups.join() is None
    [group] = groups.describe("g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert groups.join(member_id=leader) == leader
    [group] = groups.describe("g")
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


def test_members_keep_their_assignment_in_a_rebalance_since_4_0(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=str(release)):
            groups = GroupAdminHarness(release)
            groups.create_stable_group()
            assert groups.describe("g", version=5)[0].members[0].member_assignment == b"mine"
            groups.join()
            assignments = [member.member_assignment for member in groups.describe("g", version=5)[0].members]
            assert assignments == [b"" if release == BEFORE_4_0 else b"mine", b""]


def test_pending_members_are_not_described() -> None:
    groups = GroupAdminHarness()
    groups.join(version=4)
    assert groups.describe("g")[0].members == []


def test_operations_are_described_on_request_for_groups_without_error(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit()
    all_operations = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    for version in versions("DescribeGroups")[3:]:
        with subtests.test(version=version):
            found, missing = groups.describe("g", "gone", version=version, operations=True)
            assert found.authorized_operations == all_operations
            assert missing.authorized_operations == (NOT_REQUESTED if version >= 6 else all_operations)


def test_groups_are_described_in_the_order_of_the_request_with_duplicates(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit("")
    for version in versions("DescribeGroups"):
        with subtests.test(version=version):
            found = groups.describe("gone", "", "gone", version=version)
            states = [(group.group_id, group.group_state) for group in found]
            assert states == [("gone", "Dead"), ("", "Empty"), ("gone", "Dead")]
            assert groups.describe(version=version) == []


def test_a_coordinator_error_is_the_error_of_each_described_group(subtests: pytest.Subtests) -> None:
    for error in COORDINATOR_ERRORS:
        groups = group_with_coordinator_error(error)
        for version in versions("DescribeGroups"):
            with subtests.test(error=error.name, version=version):
                found = groups.describe("g", "", version=version, broker=2, operations=version >= 3)
                assert found == [described(group_id, "", error) for group_id in ("g", "")]


# ListGroups


def test_list_groups_in_each_version(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit("offsets")
    groups.create_stable_group("workers", protocol_type="connect")
    for version in versions("ListGroups"):
        with subtests.test(version=version):
            response = groups.list_groups(version)
            assert response.error_code == NONE
            group_type = "classic" if version >= 5 else ""
            assert [
                (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups
            ] == [
                ("offsets", "", "Empty" if version >= 4 else "", group_type),
                ("workers", "connect", "Stable" if version >= 4 else "", group_type),
            ]


def test_no_groups_are_listed_by_a_new_cluster(subtests: pytest.Subtests) -> None:
    for version in versions("ListGroups"):
        with subtests.test(version=version):
            response = GroupAdminHarness().list_groups(version)
            assert (response.error_code, response.groups) == (NONE, [])


def test_list_groups_by_state(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit("empty")
    groups.join("completing")
    groups.create_stable_group("stable")
    groups.create_stable_group("preparing")
    groups.join("preparing")
    for states, expected in [
        ([], ["empty", "completing", "stable", "preparing"]),
        (["Stable"], ["stable"]),
        (["sTABLE", " empty\t"], ["empty", "stable"]),
        (["PreparingRebalance"], ["preparing"]),
        (["completingrebalance", "Unknown"], ["completing"]),
        (["Dead"], []),
        (["Unknown"], []),
        ([""], []),
    ]:
        for version in versions("ListGroups")[4:]:
            with subtests.test(states=states, version=version):
                assert groups.listed(version=version, states_filter=states) == expected


def test_list_groups_by_type(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness()
    groups.commit("g")
    for types, is_listed in [
        ([], True),
        (["classic"], True),
        (["CLASSIC", "unknown"], True),
        (["consumer"], False),
        (["consumer", "share", "classic"], True),
        ([" classic"], False),
        (["unknown"], False),
        ([""], False),
    ]:
        with subtests.test(types=types):
            assert groups.listed(types_filter=types) == (["g"] if is_listed else [])
            assert groups.listed(types_filter=types, states_filter=["Stable"]) == []


def test_each_broker_lists_the_groups_that_it_coordinates(subtests: pytest.Subtests) -> None:
    groups = GroupAdminHarness(offsets_topic_num_partitions=2)
    coordinators = {group_id: partition_for(group_id, 2) + 1 for group_id in ("a", "b", "c", "d")}
    assert set(coordinators.values()) == {1, 2}
    for group_id, node_id in coordinators.items():
        coordinator = groups.cluster.brokers[node_id].coordinator
        assert commit(coordinator, [("news", 0, 5)], groups.cluster_harness.now_ms, group_id=group_id) == [NONE]
    for version in versions("ListGroups"):
        for broker in (1, 2):
            with subtests.test(version=version, broker=broker):
                listed = [group.group_id for group in groups.list_groups(version, broker=broker).groups]
                assert listed == [group_id for group_id, node_id in coordinators.items() if node_id == broker]


def test_list_groups_fails_while_one_partition_is_loading(subtests: pytest.Subtests) -> None:
    """Before 4.0, the response also contains the groups of partitions that are loaded already."""
    loaded = next(group_id for group_id in "abcd" if partition_for(group_id, 2) == 0)
    for release in RELEASES:
        for version in versions("ListGroups"):
            with subtests.test(release=str(release), version=version):
                groups = GroupAdminHarness(release, offsets_topic_num_partitions=2)
                groups.commit(loaded)
                groups.coordinator.start_loading(1)
                response = groups.list_groups(version)
                assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                listed = [group.group_id for group in response.groups]
                assert listed == ([loaded] if release == BEFORE_4_0 else [])
                groups.coordinator.finish_loading(1, [], groups.cluster_harness.now_ms)
                response = groups.list_groups(version)
                assert (response.error_code, [group.group_id for group in response.groups]) == (NONE, [loaded])


# DeleteGroups


def test_each_group_is_deleted_once_with_one_result(subtests: pytest.Subtests) -> None:
    for version in versions("DeleteGroups"):
        with subtests.test(version=version):
            groups = GroupAdminHarness()
            groups.commit("")
            groups.commit("offsets", ("news", 0), ("sport", 0))
            groups.create_stable_group("busy")
            assert groups.delete("offsets", "gone", "busy", "", "offsets", version=version) == [
                ("offsets", NONE),
                ("gone", ErrorCode.GROUP_ID_NOT_FOUND),
                ("busy", ErrorCode.NON_EMPTY_GROUP),
                ("", NONE),
            ]
            assert groups.listed() == ["busy"]
            assert groups.committed("offsets") == []
            assert groups.delete("offsets", version=version) == [("offsets", ErrorCode.GROUP_ID_NOT_FOUND)]
            assert groups.delete(version=version) == []


def test_a_group_of_another_coordinator_is_not_deleted(subtests: pytest.Subtests) -> None:
    for error in COORDINATOR_ERRORS:
        groups = group_with_coordinator_error(error)
        for version in versions("DeleteGroups"):
            with subtests.test(error=error.name, version=version):
                assert groups.delete("g", "", version=version, broker=2) == [("g", error), ("", error)]
                assert groups.committed() == [("news", 0)]
