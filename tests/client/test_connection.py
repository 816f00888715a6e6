"""A connection to a scripted broker, over a stream in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from fakebroker.client.errors import BrokerUnreachable, ConnectionLost, UnsupportedVersion
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.client.connection import Connection
from tests.support.client.scripted_broker import ScriptedBroker, connect, version_ranges
from tests.support.group_requests import heartbeat_request
from tests.support.trio_runner import in_trio


@asynccontextmanager
async def connected(
    max_in_flight: int = 10, max_frame_bytes: int = 1_000
) -> AsyncIterator[tuple[Connection, ScriptedBroker, trio.Nursery]]:
    """Open a connection and negotiate versions."""
    ours, theirs = trio.testing.memory_stream_pair()
    broker = ScriptedBroker(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve_versions)
        connection = await connect(
            ours, nursery, "client-1", max_in_flight=max_in_flight, max_frame_bytes=max_frame_bytes
        )
        yield connection, broker, nursery
        await connection.aclose()


@in_trio
async def test_a_request_returns_its_response() -> None:
    async with connected() as (connection, broker, nursery):

        async def serve() -> None:
            header, request = await broker.receive()
            assert (header.api_version, request) == (4, heartbeat_request())
            await broker.respond(header, HeartbeatResponse(error_code=27))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat_request())).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert broker.client_ids == ["client-1", "client-1"]


@in_trio
async def test_several_requests_are_in_flight() -> None:
    throttle_times_ms: dict[int, int] = {}
    async with connected() as (connection, broker, _):

        async def send_request(generation_id: int) -> None:
            throttle_times_ms[generation_id] = (
                await connection.request(heartbeat_request(generation_id=generation_id))
            ).throttle_time_ms

        async with trio.open_nursery() as requesting:
            for generation_id in range(5):
                requesting.start_soon(send_request, generation_id)
            received = [await broker.receive() for _ in range(5)]
            for header, request in received:
                assert isinstance(request, HeartbeatRequest)
                await broker.respond(header, HeartbeatResponse(throttle_time_ms=request.generation_id * 10))
    assert throttle_times_ms == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}


@in_trio
async def test_the_number_of_requests_in_flight_is_limited() -> None:
    async with connected(max_in_flight=2) as (connection, broker, nursery):
        for _ in range(3):
            nursery.start_soon(connection.request, heartbeat_request())
        await trio.testing.wait_all_tasks_blocked()
        (first, _), (second, _) = await broker.receive(), await broker.receive()
        with trio.move_on_after(1) as waited:
            await broker.receive()
        assert waited.cancelled_caught
        await broker.respond(first, HeartbeatResponse())
        third, _ = await broker.receive()
        for header in (second, third):
            await broker.respond(header, HeartbeatResponse())
        await trio.testing.wait_all_tasks_blocked()


@in_trio
async def test_the_highest_common_version_is_used() -> None:
    async with connected() as (connection, _, _):
        version_for = connection.versions.version_for
        assert version_for(HeartbeatRequest) == 4
        assert version_for(JoinGroupRequest) == 4  # the broker's last version
        assert version_for(OffsetCommitRequest) == 9  # the last version with topic names
        assert version_for(FindCoordinatorRequest) == 6


@in_trio
async def test_a_request_without_a_common_version_is_not_sent(subtests: pytest.Subtests) -> None:
    cases: dict[str, dict[int, tuple[int, int]]] = {"supports 5-6": {12: (5, 6)}, "supports no version": {}}
    for broker_versions, versions in cases.items():
        with subtests.test(broker_versions):
            ours, theirs = trio.testing.memory_stream_pair()
            broker = ScriptedBroker(theirs, versions)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.serve_versions)
                connection = await connect(ours, nursery)
                message = f"Heartbeat: broker memory:1 {broker_versions}, this client 0-4"
                with pytest.raises(UnsupportedVersion, match=message):
                    await connection.request(heartbeat_request())
                await connection.aclose()


@in_trio
async def test_requests_sent_together_keep_their_order_and_the_limit() -> None:
    async with connected(max_in_flight=2) as (connection, broker, nursery):
        answers: list[int] = []

        async def send_request() -> None:
            all_sent = await connection.send([heartbeat_request(generation_id=each) for each in range(5)])
            answers.extend([(await sent.answer()).throttle_time_ms for sent in all_sent])

        nursery.start_soon(send_request)
        for generation_id in range(5):
            header, request = await broker.receive()
            assert request == heartbeat_request(generation_id=generation_id)
            await broker.respond(header, HeartbeatResponse(throttle_time_ms=generation_id))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [0, 1, 2, 3, 4]


@in_trio
async def test_no_request_is_sent_if_one_of_several_cannot_be() -> None:
    async with connected() as (connection, broker, nursery):
        with pytest.raises(UnsupportedVersion, match="LeaveGroup"):
            await connection.send([heartbeat_request(generation_id=1), LeaveGroupRequest(group_id="g", members=[])])
        nursery.start_soon(connection.request, heartbeat_request(generation_id=2))
        header, request = await broker.receive()
        assert request == heartbeat_request(generation_id=2)
        await broker.respond(header, HeartbeatResponse())
        await trio.testing.wait_all_tasks_blocked()


@in_trio
async def test_api_versions_is_repeated_in_a_version_that_the_broker_supports(subtests: pytest.Subtests) -> None:
    """If a broker lacks the version, it responds in version 0; since 2.4 the response has its versions (KIP-511)."""
    cases: dict[int, dict[int, tuple[int, int]]] = {3: {18: (0, 3)}, 0: {}}
    for expected_version, versions in cases.items():
        with subtests.test(versions=versions):
            ours, theirs = trio.testing.memory_stream_pair()
            broker = ScriptedBroker(theirs)
            sent: list[int] = []

            async def serve(
                broker: ScriptedBroker = broker,
                sent: list[int] = sent,
                versions: dict[int, tuple[int, int]] = versions,
            ) -> None:
                header, _ = await broker.receive()
                sent.append(header.api_version)
                unsupported = ApiVersionsResponse(error_code=35, api_keys=version_ranges(versions))
                await broker.respond(header, unsupported, version=0)
                header, request = await broker.receive()
                sent.append(header.api_version)
                assert isinstance(request, ApiVersionsRequest)
                await broker.respond(header, ApiVersionsResponse(api_keys=version_ranges({12: (0, 2)})))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                connection = await connect(ours, nursery)
                assert connection.versions.version_for(HeartbeatRequest) == 2
                await connection.aclose()
            assert sent == [5, expected_version]


@in_trio
async def test_api_versions_is_repeated_only_once() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = ScriptedBroker(theirs)

    async def serve() -> None:
        for _ in range(2):
            header, _ = await broker.receive()
            await broker.respond(header, ApiVersionsResponse(error_code=35, api_keys=[]), version=0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(BrokerUnreachable, match="ApiVersions failed with UNSUPPORTED_VERSION"):
            await connect(ours, nursery)


@in_trio
async def test_a_broker_that_returns_another_error_to_api_versions_is_unreachable() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = ScriptedBroker(theirs)

    async def serve() -> None:
        header, _ = await broker.receive()
        await broker.respond(header, ApiVersionsResponse(error_code=4_321, api_keys=[]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(BrokerUnreachable, match="ApiVersions failed with UNKNOWN_SERVER_ERROR"):
            await connect(ours, nursery)


@in_trio
async def test_a_broker_whose_versions_are_not_a_range_is_unreachable() -> None:
    for first, last in ((6, 5), (-1, 5)):
        ours, theirs = trio.testing.memory_stream_pair()
        broker = ScriptedBroker(theirs)
        api = ApiVersion(api_key=10, min_version=first, max_version=last)

        async def serve(broker: ScriptedBroker = broker, api: ApiVersion = api) -> None:
            header, _ = await broker.receive()
            await broker.respond(header, ApiVersionsResponse(error_code=0, api_keys=[api]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises(BrokerUnreachable, match=f"ApiVersions has versions {first} to {last} of API key 10"):
                await connect(ours, nursery)


@in_trio
async def test_a_connection_in_a_closed_nursery_is_not_opened() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        pass
    with pytest.raises(RuntimeError, match="closed to new arrivals"):
        await connect(ours, nursery)
    with trio.move_on_after(1) as waited:
        await theirs.receive_some()
    assert waited.cancelled_caught


@in_trio
async def test_the_response_to_a_cancelled_request_is_ignored() -> None:
    async with connected() as (connection, broker, nursery):
        with trio.move_on_after(1):
            await connection.request(heartbeat_request())
        header, _ = await broker.receive()
        await broker.respond(header, HeartbeatResponse(error_code=25))

        async def serve() -> None:
            header, _ = await broker.receive()
            await broker.respond(header, HeartbeatResponse(error_code=27))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat_request())).error_code == 27


@in_trio
async def test_a_request_that_is_cancelled_while_it_is_written_is_written_completely() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker, may_continue = ScriptedBroker(theirs), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve_versions)
        connection = await connect(ours, nursery)
        deliver = ours.send_stream.send_all_hook
        assert deliver is not None

        async def deliver_later() -> None:
            await may_continue.wait()
            await deliver()

        ours.send_stream.send_all_hook = deliver_later
        with trio.move_on_after(1) as waited:
            await connection.request(heartbeat_request(generation_id=1))
        assert waited.cancelled_caught
        may_continue.set()

        async def serve() -> None:
            for generation_id in (1, 2):
                header, request = await broker.receive()
                assert request == heartbeat_request(generation_id=generation_id)
                await broker.respond(header, HeartbeatResponse(error_code=generation_id))

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat_request(generation_id=2))).error_code == 2
        await connection.aclose()


@in_trio
async def test_the_end_of_the_stream_fails_pending_and_later_requests() -> None:
    async with connected() as (connection, broker, _):
        messages = []

        async def send_request() -> None:
            with pytest.raises(ConnectionLost) as caught:
                await connection.request(heartbeat_request())
            messages.append(str(caught.value))

        async with trio.open_nursery() as requesting:
            requesting.start_soon(send_request)
            requesting.start_soon(send_request)
            await broker.receive()
            await broker.stream.aclose()
        await send_request()
    why = "the broker has closed the connection (a listener that requires SASL authentication?)"
    assert messages == [why] * 3


@in_trio
async def test_an_invalid_response_closes_the_connection(subtests: pytest.Subtests) -> None:
    for name, response, message in (
        ("wrong correlation id", b"\0\0\0\x06\0\0\0\x63\0\0", "response with correlation id 99, expected 2"),
        ("malformed", b"\0\0\0\x05\0\0\0\x02\0", "HeartbeatResponse v4: field .* malformed"),
        ("empty", b"\0\0\0\x00", "response with correlation id none, expected 2"),
        ("too large", b"\x7f\xff\xff\xff", "frame of 2147483647 bytes, expected 0 to 1000"),
        ("negative size", b"\xff\xff\xff\xff", "frame of -1 bytes, expected 0 to 1000"),
    ):
        with subtests.test(name):
            async with connected() as (connection, broker, nursery):

                async def serve(broker: ScriptedBroker = broker, response: bytes = response) -> None:
                    await broker.receive()
                    await broker.stream.send_all(response)

                nursery.start_soon(serve)
                for _ in range(2):
                    with pytest.raises(ConnectionLost, match=message):
                        await connection.request(heartbeat_request())
                with pytest.raises(trio.BrokenResourceError):
                    await broker.stream.send_all(b"more")


@in_trio
async def test_an_unexpected_response_closes_the_connection() -> None:
    async with connected() as (connection, broker, _):
        await broker.stream.send_all(b"\0\0\0\x06\0\0\0\x01\0\0")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ConnectionLost, match="response with correlation id 1, expected none"):
            await connection.request(heartbeat_request())


@in_trio
async def test_a_request_that_its_version_cannot_encode_leaves_the_connection_open() -> None:
    async with connected() as (connection, broker, nursery):
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        with pytest.raises(
            ProtocolError, match="OffsetFetchRequest: 2 groups, members or keys, this version supports one"
        ):
            await connection.request(OffsetFetchRequest(groups=[group, group]))
        with pytest.raises(ProtocolError, match="field group_instance_id="):
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
            header, _ = await broker.receive()
            await broker.respond(header, HeartbeatResponse())

        nursery.start_soon(serve)
        assert (await connection.request(heartbeat_request())).error_code == 0


@in_trio
async def test_a_cancelled_nursery_closes_the_connection() -> None:
    async with trio.open_nursery() as outer:
        ours, theirs = trio.testing.memory_stream_pair()
        broker = ScriptedBroker(theirs)
        outer.start_soon(broker.serve_versions)
        async with trio.open_nursery() as nursery:
            connection = await connect(ours, nursery)
            nursery.cancel_scope.cancel()
        with pytest.raises(ConnectionLost):
            await connection.request(heartbeat_request())
        assert await theirs.receive_some() == b""


@in_trio
async def test_closing_fails_pending_requests() -> None:
    async with connected() as (connection, broker, _), trio.open_nursery() as requesting:

        async def send_request() -> None:
            with pytest.raises(ConnectionLost, match="closed by this client"):
                await connection.request(heartbeat_request())

        requesting.start_soon(send_request)
        await broker.receive()
        await connection.aclose()
