"""Placements of named groups, with which those of counts of groups are compared."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.even import dealt, drawn_off
from fakebroker.lab.placement.offsets_leaders import Elections, OffsetsLeaders

Moves = dict[str, int | None]
"""The new coordinator of each group that moves; None if it has none."""

Sizes = Mapping[str, int]
"""Number of members by group."""


class Placement(Protocol):
    """Decides which broker coordinates which group."""

    def coordinator(self, group_id: str) -> int | None:
        """Return the node id of a group's coordinator; None if it has none."""

    def stop(self, node_id: int) -> Moves:
        """A broker dies."""

    def start(self, node_id: int) -> Moves:
        """A broker starts that has died before, or that is new."""


class HashPlacement:
    """Option 2.a: the leader of the group's partition of the offsets topic coordinates it.

    Args:
        groups: The groups.
        topic: The leaders of the partitions.
    """

    def __init__(self, groups: Collection[str], topic: OffsetsLeaders) -> None:
        self._topic = topic
        self._groups: dict[int, list[str]] = {}
        for group_id in groups:
            self._groups.setdefault(self._partition(group_id), []).append(group_id)

    def _partition(self, group_id: str) -> int:
        return partition_for(group_id, len(self._topic.leaders))

    def coordinator(self, group_id: str) -> int | None:
        return self._topic.leaders[self._partition(group_id)]

    def stop(self, node_id: int) -> Moves:
        return self._moves(self._topic.stop(node_id))

    def start(self, node_id: int) -> Moves:
        return self._moves(self._topic.start(node_id))

    def reassign(self, node_id: int) -> Moves:
        """Give a new broker its share of the partitions."""
        return self._moves(self._topic.reassign(node_id))

    def _moves(self, elected: Elections) -> Moves:
        return {group_id: leader for index, leader in elected.items() for group_id in self._groups.get(index, ())}


class EvenPlacement:
    """The ideal: groups are placed by their sizes, so that all brokers have the same number of members.

    Args:
        groups: The sizes of the groups. Groups of one size are placed in this order.
        nodes: The brokers.
    """

    def __init__(self, groups: Sizes, nodes: Collection[int]) -> None:
        self._sizes = groups
        self._held: dict[int, list[str]] = {node_id: [] for node_id in sorted(nodes)}
        self._coordinators: Moves = {}
        self._deal(list(groups))

    def coordinator(self, group_id: str) -> int | None:
        return self._coordinators[group_id]

    def stop(self, node_id: int) -> Moves:
        groups = self._held.pop(node_id)
        if self._held:
            return self._deal(groups)
        moves: Moves = dict.fromkeys(groups)
        self._coordinators |= moves
        return moves

    def start(self, node_id: int) -> Moves:
        if not self._held:
            self._held[node_id] = []
            return self._deal(list(self._sizes))
        taken: list[str] = []
        counts = [_counts(groups, self._sizes) for groups in self._held.values()]
        for groups, moved in zip(self._held.values(), drawn_off(counts), strict=True):
            for group_id in list(groups):
                if moved.get(self._sizes[group_id], 0):
                    moved[self._sizes[group_id]] -= 1
                    groups.remove(group_id)
                    taken.append(group_id)
        self._held = dict(sorted({**self._held, node_id: taken}.items()))
        moves: Moves = dict.fromkeys(taken, node_id)
        self._coordinators |= moves
        return moves

    def _deal(self, groups: Sequence[str]) -> Moves:
        loads = [sum(self._sizes[group_id] for group_id in held) for held in self._held.values()]
        by_size: dict[int, list[str]] = {}
        for group_id in groups:
            by_size.setdefault(self._sizes[group_id], []).append(group_id)
        moves: Moves = {}
        shares = dealt(_counts(groups, self._sizes), loads)
        for (node_id, held), counts in zip(self._held.items(), shares, strict=True):
            for size, count in counts.items():
                chosen, by_size[size] = by_size[size][:count], by_size[size][count:]
                held += chosen
                moves |= dict.fromkeys(chosen, node_id)
        self._coordinators |= moves
        return moves


def _counts(groups: Collection[str], sizes: Sizes) -> dict[int, int]:
    """Return the number of groups by size."""
    counts: dict[int, int] = {}
    for group_id in groups:
        counts[sizes[group_id]] = counts.get(sizes[group_id], 0) + 1
    return counts
