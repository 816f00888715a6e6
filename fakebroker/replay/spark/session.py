"""Starts and stops Spark. The output of its processes goes to a log file. Does not depend on workloads and events."""

import _thread
import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import fakebroker
from fakebroker.errors import FakebrokerError
from fakebroker.host_port import bracketed, parse_host_port, unbracketed
from fakebroker.replay.disk_space import BLOCK_BYTES
from fakebroker.replay.spark.interruption import at_quit
from fakebroker.replay.spark.java import WRITE_ARCHIVE, gateway_command, java_home
from fakebroker.replay.spark.query_settings import SETTINGS_FOR_FEW_ROWS, are_few

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""Exceptions that calls of PySpark raise; the last one if Java has ended."""

_IO_ERROR = re.compile(r"^Caused by: java\.(?:io|nio\.file)\.\w+: (.+)$", re.MULTILINE)
"""The error of a failed read or write in a Java stack trace."""

_GIVEN_UP = re.compile(r"Application has been killed\. Reason: (.+)")
"""Why Spark has stopped itself, in its log."""

_STARTED_CHECK_S = 0.01
_STOP_TIMEOUT_S = 10.0
"""How long Java may take to stop before it is killed."""

_MASTER_TIMEOUT_S = 10.0
"""How long all masters of a cluster may take to accept a connection and to answer, one after the other."""

_EXECUTOR_TIMEOUT_S = 60.0
"""How long the first executor of a Spark cluster may take to start, on a slow machine, too."""

_EXECUTOR_CHECK_S = 0.1

_FILE = b"/files/none"
_PROBE = struct.pack(">qbi", struct.calcsize(">qbi") + len(_FILE), 6, len(_FILE)) + _FILE
"""A `StreamRequest` of Spark's `network-common` for a file: the length of all, the type, the length of the name."""

_EXTERNAL_ADDRESS = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737), which has no other route than the default route."""

_SETTINGS = {
    "spark.app.name": "fakebroker replay",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Limits the text of query plans in errors and logs.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.debug.maxToStringFields": "5",
    # The text of each plan, which nothing shows without the UI.
    "spark.sql.ui.explainMode": "simple",
    # Do not repeat a failed replay, and fail soon if there are fewer cores than tasks.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
    # Limits the rows in memory that are not written yet, such as the scripts of members.
    "spark.hadoop.parquet.block.size": str(BLOCK_BYTES),
    # Keep the output of finished tasks when another one fails, for example because the disk is full.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
}
_LOCAL_PARTITIONS = "4"
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In a replay, Java starts the tasks, and moves scripts.

Its optimizing compiler and its parallel garbage collector would cost more CPU time than they save.
"""

_SMALL_MEMORY_MIB = 512
"""Java's memory in a local session for few rows."""

_MIN_MEMORY_MIB, _MAX_MEMORY_MIB = 1_024, 8_192
"""Limits of Java's memory in other local sessions; between them it is a quarter of the machine's memory."""

_WORKER_DAEMON = "fakebroker.replay.spark.worker_daemon"


def cause_of(error: Exception) -> str:
    """Return the line of Spark's error that names the cause.

    This is the last line of a Python traceback, else the error of a failed read or write, else Java's message.
    """
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return "its Java process ended"
    try:
        text = str(error)
    except (Py4JError, ConnectionError):  # PySpark asks Java for the text.
        return "its Java process ended"
    python = text.partition("Traceback (most recent call last)")[2].partition("SQLSTATE")[0].partition("\n\tat ")[0]
    if lines := [line.strip(" |+-") for line in python.splitlines() if line.strip(" |+-")]:
        return lines[-1]
    if io_errors := _IO_ERROR.findall(getattr(error, "_stackTrace", None) or text):
        return str(io_errors[-1])
    first, *others = text.splitlines() or [type(error).__name__]
    return next((line.removeprefix(": ") for line in others if line.startswith(": ")), first)


