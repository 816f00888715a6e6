"""Adding expected members to a group: the proposal "batch-join", and brokers without it."""

from typing import Any

import pytest

from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import GroupError, MemberError, NoBatchJoin, UnsupportedVersion
from fakebroker.cluster.emulation import Broker
from fakebroker.errors import ConfigError, ErrorCode
from tests.support.client.admin_harness import CLIENT_ID, answered, cluster_and_admin, groups_of, sent_requests
from tests.support.trio_runner import in_trio_with_sockets

PROPOSALS: dict[str, Any] = {"proposals": ["batch-join"]}


@in_trio_with_sockets
async def test_members_are_added_in_one_request() -> None:
    async with cluster_and_admin(3, **PROPOSALS) as (cluster, admin):
        added = (await admin.add_members_to_group("g", ["x", "y", "x"])).all()
        assert list(added) == ["x", "y"]
        assert all(member_id.startswith(instance_id) for instance_id, member_id in added.items())
        coordinator = cluster.group("g").coordinator().node_id
        assert sent_requests(cluster, "JoinGroup") == [f"{coordinator} JoinGroup v10 g"]
        (call,) = cluster.journal.requests("JoinGroup", CLIENT_ID)
        assert call.request.rebalance_timeout_ms == 300_000
        assert [member.group_instance_id for member in call.request.join_group_members] == ["x", "y"]


@in_trio_with_sockets
async def test_each_member_has_its_own_error() -> None:
    async with cluster_and_admin(1, **PROPOSALS) as (_, admin):
        (known,) = (await admin.add_members_to_group("g", ["x"])).all().values()
        added = await admin.add_members_to_group("g", ["x", "not legal", "y"])
        assert isinstance(added["y"], str)
        assert {instance_id: error.error for instance_id, error in added.errors.items()} == {
            "x": ErrorCode.DUPLICATE_RESOURCE,
            "not legal": ErrorCode.INVALID_REQUEST,
        }
        failed = added["x"]
        assert isinstance(failed, MemberError)
        assert failed.instance_id == "x"
        assert str(failed) == f"member 'x': JoinGroup failed with DUPLICATE_RESOURCE: its member id is {known!r}"
        with pytest.raises(MemberError, match=r"^member 'x'"):
            added.all()


@in_trio_with_sockets
async def test_descriptions_mark_expected_members() -> None:
    async with (
        cluster_and_admin(1, **PROPOSALS) as (cluster, admin),
        Consumer(cluster.bootstrap_servers, group_id="g", instance_id="i") as consumer,
    ):
        consumer.subscribe(["orders"])
        await consumer.assignment()
        await admin.add_members_to_group("g", ["x"])
        described = (await admin.describe_groups(["g"])).all()["g"]
        assert {m.group_instance_id: m.is_expected for m in described.members} == {"i": False, "x": True}


@in_trio_with_sockets
async def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    async with cluster_and_admin(2, **PROPOSALS) as (cluster, admin):
        (g,) = groups_of(cluster, 2, 1)
        cluster.inject_fault("FindCoordinator", stale=True, times=1)
        cluster.group(g).move_coordinator(1)
        assert list((await admin.add_members_to_group(g, ["x"])).all()) == ["x"]
        assert [line[0] for line in sent_requests(cluster, "JoinGroup")] == ["2", "1"]


@in_trio_with_sockets
async def test_the_error_of_a_timeout_contains_the_last_error() -> None:
    async with cluster_and_admin(1, admin={"default_api_timeout_ms": 50}, **PROPOSALS) as (cluster, admin):
        cluster.inject_fault("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE")
        with pytest.raises(GroupError, match=r"^group 'g': JoinGroup failed with REQUEST_TIMED_OUT: .*NOT_AVAILABLE"):
            await answered(lambda: admin.add_members_to_group("g", ["x"]))


@in_trio_with_sockets
async def test_a_broker_without_the_proposal_is_an_error() -> None:
    message = (
        r"^JoinGroup: broker .* supports 0-9, this client 10-10; adding members needs a broker with the batch-join"
    )
    async with cluster_and_admin([Broker()]) as (cluster, admin):
        with pytest.raises(NoBatchJoin, match=message) as caught:
            await admin.add_members_to_group("g", ["x"])
        assert isinstance(caught.value, UnsupportedVersion)
        assert sent_requests(cluster, "JoinGroup") == []


@in_trio_with_sockets
async def test_invalid_timeouts_are_rejected(subtests: pytest.Subtests) -> None:
    values: tuple[Any, ...] = (0, 2**31, 1.5)
    async with cluster_and_admin(1, **PROPOSALS) as (cluster, admin):
        for timeout in ("session_timeout_ms", "rebalance_timeout_ms"):
            for value in values:
                message = rf"^{timeout}={value}: expected an integer from 1 to 2147483647$"
                with subtests.test(timeout, value=value), pytest.raises(ConfigError, match=message):
                    await admin.add_members_to_group("g", ["x"], **{timeout: value})
        assert cluster.journal.count("JoinGroup") == 0
