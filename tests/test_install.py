"""The wheel in a clean virtual environment: its dependencies, the README's example, errors of missing extras."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from fakebroker import FakeCluster
from tests.documents.test_readme import README, ROOT
from tests.support.soak import sampled, soak

pytestmark = [pytest.mark.slow, soak]

BASE_INSTALL = {
    *("fakebroker", "click", "cramjam", "crc32c", "msgspec"),
    *("trio", "attrs", "idna", "outcome", "sniffio", "sortedcontainers"),
}
TEST_PROGRAM = {
    *("pytest", "iniconfig", "packaging", "pluggy", "Pygments"),
    "confluent-kafka",  # the client of the README's example
}
OWN_VERSION = "{}.{}".format(*sys.version_info)
VERSIONS = sampled(sorted(["3.11", "3.12", "3.13"], key=lambda version: version != OWN_VERSION), 3)
TIMEOUT_S = 60
SPARK_MISSING = (1, "", "fakebroker: this command requires the extra 'spark': pip install 'fakebroker[spark]'\n")

# PYTHONPATH and similar variables could refer to the source tree.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = ENVIRONMENT | variables
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def succeed(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    finished = run(*command, cwd=cwd, **variables)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def pip(*arguments: str | Path) -> str:
    return succeed(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


class Installation:
    """A virtual environment.

    Attributes:
        version: Version of Python.
        directory: Working directory of programs that run in it; initially empty.
    """

    def __init__(self, directory: Path, version: str) -> None:
        self.version = version
        self.directory = directory / "work"
        self.directory.mkdir()
        self._bin = directory / "venv" / "bin"

    def install(self, *requirements: str | Path) -> None:
        pip("--python", self._bin / "python", "install", "--no-compile", *requirements)

    def packages(self) -> set[str]:
        listed = pip("--python", self._bin / "python", "list", "--format=freeze")
        return {line.partition("==")[0] for line in listed.splitlines()}

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return run(self._bin / program, *arguments, cwd=self.directory)

    def fakebroker(self, *arguments: str) -> tuple[int, str, str]:
        """Run `fakebroker`; return its exit status, stdout and stderr."""
        finished = self.run("fakebroker", *arguments)
        return finished.returncode, finished.stdout, finished.stderr

    def pytest(self, **modules: str) -> tuple[int, str]:
        """Run test modules with warnings as errors; return the exit status and the output."""
        for name, source in modules.items():
            (self.directory / f"{name}.py").write_text(source)
        finished = self.run("python", "-m", "pytest", "-W", "error", "-p", "no:cacheprovider")
        return finished.returncode, finished.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", directory, ROOT)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(params=VERSIONS)
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    """An empty virtual environment for each installed version of Python, those of pyenv included."""
    version: str = request.param
    if version == OWN_VERSION:
        venv.create(tmp_path / "venv", symlinks=True)
    else:
        try:
            succeed(f"python{version}", "-m", "venv", "--without-pip", tmp_path / "venv", PYENV_VERSION=version)
        except (FileNotFoundError, AssertionError):
            pytest.skip(f"no Python {version} with venv")
    return Installation(tmp_path, version)


def readme_test() -> str:
    found = re.search("```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_base_install(wheel: Path, installation: Installation) -> None:
    installation.install(wheel, "pytest", "confluent-kafka")
    assert installation.packages() == BASE_INSTALL | TEST_PROGRAM
    check_readme(installation)
    check_transcripts(installation)
    if installation.version == OWN_VERSION:  # Once is enough: the errors do not depend on the version.
        check_missing_extras(installation)


def check_transcripts(installation: Installation) -> None:
    """The wheel has the transcripts, and `conform` needs no extra."""
    with FakeCluster(brokers=1, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        arguments = ["conform", "--bootstrap", cluster.bootstrap_servers, "--only", "matrix-sync-*"]
        status, out, error = installation.fakebroker(*arguments)
    assert (status, error) == (0, "")
    assert out.endswith("Compared 4 of 4 transcripts with Kafka 4.4: 4 same, 0 explained, 0 differ.\n")


def check_missing_extras(installation: Installation) -> None:
    """A missing extra is an error on one line."""
    (installation.directory / "workload.toml").write_text('name = "w"')
    for arguments in (["replay", "workload.toml"], ["report", "run"], ["compare", "run", "run"]):
        assert installation.fakebroker(*arguments) == SPARK_MISSING
    for arguments in (["serve", "--port", "0", "--control", "127.0.0.1:0"], ["top"]):
        status, out, error = installation.fakebroker(*arguments)
        assert (status, out) == (1, "")
        assert re.fullmatch(r"fakebroker: .* pip install 'fakebroker\[control\]'\n", error)
    seeding = "import fakebroker; fakebroker.FakeCluster().seed_groups('groups.parquet')"
    finished = installation.run("python", "-c", seeding)
    assert finished.stderr.endswith("ConfigError: reading Parquet needs pyarrow: pip install pyarrow\n")


def check_readme(installation: Installation) -> None:
    """The README's example passes; with a failing assertion, the report shows the timeline of the group."""
    passes = readme_test()
    fails = f'{passes}    assert fake_cluster.group("billing").state == "Stable"\n'  # It is Empty.
    status, report = installation.pytest(test_passing=passes, test_failing=fails)
    assert (status, "1 failed, 1 passed" in report) == (1, True), report
    assert "AssertionError" in report
    for line in ("-+ fake cluster 1 -+", r"seed=\d+", r"billing: Empty, generation \d+, .*", "group billing, since .*"):
        assert re.search(f"(?m)^{line}$", report), (line, report)
