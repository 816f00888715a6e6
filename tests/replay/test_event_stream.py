"""The event stream passes on batches while members play, and all events, even if the players fail."""

import threading
import time
from collections.abc import Callable

import pytest

from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.spark.event_stream import STREAM_EVENTS, EventStream, Recorded

EVENT = Event(1, 1, 1, "Heartbeat", 4, 1, "group", "member", 1, 0, member_id="m")


def nothing() -> None:
    pass


def rows(recorded: Recorded) -> int:
    assert all(batch.schema == SCHEMA for batch in recorded.batches)
    return sum(batch.num_rows for batch in recorded.batches)


def player(stream: EventStream, count: int) -> Callable[[], None]:
    def play() -> None:
        for _ in range(count):
            stream.add(EVENT)

    return play


def test_all_events_are_passed_on() -> None:
    stream = EventStream()
    recorded = list(stream.during(player(stream, STREAM_EVENTS + 3), nothing))
    assert list(map(rows, recorded)) == [STREAM_EVENTS, 3]
    assert [each.open_rows for each in recorded] == [None, None]


def test_a_full_batch_is_passed_on_while_members_play() -> None:
    stream, taken = EventStream(), threading.Event()

    def play() -> None:
        player(stream, STREAM_EVENTS)()
        assert taken.wait(20)

    batches = stream.during(play, nothing)
    assert rows(next(batches)) == STREAM_EVENTS
    taken.set()
    assert list(map(rows, batches)) == [0]


def test_a_part_ends_at_most_once_a_second_with_pending_requests_and_rows_that_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    stream, pending = EventStream(folds=True), EVENT._replace(api="JoinGroup", latency_us=None)

    def play() -> None:
        nonlocal now_s
        for at_s in (0.4, 0.8, 1.2, 1.6, 2.4):
            now_s = at_s
            stream.add(EVENT)
            stream.add(EVENT._replace(member=None))
            stream.end_part(lambda: [pending])

    recorded = list(stream.during(play, nothing))
    assert list(map(rows, recorded)) == [3, 2, 1]
    assert [each.open_rows for each in recorded] == [
        [EVENT.with_folded(3, EVENT.sent_us, EVENT.latency_us), pending],
        [EVENT.with_folded(5, EVENT.sent_us, EVENT.latency_us), pending],
        None,
    ]


def test_events_before_a_failure_are_passed_on() -> None:
    stream = EventStream()

    def play() -> None:
        player(stream, 5)()
        raise ValueError("broken")

    batches = stream.during(play, nothing)
    assert rows(next(batches)) == 5
    with pytest.raises(ValueError, match="broken"):
        next(batches)


def test_closing_the_generator_stops_the_members() -> None:
    stream, stopped = EventStream(), threading.Event()

    def play() -> None:
        player(stream, STREAM_EVENTS)()
        assert stopped.wait(20)

    batches = stream.during(play, stopped.set)
    next(batches)
    batches.close()
    assert stopped.is_set()


def test_heartbeats_are_folded_on_request() -> None:
    stream = EventStream(folds=True)
    (recorded,) = stream.during(player(stream, 10), nothing)
    (batch,) = recorded.batches
    assert batch.column("count").to_pylist() == [10]
