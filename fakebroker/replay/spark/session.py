"""A Spark session whose output, and that of its Java, goes to a log file instead of the terminal.

Does not depend on workloads and events.
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
"""An address outside of every network (RFC 5737), to find this machine's address of the default route."""

_SETTINGS = {
    "spark.app.name": "fakebroker replay",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Plans are long, and not needed.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.debug.maxToStringFields": "5",
    # A replay that failed is not repeated; one that needs more cores than there are fails at once.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
    # Limits how much of what is recorded is not written yet.
    "spark.hadoop.parquet.block.size": str(BLOCK_BYTES),
    # What a task has written is kept when another one fails, for example when the disk is full.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
}
_LOCAL_PARTITIONS = "4"
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In so short a run, Java's second compiler and a parallel collector only take time from the members."""

MANY_MEMBERS = 10_000
"""From this number of members on, Java runs long enough for its second compiler."""

_LEAST_MEMORY_MIB, _MOST_MEMORY_MIB = 1_024, 8_192
"""Limits for Java in a local session, which gets a quarter of the machine's memory."""


def cause_of(error: Exception) -> str:
    """Return the line of Spark's error that says what went wrong.

    That is the last one of a Python traceback, else the error of writing a file, else Java's message.
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
    """Start Spark, and stop it with its processes at the end.

    Sets the environment variables that Spark's processes inherit, and leaves them set.

    Args:
        master: Spark's master URL, for example `local[*]`.
        log: Receives the output of Spark's processes.
        members: How many members there will be events of.

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


@contextmanager
def spark_errors(log: Path) -> Iterator[None]:
    """Turn Spark's errors into one sentence that names the log.

    Raises:
        FakebrokerError: A call of Spark failed.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raise FakebrokerError(f"the replay broke off (see {log}): {cause_of(error)}") from None


def settings_for(master: str, members: int) -> dict[str, str]:
    """Return Spark's settings for a session with the events of so many members."""
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
    """Return the memory of this machine, or of the container that this is in.

    Args:
        limits: Where Linux has the limits of a container (cgroup v2 or v1).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # There is no limit, or it is "max".
            return min(machine, int((limits / name).read_text()))
    return machine


@contextmanager
def _java(settings: SparkConf, log: Path, output: IO[bytes]) -> Iterator[JavaGateway]:
    """Run Spark's Java process. PySpark itself keeps it until this process ends, and never starts another."""
    # In a session of its own it does not receive Ctrl-C: the replay ends its tasks, and keeps what they recorded.
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
        # A Java that is about to end is not notified of objects that are dropped.
        gateway._gateway_client.is_connected = False
        gateway.proc.stdin.close()  # makes it end
        try:
            gateway.proc.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        gateway.close()
        SparkContext._gateway = SparkContext._jvm = None


def is_local(master: str) -> bool:
    """Return whether all of Spark runs in one process here."""
    return master == "local" or master.startswith("local[")


def address_for(master: str) -> str:
    """Return the address of this machine for executors elsewhere: the one on the route to Spark's master.

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
    """Return this package as a zip file, for executors elsewhere."""
    root = Path(fakebroker.__file__).parent
    packed = directory / "fakebroker.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.suffix != ".pyc":
                archive.write(file, file.relative_to(root.parent))
    return packed


def _set_local_environment() -> None:
    """Let Spark's Python workers import this package from where it was imported here."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    package_parent = str(Path(fakebroker.__file__).parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_parent not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, *paths]))
