"""Produce: records that are appended or rejected, and the responses."""

from typing import Any

import pytest

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, decode_records, encode_batch, split_batches
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, batch, versions

ALL_VERSIONS = versions("Produce")
ACKS = -1


def request_of(
    harness: ClusterHarness,
    version: int,
    records: bytes | None,
    *,
    topic: str = "news",
    index: int = 0,
    acks: int = ACKS,
    topic_id: bytes = b"?" * 16,
) -> ProduceRequest:
    """Return a request for one partition. `topic_id` is used for unknown topics, in versions that have ids."""
    known_topic = harness.cluster.topics.get(topic)
    data = TopicProduceData(
        name=topic if version < 13 else "",
        topic_id=(topic_id if known_topic is None else known_topic.topic_id) if version >= 13 else ZERO_UUID,
        partition_data=[PartitionProduceData(index=index, records=records)],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def produce(harness: ClusterHarness, version: int, records: bytes | None, *, broker: int = 1, **fields: Any) -> Any:
    """Produce to one partition and return its part of the response."""
    response = harness.ask(request_of(harness, version, records, **fields), version, broker=broker)
    return response.responses[0].partition_responses[0]


def values(harness: ClusterHarness) -> list[tuple[int, bytes | None]]:
    """Return the offsets and values of the records in the log."""
    log = harness.partition().log
    stored = split_batches(log.read(log.log_start_offset, 2**31))
    return [(record.offset, record.value) for each in stored for record in decode_records(each)]


@pytest.mark.parametrize("acks", [-1, 1])
def test_records_are_appended(subtests: pytest.Subtests, acks: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            harness.partition().leader_epoch = 3
            first = produce(harness, version, batch(b"a", b"b"), acks=acks)
            second = produce(harness, version, batch(b"c"), acks=acks)
            assert [(each.error_code, each.base_offset) for each in (first, second)] == [(0, 0), (0, 2)]
            assert second.log_start_offset == (0 if version >= 5 else -1)
            assert second.log_append_time_ms == -1
            assert second.error_message is None
            assert values(harness) == [(0, b"a"), (1, b"b"), (2, b"c")]
            assert split_batches(harness.partition().log.read(0, 2**31))[0].partition_leader_epoch == 3


def test_each_partition_has_its_own_result() -> None:
    harness = ClusterHarness({"news": 2})
    produce_request = request_of(harness, 9, batch(b"a"))
    produce_request.topic_data[0].partition_data.append(PartitionProduceData(index=7, records=batch(b"b")))
    produce_request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch(b"c")))
    (topic,) = harness.ask(produce_request, 9).responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (0, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, ErrorCode.NONE),
    ]


def test_of_a_partition_that_is_named_twice_the_last_records_count(subtests: pytest.Subtests) -> None:
    for version in (9, 13):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2})
            request = request_of(harness, version, batch(b"a"))
            for index, records in ((1, batch(b"b")), (0, batch(b"c"))):
                request.topic_data += request_of(harness, version, records, index=index).topic_data
            (topic,) = harness.ask(request, version).responses
            assert [(each.index, each.error_code) for each in topic.partition_responses] == [(0, 0), (1, 0)]
            assert values(harness) == [(0, b"c")]


def test_topics_without_partitions_have_no_response() -> None:
    harness = ClusterHarness()
    request = request_of(harness, 9, None)
    request.topic_data[0].partition_data = []
    assert harness.ask(request, 9).responses == []
    request.topic_data += request_of(harness, 9, batch(b"a"), topic="other").topic_data
    assert [topic.name for topic in harness.ask(request, 9).responses] == ["other"]


