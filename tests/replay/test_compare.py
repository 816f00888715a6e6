"""Two runs side by side: what really differs is marked, and noise is not."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fakebroker.replay import run
from fakebroker.replay.compare import Difference, compare, other_workload
from fakebroker.replay.compare_report import comparison_page, print_comparison
from tests.replay.made_up_summary import made_up_summary

SEEDS = range(1, 9)


def marked(differences: list[Difference]) -> list[str]:
    return [difference.name for difference in differences if difference.marked]


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_is_not_marked(seed: int) -> None:
    assert marked(compare(made_up_summary(seed), made_up_summary(seed + 100))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_real_difference_is_marked(seed: int) -> None:
    differences = compare(made_up_summary(seed), made_up_summary(seed + 100, slower=1.4))
    assert marked(differences) == ["Heartbeat p50_ms", "Heartbeat p99_ms"]
    heartbeats = next(each for each in differences if each.name == "Heartbeat p50_ms")
    assert heartbeats.change is not None
    assert heartbeats.noise is not None
    assert heartbeats.noise < 0.2 < heartbeats.change < 0.6


def test_with_repeats_their_range_is_noise() -> None:
    before, repeat, within, without = (made_up_summary(1) for _ in range(4))
    for summary, members_s in ((before, 100.0), (repeat, 110.0), (within, 120.0), (without, 121.0)):
        summary["metrics"]["unassigned_member_s"] = members_s
    assert marked(compare(before, within, [repeat])) == []
    assert marked(compare(before, without, [repeat])) == ["unassigned_member_s"]
    assert marked(compare(before, within, [before])) == ["unassigned_member_s"]


def test_counts_differ_by_more_than_chance() -> None:
    before, near, far = (made_up_summary(1) for _ in range(3))
    for summary, count in ((before, 100), (near, 140), (far, 150)):
        summary["metrics"]["errors.NOT_COORDINATOR"] = count
    assert marked(compare(before, near)) == []
    assert marked(compare(before, far)) == ["errors.NOT_COORDINATOR"]
    del before["metrics"]["errors.NOT_COORDINATOR"]
    assert marked(compare(before, near)) == ["errors.NOT_COORDINATOR"]


def test_requests_of_an_api_are_counted_too() -> None:
    before, after = made_up_summary(1), made_up_summary(1)
    next(row for row in after["apis"] if row["api"] == "Heartbeat")["requests"] //= 2
    assert marked(compare(before, after)) == ["Heartbeat requests"]


def test_small_differences_are_none_however_sure() -> None:
    before, after = made_up_summary(1), made_up_summary(1)
    after["metrics"]["generations"] = before["metrics"]["generations"] = 10_000_000
    after["metrics"]["generations"] += 400_000
    assert marked(compare(before, after)) == []


def test_other_workloads_are_told() -> None:
    before, after = made_up_summary(1), made_up_summary(2)
    assert other_workload(before, after) == []
    after["workload"] |= {"duration_s": 90, "file": "other.toml"}
    assert other_workload(before, after) == ["duration_s"]
    text = io.StringIO()
    print_comparison(Console(file=text, width=80), before, after, compare(before, after))
    assert "The workloads are not the same: duration_s differ" in text.getvalue()
    assert "The workloads are not the same: duration_s differ" in comparison_page(before, after, [])


def written(directory: Path, summary: dict[str, Any]) -> Path:
    directory.mkdir()
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path / "before", made_up_summary(1))
    after = written(tmp_path / "after", made_up_summary(2, slower=2.0))
    assert run.compare(before, after, [], tmp_path / "page.html") == run.PASSED
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
        (half, "seed is missing; `fakebroker report"),
        (broken, "expected JSON: "),
    ):
        assert run.compare(good, bad, [], None) == run.BAD_INPUT
        told = capsys.readouterr().err
        assert told.startswith(f"fakebroker: {bad}")
        assert sentence in told
    assert run.compare(good, good, [], tmp_path / "no" / "page.html") == run.COULD_NOT_RUN
    assert capsys.readouterr().err.endswith("page.html: cannot be written: No such file or directory\n")
