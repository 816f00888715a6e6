"""What timelines of groups and of transactional ids show, as text and as SVG. Plain data."""

from collections.abc import Mapping, Sequence

import msgspec

from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.member import LEAVING_STATIC_EPOCH
from fakebroker.coordinator.consumer.states import UNRELEASED_PARTITIONS, ConsumerGroupState
from fakebroker.coordinator.group_history import MemberChange
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.transaction.transaction import TransactionState

# Changes of members of consumer groups (KIP-848) as text


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


# What differs between timelines of groups and of transactional ids


FOLLOWER, LEADER, WAITING, REVOKING = "follower", "leader", "waiting", "revoking"
"""The kinds of rows: CSS classes of the SVG. The last two are of members of consumer groups."""


class TimelineLayout(msgspec.Struct, frozen=True):
    """The states, rows and headings of a timeline.

    Attributes:
        subject: What the timeline is about: "group".
        colors: The color of each state by Kafka's name, in the order of the lanes of the text.
        number: What a vertical line of the picture stands for, abbreviated: "gen".
        headings: The headings of the number and of the number of rows, right-aligned in the text.
        rows: The label of each kind of row in the legend.
        signs: The meaning of the signs before names in the text.
    """

    subject: str
    colors: Mapping[str, str]
    number: str
    headings: tuple[str, str]
    rows: Mapping[str, str]
    signs: str

    @property
    def lanes(self) -> list[str]:
        return list(self.colors)

    @property
    def lanes_width(self) -> int:
        """The number of characters of a line of lanes."""
        return 2 * len(self.colors) - 1


_BEGIN = {DEAD: "#8c959f", GroupState.EMPTY.value: "#b6c2cf"}
_CLASSIC = {GroupState.PREPARING_REBALANCE.value: "#e8904a", GroupState.COMPLETING_REBALANCE.value: "#dbb62a"}
_CONSUMER = {ConsumerGroupState.ASSIGNING.value: "#e8904a", ConsumerGroupState.RECONCILING.value: "#dbb62a"}
_CONSUMER_ROWS = {FOLLOWER: "member", WAITING: "waits for partitions", REVOKING: "has to give up partitions"}
_END = {GroupState.STABLE.value: "#4bb36b"}

GROUP_LAYOUT = TimelineLayout(
    subject="group",
    colors=_BEGIN | _CLASSIC | _END,
    number="gen",
    headings=("gen", "members"),
    rows={FOLLOWER: "member", LEADER: "leader"},
    signs="+ joined * rejoined - gone",
)

CONSUMER_GROUP_LAYOUT = TimelineLayout(
    subject="group",
    colors=_BEGIN | _CONSUMER | _END,
    number="epoch",
    headings=("epoch", "members"),
    rows=_CONSUMER_ROWS,
    signs="+ joined - gone",
)
"""That of a consumer group (KIP-848)."""

CONVERTED_GROUP_LAYOUT = TimelineLayout(
    subject="group",
    colors=_BEGIN | _CLASSIC | _CONSUMER | _END,
    number="epoch",
    headings=("epoch", "members"),
    rows=_CONSUMER_ROWS | {LEADER: "leader"},
    signs="+ joined * rejoined - gone",
)
"""That of a group that has been a classic group and a consumer group."""

TRANSACTION_LAYOUT = TimelineLayout(
    subject="transactional id",
    colors={
        DEAD: "#8c959f",
        TransactionState.EMPTY.value: "#b6c2cf",
        TransactionState.ONGOING.value: "#6f9bd8",
        TransactionState.PREPARE_COMMIT.value: "#dbb62a",
        TransactionState.COMPLETE_COMMIT.value: "#4bb36b",
        TransactionState.PREPARE_ABORT.value: "#e8904a",
        TransactionState.COMPLETE_ABORT.value: "#c58f8f",
    },
    number="epoch",
    headings=("epoch", "parts"),
    rows={FOLLOWER: "partition"},
    signs="+ added - ended",
)
