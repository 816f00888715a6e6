"""Random histories of groups in a cluster: members, faults, holds, failovers. Equal seeds give equal clusters."""

from collections.abc import Callable
from random import Random
from typing import Any

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.coordinator.classic.group import Group
from fakebroker.errors import ConfigError
from fakebroker.proposals.batch_join.batch_join_extension import expected_instances
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest, BatchJoinGroupRequestMember
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.group_requests import commit_of, heartbeat_request, offset_to_commit, sync_request

GROUP_IDS = ("g", "h")
_SESSIONS_MS = (6_000, 10_000, 45_000)
_REBALANCES_MS = (1, 5_000, 20_000, 60_000)
_RELEASES = (None, None, "1.0", "2.4", "3.9")
_FAULTS: tuple[dict[str, Any], ...] = (
    {"api": "JoinGroup", "delay_before_s": 4.0, "times": 3},
    {"api": "SyncGroup", "delay_before_s": 7.0, "times": 2},
    {"api": "Heartbeat", "delay_before_s": 3.0},
    {"api": "JoinGroup", "delay_s": 5.0},
    {"api": "SyncGroup", "error": "NOT_COORDINATOR", "times": 2},
    {"api": "LeaveGroup", "drop": True},
)

Contents = dict[tuple[int, str], tuple[object, ...]]
"""The contents of groups, by broker and group id."""


