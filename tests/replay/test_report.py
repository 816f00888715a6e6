"""The report: complete, one file, well-formed, and no wider than a terminal."""

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from matplotlib.figure import Figure
from rich.console import Console

import fakebroker.replay.report
from fakebroker.replay.report import charts
from fakebroker.replay.report.charts import lines
from fakebroker.replay.report.html import page
from fakebroker.replay.report.terminal import bars, print_report
from fakebroker.replay.report.wording import number
from fakebroker.replay.run_summary import summary_of
from fakebroker.replay.workload.expectations import Expectation
from tests.support.replay.summaries import made_up_summary

SECTIONS = [
    "Verdict",
    "What happened to the cluster",
    "Requests per second",
    "Latency",
    "Groups",
    "Members",
    "Rebalances",
    "Errors",
    "Brokers",
    "Offsets partitions",
    "Slowest groups",
    "Look-ups",
    "Files",
]


@pytest.fixture(scope="module")
def made() -> str:
    return page(summary_of(made_up_summary(1)))


class Wellformed(HTMLParser):
    """Every tag that is opened is closed, in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.titles: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


def test_each_section_is_there(made: str) -> None:
    parser = Wellformed()
    parser.feed(made)
    assert (parser.open, parser.titles) == ([], SECTIONS)


def test_it_is_well_formed_and_its_ids_are_its_own(made: str) -> None:
    root = ET.fromstring(made.removeprefix("<!DOCTYPE html>\n"))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    clips = set(re.findall(r"url\(#(\w+)\)", made)) | set(re.findall(r'href="#(\w+)"', made))
    assert clips <= set(ids)
    assert not {name for name in clips if ids.count(name) > 1}


def test_it_loads_nothing_and_runs_nothing(made: str) -> None:
    assert not re.findall(r"(?:src|href|action|data)\s*=\s*[\"'](?!#)|url\((?!#)|@import|<script|<link|<img", made)
    assert {url for url in re.findall(r"https?://[^\"'<\s]+", made) if "www.w3.org" not in url} == set()


def test_what_is_text_stays_text(made: str) -> None:
    assert "steady &lt;&amp;&gt; state.toml" in made
    assert "generation 3 came after 5 &lt;script&gt;" in made


def test_its_colors_are_the_page_s(made: str) -> None:
    """So that the same picture reads in light and in dark."""
    pictures = re.findall(r"<svg.*?</svg>", made, re.DOTALL)
    assert len(pictures) == 8
    assert not {color for picture in pictures for color in re.findall(r"#[0-9a-f]{6}\b", picture)}
    assert set(re.findall(r"var\(--(\w+)\)", made)) <= set(re.findall(r"--(\w+):", made))


STYLE = (Path(fakebroker.replay.report.__file__).parent / "templates" / "style.css").read_text()


@pytest.mark.parametrize("scheme", STYLE.split("@media (prefers-color-scheme: dark)"), ids=["light", "dark"])
def test_colors_have_contrast(scheme: str) -> None:
    """As WCAG 2.1 asks it of text."""
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", scheme))
    series = [color for name, color in colors.items() if re.fullmatch(r"c\d+", name)]
    assert len(series) == len(charts.COLORS)
    assert [color for color in series if contrast(color, colors["back"]) < 4.3] == []


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_run_in_which_nothing_happened_has_a_report() -> None:
    summary = made_up_summary(1)
    summary["total"] |= {"requests": 0, "p50_ms": None, "p99_ms": None, "p99_9_ms": None, "max_ms": None}
    for name in ("apis", "errors", "brokers", "lookups", "slowest_groups", "timeline"):
        summary[name] = []
    summary["over_time"] |= {"apis": {}, "errors": []}
    summary["rebalances"] |= {"count": 0, "distribution": [], "p50_ms": None, "p99_ms": None, "max_ms": None}
    summary["offsets_partitions"] |= {"partitions": [], "groups_skew": None, "requests_skew": None}
    assert ET.fromstring(page(summary_of(summary)).removeprefix("<!DOCTYPE html>\n")).tag == "html"
    assert "none" in printed(summary)


def test_the_terminal_s_report_fits() -> None:
    text = printed(made_up_summary(1))
    assert max(map(len, text.splitlines())) <= 80
    for told in ("Verdict: FAILED", "stop_broker node_id=1", "not done: node_id=7", "UNKNOWN_MEMBER_ID", "group-4"):
        assert told in text


def test_what_stands_alone_between_gaps_is_drawn_as_a_point() -> None:
    figure = Figure()
    axes = figure.subplots()
    times_s, numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [7.0, None, 2.0, 3.0, None, 4.0]
    lines(axes, times_s, {"some": numbers}, {"some": 0}, "ms")
    (line,) = axes.get_lines()
    assert (line.get_marker(), line.get_markevery()) == (".", [0, 5])


def test_a_run_that_was_interrupted_says_so() -> None:
    summary = made_up_summary(1) | {"complete": False}
    assert "broken off" in printed(summary)
    assert "broken off" in page(summary_of(summary))


def test_a_cluster_that_is_gone_in_the_end_is_told() -> None:
    summary = made_up_summary(1)
    summary["cluster"] |= {"reachable": False}
    assert "gone in the end" in printed(summary)
    assert "gone in the end" in page(summary_of(summary))


def printed(summary: dict[str, Any]) -> str:
    text = io.StringIO()
    print_report(Console(file=text, width=80), summary_of(summary))
    return text.getvalue()


@pytest.mark.parametrize(
    ("numbers", "expected"), [([0, 1, 2, 4], " ▂▄█"), ([0, 4, 4, 4], "▄█"), ([0.0, 0.0], "  "), ([], "")]
)
def test_bars(numbers: list[float], expected: str) -> None:
    assert bars(numbers, 4 if expected[:1] == " " else 2) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (1234567, "1,234,567"),
        (1234.5678, "1,234.57"),
        (7183460.4, "7,183,460"),
        (0.00012345678, "0.000123457"),
    ],
)
def test_numbers_are_written_out(value: float | None, expected: str) -> None:
    assert number(value) == expected


def test_what_is_expected_is_written_out() -> None:
    wanted = {1e6: "requests == 1000000", 0.25: "requests == 0.25", 7: "requests == 7"}
    assert [str(Expectation(metric="requests", comparison="==", value=value)) for value in wanted] == [*wanted.values()]
