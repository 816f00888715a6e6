"""Incremental fetch sessions (KIP-227): the partitions that each client fetches, cached at one broker.

The first request of a session names all partitions. Later requests name only the partitions to add, change or forget,
and their responses contain only partitions with changes. Classes and rules follow Kafka's FetchSession.scala.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from fakebroker.protocol.types import ZERO_UUID

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
"""How long a session must have been unused, or in use, before it can be evicted; see `FetchSessions.make_room`.

Source: `FetchSessionCacheShard.evictionMs`.
"""

_LAST_EPOCH = 2**31 - 1

Key = tuple[str, bytes, int]
"""A partition as in a request: topic name, topic id, index. The name is empty since version 13, the id zero before."""


class Reply(msgspec.Struct, frozen=True):
    """The content of a response: the error of the session or NONE, the session id, and the partitions."""

    error: ErrorCode
    session_id: int
    data: dict[Key, PartitionData]


class FetchContext:
    """A Fetch without a session. All partitions in the request are read and returned.

    Args:
        partitions: The partitions to read.

    Attributes:
        hidden: The partitions that the client may not read.
        names: The names of the topics with the ids in the request. A session keeps the names that it has found.
        refused: The errors of partitions that did not exist when the request was read; None before.
    """

    hidden: frozenset[Key] = frozenset()
    refused: dict[Key, PartitionData] | None = None

    def __init__(self, partitions: dict[Key, FetchPartition]) -> None:
        self.partitions = partitions
        self.names: dict[bytes, str] = {}

    def reply(self, data: dict[Key, PartitionData], now_ms: float) -> Reply:
        """Return the content of the response.

        Args:
            data: What was read from each of the partitions.
            now_ms: The time by the brokers' clock.
        """
        return Reply(ErrorCode.NONE, NO_SESSION, data)

    def empty_reply(self) -> Reply:
        """Return the content of the response to a throttled request, which has no partitions and changes no session."""
        return Reply(ErrorCode.NONE, NO_SESSION, {})


class SessionErrorContext(FetchContext):
    """A Fetch whose session id or epoch is invalid. Nothing is read."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self.error = error

    def reply(self, data: dict[Key, PartitionData], now_ms: float) -> Reply:
        return self.empty_reply()

    def empty_reply(self) -> Reply:
        return Reply(self.error, NO_SESSION, {})


class FullFetchContext(FetchContext):
    """A Fetch that requests a session, which is created with the response if the cache has room."""

    def __init__(
        self, partitions: dict[Key, FetchPartition], sessions: "FetchSessions", *, uses_topic_ids: bool
    ) -> None:
        super().__init__(partitions)
        self.sessions = sessions
        self.uses_topic_ids = uses_topic_ids

    def reply(self, data: dict[Key, PartitionData], now_ms: float) -> Reply:
        if not self.sessions.make_room(len(data), now_ms):
            return Reply(ErrorCode.NONE, NO_SESSION, data)
        cached = {
            key: CachedPartition(self.partitions[key], read.high_watermark, read.log_start_offset)
            for key, read in data.items()
        }
        session = self.sessions.create(cached, now_ms, uses_topic_ids=self.uses_topic_ids)
        session.names = self.names
        return Reply(ErrorCode.NONE, session.session_id, data)


class IncrementalFetchContext(FetchContext):
    """A Fetch in a session. All partitions of the session are read; partitions with changes are returned."""

    def __init__(self, session: "FetchSession") -> None:
        super().__init__({key: cached.request for key, cached in session.partitions.items()})
        self.names = session.names
        self.session = session
        self.epoch = session.epoch

    def reply(self, data: dict[Key, PartitionData], now_ms: float) -> Reply:
        session = self.session
        if session.epoch != self.epoch:
            return self.empty_reply()
        changed = {key: read for key, read in data.items() if session.partitions[key].update(read)}
        for key, read in changed.items():
            if read.records:
                # Move it to the end: the next Fetch reads the others first, so that the size limits treat all equally.
                session.partitions[key] = session.partitions.pop(key)
        return Reply(ErrorCode.NONE, session.session_id, changed)

    def empty_reply(self) -> Reply:
        # Another request may have used the session while this one was delayed.
        is_current = self.session.epoch == self.epoch
        error = ErrorCode.NONE if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return Reply(error, self.session.session_id, {})


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: what the client requested, and the offsets that were returned last."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def update(self, read: PartitionData) -> bool:
        """Store the offsets that were read, and return whether the response must contain the partition."""
        changed = (self.high_watermark, self.log_start_offset) != (read.high_watermark, read.log_start_offset)
        # Errors are returned each time. The -1 makes sure that the first result after an error is returned, too.
        self.high_watermark = -1 if read.error_code else read.high_watermark
        self.log_start_offset = read.log_start_offset
        has_news = (
            read.error_code != ErrorCode.NONE or read.preferred_read_replica != -1 or read.diverging_epoch.epoch >= 0
        )
        return changed or bool(read.records) or has_news


