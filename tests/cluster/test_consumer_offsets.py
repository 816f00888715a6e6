"""Records of group coordinators in `__consumer_offsets`: encoding, decoding of all versions, malformed records."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.coordinator_records import (
    append_records,
    parse_record,
    read_records,
    record_key,
    record_value,
)
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.persistence import replay
from fakebroker.coordinator.records import KeyedRecord, Record
from fakebroker.errors import ProtocolError
from fakebroker.proposals.batch_join.messages import EXPECTED_MEMBERS_TAG, ExpectedMember, ExpectedMembers
from fakebroker.protocol import records
from fakebroker.protocol.codec import encode
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from fakebroker.protocol.produced_batches import validate_batch
from fakebroker.protocol.releases import NEWEST, Release, release as named
from fakebroker.protocol.schema import Message
from tests.support.annotated_hex import annotated_hex
from tests.support.coordinator.records import group_record, group_value, offset_record
from tests.support.kafka_python_codec import decode_record
from tests.support.soak import examples, soak

MEMBER = MemberMetadata(
    member_id="m-1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=60_000,
    session_timeout=10_000,
    subscription=b"\0\1",
    assignment=b"\2",
)
STATIC = replace(MEMBER, group_instance_id="i")
GROUP = group_record("grp", group_value("consumer", 3, 1_000, MEMBER, STATIC, protocol="range", leader="m-1"))
EXPECTED = encode(
    ExpectedMembers(members=[ExpectedMember(group_instance_id="x", member_id="x-1", rebalance_timeout=60_000)]), 0
)
WITH_EXPECTED = {"unknown_tags": ((EXPECTED_MEMBERS_TAG, EXPECTED),)}
COMMITTED = OffsetCommitValue(offset=42, leader_epoch=7, metadata="md", commit_timestamp=1_000)
OFFSET = offset_record("grp", "t", 5, COMMITTED)

GROUP_KEY = annotated_hex("00 02  00 03 67 72 70")
OFFSET_KEY = annotated_hex("00 01  00 03 67 72 70  00 01 74  00 00 00 05")

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIME_MS = st.integers(0, 2**47)
TEXT = st.text(max_size=4)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout=st.integers(0, 2**31 - 1),
    session_timeout=INT32,
    subscription=st.binary(max_size=4),
    assignment=st.binary(max_size=4),
)
GROUPS = st.builds(
    GroupMetadataValue,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    current_state_timestamp=TIME_MS,
    members=st.lists(MEMBERS, max_size=3),
    unknown_tags=st.dictionaries(st.integers(1, 9_999), st.binary(max_size=4), max_size=3).map(
        lambda tags: tuple(sorted(tags.items()))
    ),
)
OFFSETS_WITHOUT_EXPIRY = st.builds(
    OffsetCommitValue, offset=INT64, leader_epoch=INT32, metadata=TEXT, commit_timestamp=TIME_MS
)
EXPIRING_OFFSETS = st.builds(
    OffsetCommitValue, offset=INT64, metadata=TEXT, commit_timestamp=TIME_MS, expire_timestamp=TIME_MS
)
RECORDS = st.builds(group_record, TEXT, st.none() | GROUPS) | st.builds(
    offset_record, TEXT, TEXT, INT32, st.none() | OFFSETS_WITHOUT_EXPIRY | EXPIRING_OFFSETS
)


def a_log(*pairs: tuple[bytes | None, bytes | None]) -> PartitionLog:
    """Return a log with a batch for each key and value, from offset 0."""
    log = PartitionLog()
    for key, value in pairs:
        log.append(records.encode_batch([records.Record(0, 1_000, key, value)]), leader_epoch=0)
    return log


def prefixed(version: int, value: bytes) -> bytes:
    return version.to_bytes(2, "big") + value


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            OFFSET,
            OFFSET_KEY,
            """
            00 04                    # version
            00 00 00 00 00 00 00 2a  # offset
            00 00 00 07              # leader epoch
            03 6d 64                 # metadata
            00 00 00 00 00 00 03 e8  # commit timestamp
            00                       # no tagged fields
            """,
        ),
        (
            replace(OFFSET, value=replace(COMMITTED, expire_timestamp=2_000)),
            OFFSET_KEY,
            """
            00 01                    # version, which lacks the leader epoch
            00 00 00 00 00 00 00 2a  # offset
            00 02 6d 64              # metadata
            00 00 00 00 00 00 03 e8  # commit timestamp
            00 00 00 00 00 00 07 d0  # expire timestamp
            """,
        ),
        (
            group_record("grp", group_value("", 4, 1_000)),
            GROUP_KEY,
            """
            00 03                    # version
            00 00                    # protocol type
            00 00 00 04              # generation
            ff ff  ff ff             # protocol and leader: null
            00 00 00 00 00 00 03 e8  # state timestamp
            00 00 00 00              # members
            """,
        ),
        (
            group_record("grp", replace(group_value("", 4, 1_000), **WITH_EXPECTED)),
            GROUP_KEY,
            """
            00 04                    # version, which has tagged fields
            01                       # protocol type
            00 00 00 04              # generation
            00  00                   # protocol and leader: null
            00 00 00 00 00 00 03 e8  # state timestamp
            01                       # members
            01  cd 41  0d            # one tagged field: 8397, 13 bytes
            02                       # one expected instance
            02 78                    # instance id
            04 78 2d 31              # member id
            00 00 ea 60              # rebalance timeout
            00  00                   # no tagged fields in either struct
            """,
        ),
        (offset_record("grp", "t", 5, None), OFFSET_KEY, None),
        (group_record("grp", None), GROUP_KEY, None),
    ],
)
def test_encoded_keys_and_values(record: KeyedRecord, key: bytes, value: str | None) -> None:
    assert record_key(record) == key
    assert record_value(record) == (None if value is None else annotated_hex(value))


@soak
@settings(max_examples=examples(30, soak=5000))
@given(message=OFFSETS_WITHOUT_EXPIRY | OFFSETS_WITHOUT_EXPIRY.map(lambda each: replace(each, metadata="")))
def test_values_of_offsets_are_those_of_the_message(message: OffsetCommitValue) -> None:
    record = offset_record("g", "t", 0, message)
    assert record_value(record, Release(4, 0)) == prefixed(3, encode(message, 3))
    assert record_value(record) == prefixed(4, encode(message, 4))
    expected = prefixed(4, encode(replace(message, topic_id=bytes(range(16))), 4))
    assert record_value(record, topic_id_of=lambda name: bytes(range(16))) == expected


@soak
@settings(max_examples=examples(30, soak=5000))
@given(record=RECORDS)
def test_written_records_are_read_back(record: KeyedRecord) -> None:
    assert parse_record(record_key(record), record_value(record)) == record


def test_values_have_the_version_that_the_release_writes(subtests: pytest.Subtests) -> None:
    expiring = replace(OFFSET, value=replace(COMMITTED, expire_timestamp=2_000))
    for release, group_version, offset_version in [
        ("0.10.0", 0, 1),
        ("0.10.1", 1, 1),
        ("2.0", 1, 1),
        ("2.1", 2, 3),
        ("2.2", 2, 3),
        ("2.3", 3, 3),
        ("4.0", 3, 3),
        ("4.1", 3, 4),
        ("4.4", 3, 4),
    ]:
        with subtests.test(release=release):
            group, offset = (record_value(record, named(release)) for record in (GROUP, OFFSET))
            assert group is not None
            assert offset is not None
            read = decoded(GroupMetadataValue, group_version, group)
            expected = ["m-1 c /127.0.0.1", "m-1 c /127.0.0.1"]
            assert [f"{each.member_id} {each.client_id} {each.client_host}" for each in read.members] == expected
            committed = decoded(OffsetCommitValue, offset_version, offset)
            assert (committed.offset, committed.metadata, committed.commit_timestamp) == (42, "md", 1_000)
            assert (record_value(expiring, named(release)) or b"")[:2] == b"\0\1"


def decoded(cls: type[Message], version: int, value: bytes) -> Any:
    """Decode a value, which must have this version, with kafka-python's codec."""
    assert value[:2] == version.to_bytes(2, "big")
    return decode_record(cls, value)


def test_readers_without_batch_join_ignore_expected_instances() -> None:
    with_expected = replace(GROUP, value=replace(GROUP.value, **WITH_EXPECTED))
    key, value = record_key(with_expected), record_value(with_expected)
    assert value is not None
    read = decoded(GroupMetadataValue, 4, value)
    assert (read.protocol_type, read.generation, read.leader) == ("consumer", 3, "m-1")
    assert [member.member_id for member in read.members] == ["m-1", "m-1"]
    assert parse_record(key, value) == with_expected
    assert parse_record(key, record_value(GROUP)) == GROUP, "without expected instances, version 3 is written"


def test_an_expiring_offset_loses_its_leader_epoch() -> None:
    value = record_value(replace(OFFSET, value=replace(COMMITTED, expire_timestamp=2_000)))
    expected = replace(COMMITTED, leader_epoch=-1, expire_timestamp=2_000)
    assert parse_record(OFFSET_KEY, value) == replace(OFFSET, value=expected)


def test_offset_values_of_every_version_are_read(subtests: pytest.Subtests) -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=7, metadata="md", commit_timestamp=1_000, expire_timestamp=9)
    for version, leader_epoch, expire_timestamp in [(0, -1, -1), (1, -1, 9), (2, -1, -1), (3, 7, -1), (4, 7, -1)]:
        with subtests.test(version=version):
            expected = replace(COMMITTED, leader_epoch=leader_epoch, expire_timestamp=expire_timestamp)
            record = parse_record(OFFSET_KEY, prefixed(version, encode(value, version)))
            assert record == replace(OFFSET, value=expected)


def test_group_values_of_every_version_are_read(subtests: pytest.Subtests) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="h",
        rebalance_timeout=60,
        session_timeout=10,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=1_000,
        members=[member],
    )
    for version, instance_id, rebalance_timeout, timestamp_ms in [
        (0, None, -1, -1),
        (1, None, 60, -1),
        (2, None, 60, 1_000),
        (3, "i", 60, 1_000),
        (4, "i", 60, 1_000),
    ]:
        with subtests.test(version=version):
            stored = replace(member, group_instance_id=instance_id, rebalance_timeout=rebalance_timeout)
            expected = replace(value, current_state_timestamp=timestamp_ms, members=[stored])
            record = parse_record(GROUP_KEY, prefixed(version, encode(value, version)))
            assert record == group_record("grp", expected)
            assert record is not None
            group = Coordinator(CoordinatorConfig(), str)
            group.start_loading(0)
            group.finish_loading(0, [record], 0.0)
            (restored,) = group.groups.classic["grp"].members.values()
            assert restored.rebalance_timeout_ms == (10 if version == 0 else 60)


def test_offset_keys_of_version_0_are_read() -> None:
    assert parse_record(b"\0\0" + OFFSET_KEY[2:], None) == offset_record("grp", "t", 5, None)


def test_records_of_one_call_are_one_batch() -> None:
    log = PartitionLog()
    assert append_records(log, [GROUP, OFFSET], leader_epoch=4, now_ms=1_234.5) == 0
    assert append_records(log, [OFFSET], leader_epoch=5, now_ms=2_000.0) == 2

    first, second = records.split_batches(log.read(0, 10_000))
    validate_batch(first)
    assert (first.partition_leader_epoch, second.partition_leader_epoch) == (4, 5)
    assert records.decode_records(first) == [
        records.Record(0, 1_234, record_key(GROUP), record_value(GROUP)),
        records.Record(1, 1_234, record_key(OFFSET), record_value(OFFSET)),
    ]


