"""All commands on a cluster from outside, each defined once.

A command validates its arguments, changes the cluster, and delegates side effects to the `Environment`: listeners,
connections, network conditions, the clock. `FakeCluster` runs the commands over TCP, a simulation in virtual time, and
`fakebroker.cluster.events` from plain data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, Unpack

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.command import FaultHandle, Hold, check_type, command, commands_of
from fakebroker.cluster.controller import Failover, FailoverOptions
from fakebroker.cluster.emulation import Broker, EmulatedRelease, VersionCap
from fakebroker.cluster.environment import Accept, Environment
from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.faults.rule import Fault, FaultOptions
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.seed import GroupSeed, MemberSeed, SeedOptions, seed_groups
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.errors import ConfigError, one_of
from fakebroker.validation import Seconds, convert, plain

T = TypeVar("T")


class ClusterCommands:
    """The commands of one cluster.

    Members of groups are named by member id, by instance id, or by client id if only one member has it.

    Args:
        cluster: The cluster.
        environment: Side effects and time: TCP or simulated.
        new_cluster: Creates the cluster as it was at the start, ids included.
        default_broker: The default for `add_broker`.
        proposals: Proposals for Kafka that new and upgraded brokers of the newest release implement.
    """

    def __init__(
        self,
        cluster: Cluster,
        environment: Environment,
        *,
        new_cluster: Callable[[], Cluster],
        default_broker: Broker | None = None,
        proposals: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._environment = environment
        self._new_cluster = new_cluster
        self._default_broker = default_broker or Broker()
        self._proposals = tuple(proposals)

    def _run(self, step: Callable[[], T]) -> T:
        return self._environment.run(step)

    def _now_ms(self) -> float:
        return self._environment.now_ms()

    # Topics

    @command
    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Create a topic, spread evenly over the brokers.

        Args:
            name: The topic.
            partitions: Number of partitions.
            replication_factor: Replicas of each partition; `default.replication.factor` if None.

        Raises:
            ConfigError: The topic exists, or an argument is out of range.
        """
        self._run(lambda: self._cluster.create_new_topic(name, partitions, replication_factor))

    @command
    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic until it has `total`.

        Args:
            name: The topic.
            total: The new number of partitions.

        Raises:
            ConfigError: There is no such topic, or it has as many partitions already.
        """
        self._run(lambda: self._cluster.create_partitions(name, total))

    @command
    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and the offsets that groups have committed for it.

        Args:
            name: The topic.

        Raises:
            ConfigError: There is no such topic, or it is internal.
        """
        self._run(lambda: self._cluster.delete_named_topic(name))

    # Coordinators

    @command
    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a group, and all groups of its partition of __consumer_offsets, to another coordinator.

        The old coordinator resigns: parked requests get NOT_COORDINATOR. The new one loads the partition's log.

        Args:
            group_id: The group.
            to: The node id of the broker; None for no coordinator at all (COORDINATOR_NOT_AVAILABLE) until the group is
                moved again, or its last coordinator restarts.
            how: How the new coordinator starts; see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is down; or an option is out of range.
        """
        self.move_offsets_partition(self._cluster.offsets_partition_of(group_id).index, to, **how)

    @command
    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a partition of __consumer_offsets to another leader; see `move_coordinator`.

        Args:
            partition: The partition's number.
            to: As in `move_coordinator`.
            how: How coordinators start; see `Failover`.
        """
        options = Failover(**how)

        def move() -> None:
            count = self._cluster.config.number("offsets.topic.num.partitions")
            if not 0 <= partition < count:
                raise ConfigError.of("partition", partition, f"0 to {count - 1}")
            leader_id = NO_LEADER if to is None else self._broker(to, up=True, field="to").node_id
            target = self._cluster.offsets_partition(partition)
            self._cluster.controller.set_leader(target, leader_id, self._now_ms(), options)

        self._run(move)

    @command
    def finish_loading(self) -> None:
        """Finish the load of every coordinator that is loading."""
        self._run(lambda: self._cluster.controller.finish_loading(self._now_ms()))

    @command
    def stop_zombies(self) -> None:
        """Make every zombie coordinator resign."""
        self._run(lambda: self._cluster.controller.stop_zombies(self._now_ms()))

    @command
    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None:
        """Make the preferred replica the leader of each partition where it is up, as a preferred election does.

        The preferred replica is the first one: the leader from the start, unless the partition was reassigned.

        Args:
            how: How coordinators start there; see `Failover`.
        """
        options = Failover(**how)

        def elect() -> None:
            for topic in self._cluster.topics:
                for partition in topic.partitions:
                    preferred = partition.replicas[0]
                    if preferred != partition.leader_id and self._cluster.brokers[preferred].up:
                        self._cluster.controller.set_leader(partition, preferred, self._now_ms(), options)

        self._run(elect)

    # Brokers

    @command
    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker: its connections are closed, its port refuses connections.

        Args:
            node_id: The broker.
            elect: Whether new leaders are elected for the partitions that it leads; else they have none until it is
                back, even if other brokers start before. A move, an ElectLeaders request, or its removal gives them one
                earlier.
            how: How coordinators start elsewhere; see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is down already; or an option is out of range.
        """
        options = Failover(**how)

        def stop() -> None:
            broker = self._broker(node_id, up=True)
            self._environment.close_listener(broker, keep_port=True)
            self._cluster.controller.stop_broker(broker, self._now_ms(), options, elect=elect)

        self._run(stop)

    @command
    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Start a stopped broker, on its previous port.

        Args:
            node_id: The broker.
            how: How coordinators start; see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is up already; or an option is out of range.
        """
        options = Failover(**how)

        def start() -> None:
            broker = self._broker(node_id, up=False)
            self._environment.open_listener(broker)
            self._cluster.controller.start_broker(broker, self._now_ms(), options)

        self._run(start)

    @command
    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker, elect new leaders for its partitions, and start it again.

        Args:
            node_id: The broker.
            how: How coordinators start; see `Failover`.
        """
        self.stop_broker(node_id, **how)
        self.start_broker(node_id, **how)

    @command
    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart every broker that is up, one after the other.

        Args:
            how: How coordinators start; see `Failover`.
        """
        for node_id in [broker.node_id for broker in self._cluster.brokers.values() if broker.up]:
            self.restart_broker(node_id, **how)

    @command
    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older; a broker that is down stays down.

        Args:
            node_id: The broker.
            as_version: The release; None is the newest behavior with every version that is implemented.
            api_versions: For some APIs by name the first and the last version to support, or None for no support.
            how: How coordinators start, elsewhere and here again; see `Failover`.

        Raises:
            ConfigError: There is no such broker, release, API or version; or an option is out of range.
        """
        emulated = EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions or {}), self._proposals)
        broker = self._run(lambda: self._broker(node_id))
        if was_up := broker.up:
            self.stop_broker(node_id, **how)
        self._run(lambda: self._cluster.upgrade_broker(broker, emulated))
        if was_up:
            self.start_broker(node_id, **how)

    @command
    def add_broker(self, like: Broker | None = None) -> BrokerView:
        """Add a broker, on a free port. It leads no partition until one is moved to it or created.

        Args:
            like: Its release and versions; those of the cluster if None.

        Raises:
            ConfigError: There is no such release, API or version.
        """
        emulated = EmulatedRelease.of(like or self._default_broker, self._proposals)

        def add() -> BrokerView:
            broker = self._cluster.add_broker(emulated)
            self._environment.open_listener(broker)
            return BrokerView.of(broker)

        return self._run(add)

    @command
    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Remove a broker permanently; its replicas move to others.

        Args:
            node_id: The broker.
            how: How coordinators start; see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is the last one; or an option is out of range.
        """
        options = Failover(**how)

        def remove() -> None:
            broker = self._broker(node_id)
            if len(self._cluster.brokers) == 1:
                raise ConfigError.of("node_id", node_id, "another broker to remain: it is the last one")
            self._environment.close_listener(broker, keep_port=False)
            self._cluster.remove_broker(broker, self._now_ms(), options)

        self._run(remove)

    @command
    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: Seconds | None = None,
        round_trip_s: Seconds | None = None,
    ) -> None:
        """Change the network conditions of a broker until it is stopped; values that are not given stay as they are.

        All times are wall-clock seconds.

        Args:
            node_id: The broker.
            accept: How it accepts connections. "normal": immediately; "slow": requests are read after `accept_delay_s`
                seconds; "half_open": requests are read and never answered, also after a change back to "normal";
                "refuse": not at all. Existing connections remain.
            accept_delay_s: For "slow", more than 0.
            round_trip_s: Latency added to each response, in order; 0 or more.

        Raises:
            ConfigError: There is no such broker, or it is down; or a value is out of range.
        """
        delay_s = accept_delay_s or 0.0
        if (accept == "slow") != (delay_s > 0):
            expected = "a number > 0 with accept='slow', and none otherwise"
            raise ConfigError.of("accept_delay_s", accept_delay_s, expected)

        def change() -> None:
            broker = self._broker(node_id, up=True)
            conditions = self._environment.network_conditions(broker)
            if accept is not None:
                conditions = replace(conditions, accept=accept, accept_delay_ms=delay_s * 1000)
            if round_trip_s is not None:
                conditions = replace(conditions, round_trip_ms=round_trip_s * 1000)
            self._environment.set_network_conditions(broker, conditions)

        self._run(change)

    def _broker(self, node_id: int, *, up: bool | None = None, field: str = "node_id") -> BrokerNode:
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            raise ConfigError.of(field, node_id, one_of(self._cluster.brokers))
        if up is not None and broker.up is not up:
            others = [each.node_id for each in self._cluster.brokers.values() if each.up is up]
            state = "up" if up else "down"
            raise ConfigError.of(field, node_id, f"a broker that is {state}: {one_of(others, none='there is none')}")
        return broker

    # Faults

    @command
    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> FaultHandle:
        """Inject a fault: `fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Args:
            api: The API by Kafka's name; None is any.
            options: Which of its requests, and the effect; see `fakebroker.cluster.faults.rule.Fault`.

        Raises:
            ConfigError: The fault could never take effect: there is no such API, version, broker, error or name, or its
                options contradict each other.
        """
        return self.add_fault(Fault(api=api, **options))

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Inject a fault.

        Raises:
            ConfigError: As `fail`.
        """
        check_type("fault", fault, Fault, "a Fault")
        return self._handle(self._run(lambda: self._cluster.faults.add(fault, self._now_ms())))

    def faults(self) -> list[FaultHandle]:
        """Return the faults in force, oldest first, including those that are used up."""
        return [self._handle(fault) for fault in self._run(lambda: list(self._cluster.faults.active))]

    def _handle(self, fault: ActiveFault) -> FaultHandle:
        return FaultHandle(fault, lambda fault: self._run(lambda: self._cluster.faults.remove(fault)))

    def remove_fault(self, handle: FaultHandle) -> None:
        """Remove a fault, if it is still in force."""
        check_type("handle", handle, FaultHandle, "a FaultHandle")
        handle.remove()

    @command
    def clear_faults(self) -> None:
        """Remove all faults; responses that they delay are still sent when they are due."""
        self._run(lambda: self._cluster.faults.active.clear())

    # Rebalances

    @command
    def hold(self, group_id: str, state: str) -> Hold:
        """Keep a group in a state until `release`: from now on, or from when it enters it. The group need not exist.

        While the group is held in PreparingRebalance, the join phase does not end, even if its timer expires; in
        CompletingRebalance, the leader's SyncGroup is parked. Everything else works as usual in that state: a member
        that joins, or whose session ends while no response is pending for it, starts another rebalance.

        Args:
            group_id: The group.
            state: "PreparingRebalance" or "CompletingRebalance".

        Returns:
            A context manager that releases it.

        Raises:
            ConfigError: The state is another one.
        """
        held = controls.holdable_state(state)

        def hold() -> None:
            broker = self._cluster.coordinator_of(group_id)
            wanted = self._cluster.group_controls.setdefault(group_id, GroupControls())
            controls.hold(broker.coordinator if broker else None, group_id, wanted, held)

        self._run(hold)
        return Hold(lambda: self._run(lambda: self._release(group_id, [held])))

    @command
    def release(self, group_id: str, state: str | None = None) -> None:
        """Release a held group; everything that became due meanwhile is done when this returns.

        Args:
            group_id: The group.
            state: The state that it is held in; None is any.

        Raises:
            ConfigError: It is not held.
        """
        states = controls.HOLDABLE_STATES if state is None else [controls.holdable_state(state)]

        def release() -> None:
            wanted = self._cluster.group_controls
            if group_id not in wanted or not any(each in wanted[group_id].held_states for each in states):
                held = [f"{key!r} in {each.value}" for key, value in wanted.items() for each in value.held_states]
                where = f" in {state}" if state else ""
                known = one_of(held, none="but there is none")
                raise ConfigError.of("group_id", group_id, f"a group that is held{where}, {known}")
            self._release(group_id, states)

        self._run(release)

    def _release(self, group_id: str, states: Iterable[GroupState]) -> None:
        wanted = self._cluster.group_controls.get(group_id, GroupControls())
        for state in states:
            wanted.held_states.pop(state, None)
        # A zombie coordinator also has the group.
        for broker in self._cluster.brokers.values():
            group = broker.coordinator.group(group_id)
            if group is not None:
                controls.release(broker.coordinator, group, self._now_ms())

    @command
    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance as an expired session does, without removing a member: heartbeats tell all to rejoin.

        Args:
            group_id: The group.

        Raises:
            ConfigError: There is no such group, or it is neither Stable nor CompletingRebalance.
        """
        self._control(group_id, controls.force_rebalance)

    @command
    def choose_leader(self, group_id: str, member: str) -> None:
        """Make a member the leader of the next generation, if it has joined when the join phase ends.

        Args:
            group_id: The group.
            member: The member.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._control(
            group_id,
            lambda coordinator, group, now_ms: controls.choose_leader(
                group, self._cluster.group_controls.setdefault(group_id, GroupControls()), member
            ),
        )

    @command
    def evict(self, group_id: str, member: str) -> None:
        """Remove a member, as an administrator does: its next response is UNKNOWN_MEMBER_ID; the others rebalance.

        Args:
            group_id: The group.
            member: The member.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.evict(coordinator, group, member, now_ms))

    @command
    def expire(self, group_id: str, member: str) -> None:
        """Expire a member's session now. Has no effect while a response is pending for the member.

        Args:
            group_id: The group.
            member: The member.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.expire(coordinator, group, member, now_ms))

    @command
    def fence(self, group_id: str, instance_id: str) -> None:
        """Replace a static member as another process with its instance id does: it gets FENCED_INSTANCE_ID.

        The other process sends no further requests: the member that replaced it is removed when its session ends.

        Args:
            group_id: The group.
            instance_id: The `group.instance.id` of the member.

        Raises:
            ConfigError: There is no such group or instance id.
        """
        self._control(
            group_id, lambda coordinator, group, now_ms: controls.fence(coordinator, group, instance_id, now_ms)
        )

    @command
    def delay_sync(self, group_id: str, member: str, seconds: Seconds | None = None) -> None:
        """Delay the response to a member's next SyncGroup; one that is parked counts as the next.

        From the group's point of view the member has synced, and the other members get their responses.

        Args:
            group_id: The group.
            member: The member.
            seconds: The delay by the brokers' clock; None is until `release_sync`.

        Raises:
            ConfigError: There is no such group or member, or the delay is out of range.
        """
        delay_ms = None if seconds is None else seconds * 1000
        self._control(
            group_id,
            lambda coordinator, group, now_ms: self._cluster.sync_delays.delay(_lasting_name(group, member), delay_ms),
        )

    @command
    def release_sync(self, group_id: str, member: str) -> None:
        """Send the response that `delay_sync` delays, and cancel the delay.

        Args:
            group_id: The group.
            member: The member.

        Raises:
            ConfigError: There is no such group or member, or no response to it is delayed.
        """

        def release(coordinator: Coordinator, group: Group, now_ms: float) -> None:
            answers = self._cluster.sync_delays.release(_lasting_name(group, member))
            if answers is None:
                expected = "a member whose SyncGroup response is delayed"
                raise ConfigError.of("member", member, expected, where=f"group {group_id!r}")
            for call, response in answers:
                self._cluster.answer(call, response, now_ms)

        self._control(group_id, release)

    def _control(self, group_id: str, action: Callable[[Coordinator, Group, float], None]) -> None:
        """Run an action on an existing group, at its coordinator."""

        def act() -> None:
            broker = self._cluster.coordinator_of(group_id)
            if broker is None:
                raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
            group = controls.group_of(broker.coordinator, group_id)
            action(broker.coordinator, group, self._now_ms())

        self._run(act)

    # Seeding

    @command
    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        """Create a group as if clients had created it.

        It is written to __consumer_offsets and loaded from there. PreparingRebalance is then a rebalance in which no
        member has joined yet, CompletingRebalance one in which all have and the leader's SyncGroup is missing.

        Args:
            group_id: The group.
            members: Their number; or a client id, a `MemberSeed` or a table of its fields for each, the leader first.
                Their sessions begin now.
            options: Subscription, state, offsets and assignment; see `GroupSeed`.

        Raises:
            ConfigError: The group exists already, or the arguments contradict each other.
        """
        self._seed([GroupSeed(group_id=group_id, members=members, **options)])

    def seed_groups(self, groups: Iterable[GroupSeed]) -> None:
        """Create many groups at once, or none if one of them cannot be created.

        Raises:
            ConfigError: As `seed_group`.
        """
        self._seed(convert(plain(list(groups)), list[GroupSeed]))

    def _seed(self, seeds: Sequence[GroupSeed]) -> None:
        self._run(lambda: seed_groups(self._cluster, seeds, self._now_ms()))

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Return a snapshot of topics with their records, brokers, leaders, configs, groups and offsets, for `restore`.

        Groups are included as in their log, without a rebalance in progress.
        """
        return self._run(lambda: snapshots.take(self._cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot.

        Groups are loaded from their log, with full sessions. Parked joins and syncs get NOT_COORDINATOR. Holds, delays
        and faults end. Connections remain, except those to brokers that were down or did not exist. The clock and the
        sequences of ids continue.

        Raises:
            ConfigError: The snapshot is another cluster's.
            ListenError: The port of a broker that has been removed since is not available.
        """
        check_type("snapshot", snapshot, Snapshot, "a Snapshot")
        snapshots.check(self._cluster, snapshot)

        def restore() -> None:
            with self._environment.replacing_brokers(snapshot.brokers, cut_all=False):
                snapshots.restore(self._cluster, snapshot, self._now_ms())

        self._run(restore)

    @command
    def reset(self) -> None:
        """Return the cluster to its start: the same topics, brokers and ids, and nothing that happened since.

        Removes groups, offsets, records, holds and faults, empties the journal, and closes all connections. Ports and
        the time stay as they are.
        """

        def reset() -> None:
            fresh = self._new_cluster()
            with self._environment.replacing_brokers(fresh.brokers, cut_all=True):
                snapshots.start_over(self._cluster, fresh, self._now_ms())

        self._run(reset)

    # Time

    @command
    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock; everything that is due by then is done when this returns.

        Args:
            seconds: By how much.

        Raises:
            ConfigError: The clock cannot be advanced, or not by so much.
        """
        self._environment.advance(seconds)

    @command
    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the brokers' clock to the next deadline.

        Returns:
            The deadlines that were reached, all of the same time; `in_s` is how far the clock was advanced. None if
            none is pending.

        Raises:
            ConfigError: The clock cannot be advanced.
        """

        def advance() -> list[Deadline] | None:
            pending = pending_deadlines(self._cluster, self._now_ms())
            first = [deadline for deadline in pending if deadline.at_ms == pending[0].at_ms]
            self._environment.advance(first[0].in_s if first else 0.0)
            self._cluster.tick(self._now_ms(), self._cluster.wire_ms)  # if the cluster is not running, no loop does it
            return first or None

        return self._run(advance)


COMMANDS = commands_of(ClusterCommands)
"""The definitions of all commands that can be written as plain data, by name."""


def _lasting_name(group: Group, name: str) -> tuple[str, str]:
    """Return the key under which a member is longest known: its instance id, if it has one."""
    member = controls.member_of(group, name)
    return group.group_id, member.instance_id or member.member_id
