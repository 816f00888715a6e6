"""Batched requests to one broker, against a broker written by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from fakebroker.client.admin import group_handlers, offset_handlers
from fakebroker.client.admin.batched_requests import MAX_REQUESTS_IN_FLIGHT, RequestSender
from fakebroker.client.connection import Connection
from fakebroker.client.errors import AdminError
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.support.client.scripted_broker import Broker, connect
from tests.support.trio_runner import in_trio

FIND = group_handlers.find_coordinators("group")
SENDER = RequestSender(fall_back=True, request_timeout_ms=1_000)


@asynccontextmanager
async def connected(spoken: dict[int, tuple[int, int]]) -> AsyncIterator[tuple[Connection, Broker]]:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = Broker(theirs, spoken)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.tell_versions)
        connection = await connect(ours, nursery)
        yield connection, broker
        await connection.aclose()


def found(key: str, error: int = 0) -> Coordinator:
    return Coordinator(key=key, node_id=1, host="h", port=9, error_code=error, error_message=None)


@in_trio
async def test_no_more_single_requests_are_sent_than_are_allowed() -> None:
    keys = [f"g{number}" for number in range(MAX_REQUESTS_IN_FLIGHT + 1)]
    async with connected({10: (0, 3)}) as (connection, broker):
        answers: list[str] = []

        async def ask() -> None:
            answers.extend(await SENDER.send_batched(FIND, keys, connection, None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            taken = [await broker.take() for _ in range(MAX_REQUESTS_IN_FLIGHT)]
            with trio.move_on_after(0.5) as waited:
                await broker.take()
            assert waited.cancelled_caught
            for header, _ in taken:
                await broker.answer(header, FindCoordinatorResponse(node_id=1, host="h", port=9))
            header, request = await broker.take()
            assert request == FindCoordinatorRequest(key=keys[-1])
            await broker.answer(header, FindCoordinatorResponse(node_id=1, host="h", port=9))
        assert answers == keys


@in_trio
async def test_what_a_broker_does_not_tell_of_is_an_error() -> None:
    async with connected({10: (0, 4)}) as (connection, broker), trio.open_nursery() as nursery:

        async def serve() -> None:
            header, _ = await broker.take()
            await broker.answer(header, FindCoordinatorResponse(coordinators=[found("a"), found("b", 9_999)]))

        nursery.start_soon(serve)
        answers = await SENDER.send_batched(FIND, ["a", "b", "c"], connection, None)
        failed = {key: answer for key, answer in answers.items() if isinstance(answer, AdminError)}
        assert {key: error.error for key, error in failed.items()} == dict.fromkeys(
            ["b", "c"], ErrorCode.UNKNOWN_SERVER_ERROR
        )
        assert str(failed["c"]).endswith("UNKNOWN_SERVER_ERROR: broker memory:1 does not tell of it")


@pytest.mark.parametrize("releases", [True, False], ids=["reads", "does not read"])
@in_trio
async def test_a_broker_that_does_not_answer_in_time_loses_its_connection(releases: bool) -> None:
    async with connected({10: (0, 4)}) as (connection, broker), trio.open_nursery() as nursery:
        if releases:
            nursery.start_soon(broker.take)
        (failed,) = (await SENDER.send_batched(FIND, ["a"], connection, None)).values()
        assert isinstance(failed, AdminError)
        assert failed.error is ErrorCode.NETWORK_EXCEPTION
        assert str(failed).endswith("broker memory:1 has not answered in 1000 ms")
        assert connection.is_lost


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ([], ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ([(0, 16)], ErrorCode.NOT_COORDINATOR),
        ([(0, 29)], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
@in_trio
async def test_in_old_versions_the_error_of_a_group_stands_in_its_partitions(
    told: list[tuple[int, int]], error: ErrorCode
) -> None:
    handler = offset_handlers.list_offsets({"g": [("t", 0)]}, require_stable=False)
    partitions = [
        OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
        for index, code in told
    ]
    async with connected({9: (0, 1)}) as (connection, broker), trio.open_nursery() as nursery:

        async def serve() -> None:
            header, _ = await broker.take()
            topics = [OffsetFetchResponseTopic(name="t", partitions=partitions)] if partitions else []
            await broker.answer(header, OffsetFetchResponse(topics=topics))

        nursery.start_soon(serve)
        (failed,) = (await SENDER.send_batched(handler, ["g"], connection, None)).values()
        assert isinstance(failed, AdminError)
        assert failed.error is error
