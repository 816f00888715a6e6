"""`fakebroker compare`: two runs and the differences that exceed noise."""

from pathlib import Path
from typing import Annotated

import typer

from fakebroker.cli.run_options import RUN


def compare(
    before: RUN,
    after: RUN,
    again: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A run that repeats BEFORE, to tell noise; any number."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures, too.")] = None,
) -> None:
    """Put two runs side by side and mark the differences that exceed noise."""
    from fakebroker.replay import commands

    raise typer.Exit(commands.compare(before, after, again or [], html))
