"""The output of `top` and its events: sizes, contents, names from clients, changes between two states."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from fakebroker.control.top.observer import MAX_EVENTS, ClusterState, Observer
from fakebroker.control.top.rendering import CHOICES, Frame, render
from tests.support.control.fake_control_server import (
    NOW_MS,
    FakeTopSource,
    blocked_row,
    broker_row,
    group_row,
    overview,
    transaction_row,
)


def fetch(
    rows: list[dict[str, Any]] | None = None, *, blocked: Sequence[dict[str, Any]] = (), **changes: Any
) -> ClusterState:
    """Return the state of a fake cluster with these rows of groups, groups that wait, and changes of the overview."""
    source = FakeTopSource(rows, **changes)
    source.blocked = list(blocked)
    return Observer(source).fetch()


def lines_of(state: ClusterState, frame: Frame) -> list[str]:
    console = Console(width=frame.width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(render(state, frame))
    return [line.rstrip() for line in capture.get().splitlines()]


def events(state: ClusterState) -> list[tuple[float, str, str]]:
    return [(event.at_ms - NOW_MS, event.subject, event.description) for event in state.events]


def test_the_output_fits_terminals_of_any_size(subtests: pytest.Subtests) -> None:
    brokers = [broker_row(node_id) for node_id in range(1, 20)]
    rows, waiting = [group_row(number) for number in range(50)], [blocked_row(number) for number in range(40)]
    sizes = ((30, 12), (40, 12), (60, 20), (80, 24), (99, 30), (100, 30), (120, 40), (220, 60))
    for blocked in ([], waiting[:1], waiting):
        state = fetch(rows, brokers=brokers, blocked=blocked)
        for width, height in sizes:
            for choice in CHOICES:
                with subtests.test(size=(width, height), choice=choice, blocked=len(blocked)):
                    lines = lines_of(state, Frame(width, height, choice, footer="q quit"))
                    assert len(lines) == height
                    assert max(map(cell_len, lines)) <= width
                    assert lines[-1] == "q quit"


def test_80_by_24_shows_brokers_apis_groups_and_events() -> None:
    text = "\n".join(lines_of(fetch(), Frame(80, 24)))
    for part in (
        "default  3 of 3 brokers up  2,302 requests/s",
        "14:13:20 UTC",
        "1,242 groups  1 PreparingRebalance  7 Empty  1,234 Stable  3,456 members",
        "API                           REQ/S  ERR/S  BROKER P50  P99 MS  WIRE P50  P99 MS",
        "OffsetCommit                    1.0      0        0.00     500      0.10     501",
        "Fetch can wait                  300    0.5        0.40     501      0.60     502",
        "3       127.0.0.1:9094           up     4.2                8     403         703",
        "billing-2        Stable           2        3  SyncGroup of the leader consumer",
        "14:13:18  billing-2 Stable, generation 2: SyncGroup of the leader consumer-2",
    ):
        assert part in text


def test_the_first_lines_name_the_member_that_blocks_a_group_why_and_until_when() -> None:
    lines = lines_of(fetch(blocked=[blocked_row(1)]), Frame(80, 24))
    assert lines[0].startswith("default  3 of 3 brokers up")
    assert lines[1:4] == [
        "BLOCKED BY          GROUP              MISSING       FOR  THEN",
        "slow-1              billing-1          JoinGroup  12.3 s  removed in ≤4 min 47 s",
        "1,242 groups  1 PreparingRebalance  7 Empty  1,234 Stable  3,456 members  56 re…",
    ]
    wide = lines_of(fetch(blocked=[blocked_row(1)]), Frame(120, 24))
    assert wide[2].split("  ")[0] == "slow-1"
    assert "JoinGroup  3 of 4  12.3 s  removed in ≤4 min 47 s" in wide[2]


def test_open_transactions_are_shown_with_what_they_wait_for(subtests: pytest.Subtests) -> None:
    source = FakeTopSource(transactions_by_state={"PrepareCommit": 2, "Empty": 1})
    ended = transaction_row(3, state="Empty", pending_state=None, start_ms=None, why="InitProducerId")
    source.transactions = [transaction_row(1), transaction_row(2, state="Ongoing", why="AddPartitionsToTxn"), ended]
    state = Observer(source).fetch()
    lines = lines_of(state, Frame(120, 40))
    (at,) = [number for number, line in enumerate(lines) if line.startswith("OPEN TRANSACTION")]
    cells = lines[at + 1].split("  ")
    assert [each for each in map(str.strip, cells) if each] == [
        "payments-1",
        "PrepareCommit",
        "4001/7",
        "12.3 s",
        "waiting for markers of orders-1, whose leader broker 2 i…",
    ]
    assert lines[at + 2].split()[:3] == ["payments-2", "Ongoing", "4002/7"]
    assert not lines[at + 3].startswith("payments-3"), "it has ended"
    assert "  3 transactional ids" in "\n".join(lines)
    assert (-3_000, "payments-3", "Empty, producer 4003 in epoch 7: InitProducerId") in events(state)
    for width in (30, 60, 80, 220):
        with subtests.test(width=width):
            lines = lines_of(state, Frame(width, 30))
            assert (len(lines), max(map(cell_len, lines)) <= width) == (30, True)
            assert any(line.startswith("payments-1") for line in lines) or width == 30


def test_narrow_terminals_show_who_blocks_whom_and_until_when(subtests: pytest.Subtests) -> None:
    for width in (40, 60, 69):
        with subtests.test(width=width):
            line = lines_of(fetch(blocked=[blocked_row(1)]), Frame(width, 12))[2]
            assert line.startswith("slow-1  ")
            assert "  billin" in line
            assert line.endswith("  removed in ≤4 min 47 s")


def test_groups_that_wait_for_other_reasons(subtests: pytest.Subtests) -> None:
    nobody: dict[str, Any] = {"blocking": [], "missing": 0, "removes": 0}
    cases: list[tuple[dict[str, Any], str, str]] = [
        (
            {"blocking": ["a", "b", "c"], "missing": 1_234, "removes": 1_234},
            "a and 1,233 more",
            "removed in ≤4 min 47 s",
        ),
        ({"removes": 0}, "slow-1", "goes on in 4 min 47 s"),
        ({"removes": 0, "restarts": True}, "slow-1", "waits again in 4 min 47 s"),
        ({"request": "SyncGroup", "until_ms": NOW_MS + 9_440}, "slow-1", "removed in ≤9.4 s"),
        ({"until_ms": NOW_MS + 7_500_000}, "slow-1", "removed in ≤2 h 5 min"),
        ({"until_ms": NOW_MS - 5}, "slow-1", "removed in ≤0.0 s"),
        ({"until_ms": None}, "slow-1", "no time limit"),
        ({"is_held": True, "until_ms": None}, "slow-1", "until released"),
        ({**nobody, "is_held": True, "until_ms": None}, "held", "until released"),
        ({**nobody, "until_ms": NOW_MS + 3_000}, "waiting for members", "goes on in 3.0 s"),
        (
            {**nobody, "until_ms": None, "request": "ConsumerGroupHeartbeat"},
            "waiting for a heartbeat",
            "no time limit",
        ),
    ]
    for changes, blocking, then in cases:
        with subtests.test(**changes):
            line = lines_of(fetch(blocked=[blocked_row(1, **changes)]), Frame(100, 24))[2]
            assert line.startswith(f"{blocking} ")
            assert line.endswith(f" {then}")


def test_wide_characters_and_long_names_leave_the_times_visible(subtests: pytest.Subtests) -> None:
    for name in ("日本語" * 20, "a" * 300, "e\u0301" * 60, "👩\u200d💻" * 20):
        with subtests.test(name=name[:5]):
            lines = lines_of(fetch(blocked=[blocked_row(1, group_id=name, blocking=[name])]), Frame(80, 24))
            assert max(map(cell_len, lines)) <= 80
            assert lines[2].endswith("JoinGroup  12.3 s  removed in ≤4 min 47 s")


def test_of_many_groups_that_wait_the_first_are_shown_and_the_others_counted() -> None:
    waiting = [blocked_row(number) for number in range(40)]
    lines = lines_of(fetch(blocked=waiting), Frame(80, 24))
    assert [line.split()[0] for line in lines[2:7]] == ["slow-0", "slow-1", "slow-2", "slow-3", "and"]
    assert lines[6].startswith("and 36 more")
    assert any(line.startswith("UNSTABLE GROUP") for line in lines)
    snapshot = lines_of(fetch(blocked=waiting), Frame(80))
    assert sum(line.startswith("slow-") for line in snapshot) == 20


def test_consumer_groups_wait_for_heartbeats_and_have_epochs(subtests: pytest.Subtests) -> None:
    moving = {"type": "consumer", "state": "Reconciling", "rebalances": 1, "generation_id": 8}
    waiting = blocked_row(1, state="Reconciling", request="ConsumerGroupHeartbeat")
    states = {"Stable": 2, "Assigning": 1, "Reconciling": 1}
    blocked = [{**waiting, "partitions": 2}, waiting]
    state = fetch([group_row(1, **moving), group_row(2, rebalances=0)], blocked=blocked, groups_by_state=states)
    for width in (60, 80, 120):
        with subtests.test(width=width):
            lines = lines_of(state, Frame(width, 30))
            rows = [line.split() for line in lines if line.startswith("billing-1")]
            assert [row[1] for row in rows] == ["consumer" if width > 100 else "Reconciling"] * 2, "in both tables"
            assert ("  2 partitions  " in lines[2]) == (width > 60)
            assert ("Heartbeat" in lines[3].split()) == (width > 60)
            assert lines[4].startswith("4 groups  1 Assigning  1 Reconciling  2 Stable  3,456 mem")
    assert [each["group_id"] for each in state.unstable] == ["billing-1"]
    assert events(state)[0][2].startswith("Reconciling, epoch 8: ")
    assert events(state)[1][2].startswith("Stable, generation 2: ")


def test_wide_terminals_have_types_full_states_lag_rebalances_and_coordinators() -> None:
    lines = lines_of(fetch([group_row(1, state="PreparingRebalance", coordinator=None)]), Frame(120, 40))
    head = next(line.split() for line in lines if line.startswith("UNSTABLE GROUP"))
    assert head[2:9] == ["TYPE", "STATE", "GEN", "MEMBERS", "LAG", "REBALANCES", "BROKER"]
    row = next(line.split() for line in lines if line.startswith("billing-1"))
    assert row[:8] == ["billing-1", "classic", "PreparingRebalance", "1", "3", "4,001", "2", "none"]


def test_stopped_brokers_faults_and_manual_clocks_are_in_the_first_line() -> None:
    brokers = [broker_row(1), broker_row(2, up=False), broker_row(3)]
    lines = lines_of(fetch(brokers=brokers, faults=1, clock={"now_ms": NOW_MS, "kind": "manual"}), Frame(80, 24))
    assert lines[0].startswith("default  2 of 3 brokers up  2,302 requests/s  1 fault ")
    assert lines[0].endswith("  manual clock 14:13:20 UTC")
    assert lines[1].startswith("1,242 groups  1 PreparingRebalance")
    assert "2       127.0.0.1:9093           down" in "\n".join(lines)


def test_times_out_of_the_range_of_dates_are_shown_as_dashes(subtests: pytest.Subtests) -> None:
    for now_ms in (1e300, -1e300, float("nan")):
        with subtests.test(now_ms=now_ms):
            state = fetch([group_row(1, since_ms=now_ms)], clock={"now_ms": now_ms, "kind": "manual"})
            lines = lines_of(state, Frame(80, 24))
            assert lines[0].endswith("  manual clock --:--:-- UTC")
            assert any(line.startswith("--:--:--  billing-1") for line in lines)


def test_unstable_groups_are_rebalancing_or_have_rebalanced_twice() -> None:
    calm = [group_row(1, rebalances=1), group_row(2, rebalances=0)]
    unstable = [group_row(3, rebalances=0, state="CompletingRebalance"), group_row(4, rebalances=2)]
    assert [row["group_id"] for row in fetch(calm + unstable).unstable] == ["billing-3", "billing-4"]


def test_empty_tables_have_placeholders() -> None:
    state = fetch(
        [], groups_by_state={}, rates={"requests_per_s": 0, "by_api": []}, brokers=[], members=0, rebalances=0
    )
    text = "\n".join(lines_of(state, Frame(80, 24)))
    for part in ("0 groups  0 members  0 rebalances", "no brokers", "no requests", "none", "no events"):
        assert part in text


def test_without_a_height_each_table_has_at_most_20_rows() -> None:
    lines = lines_of(fetch([group_row(number) for number in range(50)]), Frame(100))
    assert sum(line.startswith("billing-") for line in lines) == 20 + 20
    assert len(lines) == 2 + 5 + 3 + 4 + 20 + 20 + 20


def test_control_characters_and_markup_in_names_have_no_effect() -> None:
    text = "\n".join(lines_of(fetch([group_row(1, group_id="a\x1b[31mb\x9bc\n[bold]日本")]), Frame(120, 40)))
    assert "a�[31mb�c�[bold]日本" in text
    assert "\x1b" not in text


def test_a_rebalance_is_one_event_with_its_latest_reason() -> None:
    source = FakeTopSource([group_row(1)])
    observer = Observer(source)
    observer.fetch()
    rebalancing = group_row(1, state="PreparingRebalance", since_ms=NOW_MS + 500, why="1 of 3 has joined")
    source.rows = [rebalancing]
    observer.fetch()
    source.rows = [{**rebalancing, "why": "2 of 3 have joined"}]
    observer.fetch()
    source.rows = []
    assert events(observer.fetch()) == [
        (500, "billing-1", "PreparingRebalance, generation 1: 2 of 3 have joined"),
        (-1000, "billing-1", "Stable, generation 1: SyncGroup of the leader consumer-1"),
    ]


def test_changes_of_brokers_and_faults_are_events() -> None:
    source = FakeTopSource([], brokers=[broker_row(1), broker_row(2), broker_row(3, up=False)])
    observer = Observer(source)
    assert events(observer.fetch()) == [(0, "broker 3", "is down")]
    source.cluster = overview(
        brokers=[broker_row(1, up=False), broker_row(3), broker_row(4)],
        faults=2,
        clock={"now_ms": NOW_MS + 1000, "kind": "real"},
    )
    expected = [
        (1000, "broker 1", "is down"),
        (1000, "broker 3", "is up"),
        (1000, "broker 4", "is up"),
        (1000, "broker 2", "was removed"),
        (1000, "faults", "2 active"),
    ]
    assert events(observer.fetch())[:5] == expected
    source.cluster = {**source.cluster, "clock": {"now_ms": NOW_MS + 2000, "kind": "real"}}
    assert events(observer.fetch())[:5] == expected


def test_old_events_are_dropped() -> None:
    source = FakeTopSource([])
    observer = Observer(source)
    for step in range(MAX_EVENTS):
        source.rows = [group_row(0, since_ms=NOW_MS + step), group_row(1, since_ms=NOW_MS + step)]
        state = observer.fetch()
    assert len(state.events) == MAX_EVENTS
    assert state.events[0].at_ms == NOW_MS + MAX_EVENTS - 1
    assert state.events[-1].at_ms == NOW_MS + MAX_EVENTS // 2
