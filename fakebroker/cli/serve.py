"""`fakebroker serve`: run a cluster as a process of its own.

The modules of clusters are imported by the functions, because the other commands and `--help` do not need them.
"""

import gc
import logging
import os
import signal
import sys
import threading
import tomllib
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal

import click

from fakebroker.cli.settings import config_option, each_once, port_option, setting, until_stdin_ends_option
from fakebroker.control.dependencies import check_installed
from fakebroker.errors import ConfigError, FakebrokerError, check_number
from fakebroker.host_port import expected_host_port, parse_host_port
from fakebroker.open_files import allow_all

if TYPE_CHECKING:
    from fakebroker.cluster.listeners import SecurityProtocol
    from fakebroker.control.server import ControlServer
    from fakebroker.server.clock import Scaled
    from fakebroker.server.fake_cluster import FakeCluster

GARBAGE_COLLECTIONS = 10_000, 1, 350
"""How many more objects there are before a garbage collection, and how many collections before a more complete one.

Brokers make no garbage: new requests replace older ones in journals. With Python's thresholds, collections would take a
tenth of the time of a rebalance; a full one pauses the brokers for 0.7 s with 100,000 groups.
"""


@click.command()
@click.option("--brokers", type=int, default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--first-node-id",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Node id of the first broker; those of the others follow.",
)
@click.option(
    "--rack",
    "racks",
    metavar="NAME",
    multiple=True,
    help="Rack of the brokers (broker.rack); repeatable: brokers are in these racks in turn.",
)
@port_option
@click.option(
    "--topic", "topics", metavar="NAME:PARTITIONS", multiple=True, help="Create a topic, such as orders:6; repeatable."
)
@config_option
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on, such as 0.0.0.0 or ::1.",
)
@click.option(
    "--advertised-host", metavar="HOST", show_default="same as --host", help="Host that brokers report to clients."
)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME:PROTOCOL",
    multiple=True,
    help="Name and security protocol of a listener of all brokers, such as CLIENTS:SASL_PLAINTEXT; repeatable. Without "
    "it there is one listener, with SASL_PLAINTEXT if there are users, otherwise with PLAINTEXT; with --tls, SASL_SSL "
    "or SSL.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Encrypt connections. Prints ssl.truststore.location=PATH, the certificate that clients have to trust. It is "
    "made at each start, unless --config ssl.keystore.type=PEM --config ssl.keystore.location=PATH name a file.",
)
@click.option(
    "--users",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file with the passwords of the users that can authenticate, one line per user, such as alice = "
    '"secret".',
)
@click.option(
    "--seed", type=int, show_default="random", help="Seed for reproducible member ids, topic ids and cluster id."
)
@click.option(
    "--as-version",
    metavar="RELEASE",
    show_default="newest behavior, all implemented API versions",
    help="Kafka release to emulate, such as 2.8.",
)
@click.option(
    "--first-use",
    type=click.Choice(["ready", "kafka"]),
    default="ready",
    show_default=True,
    help="What clients notice when they first look for a coordinator. ready: nothing. kafka: the errors of a fresh "
    "Kafka, which first has to create __consumer_offsets or __transaction_state.",
)
@click.option(
    "--clock",
    type=click.Choice(["real", "manual"]),
    default="real",
    show_default=True,
    help="The brokers' clock. manual: time stands still until the commands advance or advance_to_next_deadline, which "
    "are sent over HTTP (--control) or as lines of stdin (--events). Clients are not affected.",
)
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="Speed of the brokers' clock: 10 expires a session of 45 s after 4.5 s. Clients are not affected.",
)
@click.option(
    "--proposal",
    "proposals",
    metavar="NAME",
    multiple=True,
    help="Enable an experimental protocol extension, batch-join or rewrite; repeatable.",
)
@click.option(
    "--events",
    is_flag=True,
    help="Run commands from stdin, one JSON object per line, such as "
    '{"do": "broker.stop", "node_id": 2}; results are logged.',
)
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Keep the state in this directory, and continue with it after a restart. It is created if it is missing.",
)
@click.option(
    "--fsync",
    type=click.Choice(["always", "interval"]),
    default="interval",
    show_default=True,
    help="When changes in --data-dir are forced to the disk. always: before they are answered; interval: every second, "
    "which only a failure of the machine can tell.",
)
@until_stdin_ends_option
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Serve the HTTP control API and its web page at this address, such as 127.0.0.1:9644 or [::1]:9644; port 0 "
    "selects a free port.",
)
@click.option(
    "--control-token",
    metavar="TOKEN",
    envvar="FAKEBROKER_CONTROL_TOKEN",
    show_envvar=True,
    show_default="none on loopback; otherwise generated and printed on stderr",
    help="Bearer token of the control API. Prefer the environment variable: "
    "command-line options are visible to all users of the machine.",
)
@click.option(
    "--control-data-dirs",
    metavar="DIR",
    help="Directory in which clusters that are created over HTTP may have data directories.",
)
def serve(
    brokers: int,
    first_node_id: int,
    racks: tuple[str, ...],
    port: int,
    topics: tuple[str, ...],
    config: tuple[str, ...],
    host: str,
    advertised_host: str | None,
    listeners: tuple[str, ...],
    tls: bool,
    users: str | None,
    seed: int | None,
    as_version: str | None,
    first_use: Literal["ready", "kafka"],
    clock: Literal["real", "manual"],
    speed: float,
    proposals: tuple[str, ...],
    events: bool,
    data_dir: str | None,
    fsync: Literal["always", "interval"],
    until_stdin_ends: bool,
    control: str | None,
    control_token: str | None,
    control_data_dirs: str | None,
) -> None:
    """Run a fake cluster until SIGINT or SIGTERM.

    Prints bootstrap.servers=HOST:PORT,... on stdout once clients can connect, and logs to stderr. With several
    listeners, these are the addresses of the first listener. One line for each other listener follows, such as
    bootstrap.servers.CLIENTS=HOST:PORT,... With --tls, prints ssl.truststore.location=PATH on the next line. With
    --control, prints control=URL on the next line. Prints none of them if a port is in use. With --data-dir, it ends
    with status 1 if the disk fails.
    """
    from fakebroker.cluster.configs.settings import KAFKA_DEFAULTS
    from fakebroker.cluster.emulation import Broker
    from fakebroker.server.fake_cluster import FakeCluster, internals

    control_address = None if control is None else _address(control)
    if control is None and control_data_dirs is not None:
        raise ConfigError.of("--control-data-dirs", control_data_dirs, "--control, too")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    gc.set_threshold(*GARBAGE_COLLECTIONS)  # Before the state in a data directory is loaded.
    cluster = FakeCluster(
        [Broker(rack=racks[index % len(racks)]) for index in range(brokers)] if racks else brokers,
        each_once("--topic", topics, _topic),
        {**KAFKA_DEFAULTS, **each_once("--config", config, setting)},
        seed,
        as_version=as_version,
        clock=_clock(clock, speed),
        proposals=proposals,
        users=None if users is None else _users(users),
        listeners=each_once("--listener", listeners, _listener) or None,
        tls=tls,
        first_use=first_use,
        first_node_id=first_node_id,
        host=host,
        port=port,
        advertised_host=advertised_host,
        data_dir=data_dir,
        fsync=fsync,
    )
    internals(cluster).server.on_stop.append(lambda: os.kill(os.getpid(), signal.SIGTERM))
    allow_all()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    # Not `with cluster`: a fault that was applied to no request is an error of a test, and not of a process.
    with internals(cluster).server, _controlled(cluster, control_address, control_token, control_data_dirs) as server:
        _print_addresses(cluster)
        logging.getLogger("fakebroker").info("serving with seed %d", cluster.seed)
        if events or until_stdin_ends:
            follow = (cluster if events else None, until_stdin_ends)
            threading.Thread(target=_follow_stdin, args=follow, name="stdin", daemon=True).start()
        if server is not None:
            if server.has_generated_token:  # Printed before the address, because readers may stop at the address.
                print(f"control token={server.token}", file=sys.stderr, flush=True)
            print(f"control={server.url}", flush=True)
        signal.sigwait(ends)


