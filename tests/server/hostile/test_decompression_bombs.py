"""Compressed batches and message sets that become much larger than what was sent.

Kafka decompresses without a limit, in pieces. Here the decompressed records of one batch are limited to 64 MiB; a
larger batch is refused like one that cannot be decompressed.
"""

import select
import struct
from collections.abc import Callable
from zlib import crc32

import pytest

from fakebroker import ErrorCode, FakeCluster
from fakebroker.protocol.compression import Compression, compress
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.records import Record, crc32c, encode_batch
from tests.support.group_requests import heartbeat_request
from tests.support.server.bystander import MIB, unharmed
from tests.support.soak import examples, soak
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, config={"message.max.bytes": 50 * MIB})

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
BOMB_BYTES = 80 * MIB
LIMIT_BYTES = 64 * MIB
OLD_PRODUCE, NEW_PRODUCE = 2, 9
REFUSED = ErrorCode.INVALID_RECORD


def with_payload(codec: Compression, payload: bytes) -> bytes:
    """Return a batch of one record whose compressed records are replaced, with a valid CRC."""
    header = bytearray(encode_batch([Record(0, 1000, None, b"x")], compression=codec)[:61])
    struct.pack_into(">i", header, 8, 49 + len(payload))
    struct.pack_into(">I", header, 17, crc32c(bytes(header[21:]) + payload))
    return bytes(header) + payload


def batch_of(codec: Compression, size_bytes: int) -> bytes:
    return encode_batch([Record(0, 1000, None, bytes(size_bytes))], compression=codec)


def message_set_of(codec: Compression, size_bytes: int) -> bytes:
    """Return a message set of one wrapper with one message, in the format before record batches (magic 1)."""

    def message(attributes: int, value: bytes) -> bytes:
        checked = struct.pack(">bbqii", 1, attributes, 1000, -1, len(value)) + value
        return struct.pack(">qiI", 0, len(checked) + 4, crc32(checked)) + checked

    return message(codec, compress(codec, message(0, bytes(size_bytes))))


def produce(wire: WireClient, records: bytes, version: int) -> tuple[int, int]:
    """Return the error code and the base offset."""
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
    )
    response = wire.ask(request, ProduceResponse, version)
    (partition,) = response.responses[0].partition_responses
    return partition.error_code, partition.base_offset


@pytest.mark.parametrize(
    ("pack", "version", "codecs"),
    [
        pytest.param(batch_of, NEW_PRODUCE, CODECS, id="record batch"),
        pytest.param(
            message_set_of,
            OLD_PRODUCE,
            CODECS[:-1],
            id="message set",
            marks=pytest.mark.fake_cluster(as_version="3.9"),
        ),
    ],
)
def test_bombs(
    fake_cluster: FakeCluster, pack: Callable[[Compression, int], bytes], version: int, codecs: list[Compression]
) -> None:
    bombs = [pack(codec, BOMB_BYTES) for codec in codecs]
    legal = [pack(codec, 1 * MIB) for codec in codecs]
    # The result of a decompression that stays within the limit is copied once.
    peak_bytes = 2 * LIMIT_BYTES + max(map(len, bombs)) * 4
    with (
        unharmed(fake_cluster, max_cpu_s=2, max_peak_bytes=peak_bytes) as bystander,
        WireClient(fake_cluster.brokers[0]) as wire,
    ):
        for offset, (bomb, small) in enumerate(zip(bombs, legal, strict=True)):
            assert len(bomb) < BOMB_BYTES / 20
            error, _ = produce(wire, bomb, version)
            assert ErrorCode(error) is REFUSED
            bystander.check()
            assert produce(wire, small, version) == (0, offset)
        wire.socket.close()


@soak
def test_a_batch_of_many_tiny_records(fake_cluster: FakeCluster) -> None:
    """Batches of as many records as fit into the default of `message.max.bytes` are valid, and are read once."""
    records = [Record(index, 1000, None, None) for index in range(examples(100_000, soak=1_000_000))]
    batches = [encode_batch(records, compression=codec) for codec in (Compression.GZIP, Compression.ZSTD)]
    with unharmed(fake_cluster, max_cpu_s=5) as bystander, WireClient(fake_cluster.brokers[0]) as wire:
        for index, batch in enumerate(batches):
            assert produce(wire, batch, NEW_PRODUCE) == (0, index * len(records))
            bystander.check()
        wire.socket.close()


def test_a_length_that_is_announced_allocates_nothing(fake_cluster: FakeCluster) -> None:
    """A snappy block that claims 4 GiB, and a zstd frame that claims 2**60 bytes."""
    claims = {
        Compression.SNAPPY: b"\xff\xff\xff\xff\x0f",
        Compression.ZSTD: struct.pack("<IBQ", 0xFD2FB528, 0xE0, 2**60),
    }
    with unharmed(fake_cluster, max_peak_bytes=8 * MIB) as bystander, WireClient(fake_cluster.brokers[0]) as wire:
        for codec, claim in claims.items():
            assert ErrorCode(produce(wire, with_payload(codec, claim + bytes(100)), NEW_PRODUCE)[0]) is REFUSED
            bystander.check()
        wire.socket.close()


@pytest.mark.fake_cluster(topics={"orders": 1, "many": 60})
def test_a_request_of_many_bombs_leaves_other_connections_their_turn(fake_cluster: FakeCluster) -> None:
    """One request of less than 100 KiB has 600 MiB of records. All are legal, and are appended, in the end."""
    bomb = batch_of(Compression.ZSTD, 10 * MIB)
    data = [PartitionProduceData(index=index, records=bomb) for index in range(60)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="many", partition_data=data)])
    with unharmed(fake_cluster) as bystander, WireClient(fake_cluster.brokers[0]) as wire:
        before = bystander.answers
        wire.send(request, NEW_PRODUCE)
        wire.send(heartbeat_request("other"))
        while not can_be_read(wire):
            bystander.check()
        assert bystander.answers - before > 2
        response = wire.receive()
        assert isinstance(response, ProduceResponse)
        (topic,) = response.responses
        assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [
            (index, 0, 0) for index in range(60)
        ]
        assert isinstance(wire.receive(), HeartbeatResponse)
        wire.socket.close()


def can_be_read(wire: WireClient) -> bool:
    """Return whether a response has arrived."""
    readable, _, _ = select.select([wire.socket], [], [], 0)
    return bool(readable)
