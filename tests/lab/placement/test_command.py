"""`fakebroker lab --placement`: its tables and files."""

from contextlib import nullcontext
from pathlib import Path

import click
import msgspec
import pytest
from pyspark.sql import SparkSession

from fakebroker.cli.lab import lab
from fakebroker.lab.placement.command import PAGE, RESULT, PlacementRecord
from fakebroker.lab.placement.plan import plan_of


def test_the_command_prints_tables_and_writes_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fakebroker.lab.placement.command.spark_session", lambda *_: nullcontext(spark))
    monkeypatch.setattr("fakebroker.lab.placement.study._lookups", lambda plan: iter(()))
    out = tmp_path / "out"
    arguments = ["--placement", "--groups", "2000", "--seeds", "2", "--seed", "-3", "--out", str(out)]
    assert lab.main(arguments, standalone_mode=False) == 0
    record = msgspec.json.decode((out / RESULT).read_bytes(), type=PlacementRecord)
    assert record.result.plan == plan_of(2_000, (-3, -2))
    assert record.result.plan.groups == (1_000, 2_000)
    printed = capsys.readouterr().out
    assert "2,000 groups: members of the" in printed
    assert "option-2a, 1,000" in printed
    page = (out / PAGE).read_text()
    assert page.count("<svg") == 4
    assert "option-2b, 3 asked first" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_either_files_or_a_placement_study_is_expected(tmp_path: Path) -> None:
    for arguments in ([], ["--placement", str(tmp_path / "scenario.toml")]):
        with pytest.raises(click.UsageError, match="expected FILES or --placement"):
            lab.main(arguments, standalone_mode=False)
