"""The inputs that are kept: one text file per target in `corpus/`, with one input in hexadecimal digits per line.

    python -m tests.fuzz.corpus

adds what `make fuzz` has found, if it reaches code that seeds and kept inputs do not reach, smallest inputs first, up
to `MAX_BYTES` per target. Needs atheris.
"""

import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.targets import TARGETS

FOLDER = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parents[2] / ".fuzz"
"""Where `make fuzz` keeps what it finds, in a directory per target. Not part of the repository."""

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


def keep_found(name: str) -> int:
    """Add inputs to the file of a target, and return their number."""
    if not (FOUND / name).exists():
        return 0
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        write_files(folder, inputs(name))
        before = {path.name for path in folder.iterdir()}
        command = [sys.executable, "-m", "tests.fuzz.process", name, "-merge=1", directory, str(FOUND / name)]
        subprocess.run(command, check=True, capture_output=True)
        found = sorted((path.read_bytes() for path in folder.iterdir() if path.name not in before), key=len)
    size_bytes, added = sum(map(len, kept(name))), 0
    with (FOLDER / f"{name}.txt").open("a") as file:
        for content in found:
            size_bytes += len(content)
            if size_bytes > MAX_BYTES:
                break
            file.write(f"{content.hex()}\n")
            added += 1
    return added


if __name__ == "__main__":
    for target in TARGETS:
        print(f"{target}: {keep_found(target)} inputs added")
