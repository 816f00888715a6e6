"""DescribeGroups, ListGroups and DeleteGroups: every version, every error, and where it stands.

What each gets in each state of a group, the transcripts show.
"""

import pytest

from fakebroker.cluster.handlers.describe_groups import GROUP_OPERATIONS
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.describe_groups import DescribedGroup
from fakebroker.protocol.releases import Release
from tests.support.cluster.cluster_harness import versions
from tests.support.cluster.group_admin import BEFORE_4_0, NONE, Groups
from tests.support.coordinator.coordinator_harness import result_of

NOT_ASKED = -(2**31)
RELEASES = pytest.mark.parametrize("release", [BEFORE_4_0, Release(4, 0)], ids=str)

describe_versions = pytest.mark.parametrize("version", versions("DescribeGroups"))
list_versions = pytest.mark.parametrize("version", versions("ListGroups"))
delete_versions = pytest.mark.parametrize("version", versions("DeleteGroups"))


# DescribeGroups


@describe_versions
def test_a_stable_group(version: int) -> None:
    groups = Groups()
    member_id = groups.stable(version=5, group_instance_id="one")
    [group] = groups.describe("g", version=version)
    assert (group.error_code, group.error_message, group.group_id) == (NONE, None, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert group.authorized_operations == NOT_ASKED
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "127.0.0.1")
    assert member.group_instance_id == ("one" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (encode_subscription(["news"]), b"mine")


@describe_versions
def test_a_group_that_only_has_offsets(version: int) -> None:
    groups = Groups()
    groups.commit()
    [group] = groups.describe("g", version=version)
    assert group == DescribedGroup(
        error_code=NONE, group_id="g", group_state="Empty", protocol_type="", protocol_data="", members=[]
    )


@describe_versions
def test_a_missing_group(version: int) -> None:
    [group] = Groups().describe("gone", version=version)
    is_error = version >= 6
    assert group == DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else NONE,
        error_message="Group gone not found." if is_error else None,
        group_id="gone",
        group_state="Dead",
        protocol_type="",
        protocol_data="",
        members=[],
    )


def test_members_outside_of_stable_have_no_metadata() -> None:
    groups = Groups()
    leader = groups.stable()
    assert groups.join() is None
    [group] = groups.describe("g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert groups.join(member_id=leader) == leader
    [group] = groups.describe("g")
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


@RELEASES
def test_members_outside_of_stable_keep_their_assignment_since_4_0(release: Release) -> None:
    groups = Groups(release)
    groups.stable()
    assert groups.describe("g", version=5)[0].members[0].member_assignment == b"mine"
    groups.join()
    assignments = [member.member_assignment for member in groups.describe("g", version=5)[0].members]
    assert assignments == [b"" if release == BEFORE_4_0 else b"mine", b""]


def test_pending_members_are_not_described() -> None:
    groups = Groups()
    groups.join(version=4)
    assert groups.describe("g")[0].members == []


@pytest.mark.parametrize("version", range(3, 7))
def test_operations_are_told_if_asked_for_and_only_without_an_error(version: int) -> None:
    groups = Groups()
    groups.commit()
    found, missing = groups.describe("g", "gone", version=version, operations=True)
    assert found.authorized_operations == GROUP_OPERATIONS == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert missing.authorized_operations == (NOT_ASKED if version >= 6 else GROUP_OPERATIONS)


@describe_versions
def test_groups_are_described_in_order_and_as_often_as_named(version: int) -> None:
    groups = Groups()
    groups.commit("")
    named = groups.describe("gone", "", "gone", version=version)
    assert [(group.group_id, group.group_state) for group in named] == [
        ("gone", "Dead"),
        ("", "Empty"),
        ("gone", "Dead"),
    ]
    assert groups.describe(version=version) == []


@describe_versions
@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_group_that_cannot_be_described(version: int, error: ErrorCode) -> None:
    groups = Groups()
    groups.commit()
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        groups.harness.cluster.brokers[2].coordinator.start_loading(0)
    described = groups.describe("g", "", version=version, broker=2, operations=version >= 3)
    assert described == [
        DescribedGroup(
            error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
        )
        for group_id in ("g", "")
    ]


# ListGroups


@list_versions
def test_what_is_listed(version: int) -> None:
    groups = Groups()
    groups.commit("offsets")
    groups.stable("workers", protocol_type="connect")
    response = groups.list_groups(version)
    assert response.error_code == NONE
    listed = [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in response.groups]
    group_type = "classic" if version >= 5 else ""
    assert listed == [
        ("offsets", "", "Empty" if version >= 4 else "", group_type),
        ("workers", "connect", "Stable" if version >= 4 else "", group_type),
    ]


@list_versions
def test_no_groups(version: int) -> None:
    response = Groups().list_groups(version)
    assert (response.error_code, response.groups) == (NONE, [])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], ["empty", "completing", "stable", "preparing"]),
        (["Stable"], ["stable"]),
        (["sTABLE", " empty\t"], ["empty", "stable"]),
        (["PreparingRebalance"], ["preparing"]),
        (["completingrebalance", "Unknown"], ["completing"]),
        (["Dead"], []),
        (["Unknown"], []),
        ([""], []),
    ],
)
@pytest.mark.parametrize("version", [4, 5])
def test_filter_by_state(version: int, states: list[str], expected: list[str]) -> None:
    groups = Groups()
    groups.commit("empty")
    groups.join("completing")
    groups.stable("stable")
    groups.stable("preparing")
    groups.join("preparing")
    assert groups.listed(version=version, states_filter=states) == expected


