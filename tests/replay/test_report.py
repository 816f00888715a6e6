"""Reports of a run: the HTML page is complete, self-contained and well-formed; the terminal report is narrow enough."""

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
from fakebroker.replay.report import charts, figures
from fakebroker.replay.report.charts import event_labels, lines
from fakebroker.replay.report.html import UNFOLDED, page
from fakebroker.replay.report.terminal import print_report, sparkline
from fakebroker.replay.run_summary import DELAYED, summary_of
from fakebroker.replay.wording import by_chance, event, ms, number, result
from fakebroker.replay.workload.expectations import Expectation
from tests.support.control.browser import chromium
from tests.support.replay.summaries import summary_document

SECTIONS = [
    "Failed checks and broken promises",
    "Verdict",
    "Events",
    "Requests per second",
    "Latency",
    "Groups",
    "Members",
    "Populations",
    "Rebalances",
    "Transactions",
    "Errors",
    "Brokers",
    "Offsets partitions",
    "Slowest groups",
    "Groups per request",
    "Files",
]


@pytest.fixture(scope="module")
def html() -> str:
    return page(summary_of(summary_document(1)))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are prepared, but only the labels of their axes are drawn: the rest takes most of the time of a page."""

    def savefig(figure: Figure, svg: io.StringIO, **kwargs: Any) -> None:
        svg.write(f"<svg>{''.join(f'<text>{axes.get_ylabel()}</text>' for axes in figure.axes)}</svg>")

    monkeypatch.setattr(Figure, "savefig", savefig)


def terminal_report(summary: dict[str, Any]) -> str:
    text = io.StringIO()
    print_report(Console(file=text, width=80), summary_of(summary))
    return text.getvalue()


class TagChecker(HTMLParser):
    """Checks that every opened tag is closed in order, and collects the headings of sections."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_page_has_all_sections(html: str) -> None:
    checker = TagChecker()
    checker.feed(html)
    assert (checker.open, checker.headings) == ([], SECTIONS)


def test_the_page_is_well_formed_and_its_ids_are_unique(html: str) -> None:
    root = ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    used = set(re.findall(r"url\(#(\w+)\)", html)) | set(re.findall(r'href="#(\w+)"', html))
    assert used <= set(ids)
    assert len(ids) == len(set(ids))


def test_the_page_loads_no_files_and_has_no_scripts(html: str) -> None:
    assert not re.findall(r"(?:src|href|action|data)\s*=\s*[\"'](?!#)|url\((?!#)|@import|<script|<link|<img", html)
    assert {url for url in re.findall(r"https?://[^\"'<\s]+", html) if "www.w3.org" not in url} == set()


def test_text_on_the_page_is_escaped(html: str) -> None:
    assert "steady &lt;&amp;&gt; state.toml" in html
    assert "generation 3 came after 5 &lt;script&gt;" in html


PYTHON_VALUES = (
    r"\bNone\b|\bnan\b|\binf\b|\bTrue\b|\bFalse\b|\[['\"]|\{['\"]|Row\(|datetime|[\\[{]&#39;|&lt;[a-z_.]+ object"
)


def test_a_broken_run_is_shown_without_values_of_python(html: str) -> None:
    for text in (html.replace("<script>", ""), terminal_report(summary_document(1))):
        assert re.findall(PYTHON_VALUES, text) == []
        assert "`" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)


def test_the_page_opens_with_unfolded_violations(html: str) -> None:
    """Violations come before the numbers, with times since the start and names of errors."""
    before_numbers = html[: html.index('<div class="tiles">')]
    text = re.sub(r"<[^>]+>", " ", before_numbers[before_numbers.index("<h2>") :])
    assert before_numbers.count('<details open="">') == UNFOLDED + 1  # the second promise has one violation
    assert before_numbers.count("<details>") == 2
    for fact in ("group-0-0, group-0-1", "2.000 to 2.001 s after the start", "REBALANCE_IN_PROGRESS", "no error"):
        assert fact in re.sub(r"\s+", " ", text)
    assert "All 7 are in violations.parquet." in text
    assert "no broker could be reached &lt;at the end&gt;" in before_numbers
    assert str(summary_document(1)["verdict"]["promises"][1]["violations"][0]["at_us"]) not in text
    first = before_numbers[before_numbers.index("<details open") : before_numbers.index("</details>")]
    cells = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", first)]
    assert [(row[3], row[4], row[7]) for row in cells if row and row[2] == "SyncGroup"] == [
        ("group-0-0", "2", "assigned orders-0, orders-1"),
        ("group-0-1", "2", "assigned orders-0"),
    ]


