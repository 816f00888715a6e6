"""Studies on Spark: equal results for any number of tasks, failed runs, interruption."""

import json
from pathlib import Path

import msgspec
import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.lab.runner import study
from fakebroker.lab.study.plan import plan_of
from fakebroker.lab.study.results import RunRow, read_rows
from fakebroker.lab.study.tasks import StudyTally, run_one
from fakebroker.replay.options import INTERRUPTED
from fakebroker.replay.spark.progress import Receiver
from tests.support.lab.studies import options_with


@pytest.fixture(autouse=True)
def without_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not draw the page, which takes seconds; `test_study.py` tests it."""
    monkeypatch.setattr("fakebroker.lab.runner.study_page", lambda plan, rows, summary: "page")


def rows_without_cost(directory: Path) -> list[RunRow]:
    return [msgspec.structs.replace(row, cpu_s=0.0) for row in read_rows(directory)]


@pytest.mark.usefixtures("spark", "studies_on_spark")
def test_results_are_those_of_runs_in_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_with(tmp_path, seeds=2, tasks=3)
    assert options.out is not None
    with pytest.raises(FakebrokerError, match=r"2 of 4 runs failed; their tracebacks are in .*summary\.json"):
        study(options)
    plan = plan_of(options)
    runs = [msgspec.structs.replace(run_one(plan, key), cpu_s=0.0) for key in plan.runs()]
    assert rows_without_cost(options.out) == sorted(runs, key=lambda row: (row.scenario, row.design, row.seed))
    assert (options.out / "report.html").read_text() == "page"
    summary = json.loads((options.out / "summary.json").read_text())
    assert summary["complete"]
    assert [(run["design"], run["seed"]) for run in summary["failed"]] == [("broken", 1), ("broken", 2)]
    printed = capsys.readouterr().out
    assert "4 runs: 2 designs x 1 scenario x 2 seeds" in printed
    assert "failed design=broken scenario=small seed=1" in printed


@pytest.mark.usefixtures("spark", "studies_on_spark")
def test_an_interrupted_study_has_a_report_of_the_runs_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver requests each task to end from the beginning on, as after Ctrl-C."""
    original = Receiver.take

    def stop(receiver: Receiver[StudyTally], datagram: bytes) -> None:
        original(receiver, datagram)
        receiver.stop_tasks()

    monkeypatch.setattr(Receiver, "take", stop)
    monkeypatch.setattr("fakebroker.lab.study.tasks._REPORT_EVERY_S", 0.0)
    options = options_with(tmp_path, seeds=40, tasks=1)
    assert options.out is not None
    assert study(options) == INTERRUPTED
    assert len(read_rows(options.out)) < 80
    assert (options.out / "report.html").exists()
