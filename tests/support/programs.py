"""The programs that tests run. A test is skipped if one of its programs is missing.

A test names its programs by the mark `needs`, a fixture by `require`. With the environment variable
`FAKEBROKER_REQUIRE_PROGRAMS=1`, a missing program is a failure. `python3 -m tests.support.programs` prints the Debian
packages of all missing programs. This module imports no installed package, because `.ci/run` calls it before any is
installed.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REQUIRED = "FAKEBROKER_REQUIRE_PROGRAMS"
"""Environment variable: "1" if a missing program is a failure."""

_OLDEST_JAVA = 17
_OLDEST_GO = (1, 24)
_REASON = "missing programs: "


@functools.cache
def _is_new_java(path: str) -> bool:
    """Return whether a Java is new enough for Kafka's brokers."""
    reported = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', reported)
    return found is not None and int(found[1]) >= _OLDEST_JAVA


@functools.cache
def _is_new_go(path: str) -> bool:
    """Return whether a Go is new enough for the Go clients of the tests."""
    reported = subprocess.run([path, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", reported)
    return found is not None and (int(found[1]), int(found[2])) >= _OLDEST_GO


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        packages: The Debian packages that it needs, separated by spaces.
        commands: Names of its executable file; the first one that exists is used. Without any, its name in `PROGRAMS`.
        is_usable: Whether the executable file with this path will do.
    """

    packages: str
    commands: tuple[str, ...] = ()
    is_usable: Callable[[str], bool] = lambda path: True


PROGRAMS = {
    "bash": Program("bash"),
    "cc": Program("gcc libc6-dev", ("cc", "gcc", "clang")),
    "chromium": Program("chromium", ("chromium", "chromium-browser", "google-chrome")),
    "curl": Program("curl"),
    "go": Program("golang-go", is_usable=_is_new_go),
    "java": Program("default-jre-headless", is_usable=_is_new_java),
    "javac": Program("default-jdk-headless"),
    "jq": Program("jq"),
    "make": Program("make"),
    "mount": Program("mount"),
    "mvn": Program("maven"),
    "node": Program("nodejs"),
    "npm": Program("npm"),
    "openssl": Program("openssl"),
    "ps": Program("procps"),
    "unshare": Program("util-linux"),
}


def find(name: str) -> str | None:
    """Return the path of a program of `PROGRAMS`; None if it is missing."""
    program = PROGRAMS[name]
    paths = (shutil.which(command) for command in program.commands or (name,))
    return next((path for path in paths if path is not None and program.is_usable(path)), None)


def require(*names: str) -> None:
    """Skip the running test if one of these programs is missing, or fail it if `FAKEBROKER_REQUIRE_PROGRAMS` is 1."""
    missing = [name for name in names if find(name) is None]
    if not missing:
        return
    import pytest

    reason = _REASON + ", ".join(missing)
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason} ({_installation(missing)})", pytrace=False)
    pytest.skip(reason)


def summary(skipped: "Iterable[pytest.TestReport]") -> str | None:
    """Return a line about the tests that were skipped because of missing programs; None if there are none.

    Args:
        skipped: The reports of all skipped tests. With pytest-xdist, worker processes send them to the main process.
    """
    tests, missing = set[str](), set[str]()
    for report in skipped:
        # The `longrepr` of a skipped test is its file, line and reason. Notes of the exception are on further lines.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if found := re.search(f"{_REASON}(.+)", reason):
            tests.add(report.nodeid)
            missing.update(found[1].split(", "))
    if not tests:
        return None
    programs = ", ".join(f"no {name}" for name in sorted(missing))
    return f"skipped {len(tests)} {'test' if len(tests) == 1 else 'tests'}: {programs} ({_installation(missing)})"


def _installation(names: Iterable[str]) -> str:
    return f"Debian: apt-get install {_packages(names)}"


def _packages(names: Iterable[str]) -> str:
    return " ".join(PROGRAMS[name].packages for name in sorted(names))


if __name__ == "__main__":
    print(_packages(name for name in PROGRAMS if find(name) is None))