@dataclass(slots=True, eq=False)
class FetchSession:
    """One session. `epoch` is the epoch that the next request must have; for `names`, see `FetchContext`."""

    session_id: int
    partitions: dict[Key, CachedPartition]
    uses_topic_ids: bool
    created_ms: float
    last_used_ms: float
    epoch: int = INITIAL_EPOCH + 1
    names: dict[bytes, str] = field(default_factory=dict)

    def update(self, requested: dict[Key, FetchPartition], forgotten: list[Key]) -> None:
        """Add or change the requested partitions, and remove the forgotten ones."""
        for key, request in requested.items():
            if key in self.partitions:
                self.partitions[key].request = request
            else:
                self.partitions[key] = CachedPartition(request)
        for key in forgotten:
            self.partitions.pop(key, None)


class FetchSessions:
    """The sessions of one broker, the least recently used first.

    Args:
        max_sessions: The maximum number of sessions (`max.incremental.fetch.session.cache.slots`); 0 disables sessions.
        takes_nameless: Whether a session may have partitions of a topic without an id, as since 4.3.
    """

    def __init__(self, max_sessions: int, *, takes_nameless: bool) -> None:
        self._max_sessions = max_sessions
        self._takes_nameless = takes_nameless
        self._sessions: dict[int, FetchSession] = {}
        self._last_session_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, version: int, now_ms: float) -> FetchContext | None:
        """Return the context of a request: the partitions to read, and the rules for its response.

        Updates or closes the session of the request.

        Returns:
            None if the request fails, because a session would get a partition of a topic without an id.
        """
        requested = {
            (topic.topic, topic.topic_id, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(request, requested, version, now_ms)
        self._sessions.pop(request.session_id, None)
        if request.session_epoch == FINAL_EPOCH:
            return FetchContext(requested)
        if self._fails(version, requested):
            return None
        return FullFetchContext(requested, self, uses_topic_ids=version >= 13)

    def _fails(self, version: int, partitions: Iterable[Key]) -> bool:
        """Return whether a session fails with one of the partitions, because its topic has no id."""
        return (
            version >= 13 and not self._takes_nameless and any(topic_id == ZERO_UUID for _, topic_id, _ in partitions)
        )

    def requested(self, request: FetchRequest) -> list[Key]:
        """Return the partitions in a request, then the other partitions of its session."""
        named = [
            (topic.topic, topic.topic_id, partition.partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        is_incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        session = self._sessions.get(request.session_id) if is_incremental else None
        return list(dict.fromkeys([*named, *(session.partitions if session else ())]))

    def _incremental(
        self, request: FetchRequest, requested: dict[Key, FetchPartition], version: int, now_ms: float
    ) -> FetchContext | None:
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        forgotten = [
            (topic.topic, topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        if self._fails(version, [*requested, *forgotten]):
            return None
        session.update(requested, forgotten)
        del self._sessions[session.session_id]
        if not session.partitions:
            return FetchContext(requested)
        self._sessions[session.session_id] = session
        session.last_used_ms = now_ms
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        return IncrementalFetchContext(session)

    def make_room(self, size: int, now_ms: float) -> bool:
        """Evict a session if the cache is full, and return whether a session with `size` partitions may be created.

        Evicts the least recently used session if it has not been used for longer than `EVICTION_MS`. If it was used
        since, another session may be evicted: a session that was last used more than `EVICTION_MS` after its creation,
        and has fewer than `size` partitions. Of several such sessions, evicts the session with the fewest partitions;
        of equal sessions, the first created.
        """
        if len(self._sessions) < self._max_sessions:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.session_id]
            return True
        established = [each for each in self._sessions.values() if each.last_used_ms - each.created_ms > EVICTION_MS]
        smallest = min(established, key=lambda each: (len(each.partitions), each.session_id), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        del self._sessions[smallest.session_id]
        return True

    def create(self, partitions: dict[Key, CachedPartition], now_ms: float, *, uses_topic_ids: bool) -> FetchSession:
        """Create a session. `make_room` must have returned True."""
        self._last_session_id += 1
        session = FetchSession(self._last_session_id, partitions, uses_topic_ids, now_ms, now_ms)
        self._sessions[session.session_id] = session
        return session
