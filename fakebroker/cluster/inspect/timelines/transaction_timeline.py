"""The timeline of one transactional id: its transitions as data, as text and as SVG."""

from collections.abc import Iterable

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.timelines.timeline import svg_of, text_of
from fakebroker.cluster.inspect.timelines.timeline_layout import TRANSACTION_LAYOUT
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.history import DEAD, NOTHING_DROPPED, DroppedMoments
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.topic_partition import format_partitions


class TransactionTimeline(msgspec.Struct, frozen=True):
    """The history of a transactional id, as far as it is kept.

    Attributes:
        transactional_id: The id.
        moments: Its transitions, and those that could not be stored, oldest first.
        taken_ms: When the timeline was taken, by the brokers' clock, in milliseconds since the Unix epoch.
        dropped: The earlier moments that are no longer kept; see `fakebroker.coordinator.history`.
    """

    transactional_id: str
    moments: tuple[TransactionMoment, ...]
    taken_ms: float
    dropped: DroppedMoments = NOTHING_DROPPED

    @property
    def transitions(self) -> tuple[TransactionMoment, ...]:
        """The moments that changed the state."""
        return tuple(moment for moment in self.moments if moment.is_transition)

    def text(self) -> str:
        """Draw the timeline as text of at most 100 columns: a row per moment, with seconds since the first one."""
        return text_of(TRANSACTION_LAYOUT, self.transactional_id, _drawn(self.moments), self.taken_ms, self.dropped)

    def __str__(self) -> str:
        return self.text()

    def svg(self, width: float | None = None, max_rows: int | None = None) -> str:
        """Draw the timeline as SVG: the state as a band, a row per partition. Not to scale.

        Args:
            width: The width in pixels; by default as much as the moments need.
            max_rows: The largest number of partitions to draw; by default all.
        """
        drawn = _drawn(self.moments), self.taken_ms, self.dropped
        return svg_of(TRANSACTION_LAYOUT, self.transactional_id, *drawn, width=width, max_rows=max_rows)


def transaction_timeline_of(cluster: Cluster, transactional_id: str, now_ms: float) -> TransactionTimeline:
    """Return the transitions of a transactional id up to this time."""
    history = cluster.transactions.history
    return TransactionTimeline(
        transactional_id, history.of(transactional_id), now_ms, history.dropped_of(transactional_id)
    )


def _drawn(moments: Iterable[TransactionMoment]) -> list[Moment]:
    """Return moments in the form in which those of groups are drawn: epochs as generations, partitions as members."""
    drawn: list[Moment] = []
    before: tuple[str, ...] = ()
    for moment in moments:
        names = tuple(format_partitions([each]) for each in moment.partitions)
        # A new coordinator, and a zombie, begin with all partitions.
        before = () if moment.state_from == DEAD else before
        drawn.append(
            Moment(
                at_ms=moment.at_ms,
                coordinator_id=moment.coordinator_id,
                cause=moment.cause,
                state_from=moment.state_from,
                state_to=moment.state_to,
                generation_id=moment.producer_epoch,
                leader_id=None,
                members=names,
                joined=_without(names, before),
                rejoined=(),
                left=_without(before, names),
                parked_joins=(),
                parked_syncs=(),
            )
        )
        before = names
    return drawn


def _without(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    known = frozenset(others)
    return tuple(name for name in names if name not in known)
