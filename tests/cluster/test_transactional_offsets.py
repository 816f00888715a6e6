"""Offsets that are committed in transactions, over requests: their visibility, errors by version, and failovers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.inspect.deadlines import deadlines_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.views import PendingOffsetView, view_group, view_groups
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.cluster.test_transactions import ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.cluster.consumer_group_requests import assigned, beat
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY
from tests.support.group_requests import commit_of, join_request, offset_to_commit, sync_request

GROUP = "g"
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@dataclass
class ConsumingClient(TransactionalClient):
    """A transactional producer that commits offsets of the group "g" for the topic "news"."""

    def add_offsets(self, version: int = 3, group_id: str = GROUP, **changes: Any) -> str:
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **changes,
        }
        response = self.ask(AddOffsetsToTxnRequest(group_id=group_id, **fields), version)
        return ErrorCode(response.error_code).name

    def commit_in_transaction(
        self, offsets: Mapping[int, int], version: int = 3, broker: int = 0, group_id: str = GROUP, **changes: Any
    ) -> dict[int, str]:
        """Commit an offset for each of these partitions; return the errors."""
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=changes.pop("metadata", "")
            )
            for index, offset in offsets.items()
        ]
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **changes,
        }
        by_id: dict[str, Any] = {"topic_id": self.harness.topic().topic_id} if version >= 6 else {}
        topics = [TxnOffsetCommitRequestTopic(name="news", partitions=partitions, **by_id)]
        request = TxnOffsetCommitRequest(group_id=group_id, topics=topics, **fields)
        response = self.harness.ask(request, version, broker=broker or self.group_coordinator())
        (topic,) = response.topics
        return {each.partition_index: ErrorCode(each.error_code).name for each in topic.partitions}

    def answered_partitions(self, *requested: tuple[str, list[int]]) -> list[tuple[str, list[int]]]:
        """Commit offsets of these partitions; return those in the response."""
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="")
                    for each in indexes
                ],
            )
            for name, indexes in requested
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
            topics=topics,
        )
        response = self.harness.ask(request, 5, broker=self.group_coordinator())
        return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]

    def commit(self, offset: int, index: int = 0) -> str:
        """Commit an offset outside of transactions."""
        request = commit_of(offset_to_commit(index, offset))
        response = self.harness.ask(request, 8, broker=self.group_coordinator())
        return ErrorCode(response.topics[0].partitions[0].error_code).name

    def group_coordinator(self) -> int:
        found = self.harness.cluster.coordinator_of(GROUP)
        assert found is not None
        return found.node_id

    def stored(self, *indexes: int, require_stable: bool = False, version: int = 8) -> dict[int, int | str]:
        """Return the offsets of some partitions, or of all that are stored; or their errors."""
        broker = self.group_coordinator()
        if version < 8:
            topics = [OffsetFetchRequestTopic(name="news", partition_indexes=list(indexes))] if indexes else None
            request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=require_stable)
            found = self.harness.ask(request, version, broker=broker).topics
        else:
            by_id: dict[str, Any] = {"topic_id": self.harness.topic().topic_id} if version >= 10 else {}
            topic = OffsetFetchRequestTopics(name="news", partition_indexes=list(indexes), **by_id)
            wanted = [topic] if indexes else None
            group = OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)
            request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
            found = self.harness.ask(request, version, broker=broker).groups[0].topics
        rows = [each for topic in found for each in topic.partitions]
        return {
            each.partition_index: ErrorCode(each.error_code).name if each.error_code else each.committed_offset
            for each in rows
        }

    def fetched(self) -> tuple[int | str, int | str]:
        """Return the stored offset of partition 0, without and with `require_stable`."""
        return self.stored(0)[0], self.stored(0, require_stable=True)[0]


def new_client(**options: Any) -> ConsumingClient:
    client = ConsumingClient(ClusterHarness(**{"topics": {"news": 3}, **options}))
    assert client.init(version=4) is ErrorCode.NONE
    return client


def with_pending(offset: int = 5, **options: Any) -> ConsumingClient:
    """Return a client whose transaction has an offset for partition 0."""
    client = new_client(**options)
    assert client.add_offsets() == "NONE"
    assert client.commit_in_transaction({0: offset}) == {0: "NONE"}
    return client


def test_pending_offsets_are_stored_by_a_commit(subtests: pytest.Subtests) -> None:
    for version in versions("TxnOffsetCommit"):
        with subtests.test(version=version):
            client = new_client()
            client.commit(3)
            if version < 5:  # Later versions add the partition themselves.
                assert client.add_offsets() == "NONE"
            assert client.commit_in_transaction({0: 5, 1: 6}, version) == {0: "NONE", 1: "NONE"}
            assert client.fetched() == (3, UNSTABLE)
            assert client.end(commit=True) == "NONE"
            assert client.stored() == {0: 5, 1: 6}
            assert client.fetched() == (5, 5)


def test_unstable_partitions_in_each_version(subtests: pytest.Subtests) -> None:
    client = with_pending()
    client.commit(3, index=1)
    for version in range(7, 11):
        with subtests.test(version=version):
            stored = client.stored(0, 1, 2, require_stable=True, version=version)
            assert stored == {0: UNSTABLE, 1: 3, 2: -1}
            assert client.stored(0, 1, version=version) == {0: -1, 1: 3}
            assert client.stored(require_stable=True, version=version) == {1: 3}  # only what is stored
    client.commit(2)
    assert client.stored(require_stable=True) == {0: UNSTABLE, 1: 3} == client.stored(require_stable=True, version=7)


def test_offsets_of_partitions_that_were_not_added(subtests: pytest.Subtests) -> None:
    expected = {3: "INVALID_TXN_STATE", 4: "TRANSACTION_ABORTABLE", 5: "NONE"}
    for version, error in expected.items():
        with subtests.test(version=version):
            client = new_client()
            assert client.commit_in_transaction({0: 5}, version) == {0: error}
            assert client.state() == ("Ongoing" if version == 5 else "Empty")


def test_releases_before_verification_take_any_offsets(subtests: pytest.Subtests) -> None:
    for release, error in (("3.6", "NONE"), ("3.7", "INVALID_TXN_STATE")):
        with subtests.test(release=release):
            assert new_client(as_version=release, brokers=3).commit_in_transaction({0: 5}) == {0: error}
    client = new_client(config={"transaction.partition.verification.enable": False})
    assert client.commit_in_transaction({0: 5}) == {0: "NONE"}
    assert client.commit_in_transaction({0: 5}, 5, transactional_id="other") == {0: "NONE"}  # already open


def test_faulty_transactions(subtests: pytest.Subtests) -> None:
    client = new_client()
    client.add_offsets()
    for name, changes, error in (
        ("no transactional id", {"transactional_id": ""}, "INVALID_REQUEST"),
        ("unknown transactional id", {"transactional_id": "other"}, "INVALID_PRODUCER_ID_MAPPING"),
        ("other producer id", {"producer_id": 7}, "INVALID_PRODUCER_ID_MAPPING"),
        ("other epoch", {"producer_epoch": 7}, "INVALID_PRODUCER_EPOCH"),
        ("no group id", {"group_id": ""}, "INVALID_GROUP_ID"),
    ):
        for version in (3, 5):
            with subtests.test(name, version=version):
                assert client.commit_in_transaction({0: 5}, version, **changes) == {0: error}
    for name, changes, error in (
        ("other producer id", {"producer_id": 7}, "INVALID_PRODUCER_ID_MAPPING"),
        ("no transactional id", {"transactional_id": ""}, "INVALID_REQUEST"),
    ):
        with subtests.test(name, api="AddOffsetsToTxn"):
            assert client.add_offsets(**changes) == error
    for version in versions("AddOffsetsToTxn"):
        with subtests.test("other epoch", api="AddOffsetsToTxn", version=version):
            error = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
            assert client.add_offsets(version, producer_epoch=7) == error


def test_unknown_partitions_get_an_error_of_their_own() -> None:
    client = new_client()
    assert client.commit_in_transaction({9: 5}, 5, group_id="") == {9: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert client.state() == "Empty"
    client.add_offsets()
    assert client.commit_in_transaction({9: 5, 0: 5}) == {9: "UNKNOWN_TOPIC_OR_PARTITION", 0: "NONE"}


@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        ({"news": []}, {}),
        ({"other": []}, {"other": []}),
        ({"news": [0], "other": []}, {"other": [], "news": [0]}),
        ({"news": [], "other": [0]}, {"other": [0]}),
    ],
)
def test_topics_without_partitions(requested: dict[str, list[int]], answered: dict[str, list[int]]) -> None:
    assert new_client().answered_partitions(*requested.items()) == list(answered.items())


def test_topics_that_are_named_twice(subtests: pytest.Subtests) -> None:
    client = new_client()
    with subtests.test("all accepted"):
        assert client.answered_partitions(("news", [0]), ("news", [1])) == [("news", [0]), ("news", [1])]
    with subtests.test("something refused"):
        assert client.answered_partitions(("news", [0]), ("x", []), ("news", [1])) == [("x", []), ("news", [0, 1])]
    with subtests.test("a partition refused"):
        assert client.answered_partitions(("news", [0]), ("news", [1, 9])) == [("news", [9, 0, 1])]


def test_the_batches_of_a_transaction_in_the_offsets_topic() -> None:
    client = with_pending()
    client.end(commit=True)
    (partition,) = [each for each in client.harness.topic(OFFSETS_TOPIC).partitions if each.log.log_end_offset]
    batches = list(partition.log.batches_from(0))
    assert [(each.producer_id, each.producer_epoch, each.base_sequence, each.attributes) for each in batches] == [
        (0, 0, 0, 0x10),
        (0, 0, -1, 0x30),
    ]
    assert partition.log.last_stable_offset == 2


# Groups


def joined(client: ConsumingClient, **fields: Any) -> str:
    """Let a member join the group and sync; return its id."""
    harness, broker = client.harness, client.group_coordinator()
    member_id: str = harness.ask(join_request(**fields), 9, broker=broker).member_id
    if "group_instance_id" not in fields:
        member_id = harness.ask(join_request(member_id=member_id, **fields), 9, broker=broker).member_id
    assert harness.ask(sync_request(member_id, assignments={member_id: b""}), 5, broker=broker).error_code == 0
    return member_id


def test_identities_of_members(subtests: pytest.Subtests) -> None:
    client = new_client(config=NO_INITIAL_DELAY)
    client.add_offsets()
    assert client.commit_in_transaction({0: 1}, generation_id_or_member_epoch=1, member_id="x") == {
        0: "ILLEGAL_GENERATION"
    }
    assert client.harness.cluster.brokers[1].coordinator.groups.classic.get(GROUP) is None
    member_id = joined(client, group_instance_id="i")
    identities: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("none", {}, "NONE"),
        ("the member", {"generation_id_or_member_epoch": 1, "member_id": member_id}, "NONE"),
        (
            "the instance",
            {"generation_id_or_member_epoch": 1, "member_id": member_id, "group_instance_id": "i"},
            "NONE",
        ),
        ("an old generation", {"generation_id_or_member_epoch": 0, "member_id": member_id}, "ILLEGAL_GENERATION"),
        ("no generation", {"member_id": member_id}, "ILLEGAL_GENERATION"),
        ("another member", {"generation_id_or_member_epoch": 1, "member_id": "other"}, "UNKNOWN_MEMBER_ID"),
        ("no member", {"generation_id_or_member_epoch": 1}, "UNKNOWN_MEMBER_ID"),
        (
            "another instance",
            {"generation_id_or_member_epoch": 1, "member_id": "x", "group_instance_id": "x"},
            "UNKNOWN_MEMBER_ID",
        ),
        (
            "a fenced instance",
            {"generation_id_or_member_epoch": 1, "member_id": "x", "group_instance_id": "i"},
            "FENCED_INSTANCE_ID",
        ),
    )
    for name, identity, error in identities:
        for version in (3, 4, 5, 6):
            with subtests.test(name, version=version):
                assert client.commit_in_transaction({0: 1}, version, **identity) == {0: error}
    with subtests.test("older versions have no identities"):
        assert client.commit_in_transaction({0: 1}, 2) == {0: "NONE"}
    too_long = {0: "OFFSET_METADATA_TOO_LARGE", 1: "NONE"}
    assert client.commit_in_transaction({0: 1, 1: 2}, metadata="x" * 4097) == too_long


def test_the_identity_is_checked_in_each_state(subtests: pytest.Subtests) -> None:
    client = new_client(config=NO_INITIAL_DELAY)
    client.add_offsets()
    member_id = joined(client)
    harness, broker = client.harness, client.group_coordinator()

    def check(state: str, *, generation_id: int = 1) -> None:
        with subtests.test(state):
            group = harness.cluster.brokers[broker].coordinator.groups.classic.get(GROUP)
            assert group is not None
            assert group.state.value == state
            identity: dict[str, Any] = {"generation_id_or_member_epoch": generation_id, "member_id": member_id}
            assert client.commit_in_transaction({0: 1}) == {0: "NONE"}
            assert client.commit_in_transaction({0: 1}, **identity) == {0: "NONE"}
            assert client.commit_in_transaction({0: 1}, **{**identity, "generation_id_or_member_epoch": 9}) == {
                0: "ILLEGAL_GENERATION"
            }

    check("Stable")
    other_id = harness.ask(join_request(), 9, broker=broker).member_id
    harness.send(join_request(member_id=other_id), 9, broker=broker)
    check("PreparingRebalance")
    harness.send(join_request(member_id=member_id), 9, broker=broker)
    check("CompletingRebalance", generation_id=2)
    leaving = [MemberIdentity(member_id=each) for each in (member_id, other_id)]
    assert harness.ask(LeaveGroupRequest(group_id=GROUP, members=leaving), 5).error_code == 0
    assert client.fetched() == (-1, UNSTABLE)  # members that leave do not end the transaction
    client.end(commit=True)
    assert client.fetched() == (1, 1)


@pytest.mark.parametrize(
    ("topic_id", "index", "error"),
    [(b"?" * 16, 0, "UNKNOWN_TOPIC_ID"), (bytes(16), 0, "UNKNOWN_TOPIC_ID"), (None, 99, "UNKNOWN_TOPIC_OR_PARTITION")],
)
def test_topic_ids_since_version_6(topic_id: bytes | None, index: int, error: str) -> None:
    """KIP-1319."""
    client = new_client()
    news = client.harness.topic().topic_id

    def topic(topic_id: bytes, index: int) -> TxnOffsetCommitRequestTopic:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=index + 7, committed_metadata=""
        )
        return TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])

    request = TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        group_id=GROUP,
        topics=[topic(news if topic_id is None else topic_id, index), topic(news, 1)],
    )
    response = client.harness.ask(request, 6, broker=client.group_coordinator())
    found = {
        (each.topic_id, partition.partition_index): ErrorCode(partition.error_code).name
        for each in response.topics
        for partition in each.partitions
    }
    assert found == {(news if topic_id is None else topic_id, index): error, (news, 1): "NONE"}
    assert {each.name for each in response.topics} == {""}
    client.end(commit=True)
    assert client.stored() == {1: 8}


def test_errors_of_members_in_each_version(subtests: pytest.Subtests) -> None:
    """Version 6 has the errors of consumer groups."""
    client = new_client()
    client.add_offsets()
    harness, broker = client.harness, client.group_coordinator()
    older_errors = {"GROUP_ID_NOT_FOUND": "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH": "ILLEGAL_GENERATION"}

    def check(name: str, index: int, epoch: int, member_id: str, error: str) -> None:
        for version in versions("TxnOffsetCommit")[3:]:
            with subtests.test(name, version=version):
                identity: dict[str, Any] = {"generation_id_or_member_epoch": epoch, "member_id": member_id}
                expected = error if version >= 6 else older_errors.get(error, error)
                assert client.commit_in_transaction({index: 7}, version, **identity) == {index: expected}

    check("no group", 0, 1, "a", "GROUP_ID_NOT_FOUND")
    first = beat(harness, "a", broker=broker).member_epoch
    beat(harness, "b", broker=broker)
    kept = assigned(beat(harness, "a", first, broker=broker))
    assert kept is not None
    beat(harness, "a", first, {*kept}, broker=broker)
    given_up = next(index for index in range(3) if index not in kept)
    check("the epoch of the member", 0, first + 1, "a", "NONE")
    check("an older one, in which it got the partition", kept[0], first, "a", "NONE")
    check("one before it got the partition", kept[0], first - 1, "a", "STALE_MEMBER_EPOCH")
    check("an older one, for a partition that it has given up", given_up, first, "a", "STALE_MEMBER_EPOCH")
    check("a newer one", kept[0], first + 2, "a", "STALE_MEMBER_EPOCH")
    check("another member", kept[0], first, "x", "UNKNOWN_MEMBER_ID")


def test_missing_groups_before_kip_848() -> None:
    """Older coordinators create the group before they check the member."""
    client = new_client(as_version="3.9", brokers=3)
    client.add_offsets()
    assert client.commit_in_transaction({0: 1}, generation_id_or_member_epoch=1, member_id="x") == {
        0: "UNKNOWN_MEMBER_ID"
    }
    assert client.commit_in_transaction({0: 1}) == {0: "NONE"}


# Deletions and expiration beside pending offsets


def test_deletions_drop_pending_offsets(subtests: pytest.Subtests) -> None:
    def delete_offset(client: ConsumingClient) -> None:
        topic = OffsetDeleteRequestTopic(name="news", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        assert client.harness.ask(OffsetDeleteRequest(group_id=GROUP, topics=[topic]), 0).error_code == 0

    def delete_group(client: ConsumingClient) -> None:
        (result,) = client.harness.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
        assert result.error_code == 0

    def delete_topic(client: ConsumingClient) -> None:
        client.harness.cluster.delete_topic(client.harness.cluster.existing_topic("news"))

    for delete in (delete_offset, delete_group, delete_topic):
        for has_stored in (False, True):
            with subtests.test(delete.__name__, has_stored=has_stored):
                client = with_pending()
                if has_stored:
                    client.commit(3)
                delete(client)
                assert client.fetched() == (-1, -1)
                client.end(commit=True)
                assert client.fetched() == (-1, -1)
                fail_over(client)
                assert client.fetched() == (-1, -1)


def test_pending_offsets_protect_partition_and_group_from_expiry() -> None:
    """The offset of partition 1 expires, that of partition 0 and the group only when the transaction has ended."""
    client = new_client(config={"offsets.retention.minutes": 1, "transaction.max.timeout.ms": 10**9})
    client.init(transaction_timeout_ms=10**9)
    client.commit(3, index=0)
    client.commit(4, index=1)
    client.add_offsets()
    client.commit_in_transaction({0: 5})
    client.harness.advance(1_200_000)
    assert client.stored() == {0: 3}
    client.end(commit=False)
    client.harness.advance(1_200_000)
    assert client.harness.cluster.brokers[1].coordinator.groups.classic.get(GROUP) is None
    client.add_offsets()
    client.commit_in_transaction({2: 5})
    client.harness.advance(1_200_000)
    assert client.harness.cluster.brokers[1].coordinator.groups.classic.get(GROUP) is not None
    client.end(commit=True)
    assert client.stored() == {2: 5}


# Failovers


def fail_over(client: ConsumingClient, **options: Any) -> None:
    """Move the coordinator of the group, to the next broker if there is one."""
    harness = client.harness
    partition, brokers = harness.cluster.offsets_partition_of(GROUP), harness.cluster.brokers
    if len(brokers) == 1:
        snapshot.restore(harness.cluster, snapshot.take(harness.cluster), harness.now_ms)
        return
    to = partition.leader_id % len(brokers) + 1
    harness.cluster.controller.set_leader(partition, to, harness.now_ms, Failover(**options))
    harness.advance(options.get("load_ms", 0))


def stop(client: ConsumingClient) -> None:
    broker = client.harness.cluster.brokers[client.group_coordinator()]
    client.harness.cluster.controller.stop_broker(broker, client.harness.now_ms, Failover())
    client.harness.advance(0)


def restore(client: ConsumingClient) -> None:
    cluster = client.harness.cluster
    snapshot.restore(cluster, snapshot.take(cluster), client.harness.now_ms)


def load(client: ConsumingClient) -> None:
    fail_over(client, load_ms=5_000)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("fail", [fail_over, load, stop, restore], ids=lambda each: each.__name__)
def test_failovers_at_each_step(
    fail: Callable[[ConsumingClient], None], is_commit: bool, subtests: pytest.Subtests
) -> None:
    """Nothing is lost, and nothing is visible before the end."""
    expected = 5 if is_commit else 3
    for step in ("before", "added", "pending", "repeated", "replaced", "ended"):
        with subtests.test(step):
            client = new_client(brokers=3)

            def at(reached: str, client: ConsumingClient = client, step: str = step) -> None:
                if reached == step:
                    fail(client)

            client.commit(3)
            at("before")
            client.add_offsets()
            at("added")
            client.commit_in_transaction({0: 4 if step == "replaced" else 5})
            at("pending")
            at("replaced")
            if step in ("repeated", "replaced"):  # The response was lost.
                client.commit_in_transaction({0: 5})
            at("repeated")
            assert client.fetched() == (3, UNSTABLE)
            assert client.end(commit=is_commit) == "NONE"
            assert client.fetched() == (expected, expected)
            at("ended")
            assert client.fetched() == (expected, expected)
            fail(client)
            assert client.fetched() == (expected, expected)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_markers_wait_for_the_group_coordinator(is_commit: bool, subtests: pytest.Subtests) -> None:
    expected = 5 if is_commit else 3
    for how in ("loading", "down"):
        with subtests.test(how):
            # Since 4.3, a marker does not wait for a leader.
            client = new_client(brokers=3, as_version="4.2" if how == "down" else None)
            client.commit(3)
            client.add_offsets()
            client.commit_in_transaction({0: 5})
            cluster, harness = client.harness.cluster, client.harness
            partition = cluster.offsets_partition_of(GROUP)
            old = cluster.brokers[partition.leader_id]
            if client.coordinator() == old.node_id:
                index = old.transaction_coordinator.partition_for(ID)
                other = old.node_id % 3 + 1
                cluster.controller.set_leader(harness.partition(index, TRANSACTIONS_TOPIC), other, 0, Failover())
            if how == "loading":
                cluster.controller.set_leader(partition, old.node_id % 3 + 1, harness.now_ms, Failover(load_ms=None))
            else:
                cluster.controller.stop_broker(old, harness.now_ms, Failover(), elect=False)
            assert client.end(commit=is_commit) == "NONE"
            harness.advance(10_000)
            assert client.state() == ("PrepareCommit" if is_commit else "PrepareAbort")
            assert client.init() is ErrorCode.CONCURRENT_TRANSACTIONS
            if how == "loading":
                cluster.group_moves.finish_loading(harness.now_ms)
            else:
                cluster.controller.start_broker(old, harness.now_ms, Failover())
                assert client.fetched() == (3, UNSTABLE)
            harness.advance(0)
            assert client.state() == ("CompleteCommit" if is_commit else "CompleteAbort")
            assert client.fetched() == (expected, expected)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_failovers_in_each_state_of_the_group(is_commit: bool, subtests: pytest.Subtests) -> None:
    """Pending offsets are loaded whatever happens to the members."""
    for state in ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"):
        with subtests.test(state):
            client = new_client(brokers=3, config=NO_INITIAL_DELAY)
            harness, broker = client.harness, client.group_coordinator()
            client.commit(3)
            client.add_offsets()
            if state != "Empty":
                member_id = joined(client)
            client.commit_in_transaction({0: 5})
            if state in ("PreparingRebalance", "CompletingRebalance"):
                other_id = harness.ask(join_request(), 9, broker=broker).member_id
                harness.send(join_request(member_id=other_id), 9, broker=broker)
            if state == "CompletingRebalance":
                harness.send(join_request(member_id=member_id), 9, broker=broker)
            group = harness.cluster.brokers[broker].coordinator.groups.classic.get(GROUP)
            assert group is not None
            assert group.state.value == state
            fail_over(client)
            assert client.fetched() == (3, UNSTABLE)
            client.end(commit=is_commit)
            assert client.fetched() == ((5, 5) if is_commit else (3, 3))


def test_commits_while_a_transaction_ends_are_refused_at_once(subtests: pytest.Subtests) -> None:
    """The leader of another partition of the transaction is down, so its marker waits (before 4.3)."""
    for version in (3, 4, 5):
        with subtests.test(version=version):
            client = new_client(brokers=3, as_version="4.2")
            cluster, harness = client.harness.cluster, client.harness
            partition = next(each for each in harness.topic().partitions if each.leader_id != client.coordinator())
            leader = cluster.brokers[partition.leader_id]
            to = next(each for each in cluster.brokers if each != leader.node_id)
            offsets = cluster.offsets_partition_of(GROUP)
            if offsets.leader_id == leader.node_id:
                cluster.controller.set_leader(offsets, to, harness.now_ms, Failover())
            client.add(partition.index)
            cluster.controller.stop_broker(leader, harness.now_ms, Failover(), elect=False)
            client.end(commit=True)
            assert client.commit_in_transaction({0: 5}, version) == {0: "CONCURRENT_TRANSACTIONS"}


def test_transactions_time_out_with_their_offsets() -> None:
    client = with_pending()
    client.harness.advance(70_000)
    assert (client.state(), client.fetched()) == ("CompleteAbort", (-1, -1))


def test_a_lost_tail(subtests: pytest.Subtests) -> None:
    with subtests.test("of the offsets"):
        client = with_pending(brokers=3)
        fail_over(client, lose_tail=1)
        assert client.fetched() == (-1, -1)
        client.end(commit=True)
        assert (client.state(), client.fetched()) == ("CompleteCommit", (-1, -1))
    with subtests.test("of the marker"):
        client = with_pending(brokers=3)
        client.end(commit=True)
        fail_over(client, lose_tail=1)
        assert client.fetched() == (-1, UNSTABLE)  # the transaction hangs, until an admin ends it
        assert write_marker(client, is_commit=True) == "NONE"
        assert client.fetched() == (5, 5)


def test_a_zombie_coordinator() -> None:
    client = with_pending(brokers=3)
    zombie = client.group_coordinator()
    fail_over(client, zombie=True)
    assert client.commit_in_transaction({1: 6}, broker=zombie) == {1: "COORDINATOR_NOT_AVAILABLE"}
    assert client.stored(0, 1, require_stable=True) == {0: UNSTABLE, 1: -1}
    client.end(commit=True)
    assert client.stored() == {0: 5}
    coordinator = client.harness.cluster.brokers[zombie].coordinator
    assert list(coordinator.offsets.unstable_partitions(GROUP)) == [("news", 0)]
    client.harness.cluster.group_moves.stop_zombies(client.harness.now_ms)
    assert not coordinator.offsets.has_pending
    assert client.commit_in_transaction({1: 6}, broker=zombie) == {1: "NOT_COORDINATOR"}


def test_a_loading_coordinator(subtests: pytest.Subtests) -> None:
    client = with_pending(brokers=3)
    partition, cluster = client.harness.cluster.offsets_partition_of(GROUP), client.harness.cluster
    cluster.controller.set_leader(partition, partition.leader_id % 3 + 1, 0, Failover(load_ms=None))
    for version in versions("TxnOffsetCommit"):
        with subtests.test(version=version):
            error = "COORDINATOR_LOAD_IN_PROGRESS" if version >= 2 else "COORDINATOR_NOT_AVAILABLE"
            assert client.commit_in_transaction({0: 5}, version) == {0: error}
    assert write_marker(client, is_commit=False) == "NOT_LEADER_OR_FOLLOWER"


def write_marker(client: ConsumingClient, *, is_commit: bool, **changes: Any) -> str:
    """Send a marker for the offsets of the group, as an admin does; return the error."""
    partition = client.harness.cluster.offsets_partition_of(GROUP)
    fields = {"producer_id": client.producer_id, "producer_epoch": client.epoch, "coordinator_epoch": 0, **changes}
    topics = [WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[partition.index])]
    marker = WritableTxnMarker(transaction_result=is_commit, topics=topics, **fields)
    response = client.harness.ask(WriteTxnMarkersRequest(markers=[marker]), 1, broker=partition.leader_id)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code).name


def test_markers_of_clients(subtests: pytest.Subtests) -> None:
    for is_commit, expected in ((True, 5), (False, -1)):
        with subtests.test(is_commit=is_commit):
            client = with_pending()
            assert write_marker(client, is_commit=is_commit, producer_epoch=-1) == "UNKNOWN_SERVER_ERROR"
            assert write_marker(client, is_commit=is_commit, producer_id=99) == "NONE"  # an unknown producer
            assert client.fetched() == (-1, UNSTABLE)
            assert write_marker(client, is_commit=is_commit, coordinator_epoch=3) == "NONE"
            assert client.fetched() == (expected, expected)
            assert write_marker(client, is_commit=is_commit) == "TRANSACTION_COORDINATOR_FENCED"
            assert client.state() == "Ongoing"  # the transaction coordinator is not told


def test_appends_that_fail(subtests: pytest.Subtests) -> None:
    def failing(error: ErrorCode, **options: Any) -> ConsumingClient:
        client = with_pending(**options)
        index = client.harness.cluster.offsets_partition_of(GROUP).index
        client.harness.cluster.append_failures.add(OFFSETS_TOPIC, index, error, 1)
        return client

    with subtests.test("of a marker of a client"):
        client = failing(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert write_marker(client, is_commit=True) == "NOT_ENOUGH_REPLICAS"
        assert client.fetched() == (-1, UNSTABLE)
    with subtests.test("before KIP-848"):
        client = failing(ErrorCode.MESSAGE_TOO_LARGE, brokers=3, as_version="3.9")
        assert client.commit_in_transaction({0: 6}) == {0: "INVALID_COMMIT_OFFSET_SIZE"}
    for error, reported in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
        (ErrorCode.MESSAGE_TOO_LARGE, "UNKNOWN_SERVER_ERROR"),
    ):
        with subtests.test("of offsets", error=error.name):
            client = failing(error)
            assert client.commit_in_transaction({0: 6, 1: 7}) == {0: reported, 1: reported}
            client.end(commit=True)
            assert client.stored() == {0: 5}
    for error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        with subtests.test("of the marker", error=error.name):
            client = failing(error)
            assert client.end(commit=True) == "NONE"
            assert (client.state(), client.fetched()) == ("PrepareCommit", (-1, UNSTABLE))
            due_ms = client.harness.cluster.next_deadline()
            assert due_ms is not None
            assert due_ms - client.harness.now_ms <= 100
            client.harness.advance(due_ms - client.harness.now_ms)
            assert (client.state(), client.fetched()) == ("CompleteCommit", (5, 5))


def test_old_epochs_are_refused_by_the_log() -> None:
    """Also if the coordinator is not asked, because verification is disabled."""
    client = new_client(config={"transaction.partition.verification.enable": False})
    old = client.epoch
    client.commit_in_transaction({0: 5})
    client.init()
    client.init()
    client.add_offsets()
    client.commit_in_transaction({0: 6})
    assert client.commit_in_transaction({0: 5}, producer_epoch=old) == {0: "INVALID_PRODUCER_EPOCH"}


# Views


def test_pending_offsets_are_shown(subtests: pytest.Subtests) -> None:
    client = with_pending()
    client.commit_in_transaction({2: 7})
    cluster, now_ms = client.harness.cluster, client.harness.now_ms
    with subtests.test("view"):
        view = view_group(cluster, GROUP, now_ms)
        assert view.pending_offsets == (PendingOffsetView(0, "news", 0, 5), PendingOffsetView(0, "news", 2, 7))
        assert [view] == view_groups(cluster, now_ms)
        assert str(view) == "g: Empty, generation 0, protocol -, offsets pending for news-0, news-2"
    with subtests.test("explanation"):
        expected = "Offsets for news-0, news-2 are pending until the end of the transaction of producer 0."
        assert expected in explain(cluster, GROUP, now_ms)
    with subtests.test("expiration"):
        assert [each.kind for each in deadlines_of(cluster, GROUP, now_ms)] == []
    client.end(commit=True)
    assert view_group(cluster, GROUP, now_ms).pending_offsets == ()
    assert "pending" not in explain(cluster, GROUP, now_ms)
    assert [each.kind for each in deadlines_of(cluster, GROUP, now_ms)] == ["offsets_removal"]
