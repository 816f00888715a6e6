"""One process of the benchmark of the replay: plays members in one of several ways and prints a line of JSON about it.

    python -m tests.bench.players WAY '{"members": 200, ...}'

The workload is the same in all ways that need a cluster: groups of five, that many partitions, heartbeats every three
seconds, commits every five, and nothing else. Real clients pause their partitions at once, so that none of them
fetches.
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
_LOOK_EVERY_S = 0.25
HEAD_START_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be played.

    Attributes:
        bootstrap: Of the cluster; a simulation needs none.
        members: How many.
        seconds: How long each of them is there; one after the other they come in the time before.
        ramp_s: How long it takes until all have come.
        lanes: How many connections members share; one of its own for each of them if not given.
        closed_loop: Whether each heartbeat follows the answer to the last one; there are no commits then.
        waits: Whether it says `ready` and is told when to start, in seconds since the Unix epoch.
        prefix: Of the names, so that processes play groups of their own.
        commit_ms: From one commit of a member to the next.
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

    def comes_s(self, number: int) -> float:
        """When a member comes; those of one group come together."""
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
                    Act(self.comes_s(number) * 1000, "start"),
                    Act((self.comes_s(number) + self.seconds) * 1000, "leave"),
                ),
            )
            for number in range(self.members)
        ]


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def swarm(task: Task) -> dict[str, float]:
    """This project's members over TCP; their events are packed as in a replay."""
    last = Tally()

    def report(tally: Tally) -> None:
        nonlocal last
        last = tally

    stream = EventStream()
    manner = LoopSettings(lanes=task.lanes, closed_loop=task.closed_loop, duration_s=task.seconds + task.ramp_s)
    players = MemberLoop(task.scripts(), addresses(task.bootstrap), stream.add, report, manner)
    players.connect()
    if task.waits:
        print("ready", flush=True)
    start_s = float(sys.stdin.readline()) if task.waits else time.time() + HEAD_START_S
    rows = sum(batch.num_rows for batch in stream.during(lambda: players.play(start_s), players.stop))
    assert last.requests <= rows, f"{last.requests} requests in {rows} events"
    return {"requests": last.requests, "errors": last.errors}


def simulation(task: Task) -> dict[str, float]:
    """This project's members in memory."""
    world = SimulationSettings(
        seed=1, cluster=Cluster(), topics={TOPIC: GROUP_SIZE}, duration_s=task.seconds + task.ramp_s, folds=True
    )
    played = Simulation(task.scripts(), 0, world)
    rows = sum(batch.num_rows for batches in played.run() for batch in batches)
    return {"requests": played.recorder.requests, "errors": played.recorder.errors, "rows": rows}


def confluent(task: Task) -> dict[str, float]:
    """Members of librdkafka, in threads of their own; one thread polls and commits for all of them."""
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
        while len(consumers) < task.members and task.comes_s(len(consumers)) <= now_s:
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
    """The time by the clock of the task, now and then, until it is over."""
    start_s = time.monotonic()
    while (now_s := time.monotonic() - start_s) < task.seconds + task.ramp_s:
        yield now_s
        time.sleep(_LOOK_EVERY_S)


def aiokafka(task: Task) -> dict[str, float]:
    """Members of aiokafka, all in one loop."""
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
        await asyncio.sleep(task.comes_s(number))
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
    """Play, and what it took: seconds of all threads, and memory on top of that of a process that only could."""
    if way in ("confluent-kafka", "aiokafka"):
        __import__(way.replace("-", "_"))
    else:
        pa.array([""])  # it loads more on its first use
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
