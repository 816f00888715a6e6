"""Requests about many groups to one broker: batches, limits and errors."""

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
from fakebroker.protocol.schema import Message
from tests.support.client.scripted_broker import ScriptedBroker, VersionsByKey, connect
from tests.support.trio_runner import in_trio

FIND_COORDINATORS = group_handlers.find_coordinators("group")
SENDER = RequestSender(fall_back=True, request_timeout_ms=1_000)


@asynccontextmanager
async def connected(versions: VersionsByKey) -> AsyncIterator[tuple[Connection, ScriptedBroker]]:
    """Open a connection to a broker with these versions."""
    ours, theirs = trio.testing.memory_stream_pair()
    broker = ScriptedBroker(theirs, versions)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve_versions)
        connection = await connect(ours, nursery)
        yield connection, broker
        await connection.aclose()


async def respond_once(broker: ScriptedBroker, response: Message) -> None:
    header, _ = await broker.receive()
    await broker.respond(header, response)


def coordinator(key: str, error: int = 0) -> Coordinator:
    return Coordinator(key=key, node_id=1, host="h", port=9, error_code=error, error_message=None)


@in_trio
async def test_the_number_of_single_requests_in_flight_is_limited() -> None:
    keys = [f"g{number}" for number in range(MAX_REQUESTS_IN_FLIGHT + 1)]
    async with connected({10: (0, 3)}) as (connection, broker):
        answers: list[str] = []

        async def send_requests() -> None:
            answers.extend(await SENDER.send_batched(FIND_COORDINATORS, keys, connection, None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_requests)
            received = [await broker.receive() for _ in range(MAX_REQUESTS_IN_FLIGHT)]
            with trio.move_on_after(0.5) as waited:
                await broker.receive()
            assert waited.cancelled_caught
            for header, _ in received:
                await broker.respond(header, FindCoordinatorResponse(node_id=1, host="h", port=9))
            header, request = await broker.receive()
            assert request == FindCoordinatorRequest(key=keys[-1])
            await broker.respond(header, FindCoordinatorResponse(node_id=1, host="h", port=9))
        assert answers == keys


@in_trio
async def test_a_key_that_is_missing_in_the_response_has_an_error() -> None:
    async with connected({10: (0, 4)}) as (connection, broker), trio.open_nursery() as nursery:
        response = FindCoordinatorResponse(coordinators=[coordinator("a"), coordinator("b", 9_999)])
        nursery.start_soon(respond_once, broker, response)
        answers = await SENDER.send_batched(FIND_COORDINATORS, ["a", "b", "c"], connection, None)
        failed = {key: answer for key, answer in answers.items() if isinstance(answer, AdminError)}
        assert {key: error.error for key, error in failed.items()} == dict.fromkeys(
            ["b", "c"], ErrorCode.UNKNOWN_SERVER_ERROR
        )
        assert str(failed["c"]).endswith("UNKNOWN_SERVER_ERROR: no result in the response of broker memory:1")


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
@in_trio
async def test_the_connection_is_closed_after_a_request_timeout(reads: bool) -> None:
    async with connected({10: (0, 4)}) as (connection, broker), trio.open_nursery() as nursery:
        if reads:
            nursery.start_soon(broker.receive)
        (failed,) = (await SENDER.send_batched(FIND_COORDINATORS, ["a"], connection, None)).values()
        assert isinstance(failed, AdminError)
        assert failed.error is ErrorCode.NETWORK_EXCEPTION
        assert str(failed).endswith("no response from broker memory:1 within 1000 ms")
        assert connection.is_lost


@in_trio
async def test_the_error_of_a_group_is_read_from_its_partitions_in_old_versions(subtests: pytest.Subtests) -> None:
    handler = offset_handlers.list_offsets({"g": [("t", 0)]}, require_stable=False)
    cases: dict[ErrorCode, list[tuple[int, int]]] = {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: [],
        ErrorCode.NOT_COORDINATOR: [(0, 16)],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: [(0, 29)],
    }
    for error, codes in cases.items():
        with subtests.test(error=error):
            partitions = [
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index, code in codes
            ]
            topics = [OffsetFetchResponseTopic(name="t", partitions=partitions)] if partitions else []
            async with connected({9: (0, 1)}) as (connection, broker), trio.open_nursery() as nursery:
                nursery.start_soon(respond_once, broker, OffsetFetchResponse(topics=topics))
                (failed,) = (await SENDER.send_batched(handler, ["g"], connection, None)).values()
                assert isinstance(failed, AdminError)
                assert failed.error is error
