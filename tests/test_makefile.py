"""`make test` runs both of its parts, and fails if one of them fails."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.needs("make")


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        ("none", None),
        ("not spark", "make test: failed: tests without Spark"),
        ("spark", "make test: failed: tests with Spark"),
        ("*", "make test: failed: tests without Spark, tests with Spark"),
    ],
)
def test_both_parts_run_and_the_last_line_names_those_that_failed(
    tmp_path: Path, failing: str, line: str | None
) -> None:
    """Instead of pytest, a script runs that prints the marks of the part."""
    (python := tmp_path / "bin" / "python").parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "part: $4"\ncase "$4" in {failing.replace(" ", "?")}) exit 1;; esac\n')
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    command = ["make", "--no-print-directory", "test", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    parts, last = ["part: not spark", "part: spark"], [] if line is None else [line]
    assert (done.stdout.splitlines(), done.returncode) == ([*parts, *last], 0 if line is None else 2)
