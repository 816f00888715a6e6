"""The transcripts, and playing one of them from its text."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fakebroker.errors import ConfigError
from tests.transcripts.grounds import Ground
from tests.transcripts.language import Transcript, TranscriptError, parse
from tests.transcripts.play import play

FOLDER = Path(__file__).parents[2] / "scenarios" / "transcripts"


def transcript_files(folder: Path = FOLDER) -> list[Path]:
    """All transcripts, by name."""
    return sorted(folder.glob("*.txt"))


def readme(folder: Path = FOLDER) -> Path:
    """The page that explains the language."""
    return folder / "README.md"


def replay(text: str, name: str, ground: Callable[[Transcript], Ground]) -> str:
    """Play a transcript on a new ground of a kind, and give the text that it should have.

    Raises:
        TranscriptError: It cannot be understood or done.
    """
    transcript = parse(text, name)
    try:
        with closing(ground(transcript)) as stage:
            return play(transcript, stage)
    except ConfigError as error:
        raise TranscriptError(f"{name}: {error}") from error


def example(page: str) -> str:
    """The example in the page that explains the language: its first block of code."""
    match = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert match is not None, "the page shows no example"
    return match[1]
