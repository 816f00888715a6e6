"""A timeline as an SVG picture: the state as a colored band, a row for each member, a vertical line per generation.

The colors suit light and dark pages. Depends on the history of a group only, not on a cluster.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import log10

from fakebroker.cluster.inspect.timeline_layout import FOLLOWER, REVOKING, WAITING, TimelineLayout, described
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.member import LEAVING_STATIC_EPOCH
from fakebroker.coordinator.consumer.states import STABLE, UNRELEASED_PARTITIONS
from fakebroker.coordinator.group_history import MemberChange, Moment

_MEMBER, _LEADER, _MISSING = "#6f9bd8", "#9a6fd8", "#cf4b4b"
_PREPARING = GroupState.PREPARING_REBALANCE.value

_LETTER = 6.4
"""Approximate width of a letter, in pixels."""
_LEGEND_LINE = 16
"""Height of a line of the legend, in pixels."""

_BAND_Y, _BAND = 52, 26
_ROW = 20
_LABEL_GAP = 52
_RIGHT = 40
_MISSING_LABEL = "has not rejoined"

_STYLE = (
    "text{font:11px ui-sans-serif,system-ui,'DejaVu Sans',sans-serif}"
    "@media(prefers-color-scheme:dark){.t{fill:#adbac7}.l{stroke:#768390}}"
)
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def draw(
    layout: TimelineLayout,
    key: str,
    moments: Sequence[Moment],
    taken_ms: float,
    names: Mapping[str, str],
    causes: Sequence[str],
    *,
    width: float | None = None,
    max_rows: int | None = None,
    note: str = "",
) -> str:
    """Return the picture.

    Shapes have CSS classes. The attribute `data-x` of the picture has the x positions of the moments, in pixels.

    Args:
        layout: The states, rows and headings of the timeline.
        key: The id of the group, or the transactional id.
        moments: Oldest first.
        taken_ms: The time at which the picture ends, in milliseconds since the Unix epoch.
        names: Names to show, by member id.
        causes: The text to show for each moment when the pointer is over its state.
        width: The width in pixels; by default as much as the moments need.
        max_rows: The largest number of members to draw: first those that the group waits for, then other members, then
            former ones. By default all, in the order in which they joined.
        note: A line below the picture.
    """
    hidden = 0 if max_rows is None else max(0, len(names) - max_rows)
    if hidden:
        names = {member_id: names[member_id] for member_id in _by_relevance(moments, names)[:max_rows]}
    left = 16 + _LETTER * max([6, *map(len, names.values())])
    edges = _edges(moments, taken_ms, left)
    if width is None:
        width = max(edges[-1] + _RIGHT, 760)
    else:
        scale = max(0.0, width - _RIGHT - left) / max(edges[-1] - left, 1.0)
        edges = [left + (edge - left) * scale for edge in edges]
    bottom = _BAND_Y + _BAND + 12 + _ROW * len(names)
    notes = [*([f"and {hidden} more {layout.rows[FOLLOWER]}s"] if hidden else []), *([note] if note else [])]
    legend, legend_end = _legend(layout, bottom + 44 + _ROW * len(notes), width)
    height = legend_end + 8
    places = " ".join(f"{edge:.1f}" for edge in edges[:-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" data-x="{places}"><style>{_STYLE}</style>',
        _text(8, 20, f"{layout.subject} {key}", more=' font-weight="bold"'),
        *_generations(layout, moments, edges, bottom),
        *_states(layout, moments, taken_ms, causes, edges),
        *_members(layout, moments, taken_ms, names, edges),
        *_times(moments, taken_ms, edges, bottom),
        *(_text(8, bottom + 32 + _ROW * number, each) for number, each in enumerate(notes)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts)


def _by_relevance(moments: Sequence[Moment], names: Mapping[str, str]) -> list[str]:
    """Return the member ids: members that the group waits for, other members, then former members, newest first."""
    last = moments[-1]
    members, joined = frozenset(last.members), _joined(last)
    return [
        *(each for each in last.members if each not in joined),
        *(each for each in last.members if each in joined),
        *(each for each in reversed([*names]) if each not in members),
    ]


def _joined(moment: Moment) -> frozenset[str]:
    """Return the members that the group does not wait for: in PreparingRebalance those that joined, else all."""
    return frozenset(moment.parked_joins if moment.state_to == _PREPARING else moment.members)


def _edges(moments: Sequence[Moment], taken_ms: float, left: float) -> list[float]:
    """Return the x position of each moment and of the end; intervals are scaled logarithmically."""
    edges = [left]
    for before_ms, after_ms in pairwise([*(moment.at_ms for moment in moments), taken_ms]):
        edges.append(edges[-1] + 18 + 22 * log10(1 + max(0.0, after_ms - before_ms) / 10))
    return edges


def _states(
    layout: TimelineLayout,
    moments: Sequence[Moment],
    taken_ms: float,
    causes: Sequence[str],
    edges: Sequence[float],
) -> Iterator[str]:
    times_ms = [*(moment.at_ms for moment in moments), taken_ms]
    spans = enumerate(zip(moments, causes, strict=True))
    for state, group in groupby(spans, key=lambda span: span[1][0].state_to):
        members = list(group)
        first, after = members[0][0], members[-1][0] + 1
        x, end = edges[first], edges[after]
        seconds = (times_ms[after] - times_ms[first]) / 1000
        title = f"{state} for {seconds:.3f} s: " + "\n".join(cause for _, (_, cause) in members)
        yield _rect(x, _BAND_Y, end - x, _BAND, layout.colors[state], "", title, f"state {state}")
        max_letters = (end - x) / _LETTER - 1
        label = next((name for name in (state, state.removesuffix("Rebalance")) if len(name) <= max_letters), state[0])
        yield _text((x + end) / 2, _BAND_Y + 17, label, "#1f2328", ' text-anchor="middle" pointer-events="none"', "on")


def _generations(
    layout: TimelineLayout, moments: Sequence[Moment], edges: Sequence[float], bottom: float
) -> Iterator[str]:
    last_label, generation_id = -_LABEL_GAP * 1.0, 0
    for moment, x in zip(moments, edges, strict=False):
        if moment.generation_id == generation_id:
            continue
        generation_id = moment.generation_id
        yield (
            f'<line class="l generation" x1="{x:.1f}" x2="{x:.1f}" y1="{_BAND_Y - 8}" y2="{bottom}" '
            'stroke="#8c959f" stroke-dasharray="3 3"/>'
        )
        if x - last_label >= _LABEL_GAP:
            last_label = x
            yield _text(x, _BAND_Y - 12, f"{layout.number} {generation_id}", more=' text-anchor="middle"')


def _members(
    layout: TimelineLayout, moments: Sequence[Moment], taken_ms: float, names: Mapping[str, str], edges: Sequence[float]
) -> Iterator[str]:
    """Draw a bar from a member's join to its removal, with a circle where it rejoins.

    While the group waits for joins, the bar is pale for members whose join is parked, and dashed for the others. In a
    consumer group it is pale for members that wait for partitions, and dashed for those that have to give up some.
    """
    times_ms = [*(moment.at_ms for moment in moments), taken_ms]
    # Sets, because each member is looked up in each moment, and large groups have many of both.
    members_by_moment = [frozenset(moment.members) for moment in moments]
    joined = [_joined(moment) if moment.state_to == _PREPARING else None for moment in moments]
    rejoined = [frozenset(moment.rejoined) for moment in moments]
    changes = _changes(moments)
    for row, (member_id, name) in enumerate(names.items()):
        y = _BAND_Y + _BAND + 12 + _ROW * row
        yield _text(8, y + 11, name, kind="name")
        latest: MemberChange | None = None
        bars: list[tuple[str | None, MemberChange | None]] = []
        for place, (moment, members, ids) in enumerate(zip(moments, members_by_moment, joined, strict=True)):
            latest = changes.get((place, member_id), None if moment.assignment_epoch is None else latest)
            bars.append((_role(member_id, moment, ids, latest) if member_id in members else None, latest))
        for (role, change), group in groupby(enumerate(bars), key=lambda each: each[1]):
            places = [place for place, _ in group]
            if role is None:
                continue
            start, end = places[0], places[-1] + 1
            x, width, is_open = edges[start], edges[end] - edges[start], end == len(moments)
            seconds = (times_ms[end] - times_ms[start]) / 1000
            kind = f"member {role}" + (" open" if is_open else "")
            what = described(change) if change else _ROLES.get(role) or layout.rows[role]
            title = f"{member_id}: {what}, {seconds:.3f} s"
            yield _rect(x, y, width, 14, *_PAINTS[role], title, kind)
            if role == "missing" and is_open and width > _LETTER * len(_MISSING_LABEL) + 8:
                yield _text(x + 5, y + 11, _MISSING_LABEL, _MISSING, ' pointer-events="none"', "bad")
        for members, x in zip(rejoined, edges, strict=False):
            if member_id in members:
                yield f'<circle cx="{x:.1f}" cy="{y + 7}" r="3.5" fill="#fff" stroke="#1f2328"/>'


_ROLES = {"joined": "JoinGroup is parked", "missing": _MISSING_LABEL}
_PAINTS = {
    "leader": (_LEADER, ""),
    "follower": (_MEMBER, ""),
    "joined": (_MEMBER, ' fill-opacity="0.45"'),
    "missing": (_MISSING, f' fill-opacity="0.2" stroke="{_MISSING}" stroke-dasharray="4 3"'),
}
_PAINTS[WAITING], _PAINTS[REVOKING] = _PAINTS["joined"], _PAINTS["missing"]
"""The color and further attributes of a member's bar."""


