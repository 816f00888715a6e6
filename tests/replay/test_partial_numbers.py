"""The numbers of a replay, counted in one pass and in parts."""

import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.members.events import SCHEMA, Event, Source
from fakebroker.replay.report.number_rows import number_rows, numbers_from, rebalance_rows
from fakebroker.replay.report.partial_numbers import Bounds, Facts, Partial, bounds_of, merged, partial_numbers
from fakebroker.replay.report.series import MOST_SLICES, Row, slice_length_ms
from fakebroker.replay.run_summary import RequestNumbers
from fakebroker.replay.script.script import Act, Action, Script
from fakebroker.replay.wording import error_name
from fakebroker.replay.workload.expectations import METRICS
from tests.support.replay.plain_numbers import plain_numbers
from tests.support.replay.recorded_events import (
    HEALTHY,
    PARTITIONS,
    TRANSACTIONAL,
    ended,
    initialized,
    member,
    produced,
    read,
    still_open,
    stored,
    table,
)
from tests.support.replay.simulated_replays import play_in_memory, script, two_broker_settings
from tests.support.soak import sampled, soak

TWO = [member("g-0"), member("g-1")]
MEMBERS, LOAD = {"source": "members"}, {"source": "load"}

# Generation 1: member 0 alone; the response to its first JoinGroup is MEMBER_ID_REQUIRED. Generation 2: member 1 joins,
# and member 0 gets REBALANCE_IN_PROGRESS for a heartbeat. Member 1 leaves, member 0 crashes; one heartbeat of member 0
# was lost and one is pending at the end.
EVENTS = [
    Event(1_000, 1_000, None, "start", -1, -1, "g", "g-0", kind="act"),
    Event(1_000, 1_000, 2_000, "FindCoordinator", 6, 1, "g", lookups=1, error=0),
    Event(3_000, 3_500, 1_000, "JoinGroup", 9, 2, "g", "g-0", error=79),
    Event(4_000, 4_000, 6_000, "JoinGroup", 9, 2, "g", "g-0", 1, 0),
    Event(10_000, 10_000, 4_000, "SyncGroup", 5, 2, "g", "g-0", 1, 0, assigned=["orders-0", "orders-1"]),
    Event(20_000, 20_000, None, "start", -1, -1, "g", "g-1", kind="act"),
    Event(20_000, 20_000, 1_000, "JoinGroup", 9, 2, "g", "g-1", error=79),
    Event(21_000, 21_000, 19_000, "JoinGroup", 9, 2, "g", "g-1", 2, 0),
    Event(30_000, 31_000, 2_000, "Heartbeat", 4, 2, "g", "g-0", 1, 27),
    Event(35_000, 35_000, 5_000, "JoinGroup", 9, 2, "g", "g-0", 2, 0),
    Event(40_000, 40_000, 5_000, "SyncGroup", 5, 2, "g", "g-1", 2, 0, assigned=["orders-1"]),
    Event(40_000, 40_000, 3_000, "SyncGroup", 5, 2, "g", "g-0", 2, 0, assigned=["orders-0"]),
    Event(50_000, 50_000, 900, "Heartbeat", 4, 2, "g", "g-0", 2, 0, count=96, until_us=145_000),
    Event(60_000, 60_000, None, "Heartbeat", 4, 2, "g", "g-0", 2, missing="lost", until_us=900_000),
    Event(61_000, 61_000, None, "Heartbeat", 4, 2, "g", "g-0", 2, missing="cut off"),
    Event(100_000, 100_000, None, "leave", -1, -1, "g", "g-1", kind="act"),
    Event(100_000, 100_000, 1_000, "LeaveGroup", 5, 2, "g", "g-1", error=0),
    Event(151_000, 151_000, None, "crash", -1, -1, "g", "g-0", kind="act"),
]


SCRIPTS = pa.schema(
    [
        ("population", pa.string()),
        ("group", pa.string()),
        ("member", pa.string()),
        ("topics", pa.list_(pa.string())),
        ("assignor", pa.string()),
        ("session_timeout_ms", pa.int32()),
    ]
)
"""The columns of scripts that the numbers depend on."""


def scripts_of(members: Sequence[Script]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in members], SCRIPTS)


def counted(
    events: pa.Table,
    members: Sequence[Script],
    *,
    parts: int = 1,
    partitions: Mapping[str, int] = PARTITIONS,
    measure_from_s: float | None = None,
) -> tuple[Partial, Facts]:
    """Return the counts of a replay.

    Args:
        events: The events.
        members: The scripts.
        parts: Number of parts among which the groups are divided.
        partitions: Partition counts by topic.
        measure_from_s: Beginning of the steady state.
    """
    tables = (
        [(events, members)]
        if parts == 1
        else [
            (
                events.filter(
                    pa.array([part_of(name, parts) == part for name in events["group"].to_pylist()], pa.bool_())
                ),
                [each for each in members if part_of(each.group, parts) == part],
            )
            for part in range(parts)
        ]
    )
    bounds = sum((bounds_of(part) for part, _ in tables), Bounds())
    first_act_ms = min(each.acts[0].at_ms for each in members)
    facts = Facts.of(bounds, first_act_ms, 50, partitions, measure_from_s)
    found = [pickle.dumps(partial_numbers(part, scripts_of(here), facts)) for part, here in tables]
    return merged(map(pickle.loads, found)), facts


