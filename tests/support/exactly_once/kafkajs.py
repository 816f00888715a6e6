"""kafkajs behind the interface of `application.py`: each application is a Node.js process, see `application.mjs`."""

import json
import os
import subprocess
from typing import Any

from tests.support.control.nodejs import FOLDER, node_modules
from tests.support.exactly_once.application import (
    GROUP_ID,
    INPUT,
    OUTPUT,
    RETRY_MS,
    TRANSACTIONAL_ID,
    Client,
    checked_offset,
)
from tests.support.exactly_once.confluent import read_committed
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, FETCH_WAIT_MS

_SETTINGS = {
    "input": INPUT,
    "output": OUTPUT,
    "group_id": GROUP_ID,
    "transactional_id": TRANSACTIONAL_ID,
    "retry_ms": RETRY_MS,
    "fetch_wait_ms": FETCH_WAIT_MS,
}


class KafkajsError(Exception):
    """A method of kafkajs has thrown an error."""


class KafkajsApplication:
    """An application. The process answers one call at a time."""

    def __init__(self, servers: str, client_id: str) -> None:
        node_modules()
        settings = json.dumps({**_SETTINGS, "servers": servers, "client_id": client_id})
        self._process = subprocess.Popen(
            ["node", "application.mjs"],
            cwd=FOLDER,
            env={**os.environ, "SETTINGS": settings, "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._values: dict[int, list[str]] = {}
        try:
            self._call("start")
        except KafkajsError:
            self.crash()
            raise

    def _call(self, method: str, timeout_s: float = CALL_TIMEOUT_S, **parameters: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"method": method, "timeout_s": timeout_s, **parameters}).encode() + b"\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        if "error" in answer:
            raise KafkajsError(answer["error"])
        return answer["value"]

    def committed(self) -> int:
        return checked_offset(self._call("committed"))

    def read(self, offset: int, count: int) -> list[bytes]:
        return [bytes.fromhex(value) for value in self._call("read", offset=offset, count=count)]

    def begin(self) -> None:
        self._values = {}
        self._call("begin")

    def produce(self, partition: int, value: bytes) -> None:
        self._values.setdefault(partition, []).append(value.hex())

    def flush(self) -> None:
        while self._values:
            partition, values = self._values.popitem()
            self._call("produce", partition=partition, values=values)

    def send_offset(self, offset: int) -> None:
        self._call("send_offset", offset=offset)

    def commit(self, timeout_s: float) -> None:
        self.flush()
        self._call("commit", timeout_s=timeout_s)

    def can_abort(self) -> bool:
        return bool(self._call("can_abort"))

    def abort(self) -> None:
        self._call("abort")

    def crash(self) -> None:
        self._process.kill()
        self._process.communicate()


KAFKAJS = Client("kafkajs", KafkajsApplication, read_committed, (KafkajsError,))