def _changes(moments: Sequence[Moment]) -> dict[tuple[int, str], MemberChange]:
    """Return the changes of members of consumer groups, by the place of their moment and the member id."""
    return {(place, each.member_id): each for place, moment in enumerate(moments) for each in moment.changes}


def _role(member_id: str, moment: Moment, joined: frozenset[str] | None, change: MemberChange | None) -> str:
    if change is not None:
        if change.state == UNRELEASED_PARTITIONS.name or change.member_epoch == LEAVING_STATIC_EPOCH:
            return WAITING
        return FOLLOWER if change.state == STABLE.name else REVOKING
    if joined is not None:
        return "joined" if member_id in joined else "missing"
    return "leader" if member_id == moment.leader_id else "follower"


def _times(moments: Sequence[Moment], taken_ms: float, edges: Sequence[float], bottom: float) -> Iterator[str]:
    last_label = -_LABEL_GAP * 1.0
    times_ms = [*(moment.at_ms for moment in moments), taken_ms]
    for at_ms, x in zip(times_ms, edges, strict=True):
        if x - last_label >= _LABEL_GAP:
            last_label = x
            yield _text(x, bottom + 14, f"{(at_ms - times_ms[0]) / 1000:.3f} s", more=' text-anchor="middle"')


def _legend(layout: TimelineLayout, y: int, width: float) -> tuple[list[str], int]:
    """Return the legend, in as many lines as it needs, and the position of the last line."""
    parts: list[str] = []
    x = 8.0
    states = [(state, color, state) for state, color in layout.colors.items()]
    last = ("Times are not to scale.", "", "")
    rows = [(label, _PAINTS[kind][0], kind) for kind, label in layout.rows.items()]
    for label, color, kind in (*states, *rows, last):
        space = 30 + (_LETTER + 0.4) * len(label)
        if x > 8 and x + space - 16 > width:
            x, y = 8.0, y + _LEGEND_LINE
        if color:
            more = _PAINTS[kind][1] if kind in _PAINTS else ""
            parts.append(_rect(x, y - 9, 10, 10, color, more, label, kind))
        parts.append(_text(x + 14 if color else x, y, label))
        x += space
    return parts, y


def _rect(x: float, y: float, width: float, height: float, color: str, more: str, title: str, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{color}"{more}>'
        f"<title>{_escaped(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, color: str = "#6e7781", more: str = "", kind: str = "") -> str:
    kinds = " ".join(filter(None, ["t" if color == "#6e7781" else "", kind]))
    css = f' class="{kinds}"' if kinds else ""
    return f'<text x="{x:.1f}" y="{y}" fill="{color}"{css}{more}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return html.escape(_NOT_XML.sub("\ufffd", text))
