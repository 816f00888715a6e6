"""Event streams: contents of events, versions, resets, slow and many clients."""

from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse

import pytest
import trio
import trio.testing

from fakebroker.control.feed import Feed, Stream, Update, UpdateRequest
from fakebroker.control.routes.stream import MAX_STREAMS
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.support.control.control_server import BASE, ControlHarness, controlled_cluster, next_event
from tests.support.trio_runner import in_trio
from tests.support.wire_client import WireClient, find_coordinator


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(2, {"orders": 4}) as harness:
        yield harness


def test_a_stream_sends_overviews_groups_timelines_and_requests(control: ControlHarness) -> None:
    with control.stream("/stream?group=g") as stream:
        assert stream.getheader("content-type") == "text/event-stream"
        assert next_event(stream, "overview")["members"] == 0
        control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]})
        groups = next_event(stream, "groups")
        assert [(row["group_id"], row["state"]) for row in groups["groups"]] == [("g", "Stable")]
        timeline = next_event(stream, "timeline")
        assert (timeline["group_id"], timeline["moments"][0]["cause"]) == ("g", "loaded from the log")
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        requests = next_event(stream, "requests")
        assert (requests["sampled"], requests["seen"]) == (False, 1)
        assert requests["requests"][0]["request"]["coordinator_keys"] == ["g"]


def test_requests_are_sampled_and_all_are_counted(control: ControlHarness) -> None:
    with control.stream("/stream?kinds=requests") as stream, WireClient(control.cluster.brokers[0]) as wire:
        for _ in range(200):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        seen = 0
        while seen < 200:
            requests = next_event(stream, "requests")
            seen += requests["seen"]
            assert requests["sampled"] == (requests["seen"] > len(requests["requests"]))
            assert len(requests["requests"]) <= 50


def test_changes_right_after_the_start_of_a_stream_are_sent(control: ControlHarness) -> None:
    for number in range(3):
        with control.stream(f"/stream?kinds=groups&group=quick-{number}") as stream:
            control.post(f"/groups/quick-{number}/seed", {"members": 1, "topics": ["orders"]})
            assert next_event(stream, "timeline")["group_id"] == f"quick-{number}"


def test_the_first_change_of_a_cluster_is_sent() -> None:
    with controlled_cluster(1) as control, control.stream("/stream?kinds=groups") as stream:
        control.cluster.group("g").seed(1)
        assert next_event(stream, "groups")["groups"][0]["group_id"] == "g"


def test_a_stream_continues_after_a_reset_and_a_restored_snapshot(control: ControlHarness) -> None:
    def wait_for_event(stream: HTTPResponse, group_id: str, state: str) -> None:
        while (group_id, state) not in [
            (row["group_id"], row["state"]) for row in next_event(stream, "groups")["groups"]
        ]:
            pass

    seed = {"members": 1, "topics": ["orders"]}
    with control.stream("/stream?kinds=groups,requests") as stream:
        control.post("/groups/before/seed", seed)
        wait_for_event(stream, "before", "Stable")
        snapshot_id = control.post("/snapshots", status=201)["id"]
        control.post("/reset")
        control.post("/groups/after/seed", seed)
        wait_for_event(stream, "after", "Stable")
        control.post(f"/snapshots/{snapshot_id}/restore")
        control.post("/groups/before/rebalance")
        wait_for_event(stream, "before", "PreparingRebalance")
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        assert next_event(stream, "requests")["requests"][-1]["request"]["coordinator_keys"] == ["g"]


