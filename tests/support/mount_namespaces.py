"""Python scripts with file systems of their own."""

import subprocess
import sys

import pytest

from tests.support import programs


def in_mount_namespace(script: str, *mounts: str) -> subprocess.CompletedProcess[str]:
    """Run a Python script after `mount` commands, in its own mount namespace; skip the test if that is not allowed."""
    programs.require("mount", "unshare")
    if subprocess.run(["unshare", "-rm", "/bin/sh", "-c", ":"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed")
    shell = " && ".join([*(f"mount {each}" for each in mounts), 'exec "$0" -c "$1"'])
    return subprocess.run(
        ["unshare", "-rm", "/bin/sh", "-c", shell, sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
    )
