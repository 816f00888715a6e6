"""Types of charts, drawn by matplotlib as SVG. Their input is lists of numbers; they do not depend on summaries.

The style is in fakebroker.mplstyle, with the same colors as the page's style sheet.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

Series = Sequence[float | None]

_FOLDER = Path(__file__).parent
_STYLE = mpl.rc_params_from_file(_FOLDER / "fakebroker.mplstyle", use_default_template=False)

COLORS: Sequence[str] = _STYLE["axes.prop_cycle"].by_key()["color"]
"""Colors of the series."""

_VARIABLES = {
    color: name
    for name, color in re.findall(
        r"--(\w+): (#[0-9a-f]{6})", (_FOLDER / "templates" / "style.css").read_text().partition("@media")[0]
    )
}
"""CSS variables by color of the light scheme. They replace the colors in charts, so that charts follow the scheme."""

_BAD = next(color for color, name in _VARIABLES.items() if name == "bad")

UNKNOWN = "unknown"
"""Name of the series of unknown states, which is hatched."""
_FAINT = next(color for color, name in _VARIABLES.items() if name == "faint")

_LEAST_PX_PER_IN = 62
"""Least scale of charts; at full width it is 100."""

_LABEL_SIZE_PT = 8
"""Font size of the numbers of events."""
_USED_WIDTH = 0.7
"""Approximate share of the width of a figure that its axes have beside a legend and labels."""

_DASHES = ("-", "--", "-.", ":")
"""Line styles, so that lines differ by more than their colors."""

_ABBREVIATED_FROM = 10_000
_MOST_SUBDIVIDED = 100
"""Logarithmic axes up to this ratio have ticks at 1, 2, 5, others at the powers of ten."""

_MAX_NUMBERED = 6
"""Maximum number of groups of bars with a number at each bar."""

_MAX_LABELS = 12
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
def drawing(name: str, alt: str, height: float = 1.0, width: float = 1.0) -> Iterator[Drawing]:
    """Draw a chart; `svg` of the yielded value is set when the context ends.

    Args:
        name: Unique name of the chart on its page.
        alt: Alternative text for screen readers.
        height: Height as a multiple of the usual height.
        width: Width as a multiple of the usual width.
    """
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        width_in, height_in = mpl.rcParams["figure.figsize"]
        drawn = Drawing(Figure(figsize=(width_in * width, height_in * height)))
        yield drawn
        written = io.StringIO()
        drawn.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(
        "#[0-9a-f]{6}", lambda found: f"var(--{_VARIABLES[found[0]]})" if found[0] in _VARIABLES else found[0], svg
    )
    used = set(re.findall(r'url\(#(\w+)\)|href="#(\w+)"', svg))
    named = {name for names in used for name in names if name}
    # Other ids are the same in all charts of matplotlib, but must be unique on a page.
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in named else "", svg)
    # On a narrow screen, a chart scrolls: its text must not become smaller than can be read.
    least = f"min-width: {round(width_in * width * _LEAST_PX_PER_IN)}px"
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}" style="{least}"', 1)
    drawn.svg = Markup(f'<div class="wide">{svg}</div>')


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
        axes.plot(times_s, known, style, color=_color(index), label=name, marker=".", markevery=_isolated(numbers))
    if log and any(number for numbers in series.values() for number in numbers):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    _format_axes(axes, times_s, label)


def _isolated(numbers: Series) -> list[int]:
    """Return the indexes of values between two gaps, which are drawn as markers because no line reaches them."""
    padded = [None, *numbers, None]
    return [
        index
        for index, number in enumerate(numbers)
        if number is not None and padded[index] is None and padded[index + 2] is None
    ]


def stacked_areas(
    axes: Axes, times_s: Sequence[float], series: Mapping[str, Series], colors: Mapping[str, int], label: str
) -> None:
    """Draw stacked areas, for series that add up to a total."""
    areas = axes.stackplot(
        times_s,
        [[number or 0 for number in numbers] for numbers in series.values()],
        labels=list(series),
        colors=[_color(colors[name]) for name in series],
        alpha=0.75,
        lw=0,
    )
    for name, area in zip(series, areas, strict=True):
        if name == UNKNOWN:
            area.set(facecolor="none", edgecolor=_color(colors[name]), hatch="////")
    _format_axes(axes, times_s, label, counts=True)


def stacked_bars(
    axes: Axes, times_s: Sequence[float], series: Mapping[str, Series], colors: Mapping[str, int], label: str
) -> None:
    """Draw stacked bars, for counts."""
    width = times_s[1] - times_s[0] if len(times_s) > 1 else 1.0
    below = [0.0] * len(times_s)
    for name, numbers in series.items():
        known = [float(number or 0) for number in numbers]
        axes.bar(times_s, known, width, below, color=_color(colors[name]), label=name)
        below = [low + number for low, number in zip(below, known, strict=True)]
    _format_axes(axes, times_s, label, counts=True)


def bars(
    axes: Axes, names: Sequence[str], numbers: Sequence[float], label: str, color: int = 0, even: float | None = None
) -> None:
    """Draw a bar for each name.

    Args:
        axes: The axes.
        names: Labels of the bars.
        numbers: Heights of the bars.
        label: Label of the vertical axis.
        color: Index of the color.
        even: Value for a horizontal line: the mean, which all bars would have with even load.
    """
    axes.bar(range(len(names)), list(numbers), 0.8, color=_color(color), alpha=0.85)
    step = max(1, -(-len(names) // _MAX_LABELS))
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.grid(visible=False, axis="x")
    if even is not None:
        axes.axhline(even, color=_BAD, lw=1, ls="--", label="mean")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98))
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))


def paired_bars(
    axes: Axes,
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    colors: Mapping[str, int],
    *,
    is_horizontal: bool = False,
) -> None:
    """Draw a bar of each series beside the others for each name, with its number if there is space."""
    thickness = 0.8 / len(series)
    draw = axes.barh if is_horizontal else axes.bar
    for place, (label, numbers) in enumerate(series.items()):
        offset = (place - (len(series) - 1) / 2) * thickness
        drawn = draw([index + offset for index in range(len(names))], list(numbers), thickness, label=label)
        for bar in drawn:
            bar.set_color(_color(colors[label]))
        if is_horizontal or len(names) <= _MAX_NUMBERED:
            axes.bar_label(drawn, [_number(number) for number in numbers], padding=2, fontsize=7)
    if is_horizontal:
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
    else:
        axes.set_xticks(range(len(names)), names)
        axes.grid(visible=False, axis="x")
    axis = axes.xaxis if is_horizontal else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_major_formatter(FuncFormatter(_number))


def intervals(
    axes: Axes, names: Sequence[str], values: Sequence[tuple[float, float, float] | None], colors: Sequence[int]
) -> None:
    """Draw a point with its confidence interval and its number for each name, below each other.

    Args:
        axes: The axes.
        names: Labels of the rows.
        values: Value, and lower and upper end of its interval; None for a row without a value.
        colors: Index of the color of each row.
    """
    for row, (value, color) in enumerate(zip(values, colors, strict=True)):
        if value is None:
            axes.annotate("none", (0, row), xytext=(4, 0), textcoords="offset points", va="center", color=_FAINT)
            continue
        mean, low, high = value
        ends = [[mean - low], [high - mean]]
        axes.errorbar([mean], [row], xerr=ends, fmt="o", color=_color(color), capsize=3, markersize=5, lw=1.4)
        axes.annotate(
            _number(float(f"{mean:.3g}")),
            (high, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, max((value[2] for value in values if value is not None), default=0) * 1.22 or 1)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(_number))


def event_lines(axes: Axes, at_s: Sequence[float], numbered: bool) -> None:
    """Draw a vertical line at the time of each event, with its number above it if `numbered`.

    Events so close to each other that their numbers would overlap have one label: "3, 4".
    """
    for when_s in at_s:
        axes.axvline(when_s, color=_BAD, lw=0.9, ls=(0, (4, 2)), alpha=0.9)
    if not numbered:
        return
    start_s, end_s = axes.get_xlim()
    for when_s, label in event_labels(at_s, _width_pt(axes) / (end_s - start_s)):
        axes.annotate(
            label,
            (when_s, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            color=_BAD,
            weight="bold",
            fontsize=_LABEL_SIZE_PT,
        )


def event_labels(at_s: Sequence[float], points_per_s: float) -> list[tuple[float, str]]:
    """Return the labels of events with the times at their centers, so that none overlaps the next one.

    Args:
        at_s: The times of the events.
        points_per_s: The width of a second, in points.
    """
    labels: list[tuple[list[float], list[int]]] = []
    for when_s, number in sorted((when_s, number) for number, when_s in enumerate(at_s, 1)):
        times_s, numbers = [when_s], [number]
        while (
            labels
            and (_center(times_s) - _center(labels[-1][0])) * points_per_s
            < (_label_width_pt(numbers) + _label_width_pt(labels[-1][1])) / 2
        ):
            before = labels.pop()
            times_s, numbers = before[0] + times_s, before[1] + numbers
        labels.append((times_s, numbers))
    return [(_center(times_s), _label(numbers)) for times_s, numbers in labels]


def _center(times_s: Sequence[float]) -> float:
    return (times_s[0] + times_s[-1]) / 2


def _label(numbers: Sequence[int]) -> str:
    """Return numbers of events as text; four or more successive ones as a range."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 3 and list(numbers) == list(range(first, last + 1)):
        return f"{first} to {last}"
    return ", ".join(map(str, numbers))


