"""Writes what transcripts expect anew, from what the core really does: `make rewrite`, then read the diff."""

from pathlib import Path

from tests.transcripts.files import FOLDER, example, readme, replay, transcript_files
from tests.transcripts.grounds import Core


def rewrite(folder: Path) -> None:
    """Rewrite every transcript of a folder, and the example in the page that explains them."""
    for path in transcript_files(folder):
        path.write_text(replay(path.read_text(), path.name, Core))
    page = readme(folder)
    shown = example(page.read_text())
    page.write_text(page.read_text().replace(shown, replay(shown, page.name, Core)))


if __name__ == "__main__":
    rewrite(FOLDER)
