"""`make fuzz`: searches inputs for which a target fails, and prints a table.

    python -m tests.fuzz.run SECONDS [TARGET ...]

The seconds are divided over the targets. What is found is kept in `.fuzz/`, so that the next run continues.
Fails if there is a crash: a target has raised an exception, or has used too much time or memory.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.corpus import FOUND, inputs, write_files
from tests.fuzz.targets import TARGETS

TIMEOUT_S = 20
"""An input that takes longer is a crash."""

_MEMORY_MB = 2048
_ROW = "{:<20} {:>12} {:>8} {:>12} {:>8}"
_COVERAGE = re.compile(r"cov: (\d+)")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units: (\d+)")
_PROGRESS = re.compile(r"^#(\d+)\t", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """What a search has found.

    Attributes:
        executions: How many inputs were run.
        edges: How many edges of the control flow were reached.
        found: How many inputs were added to those in `.fuzz/`.
        crash: The file of the input that failed; None if none has.
        output: What the search has printed.
    """

    executions: int
    edges: int
    found: int
    crash: Path | None
    output: str


def search(name: str, seconds: int) -> Result:
    """Search for some seconds, or until an input fails."""
    found, crashes = FOUND / name, FOUND / "crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    before, crashes_before = set(found.iterdir()), set(crashes.iterdir())
    with TemporaryDirectory() as directory:
        write_files(Path(directory), inputs(name))
        limits = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={_MEMORY_MB}"]
        options = [*limits, f"-artifact_prefix={crashes}/{name}-", "-print_final_stats=1", str(found), directory]
        command = [sys.executable, "-m", "tests.fuzz.process", name, *options]
        done = subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    new_crashes = sorted(set(crashes.iterdir()) - crashes_before)
    if done.returncode and not new_crashes:
        raise SystemExit(f"{name}: the search has failed\n{done.stdout}")
    executions = [*_EXECUTIONS.findall(done.stdout), *_PROGRESS.findall(done.stdout)]
    edges = _COVERAGE.findall(done.stdout)
    return Result(
        executions=max(map(int, executions), default=0),
        edges=int(edges[-1]) if edges else 0,
        found=len(set(found.iterdir()) - before),
        crash=new_crashes[0] if new_crashes else None,
        output=done.stdout,
    )


def main(seconds: int, names: list[str]) -> int:
    """Search in each target, print the table, and return the exit code."""
    print(_ROW.format("target", "executions", "edges", "new inputs", "crashes"))
    crashes: list[tuple[str, Result]] = []
    for name in names:
        result = search(name, max(1, seconds // len(names)))
        row = name, f"{result.executions:,}", f"{result.edges:,}", result.found, int(result.crash is not None)
        print(_ROW.format(*row), flush=True)
        if result.crash is not None:
            crashes.append((name, result))
    for name, result in crashes:
        print(f"\n{result.output[-3_000:]}\nTo repeat it: {sys.executable} -m tests.fuzz.process {name} {result.crash}")
    return 1 if crashes else 0


if __name__ == "__main__":
    unknown = [each for each in sys.argv[2:] if each not in TARGETS]
    if unknown:
        sys.exit(f"target={unknown[0]}: expected one of {', '.join(TARGETS)}")
    sys.exit(main(int(sys.argv[1]), sys.argv[2:] or [*TARGETS]))
