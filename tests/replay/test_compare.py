"""Comparisons of two runs: real differences are found and judged by their noise, and noise is not reported."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from fakebroker.replay import commands, options
from fakebroker.replay.comparison.compare import (
    Comparison,
    Difference,
    compare,
    differing_settings,
    differing_workload,
    is_exact,
    problems_of,
)
from fakebroker.replay.comparison.comparison_charts import bins_ms, comparison_charts
from fakebroker.replay.comparison.comparison_report import comparison_page, equal_title, print_comparison
from fakebroker.replay.comparison.noise import least_noise_of_counts, noise_of_repeats, student_t
from fakebroker.replay.run_summary import SUMMARY_VERSION, Summary, document_of, summary_of
from tests.replay.conftest import CommandLine
from tests.support.replay.summaries import summary_document
from tests.support.replay.synthetic_runs import Changes, synthetic_run

PAIRS = 40


def exceeding(comparison: Comparison) -> list[str]:
    return [each.name for each in comparison.exceeding]


def figure(comparison: Comparison, name: str) -> Difference:
    return next(each for each in comparison.differences if each.name == name)


def changed(run: Summary, path: str, value: Any) -> Summary:
    """Return a run with another value in its summary."""
    document = msgspec.to_builtins(run)
    *parents, key = (int(each) if each.isdigit() else each for each in path.split("/"))
    place = document
    for each in parents:
        place = place[each]
    place[key] = value
    return msgspec.convert(document, Summary)


@pytest.fixture(scope="module")
def healthy() -> Summary:
    return synthetic_run(1)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 63.66), (2, 9.92), (10, 3.17), (11, 3.11), (12, 3.05), (30, 2.75)]
)
def test_quantiles_of_students_t_are_those_of_its_tables(degrees: float, quantile: float) -> None:
    assert student_t(degrees) == pytest.approx(quantile, abs=0.02)


def test_equal_runs_have_no_differences(healthy: Summary) -> None:
    comparison = compare(healthy, synthetic_run(1))
    assert {each.difference for each in comparison.differences} == {0}
    assert [each.why for each in comparison.differences if each.why] == []
    assert exceeding(comparison) == []
    assert equal_title(comparison) == f"{len(comparison.differences)} figures are equal"
    only_one = msgspec.structs.replace(comparison, differences=comparison.differences[:1])
    assert equal_title(only_one) == "1 figure is equal"


def simulated(run: Summary, seed: int = 7) -> Summary:
    return changed(changed(run, "head/transport", "memory"), "head/seed", seed)


def test_any_difference_of_two_simulations_with_the_same_seed_is_one(healthy: Summary) -> None:
    before = simulated(healthy)
    value = before.numbers.metrics["generations"]
    assert value is not None
    after = changed(before, "numbers/rebalances/generations", int(value) + 1)
    comparison = compare(before, after)
    assert exceeding(comparison) == ["generations"]
    assert figure(comparison, "generations").times == float("inf")
    assert re.search(r"generations .* exact", text_of(before, after))
    assert not figure(compare(before, simulated(after, seed=8)), "generations").is_exact


def test_other_workloads_and_interrupted_simulations_are_not_exact(healthy: Summary) -> None:
    before = simulated(healthy)
    for path, value in (("head/workload/duration_s", 61), ("head/complete", False), ("head/scale", 2.0)):
        assert not is_exact(before, changed(before, path, value))
    assert not is_exact(healthy, healthy)


def test_costs_that_differ_are_marked_as_better_or_worse(healthy: Summary) -> None:
    def compared(changes: Changes) -> Comparison:
        return compare(healthy, synthetic_run(101, changes), repeats(2, 3), repeats(102, 103, changes=changes))

    slower, quicker, faster = map(compared, (Changes(latency=1.5), Changes(latency=0.6), Changes(rate=1.5)))
    assert (figure(slower, "Heartbeat p50 ms").mark, figure(quicker, "Heartbeat p50 ms").mark) == ("worse", "better")
    assert (figure(faster, "Heartbeat requests/s").exceeds, figure(faster, "Heartbeat requests/s").mark) == (True, "")
    before = simulated(healthy)
    assert "worse" in text_of(before, changed(before, "numbers/apis/0/p50_ms", 100.0))
    assert figure(compare(healthy, healthy), "Heartbeat p50 ms").mark == ""


def repeats(*seeds: int, changes: Changes | None = None) -> list[Summary]:
    return [synthetic_run(seed, changes) for seed in seeds]


def test_true_changes_are_the_first_rows(healthy: Summary, subtests: pytest.Subtests) -> None:
    for changes, names in (
        (Changes(latency=1.5, errors=8), {"Heartbeat p50 ms", "unexpected errors", "NOT_COORDINATOR"}),
        (
            Changes(rate=1.3, rebalances=2, durations=2),
            {"Heartbeat requests/s", "generations", "rebalances", "rebalance p50 ms"},
        ),
    ):
        with subtests.test(names=names):
            others, again = repeats(102, 103, changes=changes), repeats(2, 3)
            comparison = compare(healthy, synthetic_run(101, changes), again, others)
            assert names <= set(exceeding(comparison))
            assert [each.name for each in comparison.differences][: len(exceeding(comparison))] == exceeding(comparison)
            times = [each.times for each in comparison.exceeding]
            assert times == sorted(times, key=lambda each: -(each or 0))


def test_of_equal_clusters_less_than_two_percent_of_the_figures_exceed_their_noise() -> None:
    """The noise is that of 99 %: one figure in a hundred may exceed it."""
    judged = alarms = 0
    for index in range(PAIRS):
        before, after = (repeats(*range(index * 6 + first, index * 6 + first + 3)) for first in (0, 3))
        comparison = compare(before[0], after[0], before[1:], after[1:])
        judged += sum(not each.why for each in comparison.differences)
        alarms += len(comparison.exceeding)
    assert judged > PAIRS * 15
    assert alarms <= 0.02 * judged


def test_independent_events_have_at_least_the_noise_of_a_poisson_distribution(subtests: pytest.Subtests) -> None:
    rng = np.random.default_rng(1)
    for mean in (3, 30, 300):
        with subtests.test(mean=mean):
            pairs = rng.poisson(mean, (2_000, 2))
            assert np.mean([abs(one - other) > least_noise_of_counts(one, other) for one, other in pairs]) < 0.01
    assert least_noise_of_counts(0, 5) > 5
    assert least_noise_of_counts(0, 12) < 12
    assert least_noise_of_counts(0, 12, (2.0, 2.0)) == pytest.approx(least_noise_of_counts(0, 12) / 2)


def test_every_figure_that_cannot_be_judged_says_why(healthy: Summary, subtests: pytest.Subtests) -> None:
    before = changed(healthy, "numbers/apis/0/p50_ms", None)
    after = changed(changed(synthetic_run(2), "numbers/apis/1/p50_ms", None), "numbers/metrics/partition_skew", 9.0)
    comparison = compare(before, after)
    for name, why in (
        ("never parked max ms", "two repeats, of BEFORE or AFTER, show its noise"),
        ("rebalance p99 ms", "two repeats"),
        ("Heartbeat p50 ms", "not measured in BEFORE"),
        ("OffsetCommit p50 ms", "not measured in AFTER"),
    ):
        with subtests.test(name=name, why=why):
            each = figure(comparison, name)
            assert re.match(why, each.why)
            assert each.noise is None
    for each in comparison.differences:
        assert bool(each.why) != (each.times is not None), each
    assert figure(comparison, "partition skew").basis == "chance"


def repeats_of(values: list[float]) -> list[Summary]:
    return [changed(synthetic_run(1), "numbers/metrics/unassigned_member_s", value) for value in values]


def test_noise_is_estimated_from_repeats_of_the_first_run() -> None:
    before, second, third, near, far = repeats_of([100, 110, 105, 160, 164])
    assert exceeding(compare(before, near, [second, third])) == []
    assert exceeding(compare(before, far, [second, third])) == ["unassigned member-s"]
    each = figure(compare(before, far, [second, third]), "unassigned member-s")
    assert (each.before, each.basis) == (105, "2 repeats")


def test_noise_is_estimated_from_repeats_of_both_runs() -> None:
    before, again, after, again_after = repeats_of([100, 110, 150, 160])
    each = figure(compare(before, after, [again], [again_after]), "unassigned member-s")
    assert (each.before, each.after, each.basis) == (105, 155, "2 repeats")
    assert each.noise == pytest.approx(9.92 * 50**0.5)
    assert not each.exceeds


def test_one_repeat_is_a_lower_bound_of_the_noise() -> None:
    before, repeat, after, far = repeats_of([1_000, 9_000, 9_000, 40_000])
    assert figure(compare(before, after), "unassigned member-s").why
    assert exceeding(compare(before, after, [repeat])) == []
    assert not figure(compare(before, after, [repeat]), "unassigned member-s").why
    assert figure(compare(before, far, [repeat]), "unassigned member-s").why


def test_at_most_two_percent_of_normally_distributed_repeats_exceed_the_noise(subtests: pytest.Subtests) -> None:
    draws = 2_000
    for sizes in ((3, 1), (5, 1), (2, 2), (3, 3)):
        with subtests.test(sizes=sizes):
            random, count = Random(sum(sizes)), 0
            for _ in range(draws):
                before, after = ([random.gauss(100, 10) for _ in range(size)] for size in sizes)
                difference = abs(sum(after) / len(after) - sum(before) / len(before))
                count += difference > (noise_of_repeats(before, after) or 0)
            assert 0 < count < draws * 0.02
    assert noise_of_repeats([1.0, 2.0], [3.0]) is None


def test_differences_below_one_percent_never_exceed_the_noise(healthy: Summary) -> None:
    rate = healthy.numbers.apis[0].requests_per_s
    comparison = compare(healthy, changed(synthetic_run(1), "numbers/apis/0/requests_per_s", rate * 1.009))
    each = figure(comparison, "Heartbeat requests/s")
    assert each.noise is not None
    assert each.noise >= 0.01 * rate
    assert exceeding(comparison) == []


def test_small_differences_of_figures_without_an_estimate_are_noise(healthy: Summary) -> None:
    longest_ms = healthy.numbers.never_parked.max_ms
    assert longest_ms is not None
    for factor, why in ((1.009, ""), (1.02, "two repeats, of BEFORE or AFTER, show its noise")):
        after = changed(healthy, "numbers/never_parked/max_ms", longest_ms * factor)
        assert figure(compare(healthy, after), "never parked max ms").why == why


def test_runs_that_cannot_be_compared_are_named(healthy: Summary, subtests: pytest.Subtests) -> None:
    for path, value, sentence in (
        ("head/transport", "memory", "AFTER was simulated in memory and BEFORE ran over TCP"),
        ("head/workload/duration_s", 90, r"The workloads differ \(duration_s: 60 and 90\)"),
        ("head/members", 950, "The runs had 900 and 950 members, because their scripts differ"),
        ("head/scale", 0.5, r"The settings of the runs differ \(scale: 1.0 and 0.5\)"),
        ("head/lanes", 2, r"The settings of the runs differ \(lanes: none and 2\)"),
        ("head/complete", False, r"AFTER ended early, after 60.0 s"),
        ("head/cluster/reachable", False, "The cluster of AFTER was unreachable at the end"),
        ("verdict/outcome", "failed", "The verdict on AFTER is failed"),
        ("verdict/outcome", "inconclusive", "The verdict on AFTER is inconclusive"),
    ):
        with subtests.test(path=path, value=value):
            problems = problems_of(healthy, changed(healthy, path, value))
            assert [each for each in problems if re.match(sentence, each)]
    assert compare(healthy, healthy).problems == []
    other = changed(changed(healthy, "head/workload/duration_s", 30), "numbers/span_s", 30.0)
    assert any(each.startswith("BEFORE lasted 60.0 s and AFTER 30.0 s") for each in problems_of(healthy, other))
    assert figure(compare(healthy, other), "rebalances per s").change == pytest.approx(1)
    repeat = compare(healthy, healthy, [changed(healthy, "head/lanes", 4)]).problems
    assert repeat == [f"{healthy.directory} is no repeat of BEFORE: its workload or settings differ."]
    simulated = changed(healthy, "head/transport", "memory")
    assert (
        "shows no noise: BEFORE was simulated with the same seed" in problems_of(simulated, simulated, [simulated])[0]
    )


def test_settings_that_differ_are_listed_with_both_values(healthy: Summary) -> None:
    nested = changed(healthy, "head/workload/groups", [{"name": "a", "count": 3}])
    other = changed(healthy, "head/workload/groups", [{"name": "a", "count": 4}])
    assert differing_workload(nested, other) == ["groups[0].count: 3 and 4"]
    assert differing_workload(healthy, changed(healthy, "head/workload/file", "b.toml")) == []
    assert differing_settings(healthy, changed(healthy, "head/record", "changes")) == ["record: all and changes"]


def test_outcomes_that_changed_come_first_and_worse_ones_before_better_ones() -> None:
    old, new = (summary_of(summary_document(1)) for _ in range(2))
    new = changed(new, "verdict/availability/0/outcome", "passed")
    new = changed(new, "verdict/expectations/0/met", False)
    comparison = compare(old, new)
    assert [(each.kind, each.is_worse) for each in comparison.changed] == [
        ("expectation", True),
        ("availability", False),
    ]
    assert comparison.same.startswith("The other ")
    assert comparison.changed[0].before == "met (6.1)"
    assert comparison.changed[0].after == "missed (6.1)"


def test_a_promise_that_was_kept_and_is_broken_comes_first_with_its_cases() -> None:
    new = summary_of(summary_document(1))
    index, promise = next((i, each) for i, each in enumerate(new.verdict.promises) if each.broken)
    kept = {"outcome": "kept", "broken": 0, "cases": 1_200, "violations": []}
    old = changed(new, f"verdict/promises/{index}", msgspec.to_builtins(promise) | kept)
    old = changed(old, "verdict/availability/0/passed", not old.verdict.availability[0].passed)
    (first, *_) = compare(old, new).changed
    assert (first.kind, first.what, first.is_worse) == ("promise", promise.promise, True)
    assert first.before == "kept (1,200 cases)"
    assert re.fullmatch(r"broken \(\d+ violations? in [\d,]+ cases?\)", first.after)


def text_of(before: Summary, after: Summary, *repeated: list[Summary]) -> str:
    text = io.StringIO()
    print_comparison(Console(file=text, width=80), before, after, compare(before, after, *repeated))
    return text.getvalue()


def test_the_terminal_shows_what_exceeds_noise_first_and_fits_80_columns(healthy: Summary) -> None:
    changes = Changes(latency=1.5, errors=4)
    after = changed(synthetic_run(101, changes), "verdict/outcome", "failed")
    text = text_of(healthy, after, repeats(2, 3), repeats(102, 103, changes=changes))
    assert max(map(len, text.splitlines())) <= 80
    titles = ["Runs", "Can they be compared?", "Outcomes", "figures differ by more than noise"]
    places = [text.index(title) for title in [*titles, "by no more than noise", "The noise is the difference"]]
    assert places == sorted(places)
    assert re.search(r"Heartbeat p50 ms +\d+\.\d+ +\d+\.\d+ +\+\d+\.\d% +\d+\.\d% +\d\.\d", text)
    assert "but whether by more than noise cannot be told" in text_of(healthy, after)


def test_bins_of_durations_have_no_gaps() -> None:
    assert bins_ms([5, 200, 10]) == [5, 10, 20, 50, 100, 200]
    assert bins_ms([0.5]) == [0.5]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow  # draws a dozen charts
def test_both_runs_are_in_each_chart(healthy: Summary) -> None:
    after = synthetic_run(101, Changes(latency=1.5))
    charts = comparison_charts(healthy, after)
    assert len(charts) == 12
    for chart in charts:
        assert {">before<", ">after<"} <= set(re.findall(r">(?:before|after)<", chart.svg))
    page = comparison_page(healthy, after, compare(healthy, after))
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert page.count("<svg") == len(charts)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def write_run(directory: Path, run: Summary | dict[str, Any]) -> Path:
    directory.mkdir()
    document = run if isinstance(run, dict) else document_of(run)
    (directory / "summary.json").write_text(json.dumps(document))
    return directory


@pytest.mark.slow  # draws a dozen charts
def test_the_command_prints_the_comparison_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_run(tmp_path / "before", synthetic_run(1))
    after = write_run(tmp_path / "after", synthetic_run(101, Changes(latency=2)))
    assert commands.compare(before, after, [], [], tmp_path / "page.html") == options.PASSED
    assert "whether by more than noise cannot be told" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert page.index("Outcomes") < page.index("Heartbeat p50 ms")


def test_the_exit_status_is_by_the_verdict_on_the_second_run_unless_it_is_no_worse(
    subtests: pytest.Subtests, tmp_path: Path, command_line: CommandLine
) -> None:
    sample = summary_of(summary_document(1))
    runs = {
        outcome: write_run(tmp_path / outcome, changed(sample, "verdict/outcome", outcome))
        for outcome in ("passed", "failed", "inconclusive")
    }
    # Of two runs that failed, the second one misses an expectation that the first one met.
    document = changed(changed(sample, "verdict/outcome", "failed"), "verdict/expectations/0/met", False)
    runs["worse"] = write_run(tmp_path / "worse", document)
    for before, after, status in (
        ("passed", "passed", options.PASSED),
        ("passed", "failed", options.FAILED),
        ("passed", "inconclusive", options.INCONCLUSIVE),
        ("inconclusive", "failed", options.FAILED),
        ("failed", "passed", options.PASSED),
        ("failed", "inconclusive", options.INCONCLUSIVE),
        ("failed", "failed", options.PASSED),
        ("failed", "worse", options.FAILED),
        ("worse", "failed", options.PASSED),
    ):
        with subtests.test(before=before, after=after):
            assert command_line("compare", runs[before], runs[after])[::2] == (status, "")


def test_errors_of_the_command(
    subtests: pytest.Subtests, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write_run(tmp_path / "good", summary_document(1))
    old_version = write_run(tmp_path / "old", summary_document(1) | {"version": 0})
    incomplete = write_run(tmp_path / "half", {"version": SUMMARY_VERSION, "workload": {}})
    no_json = write_run(tmp_path / "broken", {})
    (no_json / "summary.json").write_text("{")
    for run, error in (
        (tmp_path / "none", "expected the directory of a run: summary.json: No such file or directory"),
        (old_version, f"has format 0, and this fakebroker compares format {SUMMARY_VERSION}: `fakebroker report"),
        (incomplete, "seed is missing: expected an integer; `fakebroker report"),
        (no_json, "expected JSON: "),
    ):
        with subtests.test(run=run.name):
            assert commands.compare(good, run, [], [], None) == options.BAD_INPUT
            message = capsys.readouterr().err
            assert message.startswith(f"fakebroker: {run}")
            assert error in message
    monkeypatch.setattr("fakebroker.replay.comparison.comparison_report.comparison_page", lambda *_: "")
    assert commands.compare(good, good, [], [], tmp_path / "no" / "page.html") == options.COULD_NOT_RUN
    assert capsys.readouterr().err.endswith("page.html: cannot be written: No such file or directory\n")