def _why(error: Exception, log: Path) -> str:
    """Return why a call of Spark failed: why Spark has stopped itself, according to its log, else the error's cause."""
    given_up = _GIVEN_UP.search(log.read_text(errors="replace")) if log.exists() else None
    return given_up[1] if given_up else cause_of(error)


@contextmanager
def spark_session(
    master: str, log: Path, events: float = 0, java_options: str = LOCAL_JAVA_OPTIONS
) -> Iterator[SparkSession]:
    """Run Spark within the context.

    Sets environment variables that Spark's processes inherit, and leaves them set.

    Args:
        master: Spark's master URL, for example `local[*]`.
        log: Receives the output of Spark's processes.
        events: Expected number of events of the replay; selects settings.
        java_options: Options of Java, if it runs on this machine.

    Raises:
        FakebrokerError: Spark does not start, or its master cannot be reached.
    """
    check_master(master)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs each interrupted call
    with (
        tempfile.TemporaryDirectory(prefix="fakebroker-spark-", ignore_cleanup_errors=True) as scratch,
        at_quit(lambda: shutil.rmtree(scratch, ignore_errors=True)),
        log.open("wb") as output,
    ):
        os.environ["JAVA_HOME"] = str(java_home(Path(scratch)))
        settings = SparkConf().setMaster(master).setAll(list(settings_for(master, events, java_options).items()))
        settings.set("spark.local.dir", scratch).set("spark.sql.warehouse.dir", scratch)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if is_local(master):
            _set_local_environment()
        else:
            settings.setIfMissing("spark.driver.host", bracketed(address_for(master)))  # as Spark requires
        with _java(master, settings, log, output) as gateway:
            on_interrupt = signal.getsignal(signal.SIGINT)
            try:
                context = SparkContext(conf=settings, gateway=gateway)
                _ignore_lost_connections(context)
                session = SparkSession(context)  # an error if no master has answered meanwhile
                if not is_local(master):
                    context.addPyFile(str(_package_archive(Path(scratch))))
                if is_standalone(master):
                    _wait_for_executor(context)
            except SPARK_ERRORS as error:
                why = _why(error, log)
                if SparkContext._active_spark_context is not None:
                    SparkContext._active_spark_context.stop()
                raise FakebrokerError(f"Spark did not start (see {log}): {why}") from None
            if threading.current_thread() is threading.main_thread():  # undo Spark's handler, which cancels all jobs
                signal.signal(signal.SIGINT, on_interrupt)
            is_interrupted = False
            try:
                yield session
            except KeyboardInterrupt:  # `_java` kills Spark
                is_interrupted = True
                raise
            finally:
                if is_interrupted or gateway.proc.poll() is not None:
                    SparkContext._active_spark_context = SparkSession._instantiatedSession = None
                else:
                    session.stop()


def _ignore_lost_connections(context: SparkContext) -> None:
    """Let PySpark's server for accumulators print no traceback when Java is killed; other errors are printed."""
    server: Any = context._accumulatorServer
    print_error = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            print_error(request, address)

    server.handle_error = handle_error


def check_master(master: str) -> None:
    """Check that the master of a Spark cluster answers, or that the API server of Kubernetes accepts connections.

    Spark would wait for 80 s. It says itself what is wrong with other URLs.

    Args:
        master: Spark's master URL.

    Raises:
        FakebrokerError: None of the addresses in the URL can be reached, or answers, within 10 s in all.
    """
    kind, _, rest = master.partition("://")
    if kind not in ("spark", "k8s"):
        return
    # Of Kubernetes, the URL in the URL.
    found = [parse_host_port(each) for each in re.sub("^https?://", "", rest).rstrip("/").split(",")]
    masters = [each for each in found if each is not None]
    why = ""
    for address in masters:
        try:
            with socket.create_connection(address, _MASTER_TIMEOUT_S / len(masters)) as connection:
                if is_standalone(master):
                    _probe(connection)
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return
    if masters:
        raise FakebrokerError(f"Spark did not start: --master={master!r} cannot be reached: {why}")