def part_of(group: str | None, parts: int) -> int:
    return crc32((group or "").encode()) % parts


def numbers(events: Sequence[Event], members: Sequence[Script], **more: Any) -> dict[str, Any]:
    """Return the numbers of a replay as plain data. For the arguments see `counted`."""
    return dict(msgspec.to_builtins(numbers_from(*counted(table_of(events), members, **more))))


def table_of(events: Sequence[Event]) -> pa.Table:
    return table(events) if events else pa.Table.from_batches([], SCHEMA)


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return numbers(EVENTS, TWO)


@soak
@pytest.mark.parametrize("seed", sampled(range(24), 6))
def test_the_numbers_are_those_of_the_plain_implementation(seed: int) -> None:
    """Random members use both protocols, leave, crash and return while a broker fails; latencies are random."""
    events, members = random_play(seed, folds=False)
    check_against_plain(events, members, ())


@soak
@pytest.mark.parametrize("seed", sampled(range(24), 4))
def test_only_quantiles_depend_on_folded_heartbeats(seed: int) -> None:
    """The plain implementation takes the longest latency for all heartbeats of a row."""
    events, members = random_play(seed, folds=True)
    assert any(row["count"] > 1 for row in events)
    check_against_plain(events, members, ("p50_ms", "p99_ms", "p99_9_ms"))


def check_against_plain(events: Sequence[Row], members: Sequence[Script], ignored: Sequence[str]) -> None:
    """Check the numbers that the plain implementation has.

    Args:
        events: The events.
        members: The scripts.
        ignored: The fields of requests that may differ.
    """
    plain = plain_numbers([dict(row) for row in events], members, 50, TOPICS)
    found = numbers_from(*counted(pa.Table.from_pylist(events, SCHEMA), members, partitions=TOPICS))

    def known(rows: Iterable[RequestNumbers]) -> list[str]:
        new = ("undelayed_p50_ms", "undelayed_p99_ms", "undelayed_p99_9_ms", "undelayed_max_ms", "known_latencies")
        return sorted(repr(replace(row, **dict.fromkeys((*new, *ignored)))) for row in rows)

    for name in ("apis", "subtotals"):
        assert known(getattr(found, name)) == known(getattr(plain, name))
    for name in ("total", "never_parked", "parked"):
        assert known([getattr(found, name)]) == known([getattr(plain, name)])
    for name in ("groups", "span_s", "errors", "populations"):
        assert getattr(found, name) == getattr(plain, name)
    assert sorted(map(repr, found.brokers)) == sorted(map(repr, plain.brokers))
    assert sorted(map(repr, found.lookups)) == sorted(map(repr, plain.lookups))
    assert replace(found.rebalances, distribution=[]) == plain.rebalances
    partitions = [replace(row, broker=None) for row in found.offsets_partitions.partitions]
    assert partitions == sorted(plain.offsets_partitions.partitions, key=lambda row: row.partition)
    metrics = {
        name: value
        for name, value in plain.metrics.items()
        if not name.startswith("undelayed_") and name not in ignored
    }
    assert {name: found.metrics[name] for name in metrics} == metrics


TOPICS = {"orders": 4, "payments": 3}


def random_play(seed: int, *, folds: bool) -> tuple[list[Row], list[Script]]:
    """Return the events and scripts of a small random replay."""
    rng = np.random.default_rng(seed)
    members = []
    for index in range(int(rng.integers(3, 7))):
        group = f"group-{seed}-{index}"
        kind: dict[str, Any] = {
            "population": ("one", "other")[index % 2],
            "assignor": ("range", "cooperative-sticky")[int(rng.integers(2))],
            "protocol": ("classic", "consumer")[int(rng.integers(2))],
            "topics": (("orders",), ("orders", "payments"))[int(rng.integers(2))],
        }
        for number in range(int(rng.integers(1, 5))):
            at_ms = np.cumsum(rng.integers(0, 12_000, 4)).tolist()
            leave: Action = "leave" if rng.integers(2) else "crash"
            names: Sequence[Action] = ("start", leave, "start", "leave")[: int(rng.integers(1, 5))]
            acts = [Act(float(at), name) for at, name in zip(at_ms, names, strict=False)]
            instance_id = f"{group}-{number}" if rng.random() < 0.3 else None
            members.append(script(group, number, *acts, instance_id=instance_id, **kind))
    outage = [{"at_s": 9, "do": "broker.stop", "node_id": 1}, {"at_s": 13, "do": "broker.start", "node_id": 1}]
    settings = two_broker_settings(30.0, events=outage if seed % 2 else (), topics=TOPICS, folds=folds)
    events: list[Row] = []
    for partition in sorted({partition_for(each.group, 50) for each in members}):
        here = [each for each in members if partition_for(each.group, 50) == partition]
        events += play_in_memory(here, settings, partition=partition)[1]
    return [
        {**row, "latency_us": row["latency_us"] + int(rng.lognormal(7, 2))}
        if row["latency_us"] is not None and row["api"] in ("Heartbeat", "OffsetCommit", "OffsetFetch")
        else row
        for row in events
    ], members


