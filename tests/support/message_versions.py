"""All requests and responses with their versions, sample messages, and subtests named after message and version.

Derived from the declarations in `fakebroker.protocol.messages`: a new message or version needs no change here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import pytest

from fakebroker.proposals import PROPOSALS
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import BYTES, RECORDS, STRING, UUID, Primitive

M = TypeVar("M", bound=Struct)

PROPOSED_APIS = tuple(api for proposal in PROPOSALS.values() for api in proposal.apis if api.messages)
"""APIs of proposals that have messages of their own."""

PROPOSED_MESSAGES = tuple(cls for api in PROPOSED_APIS for cls in (api.request, api.response))
"""Messages that exist in no release of Kafka, and therefore in no other codec."""

REQUESTS: tuple[type[Message], ...] = tuple(api.request for api in (*APIS, *PROPOSED_APIS))
RESPONSES: tuple[type[Message], ...] = tuple(api.response for api in (*APIS, *PROPOSED_APIS))
MESSAGES = REQUESTS + RESPONSES

MESSAGE_VERSIONS = tuple((cls, version) for cls in MESSAGES for version in cls.VERSIONS)
"""Every version of every request and response."""

NEWEST_VERSIONS = tuple((cls, cls.VERSIONS.last) for cls in MESSAGES)
"""The newest version of every request and response, for samples."""

KAFKA_VERSIONS = tuple((cls, version) for cls, version in MESSAGE_VERSIONS if cls not in PROPOSED_MESSAGES)
"""Every version of every request and response of Kafka."""

NEW_IN_4_4 = {"ApiVersions": 5, "TxnOffsetCommit": 6, "DeleteGroups": 3, "UnregisterController": 0}
"""Versions that no other codec in Python has yet. The random histories send them to Apache Kafka."""


@contextmanager
def message_subtest(subtests: pytest.Subtests, cls: type[Message], version: int) -> Iterator[None]:
    """A subtest named after message and version, such as `JoinGroupRequest v9`.

    Only failures become subtests: reporting thousands of successes would take longer than the tests.
    """
    __tracebackhide__ = True
    try:
        yield
    except (Exception, pytest.fail.Exception):
        with subtests.test(f"{cls.__name__} v{version}"):
            raise


def filled(cls: type[M], version: int) -> M:
    """A message with a different value in each field that the version has, and one element in each array."""
    return _filled(cls, version, count(1))


def with_text(value: M, version: int, text: str) -> M:
    """Replace each string of a message that the version has, and return the message."""
    for each in structs(value, version):
        for field in each.FIELDS:
            held = getattr(each, field.name) if version in field.versions else None
            if field.type is STRING and held is not None:
                setattr(each, field.name, [text] * len(held) if field.is_array else text)
    return value


def _filled(cls: type[M], version: int, numbers: Iterator[int]) -> M:
    present = [field for field in cls.FIELDS if version in field.versions]
    return cls(**{field.name: _filled_value(field, version, numbers) for field in present})


def _filled_value(field: Field, version: int, numbers: Iterator[int]) -> Any:
    if isinstance(field.type, Primitive):
        value = _numbered(field.type, next(numbers))
    else:
        value = _filled(field.type, version, numbers)
    return [value] if field.is_array else value


def _numbered(kind: Primitive, number: int) -> Any:
    if kind in (BYTES, RECORDS):
        return b"bytes %d" % number
    if kind is UUID:
        return number.to_bytes(16, "big")
    return f"text {number}" if kind is STRING else type(kind.zero)(number)  # type: ignore[call-arg]  # `zero` is a number


def structs(value: Struct, version: int) -> list[Struct]:
    """A message and all structs inside it that the version has, outermost first."""
    found = [value]
    for field in value.FIELDS:
        if version not in field.versions:
            continue
        content = getattr(value, field.name)
        for item in content if isinstance(content, list) else [content]:
            found += structs(item, version) if isinstance(item, Struct) else []
    return found
