"""Looks for a password where it must not be: in processes, and in files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from fakebroker.server.fake_cluster import FakeCluster

PASSWORD = "horse-battery-staple"


def client_config(directory: Path) -> Path:
    """Write the client settings of the user "alice" with the password."""
    file = directory / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="alice" password="{PASSWORD}";\n'
    )
    return file


def check_no_secrets(processes: dict[str, bytes], directory: Path) -> None:
    """Check that no process has the password in its command line and environment, and no file in its content."""
    secret = PASSWORD.encode()
    assert processes
    assert not [number for number, content in processes.items() if secret in content]
    written = [path for path in directory.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if secret in path.read_bytes()]


@contextmanager
def processes_at_the_first_heartbeat(cluster: FakeCluster) -> Iterator[dict[str, bytes]]:
    """Yield command lines and environments of the processes of this user, which are read while members play."""
    found: dict[str, bytes] = {}

    def look() -> None:
        cluster.wait(cluster.requested("Heartbeat"), timeout_s=60)
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # the process may have ended
                if path.stat().st_uid == os.getuid():
                    found[path.name] = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()

    looking = Thread(target=look)
    looking.start()
    yield found
    looking.join()
