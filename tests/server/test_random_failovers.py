"""Random failovers of a running cluster: every command, every option, and invalid arguments.

Between the calls a client commits at every broker. A commit that the coordinator has acknowledged is found at the next
coordinator, unless an option loses records.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from math import inf, nan
from random import Random
from typing import Any

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.handles.definition import commands
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC
from fakebroker.coordinator.invariants import check as check_group
from fakebroker.errors import ErrorCode, shown
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import commit_request
from tests.support.groups_over_tcp import heartbeat, join_and_sync
from tests.support.soak import cases, soak
from tests.support.wire_client import WireClient

CALLS_PER_SEED = 200
SEEDS_WITH_ALL_SITUATIONS = 5
"""Each of these first seeds reaches all rare situations, which shows that calls are varied; later seeds need not."""
GROUP_IDS = ["c", "a", "b"]
"""One group for each partition of __consumer_offsets, in the order of the partitions."""

MAX_BROKERS = 5
NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_ZOMBIES = re.compile(r"Brokers? ([0-9, ]+) also acts? as its coordinator: (?:it is a zombie|they are zombies)\.")

Options = dict[str, Any]
Call = tuple[str, tuple[Any, ...], Options]
"""The name of a command, or `snapshot` or `restore`; and its arguments, which begin with the key of the handle."""

# Invalid arguments

INVALID_TIMES = [-1, nan, inf, -inf, 10**400, "1", True, [1]]
INVALID_FLAGS = [0, 1, "yes", None, nan]
INVALID_OPTIONS: list[tuple[str, Any]] = [
    *(("load_ms", value) for value in INVALID_TIMES),
    *(("stale_ms", value) for value in [*INVALID_TIMES, None]),
    *(("lose_tail", value) for value in [-1, 1.0, nan, inf, "1", True, None]),
    *((name, value) for name in ("load_fails", "lose_all", "zombie") for value in INVALID_FLAGS),
]
INVALID_NODE_IDS = [0, -1, 99, nan, inf, -inf, 1.0, True, "1", b"1", [1]]
INVALID_PARTITIONS = [-1, len(GROUP_IDS), nan, inf, 0.0, False, "0", None]


def invalid_calls(up: list[int], down: list[int]) -> Iterator[tuple[Call, str]]:
    """Yield calls that must be rejected while these brokers are up or down, with the beginning of the error."""
    known = [*up, *down]
    valid: list[Call] = [("brokers.rolling_restart", (), {}), ("broker.upgrade", (known[0], None), {})]
    valid += [(name, (node_id,), {}) for name in ("broker.stop", "broker.restart", "broker.remove") for node_id in up]
    valid += [("broker.start", (node_id,), {}) for node_id in down]
    valid += [("group.move_coordinator", ("a", node_id), {}) for node_id in [*up, None]]
    valid += [("partition.move_leader", (OFFSETS_TOPIC, 0, node_id), {}) for node_id in [*up, None]]
    for name, arguments, _ in valid:
        for option, value in INVALID_OPTIONS:
            yield (name, arguments, {option: value}), f"{option}={shown(value)}: expected "
    for value in INVALID_FLAGS:
        for node_id in up:
            yield ("broker.stop", (node_id,), {"elect": value}), f"elect={value!r}: expected "
    for value in INVALID_NODE_IDS:
        error = f"={value!r}: expected "
        for name in ("broker.stop", "broker.start", "broker.restart", "broker.remove"):
            yield (name, (value,), {}), f"node_id{error}"
        yield ("broker.upgrade", (value, None), {}), f"node_id{error}"
        yield ("group.move_coordinator", ("a", value), {}), f"to{error}"
        yield ("partition.move_leader", (OFFSETS_TOPIC, 0, value), {}), f"to{error}"
    for node_id in down:
        error = f"={node_id}: expected a broker that is up: "
        yield ("broker.stop", (node_id,), {}), f"node_id{error}"
        yield ("broker.restart", (node_id,), {}), f"node_id{error}"
        yield ("group.move_coordinator", ("a", node_id), {}), f"to{error}"
    for node_id in up:
        yield ("broker.start", (node_id,), {}), f"node_id={node_id}: expected a broker that is down: "
    for value in (3.9, 4, True, nan):
        yield ("broker.upgrade", (known[0], value), {}), f"as_version={value!r}: expected "
    yield ("broker.upgrade", (known[0], "9.9"), {}), "as_version='9.9': expected one of "
    yield ("broker.upgrade", (known[0], None, {"Nope": None}), {}), "api_versions.Nope=None: unknown API; expected "
    for value in INVALID_PARTITIONS:
        where = f"topic {OFFSETS_TOPIC!r}: " if value == len(GROUP_IDS) else ""
        yield ("partition.move_leader", (OFFSETS_TOPIC, value, None), {}), f"{where}partition={value!r}: expected "
    for value in (5, None, nan, b"a", True):
        yield ("group.move_coordinator", (value, None), {}), f"group_id={value!r}: expected "
    if len(known) == 1:
        yield ("broker.remove", (known[0],), {}), f"node_id={known[0]}: expected a broker that is not the last one"


# The state of the cluster


@dataclass
class State:
    """The state of a cluster between two calls. Lists have one entry for each partition of __consumer_offsets.

    Attributes:
        up: Whether each broker is up, by node id.
        ends: The log end offsets.
        errors: The error of each broker for requests about the partition's group; NONE if it serves the group.
        offsets: The committed offset that each broker returns, for brokers that serve the group.
        zombies: The zombies that `explain` names; `_ZOMBIES` matches its text.
    """

    up: dict[int, bool]
    releases: list[object]
    leaders: list[int]
    epochs: list[int]
    replicas: list[tuple[int, ...]]
    ends: list[int]
    errors: list[dict[int, ErrorCode]]
    offsets: list[dict[int, int | None]]
    zombies: list[list[int]]

    @classmethod
    def of(cls, cluster: FakeCluster) -> "State":
        return internals(cluster).run(lambda: cls._of(cluster))

    @classmethod
    def _of(cls, cluster: FakeCluster) -> "State":
        core = internals(cluster).cluster
        partitions = [core.offsets_partition_of(group_id) for group_id in GROUP_IDS]
        assert [partition.index for partition in partitions] == list(range(len(GROUP_IDS)))
        brokers = core.brokers.values()
        offsets: list[dict[int, int | None]] = [{} for _ in GROUP_IDS]
        for index, group_id in enumerate(GROUP_IDS):
            for broker in brokers:
                error, found = broker.coordinator.offsets.fetch(group_id, [("orders", 0)])
                if not error:
                    committed = found[0][2]
                    offsets[index][broker.node_id] = committed.offset if committed else None
        for broker in brokers:
            for group in broker.coordinator.groups.classic.values():
                check_group(group)
        explained = [_ZOMBIES.search(cluster.group(group_id).explain()) for group_id in GROUP_IDS]
        return cls(
            up={broker.node_id: broker.up for broker in brokers},
            releases=[broker.release for broker in brokers],
            leaders=[partition.leader_id for partition in partitions],
            epochs=[partition.leader_epoch for partition in partitions],
            replicas=[partition.replicas for partition in partitions],
            ends=[partition.log.log_end_offset for partition in partitions],
            errors=[{each.node_id: each.coordinator.error_for(group_id) for each in brokers} for group_id in GROUP_IDS],
            offsets=offsets,
            zombies=[[int(each) for each in found[1].split(", ")] if found else [] for found in explained],
        )

    def nodes(self, *, up: bool) -> list[int]:
        """Return the node ids of the brokers that are up, or of those that are down."""
        return [node_id for node_id, is_up in self.up.items() if is_up is up]

    def check(self) -> None:
        """Check that only leaders and zombies serve groups, and that these brokers are up."""
        for index, leader_id in enumerate(self.leaders):
            zombies = self.zombies[index]
            assert leader_id == NO_LEADER or (self.up[leader_id] and leader_id in self.replicas[index])
            assert leader_id not in zombies
            assert all(self.up[node_id] for node_id in zombies)
            for node_id, error in self.errors[index].items():
                if node_id != leader_id:
                    assert error is (NONE if node_id in zombies else NOT_COORDINATOR), (index, node_id)


@dataclass
class Expected:
    """The expected result of the calls so far. Lists have one entry for each partition of __consumer_offsets.

    Attributes:
        last_leaders: The current leaders of the partitions, or else their last leaders.
        awaits: Whether a call left the partition without a leader; only the start of its last leader ends that.
        committed: The offsets that the coordinator may have. Empty if a failover option may have lost the last commit.
    """

    last_leaders: list[int]
    awaits: list[bool]
    committed: list[set[int | None]]

    @classmethod
    def at_start(cls, state: State) -> "Expected":
        return cls(list(state.leaders), [False for _ in GROUP_IDS], [{None} for _ in GROUP_IDS])


class RandomCommands:
    """Makes random calls to a cluster, sends requests between them, and checks the cluster after each."""

    def __init__(self, cluster: FakeCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.calls: list[str] = []
        self.seen: Counter[str] = Counter()
        self.last_offset = 0
        self.state = State.of(cluster)
        self.expected = Expected.at_start(self.state)
        self.snapshot: tuple[Snapshot, Expected] | None = None

    # Valid calls

    def call(self) -> None:
        """Make a random call and check the cluster."""
        call = name, arguments, options = self.random_call()
        self.calls.append(f"{name}{arguments} {options}")
        before = self.state
        result = run(self.cluster, call)
        self.state = State.of(self.cluster)
        if name == "snapshot":
            self.snapshot = result, deepcopy(self.expected)
        elif name == "restore":
            assert self.snapshot is not None
            self.expected, self.snapshot = self.snapshot[1], None
        elif name == "reset":
            self.expected, self.snapshot = Expected.at_start(self.state), None
        for index in range(len(GROUP_IDS)):
            self.expect(index, call, before)
        self.check()
        if name == "brokers.stop_zombies":
            assert not any(self.state.zombies)
        if name == "brokers.finish_loading":
            assert not any(LOADING in errors.values() for errors in self.state.errors)

    def random_call(self) -> Call:
        random, state, how = self.random, self.state, self.random_options()
        up, down = state.nodes(up=True), state.nodes(up=False)
        index = random.randrange(len(GROUP_IDS))
        to = random.choice(up) if up and random.random() < 0.9 else None
        node_id = random.choice([*up, *down])
        calls: list[tuple[int, Call]] = [
            (20, ("group.move_coordinator", (GROUP_IDS[index], to), how)),
            (20, ("partition.move_leader", (OFFSETS_TOPIC, index, to), how)),
            (1, ("brokers.rolling_restart", (), how)),
            (3, ("broker.upgrade", (node_id, random.choice([None, "2.0", "2.8", "3.9"])), how)),
            (4, ("brokers.finish_loading", (), {})),
            (1, ("brokers.stop_zombies", (), {})),
        ]
        if up:
            calls.append((6, ("broker.stop", (random.choice(up),), {**how, "elect": random.random() < 0.6})))
            calls.append((4, ("broker.restart", (random.choice(up),), how)))
        if down:
            calls.append((12, ("broker.start", (random.choice(down),), how)))
        if len(state.up) < MAX_BROKERS:
            calls.append((4, ("brokers.add", (), {})))
        if len(state.up) > 1:
            calls.append((3, ("broker.remove", (node_id,), how)))
        if self.snapshot is None:
            calls.append((2, ("snapshot", (), {})))
        # A removed broker cannot be restored: another process may listen on its port by now.
        elif all(each in state.up for each in self.snapshot[0].brokers):
            calls.append((2, ("restore", (self.snapshot[0],), {})))
        if all(each in state.up for each in (1, 2, 3)):
            calls.append((1, ("reset", (), {})))
        name, arguments, options = random.choices([call for _, call in calls], [weight for weight, _ in calls])[0]
        without_effect: set[str] = set()
        if name in ("broker.stop", "broker.restart", "brokers.rolling_restart", "broker.upgrade", "broker.remove"):
            without_effect = {"zombie"}
        if name == "broker.upgrade" and arguments[0] in down:
            without_effect = set(how)
        elif arguments[-1:] == (None,) or not options.get("elect", True):
            without_effect |= {"load_ms", "load_fails"}
        return name, arguments, {option: value for option, value in options.items() if option not in without_effect}

    def random_options(self) -> Options:
        choices: dict[str, list[Any]] = {
            "load_ms": [0, 500, 1500.5, None],
            "load_fails": [False, True],
            "lose_tail": [0, 1, 3, 10**400],
            "lose_all": [False, True],
            "stale_ms": [0, 0.5, 1000],
        }
        how = {name: self.random.choice(values) for name, values in choices.items() if self.random.random() < 0.15}
        return {**how, "zombie": self.random.random() < 0.8}

    def expect(self, index: int, call: Call, before: State) -> None:
        """Update the expected state of one partition after a call."""
        name, arguments, options = call
        expected, leader_id, last_leader_id = (
            self.expected,
            self.state.leaders[index],
            self.expected.last_leaders[index],
        )
        if (options.get("lose_tail") or options.get("lose_all")) and self.state.epochs[index] != before.epochs[index]:
            expected.committed[index].clear()
        if name in ("group.move_coordinator", "partition.move_leader") and arguments[-2] in (index, GROUP_IDS[index]):
            expected.awaits[index] = arguments[-1] is None
        elif name == "broker.stop" and before.leaders[index] == arguments[0]:
            expected.awaits[index] = not options["elect"]
        elif expected.awaits[index] and last_leader_id in before.replicas[index]:
            if name == "broker.remove" and arguments[0] == last_leader_id:
                expected.awaits[index] = False
            elif last_leader_id in started_by(name, arguments, before):
                expected.awaits[index] = False
                assert leader_id == last_leader_id, f"partition {index}: expected its last leader"
        if leader_id != NO_LEADER:
            expected.last_leaders[index] = leader_id

    def check(self) -> None:
        """Compare the cluster with the expected state."""
        state, expected = self.state, self.expected
        state.check()
        for index, leader_id in enumerate(state.leaders):
            if expected.awaits[index]:
                assert leader_id == NO_LEADER, f"partition {index} awaits broker {expected.last_leaders[index]}"
            elif any(state.up[node_id] for node_id in state.replicas[index]):
                assert leader_id != NO_LEADER, f"partition {index} has replicas that are up"
            if expected.committed[index] and leader_id in state.offsets[index]:
                assert state.offsets[index][leader_id] in expected.committed[index], f"partition {index}"
                self.seen["commit found"] += None not in expected.committed[index]
            self.seen["two zombies"] += len(state.zombies[index]) >= 2
            self.seen["awaits its last leader"] += expected.awaits[index]

    # Invalid calls

    def make_invalid_calls(self, count: int | None = None) -> None:
        """Make some or all of the calls that must be rejected, and check that they change nothing."""
        calls = list(invalid_calls(self.state.nodes(up=True), self.state.nodes(up=False)))
        for (name, arguments, options), beginning in calls if count is None else self.random.sample(calls, count):
            with pytest.raises(ConfigError) as raised:
                run(self.cluster, (name, arguments, options))
            assert str(raised.value).startswith(beginning), (name, arguments, options)
        assert State.of(self.cluster) == self.state

    # Requests and time

    def commit(self) -> None:
        """Commit an offset of one group at every broker that is up; the coordinator and zombies acknowledge it."""
        index = self.random.randrange(len(GROUP_IDS))
        for broker in self.cluster.brokers:
            if not broker.up:
                continue
            self.last_offset += 1
            with WireClient(broker) as wire:
                error = commit(wire, GROUP_IDS[index], self.last_offset)
            assert error is self.state.errors[index][broker.node_id], (index, broker.node_id)
            if error is NONE and broker.node_id == self.state.leaders[index]:
                self.expected.committed[index] = {self.last_offset}
        self.state = State.of(self.cluster)
        self.check()

    def advance(self) -> None:
        self.cluster.advance(self.random.choice([0.0, 0.5, 2.0]))
        if self.random.random() < 0.3:
            self.cluster.advance_to_next_deadline()
        self.state = State.of(self.cluster)
        self.check()

    # The end

    def recover(self) -> None:
        """Start all brokers, finish loads, stop zombies, and give every group a coordinator."""
        for node_id in self.state.nodes(up=False):
            self.cluster.broker(node_id).start()
        self.cluster.brokers.finish_loading()
        self.cluster.brokers.stop_zombies()
        self.cluster.advance(10)  # FindCoordinator no longer returns former coordinators.
        errors = State.of(self.cluster).errors
        for index, group_id in enumerate(GROUP_IDS):
            if NONE not in errors[index].values():  # The group has no coordinator, or its load failed.
                self.cluster.group(group_id).move_coordinator(to=self.random.choice(list(self.state.up)))
        self.state = State.of(self.cluster)
        self.state.check()
        assert not any(self.state.zombies)
        assert all(list(errors.values()).count(NONE) == 1 for errors in self.state.errors)


def run(cluster: FakeCluster, call: Call) -> Any:
    """Make a call, and return its result."""
    name, arguments, options = call
    if name in ("snapshot", "restore"):
        return getattr(cluster, name)(*arguments)
    definition = commands()[name]
    key = dict(zip(definition.keys, arguments, strict=False))
    method = getattr(definition.of(internals(cluster), key), definition.method.__name__)
    return method(*arguments[len(key) :], **options)


def started_by(name: str, arguments: tuple[Any, ...], before: State) -> list[int]:
    """Return the node ids of the brokers that a call starts or restarts."""
    match name:
        case "broker.start" | "broker.restart":
            return [arguments[0]]
        case "broker.upgrade":
            return [arguments[0]] if before.up[arguments[0]] else []
        case "brokers.rolling_restart":
            return before.nodes(up=True)
        case _:
            return []


def commit(wire: WireClient, group_id: str, offset: int, member_id: str = "", generation_id: int = -1) -> ErrorCode:
    request = commit_request(offset, 0, group_id, member_id, generation_id)
    return ErrorCode(wire.ask(request, OffsetCommitResponse, 3).topics[0].partitions[0].error_code)


def consume(cluster: FakeCluster, group_id: str) -> None:
    """Send the requests of a consumer: find the coordinator, join, sync, heartbeat, commit, fetch the offset."""
    with WireClient(cluster.brokers[0]) as wire:
        found = wire.ask(FindCoordinatorRequest(key=group_id), FindCoordinatorResponse, 2)
    coordinator = cluster.group(group_id).coordinator()
    assert (found.error_code, found.node_id, found.port) == (NONE, coordinator.node_id, coordinator.port)
    with WireClient(coordinator) as wire:
        member_id = join_and_sync(wire, group_id)
        generation_id = cluster.group(group_id).describe().generation_id
        assert heartbeat(wire, group_id, member_id, generation_id, version=2) is NONE
        assert commit(wire, group_id, 10**6, member_id, generation_id) is NONE
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        fetched = wire.ask(OffsetFetchRequest(group_id=group_id, topics=topics), OffsetFetchResponse, 3)
        assert fetched.topics[0].partitions[0].committed_offset == 10**6
    for broker in cluster.brokers:
        if broker != coordinator:
            with WireClient(broker) as wire:
                assert commit(wire, group_id, 1) is NOT_COORDINATOR


@contextmanager
def described(failovers: RandomCommands, seed: int) -> Iterator[None]:
    """Add the seed and the last calls to an error."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed={seed}, {len(failovers.calls)} calls, the last of them:")
        error.add_note("\n".join(failovers.calls[-20:]))
        raise


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    config = {"offsets.topic.num.partitions": len(GROUP_IDS)}
    with FakeCluster(topics={"orders": 1}, config=config, seed=1, clock="manual") as running:
        yield running


@soak
@pytest.mark.parametrize("seed", cases(2, soak=200))
def test_random_failovers_keep_acknowledged_commits(cluster: FakeCluster, seed: int) -> None:
    failovers = RandomCommands(cluster, seed)
    with described(failovers, seed):
        for number in range(CALLS_PER_SEED):
            failovers.call()
            failovers.commit()
            failovers.advance()
            if number % 5 == 0:
                failovers.make_invalid_calls(10)
        failovers.recover()
        for group_id in GROUP_IDS:
            consume(cluster, group_id)
    if seed < SEEDS_WITH_ALL_SITUATIONS:
        assert all(failovers.seen[what] for what in ("two zombies", "awaits its last leader", "commit found"))


@pytest.mark.parametrize("down", [[], [2], [1, 2, 3]], ids=["all-up", "one-down", "all-down"])
def test_invalid_calls_change_nothing(cluster: FakeCluster, down: list[int]) -> None:
    cluster.group("a").move_coordinator(to=2, zombie=True)
    cluster.group("a").move_coordinator(to=3, zombie=True, load_ms=500)
    for node_id in down:
        cluster.broker(node_id).stop(elect=False)
    RandomCommands(cluster, 0).make_invalid_calls()
