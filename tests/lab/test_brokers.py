"""A broker of the lab holds all replies of a partition until its records are stored."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fakebroker.lab.world.brokers import BrokerProcess
from fakebroker.lab.world.world import World
from tests.support.lab.runs import coordinator_of, play

LAST = 1_000
"""The kind of an event that comes after all others of its time."""


@pytest.fixture
def world() -> World:
    """A cluster without members, whose appends take 2 ms."""
    return play("classic", [], duration_ms=10)


def advance(world: World, duration_ms: float) -> None:
    until_ms = world.now_ms() + duration_ms
    world.scheduler.schedule(until_ms, LAST, 0, lambda: None)  # The clock moves from event to event.
    while world.scheduler.step(until_ms):
        pass


@pytest.fixture
def sent(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the coordinator of `g-0` sends."""
    messages: list[Any] = []
    monkeypatch.setattr(broker(world), "send", lambda link, message: messages.append(message))
    return messages


def broker(world: World) -> BrokerProcess:
    return world.brokers[coordinator_of(0)]


def reply(one: BrokerProcess, message: Any) -> None:
    """Reply to a member of the group."""
    one.reply(SimpleNamespace(member=SimpleNamespace(group_id="g-0"), waiting=[]), message)


def test_all_replies_wait_until_the_records_before_them_are_stored(world: World, sent: list[Any]) -> None:
    one, partition = broker(world), world.offsets_topic.partition_of("g-0")
    reply(one, "before")
    one.store(partition, {"key": 1})
    reply(one, "join")
    advance(world, 1)
    one.store(partition, {"key": 2})
    reply(one, "heartbeat")
    assert sent == ["before"]
    advance(world, 1)
    assert sent == ["before", "join"]
    advance(world, 1)
    assert sent == ["before", "join", "heartbeat"]
    reply(one, "after")
    assert sent[-1] == "after"


@pytest.mark.parametrize(
    "lose",
    [
        lambda world: world.offsets_topic.leaders.__setitem__(world.offsets_topic.partition_of("g-0"), None),
        lambda world: broker(world).end("stop"),
    ],
    ids=["demoted", "stopped"],
)
def test_held_replies_are_dropped_with_the_partition(
    world: World, sent: list[Any], lose: Callable[[World], None]
) -> None:
    broker(world).store(world.offsets_topic.partition_of("g-0"), {"key": 1})
    reply(broker(world), "join")
    reply(broker(world), "heartbeat")
    lose(world)
    advance(world, 10)
    assert sent == []
