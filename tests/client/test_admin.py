"""What the admin client tells of groups, and does to them, at brokers of several releases."""

from typing import Any

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import GroupListing, Node, OffsetAndMetadata
from fakebroker.client.errors import BrokerUnreachable, GroupError, TransactionError, UnsupportedVersion
from fakebroker.cluster.emulation import Broker
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.client.admin_harness import PARTITION, administered, talk
from tests.support.trio_runner import in_trio_with_sockets
from tests.support.wire_client import WireClient

releases = pytest.mark.parametrize("release", ["0.10.2", "1.0", "2.3", "2.8", "3.0", "3.9", "4.2", None])


def offsets_of(cluster: FakeCluster, group: str) -> dict[tuple[str, int], int]:
    return {partition: each.offset for partition, each in cluster.offsets(group).items()}


def form_group(wire: WireClient, group: str, protocol_type: str, assignment: bytes) -> None:
    """A group of one member, which gives itself this."""
    protocols = [JoinGroupRequestProtocol(name="p", metadata=b"")]
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,  # so long the SyncGroup may take
        protocol_type=protocol_type,
        protocols=protocols,
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


@releases
@in_trio_with_sockets
async def test_groups_are_found_described_and_their_offsets_told(release: str | None) -> None:
    async with administered(as_version=release) as (cluster, admin):
        cluster.seed_group("g", members=["a", "b"], topics=["orders"], offsets={"orders-0": 5, "orders-1": 0})
        cluster.seed_group("h", offsets={"orders-0": 7})
        broker = cluster.coordinator_of("g")
        coordinator = Node(broker.node_id, broker.host, broker.port)
        assert (await admin.find_coordinators(["g"])).all() == {"g": coordinator}

        described = await admin.describe_groups(["h", "gone", "g"])
        assert list(described) == ["h", "gone", "g"]
        gone = described["gone"]
        assert isinstance(gone, GroupError)
        assert (gone.group, gone.error) == ("gone", ErrorCode.GROUP_ID_NOT_FOUND)
        assert str(gone).startswith("group 'gone': DescribeGroups failed with GROUP_ID_NOT_FOUND")
        group = described.values_by_key["g"]
        assert (group.state, group.protocol_type, group.protocol_name) == ("Stable", "consumer", "range")
        assert group.coordinator == coordinator
        assert [(member.client_id, member.assignment) for member in group.members] == [
            ("a", (("orders", 0), ("orders", 1))),
            ("b", (("orders", 2), ("orders", 3))),
        ]
        assert (described.values_by_key["h"].state, described.values_by_key["h"].members) == ("Empty", ())

        asked = {"g": [PARTITION, ("orders", 2)], "h": [PARTITION], "gone": [PARTITION]}
        assert (await admin.list_group_offsets(asked)).all() == {
            "g": {PARTITION: OffsetAndMetadata(5), ("orders", 2): None},
            "h": {PARTITION: OffsetAndMetadata(7)},
            "gone": {PARTITION: None},
        }
        assert sorted(listing.group_id for listing in await admin.list_groups()) == ["g", "h"]


