"""Streams of events: what is new in a cluster, for as many as want to see it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fakebroker.control.streams import MAX_STREAMS
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
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