def test_versions_before_record_batches_are_rejected(subtests: pytest.Subtests) -> None:
    for version in [0, 1, 2]:
        with subtests.test(version=version):
            harness = ClusterHarness()
            refused = produce(harness, version, batch(b"a"))
            assert (refused.error_code, refused.base_offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert values(harness) == []


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("news", 1), ("news", -1)])
def test_unknown_partitions(subtests: pytest.Subtests, topic: str, index: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            refused = produce(ClusterHarness(), version, batch(b"a"), topic=topic, index=index)
            is_unknown_id = version >= 13 and topic == "absent"
            expected = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert refused.error_code == expected


VALID = batch(b"a")


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(VALID + VALID, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(VALID[:-1], ErrorCode.INVALID_RECORD, id="cut off"),
        pytest.param(VALID[:16] + b"\1" + VALID[17:], ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(VALID[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE, id="flipped byte"),
        pytest.param(batch(b"a", is_control=True), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(
            batch(b"a", is_transactional=True),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transactional, without an id",
        ),
        pytest.param(batch(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
    ],
)
def test_invalid_records_are_rejected(subtests: pytest.Subtests, records: bytes | None, error: ErrorCode) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(config={"message.max.bytes": 1000})
            refused = produce(harness, version, records)
            assert (refused.error_code, refused.base_offset) == (error, -1)
            assert values(harness) == []


def test_a_corrupt_batch_gets_no_error_message() -> None:
    refused = produce(ClusterHarness(), 8, VALID[:-1] + b"?")
    assert (refused.error_code, refused.error_message) == (ErrorCode.CORRUPT_MESSAGE, None)
    assert refused.log_start_offset == -1


@pytest.mark.parametrize("compression", list(Compression))
def test_compression(subtests: pytest.Subtests, compression: Compression) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            result = produce(harness, version, batch(b"a", compression=compression))
            is_refused = compression is Compression.ZSTD and version < 7
            assert result.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if is_refused else ErrorCode.NONE)
            assert values(harness) == ([] if is_refused else [(0, b"a")])


@pytest.mark.parametrize("acks", [-2, 2])
def test_invalid_required_acks_are_rejected(subtests: pytest.Subtests, acks: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            assert produce(harness, version, VALID, acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert values(harness) == []


@pytest.mark.parametrize(
    ("client_id", "error"), [("client", ErrorCode.INVALID_TOPIC_EXCEPTION), ("__admin_client", ErrorCode.NONE)]
)
def test_internal_topics(client_id: str, error: ErrorCode) -> None:
    harness = ClusterHarness()
    harness.cluster.topics.show_offsets_topic()
    keyed = encode_batch([Record(0, 1000, b"key", b"value")])  # The topic is compacted.
    produce_request = request_of(harness, 9, keyed, topic="__consumer_offsets")
    (topic,) = harness.ask(produce_request, 9, client_id=client_id).responses
    assert topic.partition_responses[0].error_code == error


def test_a_broker_that_is_not_the_leader_returns_the_leader(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 3}, brokers=3)
            harness.partition(1).leader_epoch = 5
            response = harness.ask(request_of(harness, version, VALID, index=1), version, broker=3)
            (refused,) = response.responses[0].partition_responses
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = (refused.current_leader.leader_id, refused.current_leader.leader_epoch)
            endpoints = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
            assert (leader, endpoints) == (((2, 5), [(2, "localhost", 9002)]) if version >= 10 else ((-1, -1), []))


@pytest.mark.parametrize(("records", "is_valid"), [(VALID, True), (VALID[:-1], False)])
def test_acks_0_has_no_response_and_an_error_closes_the_connection(
    subtests: pytest.Subtests, records: bytes, is_valid: bool
) -> None:
    for version in [*range(3), *ALL_VERSIONS]:
        with subtests.test(version=version):
            harness = ClusterHarness()
            call: Call = harness.send(request_of(harness, version, records, acks=0), version)
            is_appended = is_valid and version >= 3
            assert call.response is None
            assert call.answered_ms == harness.now_ms
            assert harness.cluster.requests.answered == [call]
            assert call.closes_connection is not is_appended
            assert len(values(harness)) == is_appended


def create_small_topic(harness: ClusterHarness, **configs: str) -> None:
    topic_configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="small", num_partitions=1, replication_factor=1, assignments=[], configs=topic_configs)
    assert harness.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("limit", "error"), [("67", ErrorCode.MESSAGE_TOO_LARGE), ("1000", ErrorCode.NONE)])
def test_max_message_bytes_of_a_topic(limit: str, error: ErrorCode) -> None:
    harness = ClusterHarness(config={"message.max.bytes": 10 if error is ErrorCode.NONE else 1000})
    create_small_topic(harness, max_message_bytes=limit)
    assert len(VALID) == 69
    assert produce(harness, 9, VALID, topic="small").error_code == error


@pytest.mark.parametrize("is_topic_config", [True, False])
def test_retention_by_bytes(is_topic_config: bool) -> None:
    harness = ClusterHarness(config={} if is_topic_config else {"log.retention.bytes": 150})
    create_small_topic(harness, **({"retention_bytes": "150"} if is_topic_config else {}))
    start_offsets = [produce(harness, 9, VALID, topic="small").log_start_offset for _ in range(4)]
    assert start_offsets == [0, 0, 1, 2]
