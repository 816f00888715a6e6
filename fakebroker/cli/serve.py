"""`fakebroker serve`: a cluster as a process."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fakebroker.cluster.configs.settings import KAFKA_DEFAULTS
from fakebroker.cluster.events import event_of, perform
from fakebroker.control.extra import check_installed
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.open_files import allow_all
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster


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
    if not colon or not partitions.isdecimal():
        raise ConfigError.of("--topic", text, "NAME:PARTITIONS, such as orders:6")
    return name, int(partitions)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError.of("--config", text, "KEY=VALUE, such as group.max.size=100")
    return name, value
