"""What takes its time: answers that others wait for, and who waits for what never comes. Without HTTP in between."""

import json
from functools import partial

import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.control.clusters import Clusters
from fakebroker.control.gateway.wire import Ask, Reply
from fakebroker.control.routes.dispatch import Dispatcher
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.control.asking import BASE, TIMEOUT_S
from tests.server.wire import Wire, find_coordinator


def test_the_brokers_have_their_turns_while_the_journal_is_written() -> None:
    calls, turns = 500, 0
    with FakeCluster(1) as cluster, Wire(cluster.brokers[0]) as wire:
        for _ in range(calls):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def run() -> Reply:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            reply = await Dispatcher(Clusters(cluster)).answer(Ask(1, "GET", f"{BASE}/journal.jsonl"))
            nursery.cancel_scope.cancel()
        return reply

    assert trio.run(run).body.count(b"\n") == 1 + calls
    assert turns >= 5  # The two tasks take turns, about ten times; which one is first is left to chance.


def test_who_waits_for_a_cluster_that_is_deleted_hears_of_it() -> None:
    """Also through all of HTTP it would be so; but there nobody can tell when the waiting has begun."""

    async def run() -> list[Reply]:
        replies = []
        async with FakeCluster(1) as cluster, trio.open_nursery() as nursery:
            clusters = Clusters(cluster)
            dispatcher = Dispatcher(clusters)

            async def wait(what: str, **body: object) -> None:
                path = f"/v1/clusters/other/wait/{what}"
                replies.append(await dispatcher.answer(Ask(1, "POST", path, "", json.dumps(body).encode())))

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
        assert b"no cluster 'other': expected one that is not deleted meanwhile" in reply.body
