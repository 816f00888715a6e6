"""Many small replays in memory, checked together.

The replays follow each other in one set of events. Names of groups, node ids and times of each replay are made unique.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.members.request_outcomes import CUT_OFF
from fakebroker.replay.promises.availability import Circumstances
from fakebroker.replay.promises.observer import Found as Violation
from fakebroker.replay.run_summary import AvailabilityCheck
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.workload.workload import Cluster
from tests.support.replay.observed import BrokerTimes, check_availability_of, observed
from tests.support.replay.simulated_replays import Row, play_in_memory, script, two_broker_settings

BROKERS = (1, 2, 3)
DURATION_S = 42.0
SESSION_S = 6.0
BOUND_S = SESSION_S + 5
"""How long groups may be without service."""

PARTITIONS = {"orders": 4}
TIMES = BrokerTimes(session_us=round(SESSION_S * 1e6), heartbeat_us=1_000_000)
_CONFIG: dict[str, Any] = {"session.timeout.ms": round(SESSION_S * 1000), "heartbeat.interval.ms": 1_000}
_CLUSTER = Cluster(brokers=len(BROKERS), config={f"group.consumer.{name}": value for name, value in _CONFIG.items()})

_APART_S, _NODES_APART = 200, 10


@dataclass
class PlayedReplay:
    """A replay of one seed.

    Attributes:
        seed: Its seed.
        scripts: The scripts of its members.
        events: The commands that ran.
        rows: The rows of `events.parquet`.
    """

    seed: int
    scripts: list[Script]
    events: Sequence[Mapping[str, Any]]
    rows: list[Row]

    def name_of(self, group: str) -> str:
        """Return the name of a group in the set of all replays."""
        return f"s{self.seed}/{group}"

    def broker(self, node_id: int) -> int:
        """Return the node id of a broker in the set of all replays."""
        return _NODES_APART * self.seed + node_id

    def unserved_s(self) -> dict[str, float]:
        """Return how long each group was without service at the end, independently of the product's checks."""
        end_us = self._start_us + DURATION_S * 1e6
        last = dict.fromkeys(self.groups, self._start_us)
        for group, _, _, until_us in self._served():
            last[group] = max(last[group], until_us)
        return {group: (end_us - until_us) / 1e6 for group, until_us in last.items()}

    def longest_wait_s(self) -> dict[str, float]:
        """Return for each group how long one of its members was without service, from its first start on."""
        times: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row in self.rows:
            if row["kind"] == "act":
                times.setdefault((row["group"], row["member"]), []).append((row["sent_us"], row["sent_us"]))
        for group, member, from_us, until_us in self._served():
            times[group, member].append((from_us, until_us))
        longest = dict.fromkeys(self.groups, 0.0)
        for (group, _), spans in times.items():
            spans.sort()
            for (_, since_us), (from_us, _) in pairwise(spans):
                longest[group] = max(longest[group], (from_us - since_us) / 1e6)
        return longest

    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
        return list(dict.fromkeys(each.group for each in self.scripts))

    @property
    def _start_us(self) -> int:
        return int(min(row["scheduled_us"] for row in self.rows if row["kind"] == "act"))

    def _served(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group and member of each response that accepts the member, and from when to when there were such."""
        for row in self.rows:
            if row["api"] in ("SyncGroup", "Heartbeat", "OffsetCommit") and row["error"] in (0, 27):
                done_us = row["scheduled_us"] + row["latency_us"]
                from_us = row["sent_us"] if row["count"] > 1 else done_us
                yield row["group"], row["member"], from_us, max(done_us, row["until_us"] or 0)


def played(seed: int, scripts: Sequence[Script], events: Sequence[Mapping[str, Any]] = ()) -> PlayedReplay:
    """Play a replay in memory on three brokers; heartbeats are folded."""
    settings = two_broker_settings(
        DURATION_S, seed=seed, cluster=_CLUSTER, topics=PARTITIONS, events=events, folds=True
    )
    return PlayedReplay(seed, list(scripts), events, play_in_memory(scripts, settings)[1])


def grown_groups(rng: random.Random, count: int) -> list[Script]:
    """Return scripts of groups of two members; the second one starts later, so that all groups rebalance."""
    return [
        script(
            f"g{group}",
            number,
            Act(0.0 if number == 0 else rng.uniform(12_000, 15_000), "start"),
            Act(DURATION_S * 1000, "leave"),
            session_timeout_ms=round(SESSION_S * 1000),
            commit_interval_ms=60_000,
        )
        for group in range(count)
        for number in range(2)
    ]


@dataclass
class Found:
    """The results of the availability checks of all replays.

    Attributes:
        checks: The checks by name.
        violations: The violations of the promises that were checked.
    """

    checks: dict[str, AvailabilityCheck] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def groups(self) -> set[str]:
        """Return the groups that are named by a failure or a doubt."""
        return {str(each.group) for each in self._all() if isinstance(each.group, str)}

    def failed_groups(self) -> set[str]:
        """Return the groups that are named by a failure."""
        failed = (each for check in self.checks.values() for each in check.violations)
        return {str(each.group) for each in failed if isinstance(each.group, str)}

    def brokers(self) -> set[int]:
        """Return the node ids of the brokers that are named."""
        check = self.checks["brokers-answer"]
        return {int(each.what.split()[1]) for each in [*check.violations, *check.doubts]}

    def _all(self) -> list[Any]:
        return [each for check in self.checks.values() for each in [*check.violations, *check.doubts]]


def check(
    replays: Sequence[PlayedReplay],
    *,
    planned: bool = False,
    promises: Sequence[str] = (),
    **more: Any,
) -> Found:
    """Check the availability in all replays.

    Args:
        replays: The replays.
        planned: Whether the events of the replays are those of the workload. If not, the failures are the cluster's.
        promises: The promises to check, too.
        more: Fields of `Circumstances`.
    """
    rows, members, timeline = [], [], []
    for index, replay in enumerate(replays):
        shift_us = index * _APART_S * 1_000_000
        rows += [_moved(replay, row, shift_us) for row in replay.rows]
        members += [_script_of(replay, each, index * _APART_S * 1000) for each in replay.scripts]
        for event in replay.events:
            at_s = event["at_s"] + index * _APART_S
            broker = {
                key: replay.broker(event[key]) for key in ("node_id", "broker", "to") if isinstance(event.get(key), int)
            }
            timeline.append({**event, **broker, "at_s": at_s, "done": True, "why": None})
    recorded = pa.Table.from_pylist(rows, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.promises.group_availability.MOST_LISTED", 100_000)
        run = Circumstances(timeline=timeline if planned else (), is_simulated=True, **more)
        checks = check_availability_of(recorded, members, run)
        violations, _ = observed(recorded, members, TIMES, promises, PARTITIONS)
    return Found({each.name: each for each in checks}, violations)


def _moved(replay: PlayedReplay, row: Row, shift_us: int) -> Row:
    moved = dict(row)
    for name in ("scheduled_us", "sent_us"):
        moved[name] = row[name] + shift_us
    if row["until_us"] is not None:
        moved["until_us"] = row["until_us"] + shift_us
    elif row["missing"] == CUT_OFF:  # pending at the end of this replay, not of all
        moved["until_us"] = max(moved["sent_us"], shift_us + max(each["sent_us"] for each in replay.rows[-1:]))
    if row["group"] is not None:
        moved["group"] = replay.name_of(row["group"])
    if row["member"] is not None:
        moved["member"] = replay.name_of(row["member"])
    if row["broker"] >= 0:
        moved["broker"] = replay.broker(row["broker"])
    if row["found"]:
        moved["found"] = [{**each, "key": replay.name_of(each["key"])} for each in row["found"]]
    return moved


def _script_of(replay: PlayedReplay, each: Script, shift_ms: float) -> Script:
    acts = tuple(act._replace(at_ms=act.at_ms + shift_ms) for act in each.acts)
    return each._replace(group=replay.name_of(each.group), member=replay.name_of(each.member), acts=acts)
