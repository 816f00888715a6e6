"""Partitions that move between two coordinators hundreds of times, while clients send requests.

Uses the clients and checks of `GroupStateMachine`, with random numbers instead of Hypothesis, because a history here is
much longer. The log of a partition is compacted before it is loaded.
"""

from collections import ChainMap, Counter
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import astuple

from fakebroker.coordinator.classic.states import DEAD, GroupState
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import Record, TransactionalRecord, TransactionEnd, group_of
from fakebroker.coordinator.timers import TimerQueue
from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Message
from tests.support.coordinator.coordinator_harness import CoordinatorHarness
from tests.support.coordinator.group_state_machine import GROUP_IDS, OFFERS, RETENTION_MS, GroupStateMachine
from tests.support.coordinator.surviving_state import SurvivingState
from tests.support.soak import cases, examples, soak

PARTITIONS = 50
MOVED = sorted({partition_for(group_id, PARTITIONS) for group_id in GROUP_IDS})


def group_id_of(first: Any) -> str:
    """Return the group of a request by its first argument: a group id, or a message."""
    return first if isinstance(first, str) else first.group_id


class OffsetsPair:
    """The offsets of two coordinators: requests for a group are passed to the leader of its partition."""

    def __init__(self, leader: Callable[[int], Coordinator]) -> None:
        self._leader = leader

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(first: Any, *arguments: Any, **options: Any) -> Any:
            partition = partition_for(group_id_of(first), PARTITIONS)
            return getattr(self._leader(partition).offsets, name)(first, *arguments, **options)

        return request

    def end_transaction(self, partition: int, end: TransactionEnd) -> ErrorCode:
        return self._leader(partition).offsets.end_transaction(partition, end)


class CoordinatorPair:
    """Two coordinators with the interface of one: requests for a group are passed to the leader of its partition."""

    def __init__(self, harness: CoordinatorHarness) -> None:
        self.both = [harness.coordinator, harness.new_coordinator(harness.coordinator.queue)]
        self.leader_of = dict.fromkeys(range(PARTITIONS), 0)
        self.offsets = OffsetsPair(self.leader)
        self.groups = SimpleNamespace(classic=ChainMap(*(one.groups.classic for one in reversed(self.both))))

    def leader(self, partition: int) -> Coordinator:
        return self.both[self.leader_of[partition]]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(first: Any, *arguments: Any) -> Any:
            return getattr(self.leader(partition_for(group_id_of(first), PARTITIONS)), name)(first, *arguments)

        return request

    @property
    def answers(self) -> list[tuple[RequestContext, Message]]:
        return [answer for one in self.both for answer in one.answers]

    @answers.setter
    def answers(self, answers: list[tuple[RequestContext, Message]]) -> None:
        for one in self.both:
            one.answers = list(answers)

    @property
    def queue(self) -> TimerQueue[Any]:
        return self.both[0].queue


