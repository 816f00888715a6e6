"""Every version of every message: what is written is read, and what is read can be written."""

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.schema import Message, Struct
from tests.support.strategies import MESSAGE_VERSIONS, MESSAGES, filled, messages, structs


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS)
@settings(max_examples=6)
@given(data=st.data())
def test_what_is_written_is_read(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version, unknown_tags=version in cls.FLEXIBLE))

    assert decode(cls, encode(message, version), version) == message


@pytest.mark.parametrize("cls", MESSAGES)
def test_a_field_that_the_version_lacks_has_its_default(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = decode(cls, encode(filled(cls, version), version), version)

        for item in structs(message, version):
            for field in item.FIELDS:
                if version not in field.versions:
                    assert getattr(item, field.name) == field.default_value()


@pytest.mark.parametrize("cls", MESSAGES)
def test_two_messages_share_no_list_and_no_struct(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = encode(filled(cls, version), version)
        first, second = decode(cls, raw, version), decode(cls, raw, version)

        for one, other in zip(structs(first, version), structs(second, version), strict=True):
            for field in one.FIELDS:
                value = getattr(one, field.name)
                assert not isinstance(value, list | Struct) or value is not getattr(other, field.name)
