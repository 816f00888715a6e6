"""`EntryWriter`: writes entries while there is space, and postpones those that cannot be refused."""

from collections import deque
from collections.abc import Callable

from fakebroker.cluster.storage.entries import Kind, Storage
from fakebroker.cluster.topics import Topic
from fakebroker.errors import DiskFullError

SPARE_BYTES = 1024 * 1024
"""Space that appends and requests leave free, for changes that cannot be refused: elections, expired records."""


class EntryWriter:
    """Writes entries in the order of their changes, as long as there is space.

    Appends, requests and commands ask for space first, and are refused if there is none (`append`, `claim`).

    Other changes have been made already, such as the election of a leader. Their entries may use the spare space. If
    the spare space is used up, the entries wait. Meanwhile appends, requests and commands are refused, because entries
    refer to earlier entries.

    Args:
        storage: Where entries are written.
        encoded: Returns the content of the entry of a topic.
    """

    def __init__(self, storage: Storage, encoded: Callable[[Topic], bytes]) -> None:
        self._storage = storage
        self._encoded = encoded
        self._changed: dict[bytes, Topic] = {}
        self._postponed: deque[tuple[Kind, tuple[bytes, ...]]] = deque()
        # The sizes of the last entries of topics (by id) and sections (by kind): a change of all writes their sum.
        self._sizes: dict[bytes | Kind, int] = {}
        self._state_bytes = 0
        self._claimed_bytes = 0

    @property
    def is_behind(self) -> bool:
        """Whether entries wait. Changed topics wait until the next entry is written, other entries wait for space."""
        return bool(self._changed or self._postponed)

    # What can be refused

    def append(self, kind: Kind, *parts: bytes) -> None:
        """Write an entry of a partition, before the change is made.

        Raises:
            DiskFullError: There is no space for it.
        """
        needed = sum(map(len, parts)) + SPARE_BYTES
        if self._claimed_bytes:
            needed += self._claimed_bytes + self._state_bytes
        if (self.is_behind and not self.catch_up()) or not self._storage.reserve(needed):
            raise self.full()
        self._storage.write(kind, parts)

    def claim(self, growth_bytes: int, log_bytes: int) -> bool:
        """Return whether topics and sections can be changed, and keep the space free until they are written.

        Args:
            growth_bytes: How much their entries grow by the change, at most.
            log_bytes: The size of the batches that will be appended besides, for which no space is kept.
        """
        needed = growth_bytes + log_bytes + self._state_bytes + self._claimed_bytes + SPARE_BYTES
        if not self.catch_up() or not self._storage.reserve(needed):
            return False
        self._claimed_bytes += growth_bytes
        return True

    def full(self) -> DiskFullError:
        """Return the error for what was refused."""
        expected = "free space; until there is some, writes are refused"
        return DiskFullError.of(self._storage.path, "the disk is full", expected)

    # What cannot be refused

    def topic_changed(self, topic: Topic) -> None:
        """Write a topic before the next entry of a partition."""
        self._changed[topic.topic_id] = topic

    def topic_deleted(self, topic_id: bytes) -> None:
        """Write that a topic was deleted."""
        self._changed.pop(topic_id, None)
        self._state_bytes -= self._sizes.pop(topic_id, 0)
        # All entries of a partition start with the id of its topic.
        self._postponed = deque(each for each in self._postponed if not each[1][0].startswith(topic_id))
        if not self._written(Kind.DELETED_TOPIC, topic_id):
            self._postponed.append((Kind.DELETED_TOPIC, (topic_id,)))

    def forget_topics(self) -> None:
        """Drop the entries that wait, because all topics were replaced."""
        self._changed.clear()
        self._postponed.clear()

    def write(self, kind: Kind, *parts: bytes) -> None:
        """Write an entry of a partition as soon as there is space."""
        if (self.is_behind and not self.catch_up()) or not self._written(kind, *parts):
            self._postponed.append((kind, parts))

    def write_section(self, kind: Kind, content: bytes) -> bool:
        """Write a section if there is space. Return whether it was written."""
        if self._written(kind, content):
            self._set_size(kind, len(content))
            return True
        return False

    def catch_up(self) -> bool:
        """Write the entries that wait. Return False if there is no space for all of them."""
        while self._changed:
            topic_id, topic = next(iter(self._changed.items()))
            content = self._encoded(topic)
            if not self._written(Kind.TOPIC, content):
                return False
            del self._changed[topic_id]
            self._set_size(topic_id, len(content))
        while self._postponed:
            kind, parts = self._postponed[0]
            if not self._written(kind, *parts):
                return False
            self._postponed.popleft()
        return True

    def release_claims(self) -> None:
        """Release the claimed space, after the changed topics and sections were written."""
        self._claimed_bytes = 0

    def _set_size(self, key: bytes | Kind, size_bytes: int) -> None:
        self._state_bytes += size_bytes - self._sizes.get(key, 0)
        self._sizes[key] = size_bytes

    def _written(self, kind: Kind, *parts: bytes) -> bool:
        if not self._storage.reserve(sum(map(len, parts))):
            return False
        self._storage.write(kind, parts)
        return True
