"""Replays a shipped workload against three brokers of Apache Kafka, and kills one of them in the middle.

`Killer` waits for what the cluster shows, never for a time: groups are stable and have committed, or members have
crashed; then it kills the broker that coordinates the most groups. It starts it again when one of these groups has
committed with another broker.
"""

import fcntl
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import trio

from fakebroker import Admin
from fakebroker.client.admin.descriptions import GroupDescription
from fakebroker.errors import FakebrokerError
from fakebroker.kafka.jars import jars
from fakebroker.kafka.process import ApacheKafka
from fakebroker.replay import commands
from fakebroker.replay.options import GroupProtocol, ReplayOptions
from fakebroker.replay.run_directory import EVENTS, read_summary
from fakebroker.replay.run_summary import Summary
from fakebroker.replay.workload.scale import scaled
from fakebroker.replay.workload.workload import load_workload

RELEASE = "4.2"

SETTINGS = {
    # The controller notices sooner that a broker was killed.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    # It makes a broker that is back the leader of its partitions again, which moves coordinators a second time.
    "leader.imbalance.check.interval.seconds": 2,
    "leader.imbalance.per.broker.percentage": 1,
    # Fewer partitions than Kafka's 50, because each has to be created and loaded.
    "offsets.topic.num.partitions": 12,
    "transaction.state.log.num.partitions": 6,
}
"""Settings of the brokers, in addition to those of `ApacheKafka`."""

_WAIT_S = 60.0
_RETRY_S = 0.2
_LEFT_OUT = ("[cluster]", "[[event]]", "[[expect]]", "[promises]")
"""Tables that are about the embedded cluster and its events, and what these should exercise."""
_OF_CLASSIC = re.compile(r"^(session_timeout_ms|heartbeat_interval_ms|assignor) = .*\n", re.MULTILINE)


@dataclass(frozen=True)
class RealReplay:
    """A workload to be replayed.

    Attributes:
        name: Its name in `scenarios/workloads`.
        protocol: As `--protocol`.
        scale: As `--scale`.
        kills_in_rebalance: Whether the broker is killed when a group rebalances, because its members have crashed or
            leave; else when all groups are stable.
        exercises: Promises that must have cases, in addition to those of each replay.
    """

    name: str
    protocol: GroupProtocol = "classic"
    scale: float = 0.2
    kills_in_rebalance: bool = False
    exercises: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name}-{self.protocol}"

    def write(self, directory: Path) -> Path:
        """Write the workload without what needs the embedded cluster, or the classic protocol; return its path."""
        text = Path(f"scenarios/workloads/{self.name}.toml").read_text()
        if self.protocol == "consumer":
            text = _OF_CLASSIC.sub("", text)
        first, *tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
        file = directory / f"{self.name}.toml"
        file.write_text(first + "".join(table for table in tables if not table.startswith(_LEFT_OUT)))
        return file

    def options(self, directory: Path, kafka: ApacheKafka) -> ReplayOptions:
        """Return the options of the replay; its results are in the directory `run`."""
        return ReplayOptions(
            file=self.write(directory),
            bootstrap=kafka.bootstrap_servers,
            scale=self.scale,
            protocol=self.protocol,
            out=directory / "run",
        )


