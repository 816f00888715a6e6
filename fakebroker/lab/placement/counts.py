"""Balance and moves of each placement, by counts of groups instead of named groups: any number of groups.

Each function yields samples for one seed: what a row is about, and its values.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fakebroker.lab.placement.even import dealt, drawn_off
from fakebroker.lab.placement.offsets_leaders import REPLICA_PLACEMENTS, Elections, OffsetsLeaders

Counts = NDArray[np.int64]

Sample = tuple[Mapping[str, Any], Mapping[str, float]]
"""The identity of a row, and its values for one seed."""


def _worst(loads: Sequence[int] | Counts) -> float:
    """Return the largest load divided by the mean."""
    total = int(np.sum(loads))
    return float(np.max(loads)) * len(loads) / total if total else 1.0


def _balance(about: Mapping[str, Any], groups: Counts, members: Counts, heartbeat_interval_ms: int) -> Sample:
    return about, {
        "members": float(members.sum()),
        "worst_groups": _worst(groups),
        "worst_members": _worst(members),
        "worst_heartbeats_per_s": float(members.max()) * 1000 / heartbeat_interval_ms,
    }


class HashedGroups:
    """Option 2.a: groups by partition of the offsets topic.

    Args:
        groups: Number of groups by partition.
        members: Number of members by partition.
        brokers: Number of brokers; their node ids start at 1.
        factor: Replicas of each partition.
        seed: Seed of the placement of replicas.
    """

    def __init__(self, groups: Counts, members: Counts, brokers: int, factor: int, seed: int) -> None:
        self._groups, self._members, self._brokers = groups, members, brokers
        self._factor, self._seed = factor, seed
        self._about = {
            "placement": "option-2a",
            "groups": int(groups.sum()),
            "brokers": brokers,
            "partitions": len(groups),
        }

    def _topic(self, replicas: str) -> OffsetsLeaders:
        nodes = range(1, self._brokers + 1)
        random = Random(f"{replicas} {len(self._groups)} {self._brokers} {self._seed}")
        return OffsetsLeaders(REPLICA_PLACEMENTS[replicas](len(self._groups), self._factor, nodes, random), nodes)

    def _by_broker(self, topic: OffsetsLeaders, counts: Counts, brokers: int) -> Counts:
        found = np.zeros(brokers + 1, np.int64)
        np.add.at(found, np.array(topic.leaders, np.int64), counts)
        return found[1:]

    def balance(self, heartbeat_interval_ms: int) -> Sample:
        """Return how even the placement is."""
        topic = self._topic("striped")
        groups, members = (self._by_broker(topic, counts, self._brokers) for counts in (self._groups, self._members))
        return _balance(self._about, groups, members, heartbeat_interval_ms)

    def moves(self) -> Iterator[Sample]:
        """Yield the moves for each change of the brokers, at least two."""
        for replicas in REPLICA_PLACEMENTS:
            yield self._deaths(replicas)
        yield from self._addition()
        topic = self._topic("striped")
        elections = []
        for node_id in range(1, self._brokers + 1):
            elections += [topic.stop(node_id), topic.start(node_id)]
        yield self._sample(
            "striped", "rolling restart", elections, self._by_broker(topic, self._members, self._brokers)
        )

    def _deaths(self, replicas: str) -> Sample:
        """Return the mean over all brokers of what happens if one dies."""
        samples = []
        for node_id in range(1, self._brokers + 1):
            topic = self._topic(replicas)
            elected = topic.stop(node_id)
            members = np.delete(self._by_broker(topic, self._members, self._brokers), node_id - 1)
            samples.append(self._sample(replicas, "dies", [elected], members))
        values = {name: float(np.mean([each[name] for _, each in samples])) for name in samples[0][1]}
        return samples[0][0], values

    def _addition(self) -> Iterator[Sample]:
        topic, node_id = self._topic("striped"), self._brokers + 1
        elected = topic.start(node_id)
        yield self._sample("striped", "added", [elected], self._by_broker(topic, self._members, node_id))
        elected = topic.reassign(node_id)
        yield self._sample("striped", "reassigned", [elected], self._by_broker(topic, self._members, node_id))

    def _sample(self, replicas: str, change: str, elections: Sequence[Elections], members: Counts) -> Sample:
        moved = [index for elected in elections for index in elected]
        return {**self._about, "replicas": replicas, "change": change}, {
            "moved_groups": float(self._groups[moved].sum() / self._groups.sum()),
            "moved_members": float(self._members[moved].sum() / self._members.sum()),
            "worst_members": _worst(members),
        }


class ElectedGroups:
    """Option 2.b: groups by the broker that was elected, and by size.

    When a coordinator dies, its groups are elected again. Which of the other brokers is the first one to react is
    random and independent for each group, so the groups of one size have a multinomial distribution.

    Args:
        counts: Number of groups by broker and size.
        seed: Seed of the elections.
    """

    def __init__(self, counts: Counts, seed: int) -> None:
        used = counts.sum(axis=0) > 0
        self._counts = counts[:, used]
        self._sizes = np.flatnonzero(used) + 1
        self._brokers, self._seed = len(counts), seed
        self._about = {"placement": "option-2b", "groups": int(counts.sum()), "brokers": self._brokers}

    def balance(self, heartbeat_interval_ms: int, asked: int) -> Sample:
        """Return how even the placement is.

        Args:
            heartbeat_interval_ms: Time between two heartbeats of a member.
            asked: Number of brokers that are asked first.
        """
        groups, members = self._counts.sum(axis=1), self._counts @ self._sizes
        return _balance({**self._about, "asked": asked}, groups, members, heartbeat_interval_ms)

    def moves(self) -> Iterator[Sample]:
        """Yield the moves for each change of the brokers, at least two. Brokers are alike, so the first one dies."""
        counts, moved = self._died(self._counts, 0)
        yield self._sample("dies", [moved], counts[1:])
        yield self._sample("added", [], np.vstack([self._counts, np.zeros_like(self._counts[:1])]))
        counts, all_moved = self._counts, []
        for index in range(self._brokers):
            counts, moved = self._died(counts, index)
            all_moved.append(moved)
        yield self._sample("rolling restart", all_moved, counts)

    def _died(self, counts: Counts, index: int) -> tuple[Counts, Counts]:
        """Return the counts after a broker has died, and the groups by size that moved."""
        random = np.random.default_rng([self._seed % 2**64, self._brokers, index])
        shares = np.full(self._brokers, 1 / (self._brokers - 1))
        shares[index] = 0.0
        moved = counts[index].copy()
        after = counts.copy()
        after[index] = 0
        after += random.multinomial(moved, shares / shares.sum()).T
        return after, moved

    def _sample(self, change: str, moved: Sequence[Counts], counts: Counts) -> Sample:
        groups = sum(int(each.sum()) for each in moved)
        members = sum(int(each @ self._sizes) for each in moved)
        return {**self._about, "change": change}, {
            "moved_groups": groups / int(self._counts.sum()),
            "moved_members": members / int((self._counts @ self._sizes).sum()),
            "worst_members": _worst(counts @ self._sizes),
        }


class EvenGroups:
    """The ideal: groups placed by their sizes.

    Args:
        by_size: Number of groups by size, from size 1.
        brokers: Number of brokers.
    """

    def __init__(self, by_size: Counts, brokers: int) -> None:
        self._sizes = {index + 1: int(by_size[index]) for index in np.flatnonzero(by_size).tolist()}
        self._held = dealt(self._sizes, [0] * brokers)
        self._about = {"placement": "load-aware", "groups": int(by_size.sum()), "brokers": brokers}

    def balance(self, heartbeat_interval_ms: int) -> Sample:
        """Return how even the placement is."""
        groups, members = (np.array(list(map(count, self._held)), np.int64) for count in (_groups, _members))
        return _balance(self._about, groups, members, heartbeat_interval_ms)

    def moves(self) -> Iterator[Sample]:
        """Yield the moves for each change of the brokers, at least two. The first broker dies, or one is added."""
        moved, *others = self._held
        loads = list(map(_members, others))
        gained = dealt(moved, loads)
        yield self._sample("dies", [moved], [load + _members(more) for load, more in zip(loads, gained, strict=True)])
        taken = drawn_off(self._held)
        left = [_members(held) - _members(less) for held, less in zip(self._held, taken, strict=True)]
        yield self._sample("reassigned", taken, [*left, sum(map(_members, taken))])

    def _sample(self, change: str, moved: Sequence[Mapping[int, int]], members: Sequence[int]) -> Sample:
        return {**self._about, "change": change}, {
            "moved_groups": sum(map(_groups, moved)) / _groups(self._sizes),
            "moved_members": sum(map(_members, moved)) / _members(self._sizes),
            "worst_members": _worst(members),
        }


def _groups(sizes: Mapping[int, int]) -> int:
    return sum(sizes.values())


def _members(sizes: Mapping[int, int]) -> int:
    return sum(size * count for size, count in sizes.items())
