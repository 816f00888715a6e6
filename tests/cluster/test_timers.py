"""The one queue of a cluster: the order of what is due at the same time, and that no tick is endless."""

from collections.abc import Callable
from itertools import permutations
from random import Random
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.coordinator.persistence import APPEND_ERRORS
from fakebroker.coordinator.timers import MOST_REPEATS, Order, Rank, TimedValue, TimerQueue
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.server.fake_cluster import internals
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, batch
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY, SESSION_MS, join, sync_after
from tests.support.group_requests import join_request
from tests.support.soak import cases, soak

OF_CLIENTS = (Rank.FETCHES, Rank.NETWORK)
"""The ranks of what is due by the clients' clock, which is in a queue of its own."""


def services(cluster: Cluster) -> list[tuple[TimerQueue[Any], Order]]:
    """Return the services of a cluster that have timers, in the order in which they run at equal times."""
    return [(queue, order) for queue in (cluster.timers, cluster.wire_timers) for order in sorted(queue._expire)]


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_collisions_of_all_pairs_of_services(clock: Any) -> None:
    """Each service of a served cluster with an entry at the same time as another one, scheduled before or after it."""
    with FakeCluster(brokers=2, clock=clock, proposals=["rewrite"]) as served:
        cluster = internals(served).cluster

        def collide() -> None:
            ran: list[Order] = []
            found = services(cluster)
            assert {order[0] for _, order in found} == set(Rank), "each rank is used"
            assert all((order[0] in OF_CLIENTS) == (queue is cluster.wire_timers) for queue, order in found)
            expire = {queue: dict(queue._expire) for queue in (cluster.timers, cluster.wire_timers)}
            for queue, order in found:
                queue._expire[order] = lambda entry, due_ms, now_ms: ran.append(entry.value)
            now_ms, wire_ms = internals(served).server.clock.now_ms(), internals(served).server.clock.wire.now_ms()
            for pair in permutations(found, 2):
                for queue, order in pair:
                    queue.schedule(TimedValue(order), now_ms if queue is cluster.timers else wire_ms, order)
                cluster.tick(now_ms, wire_ms)
                assert ran == sorted(order for _, order in pair)
                ran.clear()
            for queue, callbacks in expire.items():
                queue._expire.update(callbacks)

        internals(served).run(collide)


# Real events that are due at the same time

DUE_MS = 300_000.0
"""When they are due after the start: a multiple of the intervals of transactions, retention and leader balance."""


class Collision:
    """A cluster in which events are made that are due at the same time; `ran` has the ranks that had something due."""

    def __init__(self) -> None:
        config = {"auto.leader.rebalance.enable": True, "log.retention.ms": 1, "transaction.max.timeout.ms": 900_000}
        self.harness = ClusterHarness({"news": 3}, brokers=3, config={**NO_INITIAL_DELAY, **config})
        self.cluster = self.harness.cluster
        self.ran: list[Rank] = []
        queue: TimerQueue[Any]
        for queue, order in services(self.cluster):
            expire = queue._expire[order]

            def record(entry: Any, due_ms: float, now_ms: float, expire: Any = expire, order: Order = order) -> None:
                if due_ms == START_MS + DUE_MS:
                    self.ran.append(Rank(order[0]))
                expire(entry, due_ms, now_ms)

            queue._expire[order] = record

    def at(self, time_ms: float) -> None:
        self.harness.advance(START_MS + time_ms - self.harness.now_ms)

    def loading(self) -> None:
        partition = self.cluster.offsets_partition_of("moved")
        self.cluster.controller.set_leader(partition, 3, self.harness.now_ms, Failover(load_ms=DUE_MS))

    def election(self) -> None:
        partition = self.harness.topic().partitions[2]
        self.cluster.controller.set_leader(partition, 1, self.harness.now_ms, Failover())

    def retention(self) -> None:
        data = PartitionProduceData(index=0, records=batch(b"old", timestamp_ms=int(self.harness.now_ms)))
        topics = [TopicProduceData(name="news", partition_data=[data])]
        produced = self.harness.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9)
        assert produced.responses[0].partition_responses[0].error_code == 0

    def transaction(self) -> None:
        self.harness.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
        coordinator = self.cluster.transaction_coordinator_of("t")
        assert coordinator is not None
        node_id = coordinator.node_id
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=int(DUE_MS) - 1)
        made = self.harness.ask(init, 4, broker=node_id)
        topics = [AddPartitionsToTxnTopic(name="news", partitions=[0])]
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=topics,
        )
        self.harness.ask(add, 3, broker=node_id)

    def session(self) -> None:
        assert self.cluster.coordinator_of("h") is self.cluster.brokers[1]
        joined = join(self.harness, group_id="h")
        self.harness.ask(sync_after(joined, group_id="h"), 5)

    def delayed_response(self) -> None:
        self.cluster.faults.add(Fault(api="ListGroups", delay_s=10.0), self.harness.now_ms)
        self.harness.send(ListGroupsRequest(), 4)

    def delayed_request(self) -> None:
        self.cluster.faults.add(Fault(api="Heartbeat", delay_before_s=10.0), self.harness.now_ms)
        self.harness.send(HeartbeatRequest(group_id="h", generation_id=1, member_id="x"), 4)

    def fetch(self) -> None:
        topics = [
            FetchTopic(
                topic="news", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)]
            )
        ]
        self.harness.send(FetchRequest(max_wait_ms=10_000, min_bytes=10_000, topics=topics), 11)


