"""Fixtures for replays, and the mark of tests that run Spark."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fakebroker.cli.main import main

CommandLine = Callable[..., tuple[object, str, str]]


@pytest.hookimpl(tryfirst=True)  # before the option `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run Spark. They use all cores, so `make test` runs them separately, a file per process."""
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if "spark" in getattr(item, "fixturenames", ()) or (is_here and item.get_closest_marker("slow")):
            item.add_marker("spark")


@pytest.fixture
def replays_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replays in this process use the shared session. In a new session, a report takes 30 s of CPU time."""
    monkeypatch.setattr("fakebroker.replay.runner.spark_session", lambda *_: nullcontext(spark))


@pytest.fixture
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let member loops report every few milliseconds. A loop ends at the first report after its last member is done."""
    monkeypatch.setattr("fakebroker.replay.members.member_loop._REPORT_EVERY_MS", 5.0)
    monkeypatch.setattr("fakebroker.replay.members.member_loop._REPORT_EVERY_MS_PER_MEMBER", 0.05)


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """A function that runs `fakebroker` with arguments, and returns its exit status, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["fakebroker", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capsys.readouterr()

    return run
