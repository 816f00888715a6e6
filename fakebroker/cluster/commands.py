"""The definitions of all commands: changes of a cluster that tests, events, HTTP and the control client can make.

A command validates its arguments, changes the cluster, and delegates side effects to the `Environment`: listeners,
connections, network conditions, the clock. `FakeCluster` runs commands on a cluster with sockets, and the replay's
simulation runs them in virtual time. `fakebroker.cluster.events` runs them from plain data.

`scenarios/reference/commands.md` is generated from the docstrings. The OpenAPI document has their first lines.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar, Unpack

from msgspec import Meta
from msgspec.structs import replace

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclOptions, AclRule, OperationName, new_acls
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.command import (
    AppendFailureHandle,
    FaultHandle,
    Hold,
    check_type,
    checked_event,
    command,
    commands_of,
)
from fakebroker.cluster.configs.settings import AUTHORIZER
from fakebroker.cluster.configs.topic_configs import TopicConfigValue
from fakebroker.cluster.emulation import Broker, BrokerSettings, EmulatedRelease, ReleaseName, VersionCap
from fakebroker.cluster.environment import MAX_ADVANCE_S, Accept, Environment
from fakebroker.cluster.faults.actions import BoundAction
from fakebroker.cluster.faults.append_failures import AppendFailure, checked_error
from fakebroker.cluster.faults.injection import ActiveFault, bind_function, bound_actions
from fakebroker.cluster.faults.rule import Action, Fault, FaultOptions, checked_in_advance
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.replication.coordinator_moves import Failover, FailoverOptions
from fakebroker.cluster.seeding.producer import Headers, ProducedRecord, Timestamp, produce
from fakebroker.cluster.seeding.seed import GroupSeed, GroupTable, MemberSeed, SeedOptions, seed_groups
from fakebroker.cluster.seeding.transaction_seed import (
    ProducerEpoch,
    ProducerId,
    TransactionSeed,
    TransactionSeedOptions,
    seed_hanging_transaction,
    seed_transaction,
)
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.cluster.topics import NO_LEADER, Partition
from fakebroker.coordinator.group import consumer_group_controls, controls
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.states import ConsumerGroupState
from fakebroker.coordinator.transaction import controls as transaction_controls
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.states import TransactionState
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError, one_of
from fakebroker.topic_partition import TopicPartition, format_partitions, parse_partition
from fakebroker.validation import Data, Positive, Seconds

T = TypeVar("T")

HeldState = GroupState | ConsumerGroupState | TransactionState

_HOLDABLE_STATES: Mapping[str, HeldState] = {
    **{state.value: state for state in controls.HOLDABLE_STATES},
    **{state.value: state for state in transaction_controls.HOLDABLE_STATES},
}
"""The states in which groups and transactional ids can be held, by Kafka's names, which differ."""


