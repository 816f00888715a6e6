"""The event stream passes on batches while members play, and all events, even if the players fail."""

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.spark.event_stream import STREAM_EVENTS, EventStream

EVENT = Event(1, 1, 1, "Heartbeat", 4, 1, "group", "member", 1, 0, member_id="m")


def nothing() -> None:
    pass


def rows(batches: list[pa.RecordBatch]) -> int:
    assert all(batch.schema == SCHEMA for batch in batches)
    return sum(batch.num_rows for batch in batches)


def player(stream: EventStream, count: int) -> Callable[[], None]:
    def play() -> None:
        for _ in range(count):
            stream.add(EVENT)

    return play


def test_all_events_are_passed_on() -> None:
    stream = EventStream()
    batches = list(stream.during(player(stream, STREAM_EVENTS + 3), nothing))
    assert [batch.num_rows for batch in batches] == [STREAM_EVENTS, 3]
    assert rows(batches) == STREAM_EVENTS + 3


def test_a_full_batch_is_passed_on_while_members_play() -> None:
    stream, taken = EventStream(), threading.Event()

    def play() -> None:
        player(stream, STREAM_EVENTS)()
        assert taken.wait(20)

    batches = stream.during(play, nothing)
    assert next(batches).num_rows == STREAM_EVENTS
    taken.set()
    assert list(batches) == []


def test_events_before_a_failure_are_passed_on() -> None:
    stream = EventStream()

    def play() -> None:
        player(stream, 5)()
        raise ValueError("broken")

    batches = stream.during(play, nothing)
    assert next(batches).num_rows == 5
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
    (batch,) = stream.during(player(stream, 10), nothing)
    assert batch.column("count").to_pylist() == [10]
