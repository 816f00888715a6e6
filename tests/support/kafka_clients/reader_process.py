"""A group member in another process, which a test can kill.

Run as `python -m tests.support.kafka_clients.reader_process CLIENT SERVERS GROUP TOPIC SESSION_TIMEOUT_MS`. It prints
each value that it reads to stdout in hex, and then commits.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import KafkaClient, Settings
from tests.support.kafka_clients.helpers import CLIENTS

ROOT = Path(__file__).parents[3]


class Reader:
    """The process, with the values that it has read."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def values(self) -> list[bytes]:
        """Return the values that the process has read: at least all values before its last commit."""
        whole_lines, _, _ = self._output.read_text().rpartition("\n")
        return [bytes.fromhex(line) for line in whole_lines.splitlines()]

    def kill(self) -> None:
        """Kill the process, which therefore does not leave its group."""
        self._process.kill()
        self._process.wait()


@contextmanager
def reader_process(
    client: KafkaClient, cluster: FakeCluster, group_id: str, topic: str, session_timeout_ms: int, folder: Path
) -> Iterator[Reader]:
    """Run a member; at the end of the block it is killed, unless it has been before."""
    arguments = [client.name, cluster.bootstrap_servers, group_id, topic, str(session_timeout_ms)]
    output = folder / "read.txt"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", __name__, *arguments], cwd=ROOT, stdout=file)
    reader = Reader(process, output)
    try:
        yield reader
    finally:
        reader.kill()


def main(client_name: str, servers: str, group_id: str, topic: str, session_timeout_ms: str) -> None:
    client = next(client for client in CLIENTS if client.name == client_name)
    settings = Settings(group_id=group_id, client_id="reader", session_timeout_ms=int(session_timeout_ms))
    consumer = client.consumer(servers, settings)
    consumer.subscribe(topic)
    while True:
        records = consumer.poll()
        for record in records:
            print((record.value or b"").hex())
        if records:
            sys.stdout.flush()
            consumer.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
