"""Names of a transcript and names in a cluster: translation in both directions."""

import pytest

from fakebroker.conform.names import Names, with_producer_ids
from fakebroker.protocol.consumer_protocol import decode_subscription, encode_subscription
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.records import Record, RecordBatch, encode_batch


@pytest.fixture
def names() -> Names:
    found = Names("conform1.7", {1: 12, 2: 11})
    found.topic("news")
    found.add("g", 0, "conform1.7.3.g")
    found.add("t", 1, "conform1.7.5.t")
    return found


def test_a_request_has_the_names_of_the_cluster(names: Names) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata="g news stay as they are"
        )
    ]
    topics = [OffsetCommitRequestTopic(name="news", partitions=partitions)]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="g", topics=topics)
    sent = names.request(request)
    assert isinstance(sent, OffsetCommitRequest)
    assert (sent.group_id, sent.member_id, sent.topics[0].name) == ("conform1.7.3.g", "g", "conform1.7.news")
    assert sent.topics[0].partitions == partitions
    assert request.group_id == "g"  # It is not changed.


def test_a_response_has_the_names_of_the_transcript(names: Names) -> None:
    row = [OffsetCommitResponsePartition(partition_index=0, error_code=0)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="conform1.7.news", partitions=row)])
    received = names.response(response)
    assert isinstance(received, OffsetCommitResponse)
    assert received.topics[0].name == "news"


def test_topics_in_subscriptions(names: Names) -> None:
    protocols = [
        JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["news"], [("news", 2)])),
        JoinGroupRequestProtocol(name="news", metadata=b"news"),  # not a subscription
    ]
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    sent = names.request(request)
    assert isinstance(sent, JoinGroupRequest)
    subscription = decode_subscription(sent.protocols[0].metadata)
    assert tuple(subscription.topics) == ("conform1.7.news",)
    assert tuple(subscription.owned_partitions) == (("conform1.7.news", 2),)
    assert (sent.protocols[1].name, sent.protocols[1].metadata) == ("news", b"news")


def test_patterns_match_the_names_of_the_cluster(names: Names) -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="A", member_epoch=0, subscribed_topic_regex="n.*|sport"
    )
    sent = names.request(heartbeat)
    assert isinstance(sent, ConsumerGroupHeartbeatRequest)
    assert sent.subscribed_topic_regex == r"conform1\.7\.(?:n.*|sport)"
    listed = names.request(
        ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="t")
    )
    assert isinstance(listed, ListTransactionsRequest)
    assert listed.transactional_id_pattern == r"conform1\.7\.[0-9]+\.(?:t)"


def test_coordinators(names: Names) -> None:
    request = names.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["t", ""]))
    assert isinstance(request, FindCoordinatorRequest)
    assert request.coordinator_keys == ["conform1.7.5.t", ""]
    response = names.response(FindCoordinatorResponse(node_id=11))
    assert isinstance(response, FindCoordinatorResponse)
    assert response.node_id == 2


def test_names_that_are_missing(names: Names) -> None:
    assert names.missing(FindCoordinatorRequest(coordinator_keys=["g", "h", ""])) == [("h", 0)]
    assert names.missing(FindCoordinatorRequest(key_type=1, coordinator_keys=["t", "u"])) == [("u", 1)]


def test_producer_ids_are_numbered_by_their_first_response(names: Names) -> None:
    first, second = (InitProducerIdResponse(error_code=0, producer_id=n, producer_epoch=0) for n in (4007, 4003))
    received = [names.response(each) for each in (first, second, first)]
    assert [each.producer_id for each in received if isinstance(each, InitProducerIdResponse)] == [0, 1, 0]

    def sent(producer_id: int) -> int:
        request = EndTxnRequest(transactional_id="t", producer_id=producer_id, producer_epoch=0, committed=True)
        changed = names.request(request)
        assert isinstance(changed, EndTxnRequest)
        return changed.producer_id

    assert (sent(1), sent(-1)) == (4003, -1)
    assert sent(99) > 2**40  # No producer of the cluster has it.


def test_groups_of_others_are_not_listed(names: Names) -> None:
    rows = [ListedGroup(group_id=each, protocol_type="") for each in ("", "other", "conform1.7.3.g", "conform1.8.3.g")]
    response = names.response(ListGroupsResponse(error_code=0, groups=rows))
    assert isinstance(response, ListGroupsResponse)
    assert [each.group_id for each in response.groups] == ["g"]


def test_the_offsets_partition_of_the_groups_is_partition_0(names: Names) -> None:
    names.offsets_partition = 9
    topics = [AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0, 9, 7])]
    request = names.request(AddPartitionsToTxnRequest(v3_and_below_topics=topics))
    assert isinstance(request, AddPartitionsToTxnRequest)
    assert request.v3_and_below_topics[0].partitions == [9, 0, 7]
    rows = [AddPartitionsToTxnPartitionResult(partition_index=9, partition_error_code=0)]
    results = [AddPartitionsToTxnTopicResult(name="__consumer_offsets", results_by_partition=rows)]
    response = names.response(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_index == 0


def test_batches_get_another_producer_id_and_its_checksum() -> None:
    records = [Record(0, 5, None, b"a")]
    batches = encode_batch(records, producer_id=3, producer_epoch=1, base_sequence=0) + encode_batch(records)
    changed = with_producer_ids(batches, lambda number: number + 1_000 if number >= 0 else number)
    first = RecordBatch(changed[: len(changed) // 2])
    assert (first.producer_id, first.crc) == (1_003, first.computed_crc())
    assert changed[len(changed) // 2 :] == encode_batch(records)
