"""Drives a coordinator of the options 1.a, 1.b and 1.c with registrations, commits and the passing of time."""

from collections.abc import Hashable, Mapping, Sequence

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.design import CoordinatorSettings, Design, Link
from fakebroker.lab.designs.options.messages import (
    ANY_PARTITION,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionAndOffset,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    TopicPartitions,
    from_wire,
    to_wire,
)
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition
from tests.support.lab.ports import FakeCoordinatorPort, FakeLink

SESSION_MS = 10_000
Offsets = dict[TopicPartition, int]


class OptionCoordinator:
    """A coordinator that leads all partitions of the offsets topic, of topic "t" with four partitions.

    Attributes:
        port: Its port.
        coordinator: The coordinator.
        links: The connection of each consumer, by id.
    """

    def __init__(
        self,
        design: Design,
        settings: CoordinatorSettings | None = None,
        *,
        offsets: Mapping[tuple[str, str, int], int] | None = None,
        is_loaded: bool = True,
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.port = FakeCoordinatorPort({"t": 4})
        self.coordinator = design.coordinator(self.settings, self.port)
        self.links: dict[str, FakeLink] = {}
        for partition in range(self.settings.offsets_partitions):
            records: dict[Hashable, int] = {
                key: offset for key, offset in (offsets or {}).items() if self.partition_of(key[0]) == partition
            }
            self.coordinator.elected(partition, 0.0)
            if is_loaded:
                self.coordinator.loaded(partition, records, 0.0)

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.settings.offsets_partitions)

    @property
    def now_ms(self) -> float:
        return self.port.clock_ms

    def receive(self, link: Link, message: Message) -> None:
        self.coordinator.received(link, message, self.now_ms)

    def advance(self, ms: float) -> None:
        """Let time pass, with a tick at each deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_deadline()) <= until_ms:
            self.port.clock_ms = max(due_ms, self.now_ms)
            self.coordinator.tick(self.now_ms)
        self.port.clock_ms = until_ms

    def register(
        self,
        consumer_id: str,
        consumed: Offsets | None = None,
        *,
        group_id: str = "g",
        link: FakeLink | None = None,
        version: int = 1,
        topics: Sequence[str] = ("t",),
        partition_ids: Sequence[int] = (ANY_PARTITION,),
        session_timeout_ms: int = SESSION_MS,
    ) -> None:
        """Send a registration, by default over the connection of the consumer."""
        link = link or self.links.get(consumer_id) or FakeLink(len(self.links) + 1)
        self.links[consumer_id] = link
        request = RegisterConsumerRequest(
            version=version,
            correlation_id=7,
            group_id=group_id,
            consumer_id=consumer_id,
            session_timeout=session_timeout_ms,
            subscribing=[TopicPartitions(topic=topic, partition_ids=list(partition_ids)) for topic in topics],
            consumed_so_far=to_wire(consumed or {}),
        )
        self.receive(link, request)

    def confirmations(self) -> dict[str, Offsets]:
        """Take the confirmations that were sent: partitions and offsets by consumer id."""
        responses = self.port.take_all(RegisterConsumerResponse)
        assert all(response.error_code == 0 and response.correlation_id == 7 for response in responses)
        return {response.consumer_id: from_wire(response.partitions_to_own) for response in responses}

    def rejection(self) -> int:
        """Take the error of the only response to a registration."""
        return self.port.take(RegisterConsumerResponse).error_code

    def commit(self, consumer_id: str, offsets: Offsets) -> int:
        """Commit offsets, and return the error."""
        link = self.links.get(consumer_id, FakeLink(99))
        info = [
            PartitionAndOffset(topic=topic, partition=index, offset=offset)
            for (topic, index), offset in offsets.items()
        ]
        self.receive(link, OffsetCommitRequest(correlation_id=8, consumer_id=consumer_id, offset_info=info))
        self.port.settle()
        return self.port.take(OffsetCommitResponse).error_code

    def stored_offsets(self, group_id: str = "g") -> Offsets:
        """Return the offsets of a group in the offsets topic."""
        records = self.port.records.get(self.partition_of(group_id), {})
        return {key[1:]: offset for key, offset in records.items() if isinstance(key, tuple) and key[0] == group_id}

    def ownership(self, group_id: str = "g") -> object:
        """Return the registered ownership of a group; None if there is none."""
        found = self.port.registry.find(f"/consumers/{group_id}")
        return None if found is None else found[0]
