"""The registry: nodes, versions, ephemeral nodes, sessions and watches; arbitrary histories against a simple model."""

from collections.abc import Callable

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from fakebroker.proposals.consumer_rewrite.registry import (
    EventKind as Kind,
    Registry,
    RegistryError,
    RegistryErrorCode as Code,
    RegistryEvent as Event,
)
from tests.support.soak import examples, soak


def fails(code: Code, call: Callable[[], object]) -> None:
    with pytest.raises(RegistryError) as caught:
        call()
    assert caught.value.code is code


def taken(registry: Registry[str]) -> list[Event]:
    events, registry.events = registry.events, []
    return events


def test_a_node_is_created_once() -> None:
    registry: Registry[str] = Registry()
    registry.create("/a", "first")
    fails(Code.NODE_EXISTS, lambda: registry.create("/a", "second"))
    assert registry.get("/a") == ("first", 0)


def test_writes_and_deletions_check_the_version() -> None:
    registry: Registry[str] = Registry()
    registry.create("/a", "0")
    assert registry.set("/a", "1", 0) == 1
    fails(Code.BAD_VERSION, lambda: registry.set("/a", "2", 0))
    assert registry.set("/a", "2") == 2
    assert registry.get("/a") == ("2", 2)
    fails(Code.BAD_VERSION, lambda: registry.delete("/a", 1))
    registry.delete("/a", 2)
    assert registry.find("/a") is None
    registry.create("/a", "new")
    assert registry.get("/a") == ("new", 0)


def test_a_write_may_check_the_version_of_another_node() -> None:
    registry: Registry[str] = Registry()
    registry.create("/a", "")
    registry.create("/b", "", check=("/a", 0))
    registry.set("/a", "")
    fails(Code.BAD_VERSION, lambda: registry.create("/c", "", check=("/a", 0)))
    fails(Code.BAD_VERSION, lambda: registry.set("/b", "x", check=("/a", 0)))
    fails(Code.NO_NODE, lambda: registry.set("/b", "x", check=("/c", 0)))
    assert registry.get("/b") == ("", 0)
    assert registry.set("/b", "x", 0, check=("/a", 1)) == 1


def test_a_parent_exists_before_and_after_its_children() -> None:
    registry: Registry[str] = Registry()
    fails(Code.NO_NODE, lambda: registry.create("/a/b", ""))
    registry.create("/a", "")
    registry.create("/a/c", "")
    registry.create("/a/b", "")
    assert registry.children("/a") == ["/a/c", "/a/b"]
    assert registry.children("/") == ["/a"]
    fails(Code.NOT_EMPTY, lambda: registry.delete("/a"))
    registry.delete("/a/b")
    registry.delete("/a/c")
    registry.delete("/a")
    assert list(registry) == registry.children("/") == []


@pytest.mark.parametrize("path", ["", "a", "/", "/a/"])
def test_paths_are_absolute_and_end_with_a_name(path: str) -> None:
    registry: Registry[str] = Registry()
    registry.create("/a", "")
    fails(Code.BAD_ARGUMENTS, lambda: registry.create(path, ""))


def test_missing_nodes() -> None:
    registry: Registry[str] = Registry()
    for call in (registry.get, registry.delete, registry.children):
        fails(Code.NO_NODE, lambda call=call: call("/a"))  # type: ignore[misc]  # a default in a lambda
    fails(Code.NO_NODE, lambda: registry.set("/a", ""))


def test_an_ephemeral_node_ends_with_its_session() -> None:
    registry: Registry[str] = Registry()
    session = registry.open_session(1_000, 0)
    registry.create("/a", "", session)
    fails(Code.NO_CHILDREN_FOR_EPHEMERALS, lambda: registry.create("/a/b", ""))
    registry.renew_session(session, 600)
    registry.tick(1_000)
    assert registry.is_open(session)
    assert registry.next_deadline() == 1_600
    registry.tick(1_600)
    assert not registry.is_open(session)
    assert registry.find("/a") is None
    assert registry.next_deadline() is None
    assert taken(registry) == [Event(Kind.SESSION_EXPIRED, "", session)]
    for call in (
        lambda: registry.renew_session(session, 1_600),
        lambda: registry.close_session(session),
        lambda: registry.create("/b", "", session),
        lambda: registry.find("/a", session),
    ):
        fails(Code.SESSION_EXPIRED, call)
    assert registry.find("/b") is None


def test_a_closed_session_has_no_event_of_its_own() -> None:
    registry: Registry[str] = Registry()
    owner, other = registry.open_session(1_000, 0), registry.open_session(9_000, 0)
    registry.create("/a", "", owner)
    registry.get("/a", owner)
    registry.get("/a", other)
    registry.close_session(owner)
    assert taken(registry) == [Event(Kind.NODE_DELETED, "/a", other)]


