"""Options that several subcommands about runs share."""

from pathlib import Path
from typing import Annotated

import typer

MASTER = Annotated[str, typer.Option(help="Spark master.")]
RUN = Annotated[Path, typer.Argument(help="The directory of a run.", show_default=False)]
