"""One process of the replay benchmark: runs members of one implementation and prints a JSON line with measurements.

    python -m tests.bench.players WAY '{"members": 200, ...}'

The workload is the same for all implementations over TCP: groups of five members and partitions, a heartbeat every
three seconds, a commit every five. Real clients pause their partitions, so that they do not fetch.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.simulation.simulation import Simulation, SimulationSettings
from fakebroker.replay.spark.event_stream import EventStream
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.workload import Cluster

TOPIC = "orders"
GROUP_SIZE = 5
HEARTBEAT_MS, COMMIT_MS, SESSION_MS = 3_000, 5_000, 10_000
_POLL_INTERVAL_S = 0.25
HEAD_START_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The workload of the process.

    Attributes:
        bootstrap: Bootstrap servers; unused by the simulation.
        members: Number of members.
        seconds: How long each member stays.
        ramp_s: Time in which all members join, group by group.
        lanes: Number of connections to each broker that members share; None for one per member.
        closed_loop: Whether a heartbeat is sent as soon as the last one is answered; there are no commits then.
        waits: Whether to print `ready` and read the start time from stdin, in seconds since the Unix epoch.
        prefix: Prefix of group ids, so that processes have different groups.
        commit_ms: Interval between commits of a member.
    """

    bootstrap: str = ""
    members: int
    seconds: float
    ramp_s: float
    lanes: int | None = None
    closed_loop: bool = False
    waits: bool = False
    prefix: str = "a"
    commit_ms: int = COMMIT_MS

    def joins_at_s(self, number: int) -> float:
        """Return when a member joins, in seconds; members of a group join at the same time."""
        return self.ramp_s * (number // GROUP_SIZE * GROUP_SIZE) / self.members

    def group(self, number: int) -> str:
        return f"{self.prefix}-{number // GROUP_SIZE}"

    def scripts(self) -> list[Script]:
        return [
            Script(
                population="bench",
                group=self.group(number),
                member=f"{self.group(number)}-{number}",
                instance_id=None,
                topics=(TOPIC,),
                assignor="range",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                heartbeat_interval_ms=HEARTBEAT_MS,
                commit_interval_ms=0 if self.closed_loop else self.commit_ms,
                consume_per_s=0.0,
                acts=(
                    Act(self.joins_at_s(number) * 1000, "start"),
                    Act((self.joins_at_s(number) + self.seconds) * 1000, "leave"),
                ),
            )
            for number in range(self.members)
        ]


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def swarm(task: Task) -> dict[str, float]:
    """Run members of `fakebroker.replay` over TCP; their events are encoded as in a replay."""
    last = Tally()

    def report(tally: Tally) -> None:
        nonlocal last
        last = tally

    stream = EventStream()
    settings = LoopSettings(lanes=task.lanes, closed_loop=task.closed_loop, duration_s=task.seconds + task.ramp_s)
    players = MemberLoop(task.scripts(), addresses(task.bootstrap), stream.add, report, settings)
    players.connect()
    if task.waits:
        print("ready", flush=True)
    start_s = float(sys.stdin.readline()) if task.waits else time.time() + HEAD_START_S
    recorded = stream.during(lambda: players.play(start_s), players.stop)
    rows = sum(batch.num_rows for each in recorded for batch in each.batches)
    assert last.requests <= rows, f"{last.requests} requests in {rows} events"
    return {"requests": last.requests, "errors": last.errors}


def simulation(task: Task) -> dict[str, float]:
    """Run members of `fakebroker.replay` in memory."""
    world = SimulationSettings(
        seed=1, cluster=Cluster(), topics={TOPIC: GROUP_SIZE}, duration_s=task.seconds + task.ramp_s, folds=True
    )
    played = Simulation(task.scripts(), 0, world)
    rows = sum(batch.num_rows for batches in played.run() for batch in batches)
    return {"requests": played.recorder.requests, "errors": played.recorder.errors, "rows": rows}


def confluent(task: Task) -> dict[str, float]:
    """Run consumers of librdkafka, which have their own threads; one thread polls and commits for all of them."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    errors = 0

    def pause(consumer: Any, partitions: list[Any]) -> None:
        consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
        consumer.pause(partitions)

    def commit(consumer: Any, number: int) -> None:
        nonlocal errors
        partitions = [TopicPartition(each.topic, each.partition, number) for each in consumer.assignment()]
        try:
            if partitions:
                consumer.commit(offsets=partitions, asynchronous=True)
        except KafkaException:
            errors += 1

    def join(number: int) -> Any:
        consumer = Consumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": task.group(number),
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
            }
        )
        consumer.subscribe([TOPIC], on_assign=pause)
        return consumer

    consumers: dict[Any, float] = {}
    for now_s in _moments(task):
        while len(consumers) < task.members and task.joins_at_s(len(consumers)) <= now_s:
            consumers[join(len(consumers))] = now_s + COMMIT_MS / 1000
        for consumer, due_s in consumers.items():
            consumer.poll(0)
            if due_s <= now_s:
                commit(consumer, int(now_s))
                consumers[consumer] = due_s + COMMIT_MS / 1000
    owned = sum(bool(consumer.assignment()) for consumer in consumers)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda consumer: consumer.close(), consumers))
    return {"errors": errors, "owned": owned}


def _moments(task: Task) -> Iterator[float]:
    """Yield the seconds since the start at short intervals, until the end of the task."""
    start_s = time.monotonic()
    while (now_s := time.monotonic() - start_s) < task.seconds + task.ramp_s:
        yield now_s
        time.sleep(_POLL_INTERVAL_S)


def aiokafka(task: Task) -> dict[str, float]:
    """Run consumers of aiokafka, all in one event loop."""
    return asyncio.run(_aiokafka(task))


async def _aiokafka(task: Task) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    errors = owned = 0

    class Pausing(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self, consumer: Any) -> None:
            self.consumer = consumer

        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            self.consumer.pause(*assigned)

    async def member(number: int) -> None:
        nonlocal errors, owned
        await asyncio.sleep(task.joins_at_s(number))
        consumer = AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap,
            group_id=task.group(number),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
        )
        consumer.subscribe([TOPIC], listener=Pausing(consumer))
        until_s = time.monotonic() + task.seconds
        await consumer.start()
        while time.monotonic() + COMMIT_MS / 1000 < until_s:
            await asyncio.sleep(COMMIT_MS / 1000)
            try:
                await consumer.commit({each: int(time.monotonic()) for each in consumer.assignment()})
            except KafkaError:
                errors += 1
        await asyncio.sleep(max(0.0, until_s - time.monotonic()))
        owned += bool(consumer.assignment())
        await consumer.stop()

    await asyncio.gather(*(member(number) for number in range(task.members)))
    return {"errors": errors, "owned": owned}


WAYS: dict[str, Callable[[Task], dict[str, float]]] = {
    "swarm": swarm,
    "simulation": simulation,
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
}


def measured(way: str, task: Task) -> dict[str, float]:
    """Run a task; return its results, CPU seconds of all threads, and the memory used beyond that of the imports."""
    if way in ("confluent-kafka", "aiokafka"):
        __import__(way.replace("-", "_"))
    else:
        pa.array([""])  # pyarrow loads libraries on first use.
    before_kib, cpu_s, started_s = peak_kib(), time.process_time(), time.monotonic()
    told = WAYS[way](task)
    return {
        **told,
        "members": task.members,
        "seconds": task.seconds,
        "wall_s": time.monotonic() - started_s,
        "cpu_s": time.process_time() - cpu_s,
        "memory_kib": peak_kib() - before_kib,
    }


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], Task(**json.loads(sys.argv[2])))))