class ClusterCommands:
    """The commands of one cluster.

    A member of a group is identified by its member id, its instance id, or its client id if this is unique. A new
    command also needs a method with the same signature in `FakeCluster` and in `fakebroker.control.Client`; see
    ARCHITECTURE.md, Recipes.

    Args:
        cluster: The cluster.
        environment: Side effects and time: real or simulated.
        new_cluster: Creates a cluster in the initial state of this one, with the same cluster id and the same
            sequence of generated ids; used by `reset`.
        default_broker: Release and versions of brokers that `add_broker` adds.
        proposals: Names of experimental proposals, such as "rewrite". A broker implements them after `add_broker` or
            `upgrade_broker`, if it has the newest release.
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

    def _change(self, step: Callable[[], T]) -> T:
        """Run a step that changes what is stored.

        Raises:
            DiskFullError: There is no space to store it.
        """
        if self._cluster.storage is not None:
            self._cluster.storage.require_space()
        return self._run(step)

    def _now_ms(self) -> float:
        return self._environment.now_ms()

    # Topics

    @command
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> None:
        """Create a topic and distribute its partitions evenly over the brokers.

        The first partitions of successive topics have different leaders: each topic starts at the next broker.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            replication_factor: Number of replicas of each partition. None: the broker setting
                `default.replication.factor`, but at most the number of brokers.
            configs: Topic configs by Kafka's names, such as `{"cleanup.policy": "compact"}`.

        Raises:
            ConfigError: The topic exists, its name is not legal or equals that of another topic but for dots and
                underscores, or an argument is out of range.
        """
        self._change(lambda: self._cluster.create_new_topic(name, partitions, replication_factor, configs or {}))

    @command
    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic until it has `total`.

        Args:
            name: Name of the topic.
            total: The new number of partitions, greater than the current one.

        Raises:
            ConfigError: The topic does not exist or is internal, or `total` is out of range.
        """
        self._change(lambda: self._cluster.create_partitions(name, total))

    @command
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        Args:
            name: Name of the topic.

        Raises:
            ConfigError: The topic does not exist or is internal.
        """
        self._change(lambda: self._cluster.delete_named_topic(name))

    @command
    def produce(
        self,
        topic: str,
        values: Sequence[Data],
        *,
        key: Data = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> list[ProducedRecord]:
        """Append records to a topic, like a producer with `acks=all`.

        The records pass the same checks as those of a Produce request, and complete the Fetch requests that wait for
        them. All of them are appended, or none. Text stands for its bytes in UTF-8. In JSON and TOML, other bytes are
        given in base64, as {"base64": "/w=="}. Faults do not apply, and the journal has no request.

        Args:
            topic: Name of the topic, which must exist.
            values: The values of the records. None, which is null in JSON: a tombstone.
            key: The key of all records.
            partition: Number of the partition. None: with a key, the partition that Kafka's default partitioner chooses
                (murmur2); without a key, the records go in turn to the partitions that have a leader.
            headers: The headers of all records, by name; or a list of pairs, in which a name may occur twice.
            timestamp: The timestamp of all records, in milliseconds since the Unix epoch. None: the time of the
                brokers' clock.

        Returns:
            The partition and the offset of each record, in the order of the values.

        Raises:
            ConfigError: The topic or partition does not exist or has no leader, or its leader does not accept the
                records. The error names Kafka's error, such as MESSAGE_TOO_LARGE.
        """

        def append() -> list[ProducedRecord]:
            now_ms = self._now_ms()
            return produce(
                self._cluster,
                topic,
                values,
                key=key,
                partition=partition,
                headers=headers or {},
                timestamp_ms=int(now_ms) if timestamp is None else timestamp,
                now_ms=now_ms,
            )

        return self._run(append)

    # Coordinators

    @command
    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move the coordinator of a group to another broker.

        All groups in the same partition of __consumer_offsets move with it. The old coordinator resigns: its parked
        requests get NOT_COORDINATOR. The new coordinator loads the groups from the partition's log.

        Args:
            group_id: Id of the group.
            to: Node id of the new coordinator. None: the group has no coordinator (COORDINATOR_NOT_AVAILABLE) until it
                is moved again, or its previous coordinator restarts.
            how: Options of the failover; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range.
        """
        self.move_offsets_partition(self._cluster.offsets_partition_of(group_id).index, to, **how)

    @command
    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a partition of __consumer_offsets, and with it the coordinator of its groups, to another broker.

        See `move_coordinator`, which finds the partition of a group.

        Args:
            partition: Number of the partition.
            to: Node id of the new leader. None: the partition has no leader, as in `move_coordinator`.
            how: Options of the failover; see `Failover`.

        Raises:
            ConfigError: The partition or broker does not exist, the broker is down, or an option is out of range.
        """

        def offsets_partition() -> Partition:
            self._cluster.topics.show_offsets_topic()
            count = len(self._cluster.topics.offsets_topic.partitions)
            if not 0 <= partition < count:
                raise ConfigError.of("partition", partition, f"0 to {count - 1}")
            return self._cluster.offsets_partition(partition)

        self._move(offsets_partition, to, Failover(**how))

    @command
    def move_transaction_coordinator(
        self, transactional_id: str, to: int | None, **how: Unpack[FailoverOptions]
    ) -> None:
        """Move the coordinator of a transactional id to another broker.

        All ids in the same partition of __transaction_state move with it. The old coordinator resigns: requests whose
        records are held get NOT_COORDINATOR. The new coordinator loads the ids from the partition's log, and writes the
        markers of transactions that are prepared. If the log does not exist, it is created.

        Args:
            transactional_id: The transactional id, which need not exist.
            to: Node id of the new coordinator. None: the id has no coordinator (COORDINATOR_NOT_AVAILABLE) until it is
                moved again, or its previous coordinator restarts.
            how: Options of the failover; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range.
        """
        self._move(lambda: self._cluster.transactions_partition_of(transactional_id), to, Failover(**how))

    def _move(self, find: Callable[[], Partition], to: int | None, how: Failover) -> None:
        """Change the leader of a partition of an internal topic, which `find` returns."""

        def move() -> None:
            leader_id = NO_LEADER if to is None else self._broker(to, up=True, field="to").node_id
            self._cluster.controller.set_leader(find(), leader_id, self._now_ms(), how)

        self._change(move)

    @command
    def finish_loading(self) -> None:
        """Finish loading in all coordinators that are loading, even if their `load_ms` has not passed."""
        self._run(lambda: self._cluster.controller.finish_loading(self._now_ms()))

    @command
    def stop_zombies(self) -> None:
        """Make all zombies resign: coordinators that continue to answer after a failover with `zombie`."""
        self._run(lambda: self._cluster.controller.stop_zombies(self._now_ms()))

    @command
    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None:
        """Run a preferred leader election for all partitions.

        The first replica of each partition becomes its leader, if the broker is up. Coordinators of groups move with
        their partitions of __consumer_offsets. Use it after `start_broker` to move leaders back; with the broker
        setting `auto.leader.rebalance.enable` the brokers do so themselves, after a time.

        Args:
            how: Options of the failover of coordinators; see `Failover`.

        Raises:
            ConfigError: An option is out of range.
        """
        options = Failover(**how)
        self._change(lambda: self._cluster.controller.elect_preferred(self._now_ms(), options))

    # Reassignments

    @command
    def hold_reassignments(self, topic: str | None = None) -> Hold:
        """Hold reassignments of partitions before they complete, until `release_reassignments`.

        The replicas that a reassignment adds do not get in sync, so that AlterPartitionReassignments succeeds,
        Metadata and ListPartitionReassignments show the added and the removed replicas, and the leader stays. Applies
        to reassignments in progress and to later ones; those that only remove replicas or change their order complete
        at once. Clients can cancel or replace a reassignment meanwhile.

        Without a hold, a reassignment completes at once, unless a broker is down or its copies are throttled (by the
        configs `leader.replication.throttled.rate`, `leader.replication.throttled.replicas` and those for followers).

        Args:
            topic: Name of a topic, which need not exist yet. None: all topics.

        Returns:
            A context manager that releases the reassignments.
        """
        self._run(lambda: self._cluster.controller.hold_copies(topic, self._now_ms()))
        return Hold(lambda: self._run(lambda: self._cluster.controller.release_copies(topic, self._now_ms())))

    @command
    def release_reassignments(self, topic: str | None = None) -> None:
        """Release reassignments that are held.

        Those that are not throttled have completed when the command returns. Throttled ones continue.

        Args:
            topic: The topic that was given to `hold_reassignments`, or None if it was None.

        Raises:
            ConfigError: The reassignments of the topic are not held.
        """

        def release() -> None:
            held = self._cluster.controller.copies.held_topics
            if topic not in held:
                known = one_of(sorted(map(repr, held)), none="but none is held")
                raise ConfigError.of("topic", topic, f"what hold_reassignments was given, {known}")
            self._cluster.controller.release_copies(topic, self._now_ms())

        self._run(release)

    @command
    def finish_reassignments(self) -> None:
        """Complete all reassignments in progress, even if they are held or throttled.

        Those that wait for a broker that is down continue to wait. Holds apply to later reassignments.
        """
        self._change(lambda: self._cluster.controller.finish_copies(self._now_ms()))

    # Brokers

    @command
    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker: close its connections, and refuse connections to its port.

        Args:
            node_id: Node id of the broker.
            elect: Whether the partitions that it leads elect new leaders. If false, they have no leader until this
                broker starts again; the start of another broker does not give them a leader. They also get a leader if
                they are moved, if an ElectLeaders request names them, or if this broker is removed.
            how: Options of the failover to other brokers; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is down already, or an option is out of range.
        """
        options = Failover(**how)

        def stop() -> None:
            broker = self._broker(node_id, up=True)
            self._environment.close_listener(broker, keep_port=True)
            self._cluster.controller.stop_broker(broker, self._now_ms(), options, elect=elect)

        self._change(stop)

    @command
    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Start a stopped broker, on its previous port.

        It has the same replicas as before, which are in sync at once. It becomes the leader of those partitions that
        have no leader, unless they await another one as their last leader (see `stop_broker`). Reassignments that have
        waited for it are completed.

        Nothing else moves back: partitions that have elected another leader keep it, and so do the groups that have
        moved to another coordinator, and network conditions (`set_broker`) are normal. `elect_preferred` moves leaders
        and coordinators back. So does time, if the broker setting `auto.leader.rebalance.enable` is true (false by
        default, unlike in Kafka): `leader.imbalance.check.interval.seconds` (300) of the brokers' clock after a
        partition got another leader than its first replica.

        Args:
            node_id: Node id of the broker.
            how: Options of the failover of coordinators; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is up already, or an option is out of range.
        """
        options = Failover(**how)

        def start() -> None:
            broker = self._broker(node_id, up=False)
            self._environment.open_listener(broker)
            self._cluster.controller.start_broker(broker, self._now_ms(), options)

        self._change(start)

    @command
    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker, with elections of new leaders for its partitions, and start it again.

        Leaders and coordinators do not move back; see `start_broker`.

        Args:
            node_id: Node id of the broker.
            how: Options of both failovers, at the stop and at the start; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range.
        """
        self.stop_broker(node_id, **how)
        self.start_broker(node_id, **how)

    @command
    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart all brokers that are up, one after the other.

        Leaders and coordinators do not move back; see `start_broker`.

        Args:
            how: Options of all failovers; see `Failover`.

        Raises:
            ConfigError: An option is out of range.
        """
        for node_id in [broker.node_id for broker in self._cluster.brokers.values() if broker.up]:
            self.restart_broker(node_id, **how)

    @command
    def upgrade_broker(
        self,
        node_id: int,
        as_version: ReleaseName | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older.

        A broker that is down changes its release and stays down.

        Args:
            node_id: Node id of the broker.
            as_version: The release, such as "3.9". None: the newest behavior, with all versions that are implemented.
            api_versions: Maps the name of an API to its first and last supported version, or to None if the API is not
                supported. APIs that are not named have the versions of the release.
            how: Options of both failovers, at the stop and at the start; see `Failover`.

        Raises:
            ConfigError: The broker, release, API or version does not exist, or an option is out of range.
        """
        emulated = EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions or {}), self._proposals)
        broker = self._run(lambda: self._broker(node_id))
        if was_up := broker.up:
            self.stop_broker(node_id, **how)
        self._change(lambda: self._cluster.upgrade_broker(broker, emulated))
        if was_up:
            self.start_broker(node_id, **how)

    @command
    def add_broker(self, like: BrokerSettings | None = None) -> BrokerView:
        """Add a broker, on a free port.

        It has no replicas until partitions are created or moved.

        Args:
            like: Release, API versions and rack of the broker. None: those of the cluster, and no rack.

        Returns:
            The broker, with its node id and port.

        Raises:
            ConfigError: The release, API or version does not exist.
        """
        emulated = EmulatedRelease.of(like or self._default_broker, self._proposals)

        def add() -> BrokerView:
            broker = self._cluster.add_broker(emulated, (like or self._default_broker).rack)
            try:
                self._environment.open_listener(broker)
            except FakebrokerError:  # It has no port, so it cannot stay.
                del self._cluster.brokers[broker.node_id]
                raise
            return BrokerView.of(broker)

        return self._change(add)

    @command
    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Remove a broker permanently, and move its replicas to other brokers.

        Args:
            node_id: Node id of the broker.
            how: Options of the failover to other brokers; see `Failover`.

        Raises:
            ConfigError: The broker does not exist or is the only one, or an option is out of range.
        """
        options = Failover(**how)

        def remove() -> None:
            broker = self._broker(node_id)
            if len(self._cluster.brokers) == 1:
                raise ConfigError.of("node_id", node_id, "a broker that is not the last one")
            self._environment.close_listener(broker, keep_port=False)
            self._cluster.remove_broker(broker, self._now_ms(), options)

        self._change(remove)

    @command
    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: Seconds | None = None,
        round_trip_s: Seconds | None = None,
    ) -> None:
        """Change the network conditions of a broker, until it is stopped.

        Conditions whose arguments are not given do not change. All times are wall-clock seconds.

        Args:
            node_id: Node id of the broker.
            accept: How the broker accepts new connections; existing ones are not affected. "normal": immediately.
                "slow": requests are read after `accept_delay_s`. "half_open": requests on connections accepted in this
                state are never answered, even if `accept` is "normal" later. "refuse": connections are refused.
            accept_delay_s: Delay of new connections, more than 0; required with "slow", not allowed otherwise.
            round_trip_s: Latency added to each response, 0 or more. Responses stay in order.

        Raises:
            ConfigError: The broker does not exist or is down, or a value is out of range.
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
        """Inject a fault into requests: `fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Instead of a fault, or in addition, commands can run before or after a request is handled:
        `fail("OffsetCommit", nth=3, then={"do": "stop_broker", "node_id": 1})`.

        If several faults match a request, only the oldest of them applies.

        Args:
            api: Name of the API, as in Kafka. None: all APIs.
            options: Which requests of the API match, and what happens to them; see
                `fakebroker.cluster.faults.rule.Fault`.

        Returns:
            A handle that counts the affected requests and removes the fault.

        Raises:
            ConfigError: The fault could never take effect: an API, version, broker, error or option does not exist, or
                options contradict each other.
        """
        return self.add_fault(Fault(api=api, **options))

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Inject a fault, like `fail`.

        Raises:
            ConfigError: As `fail`.
        """
        check_type("fault", fault, Fault, "a Fault")
        return self._handle(self._run(lambda: self._cluster.faults.add(fault, self._now_ms(), self._bind)))

    def _bind(self, action: Action) -> BoundAction:
        """Check the action of a fault, and return it in a form that can be run."""
        if callable(action):
            return bind_function(action)
        name, arguments = checked_event(action, COMMANDS)
        if name == "fail":
            checked_in_advance(Fault(**arguments))
        for field in ("before", "then"):
            bound_actions(field, arguments.get(field), self._bind)
        text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return BoundAction(f"{name}({text})", lambda call: getattr(self, name)(**arguments))

    def faults(self) -> list[FaultHandle]:
        """Return the faults that were not removed, oldest first, including those whose `times` are used up."""
        return [self._handle(fault) for fault in self._run(lambda: list(self._cluster.faults.active))]

    def _handle(self, fault: ActiveFault) -> FaultHandle:
        return FaultHandle(fault, lambda fault: self._run(lambda: self._cluster.faults.remove(fault)))

    def remove_fault(self, handle: FaultHandle) -> None:
        """Remove a fault, if it was not removed before."""
        check_type("handle", handle, FaultHandle, "a FaultHandle")
        handle.remove()

    @command
    def fail_append(
        self, group_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a group fail, such as those of JoinGroup, SyncGroup and OffsetCommit.

        The log is the group's partition of __consumer_offsets; all groups of the partition are affected. Requests get
        the errors that Kafka returns: for NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE.

        Args:
            group_id: Id of the group, which need not exist.
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail. None: all, until the failure is removed.

        Returns:
            A handle that counts the failed appends and removes the failure. `clear_faults` removes all failures.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        return self._fail_append(lambda: self._cluster.offsets_partition_of(group_id), error, times)

    @command
    def fail_transaction_append(
        self, transactional_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a transactional id fail: its transitions are not stored.

        The log is the id's partition of __transaction_state; all ids of the partition are affected. Requests get the
        errors that Kafka returns: for NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE. If the end of a transaction
        cannot be stored after its markers were written, the coordinator tries again.

        Args:
            transactional_id: The transactional id, which need not exist.
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail. None: all, until the failure is removed.

        Returns:
            A handle that counts the failed appends and removes the failure. `clear_faults` removes all failures.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        return self._fail_append(lambda: self._cluster.transactions_partition_of(transactional_id), error, times)

    def _fail_append(
        self, find: Callable[[], Partition], error: ErrorCode | str, times: int | None
    ) -> AppendFailureHandle:
        code = checked_error(error)

        def add() -> AppendFailure:
            partition = find()
            return self._cluster.append_failures.add(partition.topic.name, partition.index, code, times)

        remove = self._cluster.append_failures.remove
        return AppendFailureHandle(self._run(add), lambda failure: self._run(lambda: remove(failure)))

    @command
    def clear_faults(self) -> None:
        """Remove all faults, and failures of appends. Requests and responses that they delay still arrive when due."""

        def clear() -> None:
            self._cluster.faults.active.clear()
            self._cluster.append_failures.active.clear()

        self._run(clear)

    # Permissions

    @command
    def allow(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        """Allow something to a client: add an ACL, and remove the one that denies the same.

        The next request of the client meets the new ACLs. Other ACLs that deny it still do.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is allowed, such as "READ".
            resource: The resource, such as `group="g"`; see `AclRule`.

        Returns:
            A context manager that removes the ACL.

        Raises:
            ConfigError: The cluster has no authorizer, so that everything is allowed: it needs `acls`, which may be
                empty, or the setting `authorizer.class.name`. Or an argument is invalid.
        """
        allowed = AclRule(principal=principal, operation=operation, **resource)
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            acls = self._cluster.acls
            if acls is None:
                raise ConfigError.of(AUTHORIZER, "", "an authorizer, because without one everything is allowed")
            acls.remove(denied.acl)
            acls.add(allowed.acl)

        self._change(add)
        return Hold(lambda: self._run(lambda: self._remove_acl(allowed)))

    @command
    def deny(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        """Deny something to a client: add an ACL, which has precedence over all that allow it.

        The next request of the client meets the new ACLs; requests that wait are not checked again. A cluster without
        authorizer gets one, with ACLs that allow everything else to everyone.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is denied, such as "READ".
            resource: The resource, such as `group="g"`; see `AclRule`.

        Returns:
            A context manager that removes the ACL at its end. `remove_acl` and `allow` remove it, too.

        Raises:
            ConfigError: An argument is invalid.
        """
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            if self._cluster.acls is None:
                self._cluster.acls = new_acls(self._cluster.config, ALLOW_EVERYTHING)
            assert self._cluster.acls is not None
            self._cluster.acls.add(denied.acl)

        self._change(add)
        return Hold(lambda: self._run(lambda: self._remove_acl(denied)))

    @command
    def remove_acl(
        self,
        principal: str,
        operation: OperationName,
        permission: Literal["allow", "deny"],
        **resource: Unpack[AclOptions],
    ) -> None:
        """Remove an ACL that `allow`, `deny` or a client has added, or that was given as one of `acls`.

        Args:
            principal: Name of the user; see `AclRule`.
            operation: The operation of the ACL.
            permission: Whether it allows or denies.
            resource: The resource of the ACL; see `AclRule`.

        Raises:
            ConfigError: There is no such ACL, or an argument is invalid.
        """
        rule = AclRule(principal=principal, operation=operation, permission=permission, **resource)

        def remove() -> None:
            if rule.acl not in (self._cluster.acls or ()):
                count = len(self._cluster.acls or ())
                raise ConfigError.of("principal", principal, f"an ACL that exists: none of the {count} is equal")
            self._remove_acl(rule)

        self._change(remove)

    def _remove_acl(self, rule: AclRule) -> None:
        if self._cluster.acls is not None:
            self._cluster.acls.remove(rule.acl)

    # Rebalances and transactions

    @command
    def hold(self, group_id: str, state: str, member: str | None = None) -> Hold:
        """Hold a group in a state of a rebalance, or a transactional id before a state, until `release`.

        The hold of a group applies whenever the group is in this state; the group need not exist yet. In
        PreparingRebalance, the join phase does not end, even if its timer expires. In CompletingRebalance, the leader's
        SyncGroup is parked. Everything else works as usual. For example, a member that joins starts another rebalance,
        as does the expiry of a session. A session does not expire while a response to its member is pending.

        A consumer group (KIP-848) is held in Assigning or Reconciling. In Assigning, the assignor does not run: members
        keep their targets, and new ones have none; but the first assignment of a group is not held. In Reconciling,
        reports of members that they have given up partitions are ignored, so that these stay with them; with `member`,
        those of one member. Rebalance timers continue, and remove members when they expire.

        The hold of a transactional id delays its record with the state, before it is written to __transaction_state.
        The transition stays pending, its request is not answered, and other requests get CONCURRENT_TRANSACTIONS. A
        hold of PrepareCommit delays the decision, one of CompleteCommit the end, after all markers were written. If the
        coordinator moves meanwhile, the record is lost and the request gets NOT_COORDINATOR. `hold_markers` holds what
        is between the two states.

        Args:
            group_id: Id of the group, or transactional id.
            state: "PreparingRebalance" or "CompletingRebalance" of a group, "Assigning" or "Reconciling" of a consumer
                group. Of a transactional id: "Empty", "Ongoing",
                "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", or "Dead" for its expiry.
            member: Member id, instance id or client id of the member that alone is held in Reconciling. None: all.

        Returns:
            A context manager that releases the group or the id.

        Raises:
            ConfigError: The state is none of these; or there is a member that does not exist, or a state in which
                members cannot be held.
        """
        held = _holdable_state(state, member)
        if member is not None:
            return self._hold_member(group_id, member)

        def hold() -> None:
            if isinstance(held, TransactionState):
                self._cluster.transactions.holds.setdefault(group_id, {})[held] = None
                return
            broker = self._cluster.coordinator_of(group_id)
            controls.hold(broker.coordinator if broker else None, group_id, self._controls_of(group_id), held)

        self._run(hold)
        return Hold(lambda: self._run(lambda: self._release(group_id, [held])))

    def _hold_member(self, group_id: str, member: str) -> Hold:
        held: list[str] = []
        self._control(
            group_id,
            lambda coordinator, group, now_ms: held.append(
                controls.hold_member(controls.consumer_group(group), self._controls_of(group_id), member)
            ),
        )
        return Hold(lambda: self._run(lambda: self._controls_of(group_id).held_members.pop(held[0], None)))

    def _controls_of(self, group_id: str) -> GroupControls:
        return self._cluster.group_controls.setdefault(group_id, GroupControls())

    @command
    def release(self, group_id: str, state: str | None = None, member: str | None = None) -> None:
        """Release a group or a transactional id that is held.

        Steps that the hold has prevented, such as the end of the join phase, are done when the command returns; those
        of a consumer group with the next heartbeats of its members.

        Args:
            group_id: Id of the group, or transactional id.
            state: The state in which it is held. None: any state.
            member: The member that alone is held, as in `hold`. None: the whole group, and all of its members.

        Raises:
            ConfigError: The group, id or member is not held, or not in this state.
        """
        if member is not None:
            _holdable_state(state or ConsumerGroupState.RECONCILING.value, member)
            self._run(lambda: self._release_member(group_id, member))
            return
        states = list(_HOLDABLE_STATES.values()) if state is None else [_holdable_state(state)]

        def release() -> None:
            held_states: list[tuple[str, HeldState]] = [
                *((key, each) for key, value in self._cluster.group_controls.items() for each in value.states()),
                *((key, each) for key, value in self._cluster.transactions.holds.items() for each in value),
            ]
            if not any((group_id, each) in held_states for each in states):
                held = [f"{key!r} in {each.value}" for key, each in held_states]
                where = f" in {state}" if state else ""
                known = one_of(held, none="but there is none")
                is_group = not isinstance(states[0], TransactionState)
                subject = "a group" if is_group else "a transactional id"
                raise ConfigError.of("group_id", group_id, f"{subject} that is held{where}, {known}")
            self._release(group_id, states)

        self._run(release)

    def _release_member(self, group_id: str, member: str) -> None:
        held = self._controls_of(group_id).held_members
        broker = self._cluster.coordinator_of(group_id)
        group = broker.coordinator.consumer_groups.get(group_id) if broker else None
        known = controls.member_names(group, member) if group else {member}
        if not known & held.keys():
            expected = one_of(held, member, none="a member that is held; there is none")
            raise ConfigError.of("member", member, expected, where=f"group {group_id!r}")
        for each in known:
            held.pop(each, None)

    def _release(self, group_id: str, states: Sequence[HeldState]) -> None:
        group_controls = self._cluster.group_controls.get(group_id, GroupControls())
        holds = self._cluster.transactions.holds.get(group_id, {})
        for state in states:
            if isinstance(state, TransactionState):
                holds.pop(state, None)
            else:
                group_controls.held_states.pop(state, None)
                if state is ConsumerGroupState.RECONCILING:
                    group_controls.held_members.clear()
        if group_id in self._cluster.transactions.holds:
            self._cluster.now_ms = self._now_ms()  # the time of held records
        # Not only the coordinator has the group or the id: zombies may have it, too.
        for broker in self._cluster.brokers.values():
            group = broker.coordinator.group(group_id)
            if group is not None:
                controls.release(broker.coordinator, group, self._now_ms())
            broker.transaction_coordinator.release(group_id, self._now_ms())

    @command
    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance of a group without removing a member.

        Heartbeats of all members get REBALANCE_IN_PROGRESS. In a consumer group (KIP-848) the next epoch begins, and
        the next heartbeat of a member runs the assignor.

        Args:
            group_id: Id of the group.

        Raises:
            ConfigError: The group does not exist, or is in another state than Stable, CompletingRebalance and
                Reconciling.
        """
        self._control(group_id, controls.force_rebalance)

    @command
    def choose_leader(self, group_id: str, member: str) -> None:
        """Choose the leader of the next generation of a group.

        The member becomes the leader if it has joined by the end of the join phase.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a consumer group (KIP-848).
        """
        self._control(
            group_id,
            lambda coordinator, group, now_ms: controls.choose_leader(
                controls.classic_group(group), self._controls_of(group_id), member
            ),
        )

    @command
    def choose_assignment(self, group_id: str, assignment: Mapping[str, Sequence[str]]) -> None:
        """Choose the target assignment of a consumer group (KIP-848) that its assignor computes next.

        It runs with the next heartbeat after a change of members, subscriptions or topics, or after `force_rebalance`.

        Args:
            group_id: Id of the group, which need not exist yet.
            assignment: Partitions such as "orders-0" by member id, instance id or client id. Members that are not named
                get no partitions, and names of others are ignored.

        Raises:
            ConfigError: A partition is malformed, or is assigned to two members.
        """
        self._run(lambda: controls.choose_assignment(self._controls_of(group_id), assignment))

    @command
    def evict(self, group_id: str, member: str) -> None:
        """Remove a member from a group, as administrators can.

        The next response to the member is UNKNOWN_MEMBER_ID; the other members rebalance.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.evict(coordinator, group, member, now_ms))

    @command
    def expire(self, group_id: str, member: str) -> None:
        """Expire the session of a member now.

        Has no effect while a response is pending for the member.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist.
        """
        self._control(group_id, lambda coordinator, group, now_ms: controls.expire(coordinator, group, member, now_ms))

    @command
    def fence(self, group_id: str, instance_id: str) -> None:
        """Fence a static member, as if another process had joined with its instance id.

        Requests of the fenced member get FENCED_INSTANCE_ID. The other process sends no further requests: the member
        that replaces the fenced one is removed when its session expires. In a consumer group (KIP-848) the member first
        leaves for a while, because its instance id cannot be used otherwise.

        Args:
            group_id: Id of the group.
            instance_id: The `group.instance.id` of the member.

        Raises:
            ConfigError: The group or instance id does not exist.
        """
        self._control(
            group_id, lambda coordinator, group, now_ms: controls.fence(coordinator, group, instance_id, now_ms)
        )

    @command
    def fence_epoch(self, group_id: str, member: str) -> None:
        """Fence a member of a consumer group (KIP-848): its next heartbeat gets FENCED_MEMBER_EPOCH.

        The coordinator forgets the epoch of the member, as one that has lost records. So the member has to give up all
        partitions and can rejoin. Others can get its partitions at once, unless it is a static member.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or the group is a classic group.
        """

        def fence(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            consumer_group = controls.consumer_group(group)
            consumer_group_controls.fence_epoch(
                coordinator, consumer_group, controls.member_of(consumer_group, member), now_ms
            )

        self._control(group_id, fence)

    @command
    def delay_sync(self, group_id: str, member: str, seconds: Seconds | None = None) -> None:
        """Delay the response to a member's parked SyncGroup, or to its next SyncGroup if none is parked.

        From the group's point of view the member has synced; responses to other members are not delayed.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.
            seconds: The delay by the brokers' clock. None: until `release_sync`.

        Raises:
            ConfigError: The group or member does not exist, or the delay is out of range.
        """
        delay_ms = None if seconds is None else seconds * 1000
        self._control(
            group_id,
            lambda coordinator, group, now_ms: self._cluster.sync_delays.delay(
                _sync_delay_key(controls.classic_group(group), member), delay_ms
            ),
        )

    @command
    def release_sync(self, group_id: str, member: str) -> None:
        """Send the SyncGroup response that `delay_sync` delays.

        If there is no response yet, the delay is canceled.

        Args:
            group_id: Id of the group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: The group or member does not exist, or `delay_sync` does not apply to the member.
        """

        def release(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
            answers = self._cluster.sync_delays.release(_sync_delay_key(controls.classic_group(group), member))
            if answers is None:
                expected = "a member whose SyncGroup response is delayed"
                raise ConfigError.of("member", member, expected, where=f"group {group_id!r}")
            for call, response in answers:
                self._cluster.answer(call, response, now_ms)

        self._control(group_id, release)

    def _control(self, group_id: str, action: Callable[[Coordinator, Group | ConsumerGroup, float], None]) -> None:
        """Run an action on an existing group at its coordinator, with the brokers' time in milliseconds."""

        def act() -> None:
            broker = self._cluster.coordinator_of(group_id)
            if broker is None:
                raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
            group = controls.group_of(broker.coordinator, group_id)
            action(broker.coordinator, group, self._now_ms())

        self._run(act)

    # Transactions

    @command
    def hold_markers(self, transactional_id: str, partition: str | None = None) -> Hold:
        """Hold the markers of a transactional id until `release_markers`.

        Its transactions stay in PrepareCommit or PrepareAbort, and their records invisible to read_committed consumers,
        in the held partitions. The markers of other partitions are written. The hold applies to all transactions of the
        id, now and later, and remains when its coordinator moves.

        Args:
            transactional_id: The transactional id, which need not exist.
            partition: The partition, such as "orders-0". None: all partitions.

        Returns:
            A context manager that releases the markers.

        Raises:
            ConfigError: The partition is malformed.
        """
        key = _marker_key(transactional_id, partition)
        self._run(lambda: self._cluster.transactions.held_markers.update({key: None}))
        return Hold(lambda: self._run(lambda: self._release_markers(key)))

    @command
    def release_markers(self, transactional_id: str, partition: str | None = None) -> None:
        """Release markers that are held. Those whose partitions can take them are written when the command returns.

        Args:
            transactional_id: The transactional id.
            partition: The partition that was given to `hold_markers`, or None if it was None.

        Raises:
            ConfigError: The markers are not held, or the partition is malformed.
        """
        key = _marker_key(transactional_id, partition)

        def release() -> None:
            held = self._cluster.transactions.held_markers
            if key not in held:
                places = [(name, "all" if place is None else format_partitions([place])) for name, place in held]
                known = one_of((f"{name!r} in {place}" for name, place in places), none="but none is held")
                raise ConfigError.of("transactional_id", transactional_id, f"what hold_markers was given, {known}")
            self._release_markers(key)

        self._run(release)

    def _release_markers(self, key: tuple[str, TopicPartition | None]) -> None:
        self._cluster.transactions.held_markers.pop(key, None)
        self._cluster.now_ms = self._now_ms()  # the time of the markers
        self._cluster.transactions.retry()

    @command
    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id at its coordinator, as its timeout does.

        The epoch is raised, so that the producer is fenced; with the feature `transaction.version` 2 it recovers if it
        aborts, too. A hanging transaction, which the coordinator does not know, is aborted by an admin client instead
        (`abortTransaction`).

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist, has no open transaction or no coordinator, a transition is pending, or
                the record could not be stored.
        """
        self._control_transaction(transactional_id, transaction_controls.abort)

    @command
    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as Admin.fenceProducers does: its epoch is raised.

        An open transaction is aborted. The next request of the producer gets PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist or has no coordinator, a transition is pending, or the record could not
                be stored.
        """
        self._control_transaction(transactional_id, transaction_controls.fence)

    def _control_transaction(
        self, transactional_id: str, action: Callable[[TransactionCoordinator, Transaction, float], ErrorCode]
    ) -> None:
        """Run an action on an existing transactional id at its coordinator, with the brokers' time in milliseconds."""

        def act() -> None:
            broker = self._cluster.transactions.coordinator_of(transactional_id)
            if broker is None:
                expected = "a transactional id that has a coordinator now"
                raise ConfigError.of("transactional_id", transactional_id, expected)
            coordinator, now_ms = broker.transaction_coordinator, self._now_ms()
            self._cluster.now_ms = now_ms  # the time of records and markers
            transaction = transaction_controls.transaction_of(coordinator, transactional_id)
            if error := action(coordinator, transaction, now_ms):
                expected = f"an id whose record can be stored; it failed with {error.name}"
                raise ConfigError.of("transactional_id", transactional_id, expected)

        self._run(act)

    # Seeding

    @command
    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        """Create a group in a given state, as if clients had created it.

        The group is written to __consumer_offsets and loaded from there. In PreparingRebalance, no member has rejoined
        yet; in CompletingRebalance, all members have joined, and the leader's SyncGroup is missing.

        Args:
            group_id: Id of the group.
            members: A number, or a list with one entry per member, leader first. An entry is a client id, a
                `MemberSeed`, or a mapping with its fields. The sessions of the members start now.
            options: Subscription, state, offsets and assignment; see `GroupSeed`.

        Raises:
            ConfigError: The group exists already, or the arguments contradict each other.
        """
        self._seed([GroupSeed(group_id=group_id, members=members, **options)])

    @command
    def seed_groups(self, groups: Sequence[GroupTable]) -> None:
        """Create several groups, or none if one of them cannot be created.

        Args:
            groups: The groups, each with `group_id` and the options of `seed_group`.

        Raises:
            ConfigError: As `seed_group`.
        """
        self._seed(groups)

    def _seed(self, seeds: Sequence[GroupSeed]) -> None:
        self._change(lambda: seed_groups(self._cluster, seeds, self._now_ms()))

    @command
    def seed_transaction(self, transactional_id: str, **options: Unpack[TransactionSeedOptions]) -> None:
        """Create a transactional id as if a producer had used it; by default with an open transaction.

        The records of the transaction are appended to the logs, and the state to __transaction_state. With
        PrepareCommit or PrepareAbort, the coordinator then writes the markers. With `producer_id` and `epoch`, also
        states near the last epoch of a producer id can be created.

        Args:
            transactional_id: The transactional id, which must not exist.
            options: State, producer and records; see `TransactionSeed`.

        Raises:
            ConfigError: The id exists or has no coordinator, the producer id is in use, a partition does not exist or
                has no leader, or the options contradict each other.
        """
        seed = TransactionSeed(transactional_id=transactional_id, **options)
        self._change(lambda: seed_transaction(self._cluster, seed, self._now_ms()))

    @command
    def seed_hanging_transaction(
        self,
        partition: str,
        *,
        offset: Annotated[int, Meta(ge=0)] | None = None,
        records: Annotated[int, Meta(ge=1, le=100_000)] = 1,
        producer_id: ProducerId | None = None,
        epoch: ProducerEpoch = 0,
    ) -> None:
        """Leave a transaction open in a partition that no coordinator knows: a hanging transaction (KIP-664).

        Nothing ends it but WriteTxnMarkers of an admin client (`abortTransaction`), or the deletion of its records.
        Until then the last stable offset of the partition stays at its first record.

        Args:
            partition: The partition, such as "orders-0".
            offset: The offset of its first record, at which the log must not have ended yet; records are appended up to
                it. None: the end of the log.
            records: Number of its records. Their values are their offsets, as text.
            producer_id: The producer id. None: the next one that is not in use.
            epoch: The producer epoch.

        Raises:
            ConfigError: The partition does not exist or has no leader, or its log ends after the offset.
        """
        self._change(
            lambda: seed_hanging_transaction(
                self._cluster,
                partition,
                offset=offset,
                records=records,
                producer_id=producer_id,
                epoch=epoch,
                now_ms=self._now_ms(),
            )
        )

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Take a snapshot, for `restore`.

        It contains topics with their records, brokers, leaders, configs, groups with their offsets, and transactional
        ids. Groups and ids are saved as their last record describes them; a rebalance in progress is not saved.
        """
        return self._run(lambda: snapshots.take(self._cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this cluster.

        Groups and transactional ids are loaded from their logs, and all sessions start again. Parked joins and syncs
        get NOT_COORDINATOR. Holds, delays and faults are removed. Connections to brokers that are not in the snapshot,
        or stopped in it, are closed; others remain open. The clock and the sequences of ids are not set back.

        Raises:
            ConfigError: The snapshot was taken of another cluster.
            ListenError: The port of a broker that was removed after the snapshot is not available.
        """
        check_type("snapshot", snapshot, Snapshot, "a Snapshot")
        snapshots.check(self._cluster, snapshot)

        def restore() -> None:
            with self._environment.replacing_brokers(snapshot.brokers, cut_all=False):
                snapshots.restore(self._cluster, snapshot, self._now_ms())

        self._change(restore)

    @command
    def reset(self) -> None:
        """Return the cluster to its initial state, with the same topics, brokers and ids.

        Removes groups, offsets, records, holds and faults, empties the journal, and closes all connections. Ports and
        the clock do not change.
        """

        def reset() -> None:
            fresh = self._new_cluster()
            with self._environment.replacing_brokers(fresh.brokers, cut_all=True):
                snapshots.start_over(self._cluster, fresh, self._now_ms())

        self._change(reset)

    # Time

    @command
    def advance(self, seconds: Annotated[float, Meta(ge=0, le=MAX_ADVANCE_S)]) -> None:
        """Advance the brokers' clock and process everything that is due by then.

        Requires a manual clock.

        Args:
            seconds: Seconds to advance by, 0 or more.

        Raises:
            ConfigError: The clock is not manual, or the number of seconds is out of range.
        """
        self._environment.advance(seconds)

    @command
    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the brokers' clock to the next deadline and process it.

        Requires a manual clock.

        Returns:
            The deadlines that were reached; all have the same due time. Their `in_s` is the number of seconds by which
            the clock was advanced. None if no deadline was pending.

        Raises:
            ConfigError: The clock is not manual.
        """

        def advance() -> list[Deadline] | None:
            now_ms = self._now_ms()
            next_ms = (each.at_ms for each in pending_deadlines(self._cluster, now_ms, first=1))
            first = [each for at_ms in next_ms for each in pending_deadlines(self._cluster, now_ms, until_ms=at_ms)]
            self._environment.advance(first[0].in_s if first else 0.0)
            # If the cluster is running, `advance` has already processed what is due, and this changes nothing.
            self._cluster.tick(self._now_ms(), self._cluster.wire_ms)
            return first or None

        return self._run(advance)


COMMANDS = commands_of(ClusterCommands)
"""Definitions by name of all commands that can be called with plain data (JSON, TOML)."""


def _holdable_state(name: str, member: str | None = None) -> HeldState:
    """Return a state that a group or a transactional id can be held in, by Kafka's name; or a member, if one is named.

    Raises:
        ConfigError: There is no such state.
    """
    states = _HOLDABLE_STATES if member is None else {ConsumerGroupState.RECONCILING.value: None}
    if name not in states:
        what = "" if member is None else ", in which members are held"
        raise ConfigError.of("state", name, one_of(states, name) + what)
    return _HOLDABLE_STATES[name]


def _marker_key(transactional_id: str, partition: str | None) -> tuple[str, TopicPartition | None]:
    return transactional_id, None if partition is None else parse_partition(partition)


def _sync_delay_key(group: Group, name: str) -> tuple[str, str]:
    """Return the group id, and the instance id of a member, or its member id if it has no instance id.

    Unlike a member id, an instance id remains the same when the client restarts.
    """
    member = controls.member_of(group, name)
    return group.group_id, member.instance_id or member.member_id