class Killer:
    """Kills a broker in the middle of a replay, and starts it again.

    Args:
        kafka: The cluster.
        replay: What is replayed.
        groups: The number of groups.

    Attributes:
        node_id: The broker.
        coordinated: How many groups it coordinated, and how many transactional ids.
        killed_s, started_s, back_s: When it had been killed, when it was started again, and when it answered again; in
            seconds since the Unix epoch.
    """

    def __init__(self, kafka: ApacheKafka, replay: RealReplay, groups: int) -> None:
        self._kafka, self._replay, self._groups = kafka, replay, groups
        self._admin: Admin
        self._stable_so_far: set[str] = set()
        self.node_id = 0
        self.coordinated = (0, 0)
        self.killed_s = self.started_s = self.back_s = 0.0

    def run(self) -> None:
        """Kill the broker and start it again, at the right moments.

        Raises:
            AssertionError: The cluster did not get into the state that the killer waits for.
        """
        trio.run(self._run)

    async def _run(self) -> None:
        servers = self._kafka.bootstrap_servers
        async with Admin(servers, request_timeout_ms=3_000, default_api_timeout_ms=5_000) as self._admin:
            await self._until("all groups have been stable and have committed", self._stable)
            if self._replay.kills_in_rebalance:
                await self._until("a group rebalances", self._rebalancing)
            moved = await self._choose()
            before = await self._offsets(moved)
            broker = self._kafka.brokers[self.node_id]
            await trio.to_thread.run_sync(broker.kill)
            self.killed_s = time.time()

            async def taken_over() -> bool:
                nodes = {each.node_id for each in (await self._admin.describe_cluster()).nodes}
                after = await self._offsets(moved)
                return self.node_id not in nodes and any(after[name] > before[name] for name in moved)

            await self._until("a group of the killed broker commits with another one", taken_over)
            self.started_s = time.time()
            broker.start()
            await trio.to_thread.run_sync(self._kafka.wait_until_ready, [self.node_id])
            self.back_s = time.time()

    async def _choose(self) -> list[str]:
        """Choose the broker that coordinates the most groups, and a transactional id if there are any.

        Returns:
            The groups that it coordinates.
        """
        groups = [each.group_id for each in await self._admin.list_groups()]
        ids = [each.transactional_id for each in await self._admin.list_transactions()]
        places = (await self._admin.find_coordinators(groups)).all()
        of_groups = Counter(node.node_id for node in places.values())
        found = (await self._admin.find_coordinators(ids, "transaction")).all() if ids else {}
        of_ids = Counter(node.node_id for node in found.values())
        self.node_id = max(of_ids or of_groups, key=lambda node_id: of_groups[node_id])
        self.coordinated = of_groups[self.node_id], of_ids[self.node_id]
        return [name for name, node in places.items() if node.node_id == self.node_id]

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a call returns True. Errors are repeated: brokers start, or are down."""
        failed: FakebrokerError | None = None
        with trio.move_on_after(_WAIT_S):
            while True:
                try:
                    if await holds():
                        return
                except FakebrokerError as error:
                    failed = error
                await trio.sleep(_RETRY_S)
        raise AssertionError(f"not within {_WAIT_S:g} s: {what}; last error: {failed}")

    async def _described(self) -> dict[str, GroupDescription]:
        names = [each.group_id for each in await self._admin.list_groups()]
        return (await self._admin.describe_groups(names)).all()

    async def _stable(self) -> bool:
        """Return whether each group has been stable, and has committed; some may have members that have crashed."""
        stable = [name for name, each in (await self._described()).items() if each.state == "Stable"]
        self._stable_so_far.update(name for name, offset in (await self._offsets(stable)).items() if offset)
        return len(self._stable_so_far) == self._groups

    async def _rebalancing(self) -> bool:
        return any(each.state != "Stable" for each in (await self._described()).values())

    async def _offsets(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sum of the committed offsets of each group."""
        found = (await self._admin.list_group_offsets(dict.fromkeys(names))).all()
        return {name: sum(each.offset for each in offsets.values() if each) for name, offsets in found.items()}


@dataclass(frozen=True)
class Played:
    """A replay that has ended, with what the killer did.

    Attributes:
        summary: Its summary.
        rows: Its requests.
        killer: What was killed, and when.
        status: The exit status.
    """

    summary: Summary
    rows: list[dict[str, Any]]
    killer: Killer
    status: int

    def answered(self, from_s: float = 0, until_s: float = inf) -> Counter[int]:
        """Return how many requests each broker has answered of those that were sent from a time until another one."""
        return Counter(
            row["broker"]
            for row in self.rows
            if row["latency_us"] is not None and from_s * 1e6 <= row["sent_us"] < until_s * 1e6
        )

    def row(self, replay: RealReplay) -> str:
        """Return the row of the table in `scenarios/replay.md`."""
        verdict, killer = self.summary.verdict, self.killer
        promises = Counter(each.outcome for each in verdict.promises)
        checks = Counter(each.outcome for each in verdict.availability)
        begin_s = min(row["sent_us"] for row in self.rows) / 1e6
        length_s = max(row["sent_us"] for row in self.rows) / 1e6 - begin_s
        cells = (
            replay.name,
            replay.protocol,
            self.summary.head.members,
            f"{length_s:.0f} s",
            f"{self.summary.numbers.total.requests:,}",
            f"{promises['kept']} / {promises['broken']} ({promises['not exercised']})",
            f"{checks['passed']} / {len(verdict.availability) - checks['passed']}",
            f"{killer.node_id}: {killer.coordinated[0]} groups"
            + (f", {killer.coordinated[1]} transactional ids" if killer.coordinated[1] else ""),
            f"{killer.killed_s - begin_s:.1f} s",
            f"{killer.back_s - begin_s:.1f} s",
        )
        return f"| {' | '.join(map(str, cells))} |"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process of this user is in this context: three brokers and Spark use all cores."""
    with (jars(RELEASE).parent / "replay.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def play(replay: RealReplay, directory: Path) -> Played:
    """Replay a workload while a broker is killed and started again.

    Args:
        replay: What is replayed.
        directory: Directory for the files; the results are in its directory `run`.
    """
    with one_at_a_time(), ApacheKafka(RELEASE, 3, SETTINGS) as kafka, ThreadPoolExecutor(1) as thread:
        options = replay.options(directory, kafka)
        killer = Killer(kafka, replay, scaled(load_workload(options.file), replay.scale).group_count)
        killing = thread.submit(killer.run)
        status = commands.replay(options)
        killing.result()
    rows = pq.read_table(directory / "run" / EVENTS, filters=[("kind", "=", "request")]).to_pylist()
    return Played(read_summary(directory / "run"), rows, killer, status)
