"""A terminal for tests: a process in a pseudo-terminal, and what a person sees there."""

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

PATIENCE_S = 60
"""How long a test waits for what must be seen; only something broken makes it wait so long."""


class Terminal:
    """Runs a command in a terminal. As a context manager it ends the process at the end.

    Args:
        command: What is run.
        columns, lines: The size.
        environment: What else it finds there.
    """

    def __init__(self, command: list[str], columns: int, lines: int, **environment: str) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._raw = b""
        self._fd, inner = pty.openpty()
        self._size = inner
        self.resize(columns, lines)
        self.modes = termios.tcgetattr(inner)
        # A shell that exports these, and pytest's worker processes, tell of a size that is not this terminal's.
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
        """What is seen."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal is left as it was found: its modes, its first screen, its cursor."""
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

    def wait_until(self, what: str, holds: Callable[[str], bool]) -> str:
        """Wait until what is seen is as it should be, and give that."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not holds(self.text):
            if not self._read() and self.process.poll() is not None and not self._read():
                if holds(self.text):
                    break
                pytest.fail(f"never seen: {what}; the process has ended, and what is seen is\n{self.text}")
            if time.monotonic() > give_up_s:
                pytest.fail(f"never seen: {what}, but\n{self.text}")
        return self.text

    def see(self, *parts: str) -> str:
        """Wait until all of this is to be seen."""
        return self.wait_until(f"{parts}", lambda text: all(part in text for part in parts))

    def see_at_the_end(self, part: str) -> str:
        """Wait until this is what the last line ends with."""
        return self.wait_until(part, lambda text: text.endswith(part))

    def end(self) -> int:
        """Wait for the end of the process; gives its exit code."""
        give_up_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self._read()
            assert time.monotonic() < give_up_s, f"it does not end; what is seen is\n{self.text}"
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Take in what the process has written; gives whether there was something."""
        ready, _, _ = select.select([self._fd], [], [], 0.05)
        if ready:
            written = os.read(self._fd, 65536)
            self._raw += written
            self._stream.feed(written)
        return bool(ready)
