"""Folders that survive test runs, such as downloaded jars and compiled programs."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached_folder(name: str, contents: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder below `XDG_CACHE_HOME`; fill it first, unless that has been done.

    One of several test processes fills the folder; the others wait for a lock.

    Args:
        name: The beginning of its name.
        contents: All that decides what is in the folder. Other contents are in another folder.
        fill: Fills an empty folder. An incomplete folder is removed if it fails, and never used.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fakebroker"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{name}-{hashlib.sha256(contents.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    with (cache / f"{name}.lock").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                filled = Path(scratch) / "filled"
                filled.mkdir()
                fill(filled)
                filled.rename(folder)
    return folder
