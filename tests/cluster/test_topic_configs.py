"""The effects of topic configs: retention, compaction, timestamps, sizes and in-sync replicas."""

import struct
from typing import Any

import pytest
from crc32c import crc32c

from fakebroker.cluster.configs.topic_configs import topic_configs
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.message_sets import encode_message
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, TimestampType, decode_records, encode_batch, split_batches
from fakebroker.protocol.releases import Release
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness
from tests.support.cluster.group_admin_harness import GroupAdminHarness
from tests.support.group_requests import commit_of, offset_to_commit

NOW_MS = int(START_MS)
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
CHECK_MS = 300_000
"""The default of `log.retention.check.interval.ms`."""

CLEANER_MS = 15_000
"""The default of `log.cleaner.backoff.ms`."""

EARLIEST, LATEST = -2, -1


class TopicHarness(ClusterHarness):
    """A cluster with the topic "t" of one partition, whose configs are given."""

    def __init__(
        self,
        configs: dict[str, Any] | None = None,
        brokers: int = 1,
        as_version: str | None = None,
        config: dict[str, object] | None = None,
    ) -> None:
        super().__init__({}, brokers, as_version=as_version, config=config)
        entries = [CreatableTopicConfig(name=name, value=str(value)) for name, value in (configs or {}).items()]
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=brokers, assignments=[], configs=entries)
        (result,) = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=False), 4).topics
        assert result.error_code == ErrorCode.NONE, result.error_message

    def alter(self, name: str, value: object, resource_type: int = 2, resource_name: str = "t") -> None:
        """Set a config, by default of the topic."""
        entries = [AlterableConfig(name=name, config_operation=0, value=str(value))]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=resource_name, configs=entries)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (result,) = self.ask(request, 1).responses
        assert result.error_code == ErrorCode.NONE, result.error_message

    def produce(self, *records: tuple[Any, ...], version: int = 9, acks: int = -1, **fields: Any) -> Any:
        """Produce one batch of records (key, value, timestamp); the default of the timestamp is the brokers' time."""
        batch = [Record(index, *_timestamp_first(record, int(self.now_ms))) for index, record in enumerate(records)]
        return self.produce_bytes(encode_batch(batch, **fields), version=version, acks=acks)

    def produce_bytes(self, data: bytes, *, version: int = 9, acks: int = -1) -> Any:
        leader = self.partition(topic="t").leader_id
        part = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=data)])
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[part])
        return self.ask(request, version, broker=leader).responses[0].partition_responses[0]

    def fetch(self, offset: int = 0) -> Any:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**30)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[wanted])])
        leader = self.partition(topic="t").leader_id
        return self.ask(request, 11, broker=leader).responses[0].partitions[0]

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Return offset, key and value of all records, as a consumer reads them from the earliest offset on."""
        data = self.fetch(self.offset(EARLIEST)).records or b""
        return [(each.offset, each.key, each.value) for part in split_batches(data) for each in decode_records(part)]

    def values(self) -> list[bytes | None]:
        return [value for _, _, value in self.records()]

    def offset(self, timestamp: int) -> int:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        leader = self.partition(topic="t").leader_id
        offset: int = self.ask(request, 5, broker=leader).topics[0].partitions[0].offset
        return offset


def _timestamp_first(record: tuple[Any, ...], now_ms: int) -> tuple[Any, ...]:
    key, value, timestamp_ms = (*record, now_ms)[:3]
    return timestamp_ms, key, value


def error(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


def stop(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.stop_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


def start(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.start_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


# retention.ms


def test_expired_records_are_deleted_at_the_next_check() -> None:
    harness = TopicHarness({"retention.ms": MINUTE_MS})
    harness.produce((None, b"a"))
    harness.produce((None, b"b"), (None, b"c", NOW_MS + 2 * MINUTE_MS))
    harness.advance(CHECK_MS - 1)
    assert harness.values() == [b"a", b"b", b"c"]
    harness.produce((None, b"d"))
    harness.advance(1)
    assert harness.values() == [b"d"]
    assert (harness.offset(EARLIEST), harness.offset(LATEST)) == (3, 4)
    assert error(harness.fetch(0)) == ErrorCode.OFFSET_OUT_OF_RANGE
    harness.advance(CHECK_MS)
    assert harness.values() == []
    assert (harness.offset(EARLIEST), harness.offset(LATEST)) == (4, 4)
    assert harness.produce((None, b"e")).base_offset == 4


def test_a_batch_expires_with_its_newest_record_and_keeps_those_after_it() -> None:
    harness = TopicHarness({"retention.ms": HOUR_MS})
    harness.produce((None, b"old", NOW_MS - 2 * HOUR_MS))
    harness.produce((None, b"old", NOW_MS - 2 * HOUR_MS), (None, b"new", NOW_MS))
    harness.produce((None, b"older", NOW_MS - 3 * HOUR_MS))
    harness.advance(CHECK_MS)
    assert harness.values() == [b"old", b"new", b"older"]


def test_records_expire_after_seven_days_by_default() -> None:
    harness = TopicHarness()
    harness.produce((None, b"a"))
    harness.advance(7 * DAY_MS)
    assert harness.values() == [b"a"]
    harness.advance(CHECK_MS)
    assert harness.values() == []


@pytest.mark.parametrize("cleanup_policy", ["compact", "delete"])
def test_records_that_never_expire(cleanup_policy: str) -> None:
    retention_ms = -1 if cleanup_policy == "delete" else 1
    harness = TopicHarness({"retention.ms": retention_ms, "cleanup.policy": cleanup_policy})
    harness.produce((b"k", b"a"))
    harness.advance(365 * DAY_MS)
    assert harness.values() == [b"a"]


def test_records_without_a_timestamp_do_not_expire() -> None:
    harness = TopicHarness({"retention.ms": 1})
    harness.produce((None, b"a", -1))
    harness.advance(2 * CHECK_MS)
    assert harness.values() == [b"a"]


def test_a_new_retention_applies_at_the_next_check() -> None:
    harness = TopicHarness(config={"log.retention.check.interval.ms": 1000})
    harness.produce((None, b"a"))
    harness.advance(10_000)
    harness.alter("retention.ms", 5000)
    assert harness.values() == [b"a"]
    harness.advance(1000)
    assert harness.values() == []


def test_the_retention_of_a_broker_is_the_default_of_topics() -> None:
    harness = TopicHarness(config={"log.retention.check.interval.ms": 1000, "log.retention.ms": 2000})
    harness.produce((None, b"a"))
    harness.advance(4000)
    assert harness.values() == []


def test_checks_are_scheduled_only_while_there_is_something_to_do() -> None:
    harness = TopicHarness({"retention.ms": 10 * CHECK_MS})
    assert harness.cluster.next_deadline() is None
    harness.advance(1000)
    harness.produce((None, b"a"))
    assert harness.cluster.next_deadline() == START_MS + CHECK_MS
    harness.advance(CHECK_MS - 1000)
    assert harness.cluster.next_deadline() == START_MS + 11 * CHECK_MS, "the first check at which the record is expired"
    harness.advance(10 * CHECK_MS)
    assert harness.values() == []
    assert harness.cluster.next_deadline() is None


def test_records_of_a_partition_without_a_leader_expire_as_well() -> None:
    harness = TopicHarness({"retention.ms": MINUTE_MS}, brokers=2)
    harness.produce((None, b"a"))
    for node_id in (1, 2):
        stop(harness, node_id)
    harness.advance(CHECK_MS)
    start(harness, 1)
    start(harness, 2)
    assert harness.values() == []


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -1])
def test_an_infinite_retention_needs_no_checks(retention_ms: int) -> None:
    harness = TopicHarness({"retention.ms": retention_ms})
    harness.produce((None, b"a"))
    harness.advance(CHECK_MS)
    assert harness.cluster.next_deadline() is None


def test_altered_configs_without_records_need_no_checks() -> None:
    harness = TopicHarness()
    harness.alter("retention.ms", 1000)
    harness.alter("cleanup.policy", "compact,delete")
    assert harness.cluster.next_deadline() is None


def test_a_header_with_a_wrong_largest_timestamp_is_corrected() -> None:
    harness = TopicHarness({"retention.ms": MINUTE_MS})
    right = encode_batch([Record(0, NOW_MS + CHECK_MS, None, b"a")])
    low = encode_batch([Record(0, NOW_MS, None, b"a")])
    assert right[35:43] != low[35:43]
    wrong = split_batches(right[:35] + low[35:43] + right[43:])[0]
    crc = crc32c(wrong.data[21:]).to_bytes(4, "big")
    harness.produce_bytes(wrong.data[:17] + crc + wrong.data[21:])
    (stored,) = split_batches(harness.fetch().records)
    assert stored.max_timestamp_ms == NOW_MS + CHECK_MS
    harness.advance(CHECK_MS)
    assert harness.values() == [b"a"]


# retention.bytes and the memory of a partition


def test_retention_bytes_reads_as_in_kafka_and_memory_has_its_own_limit() -> None:
    harness = TopicHarness(config={"fakebroker.partition.max.bytes": 1000})
    for _ in range(20):
        harness.produce((None, bytes(100)))
    assert harness.offset(LATEST) == 20
    assert 0 < len(harness.values()) < 10
    harness = TopicHarness(config={"fakebroker.partition.max.bytes": -1})
    for _ in range(20):
        harness.produce((None, bytes(100)))
    assert len(harness.values()) == 20


@pytest.mark.parametrize(("retention_bytes", "max_bytes"), [(300, 10_000), (10_000, 300), (-1, 300), (300, -1)])
def test_the_smaller_limit_applies(retention_bytes: int, max_bytes: int) -> None:
    harness = TopicHarness({"retention.bytes": retention_bytes}, config={"fakebroker.partition.max.bytes": max_bytes})
    for index in range(10):
        harness.produce((None, b"%d" % index))
    assert harness.values() == [b"6", b"7", b"8", b"9"]


# cleanup.policy


def test_compaction_keeps_the_last_record_of_each_key() -> None:
    harness = TopicHarness({"cleanup.policy": "compact"})
    harness.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    harness.produce((b"a", b"3"), (b"c", b"1"))
    harness.advance(CLEANER_MS - 1)
    assert len(harness.values()) == 5
    harness.advance(1)
    assert harness.records() == [(1, b"b", b"1"), (3, b"a", b"3"), (4, b"c", b"1")]
    assert (harness.offset(EARLIEST), harness.offset(LATEST)) == (0, 5)

    harness.produce((b"c", b"2"))
    harness.produce((b"b", None))
    harness.advance(CLEANER_MS)
    assert harness.records() == [(3, b"a", b"3"), (5, b"c", b"2"), (6, b"b", None)]
    assert harness.fetch(2).records == harness.fetch(3).records, "a consumer continues after the gap"


@pytest.mark.parametrize("backoff_ms", [1000, 0])
def test_the_interval_of_compaction_is_a_dynamic_config(backoff_ms: int) -> None:
    harness = TopicHarness({"cleanup.policy": "compact"})
    harness.alter("log.cleaner.backoff.ms", str(backoff_ms), resource_type=4, resource_name="")
    harness.produce((b"a", b"1"))
    harness.produce((b"a", b"2"))
    harness.advance(1000)
    assert harness.values() == [b"2"]


def test_a_tombstone_is_dropped_after_delete_retention_ms() -> None:
    harness = TopicHarness({"cleanup.policy": "compact", "delete.retention.ms": HOUR_MS})
    harness.produce((b"a", b"1"))
    harness.produce((b"a", None))
    harness.produce((b"b", b"1"))
    harness.advance(CLEANER_MS)
    assert harness.records() == [(1, b"a", None), (2, b"b", b"1")]
    harness.advance(HOUR_MS - 1)
    assert len(harness.values()) == 2
    harness.advance(CLEANER_MS)
    assert harness.records() == [(2, b"b", b"1")]
    assert harness.cluster.next_deadline() is None


def test_the_last_record_of_a_log_is_kept_until_another_one_follows() -> None:
    harness = TopicHarness({"cleanup.policy": "compact", "delete.retention.ms": 0})
    harness.produce((b"a", b"1"), (b"a", None))
    harness.advance(CLEANER_MS)
    assert harness.records() == [(1, b"a", None)]
    harness.produce((b"b", b"1"))
    harness.advance(CLEANER_MS)
    assert harness.records() == [(2, b"b", b"1")]


def test_records_are_not_compacted_before_min_compaction_lag_ms() -> None:
    harness = TopicHarness({"cleanup.policy": "compact", "min.compaction.lag.ms": HOUR_MS})
    harness.produce((b"a", b"1"))
    harness.produce((b"a", b"2"))
    harness.advance(HOUR_MS - CLEANER_MS)
    assert len(harness.values()) == 2
    harness.advance(2 * CLEANER_MS)
    assert harness.values() == [b"2"]


def test_compact_and_delete() -> None:
    harness = TopicHarness({"cleanup.policy": "compact,delete", "retention.ms": HOUR_MS})
    harness.produce((b"a", b"1"))
    harness.produce((b"a", b"2"))
    harness.advance(CLEANER_MS)
    assert harness.values() == [b"2"]
    harness.produce((b"b", b"1", NOW_MS + HOUR_MS))
    harness.advance(HOUR_MS + CHECK_MS)
    assert harness.values() == [b"1"]


def test_a_topic_that_becomes_compacted_loses_records_without_a_key() -> None:
    harness = TopicHarness()
    harness.produce((None, b"1"), (b"a", b"1"))
    harness.produce((None, b"2"))
    harness.alter("cleanup.policy", "compact")
    harness.advance(CLEANER_MS)
    assert harness.records() == [(1, b"a", b"1"), (2, None, b"2")]
    harness.produce((b"b", b"1"))
    harness.advance(CLEANER_MS)
    assert harness.records() == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_a_compacted_topic_refuses_records_without_a_key(subtests: pytest.Subtests) -> None:
    for as_version, expected in ((None, ErrorCode.INVALID_RECORD), ("2.3", ErrorCode.CORRUPT_MESSAGE)):
        with subtests.test(as_version=as_version):
            harness = TopicHarness({"cleanup.policy": "compact"}, as_version=as_version)
            response = harness.produce((b"a", b"1"), (None, b"2"), (None, b"3"), version=9 if not as_version else 7)
            assert error(response) == expected
            assert harness.values() == []
            if not as_version:
                assert [each.batch_index for each in response.record_errors] == [1, 2]
                assert "key" in response.error_message


def test_compaction_survives_truncation_and_snapshots() -> None:
    harness = TopicHarness({"cleanup.policy": "compact"})
    for value in (b"1", b"2", b"3"):
        harness.produce((b"a", value), (b"b", value))
    harness.advance(CLEANER_MS)
    log = harness.partition(topic="t").log
    twin = log.clone()
    log.truncate_to(4)
    harness.produce((b"a", b"4"), (b"c", b"4"))
    harness.advance(CLEANER_MS)
    assert [key for _, key, _ in harness.records()] == [b"a", b"c"]
    assert twin.log_end_offset == 6
    twin.append(encode_batch([Record(0, NOW_MS, b"b", b"5")]), 0)
    twin.compact(NOW_MS, 0, 0)
    read = [record for each in split_batches(twin.read(0, 10_000)) for record in decode_records(each)]
    assert [(record.offset, record.key) for record in read] == [(4, b"a"), (6, b"b")]


# min.insync.replicas


def test_acks_all_needs_enough_in_sync_replicas(subtests: pytest.Subtests) -> None:
    harness = TopicHarness({"min.insync.replicas": 2}, brokers=3)
    assert error(harness.produce((None, b"a"))) == ErrorCode.NONE
    stop(harness, 3)
    assert error(harness.produce((None, b"b"))) == ErrorCode.NONE, "two are left"
    stop(harness, 2)
    for version in range(3, 13):
        with subtests.test(version=version):
            refused = harness.produce((None, b"c"), version=version)
            assert (error(refused), refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert error(harness.produce((None, b"d"), acks=1)) == ErrorCode.NONE
    assert harness.values() == [b"a", b"b", b"d"]
    start(harness, 2)
    assert error(harness.produce((None, b"e"))) == ErrorCode.NONE


def test_groups_need_enough_in_sync_replicas_of_their_log() -> None:
    groups = GroupAdminHarness(min_insync_replicas=2)
    harness = groups.cluster_harness
    commit = commit_of(offset_to_commit(0))
    stop(harness, 2)
    assert error(harness.ask(commit, 8).topics[0].partitions[0]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    start(harness, 2)
    assert error(harness.ask(commit, 8).topics[0].partitions[0]) == ErrorCode.NONE


def test_more_in_sync_replicas_than_replicas(subtests: pytest.Subtests) -> None:
    for as_version, expected in (("3.6", ErrorCode.NOT_ENOUGH_REPLICAS), ("3.7", ErrorCode.NONE)):
        with subtests.test(as_version=as_version):
            harness = TopicHarness({"min.insync.replicas": 2}, as_version=as_version)
            assert error(harness.produce((None, b"a"))) == expected


def test_the_setting_of_brokers_is_the_default_of_topics() -> None:
    harness = TopicHarness(brokers=2, config={"min.insync.replicas": 2})
    stop(harness, 2)
    assert error(harness.produce((None, b"a"))) == ErrorCode.NOT_ENOUGH_REPLICAS


# message.timestamp.type and the limits of timestamps


def test_log_append_time(subtests: pytest.Subtests) -> None:
    for version in range(3, 13):
        with subtests.test(version=version):
            harness = TopicHarness({"message.timestamp.type": "LogAppendTime"})
            response = harness.produce((None, b"a", 1000), (None, b"b", 2000), version=version)
            assert (error(response), response.log_append_time_ms) == (ErrorCode.NONE, NOW_MS)
            (stored,) = split_batches(harness.fetch().records)
            assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
            assert [record.timestamp_ms for record in decode_records(stored)] == [NOW_MS, NOW_MS]
            assert harness.offset(NOW_MS) == 0
            assert harness.offset(NOW_MS + 1) == -1


def test_log_append_time_of_compressed_batches_and_messages(subtests: pytest.Subtests) -> None:
    with subtests.test("compressed"):
        harness = TopicHarness({"message.timestamp.type": "LogAppendTime"})
        harness.produce((None, b"a", 1000), compression=Compression.GZIP)
        (stored,) = split_batches(harness.fetch().records)
        assert [(each.timestamp_ms, each.value) for each in decode_records(stored)] == [(NOW_MS, b"a")]
    for version in (0, 1, 2):
        with subtests.test("messages", version=version):
            harness = TopicHarness({"message.timestamp.type": "LogAppendTime"}, as_version="2.8")
            message = encode_message(Record(0, 1000, None, b"a"), 1 if version == 2 else 0)
            response = harness.produce_bytes(message, version=version)
            assert response.log_append_time_ms == (NOW_MS if version == 2 else -1)
            (stored,) = split_batches(harness.fetch().records)
            assert [each.timestamp_ms for each in decode_records(stored)] == [NOW_MS]


def test_the_timestamp_type_of_a_producer() -> None:
    refused = TopicHarness({"message.timestamp.type": "LogAppendTime"})
    response = refused.produce((None, b"a"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert error(response) == ErrorCode.INVALID_TIMESTAMP
    accepted = TopicHarness()
    assert error(accepted.produce((None, b"a"), timestamp_type=TimestampType.LOG_APPEND_TIME)) == ErrorCode.NONE
    (stored,) = split_batches(accepted.fetch().records)
    assert stored.timestamp_type is TimestampType.CREATE_TIME


def test_timestamps_out_of_range(subtests: pytest.Subtests) -> None:
    limits = {"message.timestamp.before.max.ms": HOUR_MS, "message.timestamp.after.max.ms": MINUTE_MS}
    for timestamp_ms, expected in [
        (NOW_MS - HOUR_MS, ErrorCode.NONE),
        (NOW_MS - HOUR_MS - 1, ErrorCode.INVALID_TIMESTAMP),
        (NOW_MS + MINUTE_MS, ErrorCode.NONE),
        (NOW_MS + MINUTE_MS + 1, ErrorCode.INVALID_TIMESTAMP),
        (-1, ErrorCode.NONE),
    ]:
        with subtests.test(timestamp_ms=timestamp_ms):
            harness = TopicHarness(limits)
            response = harness.produce((None, b"a"), (None, b"b", timestamp_ms))
            assert error(response) == expected
            if expected:
                assert [each.batch_index for each in response.record_errors] == [1]
                assert str(timestamp_ms) in response.record_errors[0].batch_index_error_message


def test_timestamps_in_the_future_by_release(subtests: pytest.Subtests) -> None:
    for as_version, expected in ((None, ErrorCode.INVALID_TIMESTAMP), ("3.9", ErrorCode.NONE)):
        with subtests.test(as_version=as_version):
            harness = TopicHarness(as_version=as_version)
            assert error(harness.produce((None, b"a", NOW_MS + DAY_MS))) == expected


def test_the_limit_of_older_releases_for_both_sides(subtests: pytest.Subtests) -> None:
    for as_version in ("2.8", "3.9"):
        for ahead_ms in (-HOUR_MS - 1, -HOUR_MS, HOUR_MS, HOUR_MS + 1):
            with subtests.test(as_version=as_version, ahead_ms=ahead_ms):
                harness = TopicHarness({"message.timestamp.difference.max.ms": HOUR_MS}, as_version=as_version)
                expected = ErrorCode.NONE if abs(ahead_ms) == HOUR_MS else ErrorCode.INVALID_TIMESTAMP
                assert error(harness.produce((None, b"a", NOW_MS + ahead_ms))) == expected


# Sizes


def test_the_largest_batch_by_release(subtests: pytest.Subtests) -> None:
    value_bytes = 1_000_012 - len(encode_batch([Record(0, NOW_MS, None, bytes(999_000))])) + 999_000
    for as_version, extra_bytes, expected in [
        ("2.4", 0, ErrorCode.NONE),
        ("2.4", 1, ErrorCode.MESSAGE_TOO_LARGE),
        ("2.5", 1, ErrorCode.NONE),
        ("2.5", 50_000, ErrorCode.MESSAGE_TOO_LARGE),
        (None, 1, ErrorCode.NONE),
    ]:
        with subtests.test(as_version=as_version, extra_bytes=extra_bytes):
            harness = TopicHarness(as_version=as_version)
            response = harness.produce((None, bytes(value_bytes + extra_bytes)), version=7)
            assert error(response) == expected


def test_a_batch_larger_than_a_segment() -> None:
    harness = TopicHarness({"segment.bytes": 1024**2, "max.message.bytes": 2 * 1024**2})
    assert error(harness.produce((None, bytes(1_000_000)))) == ErrorCode.NONE
    assert error(harness.produce((None, bytes(1024**2)))) == ErrorCode.RECORD_LIST_TOO_LARGE


# max.decompressed.message.bytes


def test_a_record_of_a_compressed_batch_may_be_too_large() -> None:
    name, large = "max.decompressed.message.bytes", (None, bytes(94))  # 101 bytes as a record.
    harness = TopicHarness(config={name: 100})
    assert error(harness.produce(large)) == ErrorCode.NONE
    refused = harness.produce((b"k", b"a"), large, compression=Compression.GZIP)
    assert error(refused) == ErrorCode.INVALID_RECORD
    assert (refused.error_message, refused.record_errors, refused.log_start_offset) == (None, [], 0)
    assert error(harness.produce((None, bytes(93)), (b"k", b"a"), compression=Compression.GZIP)) == ErrorCode.NONE
    harness.alter(name, 101)
    assert error(harness.produce(large, compression=Compression.GZIP)) == ErrorCode.NONE
    harness.alter(name, 100)
    harness.alter(name, 1_000, resource_type=4, resource_name="1")
    assert error(harness.produce(large, compression=Compression.GZIP)) == ErrorCode.INVALID_RECORD


def test_releases_without_a_limit_of_decompressed_records() -> None:
    name = "max.decompressed.message.bytes"
    harness = TopicHarness(config={name: 1}, as_version="4.1")
    assert error(harness.produce((None, b"a"), compression=Compression.GZIP)) == ErrorCode.NONE
    assert [(name in topic_configs(Release(4, minor))) for minor in range(5)] == [False, False, True, False, True]


# compression.type


def test_batches_are_converted_to_the_codec_of_the_topic(subtests: pytest.Subtests) -> None:
    codecs = {"uncompressed": Compression.NONE, "gzip": Compression.GZIP, "zstd": Compression.ZSTD}
    for name, codec in codecs.items():
        for sent in Compression:
            with subtests.test(topic=name, sent=sent.name):
                harness = TopicHarness({"compression.type": name})
                response = harness.produce((b"k", b"a", NOW_MS), (None, b"b", NOW_MS + 5), compression=sent)
                assert error(response) == ErrorCode.NONE
                (stored,) = split_batches(harness.fetch().records)
                assert stored.compression is codec
                assert [(each.key, each.value, each.timestamp_ms) for each in decode_records(stored)] == [
                    (b"k", b"a", NOW_MS),
                    (None, b"b", NOW_MS + 5),
                ]


def test_a_batch_that_is_too_large_after_conversion() -> None:
    harness = TopicHarness({"compression.type": "uncompressed", "max.message.bytes": 1000})
    response = harness.produce((None, bytes(10_000)), compression=Compression.GZIP)
    assert error(response) == ErrorCode.MESSAGE_TOO_LARGE
    assert harness.values() == []


def test_a_batch_with_timestamps_below_minus_1_cannot_be_converted() -> None:
    data = bytearray(encode_batch([Record(0, 0, None, b"a"), Record(1, 3, None, b"b")]))
    data[27:43] = struct.pack(">qq", -5, -2)  # base timestamp and largest timestamp
    data[17:21] = struct.pack(">I", crc32c(data[21:]))
    accepts, converts = TopicHarness(), TopicHarness({"compression.type": "zstd"})
    assert error(accepts.produce_bytes(bytes(data))) == ErrorCode.NONE
    # IllegalArgumentException in MemoryRecordsBuilder
    assert error(converts.produce_bytes(bytes(data))) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert converts.values() == []


# The same as settings of brokers


def test_invalid_settings_are_refused(subtests: pytest.Subtests) -> None:
    for name, value, expected in [
        ("log.cleanup.policy", "shred", "one or more of compact, delete"),
        ("log.message.timestamp.type", "now", "one of CreateTime, LogAppendTime"),
        ("log.retention.ms", -5, "an integer from -1 to 9223372036854775807"),
        ("min.insync.replicas", 0, "an integer from 1 to 2147483647"),
        ("fakebroker.partition.max.bytes", "many", "an integer"),
    ]:
        with subtests.test(name=name):
            with pytest.raises(ConfigError) as caught:
                TopicHarness(config={name: value})
            assert str(caught.value) == f"{name}={value!r}: expected {expected}"


def test_settings_of_brokers_are_the_defaults_of_topics() -> None:
    harness = TopicHarness(config={"log.cleanup.policy": "compact", "log.message.timestamp.type": "LogAppendTime"})
    assert error(harness.produce((None, b"a"))) == ErrorCode.INVALID_RECORD
    assert harness.produce((b"k", b"a", 5)).log_append_time_ms == NOW_MS
