"""The admin client with groups of both types: consumer groups of KIP-848 beside classic ones."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import GroupDescription, OffsetAndMetadata
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import GroupError, MemberError
from fakebroker.errors import ErrorCode
from tests.support.client.admin_harness import cluster_and_admin, sent_requests
from tests.support.client.consumer_over_tcp import FAST_HEARTBEATS, kip_848_consumer, poll_until
from tests.support.trio_runner import in_trio_with_sockets

P0 = ("orders", 0)


@asynccontextmanager
async def groups_of_both_types(
    **member: str,
) -> AsyncIterator[tuple[FakeCluster, Admin, Consumer]]:
    """Start a cluster with the consumer group "g" of two members, a static one and another, and a classic group "c"."""
    async with (
        cluster_and_admin(3, topics={"orders": 4}, config=FAST_HEARTBEATS) as (cluster, admin),
        AsyncExitStack() as stack,
    ):
        cluster.group("c").seed(members=["a"], topics=["orders"])
        first = await stack.enter_async_context(kip_848_consumer(cluster, client_id="first", **member))
        second = await stack.enter_async_context(kip_848_consumer(cluster, client_id="second", instance_id="i"))
        for each in (first, second):
            each.subscribe(["orders"])
        await poll_until([first, second], lambda: len(first._core.assigned) == len(second._core.assigned) == 2)
        await poll_until([first, second], lambda: cluster.group("g").describe().state == "Stable")
        yield cluster, admin, first


@in_trio_with_sockets
async def test_groups_of_both_types_are_described() -> None:
    async with groups_of_both_types(client_rack="r") as (cluster, admin, first):
        described = await admin.describe_groups(["g", "c", "missing"])
        assert list(described) == ["g", "c", "missing"]
        missing = described["missing"]
        assert isinstance(missing, GroupError)
        assert missing.error is ErrorCode.GROUP_ID_NOT_FOUND

        group = described["g"]
        assert isinstance(group, GroupDescription)
        view = cluster.group("g").describe()
        assert (group.type, group.state, group.protocol_type, group.protocol_name) == (
            "consumer",
            "Stable",
            "consumer",
            "uniform",
        )
        assert group.group_epoch == group.assignment_epoch == view.generation_id
        assert group.coordinator.node_id == cluster.group("g").coordinator().node_id
        by_client = {member.client_id: member for member in group.members}
        member = by_client["first"]
        assert (member.member_id, member.rack_id, member.member_epoch) == (
            first._core.member.member_id,
            "r",
            group.group_epoch,
        )
        assert member.assignment == member.target_assignment == tuple(sorted(first._core.assigned))
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("orders",), None)
        assert member.is_classic is False
        assert by_client["second"].group_instance_id == "i"

        classic = described["c"]
        assert isinstance(classic, GroupDescription)
        assert (classic.type, classic.state, classic.group_epoch) == ("classic", "Stable", None)
        assert [(each.client_id, each.member_epoch, each.is_classic) for each in classic.members] == [("a", None, None)]


@in_trio_with_sockets
async def test_coordinators_are_asked_for_classic_groups_only_if_there_is_no_other() -> None:
    async with groups_of_both_types() as (cluster, admin, _):
        await admin.describe_groups(["g"])
        assert [each.split()[1] for each in sent_requests(cluster, "ConsumerGroupDescribe", "DescribeGroups")] == [
            "ConsumerGroupDescribe"
        ]
        await admin.describe_groups(["c"])
        assert [each.split()[1] for each in sent_requests(cluster, "ConsumerGroupDescribe", "DescribeGroups")] == [
            "ConsumerGroupDescribe",
            "ConsumerGroupDescribe",
            "DescribeGroups",
        ]


@in_trio_with_sockets
async def test_brokers_that_do_not_have_consumer_groups_describe_classic_ones(subtests: pytest.Subtests) -> None:
    switched_off = {"config": {"group.coordinator.rebalance.protocols": "classic"}}
    for name, arguments in {"too old": {"as_version": "3.5"}, "switched off": switched_off}.items():
        with subtests.test(name):
            async with cluster_and_admin(1, **arguments) as (cluster, admin):  # type: ignore[arg-type]  # of any type
                cluster.group("c").seed(members=["a"], topics=["orders"])
                group = (await admin.describe_groups(["c"])).all()["c"]
                assert (group.type, group.state, len(group.members)) == ("classic", "Stable", 1)


@in_trio_with_sockets
async def test_groups_are_listed_by_type_and_state() -> None:
    async with groups_of_both_types() as (_, admin, _):
        listed = await admin.list_groups()
        assert sorted((each.group_id, each.type, each.state, each.protocol_type) for each in listed) == [
            ("c", "classic", "Stable", "consumer"),
            ("g", "consumer", "Stable", "consumer"),
        ]
        assert [each.group_id for each in await admin.list_groups(types=["consumer"])] == ["g"]
        assert [each.group_id for each in await admin.list_groups(states=["Stable"], types=["classic"])] == ["c"]
        assert await admin.list_groups(states=["Reconciling"]) == ()


@in_trio_with_sockets
async def test_members_are_removed_from_groups_of_both_types() -> None:
    async with groups_of_both_types() as (cluster, admin, first):
        member_id = first._core.member.member_id
        removed = await admin.remove_members_from_group("g", instance_ids=["i", "j"], member_ids=[member_id, "k"])
        assert {key: error.error for key, error in removed.errors.items()} == {
            "j": ErrorCode.UNKNOWN_MEMBER_ID,
            "k": ErrorCode.UNKNOWN_MEMBER_ID,
        }
        assert removed["i"] is None
        assert removed[member_id] is None
        assert isinstance(removed["j"], MemberError)
        (classic,) = cluster.group("c").describe().members
        assert not (await admin.remove_members_from_group("c", member_ids=[classic.member_id])).errors
        assert cluster.group("c").describe().state == "Empty"
        assert not await admin.remove_members_from_group("c")


@in_trio_with_sockets
async def test_removing_members_by_instance_id_needs_brokers_since_2_4() -> None:
    async with cluster_and_admin(1, as_version="2.3") as (cluster, admin):
        cluster.group("c").seed(members=["a"], topics=["orders"])
        with pytest.raises(GroupError, match="UNSUPPORTED_VERSION"):
            await admin.remove_members_from_group("c", instance_ids=["i"])
        (member,) = cluster.group("c").describe().members
        (failed,) = (await admin.remove_members_from_group("c", member_ids=["unknown"])).errors.values()
        assert failed.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert not (await admin.remove_members_from_group("c", member_ids=[member.member_id])).errors


@in_trio_with_sockets
async def test_consumer_groups_are_deleted_and_their_offsets_altered_once_they_are_empty() -> None:
    async with cluster_and_admin(1, config=FAST_HEARTBEATS) as (cluster, admin), kip_848_consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await poll_until([reader], lambda: len(reader._core.assigned) == 4)
        assert (await admin.delete_groups(["g"])).errors["g"].error is ErrorCode.NON_EMPTY_GROUP
        assert (await admin.alter_group_offsets({"g": {P0: 3}})).errors["g"].error is ErrorCode.UNKNOWN_MEMBER_ID
        await reader.unsubscribe()
        await poll_state(cluster, "Empty")

        assert not (await admin.alter_group_offsets({"g": {P0: 3}})).errors
        assert (await admin.list_group_offsets({"g": None})).all() == {"g": {P0: OffsetAndMetadata(3)}}
        assert not (await admin.delete_group_offsets({"g": [P0]})).errors
        assert (await admin.list_group_offsets({"g": None})).all() == {"g": {}}
        assert (await admin.describe_groups(["g"])).all()["g"].type == "consumer"
        assert not (await admin.delete_groups(["g"])).errors
        assert (await admin.describe_groups(["g"])).errors["g"].error is ErrorCode.GROUP_ID_NOT_FOUND


async def poll_state(cluster: FakeCluster, state: str) -> None:
    """Wait until the group "g" is in a state."""
    await cluster.wait_async(cluster.group("g").state(state))
