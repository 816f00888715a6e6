"""Two runs side by side: what really differs is marked, and noise is not."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from fakebroker.replay import commands, options
from fakebroker.replay.compare import Difference, _beyond_repeats, compare, other_workload
from fakebroker.replay.report.compare_report import comparison_page, print_comparison
from fakebroker.replay.run_summary import summary_of
from tests.support.replay.summaries import made_up_summary

SEEDS = range(1, 9)


def compared(before: dict[str, Any], after: dict[str, Any], repeats: Sequence[dict[str, Any]] = ()) -> list[Difference]:
    """The differences between the summaries that documents contain."""
    return compare(summary_of(before), summary_of(after), list(map(summary_of, repeats)))


def marked(differences: list[Difference]) -> list[str]:
    return [difference.name for difference in differences if difference.marked]


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_is_not_marked(seed: int) -> None:
    assert marked(compared(made_up_summary(seed), made_up_summary(seed + 100))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_real_difference_is_marked(seed: int) -> None:
    differences = compared(made_up_summary(seed), made_up_summary(seed + 100, slower=1.4))
    assert marked(differences) == ["Heartbeat p50_ms", "Heartbeat p99_ms"]
    heartbeats = next(each for each in differences if each.name == "Heartbeat p50_ms")
    assert heartbeats.change is not None
    assert heartbeats.noise is not None
    assert heartbeats.noise < 0.2 < heartbeats.change < 0.6


def repeated(*numbers: float) -> list[dict[str, Any]]:
    """Runs that differ in one number."""
    summaries = [made_up_summary(1) for _ in numbers]
    for summary, number in zip(summaries, numbers, strict=True):
        summary["metrics"]["unassigned_member_s"] = number
    return summaries


def test_with_repeats_noise_is_how_far_another_one_might_be() -> None:
    before, second, third, near, far = repeated(100, 110, 105, 160, 164)
    assert marked(compared(before, near, [second, third])) == []
    assert marked(compared(before, far, [second, third])) == ["unassigned_member_s"]
    assert marked(compared(before, far, [second])) == []  # Two runs tell little.
    assert marked(compared(before, near, [before])) == ["unassigned_member_s"]  # Without any noise all is told.


@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_of_runs_that_repeat_each_other_hardly_a_number_is_marked(repeats: int) -> None:
    draw, times = Random(repeats), 2_000
    found = 0
    for _ in range(times):
        numbers = [draw.gauss(100, 10) for _ in range(repeats + 2)]
        found += _beyond_repeats(numbers[0], numbers[1], numbers[2:])[1]
    assert 0 < found < times * 0.02


def test_counts_differ_by_more_than_chance() -> None:
    before, near, far = (made_up_summary(1) for _ in range(3))
    for summary, count in ((before, 100), (near, 140), (far, 150)):
        summary["metrics"]["errors.NOT_COORDINATOR"] = count
    assert marked(compared(before, near)) == []
    assert marked(compared(before, far)) == ["errors.NOT_COORDINATOR"]
    del before["metrics"]["errors.NOT_COORDINATOR"]
    assert marked(compared(before, near)) == ["errors.NOT_COORDINATOR"]


def test_requests_of_an_api_are_counted_too() -> None:
    before, after = made_up_summary(1), made_up_summary(1)
    next(row for row in after["apis"] if row["api"] == "Heartbeat")["requests"] //= 2
    assert marked(compared(before, after)) == ["Heartbeat requests"]


def test_small_differences_are_none_however_sure() -> None:
    before, after = made_up_summary(1), made_up_summary(1)
    after["metrics"]["generations"] = before["metrics"]["generations"] = 10_000_000
    after["metrics"]["generations"] += 400_000
    assert marked(compared(before, after)) == []


def test_other_workloads_are_told() -> None:
    before, after = made_up_summary(1), made_up_summary(2)
    assert other_workload(summary_of(before), summary_of(after)) == []
    after["workload"] |= {"duration_s": 90, "file": "other.toml"}
    assert other_workload(summary_of(before), summary_of(after)) == ["duration_s"]
    after |= {"complete": False, "record": "changes", "lanes": 2, "spark": {**after["spark"], "tasks": 99}}
    assert other_workload(summary_of(before), summary_of(after)) == [
        "duration_s",
        "record",
        "lanes",
        "tasks",
        "a run that was broken off",
    ]
    assert ", broken off" in comparison_page(summary_of(before), summary_of(after), [])
    text = io.StringIO()
    print_comparison(Console(file=text, width=80), summary_of(before), summary_of(after), compared(before, after))
    for told in (text.getvalue().replace("\n", " "), comparison_page(summary_of(before), summary_of(after), [])):
        assert "The runs are not alike: duration_s, record, lanes, tasks, a run that was broken off differ" in told


def written(directory: Path, summary: dict[str, Any]) -> Path:
    directory.mkdir()
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path / "before", made_up_summary(1))
    after = written(tmp_path / "after", made_up_summary(2, slower=2.0))
    assert commands.compare(before, after, [], tmp_path / "page.html") == options.PASSED
    printed = capsys.readouterr().out
    assert [line.split()[0:2] for line in printed.splitlines() if line.rstrip().endswith("differs")] == [
        ["Heartbeat", "p50_ms"],
        ["Heartbeat", "p99_ms"],
    ]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 8
    assert page.count("differs") == 2


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "good", made_up_summary(1))
    old = written(tmp_path / "old", made_up_summary(1) | {"version": 0})
    half = written(tmp_path / "half", {"version": 1, "workload": {}})
    broken = written(tmp_path / "broken", {})
    (broken / "summary.json").write_text("{")
    for bad, sentence in (
        (tmp_path / "none", "expected the directory of a run: summary.json: No such file or directory"),
        (old, "version = 0: expected 1; `fakebroker report"),
        (half, "seed is missing: expected an integer; `fakebroker report"),
        (broken, "expected JSON: "),
    ):
        assert commands.compare(good, bad, [], None) == options.BAD_INPUT
        told = capsys.readouterr().err
        assert told.startswith(f"fakebroker: {bad}")
        assert sentence in told
    assert commands.compare(good, good, [], tmp_path / "no" / "page.html") == options.COULD_NOT_RUN
    assert capsys.readouterr().err.endswith("page.html: cannot be written: No such file or directory\n")
