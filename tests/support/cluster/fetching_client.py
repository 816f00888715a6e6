"""A client with an incremental fetch session (KIP-227)."""

from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness


class FetchingClient:
    """A consumer with its fetch session."""

    def __init__(self, harness: ClusterHarness, version: int = 12) -> None:
        self.harness = harness
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(
        self, offsets: dict[int, int] | None = None, forget: list[int] | None = None, max_bytes: int = 2**20
    ) -> FetchRequest:
        by_id = self.version >= 13
        name = "" if by_id else "news"
        topic_id = self.harness.topic().topic_id if by_id else ZERO_UUID
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**20)
            for index, offset in (offsets or {}).items()
        ]
        forgotten = ForgottenTopic(topic=name, topic_id=topic_id, partitions=forget or [])
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[forgotten] if forget else [],
        )

    def fetch(self, *args: Any, **fields: Any) -> Any:
        """Fetch, and update the session from the response as a client does."""
        answer = self.harness.ask(self.request(*args, **fields), self.version)
        if answer.error_code == ErrorCode.NONE:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer
