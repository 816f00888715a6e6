"""Rehearsals: events with mistakes are rejected before a replay starts, all others are accepted."""

from typing import Any

import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.rehearsal import rehearse
from fakebroker.replay.workload.workload import Cluster

Table = dict[str, Any]

SAME_PARTITION = next(
    name for name in map("g{}".format, range(500)) if partition_for(name, 50) == partition_for("g", 50)
)
"""A group in the offsets partition of the group "g"."""

STABLE: Table = {"is": "group.stable", "group_id": "g"}
IN_SAME_PARTITION: Table = {"is": "group.state", "group_id": SAME_PARTITION, "state": "Empty"}
BROKER_UP: Table = {"is": "broker.up", "node_id": 1}
TOPIC_EXISTS: Table = {"is": "topic.exists", "topic": "orders"}
NOT_SIMULATED = "expected a condition of groups or brokers, or that a topic exists: a replay in memory has no journal"

INVALID: list[tuple[Table, str]] = [
    ({"do": "broker.stop", "node_id": 77}, "event[0].node_id=77: expected one of 1, 2, 3"),
    ({"do": "broker.stop", "node_id": 1, "load_ms": -5}, "event[0].load_ms=-5: expected a number from 0"),
    ({"do": "broker.start", "node_id": 1}, "event[0].node_id=1: expected a broker that is down: there is none"),
    ({"do": "group.move_coordinator", "group_id": "g", "to": 9}, "to=9: expected one of 1, 2, 3"),
    (
        {"do": "partition.move_leader", "topic": "__consumer_offsets", "partition": 50, "to": 2},
        "partition=50: expected an integer from 0 to 49",
    ),
    (
        {"do": "partition.move_leader", "topic": "__consumer_offsets", "partition": -1, "to": 2},
        "partition=-1: expected an integer >= 0",
    ),
    ({"do": "broker.upgrade", "node_id": 1, "as_version": "9.9"}, "9.9"),
    ({"do": "inject_fault", "api": "Foo", "drop": True}, "fault: api='Foo': expected one of "),
    (
        {"do": "inject_fault", "api": "Heartbeat", "error": "FOO"},
        "fault: error='FOO': expected an error of Heartbeat, ",
    ),
    (
        {"do": "inject_fault", "api": "Heartbeat", "drop": True, "probability": 3},
        "event[0].probability=3: expected a number > 0 and <= 1",
    ),
    ({"do": "inject_fault", "api": "Heartbeat", "delay_s": ["a", "b"]}, "delay_s[0]='a': expected a number"),
    ({"do": "topic.create", "topic": "orders"}, "orders"),
    (
        {"do": "topic.produce", "topic": "news", "values": ["a"]},
        "event[0].topic='news': expected a topic that is not internal",
    ),
    ({"do": "topic.produce", "topic": "orders", "values": "a"}, "event[0].values='a': expected a list"),
    ({"do": "group.delay_sync", "group_id": "g", "member": "m", "seconds": -5}, "seconds=-5: expected a number >= 0"),
    (
        {"do": "group.release", "group_id": "g"},
        "event[0].group_id='g': expected a group that is held, but there is none",
    ),
    ({"do": "advance", "seconds": 5}, "do='advance': expected another event: the clock of a replay cannot be advanced"),
    (
        {"do": "inject_fault", "api": "Heartbeat", "then": [{"do": "advance", "seconds": 5}]},
        "do='advance': expected another event: the clock of a replay cannot be advanced",
    ),
    ({"do": "inject_fault", "api": "Heartbeat", "then": {"do": "stop"}}, "event[0].then.do='stop': expected one of "),
    (
        {"do": "inject_fault", "api": "Heartbeat", "then": {"do": "stop_broker", "node_id": 1}},
        "do='stop_broker': expected broker.stop, which is the new name: see CHANGES.md",
    ),
    ({"do": "advance_to_next_deadline"}, "do='advance_to_next_deadline': expected another event: "),
    ({"do": "expect"}, "event[0].condition is missing: expected a value"),
    ({"do": "expect", "condition": "stable"}, "event[0].condition='stable': expected a condition such as {'is': "),
    (
        {"do": "expect", "condition": {"not": {"is": "group.stabel", "group_id": "g"}}},
        "event[0].condition.is='group.stabel': expected one of ",
    ),
    (
        {"do": "expect", "condition": {"is": "group.state", "group_id": "g", "state": "Stabel"}},
        "state='Stabel': expected ",
    ),
    ({"do": "expect", "condition": {"is": "group.stable"}}, "group_id is missing: expected a string"),
]

VALID: list[Table] = [
    {"do": "group.rebalance", "group_id": "g"},
    {"do": "group.evict", "group_id": "g", "member": "m"},
    {"do": "group.release_sync", "group_id": "g", "member": "m"},
    {"do": "group.delay_sync", "group_id": "g", "member": "m"},
    {"do": "group.hold", "group_id": "g", "state": "PreparingRebalance"},
    {"do": "group.move_coordinator", "group_id": "g", "to": "none"},
    {"do": "group.seed", "group_id": "g", "members": ["a", "b"], "topics": ["orders"]},
    {"do": "brokers.rolling_restart", "load_ms": 300},
    {"do": "brokers.add"},
    {"do": "topic.produce", "topic": "orders", "values": ["a", {"base64": "/w=="}], "key": "k"},
    {"do": "group.fail_append", "group_id": "g", "error": "KAFKA_STORAGE_ERROR"},
    {"do": "inject_fault", "api": "OffsetCommit", "nth": 3, "then": {"do": "broker.stop", "node_id": 1}},
    {"do": "expect", "condition": STABLE},
    {"do": "expect", "condition": {"any": [STABLE, {"all": [{"not": IN_SAME_PARTITION}, BROKER_UP, TOPIC_EXISTS]}]}},
    {"do": "expect", "condition": {"is": "group.member", "group_id": "g", "member": "g-0", "state": "STABLE"}},
    {"do": "holds", "condition": STABLE},
    {"do": "inject_fault", "api": "Heartbeat", "then": {"do": "expect", "condition": BROKER_UP}},
    {"do": "inject_fault", "api": "Heartbeat", "group": SAME_PARTITION, "then": {"do": "expect", "condition": STABLE}},
]

