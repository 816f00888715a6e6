"""The link between the two processes: frames, answers at once and later, and what happens when an end goes away."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from fakebroker.control.answering import Answering
from fakebroker.control.brokers_end import BrokersEnd, HasEnded
from fakebroker.control.wire import Ask, Frames, Reply, frame
from tests.client.trio_runner import in_trio

LATER = "/later"


class Dispatcher:
    """Answers with the path: at once, or never."""

    def __init__(self) -> None:
        self.answered = 0
        self.has_been_cancelled = trio.Event()

    def at_once(self, ask: Ask) -> Reply | None:
        self.answered += 1
        return None if ask.path == LATER else Reply(ask.number, 200, "text/plain", ask.path.encode())

    async def answer(self, ask: Ask) -> Reply:
        try:
            await trio.sleep_forever()
        finally:
            self.has_been_cancelled.set()
        raise AssertionError


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_are_cut_wherever_the_bytes_are(size: int) -> None:
    asks = [Ask(1, "GET", "/a"), Ask(2, "POST", "/b", "x=1", b"{}" * 300), Ask(1, "")]
    data, frames = b"".join(map(frame, asks)), Frames(Ask)
    found = [ask for start in range(0, len(data), size) for ask in frames.feed(data[start : start + size])]
    assert found == asks


async def serve(
    dispatcher: Dispatcher, nursery: trio.Nursery, stream: trio.abc.Stream, ended: Callable[[], None] = lambda: None
) -> None:
    answering, frames = Answering(stream, dispatcher, nursery), Frames(Ask)  # type: ignore[arg-type]  # as good as one
    while data := await stream.receive_some():
        await answering.take(list(frames.feed(bytes(data))))
    ended()


@in_trio
async def test_each_gets_its_answer_and_who_waits_holds_up_nobody() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    dispatcher = Dispatcher()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, dispatcher, nursery, theirs)
        brokers = BrokersEnd(ours)
        nursery.start_soon(brokers.run)
        with trio.CancelScope() as waiting:
            async with trio.open_nursery() as inner:
                inner.start_soon(brokers.ask, "POST", LATER)
                for path in ("/a", "/b"):
                    assert (await brokers.ask("GET", path)).body == path.encode()
                waiting.cancel()
        await dispatcher.has_been_cancelled.wait()
        nursery.cancel_scope.cancel()


@in_trio
async def test_the_brokers_go_on_between_two_answers() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    dispatcher, seen = Dispatcher(), set()
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                seen.add(dispatcher.answered)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(look)
        answering = Answering(ours, dispatcher, nursery)  # type: ignore[arg-type]  # as good as one
        await answering.take([Ask(number, "GET", "/a") for number in range(1, 20)])
        nursery.cancel_scope.cancel()
    # Of two tasks either may be first in a turn; none is left out of one.
    assert len(seen) >= 10


@in_trio
async def test_who_asks_hears_when_the_brokers_have_ended() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    brokers = BrokersEnd(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.run)
        nursery.start_soon(end, theirs)
        with pytest.raises(HasEnded):
            await brokers.ask("POST", LATER)
        with pytest.raises(HasEnded):
            await brokers.ask("GET", "/a")
        assert brokers.has_ended.is_set()


async def end(stream: trio.abc.Stream) -> None:
    await stream.receive_some()
    await stream.aclose()
