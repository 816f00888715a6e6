"""The command `fakebroker`: dispatches to the subcommands, and prints errors as one line on stderr."""

import sys

import click

from fakebroker import __version__
from fakebroker.cli.compare import compare
from fakebroker.cli.conform import conform
from fakebroker.cli.kafka import kafka
from fakebroker.cli.lab import lab
from fakebroker.cli.replay import replay
from fakebroker.cli.report import report
from fakebroker.cli.serve import serve
from fakebroker.cli.top import top
from fakebroker.errors import ConfigError, FakebrokerError


class _InOrder(click.Group):
    """Lists subcommands in the order in which they were added, instead of alphabetically."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
@click.version_option(__version__, message="fakebroker %(version)s", help="Print the version.")
def app() -> None:
    """A fake Kafka cluster for everything that has to do with group coordination."""


for command in (serve, kafka, replay, report, compare, lab, conform, top):
    app.add_command(command)


def main() -> None:
    """Run the command line, and exit with its status: 1 after an error, 2 for invalid options, 130 after SIGINT."""
    try:
        status = app(standalone_mode=False)
    except FakebrokerError as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        status = 2 if isinstance(error, ConfigError) else 1
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:  # SIGINT
        status = 130
    sys.exit(status)