OVER_TCP_ONLY: list[tuple[Table, str]] = [
    (
        {"do": "broker.set_network", "node_id": 1, "accept": "refuse"},
        r"do='broker.set_network': expected another event: a replay in memory has no sockets",
    ),
    ({"do": "reset"}, r"do='reset': expected another event: a replay in memory has no sockets"),
    ({"do": "inject_fault", "api": "Heartbeat", "cut_bytes": 4}, r"cut_bytes=4: expected no value: a replay in memory"),
    (
        {"do": "expect", "condition": {"all": [STABLE, {"is": "group.stable", "group_id": "h"}]}},
        r"condition=\"group\('g'\)\.stable\(\) & group\('h'\)\.stable\(\)\": expected groups of one partition of "
        r"__consumer_offsets, because .*; 'g' is in partition 3, 'h' is in partition 4$",
    ),
    (
        {"do": "holds", "condition": {"not": {"any": [STABLE, {"is": "group.stable", "group_id": "h"}]}}},
        "expected groups of one partition",
    ),
    ({"do": "expect", "condition": {"is": "requested", "api": "Heartbeat"}}, NOT_SIMULATED),
    ({"do": "expect", "condition": {"is": "topic.has", "topic": "orders", "at_least": 1}}, NOT_SIMULATED),
    (
        {
            "do": "expect",
            "condition": {"all": [STABLE, {"is": "transaction.state", "transactional_id": "t", "state": "Empty"}]},
        },
        NOT_SIMULATED,
    ),
    (
        {"do": "inject_fault", "api": "Heartbeat", "then": {"do": "expect", "condition": STABLE}},
        "expected no groups, unless the fault has `group`: a replay in memory simulates each partition",
    ),
    (
        {"do": "inject_fault", "api": "Heartbeat", "group": "h", "then": [{"do": "expect", "condition": STABLE}]},
        "expected groups of one partition",
    ),
]


def run_rehearsal(*events: Table, in_memory: bool = False) -> None:
    rehearse(Cluster(), {"orders": 2}, events, in_memory=in_memory)


def test_invalid_events_are_rejected_with_their_place(subtests: pytest.Subtests) -> None:
    for event, expected in INVALID:
        for in_memory in (False, True):
            with subtests.test(event=event, in_memory=in_memory):
                with pytest.raises(ConfigError) as caught:
                    run_rehearsal({"at_s": 1, **event}, in_memory=in_memory)
                assert all(str(mistake).startswith("event[0]") for mistake in caught.value.mistakes)
                assert expected in str(caught.value)


def test_the_mistakes_of_all_events_are_reported_at_once() -> None:
    stop, seed = {"do": "broker.stop", "node_id": 9}, {"do": "topic.delete", "topic": "order"}
    with pytest.raises(ConfigError, match=r"^2 errors\n") as caught:
        run_rehearsal({"at_s": 1, **stop}, {"at_s": 2, "do": "clear_faults"}, {"at_s": 3, **seed})
    assert [mistake.field for mistake in caught.value.mistakes] == ["event[0].node_id", "event[2].topic"]


def test_valid_events_are_accepted(subtests: pytest.Subtests) -> None:
    for event in VALID:
        for in_memory in (False, True):
            with subtests.test(event=event, in_memory=in_memory):
                run_rehearsal({"at_s": 1, **event}, in_memory=in_memory)


def test_events_that_need_sockets_are_rejected_in_memory(subtests: pytest.Subtests) -> None:
    seed = {"at_s": 2, "do": "group.seed", "group_id": "g", "members": 1, "topics": ["orders"]}
    for event, expected in OVER_TCP_ONLY:
        with subtests.test(event=event):
            run_rehearsal({"at_s": 1, **event}, seed)
            with pytest.raises(ConfigError, match=expected):
                run_rehearsal({"at_s": 1, **event}, in_memory=True)


def test_events_are_applied_in_the_order_of_their_times() -> None:
    stop, start = {"do": "broker.stop", "node_id": 1}, {"do": "broker.start", "node_id": 1}
    run_rehearsal({"at_s": 3, **stop}, {"at_s": 1, **stop}, {"at_s": 2.5, **start})
    with pytest.raises(ConfigError, match=r"^event\[1\]\.node_id=1: expected a broker that is up: one of 2, 3$"):
        run_rehearsal({"at_s": 1, **stop}, {"at_s": 2, **stop})


def test_arguments_of_events_that_need_sockets_are_validated() -> None:
    with pytest.raises(ConfigError, match=r"^event\[0\]\.node_id=4: expected one of 1, 2, 3$"):
        run_rehearsal({"at_s": 1, "do": "broker.set_network", "node_id": 4, "accept": "refuse"})
