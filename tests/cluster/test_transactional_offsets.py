"""Offsets that are committed in transactions, over requests: their visibility, errors by version, and failovers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from tests.cluster.test_transactions import ID, TransactionalClient
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.group_requests import commit_of, offset_to_commit

GROUP = "g"
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@dataclass
class ConsumingClient(TransactionalClient):
    """A transactional producer that commits offsets of the group "g" for the topic "news"."""

    def add_offsets(self, version: int = 3, group_id: str = GROUP, **changes: Any) -> str:
        fields = {"transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": self.epoch, **changes}
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
        fields = {"transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": self.epoch, **changes}
        request = TxnOffsetCommitRequest(
            group_id=group_id, topics=[TxnOffsetCommitRequestTopic(name="news", partitions=partitions)], **fields
        )
        response = self.harness.ask(request, version, broker=broker or self.group_coordinator())
        (topic,) = response.topics
        return {each.partition_index: ErrorCode(each.error_code).name for each in topic.partitions}

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
            wanted = [OffsetFetchRequestTopics(name="news", partition_indexes=list(indexes))] if indexes else None
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


def test_pending_offsets_are_dropped_by_an_abort() -> None:
    client = with_pending()
    assert client.fetched() == (-1, UNSTABLE)
    client.end(commit=False)
    assert client.fetched() == (-1, -1)


def test_unstable_partitions_in_each_version(subtests: pytest.Subtests) -> None:
    client = with_pending()
    client.commit(3, index=1)
    for version in range(7, 10):
        with subtests.test(version=version):
            stored = client.stored(0, 1, 2, require_stable=True, version=version)
            assert stored == {0: UNSTABLE, 1: 3, 2: -1}
            assert client.stored(0, 1, version=version) == {0: -1, 1: 3}
            assert client.stored(require_stable=True, version=version) == {1: 3}  # only what is stored
    client.commit(2)
    assert client.stored(require_stable=True) == {0: UNSTABLE, 1: 3} == client.stored(require_stable=True, version=7)


def test_of_two_commits_the_later_one_is_stored(subtests: pytest.Subtests) -> None:
    for order, expected in ((("plain", "pending"), 5), (("pending", "plain"), 3)):
        with subtests.test(order=order):
            client = new_client()
            client.add_offsets()
            for kind in order:
                if kind == "plain":
                    assert client.commit(3) == "NONE"
                else:
                    client.commit_in_transaction({0: 5})
            assert client.fetched() == (3, UNSTABLE)
            client.end(commit=True)
            assert client.fetched() == (expected, expected)


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
