"""The records of consumer groups have the bytes of Kafka's definitions. Types 3 to 8 and 16 of `__consumer_offsets`."""

import pytest
from msgspec.structs import replace

from fakebroker.cluster.logs.offsets_topic import parse_record, record_key, record_value
from fakebroker.coordinator.consumer.member import ClassicMemberMetadata
from fakebroker.coordinator.consumer.records import (
    AssignmentEpochRecord,
    AssignmentEpochValue,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    CurrentAssignmentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberSubscriptionRecord,
    RegexRecord,
    StoredTopic,
    SubscribedTopicsRecord,
    SubscriptionValue,
    TargetAssignmentRecord,
)
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex
from fakebroker.errors import ProtocolError
from fakebroker.protocol.releases import Release
from tests.support.annotated_hex import annotated_hex
from tests.support.subtests import subtest_for_each

TOPIC = bytes(range(16))
ID = TOPIC.hex(" ")

# The record, its key and its value, as Kafka 4.4 defines them.
RECORDS: list[tuple[ConsumerGroupRecord, str, str]] = [
    (
        MemberSubscriptionRecord(
            "g",
            "m",
            SubscriptionValue(
                instance_id="i",
                rack_id=None,
                client_id="c",
                client_host="/h",
                subscribed_topic_names=frozenset(("t",)),
                rebalance_timeout_ms=256,
                server_assignor="range",
                classic=ClassicMemberMetadata(6_000, (("range", b"\0\1"), ("s", b""))),
            ),
        ),
        "00 05 00 01 67 00 01 6d",
        """
        00 00
        02 69                    # instance id
        00                       # rack: null
        02 63                    # client id
        03 2f 68                 # client host
        02 02 74                 # one topic: "t"
        01                       # regular expression: none
        00 00 01 00              # rebalance timeout
        06 72 61 6e 67 65        # assignor
        01 00 15                 # one tag: 0, 21 bytes
        01                       # not null
        00 00 17 70              # session timeout
        03                       # two protocols
        06 72 61 6e 67 65        # "range"
        03 00 01                 # its metadata
        00                       # tags
        02 73                    # "s"
        01
        00
        00                       # tags
        """,
    ),
    (
        GroupEpochRecord("g", GroupEpochValue(5, 0)),
        """
        00 03                    # type
        00 01 67                 # group: "g"
        """,
        """
        00 00                    # version
        00 00 00 05              # epoch
        00                       # tags
        """,
    ),
    (
        GroupEpochRecord("g", GroupEpochValue(5, -2)),
        "00 03 00 01 67",
        """
        00 00
        00 00 00 05
        01 00 08                 # one tag: 0, 8 bytes
        ff ff ff ff ff ff ff fe  # hash
        """,
    ),
    (
        SubscribedTopicsRecord("g", (StoredTopic(TOPIC, "t", 6),)),
        "00 04 00 01 67",
        f"""
        00 00
        02                       # one topic
        {ID}
        02 74                    # "t"
        00 00 00 06              # partitions
        01                       # no racks
        00                       # tags
        00
        """,
    ),
    (
        MemberSubscriptionRecord(
            "g",
            "m",
            SubscriptionValue(
                instance_id=None,
                rack_id="r",
                client_id="c",
                client_host="/h",
                subscribed_topic_names=frozenset(("u", "t")),
                rebalance_timeout_ms=256,
                server_assignor=None,
            ),
        ),
        """
        00 05
        00 01 67
        00 01 6d                 # member: "m"
        """,
        """
        00 00
        00                       # instance id: null
        02 72                    # rack
        02 63                    # client id
        03 2f 68                 # client host
        03 02 74 02 75           # names, sorted
        01                       # regular expression: ""
        00 00 01 00              # rebalance timeout
        00                       # assignor: null
        01 00 01 00              # one tag: 0, 1 byte, null (as a running Kafka writes it)
        """,
    ),
    (AssignmentEpochRecord("g", AssignmentEpochValue(5)), "00 06 00 01 67", "00 00 00 00 00 05 00"),
    (
        AssignmentEpochRecord("g", AssignmentEpochValue(5, 256)),
        "00 06 00 01 67",
        """
        00 00
        00 00 00 05
        01 00 08                 # one tag: 0, 8 bytes
        00 00 00 00 00 00 01 00  # timestamp
        """,
    ),
    (
        TargetAssignmentRecord("g", "m", {TOPIC: frozenset((2, 1))}),
        "00 07 00 01 67 00 01 6d",
        f"""
        00 00
        02                       # one topic
        {ID}
        03 00 00 00 01 00 00 00 02
        00                       # tags
        00
        """,
    ),
    (
        CurrentAssignmentRecord(
            "g",
            "m",
            CurrentAssignmentValue(
                5, 4, MemberState.UNREVOKED_PARTITIONS, {}, {TOPIC: frozenset((3, 4))}, {(TOPIC, 3): 2}
            ),
        ),
        "00 08 00 01 67 00 01 6d",
        f"""
        00 00
        00 00 00 05              # epoch
        00 00 00 04              # previous epoch
        01                       # state
        01                       # nothing is assigned
        02                       # pending: one topic
        {ID}
        03 00 00 00 03 00 00 00 04
        01 00 09                 # one tag: 0, 9 bytes
        03 00 00 00 02 00 00 00 05  # epochs
        00
        """,
    ),
    (
        RegexRecord("g", "t.*", ResolvedRegex(frozenset(("u", "t")), 5, 256)),
        """
        00 10
        00 01 67
        00 03 74 2e 2a           # "t.*"
        """,
        """
        00 00
        03 02 74 02 75           # topics, sorted
        00 00 00 00 00 00 00 05  # version
        00 00 00 00 00 00 01 00  # timestamp
        00                       # tags
        """,
    ),
]


