"""Byte for byte what kafka-python writes and reads; it also has the versions that Kafka 4.0 removed and `kio` lacks."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_message import ApiMessage

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import UUID, Primitive
from tests.support.strategies import MESSAGE_VERSIONS, MESSAGES, PROPOSED_VERSIONS, filled, messages

BIT_FIELDS = ("authorized_operations", "cluster_authorized_operations", "topic_authorized_operations")
"""Numbers that kafka-python makes sets of bits of, in most messages, all under the name `authorized_operations`."""


KAFKA_VERSIONS = [each for each in MESSAGE_VERSIONS if each not in PROPOSED_VERSIONS]


def their_class(cls: type[Message]) -> Any:
    modules = (admin, consumer, metadata, producer)
    return next(getattr(module, cls.__name__) for module in modules if hasattr(module, cls.__name__))


def their_object(struct_field: Any, value: Struct, version: int) -> Any:
    """The same message as kafka-python's object: fields go by name, and an unknown or missing one is an error."""
    names = {name for name, field in struct_field.fields.items() if field.for_version_q(version)}
    values: dict[str, Any] = {}
    for field in value.FIELDS:
        held = getattr(value, field.name)
        # A tagged field that is given counts as one that differs from its default.
        if version not in field.versions or (field.tag is not None and held == field.default_value()):
            continue
        name = their_name(struct_field, field)
        values[name] = their_value(struct_field.fields[name], field.type is UUID, held, version)
    tagged = {field.name for field in value.FIELDS if field.tag is not None}
    assert names - tagged == values.keys() - tagged
    return struct_field.data_class(version=version, **values)


def their_name(struct_field: Any, field: Field) -> str:
    is_renamed = field.name in BIT_FIELDS and field.name not in struct_field.fields
    return "authorized_operations" if is_renamed else field.name


def their_value(field: Any, is_uuid: bool, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [their_value(field, is_uuid, item, version) for item in value]
    if isinstance(value, Struct):
        return their_object(field, value, version)
    if field.name == "authorized_operations":
        return {bit for bit in range(32) if value >> bit & 1}
    return uuid.UUID(bytes=value) if is_uuid else value


def declared_differently(ours: type[Struct], theirs: Any, versions: list[int], path: str) -> list[str]:
    """Fields with another default, nullable in other versions, or ignorable on one side where a version lacks them."""
    found = []
    for field in ours.FIELDS:
        if not any(version in field.versions for version in versions):
            continue  # It is a proposal's.
        here = f"{path}.{field.name}"
        other = theirs.fields[their_name(theirs, field)]
        present = [version for version in versions if version in field.versions]
        if any(other.nullable_for_version_q(version) != (version in field.nullable) for version in present):
            found.append(f"{here} nullable")
        if present != versions and field.ignorable != bool(other._ignorable):
            found.append(f"{here} ignorable")
        if not isinstance(field.type, Primitive):
            found += declared_differently(field.type, other, present, here)
        elif not field.is_array and field.type is not UUID and field.name not in BIT_FIELDS:
            found += [] if other.default == field.default_value() else [f"{here} default"]
    return found


def test_defaults_and_what_is_nullable_or_ignorable_are_the_same() -> None:
    found: list[str] = []
    for cls in MESSAGES:
        versions = [version for version in cls.VERSIONS if (cls, version) not in PROPOSED_VERSIONS]
        found += declared_differently(cls, their_class(cls)._struct, versions, cls.__name__)

    # kafka-python changes this one itself; Kafka's definition has no default.
    assert found == ["ListOffsetsRequest.replica_id default"]


def test_kafka_python_lacks_no_version() -> None:
    theirs = {cls: range(their_class(cls).min_version, their_class(cls).max_version + 1) for cls in MESSAGES}

    assert [(cls, version) for cls, version in KAFKA_VERSIONS if version not in theirs[cls]] == []


def assert_same_bytes(cls: type[Message], version: int, message: Message) -> None:
    their_type = their_class(cls)
    theirs = their_object(their_type._struct, message, version).encode(version=version)
    ours = encode(message, version)

    assert ours == theirs
    assert decode(cls, theirs, version) == message
    # Not by the class's own methods: ApiVersionsResponse reads any error as version 0, as a client has to.
    read = ApiMessage.decode.__func__(their_type, ours, version=version)
    assert ApiMessage.encode(read) == ours


@pytest.mark.parametrize(("cls", "version"), KAFKA_VERSIONS)
def test_another_value_in_each_field(cls: type[Message], version: int) -> None:
    assert_same_bytes(cls, version, filled(cls, version))


@pytest.mark.parametrize(("cls", "version"), KAFKA_VERSIONS)
@settings(max_examples=4)
@given(data=st.data())
def test_any_message(cls: type[Message], version: int, data: st.DataObject) -> None:
    assert_same_bytes(cls, version, data.draw(messages(cls, version)))
