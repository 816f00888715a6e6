"""A study without Spark: plans, runs that fail, rows, the comparison, and its tables."""

import io
import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from fakebroker.errors import ConfigError
from fakebroker.lab.estimate import Estimate
from fakebroker.lab.measures import RunResult
from fakebroker.lab.options import StudyOptions
from fakebroker.lab.report.page import study_page
from fakebroker.lab.report.terminal import print_study
from fakebroker.lab.report.wording import estimate, short
from fakebroker.lab.study.figures import FIGURES
from fakebroker.lab.study.plan import RunKey, StudyPlan, plan_of
from fakebroker.lab.study.progress import progress_line
from fakebroker.lab.study.results import RUNS, RunRow, batch_of, read_rows
from fakebroker.lab.study.summary import summarize
from fakebroker.lab.study.tasks import StudyTally, run_one
from tests.support.lab.studies import SMALL, plan_with, written


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> StudyPlan:
    return plan_with(tmp_path_factory.mktemp("study"), seeds=2)


@pytest.fixture(scope="module")
def rows(plan: StudyPlan) -> list[RunRow]:
    return [run_one(plan, key) for key in plan.runs()]


def test_the_plan_has_each_design_in_each_scenario_with_each_seed(plan: StudyPlan) -> None:
    assert set(plan.runs()) == {RunKey(name, "small", seed) for name in ("classic", "broken") for seed in (1, 2)}
    assert plan.about == {"small": "A crash. Look at it."}
    assert plan.duration_ms == 4 * 60_000


@pytest.mark.parametrize(
    ("designs", "expected"),
    [
        (("clasic",), "--designs='clasic': expected one of classic"),
        (("classic", "classic"), "--designs='classic': expected each design once"),
        (("missing.py",), "--designs='missing.py': expected a file that can be read"),
    ],
)
def test_invalid_designs(tmp_path: Path, designs: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(StudyOptions(files=(written(tmp_path, "small.toml", SMALL),), designs=designs))
    assert expected in str(caught.value)


def test_scenarios_have_different_names(tmp_path: Path) -> None:
    files = tuple(written(tmp_path / folder, "small.toml", SMALL) for folder in ("a", "b"))
    with pytest.raises(ConfigError, match="expected scenario files with different names"):
        plan_of(StudyOptions(files=files))


def test_a_run_that_fails_has_a_traceback_and_no_result(rows: list[RunRow]) -> None:
    broken = [row for row in rows if row.design == "broken"]
    assert len(broken) == 2
    for row in broken:
        assert row.result is None
        assert row.error is not None
        assert row.error.splitlines()[-1] == "RuntimeError: the design is broken"


def test_rows_are_the_same_after_they_were_written(rows: list[RunRow], tmp_path: Path) -> None:
    (tmp_path / RUNS).mkdir()
    for number, row in enumerate(rows):
        batch = batch_of([row])
        with pq.ParquetWriter(tmp_path / RUNS / f"part-{number}.parquet", batch.schema) as writer:
            writer.write_batch(batch)
    assert read_rows(tmp_path) == sorted(rows, key=lambda row: (row.scenario, row.design, row.seed))


def test_every_figure_is_a_measurement() -> None:
    for figure in FIGURES:
        assert figure.name in RunResult.__struct_fields__
        assert len(figure.title) <= 32


def test_the_comparison_has_means_and_failures(plan: StudyPlan, rows: list[RunRow]) -> None:
    summary = summarize(plan, rows, 1.0)
    assert summary.complete
    dead = summary.estimates("small")["noticed_p50_ms"]
    assert list(dead) == ["classic"]
    values = [row.result.noticed_p50_ms for row in rows if row.result is not None]
    assert dead["classic"].value.mean == pytest.approx(sum(value or 0 for value in values) / 2, rel=1e-4)
    assert dead["classic"].value.seeds == 2
    assert dead["classic"].difference is None
    assert [(run.design, run.seed, run.error) for run in summary.failed] == [
        ("broken", seed, "RuntimeError: the design is broken") for seed in (1, 2)
    ]
    assert {each.cause for each in summary.causes} >= {"start", "crash"}
    assert not summarize(plan, rows[1:], 1.0).complete


def test_designs_differ_by_pairs_of_runs(plan: StudyPlan, rows: list[RunRow]) -> None:
    """The second design has a thousandth more than the first one with each seed: less than seeds differ."""
    copies = []
    for row in rows:
        if row.result is not None:
            unowned_s = row.result.unowned_s * 1.001
            result = msgspec.structs.replace(row.result, unowned_s=unowned_s)
            copies.append(msgspec.structs.replace(row, design="broken", result=result, error=None))
    kept = [row for row in rows if row.result is not None]
    found = summarize(plan, [*kept, *copies], 1.0).estimates("small")
    of_copy = found["unowned_s"]["broken"]
    assert of_copy.value.low < found["unowned_s"]["classic"].value.mean < of_copy.value.high
    assert of_copy.differs
    assert not found["rebalances"]["broken"].differs
    of_one_seed = [row for row in (*kept, *copies) if row.seed == 1]
    assert not summarize(plan, of_one_seed, 1.0).estimates("small")["unowned_s"]["broken"].differs


def test_tables_have_80_columns_and_name_what_failed(plan: StudyPlan, rows: list[RunRow]) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_study(console, summarize(plan, rows, 1.0))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert max(map(len, text.splitlines())) <= 80
    for part in ("small: 1 group, 3 members, 60 s", "death noticed, median, s", "classic", "Means of 2 seeds"):
        assert part in text
    assert "failed design=broken scenario=small seed=1: RuntimeError: the design is broken" in text.replace("\n", "")


@pytest.mark.slow
def test_the_page_has_all_parts_and_needs_no_network(plan: StudyPlan, rows: list[RunRow]) -> None:
    page = study_page(plan, rows, summarize(plan, rows, 1.0))
    for part in (
        "Runs that failed",
        "the design is broken",
        "small: 1 group, 3 members, 60 s",
        "Look at it.",
        "Partition-s without an owner",
        "Join: member 3 starts",
        "Failure: member 2 crashes",
        "Failover: broker",
        "The run failed: RuntimeError: the design is broken",
    ):
        assert part in page, part
    assert not re.search(r"https?://(?!www\.w3\.org)|<script|<link|<img", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00004, "<0.0001"),
        (0.0004, "0.0004"),
        (0.1234, "0.123"),
        (12.34, "12.3"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (12_345, "12.3k"),
        (999_600, "1M"),
        (1_234_567, "1.23M"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_estimates_have_half_of_their_interval() -> None:
    (figure,) = (each for each in FIGURES if each.name == "rebalance_p99_ms")
    assert estimate(figure, Estimate(1500, 1000, 2000, 5)) == "1.5 ±0.5"
    assert estimate(figure, Estimate(1500, 1500, 1500, 1)) == "1.5"
    assert estimate(figure, None) == "-"


def test_progress() -> None:
    assert progress_line(StudyTally(), 10, 1000, 5) == "0 of 10 runs"
    tally = StudyTally(runs=2, failed=1, played_ms=250)
    assert progress_line(tally, 10, 1000, 5) == "2 of 10 runs, 1 failed, 15 s left"
