"""Compiles the C programs of the benchmark, runs its modules, and pins processes to cores. Linux only."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import programs

SOURCES = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
SERVER_CORE, LOAD_CORE = 0, 1


def pin(core: int) -> None:
    """Pin this process to one of its cores, if it has more than one."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, {CORES[core]})


def resident_bytes(pid: int) -> int:
    """Return the memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rows_of(module: str, *arguments: object) -> list[dict[str, Any]]:
    """Run a module as a process on the first core, and return the objects that it prints, one line of JSON each."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pin(SERVER_CORE)
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def compiled(name: str, directory: Path) -> Path:
    """Compile `<name>.c` of this directory, and return the path of the program in another directory.

    Raises:
        RuntimeError: There is no C compiler, or it failed.
    """
    compiler = os.environ.get("CC") or programs.find("cc")
    if compiler is None:
        raise RuntimeError("the load generator is a C program: expected a C compiler as cc, gcc, clang or $CC")
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCES / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return program
