"""Any clients, in any order, with any faults: what a coordinator promises them holds all the same.

Clients join, sync, send heartbeats, commit, leave, come back under their instance id, go on under ids that are no
longer theirs, or fall silent, while time passes and groups move from one coordinator to another. After every step each
group keeps its invariants and each promise below is looked at; in the end the log is read back, whole and cut anywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.coordinator.group.batch_join.batch import BatchToken
from fakebroker.coordinator.group.batch_join.batch_join_extension import expected_instances
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from tests.support.coordinator.batch_joins import BatchCall, batch, expected, joining
from tests.support.coordinator.coordinator_harness import Call, CoordinatorHarness, protocols, result_of
from tests.support.coordinator.surviving_state import Survivors, check_loaded, check_log

NONE = ErrorCode.NONE
GROUP_IDS = ("g", "группа", "h")
OFFERS = (
    protocols("range", "sticky"),
    protocols("sticky", "range"),
    protocols("range"),
    protocols("range", metadata=b"?"),
)
LONG_MS = 604_800_000
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(eq=False)
class Client:
    """What one client knows, and the calls it waits for."""

    group_id: str
    instance_id: str | None
    options: dict[str, Any]
    member_id: str = ""
    generation_id: int = -1
    joined: JoinResult | None = None
    has_to_join: bool = True
    has_to_sync: bool = False

    @property
    def identity(self) -> str:
        """What stays the same when a static member is replaced."""
        return self.instance_id or self.member_id


@dataclass(eq=False)
class Sent:
    """A call that has not been answered yet. An excuse says why it never may be."""

    client: Client
    call: Call
    member_id: str
    generation_id: int = -1
    is_excused: bool = False


@dataclass
class Generation:
    """What the members of one generation were told."""

    leaders: set[str] = field(default_factory=set)
    protocols: set[str | None] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)


class CoordinatorMachine(RuleBasedStateMachine):
    @initialize(
        max_size=st.sampled_from([2**31 - 1, 2**31 - 1, 2]),
        delay_ms=st.sampled_from([3_000, 0]),
        retention_ms=st.sampled_from([LONG_MS, LONG_MS, 500_000]),
        is_before_kip_848=st.booleans(),
        instance_ids=st.lists(st.sampled_from([None, "i"]), max_size=3),
    )
    def start(
        self,
        max_size: int,
        delay_ms: int,
        retention_ms: int,
        is_before_kip_848: bool,
        instance_ids: list[str | None],
    ) -> None:
        self.driver = CoordinatorHarness(
            group_max_size=max_size,
            group_initial_rebalance_delay_ms=delay_ms,
            offsets_retention_ms=retention_ms,
            is_before_kip_848=is_before_kip_848,
        )
        self.survivors = Survivors()
        self.survivors_at: dict[int, Survivors] = {0: self.survivors}
        self.driver.settled = self.look_at_what_survives
        self.clients: list[Client] = []
        self.joins: list[Sent] = []
        self.syncs: list[Sent] = []
        self.batches: list[tuple[list[Client], BatchCall]] = []
        self.generations: dict[tuple[Group, int], Generation] = {}
        self.commits: dict[tuple[str, int], int] = {}
        for instance_id in instance_ids:
            self.a_client_starts(GROUP_IDS[0], instance_id, OFFERS[0], session_ms=20_000, rebalance_ms=60_000)
        self.the_clients_of_a_group_do_what_they_should(GROUP_IDS[0], rounds=8)

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # What clients send

    def send_join(self, client: Client) -> None:
        member_id = client.member_id
        call = self.driver.join(member_id, group_id=client.group_id, instance_id=client.instance_id, **client.options)
        if member_id and (
            call.is_parked or call.error is NONE
        ):  # Kafka drops the older of two parked joins of a member.
            self.excuse(self.joins, client.group_id, member_id)
        self.joins.append(Sent(client, call, member_id))

    def send_sync(self, client: Client, generation_id: int) -> None:
        joined = client.joined
        is_leader = joined is not None and joined.leader == client.member_id
        members = joined.members if joined is not None and is_leader else ()
        assignments = [
            (member.member_id, assignment(client.group_id, generation_id, member.instance_id or member.member_id))
            for member in members
        ]
        call = self.driver.sync(
            client.member_id, generation_id, assignments, group_id=client.group_id, instance_id=client.instance_id
        )
        if call.is_parked:
            self.excuse(self.syncs, client.group_id, client.member_id)
        self.syncs.append(Sent(client, call, client.member_id, generation_id))

    def excuse(self, sent: list[Sent], group_id: str, member_id: str) -> None:
        for one in sent:
            if one.client.group_id == group_id and one.member_id == member_id:
                one.is_excused = True

    def act(self, client: Client) -> None:
        """What a client that works would do next."""
        if any(one.client is client for one in self.joins + self.syncs):
            return
        if any(client in clients for clients, _ in self.batches):
            return
        if client.has_to_join:
            self.send_join(client)
        elif client.has_to_sync:
            self.send_sync(client, client.generation_id)
        elif self.beat(client, client.generation_id) in REJOIN:
            self.send_join(client)

    def beat(self, client: Client, generation_id: int) -> ErrorCode:
        error = self.driver.heartbeat(client.member_id, generation_id, client.instance_id, client.group_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.has_to_join = "", True
        return error

    def send_batch(self, clients: list[Client]) -> None:
        """The joins of several clients of one group as one request."""
        options = {key: clients[0].options[key] for key in ("session_ms", "rebalance_ms")}
        members = [joining(each.member_id, each.instance_id, each.options["protocols"]) for each in clients]
        call = batch(self.driver, *members, group_id=clients[0].group_id, **options)
        for client in clients:
            if client.member_id:
                self.excuse(self.joins, client.group_id, client.member_id)
        self.batches.append((clients, call))

    # Rules

    @rule(
        group_id=st.sampled_from(GROUP_IDS),
        instance_ids=st.lists(st.sampled_from(["i", "j", "k"]), min_size=1, max_size=3),
        rebalance_ms=st.sampled_from([60_000, 5_000]),
    )
    def instances_are_registered(self, group_id: str, instance_ids: list[str], rebalance_ms: int) -> None:
        call = batch(self.driver, *map(expected, instance_ids), group_id=group_id, rebalance_ms=rebalance_ms)
        assert not call.is_parked

    @precondition(lambda self: self.clients)
    @rule(numbers=st.lists(st.integers(0, 7), min_size=1, max_size=3))
    def clients_join_in_a_batch(self, numbers: list[int]) -> None:
        clients = list(dict.fromkeys(map(self.pick, numbers)))
        self.send_batch([each for each in clients if each.group_id == clients[0].group_id])

    @precondition(lambda self: len(self.clients) < 8)
    @rule(
        group_id=st.sampled_from(GROUP_IDS),
        instance_id=st.sampled_from([None, None, "i", "j", "k"]),
        offer=st.sampled_from(OFFERS),
        two_step=st.booleans(),
        skip=st.booleans(),
        session_ms=st.sampled_from([20_000, 400_000, 6_000]),
        rebalance_ms=st.sampled_from([60_000, 5_000, 0]),
    )
    def a_client_starts(self, group_id: str, instance_id: str | None, offer: object, **options: object) -> None:
        client = Client(group_id, instance_id, {"protocols": offer, **options})
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), offer=st.sampled_from([None, *OFFERS]))
    def a_client_joins_again(self, number: int, offer: object) -> None:
        client = self.pick(number)
        if offer is not None:
            client.options["protocols"] = offer
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7))
    def a_client_comes_back_without_its_id(self, number: int) -> None:
        lost = self.pick(number)
        client = Client(lost.group_id, lost.instance_id, dict(lost.options))
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), stale=st.sampled_from([0, 0, 0, 1]))
    def a_client_syncs(self, number: int, stale: int) -> None:
        client = self.pick(number)
        self.send_sync(client, client.generation_id - stale)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), stale=st.sampled_from([0, 0, 0, 1]))
    def a_client_sends_a_heartbeat(self, number: int, stale: int) -> None:
        client = self.pick(number)
        self.beat(client, client.generation_id - stale)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), by_instance=st.booleans(), is_forgotten=st.booleans())
    def a_client_leaves(self, number: int, by_instance: bool, is_forgotten: bool) -> None:
        client = self.pick(number)
        group = self.driver.coordinator.group(client.group_id)
        member_id = "" if by_instance else client.member_id
        current_id = group.static_members.get(client.instance_id or "", "") if group and by_instance else member_id
        (error,) = self.driver.leave((member_id, client.instance_id), group_id=client.group_id)
        if error is NONE:
            self.excuse(self.syncs, client.group_id, current_id)
        if is_forgotten:
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7))
    def a_client_falls_silent(self, number: int) -> None:
        self.clients.remove(self.pick(number))

    @rule(group_id=st.sampled_from(GROUP_IDS), rounds=st.sampled_from([1, 3, 8]))
    def the_clients_of_a_group_do_what_they_should(self, group_id: str, rounds: int) -> None:
        for _ in range(rounds):
            for client in [client for client in self.clients if client.group_id == group_id]:
                self.act(client)
                self.hear()
            self.driver.advance(1_000)
            self.hear()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), offset=st.integers(0, 9), partition=st.integers(0, 1), is_member=st.booleans())
    def a_client_commits(self, number: int, offset: int, partition: int, is_member: bool) -> None:
        client = self.pick(number)
        identity = (client.member_id, client.generation_id, client.instance_id) if is_member else ("", -1, None)
        error = self.driver.commit(*identity, group_id=client.group_id, offset=offset, partition=partition)
        if error is NONE:
            self.commits[client.group_id, partition] = offset

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def a_group_is_deleted(self, group_id: str) -> None:
        if result_of(self.driver.coordinator.delete_group, group_id, self.driver.now_ms) is NONE:
            self.forget_commits(group_id)
        self.driver.settle()

    @rule(are_clients_busy=st.booleans())
    def the_groups_move(self, are_clients_busy: bool) -> None:
        """Every group gets another coordinator; clients may ask it before it is ready."""
        former, survivors = list(self.driver.coordinator.groups()), self.survivors
        self.driver.hand_over(lambda: self.ask_too_early(self.clients) if are_clients_busy else None)
        self.check_moved(former, survivors, list(self.driver.coordinator.groups()))

    def ask_too_early(self, clients: Iterable[Client]) -> None:
        self.hear()
        for client in list(clients):
            self.act(client)
            self.hear()

    def check_moved(self, former: list[Group], survivors: Survivors, loaded: list[Group]) -> None:
        """All that had to survive is there; what members of a generation were told stays true of it."""
        check_loaded(loaded, survivors, self.driver.now_ms)
        by_id = {group.group_id: group for group in former}
        for group in loaded:
            if group.members:
                key = by_id[group.group_id], group.generation_id
                self.generations[group, group.generation_id] = self.generations[key]
        self.hear()

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def a_log_is_lost(self, group_id: str) -> None:
        coordinator, driver = self.driver.coordinator, self.driver
        partition = partition_for(group_id, driver.config.offsets_topic_num_partitions)
        for group in list(coordinator.groups()):
            if group.partition == partition:
                self.forget_commits(group.group_id)
        driver.batches = [(index, batch) for index, batch in driver.batches if index != partition]
        self.survivors_at.clear()
        coordinator.resign(partition, driver.now_ms)
        coordinator.lead(partition, driver.now_ms)
        driver.settle()

    def forget_commits(self, group_id: str) -> None:
        self.commits = {key: offset for key, offset in self.commits.items() if key[0] != group_id}

    @rule(duration_ms=st.sampled_from([1, 500, 3_000, 6_000, 70_000, 310_000]), is_late=st.booleans())
    def time_passes(self, duration_ms: int, is_late: bool) -> None:
        if is_late:
            self.driver.advance_at_once(duration_ms)
        else:
            self.driver.advance(duration_ms)

    @rule()
    def time_passes_to_the_next_deadline(self) -> None:
        deadline_ms = self.driver.coordinator.next_deadline()
        if deadline_ms is not None:
            self.driver.advance_at_once(max(deadline_ms - self.driver.now_ms, 0))

    # Promises

    @invariant()
    def answers_keep_their_promises(self) -> None:
        """Answers agree within a generation, and no call is forgotten."""
        self.hear()
        for group in self.driver.coordinator.groups():
            if group.state.value in ("CompletingRebalance", "Stable"):
                generation = self.generations[group, group.generation_id]
                assert len(generation.leaders) == 1
                assert len(generation.protocols) == 1
                assert generation.told <= generation.members

    def hear(self) -> None:
        """Lets clients take notice of their answers; checks that each call without one is still parked."""
        groups = list(self.driver.coordinator.groups())
        parked = [*(token for g in groups for token in g.parked_joins.values())]
        parked += [token for g in groups for token in g.parked_syncs.values()]
        parked += [arrival.token for g in groups for arrival in expected_instances(g).waiting.values()]
        parked = [token.batch.token if isinstance(token, BatchToken) else token for token in parked]
        self.hear_batches(parked)
        for sent in self.joins + self.syncs:
            if sent.call.result is None:
                assert sent.is_excused or sent.call in parked, "forgotten"
            elif isinstance(sent.call.result, JoinResult):
                self.hear_join(sent.client, sent.call.result)
            else:
                self.hear_sync(sent.client, sent.generation_id, sent.call.synced)
        self.joins = [sent for sent in self.joins if sent.call in parked]
        self.syncs = [sent for sent in self.syncs if sent.call in parked]

    def hear_batches(self, parked: list[object]) -> None:
        for clients, call in self.batches:
            assert (call.result is None) == (call in parked), "forgotten, or a member of it is"
            if call.result is not None:
                assert len({each.generation_id for each in call.results if not each.error}) <= 1, "one round for all"
                for client, result in zip(clients, call.results, strict=True):
                    self.hear_join(client, result)
        self.batches = [(clients, call) for clients, call in self.batches if call.result is None]

    def hear_join(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif result.error in LOST:
            client.member_id, client.has_to_join = "", True
        elif result.error is NONE:
            client.member_id, client.generation_id = result.member_id, result.generation_id
            client.joined, client.has_to_join, client.has_to_sync = result, False, True
            self.note_generation(client, result)

    def note_generation(self, client: Client, result: JoinResult) -> None:
        group = self.driver.coordinator.group(client.group_id)
        if group is None or result.generation_id > group.generation_id:
            return  # The group was dropped before its members could hear of the generation.
        generation = self.generations.setdefault((group, result.generation_id), Generation())
        generation.protocols.add(result.protocol_name)
        generation.told.add(client.identity)
        if result.leader == result.member_id:
            generation.leaders.add(client.identity)
            generation.members |= {member.instance_id or member.member_id for member in result.members}

    def hear_sync(self, client: Client, generation_id: int, result: SyncResult) -> None:
        if result.error is NONE:
            client.has_to_sync = False
            assert result.assignment == assignment(client.group_id, generation_id, client.identity)
        else:
            client.has_to_join = True

    @invariant()
    def acknowledged_commits_can_be_read(self) -> None:
        for group_id in GROUP_IDS:
            for partition in range(2):
                committed = self.driver.committed("t", partition, group_id)
                may_have_expired = committed is None and self.driver.config.offsets_retention_ms < LONG_MS
                assert committed == self.commits.get((group_id, partition)) or may_have_expired

    @invariant()
    def the_next_look_is_not_late(self) -> None:
        deadline_ms = self.driver.coordinator.next_deadline()
        earliest_ms = min(
            (group.earliest_deadline() for group in self.driver.coordinator.groups()), default=float("inf")
        )
        assert (float("inf") if deadline_ms is None else deadline_ms) <= earliest_ms

    # The log

    def look_at_what_survives(self) -> None:
        self.survivors = self.survivors.after(self.driver.coordinator.groups())
        self.survivors_at[sum(len(batch) for _, batch in self.driver.batches)] = self.survivors

    def teardown(self) -> None:
        check_log(self.driver, self.survivors_at)


def assignment(group_id: str, generation_id: int, identity: str) -> bytes:
    return f"{group_id} {generation_id} {identity}".encode()


def test_promises() -> None:
    run_state_machine_as_test(CoordinatorMachine, settings=settings(max_examples=200, stateful_step_count=40))


@pytest.mark.slow
def test_promises_for_long() -> None:
    many = settings(max_examples=300, stateful_step_count=50)
    run_state_machine_as_test(CoordinatorMachine, settings=many)
