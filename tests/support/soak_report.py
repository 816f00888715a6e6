"""A pytest plugin: the option `--soak-report FILE`, and the current seed in the reports of failed tests.

The cases of a test id are its Hypothesis examples, or else the seeds of its loop over `tests.support.soak.cases`, or
else the number that it requested from `examples`. A test id with none of these is one case.
Worker processes of pytest-xdist send the counts with their test reports; the main process writes the file.
"""

import os
import platform
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fakebroker import __version__
from tests.support.soak import IS_SOAK, progress

_CASES, _SEED = "soak_cases", "soak_seed"
_QUOTES = "\\\"'"
_EXAMPLES = re.compile(r"(\d+) passing, (\d+) failing")
"""Counts of Hypothesis, one line per phase of a test: "- 100 passing, 0 failing, and 3 invalid test cases"."""


def add_option(parser: pytest.Parser) -> None:
    """Add the option `--soak-report`."""
    parser.addoption("--soak-report", metavar="FILE", help="Write what `make soak` ran to this file, as Markdown.")


def register(config: pytest.Config) -> None:
    """Register the plugins of this process."""
    config.pluginmanager.register(CaseCounter())
    path = config.getoption("soak_report")
    if path is None or hasattr(config, "workerinput"):
        return
    if not IS_SOAK:
        raise pytest.UsageError("--soak-report: expected the environment variable FAKEBROKER_SOAK=1")
    config.pluginmanager.register(SoakReport(config.invocation_params.dir / path))


class CaseCounter:
    """Adds the number of cases and the current seed to the report of each test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        progress.reset()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call":
            report.user_properties.append((_CASES, _count(item)))
            if report.failed and progress.seed is not None:
                report.user_properties.append((_SEED, progress.seed))
                report.sections.append(("seed", str(progress.seed)))
        return report


def _count(item: pytest.Item) -> int:
    """Return the number of cases that a test has run."""
    statistics: str = getattr(item, "hypothesis_statistics", "")
    examples = sum(int(passing) + int(failing) for passing, failing in _EXAMPLES.findall(statistics))
    return examples or progress.begun or progress.examples or 1


@dataclass
class FunctionResult:
    """The results of all test ids of one test function.

    Attributes:
        cases: Number of cases that were run.
        seconds: Duration of setup, calls and teardown, summed over processes that ran at the same time.
        failed: The ids that failed.
        skipped: Number of ids that were skipped.
    """

    cases: int = 0
    seconds: float = 0.0
    failed: set[str] = field(default_factory=set)
    skipped: int = 0

    @property
    def result(self) -> str:
        """The result of all ids in one phrase."""
        if self.failed:
            return f"{len(self.failed)} failed"
        return f"passed, {self.skipped} skipped" if self.skipped else "passed"


class SoakReport:
    """Collects the reports of tests in all processes, and writes the file at the end of the run.

    Args:
        path: The file to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started_s = time.monotonic()
        self._functions: dict[str, FunctionResult] = {}
        self._failures: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        function = self._functions.setdefault(report.nodeid.partition("[")[0], FunctionResult())
        is_subtest = isinstance(report, pytest.SubtestReport)
        if report.failed:
            # A test with failed subtests fails, too. Its report is omitted, because it has only their number.
            if report.nodeid not in function.failed or is_subtest:
                self._failures.append(_failure(report))
            function.failed.add(report.nodeid)
        if is_subtest:
            return
        function.seconds += report.duration
        function.skipped += report.skipped
        if report.when == "call" and not report.skipped:
            function.cases += _property(report, _CASES) or 0

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        is_complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self._path.write_text("".join(f"{line}\n" for line in self._lines(is_complete)), encoding="utf-8")

    def _lines(self, is_complete: bool) -> Iterator[str]:
        minutes, seconds = divmod(round(time.monotonic() - self._started_s), 60)
        yield "# Soak tests"
        yield ""
        yield "`make test` runs a sample of the cases that these tests draw by seeds; `make soak` runs all of them and"
        yield "writes this file. Seconds are summed over processes that run at the same time."
        yield ""
        yield f"- date: {datetime.now(UTC):%Y-%m-%d}"
        yield f"- version: fakebroker {__version__}, Python {platform.python_version()}"
        yield f"- machine: {os.cpu_count()} cores"
        yield f"- total time: {minutes} min {seconds} s" + ("" if is_complete else ", interrupted")
        yield f"- total cases: {sum(each.cases for each in self._functions.values()):,}"
        yield ""
        yield "| test | cases | seconds | result |"
        yield "|---|--:|--:|---|"
        for name, function in sorted(self._functions.items()):
            yield f"| `{name}` | {function.cases:,} | {function.seconds:,.1f} | {function.result} |"
        if self._failures:
            yield ""
            yield "## Failures"
            yield ""
            yield from self._failures


def _failure(report: pytest.TestReport) -> str:
    """Return an item of a list: the id of the failed test or subtest, its seed, and its error."""
    where = f"`{report.nodeid}`"
    if isinstance(report, pytest.SubtestReport):
        # pytest quotes values again for each process that passes them on.
        arguments = [f"{key}={value.strip(_QUOTES)}" for key, value in report.context.kwargs.items()]
        where = " ".join(filter(None, (where, report.context.msg, ", ".join(arguments))))
    if (seed := _property(report, _SEED)) is not None:
        where += f" seed {seed}"
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else report.longreprtext
    return f"- {where}: `{message.partition(chr(10))[0]}`"


def _property(report: pytest.TestReport, name: str) -> int | None:
    found = [value for key, value in report.user_properties if key == name]
    return int(found[0]) if found and isinstance(found[0], int) else None
