"""A member of a consumer group (KIP-848) that uses @platformatic/kafka: a Node.js process, see `member.mjs`."""

import json
import os
import select
import subprocess

from tests.support.control.nodejs import FOLDER, node_modules
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, POLL_S, Record


class PlatformaticMember:
    """A running member, which reads and commits by itself.

    Args:
        servers: Bootstrap servers.
        group_id: The group.
        topic: The topic.
    """

    def __init__(self, servers: str, group_id: str, topic: str) -> None:
        node_modules()
        settings = json.dumps({"servers": servers, "group": group_id, "topic": topic})
        self._process = subprocess.Popen(
            ["node", "member.mjs"],
            cwd=FOLDER,
            env={**os.environ, "SETTINGS": settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._incomplete = b""

    def poll(self) -> list[Record]:
        """Return the records that the member has read since the last call, after a short wait for one.

        Raises:
            AssertionError: The process has ended.
        """
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], POLL_S)[0]:
            return []
        data = os.read(stdout.fileno(), 65_536)
        assert data, f"the process has ended: {self._process.communicate()[1].decode()}"
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        return [Record(value=line) for line in lines]

    def leave(self) -> list[Record]:
        """Let the member leave the group, and return the records that it has read before that.

        Raises:
            AssertionError: The process has failed.
        """
        out, errors = self._process.communicate(timeout=CALL_TIMEOUT_S)
        assert self._process.returncode == 0, errors.decode()
        return [Record(value=line) for line in (self._incomplete + out).splitlines()]

    def crash(self) -> None:
        """Kill the process, if it runs: the member does not leave the group."""
        self._process.kill()
        self._process.communicate()
