"""What takes its time: answers that others wait for, and who waits for what never comes. Without HTTP in between."""

import json
from functools import partial

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster, GroupSeed
from fakebroker.control import steps
from fakebroker.control.clusters import Clusters
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request
from fakebroker.control.stats import census
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.server.journal_files import parse_journal
from tests.support.control.control_server import BASE, TIMEOUT_S
from tests.support.wire_client import WireClient, find_coordinator


def test_the_journal_is_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PIECE_S", 0.0)
    calls = 50
    with FakeCluster(1) as cluster, WireClient(cluster.brokers[0]) as wire:
        for _ in range(calls):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)

    async def run() -> list[bytes]:
        reply = await Dispatcher(Clusters(cluster)).answer(Request("GET", f"{BASE}/journal.jsonl"))
        assert not isinstance(reply.body, bytes)
        return [piece async for piece in reply.body]

    pieces = trio.run(run)
    assert len(pieces) == 1 + calls
    assert parse_journal(b"".join(pieces).splitlines(), "the answer").count() == calls


@pytest.mark.parametrize(
    "path", ["/groups?sort=name", "/groups?sort=busy", "/groups?search=G-1&limit=1", "", "/brokers"]
)
def test_the_brokers_have_their_turns_while_groups_are_listed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PIECE_S", 0.0)
    monkeypatch.setattr(census, "IN_A_STEP", 10)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def run() -> Reply:
        async with FakeCluster(1) as cluster, trio.open_nursery() as nursery:
            cluster.seed_groups(GroupSeed(group_id=f"g-{number}") for number in range(100))
            dispatcher = Dispatcher(Clusters(cluster))
            where, _, query = path.partition("?")
            nursery.start_soon(count)
            reply = await dispatcher.answer(Request("GET", BASE + where, query))
            nursery.cancel_scope.cancel()
        return reply

    assert trio.run(run).status == 200
    assert turns >= 5  # The two tasks take turns, ten times; which one is first is left to chance.


def test_who_waits_for_a_cluster_that_is_deleted_hears_of_it() -> None:
    """Also through all of HTTP it would be so; but there nobody can tell when the waiting has begun."""

    async def run() -> list[Reply]:
        replies = []
        async with FakeCluster(1) as cluster, trio.open_nursery() as nursery:
            clusters = Clusters(cluster)
            dispatcher = Dispatcher(clusters)

            async def wait(what: str, **body: object) -> None:
                path = f"/v1/clusters/other/wait/{what}"
                replies.append(await dispatcher.answer(Request("POST", path, "", json.dumps(body).encode())))

            await clusters.create("other", FakeCluster(1))
            nursery.start_soon(partial(wait, "state", group_id="g", state="Stable", timeout_s=60))
            nursery.start_soon(partial(wait, "generation", group_id="g", above=1, timeout_s=60))
            commit = {"group_id": "g", "partition": "t-0", "at_least": 1}
            nursery.start_soon(partial(wait, "commit", **commit, timeout_s=60))
            nursery.start_soon(partial(wait, "request", timeout_s=60))
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(TIMEOUT_S):
                await clusters.delete("other")
                await trio.testing.wait_all_tasks_blocked()
            assert len(replies) == 4
        return replies

    for reply in trio.run(run):
        assert reply.status == 404
        assert isinstance(reply.body, bytes)
        assert b"no cluster 'other': expected one that is not deleted meanwhile" in reply.body
