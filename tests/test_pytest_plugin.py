"""The plugin, in a pytest run of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path


def run_pytest(folder: Path, source: str) -> str:
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_fixture_mark_and_factory(tmp_path: Path) -> None:
    out = run_pytest(
        tmp_path,
        """
        import pytest

        def test_default(fake_cluster):
            assert len(fake_cluster.brokers) == 3
            assert len(fake_cluster.bootstrap_servers.split(",")) == 3

        @pytest.mark.fake_cluster(brokers=1, topics={"orders": 6})
        def test_marked(fake_cluster):
            assert len(fake_cluster.brokers) == 1

        def test_two_at_once(fake_cluster_factory):
            one, two = fake_cluster_factory(brokers=1), fake_cluster_factory(brokers=2, seed=5)
            assert two.seed == 5
            assert one.bootstrap_servers != two.bootstrap_servers
        """,
    )
    assert "3 passed" in out


def test_a_failed_test_shows_its_groups_and_requests(tmp_path: Path) -> None:
    out = run_pytest(
        tmp_path,
        """
        from confluent_kafka import Consumer

        def test_it(fake_cluster):
            fake_cluster.create_topic("orders", 2)
            consumer = Consumer({"bootstrap.servers": fake_cluster.bootstrap_servers, "group.id": "readers",
                                 "client.id": "reader-1"})
            consumer.subscribe(["orders"])
            while not consumer.assignment():
                consumer.poll(0.1)
            try:
                assert False
            finally:
                consumer.close()
        """,
    )
    assert "1 failed" in out
    assert "fake cluster 1" in out
    assert "seed=" in out
    assert "readers: Empty, generation 2" in out
    assert "JoinGroup v" in out
    assert "MEMBER_ID_REQUIRED" in out
