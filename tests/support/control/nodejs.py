"""Runs Node.js and shell recipes. The packages are installed on first use, in the versions of package-lock.json."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import programs

FOLDER = Path(__file__).parent / "node"
_INSTALL_S = 300


def node_modules() -> Path:
    """Return the folder `node_modules`; install the packages first if package-lock.json has changed."""
    programs.require("node", "npm")
    modules, lock = FOLDER / "node_modules", FOLDER / "package-lock.json"
    stamp = modules / ".installed"
    # One of several test processes installs the packages; the others wait for the lock.
    with lock.open() as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != lock.read_text():
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
            if done.returncode:
                pytest.fail(f"{' '.join(command)} in {FOLDER}:\n{done.stderr}")
            stamp.write_text(lock.read_text())
    return modules


def run(command: list[str], folder: Path, timeout_s: float, **environment: str) -> str:
    """Run a program in a folder; return its stdout. Fails if it exits with an error."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1", **environment},
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout
