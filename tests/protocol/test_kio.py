"""Messages have the same bytes as in `kio`, a codec generated from Kafka's message definitions."""

import datetime
import importlib.util
import io
import pkgutil
import re
import uuid
from dataclasses import fields
from types import NoneType
from typing import Any, get_args

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Message, Struct
from tests.support.message_versions import (
    KAFKA_VERSIONS,
    MESSAGES,
    NEW_IN_4_4,
    PROPOSED_APIS,
    filled,
    message_subtest,
)
from tests.support.soak import soak
from tests.support.strategies import check_drawn_messages

KIO_LACKS: dict[str, set[int]] = {
    # Versions that Kafka 4.0 removed (KIP-896); kio is generated from the definitions of a later release.
    "Produce": {0, 1, 2},
    "Fetch": {0, 1, 2, 3},
    "ListOffsets": {0},
    "OffsetCommit": {0, 1},
    "OffsetFetch": {0},
    "CreateTopics": {0, 1},
    "DeleteTopics": {0},
    "OffsetForLeaderEpoch": {0, 1},
    "DescribeAcls": {0},
    "CreateAcls": {0},
    "DeleteAcls": {0},
    "DescribeConfigs": {0},
    "DescribeLogDirs": {0},
    "AlterReplicaLogDirs": {0},
    "CreateDelegationToken": {0},
    "RenewDelegationToken": {0},
    "ExpireDelegationToken": {0},
    "DescribeDelegationToken": {0},
    "WriteTxnMarkers": {0},
}
KIO_LACKS |= {api: KIO_LACKS.get(api, set()) | {version} for api, version in NEW_IN_4_4.items()}
_OLDER_NAMES = {"generation_id_or_member_epoch": "generation_id"}
"""Names of fields before Kafka 4.4, which kio has."""
API_OF = {cls: api for api in APIS for cls in (api.request, api.response)}
COVERED = [(cls, version) for cls, version in KAFKA_VERSIONS if version not in KIO_LACKS.get(API_OF[cls].name, ())]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_package(api_name: str) -> str:
    return "kio.schema." + re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()


def kio_class(cls: type[Message], version: int) -> Any:
    kind = "request" if cls is API_OF[cls].request else "response"
    module = importlib.import_module(f"{kio_package(API_OF[cls].name)}.v{version}.{kind}")
    return getattr(module, cls.__name__)


def kio_object(kio_type: Any, value: Struct) -> Any:
    """Return a message as kio's object. Fields are matched by name; one that only one side has is a `TypeError`."""
    ours = {field.name: field for field in value.FIELDS if kio_type.__version__ in field.versions}
    return kio_type(
        **{
            field.name: kio_value(field, getattr(value, name))
            for name in ours
            for field in fields(kio_type)
            if field.name in (name, name.removesuffix("_ms"), _OLDER_NAMES.get(name))
        }
    )


def kio_value(field: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(kio_value(field, item) for item in value)
    if isinstance(value, Struct):
        return kio_object(struct_type(field.type), value)
    match field.metadata.get("kafka_type"):
        case "error_code":
            return ErrorCode(value)
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "timedelta_i32" | "timedelta_i64":
            if abs(value) >= 2**50:
                raise OverflowError("kio computes durations with floats")
            return value * MILLISECOND
        case "datetime_i64":
            if value == -1 and NoneType not in get_args(field.type):
                raise OverflowError("kio writes no -1 for a date that is always there")
            return None if value == -1 else EPOCH + value * MILLISECOND
    return value


def kio_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def struct_type(annotation: Any) -> Any:
    """Return the class X of `tuple[X, ...]` or `X | None`."""
    while arguments := get_args(annotation):
        annotation = arguments[0]
    return annotation


def test_kio_lacks_only_the_versions_removed_in_kafka_4_0_and_new_in_4_4() -> None:
    missing_versions = {}
    for api in APIS:
        found = importlib.util.find_spec(kio_package(api.name))
        paths = [] if found is None else found.submodule_search_locations
        present = {int(module.name.removeprefix("v")) for module in pkgutil.iter_modules(paths)}
        proposed = {each for added in PROPOSED_APIS if added.key == api.key for each in added.versions}
        proposed -= set(api.versions)
        assert not proposed & present, f"{api.name} {proposed}: expected versions that Kafka does not have"
        if missing := set(api.request.VERSIONS) - present:
            missing_versions[api.name] = missing

    assert missing_versions == KIO_LACKS
    assert len(COVERED) == len(KAFKA_VERSIONS) - 2 * sum(map(len, KIO_LACKS.values()))


def assert_same_bytes(cls: type[Message], version: int, message: Message) -> None:
    kio_type = kio_class(cls, version)
    theirs = kio_bytes(kio_object(kio_type, message))
    ours = encode(message, version)

    assert ours.hex(" ") == theirs.hex(" ")
    assert decode(cls, theirs, version) == message
    decoded, end = entity_reader(kio_type)(ours, 0)
    # Compared as bytes: kio decodes some dates one microsecond too early, and rounds them when it encodes.
    assert (kio_bytes(decoded), end) == (ours, len(ours))


def test_messages_with_a_value_in_each_field_have_the_same_bytes(subtests: pytest.Subtests) -> None:
    for cls, version in COVERED:
        with message_subtest(subtests, cls, version):
            assert_same_bytes(cls, version, filled(cls, version))


def assert_same_bytes_of_what_kio_has(cls: type[Message], version: int, message: Message) -> None:
    try:
        kio_object(kio_class(cls, version), message)
    except OverflowError:  # kio's dates and durations do not have all values of an integer.
        return
    assert_same_bytes(cls, version, message)


@soak
@pytest.mark.parametrize("cls", MESSAGES)
def test_any_message_has_the_same_bytes(cls: type[Message], subtests: pytest.Subtests) -> None:
    check_drawn_messages(subtests, cls, assert_same_bytes_of_what_kio_has, among=COVERED, sample=2, soak=50)
