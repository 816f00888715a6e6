"""Why a consumer makes no progress: unreachable brokers, unknown topics and partitions, errors that are retried."""

import math
from collections.abc import Iterable

from fakebroker.client.consumer.cluster_metadata import ClusterMetadata
from fakebroker.client.errors import BrokerRefused, BrokerUnreachable
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.topic_partition import TopicPartition, format_partitions

CREATION_MS = 1_000
"""Time until the error of a topic is reported: brokers that create a topic automatically first return an error."""


class Diagnosis:
    """The errors that a consumer retries, for messages about calls that time out.

    Attributes:
        has_connected: Whether any connection was made since the consumer was opened, version negotiation included.
        unreachable: Why the last request got no response; None once a request was answered.
        lookup: The last error of the look-up of the coordinator; NONE once it was found.
        offsets: The last error of a commit or look-up of offsets that is retried; NONE once one succeeded.
    """

    def __init__(self) -> None:
        self.has_connected = False
        self.unreachable: FakebrokerError | None = None
        self.lookup = self.offsets = ErrorCode.NONE
        self._reported: set[str | TopicPartition] = set()

    def causes(
        self, metadata: ClusterMetadata, topics: Iterable[str], partitions: Iterable[TopicPartition]
    ) -> list[str]:
        """Return the known causes as phrases, the most fundamental first.

        Args:
            metadata: The cluster's metadata.
            topics: The topics that the consumer has subscribed to by name.
            partitions: The assigned partitions.
        """
        if self.unreachable is not None:
            return [str(self.unreachable)]
        if not self.has_connected:
            return ["no broker has answered yet"]
        found = [str(error) for error in _missing(metadata, topics, partitions, math.inf).values()]
        if self.lookup is not ErrorCode.NONE:
            found.append(f"FindCoordinator fails with {self.lookup.name}")
        if self.offsets is not ErrorCode.NONE:
            found.append(f"the coordinator answers {self.offsets.name}")
        return found

    def take_error(
        self, metadata: ClusterMetadata, topics: Iterable[str], partitions: Iterable[TopicPartition], now_ms: float
    ) -> FakebrokerError | None:
        """Return the error that a poll without records raises; None if it returns no records.

        An unreachable cluster is reported until the first connection was made; missing responses and later outages may
        be failovers, which consumers wait for. A topic or partition that has been missing for `CREATION_MS` is reported
        once, until it exists.
        """
        if not self.has_connected:
            return self.unreachable if isinstance(self.unreachable, BrokerUnreachable) else None
        missing = _missing(metadata, topics, partitions, now_ms - CREATION_MS)
        self._reported &= missing.keys()
        unreported = next((what for what in missing if what not in self._reported), None)
        if unreported is None:
            return None
        self._reported.add(unreported)
        return missing[unreported]


def _missing(
    metadata: ClusterMetadata, topics: Iterable[str], partitions: Iterable[TopicPartition], since_ms: float
) -> dict[str | TopicPartition, FakebrokerError]:
    """Return the errors of topics and partitions that do not exist, or have had an error since this time or longer."""
    found: dict[str | TopicPartition, FakebrokerError] = {}
    wanted = list(partitions)
    for topic in dict.fromkeys([*topics, *(topic for topic, _ in wanted)]):
        failure = metadata.errors.get(topic)
        if failure is not None and failure.since_ms <= since_ms:
            found[topic] = BrokerRefused(f"topic {topic!r}", failure.error)
    for partition in wanted:
        topic, index = partition
        count = metadata.counts.get(topic)
        if count is not None and index >= count:
            what = f"partition {format_partitions([partition])} (the topic has {count})"
            found[partition] = BrokerRefused(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found