def test_a_record_that_cannot_be_encoded_is_not_appended() -> None:
    log = PartitionLog()
    with pytest.raises(ProtocolError, match="field topic"):
        append_records(log, [OFFSET, offset_record("grp", "t" * 40_000, 5, COMMITTED)], leader_epoch=0, now_ms=0)
    assert log.log_end_offset == 0


@soak
@settings(max_examples=examples(20, soak=2000))
@given(written=st.lists(st.lists(RECORDS, min_size=1, max_size=3), max_size=4))
def test_records_are_read_in_order(written: list[list[Record]]) -> None:
    log = PartitionLog()
    for batch in written:
        append_records(log, batch, leader_epoch=0, now_ms=0)
    assert read_records(log, 7) == [record for batch in written for record in batch]


def test_a_log_larger_than_one_read_is_read_completely() -> None:
    log = PartitionLog()
    large = [offset_record("grp", "t", number, replace(COMMITTED, metadata="x" * 30_000)) for number in range(100)]
    for record in large:
        append_records(log, [record], leader_epoch=0, now_ms=0)
    assert read_records(log, 7) == large


def test_a_compacted_log_has_the_last_value_of_each_key() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    for offset in range(1_000):
        record = offset_record("grp", "t", offset % 3, replace(COMMITTED, offset=offset))
        append_records(log, [record], leader_epoch=0, now_ms=0)
    stored = read_records(log, 7)
    assert len(stored) < 200
    _, offsets = replay(stored, 0, NEWEST).groups["grp"]
    assert {partition: committed.offset for _, partition, committed in offsets} == {0: 999, 1: 997, 2: 998}


def test_records_with_unknown_key_versions_are_skipped() -> None:
    unknown = [(prefixed(version, b"key"), b"\0\0") for version in (9, 14, 17, 99)]
    log = a_log((OFFSET_KEY, None), *unknown, (GROUP_KEY, None))
    assert read_records(log, 7) == [offset_record("grp", "t", 5, None), group_record("grp", None)]


MALFORMED_RECORDS = [
    (None, b"", "key null, expected a version"),
    (b"\0", b"", "key of 1 bytes, expected a version"),
    (OFFSET_KEY[:-1], b"", "OffsetCommitKey v1: field partition malformed at byte 10"),
    (OFFSET_KEY + b"\0", None, "OffsetCommitKey v1: 1 unexpected bytes at byte 14"),
    (OFFSET_KEY, b"", "value of 0 bytes, expected a version"),
    (OFFSET_KEY, b"\0\5", "OffsetCommitValue v5: expected a version from 0-4"),
    (GROUP_KEY, b"\xff\xff", "GroupMetadataValue v-1: expected a version from 0-4"),
    (GROUP_KEY, b"\0\3\0\1", "GroupMetadataValue v3: field protocol_type malformed at byte 4"),
]
"""Keys and values, with the beginning of the error."""


def test_malformed_records_are_errors_with_their_offsets(subtests: pytest.Subtests) -> None:
    for key, value, error in MALFORMED_RECORDS:
        with subtests.test(error=error):
            log = a_log((GROUP_KEY, None), (GROUP_KEY, None), (key, value))
            with pytest.raises(ProtocolError, match=f"__consumer_offsets-7, offset 2: {error}"):
                read_records(log, 7)


def test_a_malformed_batch_is_an_error_with_its_offset() -> None:
    log = a_log((GROUP_KEY, None))
    batch = bytearray(records.encode_batch([records.Record(0, 1_000, GROUP_KEY, None)]))
    batch[60] = 2  # The last byte of the record count.
    log.append(bytes(batch), leader_epoch=0)
    with pytest.raises(
        ProtocolError, match="__consumer_offsets-7, offset 1: record batch with base offset 1: record 1"
    ):
        read_records(log, 7)
