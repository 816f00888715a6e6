"""`fakebroker report`: recompute the summary and report of a run."""

from pathlib import Path

import click

from fakebroker.cli.run_options import PATH, master_option


@click.command()
@click.argument("directory", type=PATH)
@master_option
def report(directory: Path, master: str) -> int:
    """Recompute the summary and report of a run, and print the report.

    DIRECTORY contains the results of `fakebroker replay`. Exit statuses are the same as for replay.
    """
    from fakebroker.replay import commands

    return commands.report(directory, master)
