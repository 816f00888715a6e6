"""Messages have the same bytes as in kafka-python, which also has the versions removed in Kafka 4.0."""

import pytest
from kafka.protocol.api_message import ApiMessage

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.schema import Message
from tests.support import message_versions
from tests.support.kafka_python_codec import differing_declarations, kafka_python_class, kafka_python_object
from tests.support.message_versions import NEW_IN_4_4, PROPOSED_MESSAGES, filled, message_subtest
from tests.support.soak import soak
from tests.support.strategies import check_drawn_messages

MESSAGES = [
    cls for cls in message_versions.MESSAGES if "DelegationToken" not in cls.__name__ and cls not in PROPOSED_MESSAGES
]
"""The messages that kafka-python has: all of Kafka except those of delegation tokens."""
KAFKA_VERSIONS = [(cls, version) for cls, version in message_versions.KAFKA_VERSIONS if cls in MESSAGES]

LACKS = ("ConsumerGroup", "UnregisterBroker", "UnregisterController", "GetTelemetrySubscriptions", "PushTelemetry")
"""APIs that kafka-python lacks; they are compared with kio."""

COMPARED = [cls for cls in MESSAGES if not cls.__name__.startswith(LACKS)]
NEW = {(f"{api}{kind}", version) for api, version in NEW_IN_4_4.items() for kind in ("Request", "Response")}
COMPARED_VERSIONS = [
    (cls, version) for cls, version in KAFKA_VERSIONS if cls in COMPARED and (cls.__name__, version) not in NEW
]


def test_declarations_have_the_same_defaults_and_nullable_and_ignorable_fields() -> None:
    differences: list[str] = []
    for cls in COMPARED:
        versions = [version for version in cls.VERSIONS if (cls, version) in COMPARED_VERSIONS]
        differences += differing_declarations(cls, kafka_python_class(cls)._struct, versions, cls.__name__)

    # kafka-python adds this default to Kafka's definition, which has none.
    assert differences == ["ListOffsetsRequest.replica_id default"]


def test_kafka_python_has_every_version() -> None:
    theirs = {cls: kafka_python_class(cls) for cls in COMPARED}
    versions = {cls: range(found.min_version, found.max_version + 1) for cls, found in theirs.items()}

    assert [(cls, version) for cls, version in COMPARED_VERSIONS if version not in versions[cls]] == []


def assert_same_bytes(cls: type[Message], version: int, message: Message) -> None:
    their_class = kafka_python_class(cls)
    theirs = kafka_python_object(their_class._struct, message, version).encode(version=version)
    ours = encode(message, version)

    assert ours.hex(" ") == theirs.hex(" ")
    assert decode(cls, theirs, version) == message
    # The methods of `ApiMessage` are used: those of ApiVersionsResponse decode any error as version 0, as clients do.
    decoded = ApiMessage.decode.__func__(their_class, ours, version=version)
    assert ApiMessage.encode(decoded) == ours


def test_messages_with_a_value_in_each_field_have_the_same_bytes(subtests: pytest.Subtests) -> None:
    for cls, version in COMPARED_VERSIONS:
        with message_subtest(subtests, cls, version):
            assert_same_bytes(cls, version, filled(cls, version))


@soak
@pytest.mark.parametrize("cls", COMPARED)
def test_any_message_has_the_same_bytes(cls: type[Message], subtests: pytest.Subtests) -> None:
    check_drawn_messages(subtests, cls, assert_same_bytes, among=COMPARED_VERSIONS, sample=2, soak=50)
