"""Timelines of groups and of transactional ids: their transitions as data, as text and as SVG."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import zip_longest

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.timeline_layout import (
    CONSUMER_GROUP_LAYOUT,
    CONVERTED_GROUP_LAYOUT,
    GROUP_LAYOUT,
    TRANSACTION_LAYOUT,
    TimelineLayout,
    described,
)
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.history import DEAD, NOTHING_DROPPED, DroppedMoments
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.errors import cut_line

_WIDTH = 100
_IN_OUT_WIDTH = 20
_MOST_CHANGES = 8
_MAX_NAME, _MAX_CAUSE = 100, 500
"""Maximum number of characters of a name and of a cause in the text."""

_UUID = re.compile(r"-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
_UUID_ALONE = re.compile(r"[A-Za-z0-9+/_-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The member ids that clients of consumer groups (KIP-848) make: UUIDs in base64, in Kafka's form or as usual."""
_IDS_KEPT = 10_000
_NAME_LENGTHS = (0, 5, 9, 37)
_NO_CLIENT_IDS: Mapping[str, str] = {}


class Timeline(msgspec.Struct, frozen=True):
    """The history of a group, as far as it is kept.

    Attributes:
        group_id: The group.
        moments: Changes of its state and of its members, oldest first.
        taken_ms: When the timeline was taken, by the brokers' clock, in milliseconds since the Unix epoch.
        dropped: The earlier moments that are no longer kept.
    """

    group_id: str
    moments: tuple[Moment, ...]
    taken_ms: float
    dropped: DroppedMoments = NOTHING_DROPPED

    @property
    def transitions(self) -> tuple[Moment, ...]:
        """The moments that changed the state."""
        return tuple(moment for moment in self.moments if moment.is_transition)

    def text(self, since_ms: float | None = None) -> str:
        """Draw the timeline as text of at most 100 columns: a row per moment, with the time in seconds.

        Args:
            since_ms: Where the time begins, in milliseconds since the Unix epoch. None: the first moment.
        """
        return text_of(self._layout, self.group_id, self.moments, self.taken_ms, self.dropped, since_ms)

    def __str__(self) -> str:
        return self.text()

    def svg(self, width: float | None = None, max_rows: int | None = None) -> str:
        """Draw the timeline as SVG: the state as a band, a row per member. Not to scale; see `without_zombies`.

        Args:
            width: The width in pixels; by default as much as the moments need.
            max_rows: The largest number of members to draw; by default all.
        """
        drawn = self.moments, self.taken_ms, self.dropped
        return svg_of(self._layout, self.group_id, *drawn, width=width, max_rows=max_rows)

    @property
    def _layout(self) -> TimelineLayout:
        kinds = {moment.assignment_epoch is None for moment in self.moments}
        if False not in kinds:
            return GROUP_LAYOUT
        return CONVERTED_GROUP_LAYOUT if True in kinds else CONSUMER_GROUP_LAYOUT


def text_of(
    layout: TimelineLayout,
    key: str,
    moments: Sequence[Moment],
    taken_ms: float,
    dropped: DroppedMoments,
    since_ms: float | None = None,
) -> str:
    """Draw a timeline as text.

    Args:
        layout: The states, rows and headings of the timeline.
        key: The id of the group, or the transactional id.
        moments: Oldest first.
        taken_ms: When the timeline was taken, by the brokers' clock, in milliseconds since the Unix epoch.
        dropped: The earlier moments that are no longer kept.
        since_ms: As in `Timeline.text`.
    """
    if not moments:
        what = _note(dropped) if dropped else "nothing has happened to it"
        return f"{layout.subject} {cut_line(key)}: {what}"
    start_ms = moments[0].at_ms if since_ms is None else since_ms
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    head = f"{layout.subject} {cut_line(key)}, since {start:%Y-%m-%d %H:%M:%S}.{start.microsecond // 1000:03} UTC"
    names = names_in(moments)
    lines = [head, *_wrapped(_legend(layout), _WIDTH), *([_note(dropped)] if dropped else []), "", _head(layout)]
    coordinator_id = -1
    for moment in moments:
        place = f", at broker {moment.coordinator_id}" if moment.coordinator_id != coordinator_id else ""
        coordinator_id = moment.coordinator_id
        lines += _row(layout, moment, (moment.at_ms - start_ms) / 1000, _cause(moment, names, place), names)
    state = without_zombies(moments)[-1].state_to
    lines.append(_line(f"{(taken_ms - start_ms) / 1000:9.3f}", _arrow(layout, state, state), "now"))
    return "\n".join(lines)


