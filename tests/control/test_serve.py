"""`serve --control` as a process: its token, and mistakes in its arguments."""

import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.control.control_server import BASE
from tests.support.control.serve_process import PATIENCE_S, serving


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
        log = served.log.read()
        (token,) = re.findall(r"^control token=(.{32,})$", log, re.MULTILINE)
        assert "Running on" not in log
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


@pytest.mark.parametrize("name", ["hypercorn", "prometheus_client"])
def test_a_missing_extra_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{name!r}] = None\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = mistaken("--control", "127.0.0.1:0", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"fakebroker: --control needs {name}: expected pip install 'fakebroker[control]'\n"