@pytest.mark.parametrize("parts", [2, 5])
def test_the_sum_of_parts_is_the_whole(parts: int) -> None:
    """Some parts have no events, and groups without members are in other parts than those without events."""
    events, members = random_play(3, folds=True)
    members.append(script("without-events", 0))
    whole, in_parts = (
        numbers_from(*counted(pa.Table.from_pylist(events, SCHEMA), members, parts=count, partitions=TOPICS))
        for count in (1, parts)
    )
    assert whole == in_parts


def test_rows_of_further_groups_of_a_look_up_are_no_requests() -> None:
    asked = Event(1_000, 1_000, 2_000, "FindCoordinator", 6, 1, lookups=2, error=0)
    found, _ = counted(table([*EVENTS, asked, asked._replace(count=0)]), TWO)
    assert sum(row["keys"] for row in found["lookups"].to_pylist()) == 109 + 2


NUMBERS = itertools.count()


def beats(latency_ms: float, count: int = 1, times: int = 1, broker: int = 1, late_ms: float = 0.0) -> list[Event]:
    """Return rows of heartbeats, each of another member.

    Args:
        latency_ms: Their latency from when they were due; if they are folded, the longest.
        count: Number of heartbeats in a row.
        times: Number of rows.
        broker: Node id.
        late_ms: How late they were sent.
    """
    until_us = 1_000_000 + 100_000 * (count - 1) if count > 1 else None
    sent_us, latency_us = 1_000_000 + round(1000 * late_ms), round(1000 * latency_ms)
    event = Event(
        1_000_000, sent_us, latency_us, "Heartbeat", 4, broker, "g", "g-0", 1, 0, count=count, until_us=until_us
    )
    return [event._replace(member=f"g-{next(NUMBERS)}") for _ in range(times)]


def heartbeat_row(events: Sequence[Event], parts: int = 1) -> Row:
    """Return the row of all heartbeats."""
    rows = number_rows(*counted(table(events), TWO, parts=parts))["latencies"]
    return next(
        row
        for row in rows
        if (row["source"], row["api"]) == ("members", "Heartbeat") and row["slice"] is row["is_steady"] is None
    )


def latencies(row: Row, prefix: str = "") -> list[float | None]:
    return [row[f"{prefix}{name}_ms"] for name in ("p50", "p99", "p99_9", "max")]


def test_one_long_latency_does_not_count_for_all_folded_heartbeats() -> None:
    """The others of its row are at most as long, and so distributed like the other latencies."""
    row = heartbeat_row([*beats(2, times=10), *beats(28, count=100)])
    assert (row["requests"], row["known_latencies"], latencies(row)) == (110, 11, [2, 2, 28, 28])


def test_latencies_up_to_the_longest_of_each_row_are_estimated() -> None:
    """Of 30 heartbeats, 1 has 7 ms. 9 have at most 7 ms, like the 20 others, of which 1 has 6 ms, and so on."""
    row = heartbeat_row([*beats(5, count=10), *beats(6, count=10), *beats(7, count=10)])
    assert (row["known_latencies"], latencies(row)) == (3, [5, 7, 7, 7])
    row = heartbeat_row([*beats(5, count=2), *beats(6, count=2), *beats(7, count=1, times=4)])
    assert latencies(row) == [6, 7, 7, 7]  # 3/8 have 5 ms, as 1.5 of 4 (6 ms: 1; at most 6 ms, like 5 ms: 1)


def test_latencies_are_estimated_for_each_broker() -> None:
    """The heartbeats to a slow broker do not count as fast ones."""
    row = heartbeat_row([*beats(1, times=100), *beats(50, count=100, broker=2)])
    assert (row["known_latencies"], latencies(row)) == (101, [1, 50, 50, 50])


def test_latencies_without_the_delay_of_the_replay() -> None:
    """Of folded heartbeats, it is not known how late the slowest was sent: the value is an upper bound."""
    row = heartbeat_row([*beats(30, times=50, late_ms=28), *beats(3, times=50)])
    assert (latencies(row), latencies(row, "undelayed_")) == ([3, 30, 30, 30], [2, 3, 3, 3])
    row = heartbeat_row([*beats(30, times=8, late_ms=28), *beats(30, count=2, late_ms=28)])
    assert (latencies(row), latencies(row, "undelayed_")) == ([30, 30, 30, 30], [2, 30, 30, 30])


def test_time_for_which_a_member_waits_for_its_coordinator_is_no_delay_of_the_replay() -> None:
    """The heartbeat is due at 1,000 ms. Its group's coordinator is found at 1,900 ms, the other group's at 1,990."""
    beat = Event(1_000_000, 2_000_000, 1_010_000, "Heartbeat", 4, 1, "g", "g-0", 1, 0)
    lookups = [
        Event(
            1_500_000, 1_500_000, latency_us, "FindCoordinator", 6, 1, lookups=1, error=0, found=[(group, 1, 0, True)]
        )
        for group, latency_us in (("g", 100_000), ("g", 400_000), ("h", 490_000))
    ]
    row = heartbeat_row([beat])
    assert (latencies(row), latencies(row, "undelayed_")) == ([1010] * 4, [10] * 4)
    row = heartbeat_row([beat, *lookups])
    assert (latencies(row), latencies(row, "undelayed_")) == ([1010] * 4, [910] * 4)
    row = heartbeat_row([beat, *lookups, lookups[0]._replace(latency_us=500_000)])  # found when it is sent
    assert latencies(row, "undelayed_") == [1010] * 4


