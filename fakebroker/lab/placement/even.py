"""Groups placed by their sizes so that load is even: the largest first, each at the broker with least members."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heapreplace

Sizes = Mapping[int, int]
"""Number of groups by their number of members. Groups of one size are interchangeable."""


def dealt(sizes: Sizes, loads: Sequence[int]) -> list[dict[int, int]]:
    """Place groups: in descending order of size, each at the broker with least members, the first of several.

    Args:
        sizes: The groups.
        loads: Number of members that each broker has already.

    Returns:
        For each broker, its groups by size.
    """
    current = list(loads)
    placed: list[dict[int, int]] = [{} for _ in loads]
    for size in sorted((size for size, count in sizes.items() if count), reverse=True):
        for index, count in list(_shares(size, sizes[size], current)):
            placed[index][size] = placed[index].get(size, 0) + count
            current[index] += size * count
    return placed


def _shares(size: int, count: int, loads: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield brokers with the numbers of groups, of `count` groups of one size, that they get.

    If a broker has n of them, it gets the next one when n * size more than its load is the least number. So they are
    placed in the order of these numbers, and then of the broker's index.
    """
    if count < len(loads):
        heap = [(load, index) for index, load in enumerate(loads)]
        heapify(heap)
        for _ in range(count):
            load, index = heap[0]
            heapreplace(heap, (load + size, index))
            yield index, 1
        return

    def placed_until(level: int) -> list[int]:
        return [max(0, (level - load) // size + 1) for load in loads]

    low, high = min(loads) - 1, min(loads) + size * count
    while high - low > 1:  # the highest level until which at most `count` are placed
        middle = (low + high) // 2
        low, high = (middle, high) if sum(placed_until(middle)) <= count else (low, middle)
    shares = placed_until(low)
    left = count - sum(shares)
    for index, (share, load) in enumerate(zip(shares, loads, strict=True)):
        is_next = left > 0 and load + size * share == low + 1
        left -= is_next
        if share + is_next:
            yield index, share + is_next


def drawn_off(held: Sequence[Sizes]) -> list[dict[int, int]]:
    """Return the groups that brokers give to a new broker, by size: from each, its excess over the new mean.

    The largest groups that are not larger than the rest of the excess are moved first, so few groups move.
    """
    loads = [sum(size * count for size, count in sizes.items()) for sizes in held]
    mean = sum(loads) // (len(held) + 1)
    moved: list[dict[int, int]] = []
    for sizes, load in zip(held, loads, strict=True):
        excess, taken = load - mean, {}
        for size in sorted(sizes, reverse=True):
            if count := min(sizes[size], max(0, excess) // size):
                taken[size] = count
                excess -= size * count
        moved.append(taken)
    return moved
