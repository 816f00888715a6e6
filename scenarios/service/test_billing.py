"""The tests of the service. On Kafka, `pytest --kafka 4.4.0` runs those that need nothing of a fake cluster alone."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from billing import Billing

from fakebroker import FakeCluster

pytestmark = pytest.mark.fake_cluster(topics={"orders": 4, "bills": 1, "dead-letters": 1})

Start = Callable[..., Billing]


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts an instance of the service."""
    running: list[Billing] = []

    def run(instance: str = "1") -> Billing:
        running.append(Billing(fake_cluster.bootstrap_servers, instance, fake_cluster.name))
        return running[-1]

    yield run
    for each in running:
        each.close()


def order(number: int) -> str:
    return json.dumps({"id": number, "cents": 100 * number})


def bills(cluster: FakeCluster) -> list[int]:
    """Return the numbers of the orders that were billed, as readers of committed records see them."""
    return [json.loads(each.value or b"")["order"] for each in cluster.topic("bills").records(committed=True)]


def test_orders_are_billed(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.topic("orders").produce([order(1), order(2)])
    fake_cluster.wait(fake_cluster.topic("bills").has(2, committed=True), polling=[start()])
    assert sorted(bills(fake_cluster)) == [1, 2]
    assert fake_cluster.topic("dead-letters").records() == []


def test_offsets_are_committed_with_the_bills(fake_cluster: FakeCluster, start: Start) -> None:
    billing = fake_cluster.group("billing")
    fake_cluster.topic("orders").produce([order(1), order(2)], partition=0)
    both = billing.committed("orders-0", at_least=2) & fake_cluster.topic("bills").has(2, committed=True)
    fake_cluster.wait(both, polling=[start()])
    assert billing.lag() == {"orders-0": 0}


@pytest.mark.parametrize("poison", ["?", "{}", None, '"text"'])
def test_an_order_that_cannot_be_read_is_a_dead_letter(fake_cluster: FakeCluster, start: Start, poison: Any) -> None:
    fake_cluster.topic("orders").produce(records=[{"value": poison, "key": "7"}])
    (letter,) = fake_cluster.wait(fake_cluster.topic("dead-letters").has(1), polling=[start()])
    assert letter.key == b"7"
    assert bills(fake_cluster) == []


def test_two_instances_share_the_orders(fake_cluster: FakeCluster, start: Start) -> None:
    one, two = start("1"), start("2")
    group = fake_cluster.wait(fake_cluster.group("billing").stable(members=2), polling=[one, two])
    assert sorted(len(member.assigned_partitions or ()) for member in group.members) == [2, 2]
    fake_cluster.topic("orders").produce([order(number) for number in range(4)])
    fake_cluster.wait(fake_cluster.topic("bills").has(4, committed=True), polling=[one, two])
    assert sorted(bills(fake_cluster)) == [0, 1, 2, 3]


def test_another_instance_takes_over(fake_cluster: FakeCluster, start: Start) -> None:
    one, two = start("1"), start("2")
    fake_cluster.wait(fake_cluster.group("billing").stable(members=2), polling=[one, two])
    fake_cluster.group("billing").evict("1")
    one.close()
    fake_cluster.wait(fake_cluster.group("billing").stable(members=1), polling=[two])
    fake_cluster.topic("orders").produce([order(number) for number in range(4)])
    fake_cluster.wait(fake_cluster.topic("bills").has(4, committed=True), polling=[two])


def test_orders_are_billed_again_from_an_offset(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.topic("orders").produce([order(1), order(2), order(3)], partition=0)
    fake_cluster.group("billing").set_offsets({"orders-0": 2})
    fake_cluster.wait(fake_cluster.topic("bills").has(1, committed=True), polling=[start()])
    assert bills(fake_cluster) == [3]


def test_nothing_is_billed_without_orders(fake_cluster: FakeCluster, start: Start) -> None:
    service = start()
    fake_cluster.wait(fake_cluster.group("billing").stable(members=1), polling=[service])
    fake_cluster.stays(~fake_cluster.topic("bills").has(1), for_s=0.3, polling=[service])


def test_a_new_instance_fences_an_old_one(fake_cluster: FakeCluster, start: Start) -> None:
    start("1")
    before = fake_cluster.transaction("billing-1").describe()
    start("1")
    after = fake_cluster.transaction("billing-1").describe()
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 1)


def test_a_bill_survives_the_coordinator(fake_cluster: FakeCluster, start: Start) -> None:
    service = start()
    fake_cluster.topic("orders").produce([order(1)])
    coordinator = fake_cluster.transaction("billing-1").coordinator()
    fake_cluster.broker(coordinator.node_id).stop()
    fake_cluster.wait(fake_cluster.topic("bills").has(1, committed=True), polling=[service])
    assert bills(fake_cluster) == [1]


@pytest.mark.fake_cluster(clock="manual")
def test_a_silent_instance_is_replaced(fake_cluster: FakeCluster, start: Start) -> None:
    billing = fake_cluster.group("billing")
    billing.seed(members=["silent"], topics=["orders"])
    service = start()
    fake_cluster.wait(billing.state("PreparingRebalance", members=2), polling=[service])
    fake_cluster.advance(46)
    fake_cluster.wait(billing.stable(members=1), polling=[service])
