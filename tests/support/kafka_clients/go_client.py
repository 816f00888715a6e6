"""Go clients, which run in another process: franz-go, sarama and kafka-go."""

from collections.abc import Sequence
from typing import Any

from tests.support.kafka_clients.client import Place, Record, Settings
from tests.support.kafka_clients.driver import Remote, from_json, go_driver, to_json


class GoConsumer:
    """A member of a group. It starts when it subscribes.

    Args:
        client: A client of `go/main.go`.
        servers: Bootstrap servers.
        settings: The configuration that all clients have. Only its ids and the session timeout are used.
        more: Further settings of `go/main.go`.
    """

    _START = "start"

    def __init__(self, client: str, servers: str, settings: Settings, **more: Any) -> None:
        self._remote: Remote | None = None
        self._arguments = {
            "client": client,
            "servers": servers.split(","),
            "group": settings.group_id,
            "client_id": settings.client_id,
            "instance_id": settings.instance_id or "",
            "session_timeout_ms": settings.session_timeout_ms,
            **more,
        }

    def subscribe(self, topic: str) -> None:
        self._remote = Remote(go_driver(), self._START, topic=topic, **self._arguments)

    def _call(self, name: str, **arguments: Any) -> Any:
        assert self._remote is not None, "expected a subscription"
        return self._remote.call(name, **arguments)

    def poll(self) -> list[Record]:
        return from_json(self._call("poll"))

    def assignment(self) -> list[Place]:
        return sorted((topic, partition) for topic, partition in self._call("assignment"))

    def commit(self) -> None:
        self._call("commit")

    def close(self) -> None:
        if self._remote is not None:
            self._call("close")
            self._remote = None


class GoTransformer(GoConsumer):
    """A member that produces what it reads to another topic, and commits its offsets, in transactions."""

    _START = "start_transformer"

    def __init__(self, client: str, servers: str, settings: Settings, output: str, name: str) -> None:
        super().__init__(client, servers, settings, output=output, transactional_id=name)

    def transform(self, *, commits: bool = True) -> list[Record]:
        """Read records, and produce them in one transaction. Return them, unless a rebalance has aborted it.

        Raises:
            DriverError: The transaction has failed for good.
        """
        return from_json(self._call("transform", commits=commits))


def produce(client: str, servers: str, topic: str, records: Sequence[Record]) -> None:
    """Produce records and wait for the acknowledgments."""
    go_driver().call("produce", client=client, servers=servers.split(","), topic=topic, records=to_json(records))
