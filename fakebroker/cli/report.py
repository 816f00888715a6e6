"""`fakebroker report`: the summary and report of a finished run, recomputed."""

import typer

from fakebroker.cli.run_options import MASTER, RUN


def report(directory: RUN, master: MASTER = "local[*]") -> None:
    """Work the summary and the report of a run out anew."""
    from fakebroker.replay import commands

    raise typer.Exit(commands.report(directory, master))
