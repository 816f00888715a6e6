"""Records that tests produce and read without clients: `produce` and `records`."""

import json
from typing import Any

import pytest
import trio
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.handles.definition import perform
from fakebroker.cluster.inspect.views import RecordView
from fakebroker.cluster.seeding.producer import murmur2
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.server.fake_cluster import internals
from fakebroker.validation import Base64, read_json
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, append, consumer
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = pytest.mark.fake_cluster(topics={"orders": 3, "news": 1}, clock="manual")


def placed(cluster: FakeCluster, topic: str = "orders") -> list[tuple[int, int, bytes | None]]:
    return [(each.partition, each.offset, each.value) for each in cluster.topic(topic).records()]


# Producing and reading


def test_records_have_what_was_produced(fake_cluster: FakeCluster) -> None:
    produced = fake_cluster.topic("news").produce(
        ["größe", b"\xff", None], key="k", headers={"a": "1", "b": b"\xff", "c": None}, timestamp=1_000
    )
    assert produced == [(0, 0), (0, 1), (0, 2)]
    assert [(each.partition, each.offset) for each in produced] == produced
    headers = (("a", b"1"), ("b", b"\xff"), ("c", None))
    assert fake_cluster.topic("news").records() == [
        RecordView("news", 0, offset, 1_000, b"k", value, headers)
        for offset, value in enumerate(["größe".encode(), b"\xff", None])
    ]


