"""The requests that the admin client sends: batches, retries and look-ups of coordinators."""

from typing import Any

import pytest
import trio

from fakebroker.client.brokers import MAX_KEYS
from fakebroker.client.errors import AdminError, NoBatchedFindCoordinators, NoBatchedOffsetFetch, UnsupportedVersion
from fakebroker.cluster.emulation import Broker
from fakebroker.errors import ErrorCode
from tests.support.client.admin_harness import (
    CLIENT_ID,
    PARTITION,
    answered,
    cluster_and_admin,
    groups_of,
    sent_requests,
)
from tests.support.trio_runner import in_trio_with_sockets

APIS = ("FindCoordinator", "OffsetFetch", "DescribeGroups")


@in_trio_with_sockets
async def test_single_requests_to_an_old_coordinator_are_repeated_while_it_is_loading() -> None:
    """The requests of scenarios/transcripts/admin-old-cluster-while-loading.txt (KAFKA-13043)."""
    async with cluster_and_admin(2, as_version="2.8") as (cluster, admin):
        g, h = groups_of(cluster, 2, 2)
        cluster.group(g).seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.inject_fault("OffsetFetch", error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        listed = (await admin.list_group_offsets({g: [PARTITION], h: [PARTITION]})).all()
        assert listed[g][PARTITION] is not None
        assert listed[h][PARTITION] is None
        assert sent_requests(cluster, *APIS) == [
            f"1 FindCoordinator v3 {g}",
            f"1 FindCoordinator v3 {h}",
            f"2 OffsetFetch v7 {g}",
            f"2 OffsetFetch v7 {h}",
            f"2 OffsetFetch v7 {g}",
            f"2 OffsetFetch v7 {h}",
        ]


@in_trio_with_sockets
async def test_only_groups_that_are_loading_are_requested_again() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        g, h = groups_of(cluster, 2, 2)
        cluster.inject_fault("OffsetFetch", group=g, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert (await admin.list_group_offsets({g: None, h: None})).all() == {g: {}, h: {}}
        assert sent_requests(cluster, *APIS) == [
            f"1 FindCoordinator v6 {g} {h}",
            f"2 OffsetFetch v9 {g} {h}",
            f"2 OffsetFetch v9 {g}",
            f"2 OffsetFetch v9 {g}",
        ]


@in_trio_with_sockets
async def test_a_request_is_repeated_until_the_coordinator_has_loaded() -> None:
    async with cluster_and_admin(2, clock="manual") as (cluster, admin):
        (g,) = groups_of(cluster, 1, 1)
        cluster.group(g).seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.group(g).move_coordinator(2, load_ms=None)
        first = cluster.inject_fault("OffsetFetch", throttle_time_ms=1, times=1)
        async with trio.open_nursery() as nursery:

            async def list_offsets() -> None:
                offsets = (await admin.list_group_offsets({g: [PARTITION]})).all()[g]
                assert offsets[PARTITION] is not None

            nursery.start_soon(list_offsets)
            while not first.hits:
                await trio.lowlevel.checkpoint()
            cluster.brokers.finish_loading()
        errors = [call.errors for call in cluster.journal.requests("OffsetFetch")]
        assert errors[0] == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)
        assert errors[-1] == ()
        assert cluster.journal.count("FindCoordinator") == 1


@in_trio_with_sockets
async def test_only_groups_that_have_moved_are_looked_up_again() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        g, h = groups_of(cluster, 2, 2)
        cluster.inject_fault("FindCoordinator", stale=True, times=1)
        cluster.group(g).move_coordinator(1)
        assert sorted((await admin.describe_groups([g, h])).errors) == [g, h]  # neither exists
        sent = sent_requests(cluster, *APIS)
        sent.remove(f"2 DescribeGroups v6 {h}")  # Over another connection, which can take longer than the next look-up.
        assert sent == [f"1 FindCoordinator v6 {g} {h}", f"1 FindCoordinator v6 {g}", f"1 DescribeGroups v6 {g}"]


@in_trio_with_sockets
async def test_a_coordinator_that_is_down_is_looked_up_again() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        (g,) = groups_of(cluster, 2, 1)
        cluster.group(g).seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.inject_fault("FindCoordinator", stale=True, times=1)
        cluster.broker(2).stop()
        assert (await admin.describe_groups([g])).all()[g].coordinator.node_id == 1
        assert sent_requests(cluster, *APIS) == [
            f"1 FindCoordinator v6 {g}",
            f"1 FindCoordinator v6 {g}",
            f"1 DescribeGroups v6 {g}",
        ]


@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
@in_trio_with_sockets
async def test_a_coordinator_that_is_not_available_is_looked_up_again(error: str) -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        (g,), (h,) = groups_of(cluster, 1, 1), groups_of(cluster, 2, 1)
        cluster.inject_fault("FindCoordinator", group=g, error=error, times=2)
        found = (await admin.find_coordinators([g, h])).all()
        assert {group: node.node_id for group, node in found.items()} == {g: 1, h: 2}
        assert sent_requests(cluster, "FindCoordinator") == [
            f"1 FindCoordinator v6 {g} {h}",
            f"1 FindCoordinator v6 {g}",
            f"1 FindCoordinator v6 {g}",
        ]


@pytest.mark.parametrize("api", ["FindCoordinator", "DescribeGroups"])
@in_trio_with_sockets
async def test_a_request_is_repeated_after_a_lost_connection(api: str) -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        (g,) = groups_of(cluster, 2, 1)
        cluster.group(g).seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        fault = cluster.inject_fault(api, drop=True, times=1)
        assert (await admin.describe_groups([g])).all()[g].state == "Empty"
        assert fault.hits == 1
        cluster.brokers.rolling_restart()
        assert (await admin.describe_groups([g])).all()[g].state == "Empty"


@in_trio_with_sockets
async def test_a_request_is_repeated_after_a_request_timeout() -> None:
    async with cluster_and_admin(2, admin={"request_timeout_ms": 50}) as (cluster, admin):
        (g,) = groups_of(cluster, 2, 1)
        for api in ("FindCoordinator", "DescribeGroups", "Metadata"):
            cluster.inject_fault(api, silent=True, times=1)
        assert (await admin.describe_groups([g])).errors[g].error is ErrorCode.GROUP_ID_NOT_FOUND
        assert len((await admin.describe_cluster()).nodes) == 2


@in_trio_with_sockets
async def test_the_error_of_a_timeout_contains_the_last_error_of_each_group() -> None:
    async with cluster_and_admin(2, admin={"default_api_timeout_ms": 100}) as (cluster, admin):
        g, h = groups_of(cluster, 2, 2)
        cluster.group(h).seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.inject_fault("DescribeGroups", group=g, error="NOT_COORDINATOR")
        described = await answered(lambda: admin.describe_groups([g, h]))
        assert described.values_by_key[h].state == "Empty"
        assert str(described.errors[g]) == (
            f"group '{g}': ConsumerGroupDescribe failed with REQUEST_TIMED_OUT: timed out after 100 ms; "
            "last error: DescribeGroups failed with NOT_COORDINATOR"
        )
        cluster.clear_faults()
        cluster.inject_fault("FindCoordinator", silent=True)
        (failed,) = (await admin.find_coordinators([g])).errors.values()
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert str(failed).endswith("timed out after 100 ms; no response")


@in_trio_with_sockets
async def test_each_broker_of_a_mixed_cluster_gets_requests_of_its_version() -> None:
    async with cluster_and_admin([Broker(), Broker(as_version="2.8"), Broker(as_version="3.0")]) as (cluster, admin):
        first, old, new = (groups_of(cluster, node_id, 2) for node_id in (1, 2, 3))
        cluster.inject_fault("OffsetFetch", broker=2, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        (await admin.list_group_offsets(dict.fromkeys(first + old + new))).all()
        sent = sent_requests(cluster, *APIS)
        assert sent[0] == f"1 FindCoordinator v6 {' '.join(first + old + new)}"
        assert sorted(sent[1:]) == sorted(
            [
                f"1 OffsetFetch v9 {' '.join(first)}",
                *(f"2 OffsetFetch v7 {group}" for group in old + old),
                f"3 OffsetFetch v8 {' '.join(new)}",
            ]
        )


@in_trio_with_sockets
async def test_a_broker_gets_batches_after_its_upgrade() -> None:
    async with cluster_and_admin(1, as_version="2.8") as (cluster, admin):
        groups = ["a", "b", "c"]
        assert (await admin.list_group_offsets(dict.fromkeys(groups))).all() == {group: {} for group in groups}
        assert len(sent_requests(cluster, *APIS)) == 6
        cluster.broker(1).upgrade("3.9")
        assert (await admin.list_group_offsets(dict.fromkeys(groups))).all() == {group: {} for group in groups}
        assert sent_requests(cluster, *APIS)[6:] == ["1 FindCoordinator v6 a b c", "1 OffsetFetch v9 a b c"]
        cluster.broker(1).upgrade("2.8")
        (await admin.list_group_offsets(dict.fromkeys(groups))).all()
        assert len(sent_requests(cluster, *APIS)) == 6 + 2 + 6


@in_trio_with_sockets
async def test_without_fall_back_a_broker_without_batches_is_an_error() -> None:
    strict = {"fall_back": False}
    async with cluster_and_admin([Broker(as_version="2.8"), Broker()], admin=strict) as (cluster, admin):
        message = (
            r"^FindCoordinator: broker .* supports 0-3, this client 4-6 for several keys per request; fall_back=False"
        )
        with pytest.raises(NoBatchedFindCoordinators, match=message) as caught:
            await admin.describe_groups(["g", "h"])
        assert isinstance(caught.value, UnsupportedVersion)
        assert sent_requests(cluster, *APIS) == []
        assert list(await admin.describe_groups(["g"])) == ["g"]
    async with cluster_and_admin([Broker(), Broker(as_version="2.8")], admin=strict) as (cluster, admin):
        old: dict[str, None] = dict.fromkeys(groups_of(cluster, 2, 2))
        with pytest.raises(NoBatchedOffsetFetch, match=r"^OffsetFetch: broker .* supports 0-7, this client 8-"):
            await admin.list_group_offsets(old)
        assert cluster.journal.count("OffsetFetch") == 0
        assert list(await admin.describe_groups(old)) == list(old)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "lookups", "fetches"), [(None, 1, 3), ("2.8", 10_000, 10_000)])