EVENTS: dict[Rank, tuple[Callable[[Collision], None], float]] = {
    Rank.CONTROLLER: (Collision.loading, 0.0),
    Rank.GROUPS: (Collision.session, DUE_MS - SESSION_MS),
    Rank.TRANSACTIONS: (Collision.transaction, 0.0),
    Rank.LEADER_BALANCE: (Collision.election, 0.0),
    Rank.FAULTS: (Collision.delayed_response, DUE_MS - 10_000),
    Rank.LOGS: (Collision.retention, 0.0),
    Rank.DELAYED_REQUESTS: (Collision.delayed_request, DUE_MS - 10_000),
    Rank.FETCHES: (Collision.fetch, DUE_MS - 10_000),
}
"""What makes an event of each rank, and when, so that it is due at `DUE_MS`."""


@pytest.mark.parametrize("pair", list(permutations(EVENTS, 2)), ids=lambda pair: "-".join(rank.name for rank in pair))
def test_real_events_at_the_same_time_run_in_the_order_of_their_ranks(pair: tuple[Rank, Rank]) -> None:
    collision = Collision()
    for made_ms in (0.0, DUE_MS - SESSION_MS):
        collision.at(made_ms)
        for rank in pair:
            make, at_ms = EVENTS[rank]
            if at_ms == made_ms:
                make(collision)
    collision.at(DUE_MS)
    ran = list(dict.fromkeys(collision.ran))
    assert set(pair) <= set(ran)
    assert ran == sorted(ran)


# Ticks that would not end


def test_an_entry_that_schedules_itself_at_its_own_time_is_refused_by_name() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    endless = TimedValue("endless")
    timers = queue.service(Rank.GROUPS, lambda entry, due_ms, now_ms: timers.schedule(entry, due_ms))
    timers.schedule(endless, 5.0)
    with pytest.raises(RuntimeError, match=r"timers are endless at 5\.0 ms: TimedValue\('endless'\) was due again"):
        queue.run(7.0)


def test_entries_that_schedule_each_other_are_refused() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    one, two = TimedValue("one"), TimedValue("two")
    first = queue.service(Rank.GROUPS, lambda entry, due_ms, now_ms: second.schedule(two, due_ms))
    second = queue.service(Rank.FAULTS, lambda entry, due_ms, now_ms: first.schedule(one, due_ms - 1))
    first.schedule(one, 5.0)
    with pytest.raises(RuntimeError, match="timers are endless"):
        queue.run(5.0)


def test_an_entry_may_be_due_again_at_once_for_some_times_and_again_in_the_next_run() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    entry, ran = TimedValue("entry"), list[float]()

    def expire(entry: TimedValue[str], due_ms: float, now_ms: float) -> None:
        ran.append(due_ms)
        if len(ran) % MOST_REPEATS:
            timers.schedule(entry, due_ms)

    timers = queue.service(Rank.GROUPS, expire)
    for due_ms in (1.0, 2.0, 3.0):
        timers.schedule(entry, due_ms)
        queue.run(due_ms)
    assert ran == [1.0] * MOST_REPEATS + [2.0] * MOST_REPEATS + [3.0] * MOST_REPEATS


def test_an_entry_that_is_due_often_in_a_late_run_is_not_endless() -> None:
    queue: TimerQueue[TimedValue[str]] = TimerQueue()
    ran: list[float] = []

    def expire(entry: TimedValue[str], due_ms: float, now_ms: float) -> None:
        ran.append(due_ms)
        timers.schedule(entry, due_ms + 1)

    timers = queue.service(Rank.GROUPS, expire)
    timers.schedule(TimedValue("periodic"), 0.0)
    queue.run(3.0 * MOST_REPEATS)
    assert len(ran) == 3 * MOST_REPEATS + 1


@soak
@pytest.mark.parametrize("seed", cases(4, soak=300))
def test_no_sequence_of_failing_appends_makes_a_tick_endless(seed: int) -> None:
    """Groups and transactions whose timers all expire while random appends to the internal topics fail."""
    random = Random(seed)
    collision = Collision()
    harness, cluster = collision.harness, collision.cluster
    collision.transaction()
    for group_id in ("h", "h", "g", "g"):
        rebalance_ms = random.choice([0, 1, 60_000])
        joined = join_request(group_id, version=3, rebalance_timeout_ms=rebalance_ms, session_timeout_ms=6_000)
        coordinator = cluster.coordinator_of(group_id)
        assert coordinator is not None
        harness.send(joined, 3, broker=coordinator.node_id)
    for _ in range(40):
        for topic in ("__consumer_offsets", "__transaction_state"):
            if random.random() < 0.5:
                index = random.randrange(2)
                cluster.append_failures.add(topic, index, random.choice(APPEND_ERRORS), random.choice([1, 3, None]))
        for failure in list(cluster.append_failures.active):
            if random.random() < 0.4:
                cluster.append_failures.remove(failure)
        harness.advance(random.choice([1, 100, 6_000, 60_000, 3_600_000]))
        assert (cluster.next_deadline() or harness.now_ms + 1) > harness.now_ms, "nothing that was due is left"
