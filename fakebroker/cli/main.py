"""The console script: subcommands, and errors as one line on stderr."""

import sys
from typing import Annotated

import typer

from fakebroker import __version__
from fakebroker.cli.compare import compare
from fakebroker.cli.replay import replay
from fakebroker.cli.report import report
from fakebroker.cli.serve import serve
from fakebroker.cli.top import top
from fakebroker.errors import FakebrokerError

app = typer.Typer(
    help="A fake Kafka cluster for everything that has to do with group coordination.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (serve, replay, report, compare, top):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fakebroker {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before the subcommand."""


def main() -> None:
    """Run the command line; exit status 1 and one line on stderr if something is wrong."""
    try:
        app()
    except FakebrokerError as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        sys.exit(1)