@in_trio
async def test_a_stream_misses_no_changes_after_its_opening_comment() -> None:
    requests, may_return = list[UpdateRequest](), trio.Event()

    async def compute(request: UpdateRequest) -> Update:
        requests.append(request)
        await may_return.wait()
        return Update("7.7")

    feed = Feed(compute, "5.5")
    is_open: dict[str, trio.Event] = {"groups": trio.Event(), "requests": trio.Event()}

    async def listen(kind: str) -> None:
        async for _ in feed.events(Stream([kind], None)):
            is_open[kind].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, "groups")
        await is_open["groups"].wait()
        nursery.start_soon(feed.run)
        await trio.testing.wait_all_tasks_blocked()
        # The first changes are those after the version at which the feed was created.
        assert requests == [UpdateRequest("5.5", frozenset({"groups"}), [])]

        # During a computation, a new stream waits, because the computed changes lack its kinds of events.
        nursery.start_soon(listen, "requests")
        await trio.testing.wait_all_tasks_blocked()
        assert not is_open["requests"].is_set()
        may_return.set()
        await is_open["requests"].wait()
        while len(requests) < 2:
            await trio.sleep(1)
        assert requests[1] == UpdateRequest("7.7", frozenset({"groups", "requests"}), [])
        nursery.cancel_scope.cancel()


@in_trio
async def test_changes_are_computed_once_for_all_streams_and_slow_ones_lose_events() -> None:
    computed, received = 0, list[bytes]()

    async def compute(_: UpdateRequest) -> Update:
        nonlocal computed
        computed += 1
        return Update(f"{computed}.0", {"groups": b"%d" % computed}, {})

    feed = Feed(compute, "0.0")

    async def listen() -> None:
        async for data in feed.events(Stream(["groups"], None)):
            received.append(data)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(listen)
        slow = feed.events(Stream(["groups"], None))
        await anext(slow)
        nursery.start_soon(feed.run)
        await trio.sleep(9.9)
        feed.end()
        received_by_slow = [data async for data in slow]
        nursery.cancel_scope.cancel()
    assert len(received) == 3 * (1 + computed)
    assert received_by_slow[0] == b"event: groups\ndata: 1\n\n"
    assert len(received_by_slow) < computed


def test_overviews_have_the_latencies_of_the_last_seconds() -> None:
    with (
        controlled_cluster(1, clock="manual") as control,
        control.stream("/stream?kinds=overview") as stream,
        WireClient(control.cluster.brokers[0]) as wire,
    ):
        next_event(stream, "overview")
        with control.cluster.inject_fault("FindCoordinator", delay_s=0.5):
            wire.send(find_coordinator("g"))
            control.cluster.wait(control.cluster.requested("FindCoordinator"))
            control.cluster.advance(0.5)
            wire.receive()
        for _ in range(5):  # The first ones may be from before the response.
            rates = next_event(stream, "overview")["rates"]["by_api"]
            if rates and rates[0]["broker_p99_ms"] is not None:
                break
        (rate,) = rates
        assert (rate["api"], rate["broker_p99_ms"]) == ("FindCoordinator", pytest.approx(500, rel=0.02))
        assert rate["wire_p99_ms"] > 0


def test_the_name_of_the_cluster_may_be_percent_encoded(control: ControlHarness) -> None:
    with control.stream("/stream") as plain, control.stream("/stream", "def%61ult") as encoded:
        next_event(plain, "overview")
        next_event(encoded, "overview")


def test_a_stream_ends_when_its_cluster_is_deleted(control: ControlHarness) -> None:
    assert control.request("POST", "/v1/clusters", {"name": "short", "brokers": 1}).status == 201
    with control.stream("/stream", "short") as stream:
        next_event(stream, "overview")
        assert control.request("DELETE", "/v1/clusters/short").status == 204
        stream.read()


@pytest.mark.slow
def test_the_number_of_streams_is_limited_to_a_thousand(control: ControlHarness) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            stream = stack.enter_context(control.stream("/stream?kinds=groups"))
            assert stream.status == 200
        rejected = control.request("GET", f"{BASE}/stream")
        assert (rejected.status, rejected.json["expected"]) == (503, "at most 1000 at a time")
        assert len(control.get("/brokers")["brokers"]) == 2
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
