"""Streams of events: what is new in a cluster, for as many as want to see it."""

from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from starlette.requests import Request

from fakebroker.control.gateway.brokers_end import BrokersEnd, Gone
from fakebroker.control.gateway.streams import MAX_STREAMS, AllStreams, Stream, stream
from fakebroker.control.gateway.wire import Reply
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.client.trio_runner import in_trio
from tests.control.asking import BASE, Asking, asking, next_event
from tests.server.wire import Wire, find_coordinator


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
        with Wire(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        requests = next_event(stream, "requests")
        assert (requests["sampled"], requests["seen"]) == (False, 1)
        assert requests["requests"][0]["request"]["coordinator_keys"] == ["g"]


def test_only_what_is_wanted_is_told(control: Asking) -> None:
    with control.listen("/stream?kinds=requests") as stream, Wire(control.cluster.brokers[0]) as wire:
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
        with Wire(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        assert next_event(stream, "requests")["requests"][-1]["request"]["coordinator_keys"] == ["g"]


class Brokers(BrokersEnd):
    """Brokers that answer when they are let."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.may_answer = trio.Event()

    async def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", *, gone: Gone = trio.sleep_forever
    ) -> Reply:
        self.asked.append((path, msgspec.json.decode(body or b"{}")))
        await self.may_answer.wait()
        news: dict[str, Any] = {"seen": "7.7", "overview": None, "requests": None, "groups": None, "timelines": {}}
        return Reply(1, 200, "application/json", msgspec.json.encode(news))


@in_trio
async def test_nothing_is_lost_between_who_listens_and_what_is_asked_for() -> None:
    brokers = Brokers()
    async with trio.open_nursery() as nursery:
        streams = AllStreams(brokers, nursery)

        async def listen(kind: str, seen: str, task_status: trio.TaskStatus[None]) -> None:
            async with streams.listening("c", Stream([kind], None), seen):
                task_status.started()
                await trio.sleep_forever()

        await nursery.start(listen, "groups", "5.5")
        await trio.testing.wait_all_tasks_blocked()
        # What was there when it came is where it begins.
        assert [(body["after"], body["requests"]) for _, body in brokers.asked] == [("5.5", False)]

        # Who comes while an answer is on its way waits for it: it tells nothing of what he wants.
        is_welcome = trio.Event()

        async def join() -> None:
            await nursery.start(listen, "requests", "6.6")
            is_welcome.set()

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert not is_welcome.is_set()
        brokers.may_answer.set()
        await is_welcome.wait()
        while len(brokers.asked) < 2:
            await trio.sleep(1)
        assert [(body["after"], body["requests"]) for _, body in brokers.asked][1] == ("7.7", True)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_cluster_has_one_feed_however_its_name_is_spelled() -> None:
    brokers = Brokers()
    brokers.may_answer.set()
    async with trio.open_nursery() as nursery:
        for name in ("default", "def%61ult"):
            scope = {"type": "http", "method": "GET", "path_params": {"cluster": name}, "query_string": b""}
            await stream(AllStreams(brokers, nursery), Request(scope))
    assert [path for path, _ in brokers.asked] == ["/v1/clusters/default/news"] * 2


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
        with Wire(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
