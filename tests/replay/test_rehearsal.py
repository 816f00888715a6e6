"""Rehearsals: events with mistakes are rejected before a replay starts, all others are accepted."""

from typing import Any

import pytest

from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.rehearsal import rehearse
from fakebroker.replay.workload.workload import Cluster

Table = dict[str, Any]

INVALID: list[tuple[Table, str]] = [
    ({"do": "stop_broker", "node_id": 77}, "event[0].node_id=77: expected one of 1, 2, 3"),
    ({"do": "stop_broker", "node_id": 1, "load_ms": -5}, "event[0].load_ms=-5: expected a number from 0"),
    ({"do": "start_broker", "node_id": 1}, "event[0].node_id=1: expected a broker that is down: there is none"),
    ({"do": "move_coordinator", "group_id": "g", "to": 9}, "to=9: expected one of 1, 2, 3"),
    ({"do": "move_offsets_partition", "partition": 50, "to": 2}, "partition=50: expected 0 to 49"),
    ({"do": "move_offsets_partition", "partition": -1, "to": 2}, "partition=-1: expected 0 to 49"),
    ({"do": "upgrade_broker", "node_id": 1, "as_version": "9.9"}, "9.9"),
    ({"do": "fail", "api": "Foo", "drop": True}, "fault: api='Foo': expected one of "),
    ({"do": "fail", "api": "Heartbeat", "error": "FOO"}, "fault: error='FOO': expected an error of Heartbeat, "),
    (
        {"do": "fail", "api": "Heartbeat", "drop": True, "probability": 3},
        "event[0].probability=3: expected a number > 0 and <= 1",
    ),
    ({"do": "fail", "api": "Heartbeat", "delay_s": ["a", "b"]}, "delay_s[0]='a': expected a number"),
    ({"do": "create_topic", "name": "orders"}, "orders"),
    (
        {"do": "produce", "topic": "news", "values": ["a"]},
        "event[0].topic='news': expected a topic that is not internal",
    ),
    ({"do": "produce", "topic": "orders", "values": "a"}, "event[0].values='a': expected a list"),
    ({"do": "delay_sync", "group_id": "g", "member": "m", "seconds": -5}, "seconds=-5: expected a number >= 0"),
    (
        {"do": "release", "group_id": "g"},
        "event[0].group_id='g': expected a group that is held, but there is none",
    ),
    ({"do": "advance", "seconds": 5}, "do='advance': expected another event: the clock of a replay cannot be advanced"),
    (
        {"do": "fail", "api": "Heartbeat", "then": [{"do": "advance", "seconds": 5}]},
        "do='advance': expected another event: the clock of a replay cannot be advanced",
    ),
    ({"do": "fail", "api": "Heartbeat", "then": {"do": "stop"}}, "event[0].then.do='stop': expected one of "),
    ({"do": "advance_to_next_deadline"}, "do='advance_to_next_deadline': expected another event: "),
]

VALID: list[Table] = [
    {"do": "force_rebalance", "group_id": "g"},
    {"do": "evict", "group_id": "g", "member": "m"},
    {"do": "release_sync", "group_id": "g", "member": "m"},
    {"do": "delay_sync", "group_id": "g", "member": "m"},
    {"do": "hold", "group_id": "g", "state": "PreparingRebalance"},
    {"do": "move_coordinator", "group_id": "g", "to": "none"},
    {"do": "seed_group", "group_id": "g", "members": ["a", "b"], "topics": ["orders"]},
    {"do": "rolling_restart", "load_ms": 300},
    {"do": "add_broker"},
    {"do": "produce", "topic": "orders", "values": ["a", {"base64": "/w=="}], "key": "k"},
    {"do": "fail_append", "group_id": "g", "error": "KAFKA_STORAGE_ERROR"},
    {"do": "fail", "api": "OffsetCommit", "nth": 3, "then": {"do": "stop_broker", "node_id": 1}},
]

OVER_TCP_ONLY: list[tuple[Table, str]] = [
    (
        {"do": "set_broker", "node_id": 1, "accept": "refuse"},
        r"do='set_broker': expected another event: a replay in memory has no sockets",
    ),
    ({"do": "reset"}, r"do='reset': expected another event: a replay in memory has no sockets"),
    ({"do": "fail", "api": "Heartbeat", "cut_bytes": 4}, r"cut_bytes=4: expected no value: a replay in memory"),
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
    stop, seed = {"do": "stop_broker", "node_id": 9}, {"do": "delete_topic", "name": "order"}
    with pytest.raises(ConfigError, match=r"^2 errors\n") as caught:
        run_rehearsal({"at_s": 1, **stop}, {"at_s": 2, "do": "clear_faults"}, {"at_s": 3, **seed})
    assert [mistake.field for mistake in caught.value.mistakes] == ["event[0].node_id", "event[2].name"]


def test_valid_events_are_accepted(subtests: pytest.Subtests) -> None:
    for event in VALID:
        for in_memory in (False, True):
            with subtests.test(event=event, in_memory=in_memory):
                run_rehearsal({"at_s": 1, **event}, in_memory=in_memory)


def test_events_that_need_sockets_are_rejected_in_memory(subtests: pytest.Subtests) -> None:
    seed = {"at_s": 2, "do": "seed_group", "group_id": "g", "members": 1, "topics": ["orders"]}
    for event, expected in OVER_TCP_ONLY:
        with subtests.test(event=event):
            run_rehearsal({"at_s": 1, **event}, seed)
            with pytest.raises(ConfigError, match=expected):
                run_rehearsal({"at_s": 1, **event}, in_memory=True)


def test_events_are_applied_in_the_order_of_their_times() -> None:
    stop, start = {"do": "stop_broker", "node_id": 1}, {"do": "start_broker", "node_id": 1}
    run_rehearsal({"at_s": 3, **stop}, {"at_s": 1, **stop}, {"at_s": 2.5, **start})
    with pytest.raises(ConfigError, match=r"^event\[1\]\.node_id=1: expected a broker that is up: one of 2, 3$"):
        run_rehearsal({"at_s": 1, **stop}, {"at_s": 2, **stop})


def test_arguments_of_events_that_need_sockets_are_validated() -> None:
    with pytest.raises(ConfigError, match=r"^event\[0\]\.node_id=4: expected one of 1, 2, 3$"):
        run_rehearsal({"at_s": 1, "do": "set_broker", "node_id": 4, "accept": "refuse"})