def test_a_deleted_ephemeral_node_may_be_created_by_another_session() -> None:
    registry: Registry[str] = Registry()
    first, second = registry.open_session(1_000, 0), registry.open_session(2_000, 0)
    registry.create("/leader", "1", first)
    registry.delete("/leader")
    registry.create("/leader", "2", second)
    registry.tick(1_000)
    assert registry.get("/leader") == ("2", 0)


def test_watches_fire_once() -> None:
    registry: Registry[str] = Registry()
    session = registry.open_session(1_000, 0)
    assert registry.find("/a", session) is None
    assert registry.find("/a", session) is None
    registry.create("/a", "")
    registry.set("/a", "x")
    assert taken(registry) == [Event(Kind.NODE_CREATED, "/a", session)]
    registry.get("/a", session)
    registry.set("/a", "y")
    registry.get("/a", session)
    registry.delete("/a")
    assert taken(registry) == [Event(Kind.DATA_CHANGED, "/a", session), Event(Kind.NODE_DELETED, "/a", session)]
    fails(Code.NO_NODE, lambda: registry.get("/a", session))
    registry.create("/a", "")
    assert taken(registry) == []  # a failed read sets no watch


def test_watches_of_children() -> None:
    registry: Registry[str] = Registry()
    session = registry.open_session(1_000, 0)
    registry.children("/", session)
    registry.create("/a", "")
    registry.children("/a", session)
    registry.set("/a", "x")
    registry.create("/a/b", "")
    registry.children("/a", session)
    registry.delete("/a/b")
    registry.children("/a", session)
    registry.delete("/a")
    assert taken(registry) == [
        Event(Kind.CHILDREN_CHANGED, "/", session),
        Event(Kind.CHILDREN_CHANGED, "/a", session),
        Event(Kind.CHILDREN_CHANGED, "/a", session),
        Event(Kind.NODE_DELETED, "/a", session),
    ]


def test_the_order_of_events() -> None:
    registry: Registry[str] = Registry()
    one, two, owner = (registry.open_session(timeout_ms, 0) for timeout_ms in (9_000, 9_000, 1_000))
    registry.create("/b", "", owner)
    registry.create("/a", "", owner)
    for session in (two, one):
        registry.children("/", session)
        registry.get("/a", session)
        registry.find("/b", session)
    registry.children("/a", one)
    registry.tick(1_000)
    assert taken(registry) == [
        Event(Kind.NODE_DELETED, "/b", two),
        Event(Kind.NODE_DELETED, "/b", one),
        Event(Kind.CHILDREN_CHANGED, "/", two),
        Event(Kind.CHILDREN_CHANGED, "/", one),
        Event(Kind.NODE_DELETED, "/a", two),
        Event(Kind.NODE_DELETED, "/a", one),
        Event(Kind.SESSION_EXPIRED, "", owner),
    ]


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/z"])
SESSIONS = st.integers(1, 4)
CHECKS = st.none() | st.tuples(PATHS, st.integers(-1, 2))