def test_promises_are_shown_with_outcome_and_number_of_cases(html: str) -> None:
    page = " ".join(html.split())
    assert "1,204 generations with the assignments of all their members" in page
    assert '<span class="faint">not exercised</span></td><td class="text">silent members are removed' in page
    document = summary_document(1)
    document["verdict"]["promises"][-1]["required"] = True
    printed = " ".join(terminal_report(document).split())
    assert "kept 1,204 cases: assignments cover the topics" in printed
    assert "BROKEN 4,816 cases: no two members own one partition" in printed
    assert "NOT EXERCISED 0 cases: silent members are removed" in printed


def test_the_terminal_shows_the_first_three_violations() -> None:
    report = terminal_report(summary_document(1))
    assert report.count("Broken: ") == 3
    assert "5 more violations are in report.html and violations.parquet." in report
    assert len(re.findall(r"^ +[\d.]+ +[\d.]+ SyncGroup", report, re.MULTILINE)) == 4
    assert max(map(len, report.splitlines())) <= 80


def test_charts_use_the_colors_of_the_page(html: str) -> None:
    """Charts use CSS variables, which have other values in the dark scheme."""
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) == 11
    assert not {color for drawing in drawings for color in re.findall(r"#[0-9a-f]{6}\b", drawing)}
    assert set(re.findall(r"var\(--(\w+)\)", html)) <= set(re.findall(r"--(\w+):", html))


STYLE = (Path(fakebroker.replay.report.__file__).parent / "templates" / "style.css").read_text()


def test_colors_of_charts_have_enough_contrast(subtests: pytest.Subtests) -> None:
    """Contrast is computed by the formula of WCAG 2.1."""
    schemes = STYLE.split("@media (prefers-color-scheme: dark)")
    for name, scheme in zip(("light", "dark"), schemes, strict=True):
        with subtests.test(scheme=name):
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


def test_an_interrupted_run_without_requests_on_an_unreachable_cluster_has_reports() -> None:
    summary = summary_document(1) | {"complete": False}
    summary["cluster"] |= {"reachable": False}
    none = summary["total"] | {"requests": 0, "p50_ms": None, "p99_ms": None, "p99_9_ms": None, "max_ms": None}
    none_of_both = {"never_parked": none, "parked": none, "apis": []}
    summary |= {"total": none, **none_of_both, "measure_from_s": None, "steady": None}
    summary["startup"] = {"from_s": 0.0, "until_s": 0.0, **none_of_both}
    for name in ("apis", "subtotals", "errors", "brokers", "lookups", "slowest_groups", "timeline"):
        summary[name] = []
    summary["over_time"] |= {"apis": [], "errors": []}
    summary["rebalances"] |= {"count": 0, "distribution": [], "p50_ms": None, "p99_ms": None, "max_ms": None}
    summary["offsets_partitions"] |= {"partitions": [], "groups_skew": None, "requests_skew": None}
    html, text = page(summary_of(summary)), terminal_report(summary).replace("\n", " ")
    assert ET.fromstring(html.removeprefix("<!DOCTYPE html>\n")).tag == "html"
    assert "none" in text
    for note in (
        "The replay was interrupted: the numbers cover the time until then.",
        "The cluster was unreachable at the end.",
    ):
        assert note in html
        assert note in text


def test_a_run_without_responses_has_a_page() -> None:
    """The first requests of a run that is interrupted early may have no response."""
    summary = summary_document(1)
    for row in summary["over_time"]["apis"]:
        row |= {name: [None] * len(row[name]) for name in ("p50_ms", "p99_ms")}
    assert ET.fromstring(page(summary_of(summary)).removeprefix("<!DOCTYPE html>\n")).tag == "html"


@pytest.mark.usefixtures("undrawn")
def test_the_page_opens_with_failed_checks_but_not_with_inconclusive_ones() -> None:
    summary = summary_document(1)
    check: dict[str, Any] = {"name": "observed", "check": "C.", "failures": 0, "violations": [], "doubts": []}
    shown = []
    for outcome, listed in (("inconclusive", "doubts"), ("failed", "violations")):
        changed = check | {"outcome": outcome, listed: [{"what": "too slow"}]}
        summary["verdict"] = summary["verdict"] | {"availability": [changed], "promises": []}
        html = page(summary_of(summary))
        assert "too slow" in html
        shown.append("<h2>Failed checks</h2>" in html)
    assert shown == [False, True]


