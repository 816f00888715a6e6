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
    help="Another run of the same workload as BEFORE, to estimate noise; repeatable.",
)
@click.option("--html", metavar="FILE", type=PATH, help="Also write the comparison as an HTML page with charts.")
def compare(before: Path, after: Path, again: tuple[Path, ...], html: Path | None) -> int:
    """Compare two runs and mark the differences that exceed noise.

    BEFORE and AFTER are directories with the results of `fakebroker replay`.
    """
    from fakebroker.replay import commands

    return commands.compare(before, after, list(again), html)  # the exit status
