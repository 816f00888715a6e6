"""Events: commands on a cluster as plain data."""

from typing import Any

import pytest

from fakebroker import Broker, ConfigError, FakeCluster
from fakebroker.cluster.handles.definition import checked, commands, perform
from fakebroker.errors import ErrorCode
from fakebroker.validation import read_json


def test_every_event_is_a_documented_method() -> None:
    assert sorted(commands()) == list(commands())
    for name, definition in commands().items():
        assert getattr(definition.handle, definition.method.__name__).__doc__, name


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_events_run_commands(fake_cluster: FakeCluster) -> None:
    home = fake_cluster.group("g").coordinator().node_id
    to = home % 3 + 1
    perform(fake_cluster, {"do": "group.move_coordinator", "group_id": "g", "to": to, "load_ms": "none"})
    assert fake_cluster.group("g").coordinator().node_id == to
    perform(fake_cluster, {"do": "brokers.finish_loading"})
    perform(fake_cluster, {"do": "broker.stop", "node_id": to})
    assert [broker.up for broker in fake_cluster.brokers].count(False) == 1
    perform(fake_cluster, {"do": "broker.start", "node_id": to})
    perform(fake_cluster, {"do": "topic.create", "topic": "returns", "partitions": 4})
    with pytest.raises(ConfigError, match="does not exist yet"):
        perform(fake_cluster, {"do": "topic.create", "topic": "returns"})


INVALID_EVENTS: list[tuple[dict[str, Any], str]] = [
    ({}, "do is missing: expected one of acls.allow, "),
    ({"do": None}, "do=None: expected one of acls.allow, "),
    ({"do": "close"}, "do='close': expected one of acls.allow, "),
    ({"do": "group.evict", "group_id": "g"}, "member is missing: expected a string"),
    ({"do": "broker.stop"}, "node_id is missing: expected an integer"),
    ({"do": "broker.stop", "node_id": "1"}, "node_id='1': expected an integer"),
    ({"do": "broker.stop", "node_id": True}, "node_id=True: expected an integer"),
    ({"do": "broker.stop", "node_id": 1.5}, "node_id=1.5: expected an integer"),
    (
        {"do": "broker.stop", "node_id": 1, "load_ms": "long"},
        "load_ms='long': expected a number from 0 to 1000000000000 or none",
    ),
    (
        {"do": "broker.stop", "node_id": 1, "lose": 1},
        "lose=1: unknown field; expected one of node_id, elect, ",
    ),
    (
        {"do": "inject_fault", "api": "Heartbeat", "error": ["NOT_COORDINATOR"]},
        "error=['NOT_COORDINATOR']: expected ErrorCode or a string or none",
    ),
    (
        {"do": "inject_fault", "api": "Heartbeat", "delay_s": "1"},
        "delay_s='1': expected a number or a list of 2 or none",
    ),
    (
        {"do": "broker.set_network", "node_id": 1, "accept": "no"},
        "accept='no': expected one of normal, slow, half_open, refuse or none",
    ),
    (
        {"do": "group.seed", "group_id": "g", "members": "a"},
        "members='a': expected an integer or a list",
    ),
    (
        {"do": "group.seed", "group_id": "g", "offsets": [1]},
        "offsets=[1]: expected a table or none",
    ),
    (
        {"do": "brokers.add", "like": {"as": "2.8"}},
        "like.as='2.8': unknown field; expected one of as_version, ",
    ),
    ({"do": "brokers.stop_zombies", "node_id": 1}, "node_id=1: unknown field; expected none"),
]
"""Events, with the beginning of the error."""


def test_invalid_events_are_rejected(subtests: pytest.Subtests) -> None:
    for event, error in INVALID_EVENTS:
        with subtests.test(event=event):
            with pytest.raises(ConfigError) as raised:
                checked(event)
            assert str(raised.value).startswith(error)


VALID_EVENTS: list[dict[str, Any]] = [
    {"do": "inject_fault", "api": "Heartbeat", "error": "NOT_COORDINATOR", "delay_s": [0.1, 1]},
    {"do": "inject_fault", "api": None, "error": ErrorCode.NOT_COORDINATOR, "delay_s": (0, 1)},
    {"do": "group.seed", "group_id": "g", "members": ["a"], "topics": ("orders",), "offsets": {"orders-0": 1}},
    {"do": "broker.set_network", "node_id": 1, "accept": "slow", "accept_delay_s": 1},
    {"do": "broker.upgrade", "node_id": 1, "as_version": "2.8", "api_versions": {"JoinGroup": [0, 5]}},
    {"do": "brokers.add", "like": Broker()},
]


def test_arguments_may_be_lists_tables_and_structs(subtests: pytest.Subtests) -> None:
    for event in VALID_EVENTS:
        with subtests.test(event=event):
            name, arguments = checked(event)
            assert name == event["do"]
            assert list(arguments) == [key for key in event if key != "do"]


def test_seeded_members_may_be_tables(fake_cluster: FakeCluster) -> None:
    members = [{"instance_id": "i", "session_timeout_ms": 10_000}, "b", {}]
    perform(fake_cluster, {"do": "group.seed", "group_id": "g", "members": members})
    found = fake_cluster.group("g").describe().members
    assert [(one.client_id, one.instance_id) for one in found] == [
        ("consumer-g-1", "i"),
        ("b", None),
        ("consumer-g-3", None),
    ]
    assert found[0].session_timeout_ms == 10_000


def test_integers_are_accepted_as_numbers() -> None:
    assert checked({"do": "broker.stop", "node_id": 1, "load_ms": 5}) == ("broker.stop", {"node_id": 1, "load_ms": 5})


def test_lines_that_are_not_events_are_rejected(subtests: pytest.Subtests) -> None:
    for line in ["", "{", "[]", "1"]:
        with subtests.test(line=line), pytest.raises(ConfigError, match=r"^event(=|: ).*expected (a table|JSON)"):
            read_json(line, dict[str, Any], name="event")
