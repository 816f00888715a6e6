"""DescribeProducers: the active producers of a log, as returned by leaders and followers."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fakebroker.protocol.records import Record, encode_batch
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness

NOW = int(START_MS)


def describe(harness: ClusterHarness, *topics: tuple[str, list[int]], broker: int = 1) -> list[Any]:
    """Return the partitions of the response, in the order of the request."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=each) for name, each in topics]
    )
    response = harness.ask(request, 0, broker=broker)
    assert [topic.name for topic in response.topics] == [name for name, _ in topics]
    return [partition for topic in response.topics for partition in topic.partitions]


def append(harness: ClusterHarness, producer_id: int, epoch: int, sequence: int, *timestamps_ms: int) -> None:
    records = [Record(offset, timestamp_ms, None, b"") for offset, timestamp_ms in enumerate(timestamps_ms)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    harness.partition().log.append(batch, 0)


def producers(partition: Any) -> list[tuple[int, int, int, int]]:
    """Return the id, epoch, last sequence number and last timestamp of each producer."""
    assert partition.error_code == ErrorCode.NONE
    for each in partition.active_producers:
        assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
    return [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
        for each in partition.active_producers
    ]


def test_producers_are_in_the_order_of_their_first_batches() -> None:
    harness = ClusterHarness({"news": 2})
    append(harness, 9, 0, 0, NOW, NOW + 5, NOW + 3)
    append(harness, 4, 2, 2**31 - 1, NOW + 1, NOW + 2)
    append(harness, 9, 0, 3, NOW + 1)
    append(harness, -1, -1, -1, NOW)
    written, empty = describe(harness, ("news", [0, 1]))
    assert producers(written) == [(9, 0, 3, NOW + 1), (4, 2, 0, NOW + 2)]
    assert producers(empty) == []
    append(harness, 9, 1, 0, NOW)
    assert producers(describe(harness, ("news", [0]))[0]) == [(9, 1, 0, NOW), (4, 2, 0, NOW + 2)]


def test_a_producer_is_forgotten_after_a_day() -> None:
    harness = ClusterHarness()
    append(harness, 9, 0, 0, NOW)
    append(harness, 4, 0, 0, NOW + 1)
    assert len(producers(describe(harness, ("news", [0]))[0])) == 2
    harness.advance(86_400_000)
    assert producers(describe(harness, ("news", [0]))[0]) == [(4, 0, 0, NOW + 1)]


def test_a_follower_answers() -> None:
    harness = ClusterHarness(brokers=2)
    append(harness, 9, 0, 0, NOW)
    assert producers(describe(harness, ("news", [0]), broker=2)[0]) == [(9, 0, 0, NOW)]


def test_partitions_with_errors(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness({"news": 4}, brokers=4)
    for topic, index, error, message in [
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'absent'"),
        (
            "no/name",
            0,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "topic name 'no/name': expected a name of 1 to 249",
        ),
        ("news", 4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("news", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, None),
    ]:
        with subtests.test(topic=topic, index=index):
            failed, other = describe(harness, (topic, [index]), ("news", [0]))
            assert (failed.partition_index, failed.error_code, failed.active_producers) == (index, error, [])
            assert failed.error_message is None if message is None else failed.error_message.startswith(message)
            assert producers(other) == []
