"""Tests whose programs are missing are skipped, or fail; the names of Debian's packages."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.programs import PROGRAMS, REQUIRED, find

pytest_plugins = "pytester"

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests.conftest import pytest_runtest_setup, pytest_terminal_summary

def pytest_configure(config):
    config.addinivalue_line("markers", "needs: programs")
"""
TESTS = """
import pytest
from tests.support import programs

@pytest.fixture(scope="module")
def browser():
    programs.require("chromium", "jq")

@pytest.mark.parametrize("number", [1, 2])
def test_fixture(browser, number):
    pass

@pytest.mark.needs("npm", "jq", "node")
def test_mark():
    pass

def test_call():
    try:
        programs.require("node", "jq")
    except BaseException as error:
        error.add_note("a note")
        raise

@pytest.mark.needs("jq")
def test_needs_what_exists():
    pass

def test_skipped_for_another_reason():
    pytest.skip("not here")
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv(REQUIRED, raising=False)
    return directory


def install(directory: Path, name: str, code: str = "") -> str:
    """Create a program that is a shell script, and return its path."""
    program = directory / name
    program.write_text(f"#!/bin/sh\n{code}\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, directory: Path) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    pytester.syspathinsert(ROOT)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    install(directory, "jq")
    return pytester


def run(project: pytest.Pytester, processes: int) -> pytest.RunResult:
    return project.runpytest_subprocess("-ra", "-p", "xdist", "-n", str(processes))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_is_skipped_and_a_line_at_the_end_names_the_programs(project: pytest.Pytester, processes: int) -> None:
    result = run(project, processes)
    result.assert_outcomes(passed=1, skipped=5)
    assert result.outlines[-2] == (
        "skipped 4 tests: no chromium, no node, no npm (Debian: apt-get install chromium nodejs npm)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_fails_if_its_programs_are_required(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    result = run(project, processes)
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=3)
    result.stdout.fnmatch_lines(["missing programs: npm, node (Debian: apt-get install nodejs npm)"])
    result.stdout.no_fnmatch_line("skipped * tests: *")


def test_there_is_no_line_without_missing_programs() -> None:
    assert programs.summary([]) is None


def test_a_program_may_have_several_names(directory: Path) -> None:
    assert find("chromium") is None
    path = install(directory, "google-chrome")
    assert find("chromium") == path


def test_a_java_that_is_too_old_is_missing(directory: Path, subtests: pytest.Subtests) -> None:
    for version, is_new in (("1.8.0_452", False), ("11.0.2", False), ("17.0.15", True), ("21", True)):
        with subtests.test(version):
            (home := directory / version).mkdir()
            path = install(home, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("PATH", str(home))
                assert find("java") == (path if is_new else None)


def test_a_go_that_is_too_old_is_missing(directory: Path, subtests: pytest.Subtests) -> None:
    for version, is_new in (("1.19.8", False), ("1.23", False), ("1.24.4", True), ("2.0", True)):
        with subtests.test(version):
            (home := directory / version).mkdir()
            path = install(home, "go", f"echo 'go version go{version} linux/amd64'")
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("PATH", str(home))
                assert find("go") == (path if is_new else None)


def test_the_packages_of_missing_programs_are_printed_without_installed_packages(directory: Path) -> None:
    for name in {*PROGRAMS} - {"cc", "chromium", "node"}:
        install(directory, name, "echo 'openjdk version \"17\"' >&2; echo 'go version go1.24 linux/amd64'")
    command = [sys.executable, "-S", "-m", "tests.support.programs"]  # -S: no installed packages
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == "gcc libc6-dev chromium nodejs\n"