def test_parked_requests_are_apart_from_the_headline_latency(html: str) -> None:
    """The latency of a JoinGroup says how long a group took to become ready, not how fast brokers answer."""
    summary = summary_document(1)
    tiles = html[html.index('<div class="tiles">') : html.index("<h2>Verdict")]
    for name, row in (("p99 latency, ms, steady state", "never_parked"), ("p99 of parked requests, ms", "parked")):
        assert f"<b>{ms(summary['steady'][row]['p99_ms'])}</b>{name}</div>" in tiles
    first = terminal_report(summary).splitlines()[1:5]
    assert first[0] == "Latency"
    assert re.match(r" +requests that are never parked, steady state: p50 [\d.]+ ms, p99 [\d.]+ ms", first[1])
    assert re.match(r" +without the delay of the replay itself: p50 1.50 ms, p99 5.50 ms", first[2])
    assert re.match(r" +JoinGroup and SyncGroup, parked until a group is ready: p50 [\d.,]+ ms", first[3])


def test_a_latency_that_is_mostly_the_delay_of_the_replay_is_marked(html: str) -> None:
    summary = summary_document(1)
    assert DELAYED not in html
    summary["steady"]["never_parked"] |= {"p99_ms": 90.0, "undelayed_p99_ms": 20.0}
    assert DELAYED in page(summary_of(summary))
    assert DELAYED in " ".join(terminal_report(summary).split())


@pytest.mark.usefixtures("undrawn")
def test_the_start_up_is_apart_from_the_steady_state(subtests: pytest.Subtests) -> None:
    whole = {"steady": None, "measure_from_s": None, "startup": summary_document(1)["startup"] | {"until_s": 60.0}}
    for changes, texts, missing in (
        ({}, ("Steady state, second 5.0 to 60.0", "Start-up, second 0 to 5.0", "when all members had"), "no steady"),
        ({"startup": None, "measure_from_s": 0.0}, ("Steady state, second 5.0 to 60.0",), "Start-up, second"),
        (whole | {"members": 901}, ("because not all members joined", "Whole replay, second 0 to 60.0"),
         "Steady state, second"),
        (whole, ("no steady state, because it ended before",), "Steady state, second"),
        ({"workload": {"file": "x", "measure_from_s": 5.0}}, ("begins at second 5.0.",), "when all members had joined"),
    ):  # fmt: skip
        with subtests.test(texts=texts):
            html = page(summary_of(summary_document(1) | changes))
            assert [text for text in texts if text not in html] == []
            assert missing not in html


@pytest.mark.usefixtures("undrawn")
def test_simulated_latencies_are_not_shown_as_measured_ones(subtests: pytest.Subtests) -> None:
    summary = summary_document(1) | {"transport": "memory"}
    html, text = page(summary_of(summary)), terminal_report(summary)
    assert {"Simulated latency", "Latency"} & set(re.findall("<h2>(.*?)</h2>", html)) == {"Simulated latency"}
    assert "Latency in the simulated network" in text
    assert ">simulated p99 latency, ms<" in html
    assert ">p99 latency, ms<" not in html
    with subtests.test("without a picture of a constant"):
        for row in summary["over_time"]["apis"]:
            row["p99_ms"] = [0.5 for _ in row["p99_ms"]]
        assert "simulated p99 latency, ms<" not in page(summary_of(summary))


def test_skew_is_compared_with_chance(html: str) -> None:
    assert "2.50 times the mean number of requests, more than by chance (1.75 to 2.25)" in html
    assert "1.19 times the mean number of requests, more than by chance (1 to 1.1)" in html
    assert "1.75 times the mean number of groups, less than by chance (2 to 2.75)" in html
    assert "2.50 times the mean of requests, more than by chance" in " ".join(
        terminal_report(summary_document(1)).split()
    )
    assert [by_chance(skew, [1.5, 2.5]) for skew in (1.5, 2.5, None)] == [", as by chance (1.5 to 2.5)"] * 2 + [""]


def test_charts_scroll_rather_than_become_too_small_to_read(html: str) -> None:
    assert len(re.findall(r'<div class="wide"><svg [^>]*style="min-width: 670px"', html)) == html.count("<svg") == 11


def test_charts_of_populations_show_unknown_states() -> None:
    summary = summary_document(1)
    for row in summary["over_time"]["populations"]:
        row["groups"]["unknown"] = row["members"]["unknown"] = [1.0] * len(row["groups"]["unknown"])
    charts_of = dict(figures.populations(summary_of(summary)))
    assert {name: svg.count(">unknown<") for name, svg in charts_of.items()} == {"dynamic": 2, "static": 2}


