"""What a version lacks: refused where Kafka refuses it, dropped where Kafka calls it ignorable."""

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
from tests.support.strategies import MESSAGE_VERSIONS, filled, structs


def changed(field: Field, value: Any, version: int) -> Any:
    """Another value for a field than the one it has."""
    if isinstance(field.type, Primitive):
        others = {bool: not value, bytes: b"x" * 16, str: "x", type(None): "x", list: field.type.zero}
        other: Any = value ^ 1 if type(value) is int else others[type(value)]
    else:
        other = filled(field.type, version)
        other.unknown_tags = ((9, b"other"),)
    return [other] if field.is_array else other


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS)
def test_a_value_in_a_field_that_the_version_lacks(cls: type[Message], version: int) -> None:
    message = filled(cls, version)
    before = encode(message, version)

    for item in structs(message, version):
        for field in item.FIELDS:
            if version not in field.versions:
                default = getattr(item, field.name)
                setattr(item, field.name, changed(field, default, version))
                assert_dropped_or_refused(message, version, field, before)
                setattr(item, field.name, default)


def assert_dropped_or_refused(message: Message, version: int, field: Field, before: bytes) -> None:
    if field.ignorable:
        assert encode(message, version) == before
        return
    with pytest.raises(ProtocolError) as caught:
        encode(message, version)
    text = str(caught.value)
    assert text.startswith(f"{type(message).__name__} v{version}: field ")
    assert f"{field.name} cannot be written, it holds " in text
    assert text.endswith(f": version {version} does not carry it")


def test_a_group_instance_id_is_refused_where_no_broker_would_see_it() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="static-1")

    with pytest.raises(ProtocolError) as caught:
        encode(request, 2)

    assert str(caught.value) == (
        "HeartbeatRequest v2: field group_instance_id cannot be written, it holds 'static-1': "
        "version 2 does not carry it"
    )


def test_a_rebalance_timeout_and_a_reason_are_dropped() -> None:
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


def test_the_one_key_and_the_many_keys_of_find_coordinator_exclude_each_other() -> None:
    with pytest.raises(ProtocolError, match="field key cannot be written, it holds 'g': version 4 does not carry it"):
        encode(FindCoordinatorRequest(key="g"), 4)
    with pytest.raises(ProtocolError, match=r"field coordinator_keys cannot be written, it holds \['g'\]: version 3 "):
        encode(FindCoordinatorRequest(coordinator_keys=["g"]), 3)
    with pytest.raises(ProtocolError, match="field members cannot be written"):
        encode(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 2)