@releases
@in_trio_with_sockets
async def test_offsets_are_altered(release: str | None) -> None:
    async with administered(as_version=release) as (cluster, admin):
        altered = await admin.alter_group_offsets(
            {"g": {PARTITION: 5, ("orders", 3): OffsetAndMetadata(6, "note", 0)}, "h": {("gone", 0): 1, PARTITION: 2}}
        )
        assert altered["g"] is None
        failed = altered["h"]
        assert isinstance(failed, GroupError)
        assert failed.partitions == {("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert str(failed) == "group 'h': OffsetCommit failed with UNKNOWN_TOPIC_OR_PARTITION: partition gone-0"
        with pytest.raises(GroupError, match=r"^group 'h'"):
            altered.all()
        assert offsets_of(cluster, "g") == {PARTITION: 5, ("orders", 3): 6}
        assert offsets_of(cluster, "h") == {PARTITION: 2}


@in_trio_with_sockets
async def test_all_offsets_are_told_with_metadata_and_epoch() -> None:
    async with administered() as (_, admin):
        note = OffsetAndMetadata(4, "note", 0)
        (await admin.alter_group_offsets({"g": {PARTITION: note}})).all()
        assert (await admin.list_group_offsets({"g": None, "gone": None}, require_stable=True)).all() == {
            "g": {PARTITION: note},
            "gone": {},
        }


@in_trio_with_sockets
async def test_offsets_are_deleted() -> None:
    async with administered() as (cluster, admin):
        cluster.seed_group("g", members=1, topics=["orders"], offsets={"orders-0": 5})
        cluster.seed_group("h", offsets={"orders-0": 5, "orders-1": 6})
        deleted = await admin.delete_group_offsets({"h": [PARTITION, PARTITION], "g": [PARTITION], "gone": [PARTITION]})
        assert deleted["h"] is None
        assert {group: error.error for group, error in deleted.errors.items()} == {
            "g": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            "gone": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert offsets_of(cluster, "h") == {("orders", 1): 6}


@in_trio_with_sockets
async def test_groups_are_deleted() -> None:
    async with administered(as_version="2.0") as (cluster, admin):
        cluster.seed_group("g", members=1, topics=["orders"])
        cluster.seed_group("h", offsets={"orders-0": 5})
        deleted = await admin.delete_groups(["gone", "g", "h", "g"])
        assert list(deleted) == ["gone", "g", "h"]
        assert {group: error.error for group, error in deleted.errors.items()} == {
            "gone": ErrorCode.GROUP_ID_NOT_FOUND,
            "g": ErrorCode.NON_EMPTY_GROUP,
        }
        assert [group.group_id for group in cluster.groups()] == ["g"]


@in_trio_with_sockets
async def test_an_api_that_a_broker_lacks_is_the_error_of_its_groups() -> None:
    async with administered(as_version="1.0") as (_, admin):
        (failed,) = (await admin.delete_groups(["g"])).errors.values()
        assert failed.error is ErrorCode.UNSUPPORTED_VERSION
        assert "DeleteGroups: broker 127.0.0.1:" in str(failed)
        assert str(failed).endswith("speaks no version, this client 0-2")
        with pytest.raises(GroupError, match=r"^group 'g': OffsetDelete failed with UNSUPPORTED_VERSION"):
            (await admin.delete_group_offsets({"g": [PARTITION]})).all()
    async with administered(as_version="0.10.1") as (_, admin):
        with pytest.raises(GroupError, match=r"OffsetFetch: .* speaks 0-1, this client 2-9$"):
            (await admin.list_group_offsets({"g": None})).all()


@in_trio_with_sockets
async def test_what_is_no_assignment_of_a_consumer_stays_bytes() -> None:
    async with administered(1) as (cluster, admin):
        members = [("connect", b"workers"), ("consumer", b"\xff"), ("consumer", b"")]
        for number, (protocol_type, assignment) in enumerate(members):
            with WireClient(cluster.brokers[0]) as wire:
                form_group(wire, f"g{number}", protocol_type, assignment)
        described = (await admin.describe_groups(["g0", "g1", "g2"])).all()
        told = [(each.assignment, each.assignment_data) for group in described.values() for each in group.members]
        assert told == [(None, b"workers"), (None, b"\xff"), ((), b"")]


@in_trio_with_sockets
async def test_groups_of_all_brokers_are_listed_once_and_by_state_and_type() -> None:
    async with administered() as (cluster, admin):
        for number in range(6):
            cluster.seed_group(f"g{number}", members=number % 2, topics=["orders"], offsets={"orders-0": 5})
        listed = await admin.list_groups()
        assert sorted(each.group_id for each in listed) == [f"g{number}" for number in range(6)]
        stable = GroupListing(group_id="g1", protocol_type="consumer", state="Stable", type="classic")
        assert [each for each in listed if each.group_id == "g1"] == [stable]
        empty = await admin.list_groups(states=["Empty"], types=["classic"])
        assert sorted(each.group_id for each in empty) == ["g0", "g2", "g4"]
        assert {each.state for each in empty} == {"Empty"}
        assert await admin.list_groups(types=["consumer"]) == ()


@pytest.mark.parametrize(
    ("release", "filters", "sentence"),
    [
        ("2.5", {"states": ["Empty"]}, "ListGroups: broker .* speaks 0-3, this client 4-5"),
        ("3.7", {"types": ["classic"]}, "ListGroups: broker .* speaks 0-4, this client 5-5"),
    ],
)
@in_trio_with_sockets
async def test_filters_that_a_broker_does_not_have_are_refused(
    release: str, filters: dict[str, Any], sentence: str
) -> None:
    async with administered([Broker(), Broker(as_version=release)]) as (cluster, admin):
        cluster.seed_group("g", offsets={"orders-0": 5})
        with pytest.raises(UnsupportedVersion, match=sentence):
            await admin.list_groups(**filters)
        (listed,) = await admin.list_groups()
        assert listed.group_id == "g"


@in_trio_with_sockets
async def test_nothing_asked_is_nothing_sent() -> None:
    async with administered() as (cluster, admin):
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
        assert [call.api.name for call in cluster.requests(client_id="admin")] == ["ApiVersions"]


@in_trio_with_sockets
async def test_a_group_that_is_named_twice_is_asked_about_once() -> None:
    async with administered() as (cluster, admin):
        assert list(await admin.describe_groups(["b", "a", "b"])) == ["b", "a"]
        (lookup,) = talk(cluster, "FindCoordinator")
        assert lookup.endswith("v6 b a")


@in_trio_with_sockets
async def test_transactional_ids_have_coordinators_too() -> None:
    async with administered() as (cluster, admin):
        found = (await admin.find_coordinators(["tx"], "transaction")).all()
        assert found["tx"].node_id in (1, 2, 3)
        with cluster.fail("FindCoordinator", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            failed = (await admin.find_coordinators(["tx"], "transaction"))["tx"]
        assert isinstance(failed, TransactionError)
        assert str(failed).startswith("transactional id 'tx': FindCoordinator failed with TRANSACTIONAL_ID_")
        refused = (await admin.find_coordinators(["s"], "share")).errors["s"]
        assert refused.error is ErrorCode.INVALID_REQUEST
    async with administered(as_version="0.10.2") as (_, admin):
        with pytest.raises(TransactionError, match=r"UNSUPPORTED_VERSION: .* speaks 0-0, this client 1-6"):
            (await admin.find_coordinators(["tx"], "transaction")).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"bootstrap_servers": "here"}, "bootstrap_servers='here': expected HOST:PORT, or several with commas"),
        ({"request_timeout_ms": 0}, "request_timeout_ms=0: expected a number > 0"),
        ({"default_api_timeout_ms": -1}, "default_api_timeout_ms=-1: expected a number > 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Admin(**{"bootstrap_servers": "localhost:9092"} | arguments)
    assert str(caught.value) == error


@in_trio_with_sockets
async def test_what_cannot_be_asked_is_refused() -> None:
    async with administered(1) as (_, admin):
        with pytest.raises(ConfigError, match=r"^groups='g': expected several, such as \['g'\]$"):
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


@pytest.mark.parametrize("offset", [-1, 2**63, "7", 1.5, None, True, OffsetAndMetadata(-1)])
@in_trio_with_sockets
async def test_what_is_no_offset_is_not_committed(offset: Any) -> None:
    async with administered(1) as (cluster, admin):
        with pytest.raises(ConfigError, match=r"^group 'g': orders-0: offset=.*: expected an integer from 0 to "):
            await admin.alter_group_offsets({"g": {PARTITION: offset}})
        assert cluster.count("OffsetCommit") == 0


@in_trio_with_sockets
async def test_only_an_admin_client_that_is_open_can_ask() -> None:
    sentence = "the admin client is not open: use it in `async with`"
    with FakeCluster(1) as cluster:
        admin = Admin(cluster.bootstrap_servers)
        with pytest.raises(trio.ClosedResourceError, match=sentence):
            await admin.list_topics()
        async with admin:
            await admin.list_topics()
        with pytest.raises(trio.ClosedResourceError, match=sentence):
            await admin.describe_groups(["g"])


@in_trio_with_sockets
async def test_nobody_at_the_bootstrap_servers_is_said_at_once() -> None:
    with pytest.raises(
        BrokerUnreachable, match=r"^none of the brokers 127\.0\.0\.1:1, 127\.0\.0\.1:2 cannot be reached"
    ):
        async with Admin("127.0.0.1:1,127.0.0.1:2"):
            raise AssertionError("entered")


@in_trio_with_sockets
async def test_what_the_caller_raises_stays_what_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with administered(1):
            raise LookupError("mine")