@pytest.mark.parametrize("ended", [{"latency_us": 800_000}, {"latency_us": None, "until_us": 1_800_000}])
def test_time_for_which_a_member_waits_for_a_response_is_no_delay_of_the_replay(ended: dict[str, Any]) -> None:
    commit = Event(1_000_000, 1_000_000, None, "OffsetCommit", 4, 1, "g", "g-0", 1, 0)._replace(**ended)
    beat = Event(1_000_000, 2_000_000, 1_010_000, "Heartbeat", 4, 1, "g", "g-0", 1, 0)
    assert heartbeat_row([commit, beat])["undelayed_max_ms"] == 810


@pytest.mark.parametrize("count", [5, 50])
def test_estimates_of_independent_latencies_are_close(count: int) -> None:
    """The 99th percentile is estimated from the longest latencies of rows, the median from single heartbeats."""
    rng = np.random.default_rng(count)
    rows = rng.lognormal(1, 0.8, (4_000, count))
    alone = rng.lognormal(1, 0.8, 2_000)
    events = [beat for longest in rows.max(axis=1) for beat in beats(longest, count=count)]
    row = heartbeat_row([*events, *(beat for latency in alone for beat in beats(latency))])
    true = np.quantile(np.concatenate([rows.ravel(), alone]), (0.5, 0.99, 0.999))
    assert latencies(row)[:3] == pytest.approx(true, rel=0.1)
    longest = np.quantile(np.concatenate([rows.max(axis=1).repeat(count), alone]), 0.5)
    assert longest > 1.8 * true[0]


def test_numbers_of_events_made_by_hand(summary: dict[str, Any]) -> None:
    apis = {row["api"]: row for row in summary["apis"]}
    assert (summary["span_s"], summary["began_us"]) == (0.15, 1_000)
    assert list(apis) == ["FindCoordinator", "Heartbeat", "JoinGroup", "LeaveGroup", "SyncGroup"]
    heartbeats = {
        "api": "Heartbeat",
        "source": "members",
        "requests": 99,
        "requests_per_s": 660.0,
        "p50_ms": 0.9,
        "p99_ms": 2,  # the highest of 97 responses
        "p99_9_ms": 2,
        "max_ms": 2,
        "unexpected_errors": 0,
        "lost": 1,
        "unanswered": 0,
        "cut_off": 1,
    }
    assert {name: apis["Heartbeat"][name] for name in heartbeats} == heartbeats
    assert (apis["JoinGroup"]["requests"], apis["JoinGroup"]["p50_ms"], apis["JoinGroup"]["max_ms"]) == (5, 5, 19)
    assert summary["total"]["requests"] == 109
    # From 4,000 to 14,000 and from 21,000 to 45,000.
    assert summary["rebalances"] == {
        "generations": 2,
        "count": 2,
        "p50_ms": 10,
        "p99_ms": 24,
        "max_ms": 24,
        "distribution": [{"from_ms": 10, "count": 1}, {"from_ms": 20, "count": 1}],
    }
    assert summary["errors"] == [
        {"name": "MEMBER_ID_REQUIRED", "code": 79, "api": "JoinGroup", **MEMBERS, "requests": 2, "ordinary": True},
        {"name": "REBALANCE_IN_PROGRESS", "code": 27, "api": "Heartbeat", **MEMBERS, "requests": 1, "ordinary": True},
    ]
    assert summary["brokers"] == [
        {"broker": 1, "requests": 1, "share": round(1 / 109, 4), "groups": 0},
        {"broker": 2, "requests": 108, "share": round(108 / 109, 4), "groups": 1},
    ]
    assert summary["sent_late"] == {"p50_ms": 0, "p99_ms": 0.5, "max_ms": 1}  # the 108th of 109
    keys = {"requests": 1, "keys": 1, "most_in_one_request": 1}
    assert summary["lookups"] == [{"api": "FindCoordinator", **MEMBERS, **keys}]
    assert [(row["api"], row["source"], row["requests"]) for row in summary["subtotals"]] == [("all", "members", 109)]
    assert summary["broker_skew_by_chance"] == [2, 2]
    # Member 0 from 1,000 to 14,000 and from 35,000 to 43,000; member 1 from 20,000 to 45,000.
    waited = {"generations": 2, "unassigned_member_s": 0.046, "longest_rebalance_ms": 24}
    # Two partitions from 1,000 to 151,000, without those of member 0 (both from 14,000 to 35,000, one from 43,000 on)
    # and of member 1 (one from 45,000 to 100,000).
    counts = {"groups": 1, "members": 2, "members_joined": 2, "unassigned_partition_s": 0.095}
    assert summary["populations"] == [{"population": "all", **counts, **waited}]
    assert summary["slowest_groups"] == [{"group": "g", "population": "all", "members": 2, **waited}]
    assert summary["offsets_partitions"] == {
        "count": 50,
        "groups_skew": 50,
        "groups_skew_by_chance": [50, 50],
        "requests_skew": 50,
        "requests_skew_by_chance": [50, 50],
        "partitions": [{"partition": partition_for("g", 50), "broker": 2, "groups": 1, "requests": 109}],
    }


