"""Opening a connection over TCP."""

import pytest
import trio

from fakebroker.client.errors import BrokerUnreachable
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.server.lifecycle import bound
from tests.support.client.connection import Connection
from tests.support.client.scripted_broker import ScriptedBroker
from tests.support.group_requests import heartbeat_request
from tests.support.trio_runner import in_trio_with_own_sockets, in_trio_with_sockets


@in_trio_with_sockets
async def test_open_connects_over_tcp() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        broker = ScriptedBroker(stream)
        await broker.serve_versions()
        header, _ = await broker.receive()
        await broker.respond(header, HeartbeatResponse(error_code=25))

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        async with await Connection.open("localhost", port, "c", nursery) as connection:
            assert (await connection.request(heartbeat_request())).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.cancel_scope.cancel()


@in_trio_with_sockets
async def test_the_error_of_a_refused_connection_contains_host_and_port() -> None:
    with bound("127.0.0.1", 0) as deaf:  # Reserves a port on which nobody listens.
        port = deaf.getsockname()[1]
        async with trio.open_nursery() as nursery:
            with pytest.raises(
                BrokerUnreachable, match=f"broker 127.0.0.1:{port} cannot be reached: Connection refused$"
            ) as caught:
                await Connection.open("127.0.0.1", port, "c", nursery)
    assert caught.value.broker == f"broker 127.0.0.1:{port}"


@in_trio_with_sockets
async def test_a_server_without_a_valid_response_to_api_versions_is_unreachable(subtests: pytest.Subtests) -> None:
    for response, message in (
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "not a Kafka broker, or not a plaintext port: it sent 'HTTP/1.1 400 Bad'",
        ),
        (b"", "the broker has closed the connection"),
    ):
        with subtests.test(response=response):
            await check_unreachable(response, message)


@in_trio_with_own_sockets
async def test_a_server_that_does_not_answer_is_unreachable() -> None:
    await check_unreachable(None, "connected, but no response to ApiVersions in 50 ms")


async def check_unreachable(response: bytes | None, message: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if response is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(response)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        connect_timeout_ms = 50 if response is None else 10_000
        with pytest.raises(BrokerUnreachable, match=message):
            await Connection.open("127.0.0.1", port, "c", nursery, connect_timeout_ms=connect_timeout_ms)
        nursery.cancel_scope.cancel()