def svg_of(
    layout: TimelineLayout,
    key: str,
    moments: Sequence[Moment],
    taken_ms: float,
    dropped: DroppedMoments,
    *,
    width: float | None,
    max_rows: int | None,
) -> str:
    """Draw a timeline as SVG; see `text_of` and `timeline_svg.draw`."""
    from fakebroker.cluster.inspect.timeline_svg import draw  # not at the top, because pictures are rare

    served = without_zombies(moments)
    names = names_in(served)
    causes = [_cause(each, names) for each in served]
    note = _note(dropped) if dropped else ""
    return draw(layout, key, served, taken_ms, names, causes, width=width, max_rows=max_rows, note=note)


def _cause(moment: Moment, names: Mapping[str, str], place: str = "") -> str:
    """Return the cause of a moment, and what members of a consumer group have after it."""
    return "; ".join([with_names(moment.cause, names) + place, *_changes(moment, names)])


def _changes(moment: Moment, names: Mapping[str, str]) -> Iterator[str]:
    for change in moment.changes[:_MOST_CHANGES]:
        yield f"{names[change.member_id]}: {described(change)}"
    if moment.changes[_MOST_CHANGES:]:
        yield f"and {len(moment.changes) - _MOST_CHANGES} more"


def _legend(layout: TimelineLayout) -> str:
    return f"{', '.join(f'{name[0]} {name}' for name in layout.lanes)}; {layout.signs}"


def _head(layout: TimelineLayout) -> str:
    number, count = layout.headings
    return (
        f"{'time':>9}  {'state':<{layout.lanes_width}} {number:>5}  {count:>7}  {'in and out':<{_IN_OUT_WIDTH}}  cause"
    )


def _note(dropped: DroppedMoments) -> str:
    """Return what the history has dropped, with the time of the last dropped moment."""
    if dropped.until_ms is None:
        return str(dropped)
    return f"{dropped}, up to {datetime.fromtimestamp(dropped.until_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def without_zombies(moments: Iterable[Moment]) -> list[Moment]:
    """Return the moments of a group without the moments of zombies.

    A zombie is a former coordinator that still answers after another broker has taken the group over. The first moment
    at a new coordinator begins with Dead. Later moments at other brokers come from zombies.
    """
    served: list[Moment] = []
    coordinator_id: int | None = None
    for moment in moments:
        if coordinator_id is None or moment.state_from == DEAD:
            coordinator_id = moment.coordinator_id
        if moment.coordinator_id == coordinator_id:
            served.append(moment)
    return served


