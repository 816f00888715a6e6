"""Option types shared by `replay`, `report` and `compare`."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path)

master_option = click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark master URL.")
