"""Violations in reports: which events and values are marked, and how events are written."""

import pytest

from fakebroker.replay.members.events import Event
from fakebroker.replay.report.evidence import COLUMNS, RULES, Case, nearest, unavailable, violated
from fakebroker.replay.run_summary import Unavailability, Violation
from fakebroker.replay.verify.promises import PROMISES
from tests.support.replay.recorded_events import OF_1, SECOND, START_US, beat, beats, event, found, join, lost, sync


def case_of(promise: str, events: list[Event], at_s: float, until_s: float, *members: str) -> Case:
    violation = Violation(
        group="g",
        generation=2,
        members=list(members),
        at_us=START_US + round(at_s * SECOND),
        until_us=START_US + round(until_s * SECOND),
        what="what",
        events=[_as_row(each) for each in events],
    )
    return violated(promise, violation, START_US)


def _as_row(each: Event) -> dict[str, object]:
    """Return an event as Spark does: structs are dictionaries."""
    offsets = [dict(zip(("partition", "offset"), pair, strict=True)) for pair in each.offsets or ()]
    places = [dict(zip(("key", "node", "error", "again"), place, strict=True)) for place in each.found or ()]
    made = each.transaction and dict(
        zip(("producer_id", "epoch", "number", "committed"), each.transaction, strict=True)
    )
    return each._asdict() | {"offsets": offsets, "found": places, "transaction": made}


def text_of(case: Case) -> list[dict[str, str]]:
    """Return the rows as text by column, with `*` around decisive values; without empty cells."""
    return [
        {
            name: "".join(f"*{part.text}*" if part.is_decisive else part.text for part in cell)
            for name, cell in zip(COLUMNS, row.cells, strict=True)
            if cell
        }
        for row in case.rows
    ]


def test_an_event_is_written_with_times_since_the_start_and_the_name_of_its_error() -> None:
    case = case_of("answered", [beat(5, 1, error=27, done_s=5.25)], 1, 1, "g-1")
    assert text_of(case) == [
        {
            "sent s": "5.000",
            "answered s": "5.250",
            "API": "Heartbeat",
            "member": "g-0",
            "generation": "1",
            "broker": "2",
            "response": "REBALANCE_IN_PROGRESS",
        }
    ]
    assert (case.marked, case.facts) == (
        "",
        {"group": "g", "generation": "2", "member": "g-1", "time": "1.000 s after the start"},
    )


def test_details_of_events(subtests: pytest.Subtests) -> None:
    for each, response, details in (
        (sync(1, 1), "no error", "assigned nothing"),
        (sync(1, 1, *range(9)), "no error", "assigned " + ", ".join(f"orders-{n}" for n in range(6)) + " and 3 more"),
        (lost("Heartbeat", 1, until_s=3), "lost", "lost at 3.000 s"),
        (lost("Heartbeat", 1, lost=False), "cut off", None),
        (beats(1, 9), "no error", "9 requests until 9.000 s"),
        (join(1, 1, members=3), "no error", "leader of 3 members; protocol range"),
        (found(1), "no error", "coordinator of g: 2"),
        (found(1, found=[("g", -1, 15, False)]), "no error", "coordinator of g: COORDINATOR_NOT_AVAILABLE"),
        (event("OffsetFetch", 1, offsets=[("orders-0", -1), ("orders-1", 7)]), "no error",
         "offset of orders-0: no offset, orders-1: 7"),
        (event("crash", 1, kind="act", broker=-1), None, "action of the member's script"),
        (event("InitProducerId", 1, transaction=(7, 2, None, None)), "no error", "epoch 2"),
        (event("EndTxn", 1, transaction=(7, 2, 3, True)), "no error", "transaction 3, epoch 2, commit"),
        (event("EndTxn", 1, transaction=(7, 2, 3, False)), "no error", "transaction 3, epoch 2, abort"),
        (event("Fetch", 1, kind="seen", transaction=(7, 2, 3, True), offsets=[("p-0", 5)]), "no error",
         "transaction 3, epoch 2, returned by the reader; offset of p-0: 5"),
        (event("ListTransactions", 1, kind="seen", transaction=(7, None, 3, None)), "no error", "transaction 3, open"),
    ):  # fmt: skip
        with subtests.test(api=each.api, details=details):
            (row,) = text_of(case_of("answered", [each], 50, 50))
            assert (row.get("response"), row.get("details")) == (response, details)


def test_partitions_that_are_assigned_twice_are_marked_however_many_there_are() -> None:
    events = [sync(1, 2, *range(9), 20), sync(1, 2, 20, **OF_1), sync(1, 2, 30, member="g-2"), sync(0.5, 1, 20)]
    case = case_of("one-owner", events, 1.001, 1.001, "g-0", "g-1")
    assert [row.is_decisive for row in case.rows] == [False, True, True, False]
    assert [row["details"] for row in text_of(case)[1:3]] == [
        "assigned orders-0, orders-1, orders-2, orders-3, orders-4, *orders-20* and 4 more",
        "assigned *orders-20*",
    ]


def test_a_violation_without_a_matching_event_has_no_marks() -> None:
    for promise in PROMISES:
        case = case_of(promise, [beat(5, 1)], 90, 91, "g-9")
        assert (case.marked, [row.is_decisive for row in case.rows]) == ("", [False])


def test_every_promise_has_a_rule() -> None:
    assert list(RULES) == list(PROMISES)


def test_rows_next_to_decisive_ones_are_kept() -> None:
    events = [beat(at_s) for at_s in range(9)]
    case = case_of("beating-stays", [*events, beat(9, error=25, done_s=9.5)], 4, 9.5, "g-0")
    kept = [row.cells[0][0].text for row in nearest(case, 5)]
    assert kept == ["3.000", "4.000", "5.000", "8.000", "9.000"]
    assert nearest(case, 99) == case.rows
    assert nearest(Case("what", {}), 5) == ()


def test_failures_of_availability_have_times_since_the_start() -> None:
    failure = Unavailability(group="g", at_us=START_US + SECOND, until_us=START_US + 9 * SECOND, what="silence")
    assert unavailable(failure, START_US) == Case("silence", {"group": "g", "time": "1.000 to 9.000 s after the start"})
    assert unavailable(Unavailability(what="silence"), START_US) == Case("silence", {})
