"""The command line: options in, one sentence out when something is wrong."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from fakebroker import __version__
from fakebroker.control.extra import check_installed
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.open_files import allow_all
from fakebroker.server.clock import Scaled
from fakebroker.server.events import event_of, perform
from fakebroker.server.fake_cluster import KAFKA_DEFAULTS, FakeCluster

app = typer.Typer(
    help="A fake Kafka cluster for everything that has to do with group coordination.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
    """What stands before the command."""


@app.command()
def serve(
    brokers: Annotated[int, typer.Option(help="How many brokers; their node ids are 1, 2, 3 ...")] = 3,
    port: Annotated[int, typer.Option(help="Port of the first broker, the others follow; 0 takes free ones.")] = 9092,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME:PARTITIONS", help="A topic to start with; as often as needed.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting by Kafka's name; as often as needed.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertised_host: Annotated[str | None, typer.Option(help="Host that clients are told.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes ids repeat.")] = None,
    as_version: Annotated[
        str | None,
        typer.Option(metavar="RELEASE", help="The release of Kafka to pass for, such as 2.8."),
    ] = None,
    speed: Annotated[float, typer.Option(help="How many times as fast as real time the brokers' clock runs.")] = 1.0,
    proposal: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What no Kafka has, such as batch-join; as often as needed."),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help='Do what comes on stdin, a JSON object a line: {"do": "stop_broker", ...}')
    ] = False,
    until_stdin_ends: Annotated[
        bool, typer.Option("--until-stdin-ends", help="Stop when stdin ends, as it does when who started this is gone.")
    ] = False,
    control: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Let it be controlled and watched over HTTP; port 0 is any.")
    ] = None,
    control_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="FAKEBROKER_CONTROL_TOKEN",
            help="What callers have to show; made if it is not given and others than this machine can ask. The "
            "variable is the better place: options stand in the list of processes for all to see.",
        ),
    ] = None,
) -> None:
    """Run a fake cluster until SIGINT or SIGTERM."""
    control_address = None if control is None else _address(control)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    cluster = FakeCluster(
        brokers,
        dict(_topic(text) for text in topic or []),
        {**KAFKA_DEFAULTS, **dict(_setting(text) for text in config or [])},
        seed,
        as_version=as_version,
        clock="real" if speed == 1 else Scaled(speed),
        proposals=proposal or (),
        host=host,
        port=port,
        advertised_host=advertised_host,
    )
    allow_all()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with cluster:
        print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
        logging.getLogger("fakebroker").info("serving with seed %d", cluster.seed)
        if events or until_stdin_ends:
            follow = (cluster if events else None, until_stdin_ends)
            threading.Thread(target=_follow_stdin, args=follow, name="stdin", daemon=True).start()
        with _controlled(cluster, control_address, control_token):
            signal.sigwait(ends)


MASTER = Annotated[str, typer.Option(help="Spark master.")]
RUN = Annotated[Path, typer.Argument(help="The directory of a run.", show_default=False)]


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="The workload, a TOML file.")],
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a cluster; without it, an embedded one.")] = None,
    transport: Annotated[
        Literal["tcp", "memory"], typer.Option(help="Over TCP, or simulated in a time of its own.")
    ] = "tcp",
    record: Annotated[
        Literal["all", "changes"] | None,
        typer.Option(help="A row a request, or one for many heartbeats that change nothing; the latter in memory."),
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(min=1, help="Connections per task and broker; without it, one per member.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Spark tasks; without it, as many as run at once.")] = None,
    master: MASTER = "local[*]",
    out: Annotated[Path | None, typer.Option(help="Directory for the results; else runs/WORKLOAD-TIME.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the workload repeat.")] = None,
) -> None:
    """Play a workload with Spark and report what the coordinators did.

    Status 0: every promise was kept and every expectation met; 3: one was not; 2: a file or an option is wrong; 1:
    anything else went wrong; 130: it was interrupted.
    """
    from fakebroker.replay import commands  # the base install has no Spark
    from fakebroker.replay.options import ReplayOptions

    options = ReplayOptions(
        file=file,
        bootstrap=bootstrap,
        transport=transport,
        record=record,
        lanes=lanes,
        tasks=tasks,
        master=master,
        out=out,
        seed=seed,
    )
    raise typer.Exit(commands.replay(options))


@app.command()
def report(directory: RUN, master: MASTER = "local[*]") -> None:
    """Work the summary and the report of a run out anew."""
    from fakebroker.replay import commands

    raise typer.Exit(commands.report(directory, master))


@app.command()
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


@app.command()
def top(
    control: Annotated[
        str, typer.Option(metavar="URL", help="Where `serve --control` listens.")
    ] = "http://127.0.0.1:9644",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="Which of its clusters.")] = "default",
    token: Annotated[
        str | None, typer.Option(envvar="FAKEBROKER_CONTROL_TOKEN", help="What the control API wants to be shown.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and print that, as without a terminal.")] = False,
) -> None:
    """Watch a cluster that another process serves: brokers, groups, requests and what happens."""
    try:
        from fakebroker.control.top.screen import watch  # the base install has nothing to draw with
    except ImportError:
        raise ConfigError("top needs the extra 'control': pip install 'fakebroker[control]'") from None
    watch(control, cluster, token, every_s=every, once=once)


@contextmanager
def _controlled(cluster: FakeCluster, address: tuple[str, int] | None, token: str | None) -> Iterator[None]:
    """Serve HTTP control of a cluster meanwhile, if that is wanted."""
    if address is None:
        yield
        return
    from fakebroker.control.server import ControlServer  # the base install has no HTTP server

    with ControlServer(cluster, *address, token) as server:
        if server.has_made_token:  # Before the address: who reads that can have the token.
            print(f"control token={server.token}", file=sys.stderr, flush=True)
        print(f"control={server.url}", flush=True)
        yield


def _address(text: str) -> tuple[str, int]:
    """Where control is to listen; what that needs is installed.

    Raises:
        ConfigError: The text is no address, or the extra is missing.
    """
    check_installed()
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--control {text}: expected HOST:PORT, such as 127.0.0.1:9644")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _follow_stdin(cluster: FakeCluster | None, is_the_end: bool) -> None:
    """Do the events that come, one after the other, to the cluster; its end may be that of the process."""
    for line in sys.stdin:
        if cluster is not None:
            _perform(cluster, line)
    if is_the_end:
        os.kill(os.getpid(), signal.SIGTERM)


def _perform(cluster: FakeCluster, event: str) -> None:
    """Do an event; what cannot be done is logged, and keeps nothing from the next one."""
    log = logging.getLogger("fakebroker")
    try:
        perform(cluster, event_of(event))
    except FakebrokerError as error:
        log.warning("event not done: %s", error)
    except Exception as error:
        # What is in a list or a table is looked at by the event's method alone, and not by each of them.
        log.warning("event not done: %r", error, exc_info=True)
    else:
        log.info("event done: %s", event.strip())


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.rpartition(":")
    if not colon or not partitions.isdecimal():
        raise ConfigError(f"--topic {text}: expected NAME:PARTITIONS, such as orders:6")
    return name, int(partitions)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--config {text}: expected KEY=VALUE, such as group.max.size=100")
    return name, value


def main() -> None:
    """The console script."""
    try:
        app()
    except FakebrokerError as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        sys.exit(1)