@pytest.mark.parametrize(
    ("types", "is_listed"),
    [
        ([], True),
        (["classic"], True),
        (["CLASSIC", "unknown"], True),
        (["consumer"], False),
        (["consumer", "share", "classic"], True),
        ([" classic"], False),
        (["unknown"], False),
        ([""], False),
    ],
)
def test_filter_by_type(types: list[str], is_listed: bool) -> None:
    groups = Groups()
    groups.commit("g")
    assert groups.listed(types_filter=types) == (["g"] if is_listed else [])
    assert groups.listed(types_filter=types, states_filter=["Stable"]) == []


@list_versions
def test_each_broker_lists_its_own_groups(version: int) -> None:
    groups = Groups(offsets_topic_num_partitions=2)
    names = ["a", "b", "c", "d"]
    homes = {name: partition_for(name, 2) + 1 for name in names}
    assert set(homes.values()) == {1, 2}
    for name in names:
        broker = groups.harness.cluster.brokers[homes[name]]
        assert not result_of(broker.coordinator.commit_offsets, name, -1, "", None, [], groups.harness.now_ms)
    for node_id in (1, 2):
        listed = [group.group_id for group in groups.list_groups(version, broker=node_id).groups]
        assert listed == [name for name in names if homes[name] == node_id]


@RELEASES
@list_versions
def test_one_partition_that_loads_is_an_error(version: int, release: Release) -> None:
    """Before 4.0 the groups that were known already came with it."""
    groups = Groups(release, offsets_topic_num_partitions=2)
    known = next(name for name in "abcd" if partition_for(name, 2) == 0)
    groups.commit(known)
    groups.coordinator.start_loading(1)
    response = groups.list_groups(version)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [group.group_id for group in response.groups] == ([known] if release == BEFORE_4_0 else [])
    groups.coordinator.finish_loading(1, [], groups.harness.now_ms)
    response = groups.list_groups(version)
    assert (response.error_code, [group.group_id for group in response.groups]) == (NONE, [known])


# DeleteGroups


@delete_versions
def test_groups_are_deleted_each_once(version: int) -> None:
    groups = Groups()
    groups.commit("")
    groups.commit("offsets", ("news", 0), ("sport", 0))
    groups.stable("busy")
    named = ("offsets", "gone", "busy", "", "offsets")
    assert groups.delete(*named, version=version) == [
        ("offsets", NONE),
        ("gone", ErrorCode.GROUP_ID_NOT_FOUND),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("", NONE),
    ]
    assert groups.listed() == ["busy"]
    assert groups.committed("offsets") == []
    assert groups.delete("offsets", version=version) == [("offsets", ErrorCode.GROUP_ID_NOT_FOUND)]
    assert groups.delete(version=version) == []


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_group_with_members_is_not_deleted(state: str) -> None:
    groups = Groups()
    if state == "CompletingRebalance":
        groups.join()
    else:
        groups.stable()
    if state == "PreparingRebalance":
        groups.join()
    assert groups.describe("g")[0].group_state == state
    assert groups.delete("g") == [("g", ErrorCode.NON_EMPTY_GROUP)]
    assert groups.describe("g")[0].group_state == state


@delete_versions
@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_group_of_another_coordinator_is_not_deleted(version: int, error: ErrorCode) -> None:
    groups = Groups()
    groups.commit()
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        groups.harness.cluster.brokers[2].coordinator.start_loading(0)
    assert groups.delete("g", "", version=version, broker=2) == [("g", error), ("", error)]
    assert groups.committed() == [("news", 0)]


def test_a_deleted_group_is_gone_from_the_log_too() -> None:
    groups = Groups()
    groups.leave(groups.stable())
    groups.commit("g", ("news", 0), ("sport", 0))
    groups.commit("other")
    assert [group.group_id for group in groups.reloaded().groups()] == ["g", "other"]
    assert groups.delete("g") == [("g", NONE)]
    assert [group.group_id for group in groups.reloaded().groups()] == ["other"]


def test_a_pending_member_goes_with_its_group() -> None:
    groups = Groups()
    member_id = groups.join(version=4)
    assert member_id
    assert groups.delete("g") == [("g", NONE)]
    groups.join(member_id=member_id)
    assert groups.listed() == []
    groups.harness.advance(1_000_000)
    assert groups.listed() == []