def test_the_default_timestamp_is_the_time_of_the_brokers(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("news").produce(["a"])
    fake_cluster.advance(5)
    fake_cluster.topic("news").produce(["b"], headers=[("h", "1"), ("h", "2")])
    first, second = fake_cluster.topic("news").records()
    assert second.timestamp - first.timestamp == 5_000
    assert (first.headers, second.headers) == ((), (("h", b"1"), ("h", b"2")))


def test_records_without_a_key_go_to_the_partitions_in_turn(fake_cluster: FakeCluster) -> None:
    assert fake_cluster.topic("orders").produce(["a", "b"]) == [(0, 0), (1, 0)]
    assert fake_cluster.topic("orders").produce(["c"], partition=1) == [(1, 1)]
    assert fake_cluster.topic("orders").produce(["d", "e"]) == [(2, 0), (0, 1)]
    assert placed(fake_cluster) == [(0, 0, b"a"), (0, 1, b"e"), (1, 0, b"b"), (1, 1, b"c"), (2, 0, b"d")]
    assert [each.value for each in fake_cluster.topic("orders").records(partition=1)] == [b"b", b"c"]
    fake_cluster.reset()
    assert fake_cluster.topic("orders").produce(["a"]) == [(0, 0)]


def test_records_without_a_key_avoid_partitions_without_leader(fake_cluster: FakeCluster) -> None:
    leaders = [each.leader_id for each in internals(fake_cluster).cluster.topics.get("orders").partitions]  # type: ignore[union-attr]
    fake_cluster.broker(leaders[1]).stop(elect=False)
    assert fake_cluster.topic("orders").produce(["a", "b", "c"]) == [(0, 0), (2, 0), (0, 1)]
    with pytest.raises(ConfigError, match=r"^partition='orders-1': expected a partition that has a leader now$"):
        fake_cluster.topic("orders").produce(["a"], partition=1)


KAFKAS_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From the tests of Kafka (UtilsTest)."""


def test_the_hash_is_kafkas() -> None:
    assert {key: murmur2(key) - (murmur2(key) >> 31 << 32) for key in KAFKAS_HASHES} == KAFKAS_HASHES
    for length in range(70):
        data = bytes((length * 37 + index * 91) % 256 for index in range(length))
        assert murmur2(data) == kafka_python_murmur2(data) & 0xFFFFFFFF


def test_records_with_a_key_go_to_the_partition_of_kafkas_default_partitioner(fake_cluster: FakeCluster) -> None:
    for key in ("a", "b", "c", "größe", b"\x00\xff", b""):
        data = key.encode() if isinstance(key, str) else key
        expected = (kafka_python_murmur2(data) & 0x7FFFFFFF) % 3
        assert [each.partition for each in fake_cluster.topic("orders").produce(["x", "y"], key=key)] == [expected] * 2


def test_many_records_are_split_into_batches(fake_cluster: FakeCluster) -> None:
    values = [b"%07d" % number * 100 for number in range(5_000)]
    produced = fake_cluster.topic("news").produce(values)
    assert [each.offset for each in produced] == list(range(5_000))
    assert [each.value for each in fake_cluster.topic("news").records()] == values


def test_large_records_are_accepted_up_to_the_limit(fake_cluster: FakeCluster) -> None:
    limit_bytes = 1_048_588  # max.message.bytes
    fake_cluster.topic("news").produce(["x" * (limit_bytes - 100)] * 3)
    assert len(fake_cluster.topic("news").records()) == 3


@in_trio_with_sockets
async def test_a_waiting_fetch_gets_the_records() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, group_id=None) as reader:
        reader.assign([P0])
        with trio.fail_after(DEADLINE_S):
            assert await reader.poll(0.01) == []
            cluster.topic("orders").produce(["a"], key="k")
            (record,) = await reader.poll(DEADLINE_S)
        assert (record.key, record.value) == (b"k", b"a")


# What can be read


def test_deleted_records_and_control_records_are_not_read(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("news").produce(["a", "b"])
    marker = encode_batch([Record(0, 1_000, b"", b"")], is_control=True, is_transactional=True, producer_id=1)
    append(fake_cluster, ("news", 0), marker)
    fake_cluster.topic("news").produce(["c"])
    log = internals(fake_cluster).cluster.topics.get("news").partitions[0].log  # type: ignore[union-attr]
    assert placed(fake_cluster, "news") == [(0, 0, b"a"), (0, 1, b"b"), (0, 3, b"c")]
    internals(fake_cluster).run(lambda: log.truncate_before(1))
    assert placed(fake_cluster, "news") == [(0, 1, b"b"), (0, 3, b"c")]


@pytest.mark.fake_cluster(topics={"news": 1}, config={"log.retention.bytes": 300_000})
def test_records_removed_by_retention_are_not_read(fake_cluster: FakeCluster) -> None:
    for number in range(10):
        fake_cluster.topic("news").produce([b"%d" % number * 100_000])
    assert [each.offset for each in fake_cluster.topic("news").records()] == [8, 9]


@pytest.mark.fake_cluster(topics={"news": 1}, clock="manual", config={"log.cleanup.policy": "compact"})
def test_records_removed_by_compaction_are_not_read(fake_cluster: FakeCluster) -> None:
    for key, value in [("a", "1"), ("b", "2"), ("a", "3"), ("b", None), ("c", "4")]:
        fake_cluster.topic("news").produce([value], key=key)
    fake_cluster.advance(3_600)
    assert [(each.offset, each.key) for each in fake_cluster.topic("news").records()] == [
        (2, b"a"),
        (3, b"b"),
        (4, b"c"),
    ]
    with pytest.raises(ConfigError, match=r"^values: expected records that the leader of news-0 accepts, not INVALID_"):
        fake_cluster.topic("news").produce(["without a key"])


@pytest.mark.fake_cluster(topics={"news": 1}, clock="manual", config={"log.message.timestamp.type": "LogAppendTime"})
def test_the_timestamp_may_be_that_of_the_brokers(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("news").produce(["a"], timestamp=1_000)
    (record,) = fake_cluster.topic("news").records()
    assert record.timestamp == int(internals(fake_cluster).server.clock.now_ms())


def test_internal_topics_can_be_read_but_not_written(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=1)
    (record,) = fake_cluster.topic("__consumer_offsets").records()
    assert record.key is not None
    assert b"g" in record.key
    with pytest.raises(ConfigError, match=r"^topic='__consumer_offsets': expected a topic that is not internal, "):
        fake_cluster.topic("__consumer_offsets").produce(["a"])


# Errors

INVALID: list[tuple[dict[str, Any], str]] = [
    ({"topic": "ordesr"}, r"^topic='ordesr': expected a topic that is not internal, .* did you mean 'orders'\?$"),
    ({"topic": 3}, r"^topic=3: expected a string$"),
    ({"values": "abc"}, r"^values='abc': expected a list$"),
    ({"values": b"abc"}, r"^values=b'abc': expected a list$"),
    ({"values": ["a", 5]}, r"^values\[1\]=5: expected a string or bytes or none$"),
    ({"values": ["a", ["b"]]}, r"^values\[1\]=\['b'\]: expected a string or bytes or none$"),
    ({"values": ["a", "\ud800"]}, r"^values\[1\]='.ud800': expected text that can be encoded as UTF-8, or bytes$"),
    ({"values": [{"base64": "!"}]}, r"^values\[0\]\.base64='!': expected bytes in base64$"),
    ({"key": 4}, r"^key=4: expected a string or bytes or none$"),
    ({"key": "\ud800"}, r"^key='.ud800': expected text that can be encoded as UTF-8, or bytes$"),
    ({"partition": 3}, r"^topic 'orders': partition=3: expected 0 to 2$"),
    ({"partition": -1}, r"^topic 'orders': partition=-1: expected 0 to 2$"),
    ({"partition": "0"}, r"^partition='0': expected an integer or none$"),
    ({"headers": {"h": 3}}, r"^headers\.h=3: expected a string or bytes or none$"),
    ({"headers": ["h"]}, r"^headers\[0\]='h': expected a list of 2$"),
    ({"headers": {"\ud800": "a"}}, r"^headers='.ud800': expected text that can be encoded as UTF-8, or bytes$"),
    ({"timestamp": -1}, r"^timestamp=-1: expected an integer from 0 to 9223372036854775807 or none$"),
    ({"timestamp": 1.5}, r"^timestamp=1\.5: expected an integer from 0 to 9223372036854775807 or none$"),
    (
        {"values": ["a", "b", "c" * 2_000_000]},
        r"^values: expected records that the leader of orders-2 accepts, not MESSAGE_TOO_LARGE$",
    ),
]
"""Arguments, with a pattern of the error."""


def test_nothing_is_appended_if_an_argument_is_invalid(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for arguments, error in INVALID:
        with subtests.test(error):
            with pytest.raises(ConfigError, match=error):
                perform(fake_cluster, {"do": "topic.produce", "topic": "orders", "values": ["a"], **arguments})
            assert fake_cluster.topic("orders").records() == []
    assert fake_cluster.topic("orders").produce(["a"]) == [(0, 0)]


def test_missing_topics_and_partitions_cannot_be_read(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"^topic='ordesr': expected one of .* did you mean 'orders'\?$"):
        fake_cluster.topic("ordesr").records()
    with pytest.raises(ConfigError, match=r"^topic 'orders': partition=3: expected an integer from 0 to 2$"):
        fake_cluster.topic("orders").records(3)
    with pytest.raises(ConfigError, match=r"^partition='0': expected an integer or none$"):
        fake_cluster.topic("orders").records("0")  # type: ignore[arg-type]  # wrong on purpose


# As plain data


def test_records_are_produced_by_events(fake_cluster: FakeCluster) -> None:
    line = {
        "do": "topic.produce",
        "topic": "orders",
        "values": ["größe", {"base64": "/w=="}, None],
        "key": "none",
        "partition": 2,
        "headers": {"h": {"base64": "/w=="}},
        "timestamp": 1_000,
    }
    assert perform(fake_cluster, read_json(json.dumps(line), dict[str, Any], name="event")) == [(2, 0), (2, 1), (2, 2)]
    assert perform(fake_cluster, {"do": "topic.produce", "topic": "news", "values": [b"\xff", Base64(b"\xfe")]})
    headers = (("h", b"\xff"),)
    assert fake_cluster.topic("orders").records() == [
        RecordView("orders", 2, offset, 1_000, b"none", value, headers)
        for offset, value in enumerate(["größe".encode(), b"\xff", None])
    ]
    assert [each.value for each in fake_cluster.topic("news").records()] == [b"\xff", b"\xfe"]
