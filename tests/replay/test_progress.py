"""Live numbers: they add up, and nothing that comes over the wire can stop them."""

import io
import socket
import threading
from contextlib import closing

import pytest
from rich.console import Console

from fakebroker.replay.spark import live_view as live_view_module
from fakebroker.replay.spark.live_view import Pace, line, live_view, render
from fakebroker.replay.spark.progress import Receiver, Sender, Tally, receiving


def test_the_tallies_of_all_tasks_add_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        receiver = Receiver(udp)
        for task, tally in [
            (0, Tally(requests=5, joined=1, errors=0, elapsed_ms=100)),
            (1, Tally(requests=7, joined=2, errors=1, elapsed_ms=150)),
            (0, Tally(requests=9, joined=3, errors=0, elapsed_ms=200)),
        ]:
            with closing(Sender(("127.0.0.1", receiver.port), task)) as sender:
                sender.send(tally)
            receiver.take(udp.recv(1024))
        assert receiver.total() == Tally(requests=16, joined=5, errors=1, elapsed_ms=200)


@pytest.mark.parametrize("rubbish", [b"", b"rubbish", b"[1]", b'[1, {"unknown": 1}]', b'["x", {}]', b"\xff"])
def test_what_is_not_a_report_is_passed_over(rubbish: bytes) -> None:
    with receiving("127.0.0.1") as receiver:
        receiver.take(rubbish)
        assert receiver.total() == Tally()


def test_without_a_report_all_is_zero() -> None:
    with receiving("127.0.0.1") as receiver:
        assert receiver.total() == Tally()


def test_the_live_view_fits_into_80_columns() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80)
    tally = Tally(requests=1_234_567, joined=1_000_000, errors=1_234_567, elapsed_ms=120_000)
    console.print(render(tally, pace_at(0, 120), 600, 1_000_000))
    bar, numbers = text.getvalue().splitlines()
    assert bar.startswith(" 120 of 600 s ")
    assert bar.rstrip().endswith(" 480 s left")
    assert numbers == "1,000,000 of 1,000,000 members joined   10,288 requests/s   1,234,567 errors"


def test_in_memory_members_play_after_others() -> None:
    tally = Tally(requests=600, joined=5, elapsed_ms=599_000, lived_ms=1_500_000)
    told = line(tally, pace_at(0, 1), 600, 10)
    assert told == "150 of 600 s: 5 of 10 members joined, 600 requests/s, 0 errors"


def pace_at(*seconds: float) -> Pace:
    """A pace by a clock that tells these seconds, one after the other."""
    return Pace(iter(seconds).__next__)


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace = pace_at(0, 1, 2, 3, 3, 4)
    rates = [pace.of(Tally(requests=requests)) for requests in (100, 200, 1_300, 1_300, 2_400)]
    assert rates == [100, 100, 600, 600, 1_100]


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view_module, "_LINE_EVERY_S", 0.001)
    text, told = io.StringIO(), threading.Event()

    def total() -> Tally:
        if text.getvalue().count("\n") >= 2:
            told.set()
        return Tally(joined=3, errors=1, elapsed_ms=500)

    with live_view(Console(file=text, width=80), total, 0.001, 4):
        assert told.wait(20)
    lines = text.getvalue().splitlines()
    assert set(lines) == {"0 of 0 s: 3 of 4 members joined, 0 requests/s, 1 errors"}


def test_a_short_replay_without_a_terminal_is_quiet() -> None:
    text = io.StringIO()
    with live_view(Console(file=text, width=80), Tally, 3, 4):
        pass
    assert text.getvalue() == ""
