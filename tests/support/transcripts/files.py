"""The files of transcripts, and running a transcript from its text."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fakebroker.errors import ConfigError
from tests.support.transcripts.parser import Transcript, TranscriptError, parse
from tests.support.transcripts.player import play
from tests.support.transcripts.targets import Target

FOLDER = Path(__file__).parents[3] / "scenarios" / "transcripts"


def transcript_files(folder: Path = FOLDER) -> list[Path]:
    """Return the files of all transcripts, ordered by name."""
    return sorted(folder.glob("*.txt"))


def readme(folder: Path = FOLDER) -> Path:
    """Return the file that describes the format."""
    return folder / "README.md"


def run_transcript(text: str, name: str, target: Callable[[Transcript], Target]) -> str:
    """Run a transcript on a new target, and return the text with the actual results.

    Raises:
        TranscriptError: The transcript cannot be parsed or run.
    """
    transcript = parse(text, name)
    try:
        with closing(target(transcript)) as cluster:
            return play(transcript, cluster)
    except ConfigError as error:
        raise TranscriptError(f"{name}: {error}") from error


def example(page: str) -> str:
    """Return the example in the README, its first code block."""
    match = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert match is not None, "the README has no example"
    return match[1]