class RegistryMachine(RuleBasedStateMachine):
    """Arbitrary calls, compared with a model that keeps nodes, watches and sessions in plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[int] = Registry()
        self.now_ms = 0.0
        self.nodes: dict[str, tuple[int, int, int | None]] = {}  # data, version, owner
        self.deadlines: dict[int, float] = {}
        self.watches: list[tuple[str, str, int]] = []  # kind of watch, path, session
        self.expected: list[Event] = []

    def run(self, error: Code | None, call: Callable[[], object]) -> bool:
        if error is not None:
            fails(error, call)
        else:
            call()
        return error is None

    def fire(self, watch: str, kind: Kind, path: str, excluded: tuple[int, ...] = ()) -> tuple[int, ...]:
        fired = [each for each in self.watches if each[:2] == (watch, path)]
        self.watches = [each for each in self.watches if each not in fired]
        self.expected += [Event(kind, path, each[2]) for each in fired if each[2] not in excluded]
        return tuple(each[2] for each in fired)

    def watch(self, watch: str, path: str, session: int | None) -> None:
        if session is not None and (watch, path, session) not in self.watches:
            self.watches.append((watch, path, session))

    def parent(self, path: str) -> str:
        return path.rpartition("/")[0] or "/"

    def children(self, path: str) -> list[str]:
        return [each for each in self.nodes if self.parent(each) == path]

    def remove(self, path: str) -> None:
        del self.nodes[path]
        notified = self.fire("data", Kind.NODE_DELETED, path)
        self.fire("children", Kind.NODE_DELETED, path, notified)
        self.fire("children", Kind.CHILDREN_CHANGED, self.parent(path))

    def end(self, session: int) -> None:
        self.watches = [each for each in self.watches if each[2] != session]
        del self.deadlines[session]
        for path in [path for path, node in self.nodes.items() if node[2] == session]:
            self.remove(path)

    @precondition(lambda self: self.registry._last_session_id < 4)
    @rule(timeout_ms=st.integers(1, 20))
    def open_session(self, timeout_ms: int) -> None:
        session = self.registry.open_session(timeout_ms, self.now_ms)
        self.deadlines[session] = self.now_ms + timeout_ms

    @rule(session=SESSIONS)
    def close_session(self, session: int) -> None:
        missing = None if session in self.deadlines else Code.SESSION_EXPIRED
        if self.run(missing, lambda: self.registry.close_session(session)):
            self.end(session)

    def error_of_check(self, check: tuple[str, int] | None) -> Code | None:
        return None if check is None else self.error_of_write(*check)

    @rule(path=PATHS, data=st.integers(), session=st.none() | SESSIONS, check=CHECKS)
    def create(self, path: str, data: int, session: int | None, check: tuple[str, int] | None) -> None:
        parent = self.parent(path)
        error = self.error_of_check(check)
        if error is not None:
            pass
        elif path in self.nodes:
            error = Code.NODE_EXISTS
        elif parent != "/" and parent not in self.nodes:
            error = Code.NO_NODE
        elif parent != "/" and self.nodes[parent][2] is not None:
            error = Code.NO_CHILDREN_FOR_EPHEMERALS
        elif session is not None and session not in self.deadlines:
            error = Code.SESSION_EXPIRED
        if self.run(error, lambda: self.registry.create(path, data, session, check=check)):
            self.nodes[path] = data, 0, session
            self.fire("data", Kind.NODE_CREATED, path)
            self.fire("children", Kind.CHILDREN_CHANGED, parent)

    def error_of_write(self, path: str, version: int) -> Code | None:
        if path not in self.nodes:
            return Code.NO_NODE
        return None if version in (-1, self.nodes[path][1]) else Code.BAD_VERSION

    @rule(path=PATHS, data=st.integers(), version=st.integers(-1, 2), check=CHECKS)
    def set(self, path: str, data: int, version: int, check: tuple[str, int] | None) -> None:
        error = self.error_of_check(check) or self.error_of_write(path, version)
        if self.run(error, lambda: self.registry.set(path, data, version, check=check)):
            _, old, owner = self.nodes[path]
            self.nodes[path] = data, old + 1, owner
            self.fire("data", Kind.DATA_CHANGED, path)

    @rule(path=PATHS, version=st.integers(-1, 2))
    def delete(self, path: str, version: int) -> None:
        error = self.error_of_write(path, version) or (Code.NOT_EMPTY if self.children(path) else None)
        if self.run(error, lambda: self.registry.delete(path, version)):
            self.remove(path)

    @rule(path=PATHS, session=st.none() | SESSIONS)
    def find(self, path: str, session: int | None) -> None:
        error = Code.SESSION_EXPIRED if session is not None and session not in self.deadlines else None
        if self.run(error, lambda: self.registry.find(path, session)):
            self.watch("data", path, session)

    @rule(path=PATHS | st.just("/"), session=st.none() | SESSIONS)
    def list_children(self, path: str, session: int | None) -> None:
        if path != "/" and path not in self.nodes:
            error: Code | None = Code.NO_NODE
        else:
            error = Code.SESSION_EXPIRED if session is not None and session not in self.deadlines else None
        if self.run(error, lambda: self.registry.children(path, session)):
            self.watch("children", path, session)

    @rule(session=SESSIONS)
    def renew(self, session: int) -> None:
        missing = None if session in self.deadlines else Code.SESSION_EXPIRED
        before = self.registry.next_deadline()
        if self.run(missing, lambda: self.registry.renew_session(session, self.now_ms)):
            timeout_ms = self.registry._sessions[session].timeout_ms
            self.deadlines[session] = self.now_ms + timeout_ms
        assert self.registry.next_deadline() == before

    @rule(delay_ms=st.integers(1, 15))
    def pass_time(self, delay_ms: int) -> None:
        """Sessions expire in the order of their deadlines; of equal deadlines, the older session is first."""
        self.now_ms += delay_ms
        while (due_ms := self.registry.next_deadline()) is not None and due_ms <= self.now_ms:
            self.registry.tick(due_ms)
        for session in sorted(self.deadlines, key=lambda each: (self.deadlines[each], each)):
            if self.deadlines[session] <= self.now_ms:
                self.end(session)
                self.expected.append(Event(Kind.SESSION_EXPIRED, "", session))

    @invariant()
    def registry_equals_model(self) -> None:
        assert taken(self.registry) == self.expected  # type: ignore[arg-type]  # the type of data does not matter
        self.expected.clear()
        assert list(self.registry) == list(self.nodes)
        for path, (data, version, _) in self.nodes.items():
            assert self.registry.get(path) == (data, version)
            assert self.registry.children(path) == self.children(path)
        assert self.registry.children("/") == self.children("/")


def run_histories(count: int, steps: int) -> None:
    run_state_machine_as_test(RegistryMachine, settings=settings(max_examples=count, stateful_step_count=steps))


def test_short_histories_agree_with_the_model() -> None:
    run_histories(40, steps=30)


@soak
@pytest.mark.slow
def test_long_histories_agree_with_the_model() -> None:
    run_histories(examples(150, soak=2_000), steps=60)
