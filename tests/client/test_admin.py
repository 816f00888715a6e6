"""The admin client's calls about groups and their offsets, with brokers of several releases."""

import asyncio
from typing import Any

import pytest
import trio

from fakebroker import Consumer, FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import GroupListing, Node, OffsetAndMetadata
from fakebroker.client.errors import BrokerUnreachable, GroupError, TransactionError, UnsupportedVersion
from fakebroker.cluster.emulation import Broker
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.client.admin_harness import PARTITION, cluster_and_admin, sent_requests
from tests.support.trio_runner import in_trio_with_sockets
from tests.support.wire_client import WireClient

RELEASES = ("0.10.2", "1.0", "2.3", "2.8", "3.0", "3.9", "4.2", None)


def offsets_of(cluster: FakeCluster, group: str) -> dict[tuple[str, int], int]:
    return {partition: each.offset for partition, each in cluster.group(group).offsets().items()}


def form_group(wire: WireClient, group: str, protocol_type: str, assignment: bytes) -> None:
    """Form a group of one member, which assigns these bytes to itself."""
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )
    joined = wire.ask(join, JoinGroupResponse, 3)
    wire.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
        ),
        SyncGroupResponse,
        2,
    )


@in_trio_with_sockets
async def test_groups_are_looked_up_described_and_listed_with_their_offsets(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                await check_views_of_groups(cluster, admin)


async def check_views_of_groups(cluster: FakeCluster, admin: Admin) -> None:
    cluster.group("g").seed(
        members=["a", "b"],
        topics=["orders"],
        offsets={"orders-0": 5, "orders-1": 0},
        lag={"orders-0": 0, "orders-1": 0},
    )
    cluster.group("h").seed(offsets={"orders-0": 7}, lag={"orders-0": 0})
    broker = cluster.group("g").coordinator()
    coordinator = Node(broker.node_id, broker.host, broker.port)
    assert (await admin.find_coordinators(["g"])).all() == {"g": coordinator}

    described = await admin.describe_groups(["h", "missing", "g"])
    assert list(described) == ["h", "missing", "g"]
    missing = described["missing"]
    assert isinstance(missing, GroupError)
    assert (missing.group, missing.error) == ("missing", ErrorCode.GROUP_ID_NOT_FOUND)
    assert str(missing).startswith("group 'missing': DescribeGroups failed with GROUP_ID_NOT_FOUND")
    group = described.values_by_key["g"]
    assert (group.state, group.protocol_type, group.protocol_name) == ("Stable", "consumer", "range")
    assert group.coordinator == coordinator
    assert [(member.client_id, member.assignment) for member in group.members] == [
        ("a", (("orders", 0), ("orders", 1))),
        ("b", (("orders", 2), ("orders", 3))),
    ]
    assert (described.values_by_key["h"].state, described.values_by_key["h"].members) == ("Empty", ())

    partitions = {"g": [PARTITION, ("orders", 2)], "h": [PARTITION], "missing": [PARTITION]}
    assert (await admin.list_group_offsets(partitions)).all() == {
        "g": {PARTITION: OffsetAndMetadata(5), ("orders", 2): None},
        "h": {PARTITION: OffsetAndMetadata(7)},
        "missing": {PARTITION: None},
    }
    assert sorted(listing.group_id for listing in await admin.list_groups()) == ["g", "h"]


@in_trio_with_sockets
async def test_offsets_are_altered(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                await check_alteration_of_offsets(cluster, admin)


async def check_alteration_of_offsets(cluster: FakeCluster, admin: Admin) -> None:
    altered = await admin.alter_group_offsets(
        {"g": {PARTITION: 5, ("orders", 3): OffsetAndMetadata(6, "note", 0)}, "h": {("missing", 0): 1, PARTITION: 2}}
    )
    assert altered["g"] is None
    failed = altered["h"]
    assert isinstance(failed, GroupError)
    assert failed.partitions == {("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert str(failed) == "group 'h': OffsetCommit failed with UNKNOWN_TOPIC_OR_PARTITION: partition missing-0"
    with pytest.raises(GroupError, match=r"^group 'h'"):
        altered.all()
    assert offsets_of(cluster, "g") == {PARTITION: 5, ("orders", 3): 6}
    assert offsets_of(cluster, "h") == {PARTITION: 2}


@in_trio_with_sockets
async def test_all_offsets_of_a_group_are_listed_with_metadata_and_epoch() -> None:
    async with cluster_and_admin() as (_, admin):
        note = OffsetAndMetadata(4, "note", 0)
        (await admin.alter_group_offsets({"g": {PARTITION: note}})).all()
        assert (await admin.list_group_offsets({"g": None, "missing": None}, require_stable=True)).all() == {
            "g": {PARTITION: note},
            "missing": {},
        }


@in_trio_with_sockets
async def test_offsets_are_deleted() -> None:
    async with cluster_and_admin() as (cluster, admin):
        cluster.group("g").seed(members=1, topics=["orders"], offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.group("h").seed(offsets={"orders-0": 5, "orders-1": 6}, lag={"orders-0": 0, "orders-1": 0})
        deleted = await admin.delete_group_offsets(
            {"h": [PARTITION, PARTITION], "g": [PARTITION], "missing": [PARTITION]}
        )
        assert deleted["h"] is None
        assert {group: error.error for group, error in deleted.errors.items()} == {
            "g": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            "missing": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert offsets_of(cluster, "h") == {("orders", 1): 6}


@in_trio_with_sockets
async def test_groups_are_deleted() -> None:
    async with cluster_and_admin(as_version="2.0") as (cluster, admin):
        cluster.group("g").seed(members=1, topics=["orders"])
        cluster.group("h").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        deleted = await admin.delete_groups(["missing", "g", "h", "g"])
        assert list(deleted) == ["missing", "g", "h"]
        assert {group: error.error for group, error in deleted.errors.items()} == {
            "missing": ErrorCode.GROUP_ID_NOT_FOUND,
            "g": ErrorCode.NON_EMPTY_GROUP,
        }
        assert [group.group_id for group in cluster.groups()] == ["g"]


@in_trio_with_sockets
async def test_an_unsupported_api_is_an_error_of_each_group() -> None:
    async with cluster_and_admin(as_version="1.0") as (_, admin):
        (failed,) = (await admin.delete_groups(["g"])).errors.values()
        assert failed.error is ErrorCode.UNSUPPORTED_VERSION
        assert "DeleteGroups: broker 127.0.0.1:" in str(failed)
        assert str(failed).endswith("supports no version, this client 0-3")
        with pytest.raises(GroupError, match=r"^group 'g': OffsetDelete failed with UNSUPPORTED_VERSION"):
            (await admin.delete_group_offsets({"g": [PARTITION]})).all()
    async with cluster_and_admin(as_version="0.10.1") as (_, admin):
        with pytest.raises(GroupError, match=r"OffsetFetch: .* supports 0-1, this client 2-9$"):
            (await admin.list_group_offsets({"g": None})).all()


@in_trio_with_sockets
async def test_assignments_of_other_protocols_are_returned_as_bytes() -> None:
    async with cluster_and_admin(1) as (cluster, admin):
        members = [("connect", b"workers"), ("consumer", b"\xff"), ("consumer", b"")]
        for number, (protocol_type, assignment) in enumerate(members):
            with WireClient(cluster.brokers[0]) as wire:
                form_group(wire, f"g{number}", protocol_type, assignment)
        described = (await admin.describe_groups(["g0", "g1", "g2"])).all()
        assignments = [
            (each.assignment, each.assignment_data) for group in described.values() for each in group.members
        ]
        assert assignments == [(None, b"workers"), (None, b"\xff"), ((), b"")]


@in_trio_with_sockets
async def test_groups_of_all_brokers_are_listed_by_state_and_type() -> None:
    async with cluster_and_admin() as (cluster, admin):
        for number in range(6):
            cluster.group(f"g{number}").seed(
                members=number % 2, topics=["orders"], offsets={"orders-0": 5}, lag={"orders-0": 0}
            )
        listed = await admin.list_groups()
        assert sorted(each.group_id for each in listed) == [f"g{number}" for number in range(6)]
        stable = GroupListing(group_id="g1", protocol_type="consumer", state="Stable", type="classic")
        assert [each for each in listed if each.group_id == "g1"] == [stable]
        empty = await admin.list_groups(states=["Empty"], types=["classic"])
        assert sorted(each.group_id for each in empty) == ["g0", "g2", "g4"]
        assert {each.state for each in empty} == {"Empty"}
        assert await admin.list_groups(types=["consumer"]) == ()


@in_trio_with_sockets
async def test_filters_that_a_broker_does_not_support_are_rejected(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("2.5", {"states": ["Empty"]}, "ListGroups: broker .* supports 0-3, this client 4-5"),
        ("3.7", {"types": ["classic"]}, "ListGroups: broker .* supports 0-4, this client 5-5"),
    ]
    for release, filters, message in cases:
        with subtests.test(release=release):
            async with cluster_and_admin([Broker(), Broker(as_version=release)]) as (cluster, admin):
                cluster.group("g").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
                with pytest.raises(UnsupportedVersion, match=message):
                    await admin.list_groups(**filters)
                (listed,) = await admin.list_groups()
                assert listed.group_id == "g"


@in_trio_with_sockets
async def test_empty_calls_send_no_requests() -> None:
    async with cluster_and_admin() as (cluster, admin):
        for results in (
            await admin.find_coordinators([]),
            await admin.describe_groups([]),
            await admin.delete_groups([]),
            await admin.list_group_offsets({}),
            await admin.alter_group_offsets({}),
            await admin.delete_group_offsets({}),
            await admin.add_members_to_group("g", []),
            await admin.create_topics([]),
        ):
            assert dict(results) == {}
            assert results.all() == {}
        assert [call.api.name for call in cluster.journal.requests(client_id="admin")] == ["ApiVersions"]


@in_trio_with_sockets
async def test_duplicate_groups_are_requested_once() -> None:
    async with cluster_and_admin() as (cluster, admin):
        assert list(await admin.describe_groups(["b", "a", "b"])) == ["b", "a"]
        (lookup,) = sent_requests(cluster, "FindCoordinator")
        assert lookup.endswith("v6 b a")


@in_trio_with_sockets
async def test_coordinators_of_transactional_ids_are_looked_up() -> None:
    async with cluster_and_admin() as (cluster, admin):
        found = (await admin.find_coordinators(["tx"], "transaction")).all()
        assert found["tx"].node_id in (1, 2, 3)
        with cluster.inject_fault("FindCoordinator", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            failed = (await admin.find_coordinators(["tx"], "transaction"))["tx"]
        assert isinstance(failed, TransactionError)
        assert str(failed).startswith("transactional id 'tx': FindCoordinator failed with TRANSACTIONAL_ID_")
        rejected = (await admin.find_coordinators(["s"], "share")).errors["s"]
        assert rejected.error is ErrorCode.INVALID_REQUEST
    async with cluster_and_admin(as_version="0.10.2") as (_, admin):
        with pytest.raises(TransactionError, match=r"UNSUPPORTED_VERSION: .* supports 0-0, this client 1-6"):
            (await admin.find_coordinators(["tx"], "transaction")).all()


def test_invalid_settings_are_rejected(subtests: pytest.Subtests) -> None:
    for name, value, message in (
        ("bootstrap_servers", "here", "bootstrap_servers='here': expected HOST:PORT, or several with commas"),
        ("request_timeout_ms", 0, "request_timeout_ms=0: expected a number > 0"),
        ("default_api_timeout_ms", -1, "default_api_timeout_ms=-1: expected a number > 0"),
    ):
        arguments: dict[str, Any] = {"bootstrap_servers": "localhost:9092"} | {name: value}
        with subtests.test(name):
            with pytest.raises(ConfigError) as caught:
                Admin(**arguments)
            assert str(caught.value) == message


@in_trio_with_sockets
async def test_invalid_arguments_are_rejected() -> None:
    async with cluster_and_admin(1) as (_, admin):
        with pytest.raises(ConfigError, match=r"^groups='g': expected a list of strings, such as \['g'\]$"):
            await admin.describe_groups("g")
        with pytest.raises(ConfigError, match=r"^groups\[0\]=7: expected a string of at most 32767 bytes$"):
            await admin.delete_groups([7])  # type: ignore[list-item]  # wrong on purpose
        with pytest.raises(ConfigError, match="expected a string of at most 32767 bytes"):
            await admin.delete_groups(["g" * 32_768])
        with pytest.raises(ConfigError, match=r"^key_type='broker': expected one of group, transaction, share$"):
            await admin.find_coordinators(["g"], "broker")
        with pytest.raises(ConfigError, match=r"^group 'g': partition='orders-0': expected \(topic, number\), such as"):
            await admin.list_group_offsets({"g": ["orders-0"]})  # type: ignore[list-item]  # wrong on purpose
        with pytest.raises(ConfigError, match=r"^group 'g': partition=\('orders', 2147483648\): expected \(topic, "):
            await admin.delete_group_offsets({"g": [("orders", 2**31)]})


@in_trio_with_sockets
async def test_invalid_offsets_are_not_committed(subtests: pytest.Subtests) -> None:
    offsets: tuple[Any, ...] = (-1, 2**63, "7", 1.5, None, True, OffsetAndMetadata(-1))
    async with cluster_and_admin(1) as (cluster, admin):
        for offset in offsets:
            message = r"^group 'g': orders-0: offset=.*: expected an integer from 0 to "
            with subtests.test(offset=offset), pytest.raises(ConfigError, match=message):
                await admin.alter_group_offsets({"g": {PARTITION: offset}})
        assert cluster.journal.count("OffsetCommit") == 0


@in_trio_with_sockets
async def test_calls_need_an_open_client() -> None:
    message = "the admin client is not open: use it in `async with`"
    with FakeCluster(1) as cluster:
        admin = Admin(cluster.bootstrap_servers)
        with pytest.raises(trio.ClosedResourceError, match=message):
            await admin.list_topics()
        async with admin:
            await admin.list_topics()
        with pytest.raises(trio.ClosedResourceError, match=message):
            await admin.describe_groups(["g"])


@in_trio_with_sockets
async def test_an_open_client_cannot_be_opened_again() -> None:
    async with FakeCluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(trio.BusyResourceError, match="the admin client is open already"):
            await admin.__aenter__()
        assert not await admin.list_groups()


def test_clients_need_trio(subtests: pytest.Subtests) -> None:
    clients: list[tuple[str, Admin | Consumer]] = [
        ("the admin client", Admin("localhost:9092")),
        ("the consumer", Consumer("localhost:9092")),
    ]
    for name, client in clients:
        with (
            subtests.test(name),
            pytest.raises(FakebrokerError, match=f"^{name} was opened outside of trio: expected "),
        ):
            asyncio.run(client.__aenter__())


@in_trio_with_sockets
async def test_unreachable_bootstrap_servers_are_reported_on_opening() -> None:
    with pytest.raises(BrokerUnreachable, match=r"^brokers 127\.0\.0\.1:1, 127\.0\.0\.1:2 cannot be reached"):
        async with Admin("127.0.0.1:1,127.0.0.1:2"):
            raise AssertionError("entered")


@in_trio_with_sockets
async def test_exceptions_of_the_caller_are_not_wrapped() -> None:
    with pytest.raises(LookupError, match="of the caller"):
        async with cluster_and_admin(1):
            raise LookupError("of the caller")
