"""`fakebroker conform`: compare a Kafka cluster with the transcripts of this package."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fakebroker.cli.run_options import PATH
from fakebroker.errors import ConfigError, FakebrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakebroker.conform.conformance import Conformance, Played
    from fakebroker.conform.transcript import Transcript
    from fakebroker.protocol.releases import Release

_DIFFERS, _NOT_COMPARED = 3, 4


@click.command()
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers of the cluster, separated by commas.")
@click.option(
    "--client-config",
    metavar="FILE",
    type=PATH,
    help="File with the security settings of clients, in the format of Kafka's tools (--command-config).",
)
@click.option(
    "--release",
    metavar="RELEASE",
    help="Expect the answers of this release of Kafka. Default: the newest one whose request versions the cluster has.",
)
@click.option(
    "--only", metavar="PATTERN", multiple=True, help="Play only transcripts such as 'failover-*'; repeatable."
)
@click.option(
    "--change-cluster",
    is_flag=True,
    help="Also play transcripts that move partitions of __consumer_offsets; they are moved back.",
)
@click.option(
    "--up-to",
    metavar="SECONDS",
    type=click.IntRange(min=0),
    default=75,
    show_default=True,
    help="Play transcripts that take up to this long.",
)
@click.option("--all", "shows_all", is_flag=True, help="Print a line for each transcript.")
@click.option("--junit", metavar="FILE", type=PATH, help="Also write the results as JUnit's XML.")
@click.option("--json", "json_file", metavar="FILE", type=PATH, help="Also write the results as JSON.")
@click.option("--list", "lists", is_flag=True, help="Print the transcripts and what each one needs, and exit.")
@click.option(
    "--print-config",
    is_flag=True,
    help="Print settings for server.properties, in sections for different transcripts, and exit.",
)
def conform(
    bootstrap: str | None,
    client_config: Path | None,
    release: str | None,
    only: tuple[str, ...],
    change_cluster: bool,
    up_to: int,
    shows_all: bool,
    junit: Path | None,
    json_file: Path | None,
    lists: bool,
    print_config: bool,
) -> int:
    """Compare a Kafka-compatible cluster with Apache Kafka.

    Plays transcripts on the cluster, and prints the answers that differ from Kafka's. The run creates topics, groups
    and transactional ids whose names begin with "conform". At the end, it removes the topics and groups; transactional
    ids expire.

    Exit status: 0 if no transcript differs, 2 for a wrong option, 3 if a transcript differs, 4 if the cluster cannot be
    reached or no transcript was compared.
    """
    from fakebroker.conform.conformance import known_release, selected

    transcripts = selected(only)
    expected = None if release is None else known_release(release)
    if lists and print_config:
        raise ConfigError("--list: expected no --print-config with it")
    if lists or print_config:
        if bootstrap is not None:
            raise ConfigError(f"--bootstrap: expected no {'--list' if lists else '--print-config'} with it")
        click.echo(_listed(transcripts, up_to) if lists else _settings(transcripts, up_to), nl=False)
        return 0
    if bootstrap is None:
        raise ConfigError("--bootstrap: expected HOST:PORT of a broker")
    for path in (junit, json_file):
        if path is not None and not path.parent.is_dir():
            raise ConfigError.of("--junit" if path == junit else "--json", str(path), "a file in a folder that exists")
    from fakebroker.client.errors import AuthenticationFailed, BrokerUnreachable
    from fakebroker.client.transport import addresses
    from fakebroker.conform import report

    addresses(bootstrap, "--bootstrap")

    try:
        results = _run(bootstrap, client_config, expected, transcripts, change_cluster, up_to)
    except (BrokerUnreachable, AuthenticationFailed) as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        return _NOT_COMPARED
    click.echo(report.text(results, shows_all=shows_all), nl=False)
    for path, written in ((junit, report.as_junit), (json_file, report.as_json)):
        if path is not None:
            try:
                path.write_text(written(results))
            except OSError as error:
                raise FakebrokerError(f"{path}: {error.strerror}") from None
    total = results.count()
    if total["differs"]:
        return _DIFFERS
    return 0 if total["same"] or total["explained"] else _NOT_COMPARED


def _run(
    bootstrap: str,
    client_config: Path | None,
    expected: "Release | None",
    transcripts: "list[Transcript]",
    changes_cluster: bool,
    longest_s: float,
) -> "Conformance":
    import trio

    from fakebroker.client.client_config import read_client_config
    from fakebroker.client.security import PLAINTEXT
    from fakebroker.conform.conformance import conform

    security = PLAINTEXT if client_config is None else read_client_config(client_config)
    progress = _Progress(len(transcripts))

    async def run() -> "Conformance":
        return await conform(
            bootstrap,
            release=expected,
            transcripts=transcripts,
            security=security,
            changes_cluster=changes_cluster,
            longest_s=longest_s,
            progress=progress.add,
            on_interrupt=progress.interrupted,
        )

    try:
        return trio.run(run)
    except* KeyboardInterrupt:
        raise click.Abort from None
    finally:
        progress.end()


class _Progress:
    """A line on stderr that counts the transcripts, if that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total, self._played, self._differ = total, 0, 0
        self._shows = sys.stderr.isatty()

    def add(self, played: "Played") -> None:
        self._played += 1
        self._differ += played.verdict == "differs"
        if self._shows:
            filled = "#" * (30 * self._played // self._total)
            differ = f", {self._differ} differ" if self._differ else ""
            print(f"\r[{filled:<30}] {self._played} of {self._total}{differ}", end="", file=sys.stderr, flush=True)

    def interrupted(self, left: "Sequence[str]") -> None:
        """Print what could not be removed."""
        for each in left:
            print(f"fakebroker: not removed from the cluster: {each}", file=sys.stderr)

    def end(self) -> None:
        if self._shows and self._played:
            print(file=sys.stderr)


def _listed(transcripts: "list[Transcript]", up_to: int) -> str:
    from fakebroker.conform.report import table
    from fakebroker.conform.requirements import needs_anywhere

    rows = [("transcript", "needs")]
    rows += [(each.name, "; ".join(needs_anywhere(each, up_to))) for each in transcripts]
    return table(rows) + "\n"


def _settings(transcripts: "list[Transcript]", up_to: int) -> str:
    from fakebroker.conform.requirements import playable_somewhere, properties, settings_groups

    return properties(settings_groups(playable_somewhere(transcripts, up_to)))
