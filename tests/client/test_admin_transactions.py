"""The admin client's calls about transactions and partitions, with brokers of several releases."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import (
    Node,
    OffsetAndMetadata,
    ProducerDescription,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from fakebroker.client.errors import (
    BrokerError,
    NoBatchedFindCoordinators,
    PartitionError,
    TransactionError,
    UnsupportedVersion,
)
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.server.fake_cluster import internals
from tests.support.client.admin_harness import CLIENT_ID, PARTITION, cluster_and_admin
from tests.support.client.wire_producer import WireProducer, leader_of
from tests.support.trio_runner import in_trio_with_sockets

OTHER = ("orders", 1)
DEADLINE_S = 10.0


def errors_of(results: Any) -> dict[Any, str]:
    return {key: error.error.name for key, error in results.errors.items()}


def count(cluster: FakeCluster, api: str) -> int:
    return len([call for call in cluster.journal.requests(api) if call.client_id == CLIENT_ID])


@in_trio_with_sockets
async def test_transactions_are_described_and_listed(subtests: pytest.Subtests) -> None:
    for release in ("3.0", "3.9", "4.0", "4.2", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release, clock="manual") as (cluster, admin):
                await check_views_of_transactions(cluster, admin)


async def check_views_of_transactions(cluster: FakeCluster, admin: Admin) -> None:
    one, two = WireProducer(cluster, "one"), WireProducer(cluster, "two")
    one.begin(PARTITION, b"a")
    two.init(timeout_ms=7_000)
    described = await admin.describe_transactions(["two", "missing", "one", ""])
    assert list(described) == ["two", "missing", "one", ""]
    assert errors_of(described) == {"missing": "TRANSACTIONAL_ID_NOT_FOUND", "": "INVALID_REQUEST"}
    missing = described["missing"]
    assert isinstance(missing, TransactionError)
    assert str(missing) == ("transactional id 'missing': DescribeTransactions failed with TRANSACTIONAL_ID_NOT_FOUND")
    found = described.values_by_key
    open_one, empty = found["one"], found["two"]
    assert (open_one.state, open_one.partitions, open_one.timeout_ms) == ("Ongoing", (PARTITION,), 60_000)
    assert (open_one.producer_id, open_one.producer_epoch) == (one.producer_id, one.epoch)
    assert open_one.start_ms == int(internals(cluster).run(lambda: internals(cluster).cluster.now_ms))
    assert open_one.coordinator.node_id == one.coordinator()
    assert (empty.state, empty.partitions, empty.timeout_ms, empty.start_ms) == ("Empty", (), 7_000, None)

    listed = await admin.list_transactions()
    assert sorted(listed, key=lambda each: each.transactional_id) == [
        TransactionListing(transactional_id="one", producer_id=one.producer_id, state="Ongoing"),
        TransactionListing(transactional_id="two", producer_id=two.producer_id, state="Empty"),
    ]
    for filters, expected in (
        ({"states": ["Ongoing", "Dead"]}, ["one"]),
        ({"producer_ids": [two.producer_id, 999]}, ["two"]),
        ({"producer_ids": [two.producer_id], "states": ["Ongoing"]}, []),
    ):
        assert [each.transactional_id for each in await admin.list_transactions(**filters)] == expected


@in_trio_with_sockets
async def test_filters_need_releases_that_have_them(subtests: pytest.Subtests) -> None:
    filters: dict[str, Any]
    for release, filters, versions in (
        ("3.7", {"duration_ms": 0}, "supports 0-0, this client 1-2"),
        ("4.0", {"id_pattern": "o.*"}, "supports 0-1, this client 2-2"),
        ("2.8", {}, "supports no version, this client 0-2"),
    ):
        async with cluster_and_admin(1, as_version=release) as (_, admin):
            with subtests.test(release), pytest.raises(UnsupportedVersion, match=f"^ListTransactions: .*{versions}$"):
                await admin.list_transactions(**filters)
    async with cluster_and_admin(2, clock="manual") as (cluster, admin):
        WireProducer(cluster, "one").begin(PARTITION, b"a")
        cluster.advance(5)
        WireProducer(cluster, "other").begin(OTHER, b"a")
        for filters, expected in (
            ({"duration_ms": 4_999}, ["one"]),
            ({"duration_ms": 5_000}, []),
            ({"id_pattern": "o.*"}, ["one", "other"]),
            ({"id_pattern": "o"}, []),
        ):
            with subtests.test(**filters):
                listed = await admin.list_transactions(**filters)
                assert sorted(each.transactional_id for each in listed) == expected
        with pytest.raises(BrokerError, match=r"INVALID_REGULAR_EXPRESSION$"):
            await admin.list_transactions(id_pattern="(")


@in_trio_with_sockets
async def test_invalid_arguments(subtests: pytest.Subtests) -> None:
    async with cluster_and_admin(1) as (_, admin):
        abort = {"producer_id": 1, "producer_epoch": 0}
        wrong: Any = admin  # so that wrong arguments pass the type checker
        cases: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: wrong.list_transactions(states=["ongoing"]), r"^states\[0\]='ongoing': .*'Ongoing'"),
            (lambda: wrong.list_transactions(producer_ids=[-1]), r"^producer_ids\[0\]=-1: expected"),
            (lambda: wrong.list_transactions(duration_ms=-1), "^duration_ms=-1: expected"),
            (lambda: wrong.describe_transactions("one"), r"^transactional_ids='one': expected a list of strings"),
            (lambda: wrong.describe_producers(["orders"]), r"^partition='orders': expected \(topic, number\)"),
            (lambda: wrong.describe_producers([PARTITION], broker_id=-1), "^broker_id=-1: expected"),
            (lambda: wrong.abort_transaction(PARTITION, **(abort | {"producer_id": -1})), "^producer_id=-1"),
            (lambda: wrong.abort_transaction(PARTITION, **(abort | {"producer_epoch": 2**15})), "^producer_epoch"),
            (lambda: wrong.abort_transaction(PARTITION, coordinator_epoch=-2, **abort), "^coordinator_epoch=-2"),
            (lambda: wrong.list_offsets({PARTITION: "newest"}), r"^partition orders-0: partitions='newest': exp"),
            (lambda: wrong.list_offsets({PARTITION: 0}, isolation_level="none"), "^isolation_level='none': exp"),
        ]
        for call, message in cases:
            with subtests.test(message), pytest.raises(ConfigError, match=message):
                await call()


@in_trio_with_sockets
async def test_coordinators_of_transactions_are_looked_up_at_once_or_one_by_one(subtests: pytest.Subtests) -> None:
    for release, lookups in (("3.0", 1), (None, 1)):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                ids = [f"id-{number}" for number in range(9)]
                for each in ids:
                    WireProducer(cluster, each).init()
                assert len((await admin.describe_transactions(ids)).all()) == 9
                assert (count(cluster, "FindCoordinator"), count(cluster, "DescribeTransactions")) == (lookups, 3)
    with subtests.test("brokers without batches"):
        async with cluster_and_admin(as_version="2.8") as (cluster, admin):
            assert len((await admin.fence_producers(["a", "b"])).all()) == 2
            assert (count(cluster, "FindCoordinator"), count(cluster, "InitProducerId")) == (2, 2)
    async with cluster_and_admin(as_version="2.8", admin={"fall_back": False}) as (_, admin):
        with subtests.test("without falling back"), pytest.raises(NoBatchedFindCoordinators):
            await admin.fence_producers(["a", "b"])


@in_trio_with_sockets
async def test_brokers_without_transactions(subtests: pytest.Subtests) -> None:
    for release, call, api in (
        ("0.10.2", "fence_producers", "FindCoordinator"),
        ("2.8", "describe_transactions", "DescribeTransactions"),
    ):
        async with cluster_and_admin(2, as_version=release) as (_, admin):
            with subtests.test(release=release):
                (failed,) = (await getattr(admin, call)(["one"])).errors.values()
                assert str(failed).startswith(f"transactional id 'one': {api} failed with UNSUPPORTED_VERSION")
    async with cluster_and_admin(2, as_version="2.7") as (_, admin):
        with subtests.test("producers of partitions"):
            assert errors_of(await admin.describe_producers([PARTITION])) == {PARTITION: "UNSUPPORTED_VERSION"}


@in_trio_with_sockets
async def test_requests_to_transaction_coordinators_are_retried(subtests: pytest.Subtests) -> None:
    async with cluster_and_admin(1) as (cluster, admin):
        WireProducer(cluster, "one").init()
        for error, lookups in (
            ("COORDINATOR_LOAD_IN_PROGRESS", 1),
            ("NOT_COORDINATOR", 2),
            ("COORDINATOR_NOT_AVAILABLE", 2),
        ):
            for api in ("DescribeTransactions", "InitProducerId"):
                with subtests.test(api, error=error):
                    before = count(cluster, "FindCoordinator")
                    cluster.inject_fault(api, error=error, times=1)
                    call = admin.describe_transactions if api == "DescribeTransactions" else admin.fence_producers
                    assert list((await call(["one"])).all()) == ["one"]
                    assert count(cluster, "FindCoordinator") - before == lookups
        with subtests.test("lost connection"):
            fault = cluster.inject_fault("DescribeTransactions", drop=True, times=1)
            (await admin.describe_transactions(["one"])).all()
            assert fault.hits == 1
        with (
            subtests.test("authorization"),
            cluster.inject_fault("DescribeTransactions", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ):
            failed = await admin.describe_transactions(["one"])
            assert errors_of(failed) == {"one": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}


@in_trio_with_sockets
async def test_only_loading_coordinators_are_asked_again_for_lists() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        WireProducer(cluster, "one").init()
        cluster.inject_fault("ListTransactions", broker=2, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert len(await admin.list_transactions()) == 1
        assert [len(cluster.journal.requests("ListTransactions", broker=node_id)) for node_id in (1, 2)] == [1, 3]
        cluster.inject_fault("ListTransactions", broker=2, error="COORDINATOR_NOT_AVAILABLE")
        with pytest.raises(BrokerError, match=r"^broker '2': .* COORDINATOR_NOT_AVAILABLE$"):
            await admin.list_transactions()


@in_trio_with_sockets
async def test_fencing_aborts_open_transactions(subtests: pytest.Subtests) -> None:
    for release in ("0.11", "2.8", "3.9", "4.2", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                await check_fencing(cluster, admin)


async def check_fencing(cluster: FakeCluster, admin: Admin) -> None:
    one = WireProducer(cluster, "one")
    one.begin(PARTITION, b"a")
    fenced = (await admin.fence_producers(["one", "new"])).all()
    assert fenced["one"] == ProducerIdAndEpoch(one.producer_id, one.epoch + 2)
    assert fenced["new"].producer_epoch == 0
    assert one.end(commit=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    committed = (await admin.list_offsets({PARTITION: "latest"}, isolation_level="read_committed")).all()
    assert committed[PARTITION].offset == 2  # the record and the marker
    assert errors_of(await admin.fence_producers([""])) == {"": "INVALID_REQUEST"}


@in_trio_with_sockets
async def test_fencing_is_repeated_until_the_markers_are_written() -> None:
    async with cluster_and_admin(3) as (cluster, admin):
        one = WireProducer(cluster, "one")
        one.begin(PARTITION, b"a")
        fault = cluster.inject_fault("InitProducerId", error="CONCURRENT_TRANSACTIONS", times=3)
        assert (await admin.fence_producers(["one"])).all()["one"].producer_epoch == 2
        # Three faults, the request that aborts the transaction, and the request that raises the epoch again.
        assert (fault.hits, count(cluster, "InitProducerId")) == (3, 5)


@in_trio_with_sockets
async def test_producers_are_described_by_leaders_or_a_chosen_replica(subtests: pytest.Subtests) -> None:
    for release in ("2.8", "3.9", "4.2", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release, clock="manual") as (cluster, admin):
                await check_producers(cluster, admin)


async def check_producers(cluster: FakeCluster, admin: Admin) -> None:
    one = WireProducer(cluster, "one")
    one.begin(PARTITION, b"a", b"b")
    described = (await admin.describe_producers([PARTITION, OTHER])).all()
    (producer,) = described[PARTITION]
    assert producer == ProducerDescription(
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        last_sequence=1,
        last_timestamp_ms=1_000,
        coordinator_epoch=None,
        transaction_start_offset=0,
    )
    assert described[OTHER] == ()
    one.end(commit=True)
    for broker in cluster.brokers:
        (producer,) = (await admin.describe_producers([PARTITION], broker_id=broker.node_id)).all()[PARTITION]
        assert (producer.transaction_start_offset, producer.coordinator_epoch) == (None, 0)


@in_trio_with_sockets
async def test_leaders_are_looked_up_again(subtests: pytest.Subtests) -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        WireProducer(cluster, "one").begin(PARTITION, b"a")
        for api, error, lookups in (
            ("DescribeProducers", "NOT_LEADER_OR_FOLLOWER", 2),
            ("DescribeProducers", "UNKNOWN_TOPIC_OR_PARTITION", 1),
            ("ListOffsets", "NOT_LEADER_OR_FOLLOWER", 2),
            ("ListOffsets", "LEADER_NOT_AVAILABLE", 2),
            ("ListOffsets", "OFFSET_NOT_AVAILABLE", 1),
            ("Metadata", "LEADER_NOT_AVAILABLE", 2),
        ):
            with subtests.test(api, error=error):
                before = count(cluster, "Metadata")
                cluster.inject_fault(api, error=error, times=1)
                if api == "DescribeProducers":
                    assert len((await admin.describe_producers([PARTITION])).all()) == 1
                else:
                    assert len((await admin.list_offsets({PARTITION: "latest"})).all()) == 1
                assert count(cluster, "Metadata") - before == lookups
        for error in ("NOT_LEADER_OR_FOLLOWER", "TOPIC_AUTHORIZATION_FAILED"):
            with subtests.test("a chosen broker", error=error), cluster.inject_fault("DescribeProducers", error=error):
                assert errors_of(await admin.describe_producers([PARTITION], broker_id=1)) == {PARTITION: error}


@in_trio_with_sockets
async def test_a_hanging_transaction_is_aborted_in_its_partition(subtests: pytest.Subtests) -> None:
    for release in ("2.8", "3.9", "4.2", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                await check_abort(cluster, admin)


async def check_abort(cluster: FakeCluster, admin: Admin) -> None:
    one = WireProducer(cluster, "one")
    one.begin(PARTITION, b"a")
    (producer,) = (await admin.describe_producers([PARTITION])).all()[PARTITION]
    found = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    for error, lookups in (("NOT_LEADER_OR_FOLLOWER", 2), ("UNKNOWN_TOPIC_OR_PARTITION", 2)):
        before = count(cluster, "Metadata")
        cluster.inject_fault("WriteTxnMarkers", error=error, times=1)
        await admin.abort_transaction(PARTITION, **found)
        assert count(cluster, "Metadata") - before == lookups
    (marker,) = cluster.journal.requests("WriteTxnMarkers")[-1].request.markers
    assert (marker.transaction_result, marker.producer_id, marker.coordinator_epoch) == (False, one.producer_id, 0)
    both = {PARTITION: "latest"}
    for isolation_level in ("read_uncommitted", "read_committed"):
        listed = (await admin.list_offsets(both, isolation_level=isolation_level)).all()  # type: ignore[arg-type]
        assert listed[PARTITION].offset == 3  # a record and two markers
    one.init()
    one.begin(PARTITION, b"b")
    with pytest.raises(PartitionError, match=r"^partition 'orders-0': WriteTxnMarkers .* INVALID_PRODUCER_EPOCH$"):
        await admin.abort_transaction(PARTITION, **found)


@in_trio_with_sockets
async def test_a_marker_of_an_earlier_coordinator_is_refused(subtests: pytest.Subtests) -> None:
    for release in ("0.11", "2.7", None):
        async with cluster_and_admin(1, as_version=release) as (_, admin):
            with subtests.test(release=release):
                await admin.abort_transaction(PARTITION, producer_id=7, producer_epoch=0, coordinator_epoch=3)
                with pytest.raises(PartitionError, match=r"TRANSACTION_COORDINATOR_FENCED$"):
                    await admin.abort_transaction(PARTITION, producer_id=7, producer_epoch=0, coordinator_epoch=2)


@in_trio_with_sockets
async def test_offsets_are_listed_by_isolation_level(subtests: pytest.Subtests) -> None:
    for release in ("0.11", "2.0", "2.8", "3.9", "4.2", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                await check_offsets(cluster, admin)


async def check_offsets(cluster: FakeCluster, admin: Admin) -> None:
    cluster.topic("orders").produce(["a", "b"], partition=0)
    WireProducer(cluster, "one").begin(PARTITION, b"c")
    offsets: dict[Any, Any] = {PARTITION: "latest", OTHER: "earliest", ("orders", 9): "latest", ("missing", 0): 0}
    listed = await admin.list_offsets(offsets)
    committed = await admin.list_offsets(offsets, isolation_level="read_committed")
    assert list(listed) == list(offsets)
    for results, latest in ((listed, 3), (committed, 2)):
        assert {partition: each.offset for partition, each in results.values_by_key.items()} == {
            PARTITION: latest,
            OTHER: 0,
        }
        unknown = "UNKNOWN_TOPIC_OR_PARTITION"
        assert errors_of(results) == {("orders", 9): unknown, ("missing", 0): unknown}
    by_time = (await admin.list_offsets({PARTITION: 0, OTHER: 0})).all()
    assert (by_time[PARTITION].offset, by_time[OTHER].offset) == (0, -1)
    assert by_time[PARTITION].timestamp_ms > 0


@in_trio_with_sockets
async def test_leaders_are_not_looked_up_where_that_could_create_topics() -> None:
    async with cluster_and_admin(1, as_version="0.10.2") as (_, admin):
        listed = await admin.list_offsets({PARTITION: "latest"})
        message = "partition 'orders-0': Metadata failed with UNSUPPORTED_VERSION: Metadata: broker "
        assert str(listed.errors[PARTITION]).startswith(message)


@in_trio_with_sockets
async def test_a_leader_is_asked_once_for_all_its_partitions() -> None:
    async with cluster_and_admin(3) as (cluster, admin):
        partitions = [("orders", index) for index in range(4)]
        leaders = {leader_of(cluster, partition) for partition in partitions}
        (await admin.list_offsets(dict.fromkeys(partitions, "latest"))).all()
        assert (count(cluster, "Metadata"), count(cluster, "ListOffsets")) == (1, len(leaders))


@in_trio_with_sockets
async def test_calls_follow_coordinators_and_leaders_that_move(subtests: pytest.Subtests) -> None:
    async with cluster_and_admin(3) as (cluster, admin):
        one = WireProducer(cluster, "one")
        one.begin(PARTITION, b"a")
        for node_id in (1, 2, 3):
            with subtests.test(stopped=node_id):
                await call_each(admin)
                cluster.broker(node_id).stop()
                described = await call_each(admin)
                cluster.broker(node_id).start()
                assert described.coordinator.node_id == one.coordinator() != node_id
        assert (await admin.fence_producers(["one"])).all()["one"].producer_id == one.producer_id


async def call_each(admin: Admin) -> TransactionDescription:
    """Send a request to the leader and to the coordinator; return the description of the transaction."""
    (producer,) = (await admin.describe_producers([PARTITION])).all()[PARTITION]
    assert producer.transaction_start_offset == 0
    committed = (await admin.list_offsets({PARTITION: "latest"}, isolation_level="read_committed")).all()
    assert committed[PARTITION].offset == 0
    described = (await admin.describe_transactions(["one"])).all()["one"]
    assert (described.state, described.producer_id) == ("Ongoing", producer.producer_id)
    return described


@in_trio_with_sockets
async def test_the_node_of_a_coordinator_of_transactions() -> None:
    async with cluster_and_admin(3) as (cluster, admin):
        node_id = WireProducer(cluster, "one").coordinator()
        broker = next(each for each in cluster.brokers if each.node_id == node_id)
        found = (await admin.find_coordinators(["one"], "transaction")).all()
        assert found == {"one": Node(broker.node_id, broker.host, broker.port)}


async def until_requested(cluster: FakeCluster, api: str, times: int) -> None:
    """Wait until the admin client has sent this many requests of an API."""
    while count(cluster, api) < times:
        await trio.lowlevel.checkpoint()


@in_trio_with_sockets
async def test_stable_offsets_are_awaited(subtests: pytest.Subtests) -> None:
    for release in ("2.5", "2.8", "3.9", "4.2", None):
        for commit, expected in ((True, 5), (False, 3)):
            with subtests.test(release=release, commit=commit):
                async with cluster_and_admin(as_version=release) as (cluster, admin):
                    await check_stable_offsets(cluster, admin, commit, expected)


async def check_stable_offsets(cluster: FakeCluster, admin: Admin, commit: bool, expected: int) -> None:
    one = WireProducer(cluster, "one")
    one.init()
    (await admin.alter_group_offsets({"g": {PARTITION: 3, OTHER: 1}, "h": {PARTITION: 2}})).all()
    assert one.add_offsets("g") is ErrorCode.NONE
    assert one.commit_offset("g", PARTITION, 5) is ErrorCode.NONE
    wanted = {"g": [PARTITION, OTHER], "h": [PARTITION]}
    assert (await admin.list_group_offsets(wanted)).all()["g"][PARTITION] == OffsetAndMetadata(3)
    before = count(cluster, "OffsetFetch")
    async with trio.open_nursery() as nursery:

        async def look_up() -> None:
            found = (await admin.list_group_offsets(wanted, require_stable=True)).all()
            assert found["g"] == {PARTITION: OffsetAndMetadata(expected), OTHER: OffsetAndMetadata(1)}
            assert found["h"] == {PARTITION: OffsetAndMetadata(2)}

        nursery.start_soon(look_up)
        with trio.fail_after(DEADLINE_S):
            await until_requested(cluster, "OffsetFetch", before + 4)
        assert one.end(commit=commit) is ErrorCode.NONE


@in_trio_with_sockets
async def test_calls_that_time_out_name_the_last_error() -> None:
    """All calls run at the same time, because each takes the whole timeout."""
    async with cluster_and_admin(1, admin={"default_api_timeout_ms": 500}) as (cluster, admin):
        one = WireProducer(cluster, "one")
        one.init()
        one.add_offsets("g")
        one.commit_offset("g", PARTITION, 5)
        missing = ("missing", 0)

        async def describe_missing_topic() -> None:
            failed = (await admin.describe_producers([missing])).errors[missing]
            assert isinstance(failed, PartitionError)
            assert failed.partition == missing
            assert str(failed) == (
                "partition 'missing-0': DescribeProducers failed with REQUEST_TIMED_OUT: timed out after 500 ms; "
                "last error: Metadata failed with UNKNOWN_TOPIC_OR_PARTITION"
            )

        async def ask_missing_broker() -> None:
            failed = (await admin.describe_producers([PARTITION], broker_id=9)).errors[PARTITION]
            assert str(failed).endswith("last error: Metadata failed with BROKER_NOT_AVAILABLE: no broker 9")

        async def abort_in_missing_topic() -> None:
            with pytest.raises(PartitionError, match=r"REQUEST_TIMED_OUT: .* UNKNOWN_TOPIC_OR_PARTITION$"):
                await admin.abort_transaction(missing, producer_id=1, producer_epoch=0)

        async def wait_for_stable_offsets() -> None:
            wanted = {"g": [PARTITION], "h": [PARTITION], "all": None}
            found = await admin.list_group_offsets(wanted, require_stable=True)
            assert (found["h"], found["all"]) == ({PARTITION: None}, {})
            assert str(found["g"]).endswith("last error: OffsetFetch failed with UNSTABLE_OFFSET_COMMIT")

        async with trio.open_nursery() as nursery:
            for call in (describe_missing_topic, ask_missing_broker, abort_in_missing_topic, wait_for_stable_offsets):
                nursery.start_soon(call)
        assert "missing" not in await admin.list_topics(), "a look-up of leaders has created it"


@in_trio_with_sockets
async def test_brokers_before_2_5_do_not_wait_for_stable_offsets() -> None:
    async with cluster_and_admin(2, as_version="2.4") as (cluster, admin):
        one = WireProducer(cluster, "one")
        one.init()
        one.add_offsets("g")
        one.commit_offset("g", PARTITION, 5)
        found = (await admin.list_group_offsets({"g": [PARTITION]}, require_stable=True)).all()
        assert found["g"] == {PARTITION: None}
