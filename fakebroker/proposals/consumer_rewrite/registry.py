"""A registry of nodes with versions, sessions and watches: ZooKeeper's part in coordination, as a small pure model.

Has what the consumer rewrite design needs of ZooKeeper: atomic creation, versioned writes, writes that check the
version of another node in one transaction, ephemeral nodes, session expiry and one-shot watches (`DataTree`,
`Op.check`, `SessionTrackerImpl`, `WatchManager`). Every call takes effect at once; callers schedule calls and deliver
events to model latency and failures. Does not depend on a clock: the time is an argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Generic, TypeVar

import msgspec

from fakebroker.coordinator.timers import TimerQueue

T = TypeVar("T")

ANY_VERSION = -1
"""The expected version of a write that is unconditional."""

ROOT = "/"


class RegistryErrorCode(Enum):
    """Why a call failed, with the names of ZooKeeper's `KeeperException`."""

    NO_NODE = "NoNode"
    NODE_EXISTS = "NodeExists"
    BAD_VERSION = "BadVersion"
    NOT_EMPTY = "NotEmpty"
    NO_CHILDREN_FOR_EPHEMERALS = "NoChildrenForEphemerals"
    SESSION_EXPIRED = "SessionExpired"
    BAD_ARGUMENTS = "BadArguments"


class RegistryError(Exception):
    """A call failed and has changed nothing.

    Attributes:
        code: The reason.
        subject: The path or the session id.
    """

    def __init__(self, code: RegistryErrorCode, subject: str | int) -> None:
        super().__init__(f"{code.value}: {subject!r}")
        self.code, self.subject = code, subject


class EventKind(Enum):
    """The kinds of events, by ZooKeeper's names."""

    NODE_CREATED = "NodeCreated"
    DATA_CHANGED = "NodeDataChanged"
    NODE_DELETED = "NodeDeleted"
    CHILDREN_CHANGED = "NodeChildrenChanged"
    SESSION_EXPIRED = "Expired"


class RegistryEvent(msgspec.Struct, frozen=True):
    """A watch has fired, or a session has expired.

    Attributes:
        kind: What happened.
        path: The node; "" if the session has expired.
        session_id: The session that set the watch, or that expired.
    """

    kind: EventKind
    path: str
    session_id: int


@dataclass(slots=True)
class _Node(Generic[T]):
    data: T
    owner_id: int | None
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Session:
    """A session, also the entry of its timer. Its dictionaries keep the order of insertion."""

    session_id: int
    timeout_ms: float
    deadline_ms: float
    scheduled_ms: float = inf
    timer_number: int = 0
    ephemerals: dict[str, None] = field(default_factory=dict)
    data_watches: dict[str, None] = field(default_factory=dict)
    child_watches: dict[str, None] = field(default_factory=dict)


Check = tuple[str, int]
"""A node and the version that it must have for a write to another node."""

_Watches = dict[str, dict[int, None]]
"""The sessions that watch each path, in the order in which they set their watches."""