class RandomHistory:
    """A history of requests and failovers, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = GroupStateMachine()
        self.machine.start(2**31 - 1, 3_000, RETENTION_MS, False, [None, "i"])
        self.harness = self.machine.harness
        self.moved_in: Counter[GroupState] = Counter()
        self.pair = CoordinatorPair(self.harness)
        self.harness.coordinator = cast(Coordinator, self.pair)

    def move(self, partition: int) -> None:
        machine, harness = self.machine, self.harness
        old = self.pair.leader_of[partition]
        groups = [group for group in self.pair.groups.classic.values() if group.partition == partition]
        self.moved_in.update(group.state for group in groups)
        survivors = machine.survivors
        after_step, harness.after_step = harness.after_step, lambda: None
        self.pair.both[old].resign(partition, harness.now_ms)
        self.pair.leader_of[partition] = 1 - old
        new = self.pair.both[1 - old]
        new.start_loading(partition)
        harness.settle()
        if self.random.random() < 0.3:
            machine.send_requests_while_loading(
                c for c in machine.clients if partition_for(c.group_id, PARTITIONS) == partition
            )
        self.compact(partition)
        harness.after_step = after_step
        new.finish_loading(partition, harness.records(partition), harness.now_ms)
        assert all(self.pair.both[old].error_for(group.group_id) is ErrorCode.NOT_COORDINATOR for group in groups)
        loaded = [group for group in self.pair.groups.classic.values() if group.partition == partition]
        records = [each for each in harness.records(partition) if not isinstance(each, TransactionEnd)]
        stored = {group_of(each) for each in records if each.value is not None}
        ids = [group.group_id for group in groups if group.group_id in stored]
        # Compaction removes groups that only had offsets in transactions that were aborted, as in Kafka.
        assert {group.group_id for group in groups} - stored <= survivors.transactional
        expected = SurvivingState(
            {i: survivors.memberships[i] for i in ids},
            {i: survivors.offsets[i] for i in ids},
            pending={i: survivors.pending[i] for i in ids},
        )
        machine.check_loaded_groups(groups, expected, loaded)
        harness.settle()

    def compact(self, partition: int) -> None:
        """Keep only the last record of each key, tombstones included.

        Records that are in open transactions, or after them, are all kept; those of aborted transactions are not.
        """
        records = self.harness.records(partition)
        outcomes: dict[int, bool | None] = {}  # By the indexes of the records in transactions.
        ends: dict[int, bool] = {}
        for index, record in reversed(list(enumerate(records))):
            if isinstance(record, TransactionEnd):
                ends[record.producer_id] = record.is_commit
            elif isinstance(record, TransactionalRecord):
                outcomes[index] = ends.get(record.producer_id)
        first_open = min((index for index, is_commit in outcomes.items() if is_commit is None), default=len(records))
        last: dict[tuple[object, ...], Record] = {}
        for index, record in enumerate(records):
            if outcomes.get(index) is False and index < first_open:
                continue
            is_kept = index >= first_open or isinstance(record, TransactionEnd)
            key = (index,) if is_kept or isinstance(record, TransactionEnd) else astuple(record.key)
            last.pop(key, None)
            last[key] = record
        others = [(index, batch) for index, batch in self.harness.batches if index != partition]
        self.harness.batches = [*others, *((partition, (record,)) for record in last.values())]

    def step(self) -> None:
        machine, random = self.machine, self.random
        number, group_id = random.randrange(8), random.choice(GROUP_IDS)
        actions: list[Callable[[], None]] = [
            lambda: machine.run_clients(group_id, random.choice([1, 1, 3, 8])),
            lambda: machine.advance(random.choice([1, 500, 3_000, 6_000]), random.random() < 0.2),
            machine.advance_to_next_deadline,
            lambda: machine.end_transaction(group_id, random.randrange(2), random.random() < 0.7),
            lambda: machine.commit_in_transaction(
                random.choice([None, number]), group_id, random.randrange(2), random.randrange(10), random.randrange(2)
            ),
        ]
        if len(machine.clients) < 8:
            options = {"two_step": random.random() < 0.5, "session_ms": 20_000, "rebalance_ms": 60_000}
            instance_id = random.choice([None, None, "i", "j"])
            actions += [lambda: machine.start_client(group_id, instance_id, random.choice(OFFERS[:3]), **options)] * 2
        if machine.clients:
            actions += [
                lambda: machine.commit(number, random.randrange(10), random.randrange(2), True),
                lambda: machine.rejoin(number, None),
                lambda: machine.sync(number, 0),
                lambda: machine.leave(number, random.random() < 0.5, True),
                lambda: machine.lose_client(number),
            ]
        random.choice(actions)()
        self.check()

    def check(self) -> None:
        self.machine.check_answers()
        self.machine.check_commits()
        self.machine.check_next_deadline()


@soak
@pytest.mark.parametrize("seed", cases(1, soak=60))
def test_groups_survive_repeated_failovers(seed: int) -> None:
    history = RandomHistory(seed)
    failovers = examples(300, soak=1_000)
    for _ in range(failovers):
        for _ in range(history.random.choice([0, 1, 4, 12])):
            history.step()
        history.move(history.random.choice(MOVED))
        history.check()
    often = failovers / 20
    assert min(history.moved_in[state] for state in GroupState if state is not DEAD) > often
    assert history.machine.commits
    assert min(group.generation_id for group in history.pair.groups.classic.values()) > often
