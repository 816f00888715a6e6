"""Charts of a report, drawn by matplotlib as SVG with the colors of the page around it.

Input is lists of numbers. The page must define the color variables of html.py.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fakebroker.replay.report.html import LIGHT, Markup

Series = Sequence[float | None]

_INK, _FAINT, _LINE, _BAD = "#010101", "#010102", "#010103", "#010104"
_SERIES = [f"#0102{index:02x}" for index in range(len(LIGHT))]
_VARIABLES = {_INK: "ink", _FAINT: "faint", _LINE: "line", _BAD: "bad"} | {
    color: f"c{index}" for index, color in enumerate(_SERIES)
}
"""The page's CSS variable for each placeholder color; placeholders are replaced when the SVG is written."""

_DASHES = ("-", "--", "-.", ":")
"""Line styles, to distinguish lines by more than their colors."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_WIDTH_IN, _HEIGHT_IN = 10.8, 2.5
_MANY = 10_000
_MOST_NAMES = 12
"""Maximum number of labels below a bar chart."""


class Drawing:
    """A chart while it is drawn.

    Attributes:
        figure: The matplotlib figure.
        svg: The SVG, set when the chart is complete.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.svg = Markup()


@contextmanager
def drawing(name: str, alt: str, height: float = 1.0) -> Iterator[Drawing]:
    """Draw a chart; `svg` of the yielded value is set when the context ends.

    Args:
        name: Unique name of the chart on its page.
        alt: Alternative text for screen readers.
        height: Height as a multiple of the usual one.
    """
    settings: Any = {**_SETTINGS, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        drawn = Drawing(Figure(figsize=(_WIDTH_IN, _HEIGHT_IN * height), layout="constrained"))
        yield drawn
        written = io.StringIO()
        drawn.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(
        "#0[0-9a-f]{5}", lambda found: f"var(--{_VARIABLES[found[0]]})" if found[0] in _VARIABLES else found[0], svg
    )
    drawn.svg = Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1))


def lines(
    axes: Axes,
    times_s: Sequence[float],
    series: Mapping[str, Series],
    colors: Mapping[str, int],
    label: str,
    log: bool = False,
) -> None:
    """Draw a line for each series, with gaps where a value is missing."""
    for name, numbers in series.items():
        index = colors[name]
        known = [float("nan") if number is None else number for number in numbers]
        style = _DASHES[index % len(_DASHES)]
        axes.plot(
            times_s, known, style, color=_color(index), lw=1.4, label=name, marker=".", ms=4, markevery=_alone(numbers)
        )
    if log and any(number for numbers in series.values() for number in numbers):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    _dress(axes, times_s, label)


def _alone(numbers: Series) -> list[int]:
    """Return the indexes of values between two gaps, which are drawn as markers because no line reaches them."""
    padded = [None, *numbers, None]
    return [
        index
        for index, number in enumerate(numbers)
        if number is not None and padded[index] is None and padded[index + 2] is None
    ]


def stacked(
    axes: Axes, times_s: Sequence[float], series: Mapping[str, Series], colors: Mapping[str, int], label: str
) -> None:
    """Draw stacked areas, for series that add up to a total."""
    axes.stackplot(
        times_s,
        [[number or 0 for number in numbers] for numbers in series.values()],
        labels=list(series),
        colors=[_color(colors[name]) for name in series],
        alpha=0.75,
        lw=0,
    )
    _dress(axes, times_s, label)


def piled(
    axes: Axes, times_s: Sequence[float], series: Mapping[str, Series], colors: Mapping[str, int], label: str
) -> None:
    """Draw stacked bars, for counts."""
    width = times_s[1] - times_s[0] if len(times_s) > 1 else 1.0
    below = [0.0] * len(times_s)
    for name, numbers in series.items():
        known = [float(number or 0) for number in numbers]
        axes.bar(times_s, known, width, below, color=_color(colors[name]), label=name)
        below = [low + number for low, number in zip(below, known, strict=True)]
    _dress(axes, times_s, label)


def bars(
    axes: Axes, names: Sequence[str], numbers: Sequence[float], label: str, color: int = 0, even: float | None = None
) -> None:
    """Draw a bar for each name; `even` is the value that all would have if the load were even."""
    axes.bar(range(len(names)), list(numbers), 0.8, color=_color(color), alpha=0.85)
    step = max(1, -(-len(names) // _MOST_NAMES))
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.grid(visible=False, axis="x")
    if even is not None:
        axes.axhline(even, color=_BAD, lw=1, ls="--", label="even share")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0)
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(FuncFormatter(_number))


def happenings(axes: Axes, at_s: Sequence[float], numbered: bool) -> None:
    """Draw a vertical line at the time of each event, with its number above if `numbered`."""
    for number, when_s in enumerate(at_s, 1):
        axes.axvline(when_s, color=_BAD, lw=0.9, ls=(0, (4, 2)), alpha=0.9)
        if numbered:
            axes.annotate(
                str(number),
                (when_s, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color=_BAD,
                weight="bold",
                fontsize=8,
            )


def legend(axes: Axes) -> None:
    """Draw the legend to the right of the axes, where it covers no data."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.02), borderaxespad=0, handlelength=2.6)


def _dress(axes: Axes, times_s: Sequence[float], label: str) -> None:
    axes.set_ylabel(label)
    axes.set_xlim(0, max(times_s[-1] + times_s[0], 0.001))
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _color(index: int) -> str:
    return _SERIES[index % len(_SERIES)]


def _number(value: float, _: object = None) -> str:
    if abs(value) >= _MANY:
        return f"{value / 1000:,.3g}k" if abs(value) < _MANY * 100 else f"{value / 1e6:,.3g}M"
    return f"{value:,.6g}"
