"""Regenerate the expected results in transcripts, by running them on the core: part of `make rewrite`."""

from pathlib import Path

from fakebroker.conform.transcript import transcript_files
from tests.support.transcripts.files import FOLDER, example, readme, run_transcript


def rewrite(folder: Path) -> None:
    """Regenerate every transcript of a folder, and the example in its README."""
    for path in transcript_files(folder):
        path.write_text(run_transcript(path.read_text(), path.name))
    page = readme(folder)
    shown = example(page.read_text())
    page.write_text(page.read_text().replace(shown, run_transcript(shown, page.name)))


if __name__ == "__main__":
    rewrite(FOLDER)