def test_latencies_of_parked_requests_are_apart(summary: dict[str, Any]) -> None:
    """A JoinGroup or SyncGroup is answered when the group is ready, which says nothing about the broker's latency."""
    latencies = {name: (summary[name]["requests"], summary[name]["max_ms"]) for name in ("never_parked", "parked")}
    assert latencies == {"never_parked": (101, 2), "parked": (8, 19)}
    assert (summary["total"]["requests"], summary["total"]["max_ms"], summary["metrics"]["max_ms"]) == (109, 2, 2)


def test_the_steady_state_begins_when_all_members_have_joined(summary: dict[str, Any]) -> None:
    # Member 1 has its first assignment at 45,000; the next slice begins at 51,000.
    startup, steady = summary["startup"], summary["steady"]
    assert summary["measure_from_s"] == startup["until_s"] == steady["from_s"] == 0.05
    assert (startup["from_s"], steady["until_s"]) == (0, 0.15)
    assert (startup["parked"]["requests"], steady["parked"]["requests"]) == (8, 0)
    assert {row["api"]: row["requests"] for row in startup["apis"]} == {
        "FindCoordinator": 1,
        "Heartbeat": 2,
        "JoinGroup": 5,
        "SyncGroup": 3,
    }
    assert {row["api"]: row["requests"] for row in steady["apis"]} == {"Heartbeat": 97, "LeaveGroup": 1}
    assert steady["never_parked"]["requests_per_s"] == 980.0


def test_the_workload_may_define_the_steady_state(subtests: pytest.Subtests) -> None:
    for measure_from_s, begins_s, counts in ((0.0, 0.0, (0, 109)), (0.01, 0.05, (11, 98)), (9.0, None, (109, 0))):
        with subtests.test(measure_from_s=measure_from_s):
            found = numbers(EVENTS, TWO, measure_from_s=measure_from_s)
            assert found["measure_from_s"] == begins_s
            assert (
                tuple(
                    phase["never_parked"]["requests"] + phase["parked"]["requests"] if phase else 0
                    for phase in (found["startup"], found["steady"])
                )
                == counts
            )


def test_without_all_members_there_is_no_steady_state() -> None:
    found = numbers(EVENTS, [*TWO, member("g-2")])
    assert (found["measure_from_s"], found["steady"]) == (None, None)
    assert (found["startup"]["until_s"], found["startup"]["never_parked"]["requests"]) == (0.15, 101)


def test_every_metric_for_expectations_is_computed(summary: dict[str, Any]) -> None:
    assert [name for name in METRICS if name not in summary["metrics"]] == ["errors.<NAME>", "groups_per_request"]


def test_numbers_over_time(summary: dict[str, Any]) -> None:
    over_time = summary["over_time"]
    # Three slices of 50 ms from 1,000 to 151,000 µs ...
    assert (over_time["slice_s"], over_time["slices"]) == (0.05, 3)
    heartbeats = next(row for row in over_time["apis"] if row["api"] == "Heartbeat")
    # ... with heartbeats at 31,000, each 1,000 from 50,000 to 145,000, at 60,000 and at 61,000.
    assert heartbeats["requests_per_s"] == [40, 1040, 900]
    assert heartbeats["p99_ms"] == [2, 0.9, 0.9]
    assert [row.pop("population") for row in over_time["populations"]] == ["all"]
    assert over_time["populations"] == [{what: over_time[what] for what in ("groups", "members", "rebalances")}]
    # The group was rebalancing from 4,000 to 14,000 and from 21,000 to 45,000.
    assert over_time["groups"] == {
        "stable": [0.26, 1, 1],
        "rebalancing": [0.74, 0, 0],  # also from 1,000 to 4,000, before the first JoinGroup
        "unknown": [0, 0, 0],
        "empty": [0, 0, 0],
    }
    # Member 0 was assigned from 14,000 to 35,000 and from 43,000 on, member 1 from 45,000 to 100,000.
    assert over_time["members"] == {
        "assigned": [0.7, 1.98, 1],
        "waiting": [0.92, 0, 0],
        "unknown": [0, 0, 0],
        "gone": [0.38, 0.02, 1],
    }
    assert over_time["rebalances"] == {"count": [2, 0, 0], "p50_ms": [10, None, None], "max_ms": [24, None, None]}
    assert over_time["errors"] == [
        {"name": "REBALANCE_IN_PROGRESS", "api": "Heartbeat", **MEMBERS, "answers": [1, 0, 0]},
        {"name": "MEMBER_ID_REQUIRED", "api": "JoinGroup", **MEMBERS, "answers": [2, 0, 0]},
    ]


