"""A real `fakebroker serve --control` in a process of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

PATIENCE_S = 60
"""How long a test waits for what must come; only something broken makes it wait so long."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A process that serves.

    Attributes:
        process: The process.
        bootstrap_servers: Where its brokers are.
        control: Where its control API is, a URL.
        log: What it says beside that.
    """

    process: "subprocess.Popen[str]"
    bootstrap_servers: str
    control: str
    log: IO[str]


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[Serving]:
    """Let a process serve until the end of the block, with these arguments beside those for free ports."""
    command = [sys.executable, "-m", "fakebroker", "serve", "--port", "0", "--control", "127.0.0.1:0", *arguments]
    with (
        tempfile.TemporaryFile("a+") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}
        ) as process,
    ):
        try:
            yield Serving(process, _told(process, "bootstrap.servers", log), _told(process, "control", log), log)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _told(process: "subprocess.Popen[str]", name: str, log: IO[str]) -> str:
    """What the next line of the process tells under a name."""
    assert process.stdout is not None
    line = process.stdout.readline()
    key, equals, value = line.strip().partition("=")
    log.seek(0)
    assert (key, equals) == (name, "="), f"{name}=... expected, but {line!r} came; its log is\n{log.read()}"
    return value
