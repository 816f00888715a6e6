"""The queue of deadlines: order, rescheduling, canceling."""

from math import inf

from hypothesis import given, strategies as st

from fakebroker.coordinator.timers import TimedValue, TimerQueue


def values(queue: TimerQueue[TimedValue[str]], now_ms: float = inf) -> list[tuple[str, float]]:
    return [(timer.value, deadline_ms) for timer, deadline_ms in queue.expired(now_ms)]


def test_entries_are_ordered_by_deadline_and_first_scheduling() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    for value, deadline_ms in (("late", 9), ("one", 5), ("two", 5), ("soon", 1)):
        queue.schedule(TimedValue(value), deadline_ms)
    assert queue.next_deadline() == 1
    assert values(queue, 5) == [("soon", 1), ("one", 5), ("two", 5)]
    assert values(queue, 8) == []
    assert values(queue) == [("late", 9)]
    assert queue.next_deadline() is None


def test_rescheduling_only_moves_an_entry_to_an_earlier_deadline() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    first, second = TimedValue("first"), TimedValue("second")
    queue.schedule(first, 9)
    queue.schedule(second, 5)
    queue.schedule(second, 7)
    queue.schedule(first, 5)
    assert values(queue) == [("first", 5), ("second", 5)]


def test_canceled_entry_is_not_returned_until_it_is_scheduled_again() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    timer, other = TimedValue("timer"), TimedValue("other")
    queue.schedule(timer, 1)
    queue.schedule(other, 3)
    queue.cancel(timer)
    queue.cancel(timer)
    assert queue.next_deadline() == 3
    queue.schedule(timer, 4)
    assert values(queue) == [("other", 3), ("timer", 4)]


def test_infinite_deadline_is_ignored() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    queue.schedule(TimedValue("never"), inf)
    assert queue.next_deadline() is None


def test_entries_scheduled_while_iterating_are_included() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    queue.schedule(TimedValue("first"), 1)
    found = []
    for timer, deadline_ms in queue.expired(2):
        found.append(timer.value)
        if timer.value == "first":
            queue.schedule(TimedValue("second"), deadline_ms + 1)
            queue.schedule(TimedValue("third"), deadline_ms + 2)
    assert found == ["first", "second"]


def test_canceled_entries_do_not_accumulate() -> None:
    queue: TimerQueue[TimedValue[int]] = TimerQueue()
    kept = [TimedValue(number) for number in range(100)]
    for number, timer in enumerate(kept):
        queue.schedule(timer, 1000 + number)
    for _ in range(5000):
        canceled = TimedValue(-1)
        queue.schedule(canceled, 2000)
        queue.cancel(canceled)
    assert len(queue._heap) < 500
    assert [timer.value for timer, _ in queue.expired(inf)] == list(range(100))


steps = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["schedule", "cancel", "expire"]), st.integers(0, 20)))


@given(steps)
def test_queue_behaves_like_a_sorted_list(history: list[tuple[int, str, int]]) -> None:
    queue: TimerQueue[TimedValue[int]] = TimerQueue()
    queue._sweep_size = 2
    timers = [TimedValue(index) for index in range(10)]
    numbers: dict[int, int] = {}  # In the order in which they were first scheduled.
    due: dict[int, int] = {}
    for index, step, time_ms in history:
        if step == "schedule":
            queue.schedule(timers[index], time_ms)
            numbers.setdefault(index, len(numbers))
            due[index] = min(time_ms, due.get(index, time_ms))
        elif step == "cancel":
            queue.cancel(timers[index])
            due.pop(index, None)
        else:
            expected = sorted((at_ms, numbers[each]) for each, at_ms in due.items() if at_ms <= time_ms)
            assert [(at_ms, numbers[timer.value]) for timer, at_ms in queue.expired(time_ms)] == expected
            due = {each: at_ms for each, at_ms in due.items() if at_ms > time_ms}
        assert queue.next_deadline() == min(due.values(), default=None)