def test_requests_of_members_and_of_loads_are_counted_apart() -> None:
    """Members find coordinators and fetch offsets as loads do: each kind has its own counts, latencies and errors."""

    def sent(at_us: int, api: str, latency_us: int, source: Source, lookups: int | None, error: int = 0) -> Event:
        return Event(at_us, at_us, latency_us, api, 6, 1, lookups=lookups, error=error, source=source)

    events = [
        *(sent(number * 10_000, "FindCoordinator", 1_000, "members", 1) for number in range(20)),
        *(sent(number * 100_000, "FindCoordinator", 9_000, "load", 1_000) for number in range(10)),
        *(sent(number * 10_000, "OffsetFetch", 2_000, "members", None) for number in range(4)),
        sent(50_000, "OffsetFetch", 3_000, "load", 30, error=16),
        sent(60_000, "DescribeGroups", 4_000, "load", 7),
    ]
    summary = numbers(events, TWO)
    rows = {(row["api"], row["source"]): (row["requests"], row["p50_ms"], row["max_ms"]) for row in summary["apis"]}
    assert rows == {
        ("DescribeGroups", "load"): (1, 4, 4),
        ("FindCoordinator", "members"): (20, 1, 1),
        ("FindCoordinator", "load"): (10, 9, 9),
        ("OffsetFetch", "members"): (4, 2, 2),
        ("OffsetFetch", "load"): (1, 3, 3),
    }
    sums = {
        (row["api"], row["source"]): (row["requests"], row["p50_ms"], row["max_ms"]) for row in summary["subtotals"]
    }
    assert sums == {
        ("all", "members"): (24, 1, 2),
        ("all", "load"): (12, 9, 9),
        ("FindCoordinator", "all"): (30, 1, 9),
        ("OffsetFetch", "all"): (5, 2, 3),
    }
    assert (summary["total"]["source"], summary["total"]["requests"]) == ("all", 36)
    keys = {(row["api"], row["source"]): (row["keys"], row["most_in_one_request"]) for row in summary["lookups"]}
    assert keys == {
        ("DescribeGroups", "load"): (7, 7),
        ("FindCoordinator", "members"): (20, 1),
        ("FindCoordinator", "load"): (10_000, 1_000),
        ("OffsetFetch", "members"): (4, 1),
        ("OffsetFetch", "load"): (30, 30),
    }
    over_time = {(row["api"], row["source"]): sum(row["requests_per_s"]) for row in summary["over_time"]["apis"]}
    slice_s = summary["over_time"]["slice_s"]
    assert {key: round(rate * slice_s) for key, rate in over_time.items()} == {key: row[0] for key, row in rows.items()}
    error = {"name": "NOT_COORDINATOR", "api": "OffsetFetch", **LOAD}
    assert summary["errors"] == [{**error, "code": 16, "requests": 1, "ordinary": False}]
    assert [(row["source"], sum(row["answers"])) for row in summary["over_time"]["errors"]] == [("load", 1)]


def test_the_time_without_an_assignment() -> None:
    """A cooperative member keeps its assignment while it joins; a removed one has none; one that left needs none."""
    events = []
    for name in ("coop", "eager"):
        events += [
            Event(1_000_000, 1_000_000, None, "start", -1, -1, name, name, kind="act"),
            Event(1_000_000, 1_000_000, 1_000_000, "JoinGroup", 9, 1, name, name, 1, 0),
            Event(2_000_000, 2_000_000, 1_000_000, "SyncGroup", 5, 1, name, name, 1, 0, assigned=[]),
            Event(4_000_000, 4_000_000, 2_000_000, "JoinGroup", 9, 1, name, name, 2, 0),
            Event(6_000_000, 6_000_000, 1_000_000, "SyncGroup", 5, 1, name, name, 2, 0, assigned=["orders-0"]),
            Event(8_000_000, 8_000_000, 1_000_000, "Heartbeat", 4, 1, name, name, 2, 25),
            Event(11_000_000, 11_000_000, None, "leave", -1, -1, name, name, kind="act"),
            Event(20_000_000, 20_000_000, 1_000, "Heartbeat", 4, 1, name, name, 2, 25),
        ]
    members = [
        member("coop", group="coop", assignor="cooperative-sticky", population="one"),
        member("eager", group="eager", population="other"),
        member("never", group="never", population="other"),
    ]
    summary = numbers(events, members)
    assert {row["population"]: row["unassigned_member_s"] for row in summary["populations"]} == {"one": 4, "other": 7}
    assert {row["population"]: row["members_joined"] for row in summary["populations"]} == {"one": 1, "other": 1}
    assert summary["metrics"]["unassigned_member_s"] == 11
    assert summary["metrics"]["errors.UNKNOWN_MEMBER_ID"] == summary["metrics"]["unexpected_errors"] == 4
    assert summary["over_time"]["groups"]["empty"][-1] == 3