@subtest_for_each(("record", "key", "value"), RECORDS)
def test_bytes(record: ConsumerGroupRecord, key: str, value: str) -> None:
    encoded = annotated_hex(key), annotated_hex(value)
    assert (record_key(record), record_value(record)) == encoded
    assert parse_record(*encoded) == record


def test_before_4_3_current_assignments_have_no_epochs_of_partitions() -> None:
    held = {TOPIC: frozenset((3,))}
    value = CurrentAssignmentValue(5, 4, MemberState.STABLE, held, {}, {(TOPIC, 3): 2})
    record = CurrentAssignmentRecord("g", "m", value)
    encoded = record_value(record, Release(4, 2))
    assert encoded == annotated_hex(
        f"""
        00 00
        00 00 00 05              # epoch
        00 00 00 04              # previous epoch
        00                       # state
        02                       # assigned: one topic
        {ID}
        02 00 00 00 03
        00                       # tags
        01                       # nothing is pending
        00
        """
    )
    read = CurrentAssignmentRecord("g", "m", CurrentAssignmentValue(5, 4, MemberState.STABLE, held, {}))
    assert parse_record(record_key(record), encoded) == read, "all have the epoch of the member"


@subtest_for_each("record", [row[0] for row in RECORDS])
def test_tombstones(record: ConsumerGroupRecord) -> None:
    record = replace(record, value=None)
    assert record_value(record) is None
    assert parse_record(record_key(record), None) == record


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    key, value = annotated_hex("00 08 00 01 67 00 01 6d"), annotated_hex("00 00 00 00 00 05 00 00 00 04 09 01 01 00")
    record = parse_record(key, value)
    assert isinstance(record, CurrentAssignmentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


def test_malformed_records_are_errors() -> None:
    for key, value in (("00 03 00 05 67", None), ("00 03 00 01 67", "00 00 00"), ("00 03 00 01 67", "00 07 00")):
        with pytest.raises(ProtocolError):
            parse_record(annotated_hex(key), None if value is None else annotated_hex(value))
