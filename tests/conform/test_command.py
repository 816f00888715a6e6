"""`fakebroker conform`: exit statuses, files, errors on one line."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fakebroker import FakeCluster
from fakebroker.cli.main import main
from fakebroker.server.fake_cluster import internals
from tests.support.soak import soak_only
from tests.support.subtests import subtest_for_each
from tests.support.wire_client import TIMEOUT_S

Run = Callable[..., tuple[object, str, str]]

CONFIG = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `fakebroker conform`, and returns its exit status, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["fakebroker", "conform", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capsys.readouterr()

    return run


def test_nothing_differs(run: Run) -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        status, out, err = run("--bootstrap", cluster.bootstrap_servers, "--only", "matrix-sync-*", "--all")
    assert (status, err) == (0, "")
    assert "matrix-sync-stable" in out
    assert out.endswith("Compared 4 of 4 transcripts with Kafka 4.4: 4 same, 0 explained, 0 differ.\n")


def test_something_differs(run: Run, tmp_path: Path) -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("Heartbeat", error="UNKNOWN_SERVER_ERROR")
        files = ["--junit", tmp_path / "r.xml", "--json", tmp_path / "r.json"]
        status, out, _ = run("--bootstrap", cluster.bootstrap_servers, "--only", "all-leave", *files)
    assert status == 3
    assert "all-leave differs at all-leave.txt:" in out
    assert "-> -1 UNKNOWN_SERVER_ERROR" in out
    assert json.loads((tmp_path / "r.json").read_text())["transcripts"][0]["verdict"] == "differs"
    assert ElementTree.parse(tmp_path / "r.xml").getroot().get("failures") == "1"


def test_nothing_is_playable(run: Run) -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        status, out, _ = run("--bootstrap", cluster.bootstrap_servers, "--only", "rewrite-*")
    assert status == 4
    assert out.endswith("Nothing was compared with Kafka 4.4: no transcript is playable.\n")


def test_no_cluster(run: Run) -> None:
    status, out, err = run("--bootstrap", "127.0.0.1:1")
    assert (status, out) == (4, "")
    assert err.startswith("fakebroker: broker 127.0.0.1:1 cannot be reached: ")
    assert err.count("\n") == 1


def test_a_login_is_needed_and_taken_from_a_file(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="secret";\n'
    )
    with FakeCluster(brokers=1, config=CONFIG, users={"alice": "secret"}) as cluster:
        only = ["--bootstrap", cluster.bootstrap_servers, "--only", "all-leave"]
        assert run(*only, "--client-config", settings)[0] == 0
        status, _, err = run(*only)
    assert status == 4
    assert err.count("\n") == 1


def test_list_and_settings(run: Run) -> None:
    status, out, _ = run("--list", "--only", "group-max-size")
    assert status == 0
    assert "group-max-size  needs group.max.size=2" in out
    status, out, _ = run("--print-config")
    assert status == 0
    assert out.startswith("# 1. 1")
    assert "\ngroup.initial.rebalance.delay.ms=3000\n" in out


@subtest_for_each(
    ("arguments", "error"),
    [
        ([], "--bootstrap: expected HOST:PORT of a broker"),
        (["--bootstrap", "x"], "--bootstrap='x': expected HOST:PORT, or several with commas"),
        (["--bootstrap", "x:1", "--list"], "--bootstrap: expected no --list with it"),
        (["--list", "--print-config"], "--list: expected no --print-config with it"),
        (["--list", "--only", "x"], "--only='x': expected a pattern of transcripts' names; --list shows them"),
        (["--bootstrap", "x:1", "--release", "two"], "--release='two': expected a release of Kafka, such as 4.4"),
        (
            ["--bootstrap", "x:1", "--json", "/no/folder"],
            "--json='/no/folder': expected a file in a folder that exists",
        ),
    ],
)
def test_wrong_use(arguments: list[str], error: str, run: Run) -> None:
    assert run(*arguments) == (2, "", f"fakebroker: {error}\n")


@pytest.mark.slow
def test_an_interrupted_run_removes_what_it_has_made() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        command = [sys.executable, "-m", "fakebroker", "conform", "--bootstrap", cluster.bootstrap_servers]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cluster.wait(cluster.requested("JoinGroup", count=20), timeout_s=TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 130
        assert [each.name for each in internals(cluster).cluster.topics if each.name.startswith("conform")] == []
        assert list(cluster.groups()) == []


@soak_only("the newest release is played")
@pytest.mark.slow
def test_served_clusters_of_another_release() -> None:
    """A served 4.1, compared with 4.1 and with the newest release."""
    serve = [sys.executable, "-m", "fakebroker", "serve", "--port", "0", "--as-version", "4.1", "--until-stdin-ends"]
    settings = [f"--config={key}={value}" for key, value in CONFIG.items()]
    with subprocess.Popen([*serve, *settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        command = [
            sys.executable,
            "-m",
            "fakebroker",
            "conform",
            "--bootstrap",
            bootstrap,
            "--only",
            "consumer-group-m*",
        ]
        own = subprocess.run(command, capture_output=True, text=True, check=False)
        newest = subprocess.run([*command, "--release", "4.4"], capture_output=True, text=True, check=False)
        assert process.stdin is not None
        process.stdin.close()
    assert (own.returncode, newest.returncode) == (0, 3), own.stdout + newest.stdout
    assert "Compared 1 of 1 transcripts with Kafka 4.1: 1 same" in own.stdout
    assert "consumer-group-member-epochs differs at" in newest.stdout
