"""Runs a process in a pseudo-terminal and emulates its screen."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyte
import pytest

TIMEOUT_S = 60
"""Timeout of waits; only reached if something is broken."""


class Terminal:
    """A process in a terminal. As a context manager, it kills the process at the end.

    Args:
        command: The command with its arguments.
        columns, lines: The size of the terminal.
        environment: Additional environment variables.
    """

    def __init__(self, command: list[str], columns: int, lines: int, **environment: str) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._raw = b""
        self._fd, inner = pty.openpty()
        self._size = inner
        self.resize(columns, lines)
        self.modes = termios.tcgetattr(inner)
        # Some shells and pytest's worker processes export the size of another terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._size)
        os.close(self._fd)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without trailing spaces."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_restored(self) -> bool:
        """Whether the process has restored the terminal: its modes, the normal screen, the cursor."""
        return (
            termios.tcgetattr(self._size) == self.modes
            and self._raw.rfind(b"\x1b[?1049l") > self._raw.rfind(b"\x1b[?1049h")
            and not self.screen.cursor.hidden
        )

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._size, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def wait_until(self, description: str, holds: Callable[[str], bool]) -> str:
        """Wait until the text of the screen meets a condition; return the text."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not holds(self.text):
            if not self._read() and self.process.poll() is not None and not self._read():
                if holds(self.text):
                    break
                pytest.fail(f"never seen: {description}; the process has ended, its screen:\n{self.text}")
            if time.monotonic() > deadline_s:
                pytest.fail(f"never seen: {description}; the screen:\n{self.text}")
        return self.text

    def wait_for(self, *parts: str) -> str:
        """Wait until the screen contains all of these texts; return its text."""
        return self.wait_until(f"{parts}", lambda text: all(part in text for part in parts))

    def wait_for_end(self, part: str) -> str:
        """Wait until the last line of the screen ends with a text; return the text of the screen."""
        return self.wait_until(part, lambda text: text.endswith(part))

    def exit_code(self) -> int:
        """Wait until the process exits; return its exit code."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            self._read()
            assert time.monotonic() < deadline_s, f"the process does not exit; the screen:\n{self.text}"
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Read output of the process for up to 50 ms; return whether there was any."""
        ready, _, _ = select.select([self._fd], [], [], 0.05)
        if ready:
            written = os.read(self._fd, 65536)
            self._raw += written
            self._stream.feed(written)
        return bool(ready)
