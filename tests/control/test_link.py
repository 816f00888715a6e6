"""The link between the two processes: frames, answers at once and later, and what happens when an end goes away."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from fakebroker.control.gateway.answering import Answering
from fakebroker.control.gateway.brokers_end import BrokersEnd, HasEnded, IsGone
from fakebroker.control.gateway.link import Link
from fakebroker.control.gateway.wire import Ask, Frames, Reply, frame
from tests.client.trio_runner import in_trio_with_sockets

LATER = "/later"
TIMEOUT_S = 10.0
ASKS = [Ask(number, "GET", "/a") for number in range(1, 20)]


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


@contextmanager
def linked() -> Iterator[tuple[Link, Link]]:
    """Both ends of a link."""
    ours, theirs = socket.socketpair()
    with Link(ours) as one, Link(theirs) as other:
        yield one, other


def answering(link: Link, dispatcher: Dispatcher, nursery: trio.Nursery, share_s: float = 1.0) -> Answering:
    return Answering(link, dispatcher, nursery, share_s)  # type: ignore[arg-type]  # as good as one


@in_trio_with_sockets
async def test_each_gets_its_answer_and_who_waits_holds_up_nobody() -> None:
    dispatcher = Dispatcher()
    with linked() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answering(theirs, dispatcher, nursery).run)
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


@in_trio_with_sockets
async def test_a_question_is_taken_back_when_nobody_waits_for_its_answer() -> None:
    dispatcher, is_gone = Dispatcher(), trio.Event()
    is_gone.set()
    with linked() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answering(theirs, dispatcher, nursery).run)
            brokers = BrokersEnd(ours)
            nursery.start_soon(brokers.run)
            with pytest.raises(IsGone):
                await brokers.ask("POST", LATER, gone=is_gone.wait)
            with trio.fail_after(TIMEOUT_S):
                await dispatcher.has_been_cancelled.wait()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("share_s", "turns"), [(0.0, range(10, 21)), (60.0, range(1, 4))])
@in_trio_with_sockets
async def test_the_brokers_go_on_when_answers_have_had_their_share_of_the_time(share_s: float, turns: range) -> None:
    dispatcher, seen = Dispatcher(), set()
    with linked() as (ours, theirs):
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                while dispatcher.answered < len(ASKS):
                    seen.add(dispatcher.answered)
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

            ours.put(b"".join(map(frame, ASKS)))
            nursery.start_soon(answering(theirs, dispatcher, nursery, share_s).run)
            nursery.start_soon(look)
    # Of two tasks either may be first in a turn; none is left out of one.
    assert len(seen) in turns


@in_trio_with_sockets
async def test_what_does_not_go_out_at_once_goes_out_when_there_is_room() -> None:
    data = bytes(range(256)) * 2**14
    with linked() as (ours, theirs):
        ours.put(data[:1000])
        ours.put(data[1000:])
        received = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.drain)
            nursery.start_soon(ours.drain)
            while len(received) < len(data):
                received += await theirs.receive()
        assert received == data


@in_trio_with_sockets
async def test_a_question_that_is_taken_back_before_it_is_out_arrives_all_the_same_and_so_does_that() -> None:
    with linked() as (ours, theirs):
        brokers, frames, found = BrokersEnd(ours), Frames(Ask), list[Ask]()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(brokers.run)
            with trio.move_on_after(0):
                await brokers.ask("POST", LATER, body=b"." * 2**22)
            with trio.fail_after(TIMEOUT_S):
                while len(found) < 2:
                    found += frames.feed(await theirs.receive())
            nursery.cancel_scope.cancel()
    assert [(ask.number, ask.method, len(ask.body)) for ask in found] == [(1, "POST", 2**22), (1, "", 0)]


@in_trio_with_sockets
async def test_what_is_put_next_takes_the_rest_along() -> None:
    with linked() as (ours, theirs):
        ours.put(b"." * 2**22)
        left = len(ours._unsent)
        assert left > 0
        assert await theirs.receive()
        ours.put(b".")
        assert len(ours._unsent) < left


@in_trio_with_sockets
async def test_who_asks_hears_when_the_brokers_have_ended() -> None:
    with linked() as (ours, theirs):
        brokers = BrokersEnd(ours)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(brokers.run)
            nursery.start_soon(end, theirs)
            with pytest.raises(HasEnded):
                await brokers.ask("POST", LATER)
            with pytest.raises(HasEnded):
                await brokers.ask("GET", "/a")
            assert brokers.has_ended.is_set()


async def end(link: Link) -> None:
    await link.receive()
    with link:
        pass
