"""A quiet Spark session: what Spark and its Java have to say goes to a log file, not to the terminal.

Knows nothing of workloads and events.
"""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import fakebroker
from fakebroker.errors import FakebrokerError
from fakebroker.replay.disk_space import BLOCK_BYTES
from fakebroker.replay.spark.java import java_home

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a call of Spark raises: its own errors, translated or not."""

_IO_ERROR = re.compile(r"^Caused by: java\.(?:io|nio\.file)\.\w+: (.+)$", re.MULTILINE)

_STOP_TIMEOUT_S = 10.0

_ELSEWHERE = ("192.0.2.1", 9)
"""An address outside of every network (RFC 5737), to see by which of its own this machine leaves."""

_SETTINGS = {
    "spark.app.name": "fakebroker replay",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Plans are long, and nobody reads them.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.debug.maxToStringFields": "5",
    # A replay that broke off is not played again behind the user's back, nor waited for where it does not fit.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
    # As much of what is recorded may not be written yet.
    "spark.hadoop.parquet.block.size": str(BLOCK_BYTES),
    # What a task has written stays when another one fails, as for want of room.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
}
_LOCAL_PARTITIONS = "4"
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's second compiler and a parallel collector only get into the way of the members in so short a run."""

MANY_MEMBERS = 10_000
"""From how many members on, Java has enough to do for all that it can."""

_LEAST_MEMORY_MIB, _MOST_MEMORY_MIB = 1_024, 8_192
"""Of Java in a local session, which has a quarter of the machine's in between."""


def cause_of(error: Exception) -> str:
    """The one line of Spark's many that says what went wrong.

    That is the last one of a Python traceback, else what a file had against being written, else Java's message.
    """
    text = str(error)
    python = text.partition("Traceback (most recent call last)")[2].partition("SQLSTATE")[0].partition("\n\tat ")[0]
    if lines := [line.strip(" |+-") for line in python.splitlines() if line.strip(" |+-")]:
        return lines[-1]
    if written := _IO_ERROR.findall(getattr(error, "_stackTrace", None) or text):
        return str(written[-1])
    first, *others = text.splitlines() or [type(error).__name__]
    return next((line.removeprefix(": ") for line in others if line.startswith(": ")), first)


@contextmanager
def spark_session(master: str, log: Path, members: int = 0) -> Iterator[SparkSession]:
    """Start Spark, and stop it with everything that belongs to it.

    It sets the environment variables that Spark's processes inherit, and leaves them so.

    Args:
        master: Spark's master URL, for example `local[*]`.
        log: Takes the output of Spark's processes.
        members: Of how many there will be events.

    Raises:
        FakebrokerError: Spark does not start.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports each interrupted call
    with tempfile.TemporaryDirectory(prefix="fakebroker-spark-") as scratch, log.open("wb") as output:
        os.environ["JAVA_HOME"] = str(java_home(Path(scratch)))
        settings = SparkConf().setMaster(master).setAll(list(settings_for(master, members).items()))
        settings.set("spark.local.dir", scratch).set("spark.sql.warehouse.dir", scratch)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if is_local(master):
            _set_local_environment()
        else:
            settings.setIfMissing("spark.driver.host", address_for(master))
        with _java(settings, log, output) as gateway:
            on_interrupt = signal.getsignal(signal.SIGINT)
            try:
                context = SparkContext(conf=settings, gateway=gateway)
            except SPARK_ERRORS as error:
                raise FakebrokerError(f"Spark did not start (see {log}): {cause_of(error)}") from None
            if threading.current_thread() is threading.main_thread():  # there Spark has set a handler: it cancels all
                signal.signal(signal.SIGINT, on_interrupt)
            session = SparkSession(context)
            if not is_local(master):
                context.addPyFile(str(_packed(Path(scratch))))
            try:
                yield session
            finally:
                session.stop()


def settings_for(master: str, members: int) -> dict[str, str]:
    """Spark's settings for a session in which there will be the events of so many members."""
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = _LOCAL_PARTITIONS
        if members < MANY_MEMBERS:
            settings |= dict.fromkeys(
                ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), _SHORT_LIVED
            )
    if is_local(master):
        settings |= _LOCAL_SETTINGS
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            quarter_mib = memory_bytes() // 2**22
            settings["spark.driver.memory"] = f"{min(max(quarter_mib, _LEAST_MEMORY_MIB), _MOST_MEMORY_MIB)}m"
    return settings


def memory_bytes(limits: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory of this machine, or of the container that this is in.

    Args:
        limits: Where Linux says what a container may have, in either of its two ways.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # There is none, or it says "max".
            return min(machine, int((limits / name).read_text()))
    return machine


@contextmanager
def _java(settings: SparkConf, log: Path, output: IO[bytes]) -> Iterator[JavaGateway]:
    """Spark's Java process. PySpark itself would let it live as long as this one, and never start another."""
    # In a session of its own Ctrl-C is not for it: the replay ends its tasks, and keeps what they recorded.
    redirected = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
    try:
        gateway = launch_gateway(settings, redirected)  # type: ignore[no-untyped-call]  # PySpark leaves it so
    except PySparkException:
        complaints = [line for line in log.read_text().splitlines() if "Exception" in line or "Error" in line]
        why = complaints[0] if complaints else "its Java process ended"
        raise FakebrokerError(f"Spark did not start (see {log}): {why}") from None
    try:
        yield gateway
    finally:
        # Objects dropped from here on are not told to a Java that is about to end.
        gateway._gateway_client.is_connected = False
        gateway.proc.stdin.close()  # its sign to end
        try:
            gateway.proc.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        gateway.close()
        SparkContext._gateway = SparkContext._jvm = None


def is_local(master: str) -> bool:
    """Whether all of Spark runs in one process here."""
    return master == "local" or master.startswith("local[")


def address_for(master: str) -> str:
    """The address of this machine that executors elsewhere can reach: the one that it reaches Spark's master from.

    `SPARK_LOCAL_IP` overrides it, as always with Spark.
    """
    if is_local(master) or master.startswith("local-cluster"):
        return "127.0.0.1"
    if set_by_hand := os.environ.get("SPARK_LOCAL_IP"):
        return set_by_hand
    found = re.match(r"spark://([^:,/]+):(\d+)", master)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.connect((found[1], int(found[2])) if found else _ELSEWHERE)  # sends nothing
        return str(udp.getsockname()[0])
    return "127.0.0.1"


def _packed(directory: Path) -> Path:
    """This package as a zip file, for executors elsewhere."""
    root = Path(fakebroker.__file__).parent
    packed = directory / "fakebroker.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.suffix != ".pyc":
                archive.write(file, file.relative_to(root.parent))
    return packed


def _set_local_environment() -> None:
    """Spark's Python workers import this package from where it was imported here."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    package_parent = str(Path(fakebroker.__file__).parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_parent not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, *paths]))