def test_charts_of_distributions_have_all_intervals(html: str) -> None:
    """Between 500 and 2,000 ms is an interval without a rebalance."""
    drawing = next(svg for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL) if "Distribution of rebalance" in svg)
    labels = re.findall(r">(\d[\d,]*(?: s)?)</text>", drawing)
    assert labels[:5] == ["100", "200", "500", "1 s", "2 s"]


@pytest.mark.slow
def test_events_of_a_violation_fit_into_a_narrow_window(html: str) -> None:
    with chromium() as browser, browser.new_page(viewport={"width": 400, "height": 900}) as view:
        view.set_content(html)
        assert view.locator(".evidence .events").count()
        overflows = "tables => tables.filter((each) => each.scrollWidth > each.clientWidth).length"
        assert view.locator(".evidence .wide").evaluate_all(overflows) == 0


def test_numbers_of_events_do_not_overlap(subtests: pytest.Subtests) -> None:
    for at_s, points_per_s, expected in (
        ([], 1, []),
        ([10, 50], 5, [(10, "1"), (50, "2")]),
        ([10, 10, 50], 5, [(10, "1, 2"), (50, "3")]),
        ([50, 10], 5, [(10, "2"), (50, "1")]),
        ([10, 11, 12, 50], 5, [(11, "1, 2, 3"), (50, "4")]),
        ([10, 10, 10, 10, 10], 5, [(10, "1 to 5")]),
        # The label of two events covers the third one.
        ([10, 11, 13], 6, [(11.5, "1, 2, 3")]),
    ):
        with subtests.test(at_s=at_s):
            assert event_labels(at_s, points_per_s) == expected


def test_the_terminal_report_fits_into_80_columns() -> None:
    report = terminal_report(summary_document(1))
    assert max(map(len, report.splitlines())) <= 80
    for text in ("Verdict: FAILED", "broker.stop node_id=1", "not done: node_id=7", "UNKNOWN_MEMBER_ID", "group-4"):
        assert text in report


def test_values_between_two_gaps_are_drawn_as_points() -> None:
    figure = Figure()
    axes = figure.subplots()
    times_s, numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [7.0, None, 2.0, 3.0, None, 4.0]
    lines(axes, times_s, {"some": numbers}, {"some": 0}, "ms")
    (line,) = axes.get_lines()
    assert (line.get_marker(), line.get_markevery()) == (".", [0, 5])


def test_sparklines(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[float], int, str]] = [
        ([0, 1, 2, 4], 4, " ▂▄█"),
        ([0, 4, 4, 4], 2, "▄█"),
        ([0, 0], 4, "  "),
        ([], 2, ""),
    ]
    for numbers, width, expected in cases:
        with subtests.test(numbers=numbers):
            assert sparkline(numbers, width) == expected


def test_numbers_have_thousands_separators_and_six_digits(subtests: pytest.Subtests) -> None:
    for value, expected in (
        (None, "-"),
        (1234567, "1,234,567"),
        (1234.5678, "1,234.57"),
        (7183460.4, "7,183,460"),
        (0.00012345678, "0.000123457"),
    ):
        with subtests.test(value=value):
            assert number(value) == expected


def test_events_are_written_without_values_of_python(subtests: pytest.Subtests) -> None:
    for value, expected in (
        (["a", 1], "x=[a, 1]"),
        ({"do": "broker.stop", "node_id": 1}, "x={do=broker.stop, node_id=1}"),
        (True, "x=true"),
        (1.5, "x=1.5"),
        (None, ""),
    ):
        with subtests.test(value=value):
            assert (
                event({"at_s": 1.0, "do": "inject_fault", "x": value, "done": True, "why": None})
                == f"inject_fault {expected}".strip()
            )


def test_a_condition_and_its_outcome_are_written_on_few_lines() -> None:
    stable = {"is": "group.stable", "group_id": "g"}
    why = "group('g').stable(): it does not hold\ng is Dead.\n\ngroup g, since ...\n"
    expected = {"at_s": 1.0, "do": "expect", "condition": {"all": [stable, {"not": stable}]}, "done": False, "why": why}
    assert event(expected) == (
        "expect condition={all=[{is=group.stable, group_id=g}, {not={is=group.stable, group_id=g}}]}"
    )
    assert result(expected) == "not done: group('g').stable(): it does not hold\ng is Dead."
    assert result({**expected, "done": True, "why": None}) == "done"


def test_values_of_expectations_are_written_without_exponents() -> None:
    wanted = {1e6: "requests == 1000000", 0.25: "requests == 0.25", 7: "requests == 7"}
    assert [str(Expectation(metric="requests", comparison="==", value=value)) for value in wanted] == [*wanted.values()]
