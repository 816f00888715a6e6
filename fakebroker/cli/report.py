"""`fakebroker report`: the summary and report of a finished run, recomputed."""

from pathlib import Path

import click

from fakebroker.cli.run_options import PATH, master_option


@click.command()
@click.argument("directory", type=PATH)
@master_option
def report(directory: Path, master: str) -> int:
    """Recompute the summary and report of a run.

    DIRECTORY is the directory of the run.
    """
    from fakebroker.replay import commands

    return commands.report(directory, master)
