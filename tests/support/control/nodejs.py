"""Node and its packages, for the tests that need them: kafkajs, in the version that package-lock.json tells.

They are installed when the first test asks for them. Nothing is skipped where Node is missing: the test fails, and says
what is to be installed.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "node"
NEEDED = {"node": "nodejs", "npm": "npm", "curl": "curl", "jq": "jq"}
"""The programs, and the packages of Debian that have them."""

_INSTALL_S = 300


def need(*programs: str) -> None:
    """Fail if a program is missing."""
    missing = [NEEDED[program] for program in programs if shutil.which(program) is None]
    if missing:
        pytest.fail(f"this test needs {', '.join(missing)}: apt-get install {' '.join(missing)}")


def packages() -> Path:
    """The folder `node_modules`, as package-lock.json says; installed if it is not there, or another one."""
    need("node", "npm")
    modules, lock = FOLDER / "node_modules", FOLDER / "package-lock.json"
    stamp = modules / ".installed"
    # Several processes may test at once: one installs, and the others wait for it.
    with lock.open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != lock.read_text():
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
            if done.returncode:
                pytest.fail(f"{' '.join(command)} in {FOLDER}:\n{done.stderr}")
            stamp.write_text(lock.read_text())
    return modules


def run(command: list[str], folder: Path, timeout_s: float, **environment: str) -> str:
    """Run a program in a folder; gives what it prints, and fails with what it complains of."""
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
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout
