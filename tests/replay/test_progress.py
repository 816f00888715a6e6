"""Live numbers of a replay: tasks send them over UDP, and the driver shows them."""

import io
import socket
import threading
from contextlib import closing

import pytest
from rich.console import Console

from fakebroker.replay.spark import live_view as live_view_module
from fakebroker.replay.spark.live_view import Pace, line, live_view, render
from fakebroker.replay.spark.progress import Receiver, Sender, Tally, receiving


def test_the_last_tallies_of_all_tasks_are_added_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        receiver = Receiver(udp, Tally)
        for task, tally in [
            (0, Tally(requests=5, joined=1, errors=0, elapsed_ms=100)),
            (1, Tally(requests=7, joined=2, errors=1, elapsed_ms=150)),
            (0, Tally(requests=9, joined=3, errors=0, elapsed_ms=200)),
        ]:
            with closing(Sender(("127.0.0.1", receiver.port), task)) as sender:
                sender.send(tally)
            receiver.take(udp.recv(1024))
        assert receiver.total() == Tally(requests=16, joined=5, errors=1, elapsed_ms=200)


def test_other_datagrams_are_ignored(subtests: pytest.Subtests) -> None:
    with receiving("127.0.0.1", Tally) as receiver:
        assert receiver.total() == Tally()
        for datagram in (b"", b"no JSON", b"[1]", b'[1, {"unknown": 1}]', b'["x", {}]', b"\xff"):
            with subtests.test(datagram=datagram):
                receiver.take(datagram)
                assert receiver.total() == Tally()


def test_the_live_view_fits_into_80_columns() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80)
    tally = Tally(requests=1_234_567, joined=1_000_000, errors=1_234_567, elapsed_ms=120_000)
    console.print(render(tally, pace_at(0, 120), 600, 1_000_000))
    bar, numbers = text.getvalue().splitlines()
    assert bar.startswith(" 120 of 600 s ")
    assert bar.rstrip().endswith(" 480 s left")
    assert numbers == "1,000,000 of 1,000,000 members joined   10,288 requests/s   1,234,567 failed"


def test_in_memory_progress_is_the_average_of_all_members() -> None:
    tally = Tally(requests=600, joined=5, elapsed_ms=599_000, lived_ms=1_500_000)
    assert line(tally, pace_at(0, 1), 600, 10) == "150 of 600 s: 5 of 10 members joined, 600 requests/s, 0 failed"


def pace_at(*seconds: float) -> Pace:
    """Return a pace whose clock shows these seconds, one at each call."""
    return Pace(iter(seconds).__next__)


def test_the_pace_is_the_rate_of_the_last_two_seconds() -> None:
    pace = pace_at(0, 1, 2, 3, 3, 4)
    rates = [pace.of(Tally(requests=requests)) for requests in (100, 200, 1_300, 1_300, 2_400)]
    assert rates == [100, 100, 600, 600, 1_100]


def test_without_a_terminal_lines_are_printed_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view_module, "_LINE_EVERY_S", 0.001)
    text, has_lines = io.StringIO(), threading.Event()

    def total() -> Tally:
        if text.getvalue().count("\n") >= 2:
            has_lines.set()
        return Tally(joined=3, errors=1, elapsed_ms=500)

    with live_view(Console(file=text, width=80), total, 0.001, 4):
        assert has_lines.wait(20)
    lines = text.getvalue().splitlines()
    assert set(lines) == {"0 of 0 s: 3 of 4 members joined, 0 requests/s, 1 failed"}


def test_without_a_terminal_a_short_replay_prints_no_line() -> None:
    text = io.StringIO()
    with live_view(Console(file=text, width=80), Tally, 3, 4):
        pass
    assert text.getvalue() == ""
