"""Tests of users on a real Kafka: the example of `scenarios/reference/kafka.md` with its commands, and a small service.

`tests.kafka.both` runs the recipes, too, with more releases and brokers.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.both import PAGE, SERVICE

pytestmark = pytest.mark.slow

_RUN_S = 240


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FAKEBROKER_KAFKA"))}


def run(folder: Path, *command: str) -> str:
    """Run pytest, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", *command, "-p", "no:cacheprovider", "-W", "ignore"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    return done.stdout + done.stderr


def without_times(output: str) -> list[str]:
    """Return the lines that do not depend on the machine."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    kept = [re.sub(r" in [0-9.]+s( \(.*\))?$", "", line) for line in lines]
    return [line for line in kept if re.match(r"[.sF]+ +\[|SKIPPED|\d+ (passed|failed|skipped)", line)]


def test_the_example_prints_what_the_document_shows(tmp_path: Path) -> None:
    text = PAGE.read_text()
    (tmp_path / "test_orders.py").write_text(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0])
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    commands = re.findall(r"^    \$ (pytest .*)\n((?:    [^$\n].*\n)+)", text, re.MULTILINE)
    assert len(commands) == 2
    for command, shown in commands:
        assert without_times(run(tmp_path, *command.split())) == without_times(shown)


def test_the_service_keeps_its_promises_on_kafka(tmp_path: Path) -> None:
    for path in SERVICE.glob("*.py"):
        shutil.copy(path, tmp_path)
    output = run(tmp_path, "pytest", "-q", "--kafka", "4.4", "-c", os.devnull, "--rootdir", ".")
    assert "11 passed, 2 skipped" in output


PERMISSIONS = """
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_a_lost_permission(fake_cluster):
    consumer = Consumer({"bootstrap.servers": fake_cluster.bootstrap_servers, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    with fake_cluster.acls.deny("ANONYMOUS", "READ", group="billing"):
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(offsets=[TopicPartition("orders", 0, 8)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition("orders", 0, 9)], asynchronous=False)
    consumer.close()
    assert fake_cluster.group("billing").offsets()["orders", 0].offset == 9


@pytest.mark.fake_cluster(topics={"orders": 1}, config={"group.max.size": 1}, brokers=1)
def test_a_setting(fake_cluster):
    one, two = (
        Consumer({"bootstrap.servers": fake_cluster.bootstrap_servers, "group.id": "billing"}) for _ in range(2)
    )
    one.subscribe(["orders"])
    fake_cluster.wait(fake_cluster.group("billing").stable(members=1), polling=[one])
    two.subscribe(["orders"])
    assert two.poll(10).error().name() == "GROUP_MAX_SIZE_REACHED"
    one.close()
    two.close()
"""


@pytest.mark.parametrize("options", [(), ("--kafka", "4.4", "--kafka-acls", "--kafka-strict")])
def test_permissions_and_settings_are_those_of_the_test(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(PERMISSIONS)
    output = run(tmp_path, "pytest", "-q", *options, "-c", os.devnull, "--rootdir", ".")
    assert "2 passed" in output, output


def test_a_killed_run_leaves_no_kafka(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import os, signal

def test_killed(fake_cluster):
    open("kafka", "w").write(fake_cluster.bootstrap_servers)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--kafka", "4.4", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    port = int((tmp_path / "kafka").read_text().rpartition(":")[2])
    until_s = time.monotonic() + _RUN_S
    # The shells that end Java and remove its data begin when the killed process is gone.
    while list(tmp_path.glob("fakebroker-kafka-*")) or _listens(port):
        assert time.monotonic() < until_s


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