def _probe(connection: socket.socket) -> None:
    """Ask a master for a file that it does not have, and wait for any answer.

    A master that requires TLS closes the connection.

    Raises:
        TimeoutError: There is no answer.
    """
    try:
        connection.sendall(_PROBE)
        connection.recv(1)
    except TimeoutError:
        raise TimeoutError("no answer") from None
    except ConnectionError:
        return


def _wait_for_executor(context: SparkContext) -> None:
    """Wait until a Spark cluster has started an executor. Spark itself would wait, or start others, without end.

    Raises:
        PySparkRuntimeError: No executor has started in time.
        Py4JError: Spark has stopped, because the master has given up.
    """
    until_s = time.monotonic() + _EXECUTOR_TIMEOUT_S
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # with the driver
        if time.monotonic() > until_s:
            why = "its workers have no free cores or memory, or their executors fail"
            raise PySparkRuntimeError(f"the cluster has started no executor within {_EXECUTOR_TIMEOUT_S:g} s: {why}")
        time.sleep(_EXECUTOR_CHECK_S)


def start_workers(spark: SparkSession) -> None:
    """Start Spark's Python workers in a local session, which import the modules of the members meanwhile."""
    tasks = spark.sparkContext.defaultParallelism
    if is_local(str(spark.sparkContext.master)):
        same = spark.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long")
        same.write.format("noop").mode("overwrite").save()


@contextmanager
def spark_errors(log: Path, what: str = "the replay") -> Iterator[None]:
    """Convert Spark's errors within the context to one line that names the log.

    Args:
        log: Receives the output of Spark's processes.
        what: The subject of the line.

    Raises:
        FakebrokerError: A call of Spark failed.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raise FakebrokerError(f"{what} failed (see {log}): {_why(error, log)}") from None


def settings_for(master: str, events: float, java_options: str = LOCAL_JAVA_OPTIONS) -> dict[str, str]:
    """Return Spark's settings for the arguments of `spark_session`."""
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = _LOCAL_PARTITIONS
        java = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
        settings |= dict.fromkeys(java, java_options)
    if is_local(master):
        settings |= _LOCAL_SETTINGS
        if are_few(events):
            settings |= SETTINGS_FOR_FEW_ROWS
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            settings["spark.driver.memory"] = f"{_memory_mib(events)}m"
        if sys.platform == "linux":
            settings["spark.python.daemon.module"] = _WORKER_DAEMON
    return settings


