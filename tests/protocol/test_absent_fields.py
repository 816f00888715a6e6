"""Values of fields that a version lacks: dropped if Kafka declares them ignorable, errors otherwise."""

from typing import Any

import pytest

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import encode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.schema import Field, Message
from fakebroker.protocol.types import Primitive
from tests.support.message_versions import MESSAGE_VERSIONS, filled, message_subtest, structs


def changed(field: Field, value: Any, version: int) -> Any:
    """Return a value of a field that differs from the given value."""
    if isinstance(field.type, Primitive):
        others = {bool: not value, bytes: b"x" * 16, str: "x", type(None): "x", list: field.type.zero}
        other: Any = value ^ 1 if type(value) is int else others[type(value)]
    else:
        other = filled(field.type, version)
        other.unknown_tags = ((9, b"other"),)
    return [other] if field.is_array else other


def test_values_of_missing_fields_are_dropped_if_ignorable_and_errors_otherwise(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            message = filled(cls, version)
            without = encode(message, version)

            for item in structs(message, version):
                for field in item.FIELDS:
                    if version not in field.versions:
                        default = getattr(item, field.name)
                        setattr(item, field.name, changed(field, default, version))
                        assert_dropped_or_refused(message, version, field, without)
                        setattr(item, field.name, default)


def assert_dropped_or_refused(message: Message, version: int, field: Field, without: bytes) -> None:
    """Check the encoding of a message with a value in a field that the version lacks.

    `without` is the encoding of the message without that value.
    """
    if field.ignorable:
        assert encode(message, version) == without, field.name
        return
    with pytest.raises(ProtocolError) as caught:
        encode(message, version)
    text = str(caught.value)
    assert text.startswith(f"{type(message).__name__} v{version}: field ")
    assert f"{field.name}=" in text
    assert text.endswith(f" cannot be encoded: version {version} does not have this field")


def test_the_group_instance_id_is_an_error_in_versions_without_static_members() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="static-1")

    with pytest.raises(ProtocolError) as caught:
        encode(request, 2)

    assert str(caught.value) == (
        "HeartbeatRequest v2: field group_instance_id='static-1' cannot be encoded: version 2 does not have this field"
    )


def test_rebalance_timeout_and_reason_are_dropped() -> None:
    plain = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[])
    full = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=60000,
        member_id="m",
        protocol_type="consumer",
        protocols=[],
        reason="rejoining",
    )

    assert encode(full, 0) == encode(plain, 0)


def test_single_and_batched_keys_are_errors_in_versions_that_lack_them() -> None:
    with pytest.raises(ProtocolError, match="field key='g' cannot be encoded: version 4 does not have this field"):
        encode(FindCoordinatorRequest(key="g"), 4)
    with pytest.raises(ProtocolError, match=r"field coordinator_keys=\['g'\] cannot be encoded: version 3 "):
        encode(FindCoordinatorRequest(coordinator_keys=["g"]), 3)
    with pytest.raises(ProtocolError, match=r"field members=.* cannot be encoded"):
        encode(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 2)