def test_a_rebalance_of_the_consumer_protocol_ends_with_the_last_partition_of_its_epoch() -> None:
    """Member 0 has both partitions in epoch 1; member 1 joins, and gets the partition that member 0 gives up."""
    events = [
        Event(0, 0, None, "start", -1, -1, "g", "g-0", kind="act"),
        heartbeat(1_000, "g-0", 0, 1, assigned=["orders-0", "orders-1"]),
        heartbeat(2_000, "g-0", 1, 1, owned=["orders-0", "orders-1"]),
        Event(20_000, 20_000, None, "start", -1, -1, "g", "g-1", kind="act"),
        heartbeat(21_000, "g-1", 0, 2, assigned=[]),
        heartbeat(31_000, "g-0", 1, 1, assigned=["orders-0"]),  # ends nothing: it only takes a partition away
        heartbeat(33_000, "g-0", 1, 2, owned=["orders-0"]),
        heartbeat(40_000, "g-1", 2, 2, assigned=["orders-1"]),
        heartbeat(42_000, "g-1", 2, 2, owned=["orders-1"]),
        heartbeat(50_000, "g-0", 2, 2, assigned=["orders-0"], owned=["orders-0"]),  # the same after a reconnection
        heartbeat(61_000, "g-1", -1, None),
        heartbeat(71_000, "g-0", 2, 3, assigned=["orders-0", "orders-1"]),
        heartbeat(81_000, "g-0", 3, 3, error=25),
        heartbeat(99_000, "g-0", 0, 4, assigned=["orders-0", "orders-1"]),
    ]
    summary = numbers(events, TWO)
    found = {name: summary["rebalances"][name] for name in ("generations", "count", "p50_ms", "max_ms")}
    assert found == {"generations": 4, "count": 4, "p50_ms": 1, "max_ms": 20}  # epoch 2 from 21,000 to 41,000
    # Members wait from start to the first response; member 0 again from 82,000 to 100,000.
    assert summary["metrics"]["unassigned_member_s"] == 0.022
    # Of 200 ms for two partitions: until 2,000; one from 32,000 to 41,000 and from 61,000 to 72,000; from 82,000 to
    # 100,000.
    assert summary["metrics"]["unassigned_partition_s"] == 0.06
    assert summary["metrics"]["members_joined"] == 2
    assert summary["measure_from_s"] == 0.05


def heartbeat(
    at_us: int, name: str, epoch: int, generation: int | None, *, error: int = 0, **lists: list[str]
) -> Event:
    """Return a heartbeat of the consumer protocol that is answered after 1 ms."""
    answered_with = {"generation": generation, "error": error, "epoch": epoch, **lists}
    return Event(at_us, at_us, 1_000, "ConsumerGroupHeartbeat", 1, 1, "g", name, **answered_with)  # type: ignore[arg-type]


def test_a_rebalance_ends_when_all_members_that_joined_have_an_assignment() -> None:
    """Later events do not extend it: a returning static member, a repeated SyncGroup, generation 1 of a new group."""

    def joined(at_ms: int, name: str, member: str, synced_ms: int) -> list[Event]:
        return [
            Event(at_ms * 1_000, at_ms * 1_000, 1_000, "JoinGroup", 9, 1, name, member, 1, 0),
            Event(synced_ms * 1_000 - 1_000, synced_ms * 1_000 - 1_000, 1_000, "SyncGroup", 5, 1, name, member, 1, 0),
        ]

    events = [
        Event(1_000, 1_000, 1_000, "JoinGroup", 10, 1, "static", error=0),  # From a tool that adds members.
        *joined(1_000, "static", "static-0", 1_040),
        *joined(1_010, "static", "static-1", 1_050),
        *joined(30_000, "static", "static-1", 30_010),
        *joined(1_000, "again", "again-0", 1_020),
        Event(9_000_000, 9_000_000, 1_000, "SyncGroup", 5, 1, "again", "again-0", 1, 0),
        *joined(1_000, "lives", "lives-0", 1_030),
        *joined(90_000, "lives", "lives-1", 90_020),
    ]
    members = [member(f"{group}-{number}", group=group) for group in ("static", "again", "lives") for number in (0, 1)]
    summary = numbers(events, members)
    slowest = {row["group"]: row["longest_rebalance_ms"] for row in summary["slowest_groups"]}
    assert slowest == {"static": 50, "again": 20, "lives": 30}
    assert summary["metrics"]["generations"] == summary["metrics"]["rebalances"] == 3


def test_members_without_a_response_for_their_session_timeout_are_unknown() -> None:
    """The members of the first group get their last response at second 10, or 50; the second group has responses.

    A member of the second group commits between its heartbeats, which are one row.
    """
    second = 1_000_000
    events = [
        each._replace(group=group, member=f"{group}-{number}")
        for group, ends in (("g", (10, 50)), ("h", (100, 100)))
        for number, end in enumerate(ends)
        for each in (
            Event(0, 0, None, "start", -1, -1, kind="act"),
            Event(1_000, 1_000, 0, "JoinGroup", 9, 2, generation=1, error=0),
            Event(2_000, 2_000, 0, "SyncGroup", 5, 2, generation=1, error=0, assigned=["orders-0"]),
            Event(3_000, 3_000, 0, "Heartbeat", 4, 2, generation=1, error=0, count=end, until_us=(end - 1) * second),
            Event(end * second, end * second, 0, "Heartbeat", 4, 2, generation=1, error=0),
            Event(100 * second, 100 * second, None, "leave", -1, -1, kind="act"),
        )
    ]
    committed = Event(20 * second, 20 * second, 0, "OffsetCommit", 9, 2, "h", "h-0", generation=1, error=0)
    members = [member(f"{group}-{n}", group=group, session_timeout_ms=10_000) for group in "gh" for n in range(2)]
    over_time = numbers([*events, committed], members)["over_time"]
    per_slice = 1 / over_time["slice_s"]
    at_s = {second: round(second * per_slice) for second in (15, 40, 80)}
    assert {second: over_time["members"]["unknown"][index] for second, index in at_s.items()} == {15: 0, 40: 1, 80: 2}
    assert {second: over_time["members"]["assigned"][index] for second, index in at_s.items()} == {15: 4, 40: 3, 80: 2}
    assert {second: over_time["groups"]["unknown"][index] for second, index in at_s.items()} == {15: 0, 40: 0, 80: 1}
    assert {second: over_time["groups"]["stable"][index] for second, index in at_s.items()} == {15: 2, 40: 2, 80: 1}


def test_folded_heartbeats_are_counted_in_the_slices_of_single_ones() -> None:
    """Their intervals are multiples of a second, of a millisecond, and of neither; some begin in the same second."""
    second, folded, single = 1_000_000, [], []
    end = Event(120 * second, 120 * second, None, "leave", -1, -1, "g", "g-0", kind="act")
    for step_us in (3 * second, 3 * second, 2_873_000, 2_718_281):
        for since_us, count in ((900_000, 30), (1_400_000, 30), (1_999_999, 30), (7 * second, 1), (8 * second, 2)):
            sent = [since_us + step_us * index for index in range(count)]
            beat = Event(0, 0, 500, "Heartbeat", 4, 2, "g", "g-0", 1, 0)
            single += [beat._replace(scheduled_us=at_us, sent_us=at_us) for at_us in sent]
            until_us = sent[-1] if count > 1 else None
            folded.append(beat._replace(scheduled_us=since_us, sent_us=since_us, count=count, until_us=until_us))
    start = Event(0, 0, None, "start", -1, -1, "g", "g-0", kind="act")
    of_folded, of_single = (numbers([start, *rows, end], TWO) for rows in (folded, single))
    for name in ("apis", "total", "steady"):
        assert without_known(of_folded[name]) == without_known(of_single[name])
    assert of_folded["over_time"]["apis"] == of_single["over_time"]["apis"]


def without_known(value: Any) -> Any:
    """Return rows of requests without the number of known latencies."""
    if isinstance(value, list):
        return list(map(without_known, value))
    if isinstance(value, dict):
        return {name: without_known(each) for name, each in value.items() if name != "known_latencies"}
    return value


def test_unanswered_requests_have_no_latency() -> None:
    events = [Event(1, 2_346_001, None, "Heartbeat", 4, 2, "g", "g-0", 1, missing="lost")]
    summary = numbers(events, TWO)
    total = summary["total"]
    assert (total["requests"], total["lost"], total["p50_ms"], total["max_ms"]) == (1, 1, None, None)
    assert summary["sent_late"] == {"p50_ms": 2350, "p99_ms": 2350, "max_ms": 2346}  # three significant digits


def test_a_replay_without_events_has_numbers() -> None:
    summary = numbers([], TWO)
    assert (summary["total"]["requests"], summary["apis"], summary["errors"]) == (0, [], [])
    assert (summary["metrics"]["p99_ms"], summary["metrics"]["generations"]) == (None, 0)
    assert summary["offsets_partitions"]["requests_skew"] is None


def test_quantiles_of_many_rebalances_are_exact() -> None:
    count = 30_000
    lengths = [7919 * number % 30011 for number in range(count)]
    columns = {"population": ["p"] * count, "slice": [0] * count, "length_us": [1000 * each for each in lengths]}
    (found,) = (row for row in rebalance_rows(pa.table({**columns, "n": [1] * count})) if row["part"] == "all")
    lengths.sort()
    assert (found["p50_ms"], found["p99_ms"]) == (lengths[count // 2 - 1], lengths[count * 99 // 100 - 1])


def test_errors_without_a_name_in_kafka_have_their_code() -> None:
    assert (error_name(25), error_name(4711)) == ("UNKNOWN_MEMBER_ID", "4711")


def test_the_number_of_slices_is_limited(subtests: pytest.Subtests) -> None:
    for span_ms in (0, 1, 5_999, 6_001, 600_000, 86_400_000, 10**9):
        with subtests.test(span_ms=span_ms):
            assert 0 < span_ms / slice_length_ms(span_ms) <= MOST_SLICES or span_ms == 0


def test_transactions_by_outcome(summary: dict[str, Any]) -> None:
    """Times of committed transactions are until the response to EndTxn, and until their last batch was read."""
    requests_of_producers = [
        initialized(0.9, 0),  # It is of no transaction.
        *(produced(1), stored(1.1, 10), ended(1.2), read(1.4), read(1.6, partition="payments-1")),
        *(produced(2, 2), ended(2.1, 2), read(2.1, 2)),
        *(produced(3, 3), ended(3.1, 3, committed=False), read(4, 3, committed=False)),
        *(produced(4, 4), still_open(6, 6, 4), read(9, 4, committed=False)),
    ]
    found = numbers([*HEALTHY, *requests_of_producers], TRANSACTIONAL)
    times = {"p50_ms": 151, "p99_ms": 200, "max_ms": 201, "visible_p50_ms": 351, "visible_max_ms": 601}
    transactions = found["transactions"]
    assert {name: int(transactions.pop(name)) for name in times} == times
    assert transactions == {"begun": 4, "committed": 2, "aborted": 1, "not_ended": 1}
    series = found["over_time"]["transactions"]
    assert [sum(series[name]) for name in ("committed", "aborted", "not_ended")] == [2, 1, 1]
    assert [each for each in series["max_ms"] if each is not None] == [201.0, 101.0]
    assert summary["transactions"] is None
