"""Requests to the dispatcher, without HTTP, that take long: the journal, lists of many groups, and waits."""

import json

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster, GroupSeed
from fakebroker.control import steps
from fakebroker.control.clusters import Clusters
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request
from fakebroker.control.stats import group_index
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.server.journal_files import parse_journal
from tests.support.control.control_server import BASE, TIMEOUT_S
from tests.support.wire_client import WireClient, find_coordinator


def test_the_journal_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PIECE_S", 0.0)
    calls = 50
    with FakeCluster(1) as cluster, WireClient(cluster.brokers[0]) as wire:
        for _ in range(calls):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)

    async def run() -> list[bytes]:
        reply = await Dispatcher(Clusters(cluster)).handle(Request("GET", f"{BASE}/journal.jsonl"))
        assert not isinstance(reply.body, bytes)
        return [piece async for piece in reply.body]

    pieces = trio.run(run)
    assert len(pieces) == 1 + calls
    assert parse_journal(b"".join(pieces).splitlines(), "response").count() == calls


def test_other_tasks_run_while_groups_are_listed(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    monkeypatch.setattr(steps, "_PIECE_S", 0.0)
    monkeypatch.setattr(group_index, "GROUPS_PER_STEP", 10)

    async def turns_during(path: str) -> int:
        """Return how often another task ran during a request for a list of 100 groups."""
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with FakeCluster(1) as cluster, trio.open_nursery() as nursery:
            cluster.seed_groups(GroupSeed(group_id=f"g-{number}") for number in range(100))
            dispatcher = Dispatcher(Clusters(cluster))
            route, _, query = path.partition("?")
            nursery.start_soon(count)
            reply = await dispatcher.handle(Request("GET", BASE + route, query))
            nursery.cancel_scope.cancel()
        assert reply.status == 200
        return turns

    for path in ("/groups?sort=name", "/groups?sort=busy", "/groups?search=G-1&limit=1", "", "/brokers"):
        with subtests.test(path=path):
            # The list takes 10 steps. `count` may miss some, because trio runs the tasks of a turn in random order.
            assert trio.run(turns_during, path) >= 5


def test_waits_end_when_their_cluster_is_deleted() -> None:
    """Without HTTP, because a client cannot know when its wait has started."""

    async def run() -> list[Reply]:
        replies = []
        async with FakeCluster(1) as cluster, trio.open_nursery() as nursery:
            clusters = Clusters(cluster)
            dispatcher = Dispatcher(clusters)

            async def send(operation: str, body: object) -> None:
                path = f"/v1/clusters/other/{operation}"
                replies.append(await dispatcher.handle(Request("POST", path, "", json.dumps(body).encode())))

            await clusters.create("other", FakeCluster(1))
            stable, requested = {"is": "group.stable", "group_id": "g"}, {"is": "requested"}
            committed = {"is": "group.committed", "group_id": "g", "partition": "t-0", "at_least": 1}
            for condition in (stable, requested, committed, {"all": [stable, requested]}):
                nursery.start_soon(send, "wait", {"condition": condition, "timeout_s": 60})
            nursery.start_soon(send, "stays", {"condition": {"not": stable}, "for_s": 60})
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(TIMEOUT_S):
                await clusters.delete("other")
                await trio.testing.wait_all_tasks_blocked()
            assert len(replies) == 5
        return replies

    for reply in trio.run(run):
        assert reply.status == 404
        assert isinstance(reply.body, bytes)
        assert b"cluster 'other' was deleted during the request" in reply.body
