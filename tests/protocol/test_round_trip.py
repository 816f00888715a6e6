"""Every version of every message can be encoded and decoded without loss."""

import pytest

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.schema import Message, Struct
from tests.support.message_versions import MESSAGE_VERSIONS, MESSAGES, filled, message_subtest, structs
from tests.support.soak import soak
from tests.support.strategies import check_drawn_messages


def assert_round_trip(cls: type[Message], version: int, message: Message) -> None:
    assert decode(cls, encode(message, version), version) == message


@soak
@pytest.mark.parametrize("cls", MESSAGES)
def test_a_decoded_message_equals_the_encoded_one(cls: type[Message], subtests: pytest.Subtests) -> None:
    check_drawn_messages(subtests, cls, assert_round_trip, unknown_tags=True, sample=3, soak=50)


def test_fields_that_a_version_lacks_are_decoded_as_their_defaults(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            message = decode(cls, encode(filled(cls, version), version), version)
            for item in structs(message, version):
                for field in item.FIELDS:
                    if version not in field.versions:
                        assert getattr(item, field.name) == field.default_value(), f"{type(item).__name__}.{field.name}"


def test_decoded_messages_share_no_lists_or_structs(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            raw = encode(filled(cls, version), version)
            first, second = decode(cls, raw, version), decode(cls, raw, version)
            for one, other in zip(structs(first, version), structs(second, version), strict=True):
                for field in one.FIELDS:
                    value = getattr(one, field.name)
                    is_shared = value is getattr(other, field.name)
                    assert not (isinstance(value, list | Struct) and is_shared), f"{type(one).__name__}.{field.name}"