class Registry(Generic[T]):
    """A tree of nodes. The root exists, has no data, and cannot be written.

    A watch fires once, for the next change. The next read sets it again. If a session sets the same watch several
    times, it fires once. The events of a change are ordered: the data watches of the node, then its child watches, then
    the child watches of its parent. If several sessions have the same watch, the oldest watch fires first. An expiring
    session deletes its ephemeral nodes in the order of their creation. Its own event follows.

    Paths are absolute, such as "/consumers/g"; a parent must exist before its children.

    Attributes:
        events: The events so far, oldest first. The caller takes them away and delivers them.
    """

    def __init__(self) -> None:
        self.events: list[RegistryEvent] = []
        self._nodes: dict[str, _Node[T]] = {}
        self._roots: dict[str, None] = {}
        self._sessions: dict[int, _Session] = {}
        self._last_session_id = 0
        self._data_watches: _Watches = {}
        self._child_watches: _Watches = {}
        self._timers: TimerQueue[_Session] = TimerQueue()

    # Sessions

    def open_session(self, timeout_ms: float, now_ms: float) -> int:
        """Open a session and return its id. It expires after `timeout_ms` without `renew_session`."""
        self._last_session_id += 1
        session = _Session(self._last_session_id, timeout_ms, now_ms + timeout_ms)
        self._sessions[session.session_id] = session
        self._timers.schedule(session, session.deadline_ms)
        return session.session_id

    def renew_session(self, session_id: int, now_ms: float) -> None:
        """Start the timeout of a session again.

        Raises:
            RegistryError: SESSION_EXPIRED.
        """
        session = self._session(session_id)
        session.deadline_ms = now_ms + session.timeout_ms

    def close_session(self, session_id: int) -> None:
        """End a session as its client does: its ephemeral nodes and watches are removed, without an event for itself.

        Raises:
            RegistryError: SESSION_EXPIRED.
        """
        self._end(self._session(session_id))

    def is_open(self, session_id: int) -> bool:
        """Return whether a session exists."""
        return session_id in self._sessions

    def tick(self, now_ms: float) -> None:
        """Expire the sessions whose timeout has passed, earliest deadline first."""
        for session, _ in self._timers.expired(now_ms):
            if session.deadline_ms > now_ms:
                self._timers.schedule(session, session.deadline_ms)
            else:
                self._end(session)
                self.events.append(RegistryEvent(EventKind.SESSION_EXPIRED, "", session.session_id))

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next; None without sessions. May be early, never late."""
        return self._timers.next_deadline()

    # Nodes

    def create(self, path: str, data: T, session_id: int | None = None, *, check: Check | None = None) -> None:
        """Create a node with version 0.

        Args:
            path: The node.
            data: Its data.
            session_id: For an ephemeral node, the session with which it is deleted.
            check: Another node, and the version that it must have.

        Raises:
            RegistryError: NO_NODE or BAD_VERSION of `check`; NODE_EXISTS; NO_NODE, if the parent is missing;
                NO_CHILDREN_FOR_EPHEMERALS, if the parent is ephemeral; SESSION_EXPIRED; BAD_ARGUMENTS, if the path is
                not valid.
        """
        self._check(check)
        if path in self._nodes:
            raise RegistryError(RegistryErrorCode.NODE_EXISTS, path)
        parent, siblings = self._siblings(path)
        if session_id is not None:
            self._session(session_id).ephemerals[path] = None
        self._nodes[path] = _Node(data, session_id)
        siblings[path] = None
        self._fire(self._data_watches, EventKind.NODE_CREATED, path)
        self._fire(self._child_watches, EventKind.CHILDREN_CHANGED, parent)

    def get(self, path: str, watcher_id: int | None = None) -> tuple[T, int]:
        """Return the data and the version of a node.

        Args:
            path: The node.
            watcher_id: The session that is notified when the node is changed or deleted next.

        Raises:
            RegistryError: NO_NODE (without setting a watch), SESSION_EXPIRED.
        """
        node = self._node(path)
        self._watch(self._data_watches, path, watcher_id)
        return node.data, node.version

    def find(self, path: str, watcher_id: int | None = None) -> tuple[T, int] | None:
        """Return the data and the version of a node, or None if it does not exist.

        Args:
            path: The node.
            watcher_id: The session that is notified when the node is created, changed or deleted next.

        Raises:
            RegistryError: SESSION_EXPIRED.
        """
        node = self._nodes.get(path)
        self._watch(self._data_watches, path, watcher_id)
        return None if node is None else (node.data, node.version)

    def children(self, path: str, watcher_id: int | None = None) -> list[str]:
        """Return the paths of a node's children, in the order of their creation.

        Args:
            path: The node.
            watcher_id: The session that is notified when a child is created or deleted next, or the node itself is.

        Raises:
            RegistryError: NO_NODE, SESSION_EXPIRED.
        """
        children = self._roots if path == ROOT else self._node(path).children
        self._watch(self._child_watches, path, watcher_id)
        return list(children)

    def set(self, path: str, data: T, version: int = ANY_VERSION, *, check: Check | None = None) -> int:
        """Replace the data of a node.

        Args:
            path: The node.
            data: The new data.
            version: The version that the node must have.
            check: Another node, and the version that it must have.

        Returns:
            The new version, one more than before.

        Raises:
            RegistryError: NO_NODE or BAD_VERSION, of the node or of `check`.
        """
        self._check(check)
        node = self._node(path)
        self._check_version(node, path, version)
        node.data = data
        node.version += 1
        self._fire(self._data_watches, EventKind.DATA_CHANGED, path)
        return node.version

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node.

        Args:
            path: The node.
            version: The version that the node must have.

        Raises:
            RegistryError: NO_NODE; BAD_VERSION; NOT_EMPTY, if the node has children.
        """
        node = self._node(path)
        self._check_version(node, path, version)
        if node.children:
            raise RegistryError(RegistryErrorCode.NOT_EMPTY, path)
        self._remove(path, node)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths of all nodes, in the order of their creation."""
        return iter(self._nodes)

    # Internals

    def _session(self, session_id: int) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RegistryError(RegistryErrorCode.SESSION_EXPIRED, session_id)
        return session

    def _node(self, path: str) -> _Node[T]:
        node = self._nodes.get(path)
        if node is None:
            raise RegistryError(RegistryErrorCode.NO_NODE, path)
        return node

    def _check(self, check: Check | None) -> None:
        if check is not None:
            self._check_version(self._node(check[0]), *check)

    def _check_version(self, node: _Node[T], path: str, version: int) -> None:
        if version not in (ANY_VERSION, node.version):
            raise RegistryError(RegistryErrorCode.BAD_VERSION, path)

    def _siblings(self, path: str) -> tuple[str, dict[str, None]]:
        """Return the parent of a path, and the parent's children."""
        parent, slash, name = path.rpartition("/")
        if not slash or not name:
            raise RegistryError(RegistryErrorCode.BAD_ARGUMENTS, path)
        if not parent:
            return ROOT, self._roots
        node = self._node(parent)
        if node.owner_id is not None:
            raise RegistryError(RegistryErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
        return parent, node.children

    def _remove(self, path: str, node: _Node[T]) -> None:
        parent, siblings = self._siblings(path)
        del self._nodes[path], siblings[path]
        if node.owner_id is not None:
            del self._sessions[node.owner_id].ephemerals[path]
        notified = self._fire(self._data_watches, EventKind.NODE_DELETED, path)
        self._fire(self._child_watches, EventKind.NODE_DELETED, path, excluded=notified)
        self._fire(self._child_watches, EventKind.CHILDREN_CHANGED, parent)

    def _watch(self, watches: _Watches, path: str, watcher_id: int | None) -> None:
        if watcher_id is None:
            return
        session = self._session(watcher_id)
        own = session.data_watches if watches is self._data_watches else session.child_watches
        own[path] = None
        watches.setdefault(path, {}).setdefault(watcher_id)

    def _fire(
        self, watches: _Watches, kind: EventKind, path: str, excluded: frozenset[int] = frozenset()
    ) -> frozenset[int]:
        """Notify the sessions that watch a path, and drop these watches. Return the sessions."""
        watchers = watches.pop(path, {})
        for session_id in watchers:
            session = self._sessions[session_id]
            (session.data_watches if watches is self._data_watches else session.child_watches).pop(path)
            if session_id not in excluded:
                self.events.append(RegistryEvent(kind, path, session_id))
        return frozenset(watchers)

    def _end(self, session: _Session) -> None:
        for watches, paths in (
            (self._data_watches, session.data_watches),
            (self._child_watches, session.child_watches),
        ):
            for path in paths:
                watchers = watches[path]
                del watchers[session.session_id]
                if not watchers:
                    del watches[path]
        session.data_watches.clear()
        session.child_watches.clear()
        for path in list(session.ephemerals):
            self._remove(path, self._nodes[path])
        self._timers.cancel(session)
        del self._sessions[session.session_id]
