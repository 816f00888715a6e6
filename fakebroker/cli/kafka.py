"""`fakebroker kafka`: run a real Kafka as processes of this machine."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import click

from fakebroker.cli.settings import config_option, each_once, port_option, setting, until_stdin_ends_option

_CHECK_EVERY_S = 0.2


class _Ended(BaseException):
    """SIGINT or SIGTERM has arrived."""


@click.command()
@click.option(
    "--release",
    metavar="RELEASE",
    show_default="that of --jars, else the newest one",
    help="Release of Kafka, such as 4.4 or 4.4.0; 4.0.0 or newer.",
)
@click.option("--brokers", type=int, default=3, show_default=True, help="Number of brokers; all are controllers, too.")
@port_option
@config_option
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data in this directory, and continue with them after a restart. It is created if it is missing. "
    "Without it, the data are removed at the end.",
)
@click.option(
    "--mirror",
    metavar="URL",
    envvar="FAKEBROKER_KAFKA_MIRROR",
    show_envvar=True,
    show_default="Maven Central",
    help="Maven repository that has the jars of Kafka.",
)
@click.option(
    "--jars",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="FAKEBROKER_KAFKA_JARS",
    show_envvar=True,
    help="Directory that has the jars of Kafka and of its dependencies. Nothing is downloaded then.",
)
@until_stdin_ends_option
def kafka(
    release: str | None,
    brokers: int,
    port: int,
    config: tuple[str, ...],
    data_dir: Path | None,
    mirror: str | None,
    jars: Path | None,
    until_stdin_ends: bool,
) -> None:
    """Run a real Kafka until SIGINT or SIGTERM, without a container.

    Needs Java 17 or newer: on the PATH, in JAVA_HOME, or from pip install 'fakebroker[kafka]'. The jars of a release
    are downloaded when it is used first, by Maven if it is on the PATH. They are kept in the directory of the user's
    cache; later starts need no network.

    Prints bootstrap.servers=HOST:PORT,... on stdout once clients can connect, and what takes long on stderr. Ends with
    status 1 if a broker ends by itself.
    """
    from fakebroker.kafka.process import ApacheKafka  # The other commands do not need it.

    def end(number: int, frame: FrameType | None) -> None:
        for each in ends:
            signal.signal(each, signal.SIG_IGN)  # Another one must not interrupt the removal of the data.
        raise _Ended

    def end_with_stdin() -> None:
        for _ in sys.stdin:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    ends = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, end) for each in ends]
    try:
        cluster = ApacheKafka(
            release,
            brokers,
            each_once("--config", config, setting),
            port=port,
            data_dir=data_dir,
            jars=jars,
            mirror=mirror,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        if until_stdin_ends:
            threading.Thread(target=end_with_stdin, name="stdin", daemon=True).start()
        with cluster:
            print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
            while True:
                time.sleep(_CHECK_EVERY_S)
                cluster.check()
    except _Ended:
        pass
    finally:
        for each, handler in zip(ends, before, strict=True):
            signal.signal(each, handler)
