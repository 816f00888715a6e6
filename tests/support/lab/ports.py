"""Ports of the lab's designs that record calls, so that members and coordinators can be tested without a run."""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fakebroker.lab.design import Link, Records
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition

M = TypeVar("M", bound=Message)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FakeLink:
    """A connection; a `lab.design.Link`."""

    number: int
    node_id: int = 1


class _Recorder:
    """Attributes: messages that were sent and not taken yet, with their links; closed links; the number of ids."""

    def __init__(self) -> None:
        self.sent: list[tuple[Link, Message]] = []
        self.closed: list[Link] = []
        self._ids = 0

    def send(self, link: Link, message: Message) -> None:
        self.sent.append((link, message))

    def close(self, link: Link) -> None:
        self.closed.append(link)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08x}-0000-0000-0000-000000000000"

    def take(self, kind: type[M]) -> M:
        """Return the only message that was sent, which must be of a kind."""
        (message,) = self.take_all(kind)
        return message

    def take_all(self, kind: type[M]) -> list[M]:
        """Return the messages that were sent, which must be of a kind."""
        sent, self.sent = self.sent, []
        messages = [message for _, message in sent if isinstance(message, kind)]
        assert len(messages) == len(sent), sent
        return messages


class FakeMemberPort(_Recorder):
    """A `lab.design.MemberPort`.

    Attributes:
        lookups: Number of calls of `find_coordinator` that were not taken yet.
        connecting: Connections, in the order of opening.
        owned: The owned partitions, with the offsets of the last `assigned`; None after `stopped`.
        consumed: The positions.
        ids, failures: Reported ids and errors.
    """

    metadata_max_age_ms = 300_000.0

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0
        self.connecting: list[FakeLink] = []
        self.owned: dict[TopicPartition, int | None] | None = None
        self.consumed: dict[TopicPartition, int] = {}
        self.ids: list[str] = []
        self.failures: list[str] = []

    def find_coordinator(self) -> None:
        self.lookups += 1

    def fetch_metadata(self) -> None:
        raise AssertionError("expected no look-up of metadata")

    def connect(self, node_id: int) -> FakeLink:
        self.connecting.append(FakeLink(len(self.connecting) + 1, node_id))
        return self.connecting[-1]

    def assigned(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self.owned = dict(partitions)
        self.consumed = {partition: offset for partition, offset in partitions.items() if offset is not None}

    def stopped(self, keep: Collection[TopicPartition] = ()) -> None:
        assert not keep
        self.owned, self.consumed = None, {}

    def positions(self) -> dict[TopicPartition, int]:
        return dict(self.consumed)

    def identified(self, member_id: str) -> None:
        self.ids.append(member_id)

    def failed(self, why: str) -> None:
        self.failures.append(why)


class FakeCoordinatorPort(_Recorder):
    """A `lab.design.CoordinatorPort`. Appends and operations of the registry take effect in `settle`.

    Attributes:
        counts: Partition counts by topic.
        registry: The registry.
        records: What was appended, by partition of the offsets topic.
        leads: Whether appends succeed.
        removed: Reported groups and members.
        clock_ms: The present time.
        is_held: Whether `settle` does nothing.
    """

    node_id = 1

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__()
        self.counts = dict(counts)
        self.registry: Registry[Any] = Registry()
        self.records: dict[int, dict[Hashable, Any]] = {}
        self.leads = True
        self.removed: list[tuple[str, str]] = []
        self.clock_ms = 0.0
        self.is_held = False
        self._pending: deque[Callable[[], None]] = deque()

    def reply(self, link: Link, message: Message) -> None:
        self.send(link, message)

    def store(self, partition: int, records: Records) -> None:
        self.append(partition, records, lambda is_stored: None)

    def append(self, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        def store() -> None:
            if self.leads:
                self.records.setdefault(partition, {}).update(records)
            done(self.leads)

        self._pending.append(store)

    def access(self, operation: Callable[[Registry[Any]], T], done: Callable[[T], None]) -> None:
        self._pending.append(lambda: done(operation(self.registry)))

    def settle(self) -> None:
        """Complete appends and operations of the registry, and those that follow."""
        while self._pending and not self.is_held:
            self.settle_one()

    def settle_one(self) -> None:
        """Complete the oldest append or operation of the registry."""
        self._pending.popleft()()

    def partition_counts(self) -> Mapping[str, int]:
        return self.counts

    def group_config(self, group_id: str, name: str) -> int | None:
        return None

    def now_ms(self) -> float:
        return self.clock_ms

    def expelled(self, group_id: str, member_id: str) -> None:
        self.removed.append((group_id, member_id))
