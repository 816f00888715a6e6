"""The records of consumer groups have the bytes of Kafka's definitions. Types 3 to 8 and 16 of `__consumer_offsets`."""

import pytest
from msgspec.structs import replace

from fakebroker.cluster.logs.coordinator_records import parse_record, record_key, record_value
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import ClassicMemberMetadata, ConsumerGroupMember
from fakebroker.coordinator.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    group_epoch_record,
    regex_record,
    subscription_record,
    target_assignment_record,
)
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex
from fakebroker.coordinator.records import CoordinatorRecord, KeyedRecord
from fakebroker.errors import ProtocolError
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicMetadata,
)
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.annotated_hex import annotated_hex
from tests.support.subtests import subtest_for_each

TOPIC = bytes(range(16))
ID = TOPIC.hex(" ")

# The record, its key and its value, as Kafka 4.4 defines them.
RECORDS: list[tuple[KeyedRecord, str, str]] = [
    (
        subscription_record(
            "g",
            ConsumerGroupMember(
                member_id="m",
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
        group_epoch_record("g", 5, 0),
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
        group_epoch_record("g", 5, -2),
        "00 03 00 01 67",
        """
        00 00
        00 00 00 05
        01 00 08                 # one tag: 0, 8 bytes
        ff ff ff ff ff ff ff fe  # hash
        """,
    ),
    (
        CoordinatorRecord(
            ConsumerGroupPartitionMetadataKey(group_id="g"),
            ConsumerGroupPartitionMetadataValue(
                topics=[TopicMetadata(topic_id=TOPIC, topic_name="t", num_partitions=6, partition_metadata=[])]
            ),
        ),
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
        subscription_record(
            "g",
            ConsumerGroupMember(
                member_id="m",
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
    (assignment_epoch_record("g", 5), "00 06 00 01 67", "00 00 00 00 00 05 00"),
    (
        assignment_epoch_record("g", 5, 256),
        "00 06 00 01 67",
        """
        00 00
        00 00 00 05
        01 00 08                 # one tag: 0, 8 bytes
        00 00 00 00 00 00 01 00  # timestamp
        """,
    ),
    (
        target_assignment_record("g", "m", {TOPIC: frozenset((2, 1))}),
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
        current_assignment_record(
            "g",
            ConsumerGroupMember(
                member_id="m",
                member_epoch=5,
                previous_epoch=4,
                state=MemberState.UNREVOKED_PARTITIONS,
                pending_revocation={TOPIC: frozenset((3, 4))},
                older_epochs={(TOPIC, 3): 2},
            ),
            NEWEST,
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
        regex_record("g", "t.*", ResolvedRegex(frozenset(("u", "t")), 5, 256)),
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
def test_bytes(record: KeyedRecord, key: str, value: str) -> None:
    encoded = annotated_hex(key), annotated_hex(value)
    assert (record_key(record), record_value(record)) == encoded
    assert parse_record(*encoded) == record


def test_before_4_3_current_assignments_have_no_epochs_of_partitions() -> None:
    member = ConsumerGroupMember(
        member_id="m",
        member_epoch=5,
        previous_epoch=4,
        assigned={TOPIC: frozenset((3,))},
        older_epochs={(TOPIC, 3): 2},
    )
    record = current_assignment_record("g", member, Release(4, 2))
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
    assert parse_record(record_key(record), encoded) == record
    group = ConsumerGroup("g", 0, Release(4, 2))
    group.replay(record)
    assert group.members["m"] == replace(member, older_epochs={}), "all have the epoch of the member"


@subtest_for_each("record", [row[0] for row in RECORDS])
def test_tombstones(record: KeyedRecord) -> None:
    record = replace(record, value=None)
    assert record_value(record) is None
    assert parse_record(record_key(record), None) == record


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    key, value = annotated_hex("00 08 00 01 67 00 01 6d"), annotated_hex("00 00 00 00 00 05 00 00 00 04 09 01 01 00")
    record = parse_record(key, value)
    assert record is not None
    group = ConsumerGroup("g", 0, NEWEST)
    group.replay(record)
    assert group.members["m"].state is MemberState.UNKNOWN


def test_malformed_records_are_errors() -> None:
    for key, value in (("00 03 00 05 67", None), ("00 03 00 01 67", "00 00 00"), ("00 03 00 01 67", "00 07 00")):
        with pytest.raises(ProtocolError):
            parse_record(annotated_hex(key), None if value is None else annotated_hex(value))
