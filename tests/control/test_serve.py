"""The process that speaks HTTP beside the brokers': how it starts, that another one takes its place, and mistakes."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fakebroker.control import server as module
from fakebroker.control.server import ControlServer
from fakebroker.errors import FakebrokerError
from fakebroker.server.fake_cluster import FakeCluster
from tests.control.asking import BASE, Asking, asking, next_event
from tests.control.serving import PATIENCE_S, serving


def kill(control: Asking) -> None:
    """Kill the process that speaks HTTP."""
    process = control.server._process
    process.kill()
    process.wait(PATIENCE_S)


def test_another_one_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with asking(1) as control:
        assert control.ask("POST", "/v1/clusters", {"name": "more", "brokers": 1}).status == 201
        snapshot_id = control.post("/snapshots", status=201)["id"]
        with control.listen("/stream") as stream:
            next_event(stream, "overview")
            kill(control)
        names = [each["name"] for each in control.ask("GET", "/v1/clusters").json["clusters"]]
        assert names == ["default", "more"]
        control.post(f"/snapshots/{snapshot_id}/restore")
        with control.listen("/stream?kinds=groups") as stream:
            control.post("/groups/g/seed", {"members": 1}, 201)
            assert next_event(stream, "groups")["groups"][0]["group_id"] == "g"
        told = [record.getMessage() for record in caplog.records]
    assert "the process that speaks HTTP has ended, with status -9" in told
    assert "another process speaks HTTP now" in told
    assert "nothing is controlled over HTTP any more" not in told


def test_it_does_not_take_its_place_for_ever(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STARTS", 2)
    with asking(1) as control:
        kill(control)
        assert control.ask("GET", BASE).status == 200
        kill(control)
        with pytest.raises(OSError, match=r"refused|reset|closed|without response"):
            control.ask("GET", BASE)
    assert "nothing is controlled over HTTP any more" in [record.getMessage() for record in caplog.records]


def test_it_ends_by_a_signal_that_the_brokers_process_blocks() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with asking(1) as control:
            process = control.server._process
            process.terminate()
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
            assert control.ask("GET", BASE).status == 200
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_the_working_directory_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue", "typing", "hypercorn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    with asking(1) as control:
        assert control.ask("GET", "/healthz").status == 200


def test_one_that_does_not_come_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with FakeCluster(1) as cluster, pytest.raises(FakebrokerError, match=r"ended at its start, with status 7$"):
        ControlServer(cluster).__enter__()


def test_one_that_hangs_at_its_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import signal; signal.pause()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "_START_S", 0.1)
    with FakeCluster(1) as cluster, pytest.raises(FakebrokerError, match=r"HTTP was not there after 0\.1 s$"):
        ControlServer(cluster).__enter__()


def mistaken(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """`serve` with a mistake."""
    return subprocess.run(
        [sys.executable, "-m", "fakebroker", "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **environment},
    )


def test_elsewhere_it_makes_a_token_and_tells_it() -> None:
    with serving("--control", "0.0.0.0:0") as served:
        served.log.seek(0)
        (token,) = re.findall(r"^control token=(.{32,})$", served.log.read(), re.MULTILINE)
        port = int(served.control.rpartition(":")[2])
        with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
            for shown, status in (({}, 401), ({"authorization": f"Bearer {token}"}, 200)):
                connection.request("GET", BASE, headers=shown)
                with connection.getresponse() as answer:
                    answer.read()
                    assert answer.status == status


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mistaken("--control", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"fakebroker: cannot listen on 127.0.0.1:{port}: the port is in use"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["hypercorn", "starlette"])
def test_a_missing_extra_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{name!r}] = None\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = mistaken("--control", "127.0.0.1:0", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"fakebroker: --control needs {name}: expected pip install 'fakebroker[control]'\n"