def _row(layout: TimelineLayout, moment: Moment, seconds: float, cause: str, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of one moment. Lines after the first line contain only the text that did not fit."""
    changes = [
        sign + cut_line(names[member_id], _MAX_NAME)
        for sign, ids in (("+", moment.joined), ("*", moment.rejoined), ("-", moment.left))
        for member_id in ids
    ]
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    # Spaces in a name become non-breaking, so that lines break between names only.
    unbroken = [change.replace(" ", "\N{NO-BREAK SPACE}") for change in (*changes[:_MOST_CHANGES], *more)]
    in_out = _wrapped(" ".join(unbroken), _IN_OUT_WIDTH)
    # All columns but the cause: time, numbers, in and out, and the spaces between.
    cause_width = _WIDTH - (9 + layout.lanes_width + 13 + _IN_OUT_WIDTH + 4 * 2)
    time, state = f"{seconds:9.3f}", _arrow(layout, moment.state_from, moment.state_to)
    numbers = f"{moment.generation_id:>4}  {len(moment.members):>7}"
    for changes_line, cause_line in zip_longest(
        in_out, _wrapped(cut_line(cause, _MAX_CAUSE), cause_width), fillvalue=""
    ):
        yield _line(time, state, cause_line, numbers, changes_line)
        time, state, numbers = "", _arrow(layout, moment.state_to, moment.state_to, "│"), ""


def _line(time: str, state: str, cause: str, numbers: str = "", in_out: str = "") -> str:
    return f"{time:9}  {state}  {numbers:13}  {in_out:<{_IN_OUT_WIDTH}}  {cause}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _arrow(layout: TimelineLayout, before: str, after: str, mark: str = "") -> str:
    """Draw an arrow between the columns of two states, with their initials at its ends; `mark` replaces the second."""
    states = layout.lanes
    start, end = 2 * states.index(before), 2 * states.index(after)
    lanes = [" "] * layout.lanes_width
    for between in range(min(start, end) + 1, max(start, end)):
        lanes[between] = "─"
    if start != end:
        lanes[end - 1 if start < end else end + 1] = "▸" if start < end else "◂"
        lanes[start] = before[0]
    lanes[end] = mark or after[0]
    return "".join(lanes)


# Names


def names_in(moments: Iterable[Moment]) -> dict[str, str]:
    """Return a short name for each member that occurs in some moments, by member id."""
    member_ids: dict[str, None] = {}
    client_ids: dict[str, str] = {}
    for moment in moments:
        member_ids |= dict.fromkeys((*moment.members, *moment.left))
        client_ids |= {change.member_id: change.client_id for change in moment.changes}
    return short_names(member_ids, client_ids)


def short_names(member_ids: Iterable[str], client_ids: Mapping[str, str] = _NO_CLIENT_IDS) -> dict[str, str]:
    """Return a short name for each member id: with as little of its UUID as necessary to make all names unique.

    Args:
        member_ids: The member ids.
        client_ids: Client ids by member id. The name of a member whose id is a UUID alone, as in consumer groups
            (KIP-848), begins with its client id.
    """
    ids = list(dict.fromkeys(member_ids))
    for length in _NAME_LENGTHS:
        names = {member_id: _short(member_id, client_ids.get(member_id), length) for member_id in ids}
        if len(set(names.values())) == len(ids):
            break
    return names


def _short(member_id: str, client_id: str | None, length: int) -> str:
    start = _uuid_start(member_id)
    if start is not None:
        return member_id[: start + length]
    return f"{client_id}{f'-{member_id}'[:length]}" if client_id and _is_uuid(member_id) else member_id


@lru_cache(_IDS_KEPT)
def _is_uuid(member_id: str) -> bool:
    return _UUID_ALONE.fullmatch(member_id) is not None


@lru_cache(_IDS_KEPT)
def _uuid_start(member_id: str) -> int | None:
    found = _UUID.search(member_id)
    return None if found is None else found.start()


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Replace the member ids in a text by names."""
    for member_id, name in names.items():
        text = text.replace(member_id, name)
    return text


# Transactional ids


class TransactionTimeline(msgspec.Struct, frozen=True):
    """The history of a transactional id, as far as it is kept.

    Attributes:
        transactional_id: The id.
        moments: Its transitions, and transitions that could not be stored, oldest first.
        taken_ms: When the timeline was taken, by the brokers' clock, in milliseconds since the Unix epoch.
        dropped: The earlier moments that are no longer kept.
    """

    transactional_id: str
    moments: tuple[TransactionMoment, ...]
    taken_ms: float
    dropped: DroppedMoments = NOTHING_DROPPED

    @property
    def transitions(self) -> tuple[TransactionMoment, ...]:
        """The moments that changed the state."""
        return tuple(moment for moment in self.moments if moment.is_transition)

    def text(self, since_ms: float | None = None) -> str:
        """Draw the timeline as text of at most 100 columns: a row per moment, with the time in seconds.

        Args:
            since_ms: Where the time begins, in milliseconds since the Unix epoch. None: the first moment.
        """
        moments = _drawn(self.moments)
        return text_of(TRANSACTION_LAYOUT, self.transactional_id, moments, self.taken_ms, self.dropped, since_ms)

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
    """Return moments to draw like moments of a group: the epoch is the generation, partitions are the members."""
    drawn: list[Moment] = []
    before: tuple[str, ...] = ()
    for moment in moments:
        names = moment.partition_names
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
