"""Live numbers: they add up, and nothing that comes over the wire can stop them."""

import io
import socket
from contextlib import closing

import pytest
from rich.console import Console

from fakebroker.replay.live import render
from fakebroker.replay.progress import Receiver, Sender, Tally, receiving


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
    console.print(render(Tally(requests=1_234_567, joined=12_345, errors=9, elapsed_ms=12_000), 30, 12_400))
    bar, numbers = text.getvalue().splitlines()
    assert bar.startswith("  12 of 30 s ")
    assert numbers == "1,234,567 requests (102,881/s)   12,345 of 12,400 members joined   9 errors"
