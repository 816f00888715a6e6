"""Commands that run `fakebroker top`."""

import os
import subprocess
import sys

from tests.support.control.serve_process import TIMEOUT_S


def top_command(url: str, *arguments: str) -> list[str]:
    """Return the command that watches the cluster at a URL."""
    return [sys.executable, "-m", "fakebroker", "top", "--control", url, *arguments]


def run_top(url: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `top` without a terminal until it exits."""
    return subprocess.run(
        top_command(url, *arguments),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
