"""What `top` draws: it fits, it says what matters, and what clients call themselves does no harm."""

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from fakebroker.control.top.observer import MAX_EVENTS, Look, Observer
from fakebroker.control.top.picture import CHOICES, Choice, Frame, picture
from tests.support.control.fake_control_api import NOW_MS, broker, group, overview


class Made:
    """Made-up answers, and looks at them."""

    def __init__(self, rows: list[dict[str, Any]] | None = None, **changes: Any) -> None:
        self.cluster = overview(**changes)
        self.rows = [group(number) for number in range(1, 4)] if rows is None else rows
        self._observer = Observer(self)

    def overview(self) -> dict[str, Any]:
        return self.cluster

    def group_rows(self, *, sort: str, limit: int) -> list[dict[str, Any]]:
        return self.rows[:limit]

    def look(self) -> Look:
        return self._observer.look()


def drawn(look: Look, frame: Frame) -> list[str]:
    console = Console(width=frame.width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(picture(look, frame))
    return [line.rstrip() for line in capture.get().splitlines()]


def events(look: Look) -> list[tuple[float, str, str]]:
    return [(event.at_ms - NOW_MS, event.about, event.what) for event in look.events]


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (99, 30), (100, 30), (120, 40), (220, 60)])
@pytest.mark.parametrize("choice", CHOICES)
def test_it_fits(size: tuple[int, int], choice: Choice) -> None:
    brokers = [broker(node_id) for node_id in range(1, 20)]
    made = Made([group(number) for number in range(50)], brokers=brokers)
    lines = drawn(made.look(), Frame(*size, choice, footer="q quit"))
    assert len(lines) == size[1]
    assert max(map(cell_len, lines)) <= size[0]
    assert lines[-1] == "q quit"


def test_80_by_24_is_enough() -> None:
    text = "\n".join(drawn(Made().look(), Frame(80, 24)))
    for part in (
        "default  3 of 3 brokers up  2,302 requests/s",
        "14:13:20 UTC",
        "1,242 groups  1 PreparingRebalance  7 Empty  1,234 Stable  3,456 members",
        "Fetch                                              300       0.5    0.40     501",
        "3       127.0.0.1:9094           up     4.2                8     403         703",
        "billing-2         Stable          2        3  SyncGroup of the leader consumer",
        "14:13:18  billing-2 Stable, generation 2: SyncGroup of the leader consumer-2",
    ):
        assert part in text


def test_a_wide_terminal_has_room_for_more() -> None:
    lines = drawn(Made([group(1, state="PreparingRebalance", coordinator=None)]).look(), Frame(120, 40))
    row = next(line.split() for line in lines if line.startswith("billing-1"))
    assert row[:6] == ["billing-1", "PreparingRebalance", "1", "3", "2", "none"]


def test_what_is_not_as_it_should_be_is_said_first() -> None:
    brokers = [broker(1), broker(2, up=False), broker(3)]
    lines = drawn(Made(brokers=brokers, faults=1, clock={"now_ms": NOW_MS, "kind": "manual"}).look(), Frame(80, 24))
    assert lines[0].startswith("default  2 of 3 brokers up  2,302 requests/s  1 fault ")
    assert lines[0].endswith("  manual clock 14:13:20 UTC")
    assert lines[1].startswith("1,242 groups  1 PreparingRebalance")
    assert "2       127.0.0.1:9093           down" in "\n".join(lines)


@pytest.mark.parametrize("now_ms", [1e300, -1e300, float("nan")])
def test_a_time_that_no_date_has_is_shown_as_well(now_ms: float) -> None:
    made = Made([group(1, since_ms=now_ms)], clock={"now_ms": now_ms, "kind": "manual"})
    lines = drawn(made.look(), Frame(80, 24))
    assert lines[0].endswith("  manual clock --:--:-- UTC")
    assert any(line.startswith("--:--:--  billing-1") for line in lines)


def test_unstable_is_what_rebalances_or_did_so_again() -> None:
    calm = [group(1, rebalances=1), group(2, rebalances=0)]
    unstable = [group(3, rebalances=0, state="CompletingRebalance"), group(4, rebalances=2)]
    assert [row["group_id"] for row in Made(calm + unstable).look().unstable] == ["billing-3", "billing-4"]


def test_nothing_is_said_as_well() -> None:
    made = Made([], groups_by_state={}, rates={"requests_per_s": 0, "by_api": []}, brokers=[], members=0, rebalances=0)
    text = "\n".join(drawn(made.look(), Frame(80, 24)))
    for part in ("0 groups  0 members  0 rebalances", "no brokers", "no requests", "none", "nothing yet"):
        assert part in text


def test_a_snapshot_takes_the_lines_that_it_needs() -> None:
    lines = drawn(Made([group(number) for number in range(50)]).look(), Frame(100))
    assert sum(line.startswith("billing-") for line in lines) == 20 + 20
    assert len(lines) == 2 + 5 + 3 + 3 + 20 + 20 + 20


def test_names_are_shown_and_not_obeyed() -> None:
    text = "\n".join(drawn(Made([group(1, group_id="a\x1b[31mb\x9bc\n[bold]日本")]).look(), Frame(120, 40)))
    assert "a�[31mb�c�[bold]日本" in text
    assert "\x1b" not in text


def test_a_change_of_a_group_is_an_event_once() -> None:
    made = Made([group(1)])
    made.look()
    waits = group(1, state="PreparingRebalance", since_ms=NOW_MS + 500, why="1 of 3 has joined")
    made.rows = [waits]
    made.look()
    made.rows = [{**waits, "why": "2 of 3 have joined"}]
    made.look()
    made.rows = []
    assert events(made.look()) == [
        (500, "billing-1", "PreparingRebalance, generation 1: 2 of 3 have joined"),
        (-1000, "billing-1", "Stable, generation 1: SyncGroup of the leader consumer-1"),
    ]


def test_brokers_and_faults_are_events() -> None:
    made = Made([], brokers=[broker(1), broker(2), broker(3, up=False)])
    assert events(made.look()) == [(0, "broker 3", "is down")]
    made.cluster = overview(
        brokers=[broker(1, up=False), broker(3), broker(4)], faults=2, clock={"now_ms": NOW_MS + 1000, "kind": "real"}
    )
    expected = [
        (1000, "broker 1", "is down"),
        (1000, "broker 3", "is up"),
        (1000, "broker 4", "is up"),
        (1000, "broker 2", "is gone"),
        (1000, "faults", "2 in force"),
    ]
    assert events(made.look())[:5] == expected
    made.cluster = {**made.cluster, "clock": {"now_ms": NOW_MS + 2000, "kind": "real"}}
    assert events(made.look())[:5] == expected


def test_events_are_forgotten_some_time() -> None:
    made = Made([])
    for step in range(MAX_EVENTS):
        made.rows = [group(0, since_ms=NOW_MS + step), group(1, since_ms=NOW_MS + step)]
        look = made.look()
    assert len(look.events) == MAX_EVENTS
    assert look.events[0].at_ms == NOW_MS + MAX_EVENTS - 1
    assert look.events[-1].at_ms == NOW_MS + MAX_EVENTS // 2