class GroupHistory:
    """A cluster of two brokers after random requests and commands.

    Args:
        seed: Determines the history.
        steps: How many requests and commands; about half of them also advance the time.
    """

    def __init__(self, seed: int, steps: int) -> None:
        self._random = random = Random(seed)
        config: dict[str, object] = {
            "offsets.topic.num.partitions": 2,
            "group.initial.rebalance.delay.ms": random.choice((0, 3_000, 3_000)),
            "offsets.retention.minutes": random.choice((1, 20)),
            "offsets.retention.check.interval.ms": 30_000,
        }
        release = random.choice(_RELEASES)
        proposals = () if release else ("batch-join",)
        self.harness = ClusterHarness(brokers=2, config=config, as_version=release, proposals=proposals)
        self.cluster = self.harness.cluster
        self._has_batches = bool(proposals)
        environment = ClusterHarnessEnvironment(self.harness)
        self._commands = LocalCluster(Local(self.cluster, environment, new_cluster=lambda: self.cluster))
        self.log: list[str] = []
        for _ in range(steps):
            self._step()
            if random.random() < 0.5:
                self.advance_to(self.harness.now_ms + random.choice((0, 1, 500, 3_000, 3_000, 5_999, 20_000)))

    # Time

    @property
    def now_ms(self) -> float:
        return self.harness.now_ms

    def advance_to(self, until_ms: float, after_tick: Callable[[], None] = lambda: None) -> None:
        """Advance the time, and process each timer at its deadline."""
        while self.now_ms < until_ms:
            due_ms = self.cluster.next_deadline()
            next_ms = until_ms if due_ms is None else min(until_ms, max(due_ms, self.now_ms))
            self._tick(next_ms)
            after_tick()

    def _tick(self, at_ms: float) -> None:
        self.harness.now_ms = at_ms
        self.cluster.tick(at_ms)
        due_ms = self.cluster.next_deadline()
        assert due_ms is None or due_ms > at_ms, "a timer that was due has not expired"

    def advance_with_heartbeats(self, until_ms: float, silent: str = "") -> None:
        """Advance the time, while all members but one send heartbeats at least every five seconds."""
        self._heartbeats(silent)
        while self.now_ms < until_ms:
            self.advance_to(min(until_ms, self.now_ms + 5_000), lambda: self._heartbeats(silent))
            self._heartbeats(silent)

    def _heartbeats(self, silent: str) -> None:
        # Not as requests, which faults could delay.
        for broker, group in self.groups():
            for member in list(group.members.values()):
                if member.member_id != silent and not member.is_new:
                    request = heartbeat_request(group.group_id, member.member_id, group.generation_id)
                    request.group_instance_id = member.instance_id
                    broker.coordinator.heartbeat(request, self.now_ms)

    # Contents

    def groups(self) -> list[tuple[BrokerNode, Group]]:
        return [
            (broker, group)
            for broker in self.cluster.brokers.values()
            for group in broker.coordinator.groups.classic.values()
        ]

    def contents(self) -> Contents:
        """Return what timers change: the states, generations and members of groups, and their offsets."""
        return {
            (broker.node_id, group.group_id): (
                group.state.value,
                group.generation_id,
                _ids(group),
                len(list(group.offsets)),
            )
            for broker, group in self.groups()
        }

    def ids(self, deadline: Deadline) -> tuple[str, ...]:
        """Return the members, pending ids and expected instances of the group of a deadline."""
        group = self._group_of(deadline)
        return () if group is None else _ids(group)

    def state(self, deadline: Deadline) -> str:
        """Return the state of the group of a deadline."""
        group = self._group_of(deadline)
        return "Dead" if group is None else group.state.value

    def _group_of(self, deadline: Deadline) -> Group | None:
        assert deadline.node_id is not None
        return self.cluster.brokers[deadline.node_id].coordinator.groups.classic.get(deadline.group_id or "")

    # Requests and commands

    def _step(self) -> None:
        actions = [
            self._join,
            self._join,
            self._join,
            self._rejoin,
            self._rejoin,
            self._sync,
            self._sync,
            self._sync,
            self._heartbeat,
            self._leave,
            self._commit,
            self._command,
        ]
        if self._has_batches:
            actions.append(self._register)
        action = self._random.choice(actions)
        action()
        self.log.append(f"{self.now_ms:.0f} {action.__name__}")

    def _send(self, group_id: str, request: Any, version: int) -> None:
        broker = self.cluster.coordinator_of(group_id)
        if broker is not None:
            self.harness.send(request, version, broker=broker.node_id, client_id=f"c{self._random.randrange(3)}")

    def _any_member(self) -> tuple[Group, str] | None:
        found = [(group, each) for _, group in self.groups() for each in (*group.members, *group.pending_members)]
        return self._random.choice(found) if found else None

    def _join(self) -> None:
        group_id = self._random.choice(GROUP_IDS)
        if self._random.random() < 0.3:
            self._send_join(group_id, "", group_instance_id=self._random.choice(("s", "t")))
        else:
            self._send_join(group_id, "", version=self._random.choice((3, 3, 5)))

    def _rejoin(self) -> None:
        if found := self._any_member():
            group, member_id = found
            member = group.members.get(member_id)
            instance_id = None if member is None else member.instance_id
            self._send_join(group.group_id, member_id, group_instance_id=instance_id)

    def _send_join(self, group_id: str, member_id: str, version: int = 5, **fields: Any) -> None:
        names = self._random.choice((("range",), ("range", "roundrobin"), ("roundrobin", "range"), ("range", "range")))
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            session_timeout_ms=self._random.choice(_SESSIONS_MS),
            rebalance_timeout_ms=self._random.choice(_REBALANCES_MS),
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=b"") for name in names],
            **fields,
        )
        self._send(group_id, request, version)

    def _register(self) -> None:
        """Register an expected instance (KAFKA-8397)."""
        group_id, name = self._random.choice(GROUP_IDS), self._random.choice(("s", "t", "x"))
        member = BatchJoinGroupRequestMember(member_id="", group_instance_id=name, protocols=[])
        timeout_ms = self._random.choice(_REBALANCES_MS)
        request = BatchJoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=timeout_ms,
            protocol_type="consumer",
            join_group_members=[member],
        )
        self._send(group_id, request, 10)

    def _sync(self) -> None:
        found = [(group, each) for _, group in self.groups() for each in group.awaiting_sync if each in group.members]
        if found:
            group, member_id = self._random.choice(found)
            request = sync_request(member_id, group.group_id, group.generation_id, {}, version=3)
            self._send(group.group_id, request, 3)

    def _heartbeat(self) -> None:
        if found := self._any_member():
            group, member_id = found
            self._send(group.group_id, heartbeat_request(group.group_id, member_id, group.generation_id), 3)

    def _leave(self) -> None:
        if found := self._any_member():
            group, member_id = found
            members = [MemberIdentity(member_id=member_id)]
            self._send(group.group_id, LeaveGroupRequest(group_id=group.group_id, members=members), 3)

    def _commit(self) -> None:
        group_id = self._random.choice(GROUP_IDS)
        self._send(group_id, commit_of(offset_to_commit(0), group_id=group_id), 7)

    def _command(self) -> None:
        random, commands, group_id = self._random, self._commands, self._random.choice(GROUP_IDS)
        states = ("PreparingRebalance", "CompletingRebalance")
        members = [member_id for _, group in self.groups() for member_id in group.members if group.group_id == group_id]
        named: list[Callable[[], object]] = [
            lambda: commands.group(group_id).hold(random.choice(states)),
            lambda: commands.group(group_id).release(),
            lambda: commands.group(group_id).rebalance(),
            lambda: commands.inject_fault(**random.choice(_FAULTS)),
            lambda: commands.group(group_id).move_coordinator(
                random.choice((1, 2)), load_ms=random.choice((0, 4_000)), zombie=random.random() < 0.3
            ),
        ]
        if members:
            member_id = random.choice(members)
            named.append(lambda: commands.group(group_id).expire(member_id))
            named.append(lambda: commands.group(group_id).delay_sync(member_id, random.choice((None, 4.0))))
        try:
            random.choice(named)()
        except ConfigError:  # The group is not in a state for the command.
            return


def _ids(group: Group) -> tuple[str, ...]:
    expected = (instance.member_id for instance in expected_instances(group).instances.values())
    return (*group.members, *group.pending_members, *expected)
