"""Transaction markers have the bytes of Kafka's definitions, with kio, kafka-python and aiokafka as oracles."""

import io
import struct
from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord as AiokafkaControlRecord
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from crc32c import crc32c
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import (
    ControlRecord as KafkaPythonControlRecord,
    DefaultRecordBatch as KafkaPythonBatch,
    DefaultRecordBatchBuilder as KafkaPythonBuilder,
)
from kio.schema.control_record_type_schema.v0 import ControlRecordTypeSchema
from kio.schema.end_txn_marker.v0 import EndTxnMarker
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from fakebroker.protocol.produced_batches import validate_batch
from fakebroker.protocol.records import iterate_records, split_batches
from fakebroker.protocol.transaction_markers import Marker, encode_marker, marker_in
from tests.support.soak import examples, soak

CONTROL, CRC_AT, ATTRIBUTES_AT = 0x20, 17, 21

MARKERS = st.fixed_dictionaries(
    {
        "producer_id": st.integers(0, 2**63 - 1),
        "epoch": st.integers(0, 2**15 - 1),
        "is_commit": st.booleans(),
        "coordinator_epoch": st.integers(-1, 2**31 - 1),
        "now_ms": st.integers(0, 2**62),
    }
)


def kio_bytes(message: Any) -> bytes:
    """Return a key or value as Kafka writes it: after its version."""
    buffer = io.BytesIO(b"\0\0")
    buffer.seek(2)
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def built_by(builder: Any, marker: dict[str, Any]) -> bytes:
    """Return a marker whose record kio encodes, in a batch of another client. Its builder lacks control batches."""
    key = kio_bytes(ControlRecordTypeSchema(type_=i16(marker["is_commit"])))
    value = kio_bytes(EndTxnMarker(coordinator_epoch=i32(marker["coordinator_epoch"])))
    batch = builder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=marker["producer_id"],
        producer_epoch=marker["epoch"],
        base_sequence=-1,
        batch_size=1 << 20,
    )
    assert batch.append(0, marker["now_ms"], key, value, []) is not None
    data = bytearray(batch.build())
    data[ATTRIBUTES_AT + 1] |= CONTROL
    data[CRC_AT:ATTRIBUTES_AT] = struct.pack(">I", crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


@soak
@settings(max_examples=examples(30, soak=1000))
@given(MARKERS)
def test_markers_have_the_bytes_of_other_clients(marker: dict[str, Any]) -> None:
    ours = encode_marker(**marker)
    for builder in (KafkaPythonBuilder, AiokafkaBuilder):
        theirs = built_by(builder, marker)
        # The leader epoch, which no CRC covers, is set by the log; aiokafka encodes 0.
        assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]
    (batch,) = split_batches(ours)
    validate_batch(batch)
    assert marker_in(batch) == Marker(marker["is_commit"], marker["coordinator_epoch"])
    assert len(list(iterate_records(batch))) == 1


@pytest.mark.parametrize("is_commit", [False, True])
def test_other_clients_decode_markers(is_commit: bool) -> None:
    data = encode_marker(5, 6, is_commit=is_commit, coordinator_epoch=3, now_ms=1_000)
    python, aio = KafkaPythonBatch(data), AiokafkaBatch(data)
    for batch in (python, aio):
        assert batch.validate_crc()
        assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, 5)
    (found,) = python
    assert isinstance(found, KafkaPythonControlRecord)
    assert (found.abort, found.commit) == (not is_commit, is_commit)
    (record,) = aio
    assert AiokafkaControlRecord.parse(record.key) == (COMMIT_MARKER if is_commit else ABORT_MARKER)
