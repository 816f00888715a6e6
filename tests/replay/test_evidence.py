"""Violations in reports: how their events are written."""

import pytest

from fakebroker.replay.members.events import Event
from fakebroker.replay.report.evidence import COLUMNS, Case, unavailable, violated
from fakebroker.replay.run_summary import Unavailability, Violation
from tests.support.replay.recorded_events import SECOND, START_US, beat, beats, event, found, join, lost, sync


def case_of(events: list[Event], at_s: float, until_s: float, *members: str, what: str = "what") -> Case:
    violation = Violation(
        group="g",
        generation=2,
        members=list(members),
        at_us=START_US + round(at_s * SECOND),
        until_us=START_US + round(until_s * SECOND),
        what=what,
        events=[_as_row(each) for each in events],
    )
    return violated(violation, START_US)


def _as_row(each: Event) -> dict[str, object]:
    """Return an event as Spark does: structs are dictionaries."""
    offsets = [dict(zip(("partition", "offset"), pair, strict=True)) for pair in each.offsets or ()]
    places = [dict(zip(("key", "node", "error", "again"), place, strict=True)) for place in each.found or ()]
    made = each.transaction and dict(
        zip(("producer_id", "epoch", "number", "committed"), each.transaction, strict=True)
    )
    return each._asdict() | {"offsets": offsets, "found": places, "transaction": made}


def text_of(case: Case) -> list[dict[str, str]]:
    """Return the rows as text by column, without empty cells."""
    return [{name: cell for name, cell in zip(COLUMNS, row, strict=True) if cell} for row in case.rows]


def test_an_event_is_written_with_times_since_the_start_and_the_name_of_its_error() -> None:
    case = case_of([beat(5, 1, error=27, done_s=5.25)], 1, 1, "g-1")
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
    assert case.facts == {"group": "g", "generation": "2", "member": "g-1", "time": "1.000 s after the start"}


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
        (event("ConsumerGroupHeartbeat", 1, generation=3, epoch=-1), "no error", "leaves"),
        (event("ConsumerGroupHeartbeat", 1, generation=3, epoch=2), "no error", "sent with epoch 2"),
        (event("ConsumerGroupHeartbeat", 1, generation=3, epoch=3), "no error", None),
        (event("crash", 1, kind="act", broker=-1, latency_us=None), None, "action of the member's script"),
        (event("InitProducerId", 1, transaction=(7, 2, None, None)), "no error", "epoch 2"),
        (event("EndTxn", 1, transaction=(7, 2, 3, True)), "no error", "transaction 3, epoch 2, commit"),
        (event("EndTxn", 1, transaction=(7, 2, 3, False)), "no error", "transaction 3, epoch 2, abort"),
        (event("Fetch", 1, kind="seen", transaction=(7, 2, 3, True), offsets=[("p-0", 5)]), "no error",
         "transaction 3, epoch 2, returned by the reader; offset of p-0: 5"),
        (event("ListTransactions", 1, kind="seen", latency_us=None, transaction=(7, None, 3, None)), None,
         "transaction 3, open"),
    ):  # fmt: skip
        with subtests.test(api=each.api, details=details):
            (row,) = text_of(case_of([each], 50, 50))
            assert (row.get("response"), row.get("details")) == (response, details)


def test_what_the_description_names_is_shown() -> None:
    """Partitions are shown however many there are, and member ids only if they are named."""
    (row,) = text_of(case_of([sync(1, 2, *range(9), 20)], 1, 1, what="orders-20 of g: assigned to g-0 and g-1"))
    assert row["details"] == "assigned orders-20, orders-0, orders-1, orders-2, orders-3, orders-4 and 4 more"
    event_of_new = beat(1, member_id="new-1", instance_id="i")
    (row,) = text_of(
        case_of([event_of_new], 1, 1, what="a request of old-1 in g was accepted after new-1 had taken over")
    )
    assert row["details"] == "member id new-1; instance id i"
    for leader, details in (("a-1", "leader a-1; protocol range"), ("b-1", "protocol range")):
        (row,) = text_of(case_of([join(1, 1, leader=leader, members=0)], 1, 1, what="several leaders: a-1, c-1"))
        assert row["details"] == details


def test_events_are_in_the_order_in_which_they_were_sent() -> None:
    assert [row[0] for row in case_of([beat(9), beat(3), beat(5)], 3, 9).rows] == ["3.000", "5.000", "9.000"]


def test_failures_of_availability_have_times_since_the_start() -> None:
    failure = Unavailability(group="g", at_us=START_US + SECOND, until_us=START_US + 9 * SECOND, what="silence")
    assert unavailable(failure, START_US) == Case("silence", {"group": "g", "time": "1.000 to 9.000 s after the start"})
    assert unavailable(Unavailability(what="silence"), START_US) == Case("silence", {})
