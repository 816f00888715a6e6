"""`serve --control` as a process: the generated token, and errors at the start."""

import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fakebroker.control import Client
from fakebroker.server.lifecycle import bound
from tests.support.control.control_server import BASE
from tests.support.control.serve_process import TIMEOUT_S, serve_process
from tests.support.ipv6 import needs_ipv6

pytestmark = pytest.mark.slow


def serve(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `serve` with arguments that prevent its start; return the ended process."""
    return subprocess.run(
        [sys.executable, "-m", "fakebroker", "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_generated_token_is_printed_on_stderr() -> None:
    with serve_process("--control", "0.0.0.0:0") as served:
        served.log.seek(0)
        log = served.log.read()
        (token,) = re.findall(r"^control token=(.{32,})$", log, re.MULTILINE)
        assert "Running on" not in log
        port = int(served.control.rpartition(":")[2])
        with closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
            for headers, status in (({}, 401), ({"authorization": f"Bearer {token}"}, 200)):
                connection.request("GET", BASE, headers=headers)
                with connection.getresponse() as response:
                    response.read()
                    assert response.status == status


def test_a_port_in_use_is_an_error_without_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve("--control", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"fakebroker: cannot listen on 127.0.0.1:{port}: the port is in use\n"


def test_the_port_of_a_broker_is_in_use_for_control() -> None:
    with bound("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        done = serve("--port", str(port), "--brokers", "1", "--control", f"127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"fakebroker: cannot listen on 127.0.0.1:{port}: the port is in use\n"


def test_a_manual_clock_is_advanced_over_http() -> None:
    with serve_process("--clock", "manual", "--topic", "orders:6") as served:
        cluster = Client(served.control)
        cluster.group("g").seed(2, topics=["orders"])
        (first, *_) = cluster.deadlines()
        assert first.in_s == 45
        cluster.advance(44)
        assert cluster.group("g").describe().state == "Stable"
        cluster.advance(1)
        assert cluster.group("g").describe().state == "Empty"


@pytest.mark.parametrize("name", ["hypercorn", "prometheus_client"])
def test_a_missing_package_is_an_error_that_names_the_extra(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{name!r}] = None\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = serve("--control", "127.0.0.1:0", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"fakebroker: --control needs {name}: expected pip install 'fakebroker[control]'\n"


@needs_ipv6
def test_a_cluster_with_ipv6_addresses() -> None:
    with serve_process("--host", "::1", "--control", "[::1]:0") as served:
        assert re.fullmatch(r"(\[::1\]:\d+,){2}\[::1\]:\d+", served.bootstrap_servers)
        assert re.fullmatch(r"http://\[::1\]:\d+", served.control)
        client = Client(served.control)
        assert client.bootstrap_servers == served.bootstrap_servers
        top = [sys.executable, "-m", "fakebroker", "top", "--once", "--control", served.control.removeprefix("http://")]
        shown = subprocess.run(top, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        assert served.bootstrap_servers.partition(",")[0] in shown.stdout