def _print_addresses(cluster: "FakeCluster") -> None:
    """Print what clients need to connect."""
    from fakebroker.server.fake_cluster import internals  # not at the top: it takes long to import

    print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
    for listener in internals(cluster).cluster.listeners[1:]:
        print(f"bootstrap.servers.{listener.name}={cluster.bootstrap_servers_of(listener.name)}", flush=True)
    with suppress(FakebrokerError):  # No certificates were made for this cluster.
        print(f"ssl.truststore.location={cluster.tls.ca_file}", flush=True)


def _users(path: str) -> dict[str, object]:
    """Read a file with passwords by user. Errors do not show its contents.

    Raises:
        ConfigError: It cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError):
        raise ConfigError.of("--users", path, 'a readable TOML file with lines such as alice = "secret"') from None


def _controlled(
    cluster: "FakeCluster", address: tuple[str, int] | None, token: str | None, data_dirs: str | None
) -> "AbstractContextManager[ControlServer | None]":
    """Return a context manager that serves HTTP control of a cluster; None without an address.

    Raises:
        ListenError: The address or port is not available.
    """
    if address is None:
        return nullcontext()
    from fakebroker.control.server import ControlServer  # the base install has no HTTP server

    return ControlServer(cluster, *address, token, data_dirs)


def _clock(clock: Literal["real", "manual"], speed: float) -> "Literal['real', 'manual'] | Scaled":
    from fakebroker.server.clock import Scaled

    check_number("--speed", speed, above=0)
    if clock == "manual" and speed != 1:
        raise ConfigError.of("--speed", speed, "1 with --clock manual")
    return clock if speed == 1 else Scaled(speed)


def _address(text: str) -> tuple[str, int]:
    """Return host and port of an address such as "127.0.0.1:9644".

    Raises:
        ConfigError: The address is malformed.
        FakebrokerError: The extra `control` is not installed.
    """
    check_installed()
    address = parse_host_port(text)
    if address is None:
        raise ConfigError.of("--control", text, expected_host_port(text, "HOST:PORT, such as 127.0.0.1:9644"))
    return address


def _follow_stdin(cluster: "FakeCluster | None", stop_process: bool) -> None:
    """Read stdin until it ends.

    Args:
        cluster: Runs the commands, one per line; None ignores them.
        stop_process: Whether the process ends with stdin.
    """
    for line in sys.stdin:
        if cluster is not None:
            _perform(cluster, line)
    if stop_process:
        os.kill(os.getpid(), signal.SIGTERM)


def _perform(cluster: "FakeCluster", event: str) -> None:
    """Run a command; errors are logged, and later commands still run."""
    from fakebroker.cluster.handles.definition import perform
    from fakebroker.server.fake_cluster import internals
    from fakebroker.validation import read_json

    log = logging.getLogger("fakebroker")
    try:
        perform(internals(cluster), read_json(event, dict[str, Any], name="event"))
    except FakebrokerError as error:
        log.warning("event failed: %s: %s", event.strip(), error)
    except Exception as error:  # An internal error must not stop the cluster.
        log.warning("event failed: %s: %r", event.strip(), error, exc_info=True)
    else:
        log.info("event done: %s", event.strip())


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.rpartition(":")
    if not colon or not _is_number(partitions):
        raise ConfigError.of("--topic", text, "NAME:PARTITIONS, such as orders:6")
    return name, int(partitions)


def _listener(text: str) -> "tuple[str, SecurityProtocol]":
    from fakebroker.cluster.listeners import PROTOCOLS

    name, _, protocol = text.rpartition(":")
    for known in PROTOCOLS:
        if name and protocol == known:
            return name, known
    raise ConfigError.of("--listener", text, f"NAME:PROTOCOL with {' or '.join(PROTOCOLS)}")


def _is_number(text: str) -> bool:
    """Return whether a text consists of digits only, at most ten: `int` rejects very long ones."""
    return text.isdecimal() and len(text) <= 10
