"""`fakebroker lab --placement`: its tables and files."""

from contextlib import nullcontext
from pathlib import Path

import click
import msgspec
import pytest

from fakebroker.cli.lab import lab
from fakebroker.lab.placement.command import PAGE, RESULT, PlacementRecord
from fakebroker.lab.placement.placement_plan import PlacementPlan, plan_of
from fakebroker.lab.placement.result import PlacementResult
from tests.lab.placement.test_report import RESULT as RESULT_OF_ROWS


def test_the_command_prints_tables_and_writes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[PlacementPlan] = []

    def place(_: None, plan: PlacementPlan) -> PlacementResult:
        plans.append(plan)
        return RESULT_OF_ROWS

    monkeypatch.setattr("fakebroker.lab.placement.command.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr("fakebroker.lab.placement.command.place", place)
    out = tmp_path / "out"
    arguments = ["--placement", "--groups", "2000", "--seeds", "2", "--seed", "-3", "--out", str(out)]
    assert lab.main(arguments, standalone_mode=False) == 0
    assert [(plan.groups, plan.seeds) for plan in plans] == [((1_000, 2_000), (-3, -2))]
    assert plans == [plan_of(2_000, (-3, -2))]
    record = msgspec.json.decode((out / RESULT).read_bytes(), type=PlacementRecord)
    assert record.result == RESULT_OF_ROWS
    printed = capsys.readouterr().out
    assert "10 groups: members of the busiest broker / mean" in printed
    assert "option-2b, 3 asked first" in printed
    page = (out / PAGE).read_text()
    assert page.count("<svg") == 5
    assert "option-2b, 3 asked first" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_either_files_or_a_placement_study_is_expected(tmp_path: Path) -> None:
    for arguments in ([], ["--placement", str(tmp_path / "scenario.toml")]):
        with pytest.raises(click.UsageError, match="expected FILES, --placement or --histories"):
            lab.main(arguments, standalone_mode=False)
