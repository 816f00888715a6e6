"""Comparisons of two runs: real differences are marked, noise is not."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from fakebroker.replay import commands, options
from fakebroker.replay.compare import Difference, compare, differing_settings, noise_of_repeats
from fakebroker.replay.report.compare_report import print_comparison
from fakebroker.replay.run_summary import SUMMARY_VERSION, summary_of
from tests.support.replay.summaries import summary_document

SEEDS = range(1, 9)


def compared(before: dict[str, Any], after: dict[str, Any], repeats: Sequence[dict[str, Any]] = ()) -> list[Difference]:
    return compare(summary_of(before), summary_of(after), list(map(summary_of, repeats)))


def marked(differences: list[Difference]) -> list[str]:
    return [difference.name for difference in differences if difference.marked]


def test_runs_that_differ_by_noise_have_no_marks(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            assert marked(compared(summary_document(seed), summary_document(seed + 100))) == []


def test_a_difference_larger_than_noise_is_marked(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            differences = compared(summary_document(seed), summary_document(seed + 100, heartbeat_latency=1.4))
            assert marked(differences) == ["Heartbeat p50_ms", "Heartbeat p99_ms"]
            heartbeats = next(each for each in differences if each.name == "Heartbeat p50_ms")
            assert heartbeats.change is not None
            assert heartbeats.noise is not None
            assert heartbeats.noise < 0.2 < heartbeats.change < 0.6


def with_unassigned_member_s(*values: float) -> list[dict[str, Any]]:
    documents = [summary_document(1) for _ in values]
    for document, value in zip(documents, values, strict=True):
        document["metrics"]["unassigned_member_s"] = value
    return documents


def test_noise_is_estimated_from_repeats_of_the_first_run() -> None:
    before, second, third, near, far = with_unassigned_member_s(100, 110, 105, 160, 164)
    assert marked(compared(before, near, [second, third])) == []
    assert marked(compared(before, far, [second, third])) == ["unassigned_member_s"]
    assert marked(compared(before, far, [second])) == []  # With one repeat, the prediction interval is wide.
    assert marked(compared(before, near, [before])) == ["unassigned_member_s"]  # equal repeats: no noise


def test_at_most_two_percent_of_normally_distributed_repeats_are_marked(subtests: pytest.Subtests) -> None:
    draws = 2_000
    for repeats in (1, 2, 4):
        with subtests.test(repeats=repeats):
            random, count = Random(repeats), 0
            for _ in range(draws):
                values = [random.gauss(100, 10) for _ in range(repeats + 2)]
                count += noise_of_repeats(values[0], values[1], values[2:])[1]
            assert 0 < count < draws * 0.02


def test_counts_are_marked_from_three_standard_deviations() -> None:
    before, near, far = (summary_document(1) for _ in range(3))
    for summary, count in ((before, 100), (near, 140), (far, 150)):
        summary["metrics"]["errors.NOT_COORDINATOR"] = count
    assert marked(compared(before, near)) == []
    assert marked(compared(before, far)) == ["errors.NOT_COORDINATOR"]
    del before["metrics"]["errors.NOT_COORDINATOR"]
    assert marked(compared(before, near)) == ["errors.NOT_COORDINATOR"]


def test_numbers_of_requests_of_an_api_are_compared_as_counts() -> None:
    before, after = summary_document(1), summary_document(1)
    next(row for row in after["apis"] if row["api"] == "Heartbeat")["requests"] //= 2
    assert marked(compared(before, after)) == ["Heartbeat requests"]


def test_differences_below_five_percent_are_not_marked() -> None:
    before, after = summary_document(1), summary_document(1)
    after["metrics"]["generations"] = before["metrics"]["generations"] = 10_000_000
    after["metrics"]["generations"] += 400_000
    assert marked(compared(before, after)) == []


OTHER_SETTINGS = "duration_s, record, lanes, spark.tasks, complete"


def with_other_settings(document: dict[str, Any]) -> dict[str, Any]:
    document["workload"] |= {"duration_s": 90, "file": "other.toml"}
    document |= {"complete": False, "record": "changes", "lanes": 2, "spark": {**document["spark"], "tasks": 99}}
    return document


def test_settings_that_differ_are_listed() -> None:
    before, after = summary_document(1), summary_document(2)
    assert differing_settings(summary_of(before), summary_of(after)) == []
    after = with_other_settings(after)
    assert ", ".join(differing_settings(summary_of(before), summary_of(after))) == OTHER_SETTINGS
    text = io.StringIO()
    print_comparison(Console(file=text, width=80), summary_of(before), summary_of(after), [])
    assert "verdict failed, interrupted" in text.getvalue()
    assert f"which may explain differences: {OTHER_SETTINGS}." in text.getvalue()


def write_run(directory: Path, summary: dict[str, Any]) -> Path:
    directory.mkdir()
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


@pytest.mark.slow  # draws eight charts
def test_the_command_prints_the_comparison_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_run(tmp_path / "before", summary_document(1))
    after = write_run(tmp_path / "after", with_other_settings(summary_document(2, heartbeat_latency=2.0)))
    assert commands.compare(before, after, [], tmp_path / "page.html") == options.PASSED
    printed = capsys.readouterr().out
    assert [line.split()[0:2] for line in printed.splitlines() if line.rstrip().endswith("differs")] == [
        ["Heartbeat", "p50_ms"],
        ["Heartbeat", "p99_ms"],
    ]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 8
    assert page.count(">differs<") == 2
    assert "verdict failed, interrupted" in page
    assert f"which may explain differences: {OTHER_SETTINGS}." in page


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
        (old_version, f"version = 0: expected {SUMMARY_VERSION}; `fakebroker report"),
        (incomplete, "seed is missing: expected an integer; `fakebroker report"),
        (no_json, "expected JSON: "),
    ):
        with subtests.test(run=run.name):
            assert commands.compare(good, run, [], None) == options.BAD_INPUT
            message = capsys.readouterr().err
            assert message.startswith(f"fakebroker: {run}")
            assert error in message
    monkeypatch.setattr("fakebroker.replay.report.compare_report.comparison_page", lambda *_: "")
    assert commands.compare(good, good, [], tmp_path / "no" / "page.html") == options.COULD_NOT_RUN
    assert capsys.readouterr().err.endswith("page.html: cannot be written: No such file or directory\n")
