"""kafka-python's codec for comparisons: its classes, conversion of our messages, and differences of declarations.

Also the classes for keys and values of `__consumer_offsets` and `__transaction_state`: kafka-python lacks them, so they
are built by its codec from Kafka's definitions.
"""

import io
import uuid
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas import StructField

from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import UUID, Primitive

_OLDER_NAMES = {"generation_id_or_member_epoch": "generation_id"}
"""Names of fields before Kafka 4.4, which kafka-python has."""

_BIT_FIELDS = ("authorized_operations", "cluster_authorized_operations", "topic_authorized_operations")
"""Integers that kafka-python represents as sets of bits. In most messages their name is `authorized_operations`."""


def kafka_python_class(cls: type[Message]) -> Any:
    """Return kafka-python's class for a request or response."""
    modules = (admin, consumer, metadata, producer, sasl)
    return next(getattr(module, cls.__name__) for module in modules if hasattr(module, cls.__name__))


def kafka_python_object(schema: Any, value: Struct, version: int) -> Any:
    """Return a message as kafka-python's object. Fields are matched by name; a field that only one side has fails."""
    names = {name for name, field in schema.fields.items() if field.for_version_q(version)}
    values: dict[str, Any] = {}
    for field in value.FIELDS:
        content = getattr(value, field.name)
        # kafka-python encodes each tagged field that is set, even to its default.
        if version not in field.versions or (field.tag is not None and content == field.default_value()):
            continue
        name = _field_name(schema, field)
        values[name] = _field_value(schema.fields[name], field.type is UUID, content, version)
    tagged = {field.name for field in value.FIELDS if field.tag is not None}
    assert names - tagged == values.keys() - tagged
    return schema.data_class(version=version, **values)


def _field_name(schema: Any, field: Field) -> str:
    if field.name in schema.fields:
        return field.name
    return "authorized_operations" if field.name in _BIT_FIELDS else _OLDER_NAMES[field.name]


def _field_value(field: Any, is_uuid: bool, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_field_value(field, is_uuid, item, version) for item in value]
    if isinstance(value, Struct):
        return kafka_python_object(field, value, version)
    if field.name == "authorized_operations":
        return {bit for bit in range(32) if value >> bit & 1}
    return uuid.UUID(bytes=value) if is_uuid else value


def differing_declarations(ours: type[Struct], schema: Any, versions: list[int], path: str) -> list[str]:
    """Return the fields whose default, nullable versions or ignorability differ from kafka-python's schema.

    Ignorability is compared only for fields that at least one of the versions lacks. Fields of proposals are skipped.
    """
    differences = []
    for field in ours.FIELDS:
        present = [version for version in versions if version in field.versions]
        if not present:
            continue
        field_path = f"{path}.{field.name}"
        other = schema.fields[_field_name(schema, field)]
        if any(other.nullable_for_version_q(version) != (version in field.nullable) for version in present):
            differences.append(f"{field_path} nullable")
        if present != versions and field.ignorable != bool(other._ignorable):
            differences.append(f"{field_path} ignorable")
        if not isinstance(field.type, Primitive):
            differences += differing_declarations(field.type, other, present, field_path)
        elif not field.is_array and field.type is not UUID and field.name not in _BIT_FIELDS:
            differences += [] if other.default == field.default_value() else [f"{field_path} default"]
    return differences


def _kafka_field(name: str, type_: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    """A field in the notation of Kafka's message definitions."""
    return {"name": name, "type": type_, "versions": versions, **more}


_INSTANCE_ID = {"default": "null", "nullableVersions": "3+", "ignorable": True}
_UNSET = {"default": -1, "ignorable": True}
_MEMBER_FIELDS = [
    _kafka_field("memberId", "string"),
    _kafka_field("groupInstanceId", "string", "3+", **_INSTANCE_ID),
    _kafka_field("clientId", "string"),
    _kafka_field("clientHost", "string"),
    _kafka_field("rebalanceTimeout", "int32", "1+", **_UNSET),
    _kafka_field("sessionTimeout", "int32"),
    _kafka_field("subscription", "bytes"),
    _kafka_field("assignment", "bytes"),
]
_PARTITION_FIELDS = [_kafka_field("topic", "string"), _kafka_field("partitionIds", "[]int32")]
_RECORD_FIELDS: dict[type[Message], list[dict[str, Any]]] = {
    OffsetCommitKey: [
        _kafka_field("group", "string", "0-1"),
        _kafka_field("topic", "string", "0-1"),
        _kafka_field("partition", "int32", "0-1"),
    ],
    OffsetCommitValue: [
        _kafka_field("offset", "int64"),
        _kafka_field("leaderEpoch", "int32", "3+", **_UNSET),
        _kafka_field("metadata", "string"),
        _kafka_field("commitTimestamp", "int64"),
        _kafka_field("expireTimestamp", "int64", "1", **_UNSET),
        _kafka_field("topicId", "uuid", "4+", taggedVersions="4+", tag=0, ignorable=True),
    ],
    GroupMetadataKey: [_kafka_field("group", "string", "2")],
    GroupMetadataValue: [
        _kafka_field("protocolType", "string"),
        _kafka_field("generation", "int32"),
        _kafka_field("protocol", "string", nullableVersions="0+"),
        _kafka_field("leader", "string", nullableVersions="0+"),
        _kafka_field("currentStateTimestamp", "int64", "2+", **_UNSET),
        _kafka_field("members", "[]MemberMetadata", fields=_MEMBER_FIELDS),
    ],
    TransactionLogKey: [_kafka_field("transactionalId", "string")],
    TransactionLogValue: [
        _kafka_field("producerId", "int64"),
        _kafka_field("previousProducerId", "int64", "1+", tag=0, taggedVersions="1+", **_UNSET),
        _kafka_field("nextProducerId", "int64", "1+", tag=1, taggedVersions="1+", **_UNSET),
        _kafka_field("producerEpoch", "int16"),
        _kafka_field("transactionTimeoutMs", "int32"),
        _kafka_field("transactionStatus", "int8"),
        _kafka_field("transactionPartitions", "[]PartitionsSchema", fields=_PARTITION_FIELDS, nullableVersions="0+"),
        _kafka_field("transactionLastUpdateTimestampMs", "int64"),
        _kafka_field("transactionStartTimestampMs", "int64"),
        _kafka_field("clientTransactionVersion", "int16", "1+", tag=2, taggedVersions="1+", default=0, ignorable=True),
    ],
}


def _record_class(cls: type[Message]) -> Any:
    definition = {
        "type": "data",
        "name": cls.__name__,
        "validVersions": str(cls.VERSIONS),
        "fields": _RECORD_FIELDS[cls],
    }
    schema = StructField(definition)
    data_class = type(cls.__name__, (DataContainer,), {"_struct": schema})
    schema.set_data_class(data_class)
    return data_class


RECORD_CLASSES = {cls: _record_class(cls) for cls in _RECORD_FIELDS}
"""kafka-python's classes for keys and values of `__consumer_offsets` and `__transaction_state`."""


def decode_record(cls: type[Message], data: bytes) -> Any:
    """Decode a key or value, which begins with its version as an int16."""
    version = int.from_bytes(data[:2], "big")
    flexible = version in cls.FLEXIBLE
    fields = io.BytesIO(data[2:])
    found = RECORD_CLASSES[cls].decode(fields, version=version, compact=flexible, tagged=flexible)
    assert fields.read() == b""
    return found
