"""The connection, against a broker written by hand at the other end of a stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from fakebroker.client.connection import Connection
from fakebroker.client.errors import BrokerUnreachable, ConnectionLost, UnsupportedVersion
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fakebroker.protocol.schema import Message
from tests.support.client.scripted_broker import Broker, connect, heartbeat, ranges
from tests.support.trio_runner import in_trio


@asynccontextmanager
async def connected(
    max_in_flight: int = 10, max_frame_bytes: int = 1_000
) -> AsyncIterator[tuple[Connection, Broker, trio.Nursery]]:
    """A connection over a stream in memory, versions agreed on."""
    ours, theirs = trio.testing.memory_stream_pair()
    broker = Broker(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.tell_versions)
        connection = await connect(
            ours, nursery, "client-1", max_in_flight=max_in_flight, max_frame_bytes=max_frame_bytes
        )
        yield connection, broker, nursery
        await connection.aclose()


@in_trio
async def test_a_request_gets_its_answer() -> None:
    async with connected() as (connection, broker, nursery):

        async def serve() -> None:
            header, request = await broker.take()
            assert (header.api_version, request) == (4, heartbeat())
            await broker.answer(header, HeartbeatResponse(error_code=27))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat())).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert broker.client_ids == ["client-1", "client-1"]


@in_trio
async def test_many_requests_are_in_flight_and_answered_in_order() -> None:
    answers: dict[int, int] = {}
    async with connected() as (connection, broker, _):

        async def ask(generation_id: int) -> None:
            answers[generation_id] = (await connection.request(heartbeat(generation_id))).throttle_time_ms

        async with trio.open_nursery() as asking:
            for generation_id in range(5):
                asking.start_soon(ask, generation_id)
            taken = [await broker.take() for _ in range(5)]
            for header, request in taken:
                assert isinstance(request, HeartbeatRequest)
                await broker.answer(header, HeartbeatResponse(throttle_time_ms=request.generation_id * 10))
    assert answers == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}


@in_trio
async def test_no_more_requests_are_sent_than_may_be_in_flight() -> None:
    async with connected(max_in_flight=2) as (connection, broker, nursery):
        for _ in range(3):
            nursery.start_soon(connection.request, heartbeat())
        await trio.testing.wait_all_tasks_blocked()
        (first, _), (second, _) = await broker.take(), await broker.take()
        with trio.move_on_after(1) as waited:
            await broker.take()
        assert waited.cancelled_caught
        await broker.answer(first, HeartbeatResponse())
        third, _ = await broker.take()
        for header in (second, third):
            await broker.answer(header, HeartbeatResponse())
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("request_type", "version"),
    [
        (HeartbeatRequest, 4),
        (JoinGroupRequest, 4),  # the broker's last
        (OffsetCommitRequest, 9),  # the last with topic names
        (FindCoordinatorRequest, 6),
    ],
)
@in_trio
async def test_the_highest_common_version_is_taken(request_type: type[Message], version: int) -> None:
    async with connected() as (connection, _, _):
        assert connection.versions.version_for(request_type) == version


@pytest.mark.parametrize(
    ("spoken", "sentence"),
    [
        ({12: (5, 6)}, "Heartbeat: broker memory:1 speaks 5-6, this client 0-4"),
        ({}, "Heartbeat: broker memory:1 speaks no version, this client 0-4"),
    ],
)
@in_trio
async def test_an_api_without_a_common_version_is_refused_before_anything_is_sent(
    spoken: dict[int, tuple[int, int]], sentence: str
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = Broker(theirs, spoken)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.tell_versions)
        connection = await connect(ours, nursery)
        with pytest.raises(UnsupportedVersion, match=sentence):
            await connection.request(heartbeat())
        await connection.aclose()


@in_trio
async def test_requests_that_are_sent_together_keep_their_order_and_the_limit() -> None:
    async with connected(max_in_flight=2) as (connection, broker, nursery):
        answers: list[int] = []

        async def ask() -> None:
            all_sent = await connection.send([heartbeat(generation_id) for generation_id in range(5)])
            answers.extend([(await sent.answer()).throttle_time_ms for sent in all_sent])

        nursery.start_soon(ask)
        for generation_id in range(5):
            header, request = await broker.take()
            assert request == heartbeat(generation_id)
            await broker.answer(header, HeartbeatResponse(throttle_time_ms=generation_id))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [0, 1, 2, 3, 4]


@in_trio
async def test_nothing_is_sent_if_one_of_several_cannot_be() -> None:
    async with connected() as (connection, broker, nursery):
        with pytest.raises(UnsupportedVersion, match="LeaveGroup"):
            await connection.send([heartbeat(1), LeaveGroupRequest(group_id="g", members=[])])
        nursery.start_soon(connection.request, heartbeat(2))
        header, request = await broker.take()
        assert request == heartbeat(2)
        await broker.answer(header, HeartbeatResponse())
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(("told", "versions"), [({18: (0, 3)}, [4, 3]), ({}, [4, 0])])
@in_trio
async def test_a_broker_that_does_not_know_our_api_versions_is_asked_again(
    told: dict[int, tuple[int, int]], versions: list[int]
) -> None:
    """It answers in version 0, since 2.4 with the versions that it does know (KIP-511)."""
    ours, theirs = trio.testing.memory_stream_pair()
    broker, asked = Broker(theirs), []

    async def serve() -> None:
        header, _ = await broker.take()
        asked.append(header.api_version)
        await broker.answer(header, ApiVersionsResponse(error_code=35, api_keys=ranges(told)), version=0)
        header, request = await broker.take()
        asked.append(header.api_version)
        assert isinstance(request, ApiVersionsRequest)
        await broker.answer(header, ApiVersionsResponse(api_keys=ranges({12: (0, 2)})))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        connection = await connect(ours, nursery)
        assert connection.versions.version_for(HeartbeatRequest) == 2
        await connection.aclose()
    assert asked == versions


@in_trio
async def test_a_broker_that_knows_no_version_of_api_versions_is_not_asked_for_ever() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = Broker(theirs)

    async def serve() -> None:
        for _ in range(2):
            header, _ = await broker.take()
            await broker.answer(header, ApiVersionsResponse(error_code=35, api_keys=[]), version=0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(BrokerUnreachable, match="ApiVersions was answered UNSUPPORTED_VERSION"):
            await connect(ours, nursery)


@in_trio
async def test_a_broker_that_refuses_its_versions_with_an_error_of_its_own_is_no_broker_of_ours() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = Broker(theirs)

    async def serve() -> None:
        header, _ = await broker.take()
        await broker.answer(header, ApiVersionsResponse(error_code=4_321, api_keys=[]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(BrokerUnreachable, match="ApiVersions was answered UNKNOWN_SERVER_ERROR"):
            await connect(ours, nursery)


@in_trio
async def test_nothing_is_connected_that_nobody_can_read() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        pass
    with pytest.raises(RuntimeError, match="closed to new arrivals"):
        await connect(ours, nursery)
    with trio.move_on_after(1) as waited:
        await theirs.receive_some()
    assert waited.cancelled_caught


@in_trio
async def test_the_answer_to_a_cancelled_request_is_dropped() -> None:
    async with connected() as (connection, broker, nursery):
        with trio.move_on_after(1):
            await connection.request(heartbeat())
        cancelled, _ = await broker.take()
        await broker.answer(cancelled, HeartbeatResponse(error_code=25))

        async def serve() -> None:
            header, _ = await broker.take()
            await broker.answer(header, HeartbeatResponse(error_code=27))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat())).error_code == 27


@in_trio
async def test_a_request_cancelled_while_it_is_written_is_written_as_a_whole() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker, may_go_on = Broker(theirs), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.tell_versions)
        connection = await connect(ours, nursery)
        deliver = ours.send_stream.send_all_hook
        assert deliver is not None

        async def deliver_later() -> None:
            await may_go_on.wait()
            await deliver()

        ours.send_stream.send_all_hook = deliver_later
        with trio.move_on_after(1) as waited:
            await connection.request(heartbeat(1))
        assert waited.cancelled_caught
        may_go_on.set()

        async def serve() -> None:
            for generation_id in (1, 2):
                header, request = await broker.take()
                assert request == heartbeat(generation_id)
                await broker.answer(header, HeartbeatResponse(error_code=generation_id))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat(2))).error_code == 2
        await connection.aclose()


@in_trio
async def test_the_end_of_the_stream_fails_what_is_in_flight_and_what_comes_later() -> None:
    async with connected() as (connection, broker, _):
        sentences = []

        async def ask() -> None:
            with pytest.raises(ConnectionLost) as caught:
                await connection.request(heartbeat())
            sentences.append(str(caught.value))

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            asking.start_soon(ask)
            await broker.take()
            await broker.stream.aclose()
        await ask()
    assert sentences == ["the broker has closed it"] * 3


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"\0\0\0\x06\0\0\0\x63\0\0", "answer with correlation id 99, expected 2"),
        (b"\0\0\0\x05\0\0\0\x02\0", "HeartbeatResponse v4: field .* malformed"),
        (b"\0\0\0\x00", "answer with correlation id none, expected 2"),
        (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes, expected 0 to 1000"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes, expected 0 to 1000"),
    ],
    ids=["wrong id", "undecodable", "empty", "too large", "negative size"],
)
@in_trio
async def test_an_answer_that_is_none_closes_the_connection(answer: bytes, sentence: str) -> None:
    async with connected() as (connection, broker, nursery):

        async def serve() -> None:
            await broker.take()
            await broker.stream.send_all(answer)

        nursery.start_soon(serve)
        with pytest.raises(ConnectionLost, match=sentence):
            await connection.request(heartbeat())
        with pytest.raises(ConnectionLost, match=sentence):
            await connection.request(heartbeat())
        with pytest.raises(trio.BrokenResourceError):
            await broker.stream.send_all(b"more")


@in_trio
async def test_an_answer_to_nothing_closes_the_connection() -> None:
    async with connected() as (connection, broker, _):
        await broker.stream.send_all(b"\0\0\0\x06\0\0\0\x01\0\0")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ConnectionLost, match="answer with correlation id 1, expected none"):
            await connection.request(heartbeat())


@in_trio
async def test_a_request_that_the_version_cannot_carry_is_the_callers_mistake_alone() -> None:
    async with connected() as (connection, broker, nursery):
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        with pytest.raises(ProtocolError, match="OffsetFetchRequest: 2 in one request, where this version takes one"):
            await connection.request(OffsetFetchRequest(groups=[group, group]))
        with pytest.raises(ProtocolError, match="field group_instance_id cannot be written"):
            await connection.request(
                JoinGroupRequest(
                    group_id="g",
                    session_timeout_ms=1,
                    member_id="",
                    group_instance_id="i",
                    protocol_type="consumer",
                    protocols=[],
                )
            )

        async def serve() -> None:
            header, _ = await broker.take()
            await broker.answer(header, HeartbeatResponse())

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat())).error_code == 0


@in_trio
async def test_a_cancelled_nursery_closes_the_connection() -> None:
    async with trio.open_nursery() as outer:
        ours, theirs = trio.testing.memory_stream_pair()
        broker = Broker(theirs)
        outer.start_soon(broker.tell_versions)
        async with trio.open_nursery() as nursery:
            connection = await connect(ours, nursery)
            nursery.cancel_scope.cancel()
        with pytest.raises(ConnectionLost):
            await connection.request(heartbeat())
        assert await theirs.receive_some() == b""


@in_trio
async def test_closing_fails_what_is_in_flight() -> None:
    async with connected() as (connection, broker, _), trio.open_nursery() as asking:

        async def ask() -> None:
            with pytest.raises(ConnectionLost, match="closed by this client"):
                await connection.request(heartbeat())

        asking.start_soon(ask)
        await broker.take()
        await connection.aclose()
