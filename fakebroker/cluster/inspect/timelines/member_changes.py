"""Changes of members of consumer groups (KIP-848) as text, for timelines."""

from collections.abc import Sequence

from fakebroker.coordinator.consumer.member import LEAVING_STATIC_EPOCH
from fakebroker.coordinator.consumer.states import UNRELEASED_PARTITIONS
from fakebroker.coordinator.group_history import MemberChange


def described(change: MemberChange) -> str:
    """Return what a member of a consumer group has: "epoch 2, orders-0, has to give up orders-1"."""
    if change.member_epoch == LEAVING_STATIC_EPOCH:
        return f"away, keeps {partition_ranges(change.assigned)}"
    text = f"epoch {change.member_epoch}, {partition_ranges(change.assigned)}"
    if change.pending_revocation:
        text += f", has to give up {partition_ranges(change.pending_revocation)}"
    return text + ", waits for more" * (change.state == UNRELEASED_PARTITIONS.name)


def partition_ranges(partitions: Sequence[str]) -> str:
    """Return partitions in short form, such as "orders-0..3, orders-5"; "nothing" if there are none."""
    ranges: list[list[str]] = []
    for name, index in (each.rsplit("-", 1) for each in partitions):
        if ranges and ranges[-1][0] == name and int(ranges[-1][-1]) + 1 == int(index):
            ranges[-1].append(index)
        else:
            ranges.append([name, index])
    return ", ".join(_range(name, *indexes) for name, *indexes in ranges) or "nothing"


def _range(topic: str, first: str, *others: str) -> str:
    return f"{topic}-{first}..{others[-1]}" if others else f"{topic}-{first}"
