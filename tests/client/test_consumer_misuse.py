"""A consumer in wrong hands: arguments that cannot be, groups that do not take it, polls that are given up."""

from typing import Any

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import GroupFailed, InvalidSubscription
from fakebroker.errors import ConfigError
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, consumer
from tests.support.trio_runner import in_trio_with_sockets


@pytest.mark.parametrize("offset", [-1, 2**63, 1.5, "7", None])
@in_trio_with_sockets
async def test_what_is_no_offset_is_refused(offset: Any) -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        sentence = f"orders-0: offset={offset!r}: expected an integer from 0 to "
        with pytest.raises(ConfigError, match=sentence):
            reader.assign({P0: offset})
        reader.assign([P0])
        with pytest.raises(ConfigError, match=sentence):
            reader.seek(P0, offset)
        with pytest.raises(ConfigError, match=sentence):
            await reader.commit({P0: offset})
        assert cluster.count("OffsetCommit") == 0


@in_trio_with_sockets
async def test_what_is_no_partition_has_nothing_committed() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        with pytest.raises(InvalidSubscription, match=r"partition='orders': expected \(topic, number\)"):
            await reader.committed(["orders"])  # type: ignore[list-item]  # wrong on purpose


@in_trio_with_sockets
async def test_an_assignment_that_cannot_be_had_is_said_at_once() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        cluster.fail("JoinGroup", error="GROUP_AUTHORIZATION_FAILED", times=1)
        reader.subscribe(["orders"])
        with pytest.raises(GroupFailed, match="GROUP_AUTHORIZATION_FAILED"):
            await reader.assignment()
        assert await reader.assignment() == (P0,)


@in_trio_with_sockets
async def test_an_application_that_has_given_up_a_poll_and_polls_no_more_leaves_its_group() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_interval_ms=30) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        with trio.move_on_after(0.01):
            await reader.poll(DEADLINE_S)
        with trio.fail_after(DEADLINE_S):
            while cluster.group("g").members:
                await trio.lowlevel.checkpoint()


def test_bootstrap_servers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers='here': expected HOST:PORT"):
        Consumer("here")
