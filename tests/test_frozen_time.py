"""A cluster works while an application's test has frozen time."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import Literal

import freezegun
import pytest
import time_machine
from confluent_kafka import Consumer

from fakebroker import FakeCluster, WaitTimeout

pytestmark = pytest.mark.slow

FROZEN = datetime(2020, 1, 1, tzinfo=UTC)
FREEZERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "freezegun": lambda: freezegun.freeze_time(FROZEN),
    "time-machine": lambda: time_machine.travel(FROZEN, tick=False),
}


@pytest.mark.parametrize("freezer", FREEZERS)
@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("starts_frozen", [True, False])
def test_waits_and_clients_work_in_frozen_time(
    freezer: str, clock: Literal["real", "manual"], starts_frozen: bool
) -> None:
    with ExitStack() as stack:
        if starts_frozen:
            stack.enter_context(FREEZERS[freezer]())
        cluster = stack.enter_context(FakeCluster(1, {"orders": 1}, clock=clock))
        if not starts_frozen:
            stack.enter_context(FREEZERS[freezer]())
        cluster.topic("orders").produce(["a"])
        config = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, "bootstrap.servers": cluster.bootstrap_servers})
        consumer.subscribe(["orders"])
        cluster.wait(cluster.group("g").stable(members=1), polling=[consumer])
        consumer.close()
        with pytest.raises(WaitTimeout):
            cluster.wait(cluster.group("other").stable(), timeout_s=0)
        (record,) = cluster.topic("orders").records()
        assert datetime.now(UTC) == FROZEN
    is_frozen = abs(record.timestamp / 1000 - FROZEN.timestamp()) < 3600
    assert is_frozen == starts_frozen
