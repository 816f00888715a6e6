"""Options of `fakebroker lab`. Does not require the extra `spark`."""

from pathlib import Path

import msgspec


class StudyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `fakebroker lab`.

    Attributes:
        files: The scenario files.
        histories: Number of random histories to play instead of running scenarios.
        placement: Compare placements of groups instead of running scenarios.
        groups: Number of groups that are placed.
        designs: Names of designs, and paths of files with designs; all designs if empty.
        seeds: Number of seeds.
        seed: The first seed; the others follow.
        scale: Factor by which the scenarios are scaled down, > 0 and <= 1; see `lab.scenario.scale`.
        tasks: Number of Spark tasks; if not given, several per core.
        master: Spark's master URL.
        out: Directory for the results; `runs/lab-<time>` if not given.
    """

    files: tuple[Path, ...]
    histories: int | None = None
    placement: bool = False
    groups: int = 100_000_000
    designs: tuple[str, ...] = ()
    seeds: int = 5
    seed: int = 1
    scale: float = 1.0
    tasks: int | None = None
    master: str = "local[*]"
    out: Path | None = None