def _memory_mib(events: float) -> int:
    """Return the size of Java's heap in a local session, for an expected number of events."""
    if are_few(events):
        return _SMALL_MEMORY_MIB
    return min(max(memory_bytes() // 2**22, _MIN_MEMORY_MIB), _MAX_MEMORY_MIB)


def memory_bytes(limits: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of this machine, or the memory limit of this container.

    Args:
        limits: Directory of the container's limits (cgroup v2 or v1).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no limit, or it is "max"
            return min(machine, int((limits / name).read_text()))
    return machine


@contextmanager
def _java(master: str, settings: SparkConf, log: Path, output: IO[bytes]) -> Iterator[JavaGateway]:
    """Run Spark's Java process within the context. PySpark alone would keep it running until this process ends."""
    # In another process session Java does not get Ctrl-C: the replay stops the tasks itself and keeps their events.
    redirected = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
    try:
        command = gateway_command(Path(os.environ["JAVA_HOME"]), dict(settings.getAll())) if is_local(master) else None
        gateway = _launched(settings, redirected) if command is None else _started(command, redirected)
    except PySparkException:
        errors = [line for line in log.read_text().splitlines() if "Exception" in line or "Error" in line]
        why = errors[0] if errors else "its Java process ended"
        raise FakebrokerError(f"Spark did not start (see {log}): {why}") from None
    try:
        with at_quit(gateway.proc.kill):
            yield gateway
    except KeyboardInterrupt:
        gateway.proc.kill()  # its jobs may take long to stop
        raise
    finally:
        # Do not notify Java of garbage-collected objects while it stops.
        gateway._gateway_client.is_connected = False
        gateway.proc.stdin.close()  # stops Java
        try:
            gateway.proc.wait(None if WRITE_ARCHIVE in os.environ else _STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        gateway.close()
        SparkContext._gateway = SparkContext._jvm = None


def _launched(settings: SparkConf, redirected: Mapping[str, Any]) -> JavaGateway:
    """Start Java with Spark's launcher, which also reads the user's environment variables and files."""
    return launch_gateway(settings, dict(redirected))  # type: ignore[no-untyped-call]  # PySpark has no types for it


def _started(command: Sequence[str], redirected: Mapping[str, Any]) -> JavaGateway:
    """Start Java with a command, and connect to it.

    Raises:
        PySparkException: The process ended.
    """
    with tempfile.TemporaryDirectory(prefix="fakebroker-java-") as directory:
        address = Path(directory) / "address"
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address), "SPARK_CONNECT_MODE": "0"}
        environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        process = _process_with(address, command, stdin=subprocess.PIPE, env=environment, **redirected)
        if not address.exists():
            raise PySparkRuntimeError("Java ended")
        written = address.read_bytes()  # the port, the length of the secret, and the secret
    port, secret = int.from_bytes(written[:4], "big"), written[8:].decode()
    own = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        os.environ.update(own)  # PySpark connects to the gateway that these variables name
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in own:
            del os.environ[name]
    gateway.proc = process
    return gateway


def _process_with(file: Path, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process, and wait until it has created a file or has ended. Ctrl-C meanwhile kills the process."""
    started: list[subprocess.Popen[bytes]] = []
    errors: list[Exception] = []
    starting, is_canceled = threading.Lock(), False

    def run() -> None:
        with starting:
            if is_canceled:
                return
            try:
                started.append(subprocess.Popen(command, **options))
            except Exception as error:
                errors.append(error)
                return
        started[0].wait()

    try:
        # In a thread, because Ctrl-C within `Popen` would lose the process. Ctrl-C within `Thread.start`,
        # `Future.result` or `Popen.poll` can leave their locks locked, for which the thread, or the end of the
        # process, would then be awaited forever. So this thread calls none of them.
        _thread.start_new_thread(run, ())
        while not started and not errors:
            time.sleep(_STARTED_CHECK_S)
        # Spark's gateway creates the file with its content.
        while started and not file.exists() and started[0].returncode is None:
            time.sleep(_STARTED_CHECK_S)
    except BaseException:
        is_canceled = True
        with starting:  # until the thread has started the process, if it began before
            for each in started:
                with each:
                    each.kill()
        raise
    if errors:
        raise errors[0]
    return started[0]


def is_local(master: str) -> bool:
    """Return whether Spark's driver and executors run in one process on this machine."""
    return master == "local" or master.startswith("local[")


def is_standalone(master: str) -> bool:
    """Return whether the master is one of Spark's own clusters."""
    return master.startswith("spark://")


def address_for(master: str) -> str:
    """Return the address at which executors can reach this machine: its address on the route to Spark's master.

    For a local master, it is 127.0.0.1. For others, the environment variable `SPARK_LOCAL_IP` overrides it.
    """
    if is_local(master) or master.startswith("local-cluster"):
        return "127.0.0.1"
    if configured := os.environ.get("SPARK_LOCAL_IP"):
        return unbracketed(configured)
    first = parse_host_port(master.removeprefix("spark://").partition(",")[0]) or _EXTERNAL_ADDRESS
    family = socket.AF_INET6 if ":" in first[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.connect(first)  # sends no packets
        return str(udp.getsockname()[0])
    return "127.0.0.1"


def _package_archive(directory: Path) -> Path:
    """Create a zip file of this package for executors in other processes, and return its path."""
    root = Path(fakebroker.__file__).parent
    path = directory / "fakebroker.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.suffix != ".pyc":
                archive.write(file, file.relative_to(root.parent))
    return path


def _set_local_environment() -> None:
    """Set environment variables so that Spark's Python workers import this package from the same directory."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    package_parent = str(Path(fakebroker.__file__).parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_parent not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, *paths]))
