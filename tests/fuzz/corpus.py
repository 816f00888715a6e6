"""The inputs that are kept: one text file per target in `corpus/`, with one input in hexadecimal digits per line.

    python -m tests.fuzz.corpus [TARGET ...]

adds what `make fuzz` has found, if it reaches lines that seeds and kept inputs do not reach, smallest inputs first, up
to `MAX_BYTES` per target.
"""

import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import TARGETS

FOLDER = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parents[2] / ".fuzz"
"""Where `make fuzz` keeps what it finds, in a directory per target. Not part of the repository."""

Line = tuple[str, int]
"""A file and the number of a line."""

TraceFunction = Callable[[FrameType, str, Any], Any]

MAX_BYTES = 8_000
"""How many bytes of one target are kept, without those of former defects."""


def kept(name: str) -> list[bytes]:
    """Return the inputs of a target that are kept. Lines with `#` are comments."""
    path = FOLDER / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def inputs(name: str) -> list[bytes]:
    """Return the seeds of a target, and the inputs that are kept."""
    return [*TARGETS[name].seeds(), *kept(name)]


def write_files(folder: Path, contents: Iterable[bytes]) -> None:
    """Write each input to a file of its own, as libFuzzer names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for content in contents:
        (folder / sha256(content).hexdigest()).write_bytes(content)


def reached_lines(name: str, data: bytes) -> set[Line]:
    """Run a target with an input, and return the lines of fakebroker that it executes, without repetitions."""
    reached: set[Line] = set()

    def trace(frame: FrameType, event: str, argument: object) -> "TraceFunction | None":
        code = frame.f_code
        if "fakebroker" not in code.co_filename:
            return None
        reached.add((code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        TARGETS[name].run(data)
    finally:
        sys.settrace(before)
    return reached


def keep_found(name: str) -> int:
    """Add inputs to the file of a target, and return their number."""
    found = sorted((path.read_bytes() for path in (FOUND / name).glob("*")), key=lambda data: (len(data), data))
    size_bytes, added = sum(map(len, kept(name))), list[bytes]()
    reached = set[Line]().union(*(reached_lines(name, data) for data in inputs(name)))
    for data in found:
        if size_bytes + len(data) > MAX_BYTES:
            break
        if new := reached_lines(name, data) - reached:
            reached |= new
            size_bytes += len(data)
            added.append(data)
    if added:
        with (FOLDER / f"{name}.txt").open("a") as file:
            file.writelines(f"{data.hex()}\n" for data in added)
    return len(added)


if __name__ == "__main__":
    for target in sys.argv[1:] or TARGETS:
        print(f"{target}: {keep_found(target)} inputs added")
