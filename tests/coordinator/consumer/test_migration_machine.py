"""Random histories of a group whose clients use either protocol: it is classic or a consumer group, and changes."""

from dataclasses import dataclass, field

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, decode_subscription
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.consumer_group_harness import GROUP, REBALANCE_MS, SESSION_MS, FakeTopics, Owned
from tests.support.coordinator.mixed_group_harness import (
    CLASSIC_REBALANCE_MS,
    CLASSIC_SESSION_MS,
    MixedGroupHarness,
    places,
)
from tests.support.soak import examples, soak

NAMES = ("a", "b", "c", "d")
PARTITIONS = 5


@dataclass(eq=False)
class Client:
    """A client that follows its protocol.

    Attributes:
        epoch: Its member epoch or generation.
        task: What it does next: "join", "sync", "beat", or "wait" for the answer to a parked request.
        leads: The members to which it assigns partitions, with those that they have.
    """

    is_classic: bool
    member_id: str
    epoch: int = 0
    owned: dict[str, set[int]] = field(default_factory=dict)
    task: str = "join"
    leads: dict[str, set[int]] = field(default_factory=dict)


class MigrationMachine(RuleBasedStateMachine):
    """Clients of both protocols against one coordinator; with an eager or with a cooperative assignor.

    In a downgrade, Kafka stores the target of each member as its assignment, also if the member still has more
    (`ClassicGroup.fromConsumerGroup`), so that another member may get what this one has. The rebalance that follows is
    lost if there is a failover before its end; then nobody has the partitions of the member that left. So who has which
    partitions is not checked any more after such a downgrade, or such a failover.
    """

    def __init__(self) -> None:
        super().__init__()
        self.harness = MixedGroupHarness(FakeTopics(orders=PARTITIONS))
        self.clients: dict[str, Client] = {}
        self.is_cooperative = False
        self.started = 0
        self.number = 0
        self.was_classic = True
        self.is_checked = True
        self.awaits_rebalance = False

    @initialize(is_cooperative=st.booleans(), is_classic=st.booleans())
    def first(self, is_cooperative: bool, is_classic: bool) -> None:
        self.is_cooperative = is_cooperative
        self.act("a", is_classic)

    @rule(name=st.sampled_from(NAMES), is_classic=st.booleans())
    def act(self, name: str, is_classic: bool) -> None:
        """A client does what it has to do next; one that is not there starts."""
        if name not in self.clients:
            self.started += 1
            member_id = "" if is_classic else f"{name}{self.started}"
            self.clients[name] = Client(is_classic, member_id)
        client = self.clients[name]
        if not client.is_classic:
            self._heartbeat(name, client)
        elif client.task == "join":
            self._join(name, client)
        elif client.task == "sync":
            self._sync(name, client)
        elif client.task == "beat":
            error = self.harness.beat(client.member_id, client.epoch)
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                self._join(name, client)
            elif error:
                self._forget(name, error)
        self._take_answers(self.harness.answers())
        self._note_downgrade()

    def _note_downgrade(self) -> None:
        group = self._group()
        if isinstance(group, Group) and not self.was_classic:
            self.awaits_rebalance = True
            for client in self.clients.values():
                member = group.members.get(client.member_id)
                if member is not None and member.assignment:
                    stored = {index for _, index in decode_assignment(member.assignment)}
                    self.is_checked &= client.owned.get("orders", set()) <= stored
        self.was_classic = not isinstance(group, ConsumerGroup)

    def _heartbeat(self, name: str, client: Client) -> None:
        result = self.harness.send(client.member_id, client.epoch, client.owned if client.epoch else {})
        if result.error_code:
            self._forget(name, ErrorCode(result.error_code))
            return
        client.epoch = result.member_epoch
        if (assigned := self.harness.assignment(result)) is not None:
            client.owned = assigned

    def _join(self, name: str, client: Client) -> None:
        if not self.is_cooperative:
            client.owned = {}
        client.task = "wait"
        self.harness.join(client.member_id, owned=client.owned, token=name)
        self._take_answers(self.harness.late)

    def _sync(self, name: str, client: Client) -> None:
        client.task = "wait"
        self.harness.sync(client.member_id, client.epoch, self._assignment(client.leads), token=name)
        self._take_answers(self.harness.late)

    def _assignment(self, members: dict[str, set[int]]) -> dict[str, Owned]:
        """Return the assignment of a leader. A cooperative one takes partitions away before it gives them to others."""
        order = sorted(members)
        assigned: dict[str, set[int]] = {member_id: set() for member_id in order}
        for index in range(PARTITIONS if order else 0):
            member_id = order[index % len(order)]
            if not any(index in owned for other, owned in members.items() if other != member_id):
                assigned[member_id].add(index)
        return {member_id: {"orders": indexes} for member_id, indexes in assigned.items()}

    def _take_answers(self, answers: dict[object, JoinGroupResponse | SyncGroupResponse]) -> None:
        for token, answer in answers.items():
            client = self.clients.get(str(token))
            if client is None or client.task != "wait":
                continue  # It has crashed.
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                client.task = "join"
                client.member_id = client.member_id or getattr(answer, "member_id", "")
            elif answer.error_code:
                self._forget(str(token), ErrorCode(answer.error_code))
            elif isinstance(answer, JoinGroupResponse):
                client.member_id, client.epoch, client.task = answer.member_id, answer.generation_id, "sync"
                client.leads = {
                    each.member_id: {index for _, index in decode_subscription(each.metadata).owned_partitions}
                    for each in answer.members
                }
            else:
                self.awaits_rebalance = False
                former, client.owned = client.owned, places(answer)
                gives_up = former.get("orders", set()) - client.owned.get("orders", set())
                client.task = "join" if self.is_cooperative and gives_up else "beat"

    def _forget(self, name: str, error: ErrorCode) -> None:
        """A client that was removed starts again, later."""
        known = (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
        assert error in known, error
        client = self.clients[name]
        if error is ErrorCode.ILLEGAL_GENERATION:
            client.task, client.owned = "join", {}
        else:
            del self.clients[name]

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or not client.member_id:
            return
        if client.is_classic:
            self.harness.leave((client.member_id, None))
        else:
            self.harness.send(client.member_id, -1)
        del self.clients[name]
        self._note_downgrade()
        self._take_answers(self.harness.answers())

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule(ms=st.sampled_from([1_000, CLASSIC_SESSION_MS, CLASSIC_REBALANCE_MS, SESSION_MS, REBALANCE_MS]))
    def advance(self, ms: int) -> None:
        self.harness.advance(ms)
        self._note_downgrade()
        self._take_answers(self.harness.answers())

    @rule()
    def fail_over(self) -> None:
        self.is_checked &= not self.awaits_rebalance
        self.harness.fail_over()
        self.number = 0  # A generation that was not stored is lost.
        for name, client in [*self.clients.items()]:
            if client.task == "wait":
                client.task = "join"
                if not client.member_id:
                    del self.clients[name]

    @rule()
    def settle(self) -> None:
        """All clients do what they have to: then each partition has one owner, and the group is of the right kind."""
        rounds = 0  # Since all crashed members have been removed.
        for _ in range(15):
            for name in [*self.clients]:
                if name in self.clients:
                    self.act(name, self.clients[name].is_classic)
            rounds = rounds + 1 if self._members() == {each.member_id for each in self.clients.values()} else 0
            self.harness.advance(500)
            self._note_downgrade()
            self._take_answers(self.harness.answers())
        group = self._group()
        if group is None or not self.clients or rounds < 10:
            return
        assert group.state.value == "Stable", group
        assert self.harness.is_classic == all(each.is_classic for each in self.clients.values())
        owned = [index for client in self.clients.values() for index in client.owned.get("orders", ())]
        assert not self.is_checked or sorted(owned) == list(range(PARTITIONS))

    @invariant()
    def no_two_members_have_a_partition(self) -> None:
        members = self._members()
        owned = [
            index
            for client in self.clients.values()
            if client.member_id in members
            for index in client.owned.get("orders", ())
        ]
        assert not self.is_checked or len(owned) == len(set(owned)), self.clients

    @invariant()
    def generations_and_epochs_rise_together(self) -> None:
        group, number = self._group(), 0
        if group is not None and group.members:
            number = group.group_epoch if isinstance(group, ConsumerGroup) else group.generation_id
        assert number >= self.number or not number
        self.number = number

    def _group(self) -> Group | ConsumerGroup | None:
        return self.harness.coordinator.groups.classic.get(GROUP) or self.harness.coordinator.groups.consumer.get(GROUP)

    def _members(self) -> set[str]:
        group = self._group()
        return set() if group is None else {*group.members}


MigrationMachine.TestCase.settings = settings(max_examples=examples(15, soak=2_000), stateful_step_count=40)
TestMigration = soak(MigrationMachine.TestCase)
