"""Plays random histories with designs, and keeps the shortest ones that break an invariant."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from fakebroker.lab.designs import DESIGNS, design_named
from fakebroker.lab.history.search import breaking_histories, shortened
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.replay.options import FAILED, PASSED
from fakebroker.replay.report.terminal import table
from fakebroker.replay.run_directory import new_directory, writing
from fakebroker.replay.wording import counted


def search_histories(designs: Sequence[str], count: int, seed: int, out: Path | None) -> int:
    """Play random histories, print which invariants are broken, and write one short history for each.

    Args:
        designs: Names of designs; all designs if empty.
        count: Number of histories of each design.
        seed: The seed of the first history; the others follow.
        out: Directory for the histories; `runs/histories-<time>` if not given.

    Returns:
        `PASSED`, or `FAILED` if a design breaks an invariant that it promises.

    Raises:
        ConfigError: A design does not exist, or the directory is not valid.
    """
    console = Console()
    names = designs or DESIGNS
    guarantees = {name: design_named(name).guarantees for name in names}
    files = tuple(f"{name}-{invariant}.txt" for name in names for invariant in INVARIANTS)
    rows, is_broken = table("design", "breaks", "promised", "file", left=4), False
    with new_directory(out, "histories", files) as directory:
        for name in names:
            found = breaking_histories(name, track(range(seed, seed + count), f"{name:10}", console=console))
            for invariant, history in found.items():
                path = directory / f"{name}-{invariant}.txt"
                with writing(path):
                    path.write_text(shortened(history).text(), encoding="utf-8")
                promised = invariant in guarantees[name]
                is_broken = is_broken or promised
                rows.add_row(name, invariant, "yes" if promised else "no", path.name)
            if not found:
                rows.add_row(name, "nothing", "", "")
    console.print()
    console.print(rows)
    console.print(f"\n{counted(count, 'run')} of each design, from seed {seed}. Files in {directory}", highlight=False)
    return FAILED if is_broken else PASSED
