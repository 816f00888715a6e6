"""Plays transcripts on fake clusters."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fakebroker.conform.player import finish, results_of
from fakebroker.conform.transcript import Results, Transcript, TranscriptError, folder, parse
from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.transcripts.targets import CoreTarget, TcpTarget

FOLDER = folder()

FakeTarget = Callable[[Transcript, str | None], CoreTarget | TcpTarget]


def readme(folder: Path = FOLDER) -> Path:
    """Return the file that describes the format."""
    return folder / "README.md"


def play_on_fake(transcript: Transcript, target: FakeTarget, release: Release = NEWEST) -> list[Results]:
    """Play a transcript on a new fake cluster that emulates a release, unless the transcript is for another.

    Raises:
        TranscriptError: The transcript cannot be played.
    """
    try:
        with closing(target(transcript, None if release == NEWEST else str(release))) as cluster:
            return finish(results_of(transcript, cluster, release))
    except ConfigError as error:
        raise TranscriptError(f"{transcript.name}.txt: {error}") from error


def run_transcript(text: str, name: str, target: FakeTarget = CoreTarget) -> str:
    """Play a transcript, and return its text with the actual results.

    The core plays it on all releases that it has results for; other targets, which take longer, on the newest one.

    Raises:
        TranscriptError: The transcript cannot be parsed or played.
    """
    transcript = parse(text, name)
    results = {each: transcript.expected(each) for each in transcript.releases}
    for each in transcript.releases if target is CoreTarget else transcript.releases[-1:]:
        results[each] = play_on_fake(transcript, target, each)
    return transcript.text(results)


def example(page: str) -> str:
    """Return the example in the README, its first code block."""
    match = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert match is not None, "the README has no example"
    return match[1]
