"""Starts `fakebroker serve --control` as a process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

TIMEOUT_S = 60
"""Timeout of processes; only reached if something is broken."""


@dataclass(frozen=True, slots=True)
class ServeProcess:
    """A running `fakebroker serve`.

    Attributes:
        process: The process.
        bootstrap_servers: The addresses of its brokers.
        control: The URL of its control API.
        log: What it writes to stderr.
    """

    process: "subprocess.Popen[str]"
    bootstrap_servers: str
    control: str
    log: IO[str]


@contextmanager
def serve_process(*arguments: str, **environment: str) -> Iterator[ServeProcess]:
    """Run `fakebroker serve` on free ports with these additional arguments."""
    command = [sys.executable, "-m", "fakebroker", "serve", "--port", "0", "--control", "127.0.0.1:0", *arguments]
    with (
        tempfile.TemporaryFile("a+") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}
        ) as process,
    ):
        try:
            bootstrap_servers = _read_value(process, "bootstrap.servers", log)
            yield ServeProcess(process, bootstrap_servers, _read_value(process, "control", log), log)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _read_value(process: "subprocess.Popen[str]", name: str, log: IO[str]) -> str:
    """Read the next line of stdout, "<name>=<value>"; return the value."""
    assert process.stdout is not None
    line = process.stdout.readline()
    key, equals, value = line.strip().partition("=")
    log.seek(0)
    assert (key, equals) == (name, "="), f"expected {name}=..., got {line!r}; stderr:\n{log.read()}"
    return value
