"""Building blocks of a self-contained HTML page: no network access, no scripts, light and dark color schemes."""

from collections.abc import Iterable, Sequence
from html import escape

LIGHT = ("#0067a5", "#c2410c", "#00785a", "#a21caf", "#8a6100", "#0e7fb8", "#be123c", "#57606a", "#4d7c0f", "#6d4bc3")
DARK = ("#58a6ff", "#ff9b5e", "#3fcf9b", "#e58cf0", "#e3b341", "#76d3f5", "#ff8095", "#adb6c0", "#a5d64f", "#b79cff")
"""Colors of the series in charts, `--c0` and so on: each has a contrast of at least 4.5 to its background."""

_NAMES = ("ink", "faint", "line", "back", "panel", "good", "bad")
_LIGHT_PAGE = ("#1f2328", "#59636e", "#d1d9e0", "#ffffff", "#f6f8fa", "#11692f", "#b3131f")
_DARK_PAGE = ("#e6edf3", "#9ba6b2", "#3a424c", "#0d1117", "#161b22", "#56d364", "#ff8983")


def _variables(page: Sequence[str], series: Sequence[str]) -> str:
    named = [*zip(_NAMES, page, strict=True), *((f"c{index}", color) for index, color in enumerate(series))]
    return "".join(f"--{name}:{color};" for name, color in named)


_STYLE = f"""
:root{{color-scheme:light dark;{_variables(_LIGHT_PAGE, LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{{_variables(_DARK_PAGE, DARK)}}}}}
body{{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--back);
max-width:1080px;margin:0 auto;padding:24px}}
h1{{font-size:26px;margin:0 0 4px}}h2{{font-size:19px;margin:36px 0 8px}}p{{margin:6px 0}}
.faint{{color:var(--faint)}}.good{{color:var(--good);font-weight:600}}.bad{{color:var(--bad);font-weight:600}}
.tiles{{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}}
.tiles div{{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:8px 14px}}
.tiles b{{display:block;font-size:20px;font-variant-numeric:tabular-nums}}
.wide{{overflow-x:auto}}
table{{border-collapse:collapse;margin:10px 0;font-variant-numeric:tabular-nums}}
th,td{{text-align:right;padding:3px 12px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}}
th{{color:var(--faint);font-weight:500;white-space:nowrap}}
.text{{text-align:left}}tr.total td{{font-weight:600}}
svg{{display:block;width:100%;height:auto;margin:8px 0}}svg text{{font-family:inherit!important}}
details{{margin:4px 0 8px}}summary{{cursor:pointer;color:var(--faint)}}
@media print{{body{{max-width:none}}}}
"""


class Markup(str):
    """HTML, as opposed to text that must be escaped."""

    __slots__ = ()


def document(title: str, *parts: str) -> str:
    """Return a whole page.

    Args:
        title: Title, as text.
        parts: Contents of the body, as HTML.
    """
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> Markup:
    """Return a section: a heading and its contents."""
    return Markup(f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>")


def paragraph(text: str, style: str = "") -> Markup:
    return Markup(f"<p{_class(style)}>{_escaped(text)}</p>")


def marked(text: str, style: str) -> Markup:
    """Return text in one of the styles `good`, `bad`, `faint`."""
    return Markup(f"<span{_class(style)}>{_escaped(text)}</span>")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, total: bool = False) -> Markup:
    """Return a table.

    Args:
        columns: Headings.
        rows: Cells, as text or `Markup`.
        left: The number of leading columns that are text; the others are numbers.
        total: Whether the last row is the sum of the others.
    """
    listed = list(rows)
    head = "".join(
        f'<th{_class("text" if index < left else "")} scope="col">{escape(column)}</th>'
        for index, column in enumerate(columns)
    )
    lines = []
    for number, row in enumerate(listed, 1):
        cells = "".join(
            f"<td{_class('text' if index < left else '')}>{_escaped(cell)}</td>" for index, cell in enumerate(row)
        )
        lines.append(f"<tr{_class('total' if total and number == len(listed) else '')}>{cells}</tr>")
    body = "\n".join(lines)
    return Markup(
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
    )


def tiles(numbers: Iterable[tuple[str, str]]) -> Markup:
    """Return tiles with the most important numbers and their names."""
    return Markup(
        '<div class="tiles">'
        + "".join(f"<div><b>{_escaped(number)}</b>{_escaped(what)}</div>" for what, number in numbers)
        + "</div>"
    )


def folded(title: str, *parts: str) -> Markup:
    """Return a collapsed section."""
    return Markup(f"<details><summary>{escape(title)}</summary>\n" + "\n".join(parts) + "\n</details>")


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""
