"""The document that `make soak` writes, and the seed in the report of a failed test."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.soak import soak_only

pytest_plugins = "pytester"

ONLY_THESE_PLUGINS = ("-p", "xdist", "-p", "hypothesispytest")
"""Options for a run with these plugins only. Loading all installed plugins would take half of the time of a run."""

CONFTEST = """
import pytest
from tests.support import soak_report

def pytest_addoption(parser: pytest.Parser) -> None:
    soak_report.add_option(parser)

def pytest_configure(config: pytest.Config) -> None:
    soak_report.register(config)
"""
TESTS = """
import pytest
from hypothesis import given, settings, strategies as st
from tests.support.soak import cases, examples

@pytest.mark.parametrize("seed", cases(1, soak=3))
def test_an_id_per_seed(seed):
    assert seed != 1

def test_a_loop():
    for _ in cases(1, soak=500):
        pass

def test_a_loop_that_fails():
    for seed in cases(1, soak=500):
        assert seed < 41, "too large"

def test_a_loop_that_fails_later():
    for seed in cases(1, soak=5):
        pass
    assert False, "after the loop"

@settings(max_examples=examples(1, soak=7), database=None)
@given(st.integers())
def test_hypothesis(number):
    pass

def test_subtests(subtests):
    for seed in cases(1, soak=4):
        with subtests.test(version=seed):
            assert seed not in (2, 3)

@pytest.mark.parametrize("name", ["a", "b"])
def test_skips(name):
    if name == "b":
        pytest.skip("not here")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    pytester.syspathinsert(Path(__file__).parent.parent)
    monkeypatch.setenv("FAKEBROKER_SOAK", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_the_document_counts_cases_and_names_failing_seeds(project: pytest.Pytester, processes: int) -> None:
    result = project.runpytest_subprocess(*ONLY_THESE_PLUGINS, "--soak-report", "soak.md", "-n", str(processes))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = (project.path / "soak.md").read_text()
    rows = re.findall(r"^\| `test_it.py::(\w+)` \| (\d+) \| [\d.]+ \| (.*) \|$", text, re.MULTILINE)
    assert rows == [
        ("test_a_loop", "500", "passed"),
        ("test_a_loop_that_fails", "42", "1 failed"),
        ("test_a_loop_that_fails_later", "5", "1 failed"),
        ("test_an_id_per_seed", "3", "1 failed"),
        ("test_hypothesis", "7", "passed"),
        ("test_skips", "1", "passed, 1 skipped"),
        ("test_subtests", "4", "1 failed"),
    ]
    assert "- total cases: 562\n" in text
    assert re.search(r"^- total time: 0 min \d+ s$", text, re.MULTILINE)
    failures = text.partition("## Failures\n\n")[2].splitlines()
    assert sorted(failures) == [
        "- `test_it.py::test_a_loop_that_fails_later`: `AssertionError: after the loop`",
        "- `test_it.py::test_a_loop_that_fails` seed 41: `AssertionError: too large`",
        "- `test_it.py::test_an_id_per_seed[1]`: `assert 1 != 1`",
        "- `test_it.py::test_subtests` version=2 seed 2: `assert 2 not in (2, 3)`",
        "- `test_it.py::test_subtests` version=3 seed 3: `assert 3 not in (2, 3)`",
    ]
    result.stdout.re_match_lines([r"-+ seed -+", "41"])


@pytest.mark.slow
def test_a_report_of_a_sample_is_rejected(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKEBROKER_SOAK")
    result = project.runpytest_subprocess(*ONLY_THESE_PLUGINS, "--soak-report", "soak.md")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--soak-report: expected the environment variable FAKEBROKER_SOAK=1"])


@soak_only("collects all tests")
@pytest.mark.slow
@pytest.mark.needs("make")
def test_the_command_of_make_soak_finds_its_tests(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    steps = subprocess.run(["make", "--dry-run", "soak"], cwd=root, capture_output=True, text=True, check=True)
    (command,) = (line for line in steps.stdout.splitlines() if "--soak-report" in line)
    (tmp_path / "soak.md").touch()  # pytest must not take the existing file for the tests to run.
    command = command.replace("scenarios/soak.md", str(tmp_path / "soak.md"))
    others = [path for path in (root / "tests").iterdir() if path.is_dir() and path.name != "coordinator"]
    command = " ".join([command, "--collect-only --quiet", *(f"--ignore={path}" for path in others)])  # Saves 30 s.
    found = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "tests/coordinator/test_repeated_failovers.py" in found.stdout


def test_tests_that_run_more_cases_in_make_soak_are_marked() -> None:
    names = {
        str(path): set(re.split(r"\W+", found[1]))
        for path in {*Path(__file__).parent.rglob("test_*.py")} - {Path(__file__)}
        if (found := re.search(r"^from tests\.support\.soak import (.+)$", path.read_text(), re.MULTILINE))
    }
    assert len(names) > 40
    assert [path for path, imported in names.items() if not imported & {"soak", "soak_only"}] == []