def _label_width_pt(numbers: Sequence[int]) -> float:
    """Return the approximate width of a label, including a space after it."""
    return 0.62 * _LABEL_SIZE_PT * (len(_label(numbers)) + 1)


def _width_pt(axes: Axes) -> float:
    """Return the approximate width of axes in points: their share of the figure, without legend and labels."""
    place = axes.get_subplotspec()
    columns = place.get_gridspec().ncols if place is not None else 1
    figure = axes.get_figure(root=True)
    assert figure is not None
    return float(figure.get_size_inches()[0]) * 72 * _USED_WIDTH / columns


def startup_area(axes: Axes, until_s: float | None) -> None:
    """Shade the time until the steady state; nothing without a steady state."""
    if until_s:
        axes.axvspan(0, until_s, color=_FAINT, alpha=0.12, lw=0, zorder=0)


def legend(axes: Axes) -> None:
    """Draw the legend to the right of the axes, so that it covers no data."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.02), handlelength=2.6)


def fit_axes(axes: Axes, until_s: float) -> None:
    """Fit the axes to all lines drawn so far: `lines` fits them to its own.

    Args:
        axes: The axes.
        until_s: End of the horizontal axis, in seconds.
    """
    axes.set_xlim(0, until_s)
    axes.relim()
    axes.set_autoscaley_on(True)
    axes.autoscale_view(scalex=False)
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    elif high / low > _MOST_SUBDIVIDED:
        axes.yaxis.set_major_locator(LogLocator(numticks=6))


def legend_above(axes: Axes) -> None:
    """Draw the legend as one line above the axes, for narrow charts."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1.01), ncols=4, handlelength=1.6, columnspacing=1)


def _format_axes(axes: Axes, times_s: Sequence[float], label: str, counts: bool = False) -> None:
    axes.set_ylabel(label)
    axes.set_xlim(0, max(times_s[-1] + times_s[0], 0.001))
    if axes.get_yscale() == "linear":
        highest = axes.dataLim.ymax  # not a number, or -inf, without values
        axes.set_ylim(0, highest * 1.05 if isfinite(highest) and highest > 0 else 1)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=counts, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _number(value: float, _: object = None) -> str:
    if abs(value) >= _ABBREVIATED_FROM:
        return f"{value / 1000:,.3g}k" if abs(value) < _ABBREVIATED_FROM * 100 else f"{value / 1e6:,.3g}M"
    return f"{value:,.6g}"
