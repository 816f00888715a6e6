"""A Hypothesis state machine of groups: arbitrary clients, timers and failovers, with checks of every answer.

Clients join, sync, send heartbeats, commit, also in transactions, leave, restart with their instance id, use former
member ids, or stop sending, while time passes and groups move to other coordinators. After every step the invariants of
all groups and the checks below are evaluated. In the end the log is loaded, whole and cut after every record.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.batch import BatchContext
from fakebroker.proposals.batch_join.batch_join_extension import expected_instances
from fakebroker.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.coordinator_harness import (
    CoordinatorHarness,
    SentRequest,
    expected_member,
    joining_member,
    protocols,
)
from tests.support.coordinator.surviving_state import SurvivingState, check_loaded, check_log

NONE = ErrorCode.NONE
GROUP_IDS = ("g", "группа", "h")
OFFERS = (
    protocols("range", "sticky"),
    protocols("sticky", "range"),
    protocols("range"),
    protocols("range", metadata=b"?"),
)
RETENTION_MS = 604_800_000
REJOIN_ERRORS = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
LOST_MEMBER_ERRORS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(eq=False)
class SimulatedClient:
    """One client: its identity, the options of its joins, and its next request."""

    group_id: str
    instance_id: str | None
    options: dict[str, Any]
    member_id: str = ""
    generation_id: int = -1
    joined: JoinGroupResponse | None = None
    has_to_join: bool = True
    has_to_sync: bool = False

    @property
    def identity(self) -> str:
        """The instance id of a static member, which is kept in a replacement; else the member id."""
        return self.instance_id or self.member_id


@dataclass(eq=False)
class PendingRequest:
    """A request that has not been answered.

    Attributes:
        may_stay_unanswered: Whether Kafka drops the request, because a later request of the member has superseded it or
            because the member has left.
    """

    client: SimulatedClient
    sent: SentRequest
    member_id: str
    generation_id: int = -1
    may_stay_unanswered: bool = False


@dataclass
class Generation:
    """The contents of all JoinGroup responses of one generation, with members by identity.

    Attributes:
        members: The members according to the leader's response.
        joined: The members that have got a response.
    """

    leaders: set[str] = field(default_factory=set)
    protocols: set[str | None] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)


class GroupStateMachine(RuleBasedStateMachine):
    """The groups `GROUP_IDS` with up to 8 clients; the docstring of the module describes rules and checks."""

    @initialize(
        max_size=st.sampled_from([2**31 - 1, 2**31 - 1, 2]),
        delay_ms=st.sampled_from([3_000, 0]),
        retention_ms=st.sampled_from([RETENTION_MS, RETENTION_MS, 500_000]),
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
        self.harness = CoordinatorHarness(
            group_max_size=max_size,
            group_initial_rebalance_delay_ms=delay_ms,
            offsets_retention_ms=retention_ms,
            is_before_kip_848=is_before_kip_848,
        )
        self.survivors = SurvivingState()
        self.survivors_at: dict[int, SurvivingState] = {0: self.survivors}
        self.harness.after_step = self.record_surviving_state
        self.clients: list[SimulatedClient] = []
        self.joins: list[PendingRequest] = []
        self.syncs: list[PendingRequest] = []
        self.batches: list[tuple[list[SimulatedClient], SentRequest]] = []
        self.generations: dict[tuple[Group, int], Generation] = {}
        self.positions = count(1)
        # By group and partition, and for pending offsets the producer: the offset and its position in the log.
        self.commits: dict[tuple[str, int], tuple[int, int]] = {}
        self.pending: dict[tuple[str, int, int], tuple[int, int]] = {}
        for instance_id in instance_ids:
            self.start_client(GROUP_IDS[0], instance_id, OFFERS[0], session_ms=20_000, rebalance_ms=60_000)
        self.run_clients(GROUP_IDS[0], turns=8)

    def client_at(self, number: int) -> SimulatedClient:
        return self.clients[number % len(self.clients)]

    # Requests

    def send_join(self, client: SimulatedClient) -> None:
        member_id = client.member_id
        sent = self.harness.join(member_id, group_id=client.group_id, instance_id=client.instance_id, **client.options)
        if member_id and (sent.is_parked or sent.error is NONE):  # Kafka drops the older parked join of a member.
            self.allow_no_answer(self.joins, client.group_id, member_id)
        self.joins.append(PendingRequest(client, sent, member_id))

    def send_sync(self, client: SimulatedClient, generation_id: int) -> None:
        joined = client.joined
        is_leader = joined is not None and joined.leader == client.member_id
        members = joined.members if joined is not None and is_leader else ()
        assignments = [
            (member.member_id, assignment(client.group_id, generation_id, identity(member))) for member in members
        ]
        sent = self.harness.sync(
            client.member_id, generation_id, assignments, group_id=client.group_id, instance_id=client.instance_id
        )
        if sent.is_parked:
            self.allow_no_answer(self.syncs, client.group_id, client.member_id)
        self.syncs.append(PendingRequest(client, sent, client.member_id, generation_id))

    def allow_no_answer(self, requests: list[PendingRequest], group_id: str, member_id: str) -> None:
        """Mark the pending requests of a member: Kafka never answers them."""
        for request in requests:
            if request.client.group_id == group_id and request.member_id == member_id:
                request.may_stay_unanswered = True

    def send_next_request(self, client: SimulatedClient) -> None:
        """Send the next request of a client that follows the protocol, unless it waits for an answer."""
        if any(one.client is client for one in self.joins + self.syncs):
            return
        if any(client in clients for clients, _ in self.batches):
            return
        if client.has_to_join:
            self.send_join(client)
        elif client.has_to_sync:
            self.send_sync(client, client.generation_id)
        elif self.send_heartbeat(client, client.generation_id) in REJOIN_ERRORS:
            self.send_join(client)

    def send_heartbeat(self, client: SimulatedClient, generation_id: int) -> ErrorCode:
        error = self.harness.heartbeat(client.member_id, generation_id, client.instance_id, client.group_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.has_to_join = "", True
        return error

    def send_batch(self, clients: list[SimulatedClient]) -> None:
        """Send the joins of several clients of one group as one request."""
        options = {key: clients[0].options[key] for key in ("session_ms", "rebalance_ms")}
        members = [joining_member(each.member_id, each.instance_id, each.options["protocols"]) for each in clients]
        call = self.harness.join_batch(*members, group_id=clients[0].group_id, **options)
        for client in clients:
            if client.member_id:
                self.allow_no_answer(self.joins, client.group_id, client.member_id)
        self.batches.append((clients, call))

    # Rules

    @rule(
        group_id=st.sampled_from(GROUP_IDS),
        instance_ids=st.lists(st.sampled_from(["i", "j", "k"]), min_size=1, max_size=3),
        rebalance_ms=st.sampled_from([60_000, 5_000]),
    )
    def register_instances(self, group_id: str, instance_ids: list[str], rebalance_ms: int) -> None:
        call = self.harness.join_batch(
            *map(expected_member, instance_ids), group_id=group_id, rebalance_ms=rebalance_ms
        )
        assert not call.is_parked

    @precondition(lambda self: self.clients)
    @rule(numbers=st.lists(st.integers(0, 7), min_size=1, max_size=3))
    def join_as_batch(self, numbers: list[int]) -> None:
        clients = list(dict.fromkeys(map(self.client_at, numbers)))
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
    def start_client(self, group_id: str, instance_id: str | None, offer: object, **options: object) -> None:
        client = SimulatedClient(group_id, instance_id, {"protocols": offer, **options})
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), offer=st.sampled_from([None, *OFFERS]))
    def rejoin(self, number: int, offer: object) -> None:
        client = self.client_at(number)
        if offer is not None:
            client.options["protocols"] = offer
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7))
    def restart_client(self, number: int) -> None:
        lost = self.client_at(number)
        client = SimulatedClient(lost.group_id, lost.instance_id, dict(lost.options))
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), stale=st.sampled_from([0, 0, 0, 1]))
    def sync(self, number: int, stale: int) -> None:
        client = self.client_at(number)
        self.send_sync(client, client.generation_id - stale)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), stale=st.sampled_from([0, 0, 0, 1]))
    def heartbeat(self, number: int, stale: int) -> None:
        client = self.client_at(number)
        self.send_heartbeat(client, client.generation_id - stale)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), by_instance=st.booleans(), is_dropped=st.booleans())
    def leave(self, number: int, by_instance: bool, is_dropped: bool) -> None:
        client = self.client_at(number)
        group = self.harness.coordinator.groups.classic.get(client.group_id)
        member_id = "" if by_instance else client.member_id
        current_id = member_id or (group.static_members.get(client.instance_id or "", "") if group else "")
        (error,) = self.harness.leave((member_id, client.instance_id), group_id=client.group_id)
        if error is NONE:
            self.allow_no_answer(self.syncs, client.group_id, current_id)
        if is_dropped:
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7))
    def lose_client(self, number: int) -> None:
        self.clients.remove(self.client_at(number))

    @rule(group_id=st.sampled_from(GROUP_IDS), turns=st.sampled_from([1, 3, 8]))
    def run_clients(self, group_id: str, turns: int) -> None:
        for _ in range(turns):
            for client in [client for client in self.clients if client.group_id == group_id]:
                self.send_next_request(client)
                self.receive_answers()
            self.harness.advance(1_000)
            self.receive_answers()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 7), offset=st.integers(0, 9), partition=st.integers(0, 1), is_member=st.booleans())
    def commit(self, number: int, offset: int, partition: int, is_member: bool) -> None:
        client = self.client_at(number)
        identity = (client.member_id, client.generation_id, client.instance_id) if is_member else ("", -1, None)
        error = self.harness.commit(*identity, group_id=client.group_id, offset=offset, partition=partition)
        if error is NONE:
            self.commits[client.group_id, partition] = offset, next(self.positions)

    @rule(
        number=st.none() | st.integers(0, 7),
        group_id=st.sampled_from(GROUP_IDS),
        producer_id=st.integers(0, 1),
        offset=st.integers(0, 9),
        partition=st.integers(0, 1),
    )
    def commit_in_transaction(
        self, number: int | None, group_id: str, producer_id: int, offset: int, partition: int
    ) -> None:
        """Commit an offset in a transaction, as a client of a group, or without the identity of a member."""
        identity: dict[str, Any] = {}
        if number is not None and self.clients:
            client = self.client_at(number)
            group_id = client.group_id
            identity = {"generation_id": client.generation_id, "member_id": client.member_id}
            identity["instance_id"] = client.instance_id
        error = self.harness.commit_in_transaction(producer_id, offset, partition, group_id, **identity)
        assert identity or error is NONE
        if error is NONE:
            self.pending[group_id, partition, producer_id] = offset, next(self.positions)

    @rule(group_id=st.sampled_from(GROUP_IDS), producer_id=st.integers(0, 1), is_commit=st.booleans())
    def end_transaction(self, group_id: str, producer_id: int, is_commit: bool) -> None:
        """End a transaction in the offsets partition of a group."""
        assert self.harness.end_transaction(producer_id, is_commit=is_commit, group_id=group_id) is NONE
        ended = self.partition_of(group_id)
        for key, value in list(self.pending.items()):
            if key[2] == producer_id and self.partition_of(key[0]) == ended:
                del self.pending[key]
                if is_commit and value[1] > self.commits.get(key[:2], (0, 0))[1]:
                    self.commits[key[:2]] = value

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.harness.config.offsets_topic_num_partitions)

    @property
    def log_length(self) -> int:
        return sum(len(batch) for _, batch in self.harness.batches)

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def delete_group(self, group_id: str) -> None:
        if self.harness.delete_group(group_id) is NONE:
            self.drop_commits(group_id)
        self.harness.settle()

    @rule(do_clients_send=st.booleans())
    def fail_over(self, do_clients_send: bool) -> None:
        """Move all groups to another coordinator; clients may send requests while it is loading."""
        former, survivors = list(self.harness.coordinator.groups.classic.values()), self.survivors
        self.harness.fail_over(lambda: self.send_requests_while_loading(self.clients) if do_clients_send else None)
        self.check_loaded_groups(former, survivors, list(self.harness.coordinator.groups.classic.values()))

    def send_requests_while_loading(self, clients: Iterable[SimulatedClient]) -> None:
        self.receive_answers()
        for client in list(clients):
            self.send_next_request(client)
            self.receive_answers()

    def check_loaded_groups(self, former: list[Group], survivors: SurvivingState, loaded: list[Group]) -> None:
        """Check that everything that was stored is loaded; keep the loaded groups' `generations` for later checks."""
        check_loaded(loaded, survivors, self.harness.coordinator, self.harness.now_ms)
        by_id = {group.group_id: group for group in former}
        for group in loaded:
            if group.members:
                key = by_id[group.group_id], group.generation_id
                self.generations[group, group.generation_id] = self.generations[key]
        self.receive_answers()

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def lose_log(self, group_id: str) -> None:
        coordinator, harness = self.harness.coordinator, self.harness
        partition = self.partition_of(group_id)
        for group in list(coordinator.groups.classic.values()):
            if group.partition == partition:
                self.drop_commits(group.group_id)
        harness.batches = [(index, batch) for index, batch in harness.batches if index != partition]
        self.survivors_at.clear()
        coordinator.resign(partition, harness.now_ms)
        coordinator.lead(partition, harness.now_ms)
        harness.settle()

    def drop_commits(self, group_id: str) -> None:
        self.commits = {key: value for key, value in self.commits.items() if key[0] != group_id}
        self.pending = {key: value for key, value in self.pending.items() if key[0] != group_id}

    @rule(duration_ms=st.sampled_from([1, 500, 3_000, 6_000, 70_000, 310_000]), is_late=st.booleans())
    def advance(self, duration_ms: int, is_late: bool) -> None:
        if is_late:
            self.harness.advance_in_one_tick(duration_ms)
        else:
            self.harness.advance(duration_ms)

    @rule()
    def advance_to_next_deadline(self) -> None:
        deadline_ms = self.harness.coordinator.queue.next_deadline()
        if deadline_ms is not None:
            self.harness.advance_in_one_tick(max(deadline_ms - self.harness.now_ms, 0))

    # Checks

    @invariant()
    def check_answers(self) -> None:
        """Within a generation all answers agree, and every request is answered or parked."""
        self.receive_answers()
        for group in self.harness.coordinator.groups.classic.values():
            if group.state.value in ("CompletingRebalance", "Stable"):
                generation = self.generations[group, group.generation_id]
                assert len(generation.leaders) == 1
                assert len(generation.protocols) == 1
                assert generation.joined <= generation.members

    def receive_answers(self) -> None:
        """Pass new answers to the clients; check that each request without an answer is still parked."""
        groups = list(self.harness.coordinator.groups.classic.values())
        contexts = [*(context for g in groups for context in g.parked_joins.values())]
        contexts += [context for g in groups for context in g.parked_syncs.values()]
        contexts += [arrival.context for g in groups for arrival in expected_instances(g).waiting.values()]
        parked = [context.batch.context if isinstance(context, BatchContext) else context for context in contexts]
        self.receive_batches(parked)
        for request in self.joins + self.syncs:
            if request.sent.result is None:
                assert request.may_stay_unanswered or request.sent in parked, "neither answered nor parked"
            elif isinstance(request.sent.result, JoinGroupResponse):
                self.receive_join(request.client, request.sent.result)
            else:
                self.receive_sync(request.client, request.generation_id, request.sent.synced)
        self.joins = [request for request in self.joins if request.sent in parked]
        self.syncs = [request for request in self.syncs if request.sent in parked]

    def receive_batches(self, parked: list[RequestContext]) -> None:
        for clients, sent in self.batches:
            assert (sent.result is None) == (sent in parked), (
                "a batch is parked if and only if one of its members is parked"
            )
            if sent.result is not None:
                joined = {each.generation_id for each in sent.delivered if not each.error_code}
                assert joined <= {sent.generation_id}, "more than one rebalance"
                for client, result in zip(clients, sent.joins, strict=True):
                    self.receive_join(client, result)
        self.batches = [(clients, sent) for clients, sent in self.batches if sent.result is None]

    def receive_join(self, client: SimulatedClient, result: JoinGroupResponse) -> None:
        if result.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif result.error_code in LOST_MEMBER_ERRORS:
            client.member_id, client.has_to_join = "", True
        elif result.error_code == NONE:
            client.member_id, client.generation_id = result.member_id, result.generation_id
            client.joined, client.has_to_join, client.has_to_sync = result, False, True
            self.record_generation(client, result)

    def record_generation(self, client: SimulatedClient, result: JoinGroupResponse) -> None:
        group = self.harness.coordinator.groups.classic.get(client.group_id)
        if group is None or result.generation_id > group.generation_id:
            return  # The group was dropped before its members received the generation.
        generation = self.generations.setdefault((group, result.generation_id), Generation())
        generation.protocols.add(result.protocol_name)
        generation.joined.add(client.identity)
        if result.leader == result.member_id:
            generation.leaders.add(client.identity)
            generation.members |= {identity(member) for member in result.members}

    def receive_sync(self, client: SimulatedClient, generation_id: int, result: SyncGroupResponse) -> None:
        if result.error_code == NONE:
            client.has_to_sync = False
            assert result.assignment == assignment(client.group_id, generation_id, client.identity)
        else:
            client.has_to_join = True

    @invariant()
    def check_commits(self) -> None:
        for group_id in GROUP_IDS:
            for partition in range(2):
                committed = self.harness.committed("t", partition, group_id)
                may_have_expired = committed is None and self.harness.config.offsets_retention_ms < RETENTION_MS
                assert committed == self.commits.get((group_id, partition), (None, 0))[0] or may_have_expired
            found = {
                (each.partition, each.producer_id): each.committed.offset
                for each in self.harness.coordinator.offsets.pending_of(group_id)
            }
            assert found == {key[1:]: value[0] for key, value in self.pending.items() if key[0] == group_id}

    @invariant()
    def check_next_deadline(self) -> None:
        deadline_ms = self.harness.coordinator.queue.next_deadline()
        earliest_ms = min(
            (group.earliest_deadline() for group in self.harness.coordinator.groups.classic.values()),
            default=float("inf"),
        )
        assert (float("inf") if deadline_ms is None else deadline_ms) <= earliest_ms

    # The log

    def record_surviving_state(self) -> None:
        self.survivors = self.survivors.after(self.harness.coordinator)
        self.survivors_at[self.log_length] = self.survivors

    def teardown(self) -> None:
        check_log(self.harness, self.survivors_at)


def identity(member: JoinGroupResponseMember) -> str:
    """Return the identity of a member in a response, as `SimulatedClient.identity`."""
    return member.group_instance_id or str(member.member_id)


def assignment(group_id: str, generation_id: int, identity: str) -> bytes:
    """Return the assignment of a member, which is unique for the generation."""
    return f"{group_id} {generation_id} {identity}".encode()
