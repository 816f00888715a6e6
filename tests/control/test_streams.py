"""Streams of events: what is new in a cluster, for as many as want to see it."""

from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse

import pytest
import trio
import trio.testing

from fakebroker.control.routes.stream import MAX_STREAMS
from fakebroker.control.streams import Feed, Stream, Update, Wanted
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.support.control.control_server import BASE, Asking, asking, next_event
from tests.support.trio_runner import in_trio
from tests.support.wire_client import WireClient, find_coordinator


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(2, {"orders": 4}) as made:
        yield made


def test_what_happens_is_told(control: Asking) -> None:
    with control.listen("/stream?group=g") as stream:
        assert stream.getheader("content-type") == "text/event-stream"
        assert next_event(stream, "overview")["members"] == 0
        control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
        groups = next_event(stream, "groups")
        assert [(row["group_id"], row["state"]) for row in groups["groups"]] == [("g", "Stable")]
        timeline = next_event(stream, "timeline")
        assert (timeline["group_id"], timeline["moments"][0]["cause"]) == ("g", "loaded from the log")
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        requests = next_event(stream, "requests")
        assert (requests["sampled"], requests["seen"]) == (False, 1)
        assert requests["requests"][0]["request"]["coordinator_keys"] == ["g"]


def test_only_what_is_wanted_is_told(control: Asking) -> None:
    with control.listen("/stream?kinds=requests") as stream, WireClient(control.cluster.brokers[0]) as wire:
        for _ in range(200):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        seen = 0
        while seen < 200:
            requests = next_event(stream, "requests")
            seen += requests["seen"]
            assert requests["sampled"] == (requests["seen"] > len(requests["requests"]))
            assert len(requests["requests"]) <= 50


def test_what_happens_right_after_the_welcome_is_told(control: Asking) -> None:
    for number in range(10):
        with control.listen(f"/stream?kinds=groups&group=quick-{number}") as stream:
            control.post(f"/groups/quick-{number}/seed", {"members": 1, "topics": ["orders"]}, 201)
            assert next_event(stream, "timeline")["group_id"] == f"quick-{number}"


def test_the_first_that_a_group_ever_does_is_told() -> None:
    with asking(1) as fresh, fresh.listen("/stream?kinds=groups") as stream:
        fresh.cluster.seed_group("g", 1)
        assert next_event(stream, "groups")["groups"][0]["group_id"] == "g"


def test_a_stream_goes_on_over_a_reset_and_what_is_restored(control: Asking) -> None:
    def hear(stream: HTTPResponse, group_id: str, state: str) -> None:
        while (group_id, state) not in [
            (row["group_id"], row["state"]) for row in next_event(stream, "groups")["groups"]
        ]:
            pass

    seed = {"members": 1, "topics": ["orders"]}
    with control.listen("/stream?kinds=groups,requests") as stream:
        control.post("/groups/before/seed", seed, 201)
        hear(stream, "before", "Stable")
        snapshot_id = control.post("/snapshots", status=201)["id"]
        control.post("/reset")
        control.post("/groups/after/seed", seed, 201)
        hear(stream, "after", "Stable")
        control.post(f"/snapshots/{snapshot_id}/restore")
        control.post("/groups/before/force_rebalance")
        hear(stream, "before", "PreparingRebalance")
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        assert next_event(stream, "requests")["requests"][-1]["request"]["coordinator_keys"] == ["g"]


@in_trio
async def test_nothing_is_lost_between_a_stream_and_what_is_computed() -> None:
    wanted, may_answer = list[Wanted](), trio.Event()

    async def compute(each: Wanted) -> Update:
        wanted.append(each)
        await may_answer.wait()
        return Update("7.7")

    feed = Feed(compute, "5.5")
    welcomed: dict[str, trio.Event] = {"groups": trio.Event(), "requests": trio.Event()}

    async def listen(kind: str) -> None:
        async for _ in feed.events(Stream([kind], None)):
            welcomed[kind].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, "groups")
        await welcomed["groups"].wait()
        nursery.start_soon(feed.run)
        await trio.testing.wait_all_tasks_blocked()
        # It begins with the version that was current when the stream was opened.
        assert wanted == [Wanted("5.5", frozenset({"groups"}), [])]

        # A stream that is opened while changes are computed waits for them: they lack its kinds.
        nursery.start_soon(listen, "requests")
        await trio.testing.wait_all_tasks_blocked()
        assert not welcomed["requests"].is_set()
        may_answer.set()
        await welcomed["requests"].wait()
        while len(wanted) < 2:
            await trio.sleep(1)
        assert wanted[1] == Wanted("7.7", frozenset({"groups", "requests"}), [])
        nursery.cancel_scope.cancel()


@in_trio
async def test_changes_are_computed_once_for_all_streams_and_a_slow_one_misses_some() -> None:
    computed, received = 0, list[bytes]()

    async def compute(_: Wanted) -> Update:
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
        late = [data async for data in slow]
        nursery.cancel_scope.cancel()
    assert len(received) == 3 * (1 + computed)
    assert late[0] == b"event: groups\ndata: 1\n\n"
    assert len(late) < computed


def test_a_cluster_has_one_feed_however_its_name_is_quoted(control: Asking) -> None:
    with control.listen("/stream") as one, control.listen("/stream", "def%61ult") as other:
        next_event(one, "overview")
        next_event(other, "overview")


def test_a_stream_ends_with_its_cluster(control: Asking) -> None:
    assert control.ask("POST", "/v1/clusters", {"name": "short", "brokers": 1}).status == 201
    with control.listen("/stream", "short") as stream:
        next_event(stream, "overview")
        assert control.ask("DELETE", "/v1/clusters/short").status == 204
        stream.read()


@pytest.mark.slow
def test_a_thousand_idle_streams_disturb_nobody(control: Asking) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            stream = stack.enter_context(control.listen("/stream?kinds=groups"))
            assert stream.status == 200
        refused = control.ask("GET", f"{BASE}/stream")
        assert (refused.status, refused.json["expected"]) == (503, "at most 1000 at a time")
        assert len(control.get("/brokers")["brokers"]) == 2
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
