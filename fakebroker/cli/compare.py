"""`fakebroker compare`: compare two runs."""

from pathlib import Path

import click

from fakebroker.cli.run_options import PATH


@click.command()
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
@click.option(
    "--again",
    metavar="DIRECTORY",
    type=PATH,
    multiple=True,
    help="A repeat of BEFORE, to estimate noise: a simulation with another seed, or one more run over TCP. Repeatable.",
)
@click.option(
    "--again-after",
    metavar="DIRECTORY",
    type=PATH,
    multiple=True,
    help="A repeat of AFTER. With --again, at least two repeats show the noise.",
)
@click.option("--html", metavar="FILE", type=PATH, help="Also write an HTML page with charts of both runs.")
def compare(
    before: Path, after: Path, again: tuple[Path, ...], again_after: tuple[Path, ...], html: Path | None
) -> int:
    """Compare two runs: outcomes that changed, and figures that differ by more than noise.

    BEFORE and AFTER are directories with the results of `fakebroker replay`.

    \b
    Exit status:
      0    the verdict on AFTER is passed, or as on BEFORE and no outcome is worse
      1    the comparison could not be completed
      2    a directory or an option is invalid
      3    the verdict on AFTER is failed, and BEFORE has not failed or an outcome is worse
      4    as 3, but the verdict on AFTER is inconclusive
    """
    from fakebroker.replay import commands

    return commands.compare(before, after, again, again_after, html)  # the exit status
