"""Draws a sequence diagram as SVG, with the colors of the page's style sheet, so that it follows the color scheme."""

from collections.abc import Iterator

from markupsafe import Markup, escape

from fakebroker.lab.report.sequence import BROKERS, MEMBERS, Arrow, Diagram, Fold, Note, Step

_LEFT, _COLUMN, _TOP, _ROW = 112, 140, 44, 21
"""Position of the first participant, distance of participants, position of the first row, distance of rows; in px."""

_WIDTH = _LEFT + (MEMBERS + BROKERS - 1) * _COLUMN + 84
_HEAD = 7
"""Length of an arrow's head."""


def svg_of(diagram: Diagram) -> Markup:
    """Return the picture: participants beside each other, time downwards, an arrow for each message."""
    height = _TOP + _ROW * len(diagram.steps) + 14
    parts = [*_participants(diagram, height)]
    for row, step in enumerate(diagram.steps):
        parts += _step(step, _TOP + _ROW * row + 14)
    return Markup(
        f'<div class="wide"><svg role="img" aria-label="{escape(diagram.title)}" viewBox="0 0 {_WIDTH} {height}" '
        f'style="min-width: {_WIDTH}px; max-width: {_WIDTH * 1.2:.0f}px; font-size: 11px">{"".join(parts)}</svg></div>'
    )


def _x(member: int | None, node_id: int | None) -> int:
    column = member if member is not None else MEMBERS + (node_id or 1) - 1
    return _LEFT + column * _COLUMN


def _participants(diagram: Diagram, height: int) -> Iterator[str]:
    """Yield the names and life lines; a line is dashed while the process does not run."""
    for column in range(MEMBERS + BROKERS):
        member, node_id = (column, None) if column < MEMBERS else (None, column - MEMBERS + 1)
        name = f"member {column + 1}" if member is not None else f"broker {node_id}"
        x = _LEFT + column * _COLUMN
        yield _text(x, 16, name, "var(--ink)", weight=600)
        if node_id == diagram.coordinator:
            yield _text(x, 30, "coordinator", "var(--faint)")
        changes = [
            (row, step.is_end)
            for row, step in enumerate(diagram.steps)
            if isinstance(step, Note) and step.is_event and (step.member, step.node_id) == (member, node_id)
        ]
        runs, top = not (changes and not changes[0][1]), _TOP - 8
        for row, is_end in changes:
            bottom = _TOP + _ROW * row + 14
            yield _line(x, top, x, bottom, "var(--line)", dashed=not runs)
            runs, top = not is_end, bottom
        yield _line(x, top, x, height - 4, "var(--line)", dashed=not runs)


def _step(step: Step, y: int) -> Iterator[str]:
    yield _text(62, y + 4, f"{step.at_ms / 1000:,.4f} s", "var(--faint)", anchor="end")
    match step:
        case Arrow():
            yield from _arrow(step, y)
        case Note():
            x = _x(step.member, step.node_id)
            color = "var(--c1)" if step.is_event else "var(--good)"
            yield f'<circle cx="{x}" cy="{y}" r="4" style="fill: {color}"/>'
            yield _text(x, y + 4, step.text, color, weight=600, dx=9, anchor="start")
        case Fold():
            first, last = _LEFT - 30, _LEFT + (MEMBERS + BROKERS - 1) * _COLUMN + 30
            yield (
                f'<rect x="{first}" y="{y - 9}" width="{last - first}" height="18" rx="4" '
                'style="fill: var(--panel); stroke: var(--line)"/>'
            )
            yield _text((first + last) // 2, y + 4, step.text, "var(--faint)")


def _arrow(step: Arrow, y: int) -> Iterator[str]:
    ends = _x(step.member, None), _x(None, step.node_id)
    from_x, to_x = ends[::-1] if step.to_member else ends
    color = "var(--bad)" if step.has_error else "var(--c2)" if step.is_response else "var(--c0)"
    way = 1 if to_x > from_x else -1
    yield _line(from_x, y + 4, to_x - way, y + 4, color, dashed=step.is_response)
    base = to_x - way * _HEAD
    yield f'<path d="M{to_x} {y + 4}L{base} {y}L{base} {y + 8}Z" style="fill: {color}"/>'
    yield _text((from_x + to_x) // 2, y, step.text, color)


def _line(x1: int, y1: int, x2: int, y2: int, color: str, *, dashed: bool) -> str:
    dashes = "; stroke-dasharray: 4 3" if dashed else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" style="stroke: {color}{dashes}"/>'


def _text(x: int, y: int, text: str, color: str, *, weight: int = 400, anchor: str = "middle", dx: int = 0) -> str:
    # The outline in the color of the page keeps text readable on lines.
    style = f"fill: {color}; font-weight: {weight}; paint-order: stroke; stroke: var(--back); stroke-width: 3px"
    return f'<text x="{x + dx}" y="{y}" text-anchor="{anchor}" style="{style}">{escape(text)}</text>'
