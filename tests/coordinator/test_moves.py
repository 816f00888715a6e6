"""Partitions move back and forth between two coordinators a thousand times, while clients do what clients do.

The clients and the promises are those of `test_machine`; here a seeded dice rolls instead of Hypothesis, as one history
is much longer. Logs are compacted on the way, as real ones are.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from fakebroker.coordinator.group.api import Answer
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import DEAD, GroupState
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.records import OffsetRecord, Record
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from tests.coordinator.test_machine import GROUP_IDS, LONG_MS, OFFERS, CoordinatorMachine
from tests.support.coordinator.coordinator_harness import CoordinatorHarness
from tests.support.coordinator.surviving_state import Survivors

PARTITIONS = 50
MOVED = sorted({partition_for(group_id, PARTITIONS) for group_id in GROUP_IDS})


class Pair:
    """Two coordinators in the place of one: whatever is asked about a group goes to the one that leads it."""

    def __init__(self, driver: CoordinatorHarness) -> None:
        self.both = [driver.coordinator, driver.new_coordinator()]
        self.leader_of = dict.fromkeys(range(PARTITIONS), 0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(group_id: str, *arguments: Any) -> Any:
            leader = self.both[self.leader_of[partition_for(group_id, PARTITIONS)]]
            return getattr(leader, name)(group_id, *arguments)

        return ask

    @property
    def answers(self) -> list[Answer]:
        return [answer for one in self.both for answer in one.answers]

    @answers.setter
    def answers(self, answers: list[Answer]) -> None:
        for one in self.both:
            one.answers = list(answers)

    def groups(self) -> list[Group]:
        return [group for one in self.both for group in one.groups()]

    def tick(self, now_ms: float) -> None:
        for one in self.both:
            one.tick(now_ms)

    def next_deadline(self) -> float | None:
        return min((at for one in self.both if (at := one.next_deadline()) is not None), default=None)


class Movers:
    """A machine whose groups are led by a pair."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = CoordinatorMachine()
        self.machine.start(2**31 - 1, 3_000, LONG_MS, False, [None, "i"])
        self.driver = self.machine.driver
        self.moved_in: Counter[GroupState] = Counter()
        self.pair = Pair(self.driver)
        self.driver.coordinator = cast(Coordinator, self.pair)

    def move(self, partition: int) -> None:
        machine, driver = self.machine, self.driver
        old = self.pair.leader_of[partition]
        groups = [group for group in self.pair.groups() if group.partition == partition]
        self.moved_in.update(group.state for group in groups)
        survivors = machine.survivors
        kept, driver.settled = driver.settled, lambda: None
        self.pair.both[old].resign(partition, driver.now_ms)
        self.pair.leader_of[partition] = 1 - old
        new = self.pair.both[1 - old]
        new.start_loading(partition)
        driver.settle()
        if self.random.random() < 0.3:
            machine.ask_too_early(c for c in machine.clients if partition_for(c.group_id, PARTITIONS) == partition)
        self.compact(partition)
        driver.settled = kept
        new.finish_loading(partition, driver.records(partition), driver.now_ms)
        assert all(self.pair.both[old].error_for(group.group_id) is ErrorCode.NOT_COORDINATOR for group in groups)
        loaded = [group for group in self.pair.groups() if group.partition == partition]
        ids = [group.group_id for group in groups]
        expected = Survivors({i: survivors.memberships[i] for i in ids}, {i: survivors.offsets[i] for i in ids})
        machine.check_moved(groups, expected, loaded)
        driver.settle()

    def compact(self, partition: int) -> None:
        """Leaves the last record of each key; tombstones stay."""
        last: dict[tuple[object, ...], Record] = {}
        for record in self.driver.records(partition):
            where = (record.topic, record.partition) if isinstance(record, OffsetRecord) else ()
            key = record.group_id, *where
            last.pop(key, None)
            last[key] = record
        others = [(index, batch) for index, batch in self.driver.batches if index != partition]
        self.driver.batches = [*others, *((partition, (record,)) for record in last.values())]

    def step(self) -> None:
        machine, random = self.machine, self.random
        number, group_id = random.randrange(8), random.choice(GROUP_IDS)
        actions: list[Callable[[], None]] = [
            lambda: machine.the_clients_of_a_group_do_what_they_should(group_id, random.choice([1, 1, 3, 8])),
            lambda: machine.time_passes(random.choice([1, 500, 3_000, 6_000]), random.random() < 0.2),
            machine.time_passes_to_the_next_deadline,
        ]
        if len(machine.clients) < 8:
            options = {"two_step": random.random() < 0.5, "session_ms": 20_000, "rebalance_ms": 60_000}
            instance_id = random.choice([None, None, "i", "j"])
            actions += [
                lambda: machine.a_client_starts(group_id, instance_id, random.choice(OFFERS[:3]), **options)
            ] * 2
        if machine.clients:
            actions += [
                lambda: machine.a_client_commits(number, random.randrange(10), random.randrange(2), True),
                lambda: machine.a_client_joins_again(number, None),
                lambda: machine.a_client_syncs(number, 0),
                lambda: machine.a_client_leaves(number, random.random() < 0.5, True),
                lambda: machine.a_client_falls_silent(number),
            ]
        random.choice(actions)()
        self.check()

    def check(self) -> None:
        self.machine.answers_keep_their_promises()
        self.machine.acknowledged_commits_can_be_read()
        self.machine.the_next_look_is_not_late()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_thousand_moves(seed: int) -> None:
    movers = Movers(seed)
    for _ in range(1_000):
        for _ in range(movers.random.choice([0, 1, 4, 12])):
            movers.step()
        movers.move(movers.random.choice(MOVED))
        movers.check()
    assert min(movers.moved_in[state] for state in GroupState if state is not DEAD) > 50
    assert movers.machine.commits
    assert min(group.generation_id for group in movers.pair.groups()) > 50
