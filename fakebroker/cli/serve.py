"""`fakebroker serve`: a cluster as a process."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from fakebroker.cluster.configs.settings import KAFKA_DEFAULTS
from fakebroker.cluster.events import event_of, perform
from fakebroker.control.dependencies import check_installed
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.open_files import allow_all
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster

_YOUNG_COLLECTIONS = 1_000
"""Number of partial garbage collections before a full one, which stops the brokers for 0.7 s with 100,000 groups."""


@click.command()
@click.option("--brokers", type=int, default=3, show_default=True, help="Number of brokers; node ids are 1, 2, 3 ...")
@click.option(
    "--port",
    type=int,
    default=9092,
    show_default=True,
    help="Port of the first broker, the others follow; 0 takes free ones.",
)
@click.option("--topic", "topics", metavar="NAME:PARTITIONS", multiple=True, help="A topic to start with; repeatable.")
@click.option("--config", metavar="KEY=VALUE", multiple=True, help="A broker setting by Kafka's name; repeatable.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--advertised-host", metavar="HOST", help="Host in responses to clients.")
@click.option("--seed", type=int, help="Seed for reproducible ids.")
@click.option("--as-version", metavar="RELEASE", help="The release of Kafka to emulate, such as 2.8.")
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="How many times as fast as real time the brokers' clock runs.",
)
@click.option(
    "--proposal",
    "proposals",
    metavar="NAME",
    multiple=True,
    help="Enable an experimental protocol extension, such as batch-join; repeatable.",
)
@click.option(
    "--events",
    is_flag=True,
    help='Execute the commands on stdin, one JSON object per line: {"do": "stop_broker", ...}',
)
@click.option(
    "--until-stdin-ends", is_flag=True, help="Stop at the end of stdin, which comes when the parent process exits."
)
@click.option(
    "--control", metavar="HOST:PORT", help="Serve the HTTP control API at this address; port 0 takes a free one."
)
@click.option(
    "--control-token",
    metavar="TOKEN",
    envvar="FAKEBROKER_CONTROL_TOKEN",
    show_envvar=True,
    help="Bearer token; generated for addresses other than loopback. Prefer the variable: options are visible in "
    "the list of processes.",
)
def serve(
    brokers: int,
    port: int,
    topics: tuple[str, ...],
    config: tuple[str, ...],
    host: str,
    advertised_host: str | None,
    seed: int | None,
    as_version: str | None,
    speed: float,
    proposals: tuple[str, ...],
    events: bool,
    until_stdin_ends: bool,
    control: str | None,
    control_token: str | None,
) -> None:
    """Run a fake cluster until SIGINT or SIGTERM."""
    control_address = None if control is None else _address(control)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    cluster = FakeCluster(
        brokers,
        dict(_topic(text) for text in topics),
        {**KAFKA_DEFAULTS, **dict(_setting(text) for text in config)},
        seed,
        as_version=as_version,
        clock="real" if speed == 1 else Scaled(speed),
        proposals=proposals,
        host=host,
        port=port,
        advertised_host=advertised_host,
    )
    allow_all()
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNG_COLLECTIONS)
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


@contextmanager
def _controlled(cluster: FakeCluster, address: tuple[str, int] | None, token: str | None) -> Iterator[None]:
    """Serve HTTP control of a cluster meanwhile, if that is wanted."""
    if address is None:
        yield
        return
    from fakebroker.control.server import ControlServer  # the base install has no HTTP server

    with ControlServer(cluster, *address, token) as server:
        if server.has_generated_token:  # Printed before the address, because readers may stop at the address.
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
    if not colon or not host or not _is_number(port) or int(port) > 65535:
        raise ConfigError.of("--control", text, "HOST:PORT, such as 127.0.0.1:9644")
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
        log.warning("event not done: %s: %s", event.strip(), error)
    except Exception as error:  # An internal error must not stop the cluster.
        log.warning("event not done: %s: %r", event.strip(), error, exc_info=True)
    else:
        log.info("event done: %s", event.strip())


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.rpartition(":")
    if not colon or not _is_number(partitions):
        raise ConfigError.of("--topic", text, "NAME:PARTITIONS, such as orders:6")
    return name, int(partitions)


def _is_number(text: str) -> bool:
    """Return whether this is a number of at most ten digits."""
    return text.isdecimal() and len(text) <= 10


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError.of("--config", text, "KEY=VALUE, such as group.max.size=100")
    return name, value