@in_trio_with_sockets
async def test_requests_for_ten_thousand_groups(release: str | None, lookups: int, fetches: int) -> None:
    """The numbers of requests are in the client's README, too."""
    journal: dict[str, Any] = {"journal": "headers", "journal_calls": 30_000}
    async with cluster_and_admin(3, as_version=release, **journal) as (cluster, admin):
        listed = await admin.list_group_offsets({f"group-{number}": [PARTITION] for number in range(10_000)})
        assert len(listed.all()) == 10_000
        assert cluster.journal.count("FindCoordinator", CLIENT_ID) == lookups
        assert cluster.journal.count("OffsetFetch", CLIENT_ID) == fetches
        assert cluster.journal.count(client_id=CLIENT_ID) == lookups + fetches + cluster.journal.count(
            "ApiVersions", CLIENT_ID
        )


@in_trio_with_sockets
async def test_groups_are_divided_into_requests() -> None:
    groups = [f"group-{number}" for number in range(MAX_KEYS + 1)]
    async with cluster_and_admin(1) as (cluster, admin):
        assert list((await admin.list_group_offsets(dict.fromkeys(groups))).all()) == groups
        sizes = [len(call.group_ids) for api in APIS for call in cluster.journal.requests(api)]
        assert sizes == [MAX_KEYS, 1, MAX_KEYS, 1]


@in_trio_with_sockets
async def test_an_error_of_one_group_does_not_affect_others() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        g, h = groups_of(cluster, 2, 2)
        cluster.inject_fault("FindCoordinator", group=g, error="GROUP_AUTHORIZATION_FAILED")
        listed = await admin.list_group_offsets({g: None, h: None})
        assert listed[h] == {}
        failed = listed[g]
        assert isinstance(failed, AdminError)
        assert (failed.api, failed.error) == ("FindCoordinator", ErrorCode.GROUP_AUTHORIZATION_FAILED)


@in_trio_with_sockets
async def test_unstable_offsets_are_requested_again() -> None:
    async with cluster_and_admin(1) as (cluster, admin):
        cluster.group("g").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.inject_fault("OffsetFetch", group="g", error="UNSTABLE_OFFSET_COMMIT", times=1)
        (await admin.list_group_offsets({"g": [PARTITION]}, require_stable=True)).all()
        assert cluster.journal.count("OffsetFetch") == 2
