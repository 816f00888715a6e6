"""The files in the directory of a run: their names, writers and readers."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec
import pyarrow.parquet as pq

from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.replay.run_summary import SUMMARY_VERSION, Head, Summary, document_of, summary_of
from fakebroker.replay.spark.interruption import at_quit

EVENTS, MEMBERS, HEAD, WORKLOAD = "events.parquet", "members.parquet", "head.json", "workload.toml"
SUMMARY, REPORT, VIOLATIONS = "summary.json", "report.html", "violations.parquet"

_FILES = {
    REPORT: "the report with charts, as one HTML page",
    SUMMARY: "all numbers and the verdict",
    HEAD: "settings of the run that are not in its events",
    VIOLATIONS: "all violations of promises, one row each",
    EVENTS: "the requests, one row each",
    MEMBERS: "the members' scripts, one row each",
    WORKLOAD: "a copy of the workload",
    "spark.log": "Spark's log",
    "cluster.log": "the embedded cluster's log",
}
"""Descriptions of the files, shown in reports."""


RUN = (EVENTS, MEMBERS, HEAD, SUMMARY, REPORT, VIOLATIONS)
"""Files that the directory of a new run must not contain."""


_RUNNING = "running"
"""A file that a run has in its directory while it runs, with the process id and the host."""


@contextmanager
def new_directory(out: Path | None, name: str, files: Sequence[str] = RUN) -> Iterator[Path]:
    """Create the directory for the results. Within the context, no other run can use it.

    Args:
        out: Its path, if the user gave one.
        name: The workload's name, for the default path.
        files: Files that it must not contain.

    Raises:
        ConfigError: The path is not a directory, or the directory contains a run, which may not have ended.
        FakebrokerError: The directory cannot be created.
    """
    directory = out or Path("runs")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if out is None:
            directory = _unused(directory / f"{name}-{datetime.now():%Y%m%d-%H%M%S}")
    except (FileExistsError, NotADirectoryError):
        raise ConfigError.of("--out", str(directory), "a directory, or a path where one can be created") from None
    except OSError as error:
        raise FakebrokerError(f"{directory}: cannot be written: {error.strerror}") from None
    running = directory / _RUNNING
    try:
        # Exclusive creation also works on the network file systems that the nodes of a Spark cluster share.
        with running.open("x", encoding="utf-8") as opened:
            opened.write(f"{os.getpid()} {gethostname()}\n")
    except FileExistsError:
        expected = f"a directory without a run; this one contains {_RUNNING}: its run has not ended, or was killed"
        raise ConfigError.of("--out", str(directory), expected) from None
    except OSError as error:
        raise FakebrokerError(f"{running}: cannot be written: {error.strerror}") from None
    try:
        for taken in files:
            if (directory / taken).exists():
                raise ConfigError.of("--out", str(directory), f"a directory without a run; this one contains {taken}")
        with at_quit(lambda: running.unlink(missing_ok=True)):
            yield directory
    finally:
        running.unlink(missing_ok=True)


def check_ended(directory: Path) -> None:
    """Check that the run in a directory has ended or was killed, as far as this can be said on this host.

    Raises:
        ConfigError: The process of the run is alive.
    """
    running = directory / _RUNNING
    try:
        pid, host = running.read_text(encoding="utf-8").split()
        if host != gethostname():
            return
        os.kill(int(pid), 0)
    except (OSError, ValueError):  # there is no such file or process
        return
    expected = f"a run that has ended; according to its file {_RUNNING}, process {pid} runs it; if not, remove the file"
    raise ConfigError.of("directory", str(directory), expected)


def _unused(directory: Path) -> Path:
    """Create a directory, with a number after its name if it exists, and return its path."""
    for path in chain([directory], (directory.with_name(f"{directory.name}-{number}") for number in count(2))):
        with suppress(FileExistsError):
            path.mkdir()
            break
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an `OSError` within the context to a `FakebrokerError` that names the file.

    Raises:
        FakebrokerError: The file cannot be written, for example because the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise FakebrokerError(f"{path}: cannot be written: {error.strerror}") from None


def copy_workload(file: Path, directory: Path) -> None:
    """Copy the workload into the directory, unless `file` is already this copy."""
    copy = directory / WORKLOAD
    with writing(copy):
        if not (copy.exists() and copy.samefile(file)):
            shutil.copyfile(file, copy)


def write_head(directory: Path, head: Head) -> None:
    """Write `head.json`."""
    with writing(directory / HEAD):
        (directory / HEAD).write_text(json_text(msgspec.to_builtins(head)), encoding="utf-8")


def recorded_events(directory: Path) -> int:
    """Return the number of rows in the recorded events of a run, without reading them."""
    return sum(pq.read_metadata(file).num_rows for file in (directory / EVENTS).glob("*.parquet"))


def page(summary: Summary) -> str:
    """Return the report of a run as an HTML page."""
    from fakebroker.replay.report import html  # not at the top: importing matplotlib takes half a second

    return html.page(summary)


def write_results(directory: Path, summary: Summary) -> Summary:
    """Write `summary.json` and `report.html`.

    Returns:
        The summary with the directory and its files.
    """
    written = {REPORT, SUMMARY}
    files = {name: what for name, what in _FILES.items() if name in written or (directory / name).exists()}
    complete = msgspec.structs.replace(summary, directory=str(directory), files=files)
    for name, text in (
        (SUMMARY, json_text(document_of(complete))),
        (REPORT, page(complete)),
    ):
        with writing(directory / name):
            (directory / name).write_text(text, encoding="utf-8")
    return complete


def json_text(document: Mapping[str, Any]) -> str:
    """Return the text of a JSON file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_summary(directory: Path) -> Summary:
    """Return the summary of a run.

    Raises:
        ConfigError: There is no summary, or its version is another.
    """
    path = directory / SUMMARY
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{directory}: expected the directory of a run: {path.name}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: expected JSON: {error}") from None
    version = document.get("version") if isinstance(document, dict) else None
    if version != SUMMARY_VERSION:
        raise ConfigError(
            f"{path} has format {version}, and this fakebroker compares format {SUMMARY_VERSION}: "
            f"`fakebroker report {directory}` recomputes it"
        )
    try:
        return summary_of(document)
    except ConfigError as error:
        mistake = error.mistakes[0]
        raise ConfigError(f"{path}: {mistake}; `fakebroker report {directory}` recomputes it") from None
