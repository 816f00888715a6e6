"""The simulated cluster: its state and services.

`Cluster.requests` receives calls with the current time, and answers each one immediately or later. Does not depend on
sockets, clocks or random sources: ids and random numbers are passed in, so that the same inputs give the same run.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from fakebroker.cluster.acl_rules import new_acls
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Peer
from fakebroker.cluster.configs.eligible_replicas import store_min_isr
from fakebroker.cluster.configs.group_configs import group_number
from fakebroker.cluster.configs.log_config import LogConfig, log_config
from fakebroker.cluster.configs.replication_throttles import copy_rate
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.configs.topic_configs import INTERNAL_TOPIC_CONFIGS, TopicConfigValue, checked_topic_configs
from fakebroker.cluster.emulation import EmulatedRelease
from fakebroker.cluster.faults.append_failures import AppendFailures
from fakebroker.cluster.faults.delayed_answers import SyncDelays
from fakebroker.cluster.faults.injection import FaultInjector
from fakebroker.cluster.features import Features
from fakebroker.cluster.fetch_purgatory import FetchPurgatory
from fakebroker.cluster.first_use import FirstUse, FirstUseMode
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.listeners import PLAINTEXT_LISTENER, Listener
from fakebroker.cluster.logs.coordinator_records import append_records, read_records
from fakebroker.cluster.logs.fetch_sessions import FetchSessions
from fakebroker.cluster.logs.log_manager import LogManager
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.quotas import Quotas
from fakebroker.cluster.replication.controller import Controller, LeaderBalance
from fakebroker.cluster.replication.coordinator_moves import CoordinatorMoves, Failover
from fakebroker.cluster.replication.replica_copies import ReplicaCopies
from fakebroker.cluster.replication.replica_placement import ReplicaPlacement
from fakebroker.cluster.request_path import Handler, RequestPath
from fakebroker.cluster.topics import (
    MAX_PARTITIONS,
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Assignment,
    ClusterTopics,
    Partition,
    Topic,
    Topics,
)
from fakebroker.cluster.transactions import Transactions
from fakebroker.coordinator.classic.extension import no_extension
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.group_history import ChangedGroup, History, discard_change
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.persistence import client_error
from fakebroker.coordinator.records import Record, TransactionalRecord
from fakebroker.coordinator.timers import TimerQueue
from fakebroker.errors import ConfigError, DiskFullError, ErrorCode, check_integer, one_of
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.security.acls import Acl
from fakebroker.security.credentials import Credentials
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

if TYPE_CHECKING:
    from fakebroker.cluster.proposed_groups import ProposedCoordinator, ProposedGroups

KIP_854 = Release(3, 4)
"""The first release with `producer.id.expiration.ms`."""

_GROUP_RESOURCE = 32
"""The type of resources that are groups (`ResourceType.GROUP`, whose module uses this one)."""

_REPLICATION_FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}
"""The settings for the replicas of internal topics."""

CLEANER_BACKOFF = "log.cleaner.backoff.ms"


class ClusterStorage(Protocol):
    """Where the state of a cluster is stored (`fakebroker.cluster.storage`)."""

    def claim(self, growth_bytes: int = 0, log_bytes: int = 0) -> bool:
        """Return whether topics and the small parts of the state can be changed, and keep space free for it.

        Appends to logs raise `DiskFullError` if they cannot be stored.

        Args:
            growth_bytes: By how many bytes their entries grow, at most.
            log_bytes: The size of the batches that will be appended besides.
        """
        ...

    def require_space(self, growth_bytes: int = 0, log_bytes: int = 0) -> None:
        """Like `claim`, but raise an error.

        Raises:
            DiskFullError: There is no space.
        """
        ...


class Cluster:
    """Brokers, topics and groups; the services that change them; and the journal.

    All methods are called in one thread. State that requests or commands change is also handled in `snapshot.py`.

    Args:
        releases: The emulated release of each broker, in the order of their node ids.
        topics: Names and partition counts of the initial topics.
        config: The brokers' settings.
        new_id: Returns a unique id of 16 bytes.
        random: Returns a random number in [0, 1); decides about faults with a probability.
        journal: Records the calls.
        now_ms: The brokers' time at the start, in milliseconds since the epoch.
        handlers: The handlers of requests, by the names of their APIs.
        keeps_history: Whether `history` and `transactions.history` record transitions.
        first_node_id: The node id of the first broker; the others follow.
        racks: The rack of each broker; brokers that are not listed have none.
        acls: The first ACLs, with which there is an authorizer. None: there is one if the settings name it.
        listeners: The listeners of each broker.
        credentials: The users that can authenticate.
        first_use: What clients notice of the first use of the internal topics.

    Attributes:
        cluster_id: The id that clients see.
        brokers: The brokers by node id. Changed in place, because `controller` and `faults` share it.
        broker_configs: The cluster-wide dynamic configs of brokers.
        has_new_broker_configs: Whether dynamic configs of the brokers, cluster-wide or of one broker, have changed. The
            server applies them to connections.
        check_listener_configs: Checks what configs of a broker mean for its listeners with TLS; raises `ConfigError`.
        resource_configs: The configs of groups and of subscriptions of client metrics, by type and name.
        topics: The topics.
        acls: The authorizer and its ACLs; None if everything is allowed.
        listeners: The listeners of each broker.
        credentials: The users that can authenticate, with their SCRAM credentials.
        features: The finalized features.
        group_moves: The moves of group coordinators.
        transactions: The transaction coordinators.
        first_use: The internal topics that have no coordinators yet.
        timers: Everything that is due at a time by the brokers' clock; `Rank` has the order at equal times.
        wire_timers: What is due by the clients' clock: Fetch requests, and the network's delays.
        requests: The path of requests through the cluster.
        purgatory, log_manager, controller, faults, sync_delays, quotas: The services, each described by its class.
        append_failures: The appends to __consumer_offsets and __transaction_state that fail.
        placement: Chooses the brokers of new partitions.
        group_controls: Holds and chosen leaders by group id, shared by all coordinators. Groups may not exist yet.
        history: The transitions of all groups, including deleted ones.
        now_ms: The brokers' time of the current or last request or tick, in milliseconds since the epoch.
        next_producer_id: The id that the next InitProducerId returns.
        wire_ms: The clients' time, by which Fetch requests wait, in milliseconds since the epoch.
        part_bytes: How many bytes of records a request may read before others are served; infinite if there are none.
        disconnected: The peers whose connections are to be closed. The server removes and closes them.
        proposed: The groups of a proposal with coordinators of its own; None until a broker supports one.
        storage: Where the state is stored; None if it is only in memory.

    Raises:
        ConfigError: The name or the number of partitions of a topic is invalid.
    """

    def __init__(
        self,
        *,
        releases: Sequence[EmulatedRelease],
        topics: Mapping[str, int],
        config: Config,
        new_id: Callable[[], bytes],
        random: Callable[[], float],
        journal: Journal,
        now_ms: float,
        handlers: Mapping[str, Handler],
        keeps_history: bool = True,
        first_node_id: int = 1,
        racks: Sequence[str | None] = (),
        acls: Iterable[Acl] | None = None,
        listeners: tuple[Listener, ...] = (PLAINTEXT_LISTENER,),
        credentials: Credentials | None = None,
        first_use: FirstUseMode = "ready",
    ) -> None:
        self.config = config
        self.acls = new_acls(config, acls)
        self.listeners = listeners
        self.credentials = credentials or Credentials()
        self.now_ms = self.wire_ms = now_ms
        self.timers: TimerQueue[Any] = TimerQueue()
        self.wire_timers: TimerQueue[Any] = TimerQueue()
        self.journal = journal
        self.new_id = new_id
        # In Kafka's form: 22 characters (org.apache.kafka.common.Uuid).
        self.cluster_id = urlsafe_b64encode(new_id()).decode().rstrip("=")
        self.broker_configs: Mapping[str, str] = {}
        self.has_new_broker_configs = False
        self.check_listener_configs: Callable[[BrokerNode, Mapping[str, str]], None] = lambda _, configs: None
        self.resource_configs: Mapping[tuple[int, str], Mapping[str, str]] = {}
        self.brokers: dict[int, BrokerNode] = {}
        self.placement = ReplicaPlacement(self.brokers)
        self.features = Features.of_new_cluster(each.release for each in releases)
        # A function that looks up `new_id` at each call, because a reset replaces it.
        self.topics = Topics(lambda: self.new_id(), lambda node_id: self.brokers[node_id].up)
        self.requests = RequestPath(self, handlers)
        self.purgatory = FetchPurgatory(self.wire_timers)
        self.log_manager = LogManager(
            self.topics,
            self._leader_config,
            now_ms,
            config.number("log.retention.check.interval.ms"),
            lambda: self.dynamic_number(CLEANER_BACKOFF),
            self.timers,
        )
        copies = ReplicaCopies(self.brokers, self._copy_rate)
        self.group_moves: CoordinatorMoves[Coordinator | ProposedCoordinator] = CoordinatorMoves(
            self.brokers,
            self.topics.offsets_partition,
            lambda broker: broker.groups,
            _load_groups,
            self.timers,
            number=1,
        )
        self.transactions = Transactions(
            self,
            self.purgatory.wake,
            keeps_history=keeps_history,
        )
        moves: dict[str, CoordinatorMoves[Any]] = {
            OFFSETS_TOPIC: self.group_moves,
            TRANSACTIONS_TOPIC: self.transactions.moves,
        }
        self.controller = Controller(
            self.brokers, self.topics, self.purgatory, copies, moves, self.timers, _leader_balance(config)
        )
        self.first_use = FirstUse(
            self.topics, self.brokers, moves, self.auto_create_topic, self.can_create, self.timers
        )
        self.faults = FaultInjector(
            self.brokers, self.topics, random, self.requests.send, self.timers, self.requests.handle_delayed
        )
        self.append_failures = AppendFailures()
        self.group_controls: dict[str, GroupControls] = {}
        self.sync_delays = SyncDelays(self.timers, self.requests.answer)
        self.quotas = Quotas()
        self.history = History()
        self.history.name_of = self.topics.past_or_present_name_of
        self._keeps_history = keeps_history
        self.next_producer_id = 0
        self.part_bytes = inf
        self.disconnected: list[Hashable] = []
        self.proposed: ProposedGroups | None = None
        self.storage: ClusterStorage | None = None
        for (node_id, emulated), rack in zip_longest(enumerate(releases, first_node_id), racks):
            self.brokers[node_id] = self.new_broker(node_id, emulated, rack)
        store_min_isr(self)
        self.topics.create_offsets_topic(self._placed_offsets_topic())
        self._lead_offsets_topic()
        for name, partitions in topics.items():
            self.create_new_topic(name, partitions)
        self.first_use.mode = first_use
        self.first_use.begin(now_ms)

    def new_broker(self, node_id: int, emulated: EmulatedRelease, rack: str | None = None) -> BrokerNode:
        """Create a broker without adding it to the cluster."""
        coordinator = Coordinator(
            self._coordinator_config(emulated),
            lambda: uuid_text(self.new_id()),
            partial(self._append, node_id),
            controls=self.group_controls,
            on_change=partial(self._record_history, node_id) if self._keeps_history else discard_change,
            queue=self.timers,
            node_id=node_id,
        )
        sessions = FetchSessions(
            self.config.number("max.incremental.fetch.session.cache.slots"),
            takes_nameless=emulated.release >= Release(4, 3),
        )
        transaction_coordinator = self.transactions.new_coordinator(node_id, emulated.release)
        coordinators = coordinator, transaction_coordinator
        broker = BrokerNode(node_id, "", -1, *coordinators, sessions, emulated.release, emulated.versions, rack=rack)
        self._set_apis(broker, emulated)
        return broker

    def _set_apis(self, broker: BrokerNode, emulated: EmulatedRelease) -> None:
        """Set what proposals give a broker: APIs, and a coordinator if a proposal has its own."""
        broker.apis, broker.proposed = emulated.apis, None
        for proposal in emulated.proposals:
            if self.proposed is None:
                self.proposed = proposal.new_groups(
                    self.brokers,
                    self.topics,
                    lambda: self.now_ms,
                    lambda: uuid_text(self.new_id()),
                    self.disconnected.append,
                )
            if self.proposed is not None:
                self.topics.on_change = self.proposed.topic_changed
                broker.proposed = self.proposed.new_broker(broker.coordinator, self.timers, broker.node_id)

    def _coordinator_config(self, emulated: EmulatedRelease) -> CoordinatorConfig:
        topics = ClusterTopics(self.topics, self._rack_of)
        group_config = partial(self._group_config, emulated.release)
        extension = next((proposal.extension() for proposal in emulated.proposals), no_extension)
        return self.config.coordinator(emulated.release, extension, topics, group_config)

    def _rack_of(self, node_id: int) -> str | None:
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.rack

    def _group_config(self, release: Release, group_id: str, name: str) -> int | None:
        """Return a numeric config of a group: its own value, else the brokers' value if it was changed, else None."""
        if not self.resource_configs and not self.broker_configs:  # The usual case.
            return None
        own = self.resource_configs.get((_GROUP_RESOURCE, group_id), {}).get(name)
        if own is not None:
            return group_number(name, own, release, self.config.of_release(release))
        changed = self.broker_configs.get(f"group.{name}")
        return None if changed is None else int(changed)

    def _record_history(self, node_id: int, group: ChangedGroup, now_ms: float) -> None:
        self.history.record(group, now_ms, node_id)

    def _append(self, node_id: int, index: int, records: Sequence[Record]) -> ErrorCode:
        """Write a coordinator's records to their partition of __consumer_offsets, before they take effect.

        Returns:
            NONE or the error for clients.
        """
        partition = self.topics.offsets_partition(index)
        if partition.leader_id == node_id:
            if error := self._append_error(self.brokers[node_id], partition, records):
                return error
            try:
                self.append_records(partition, records)
            except DiskFullError:
                config = self.brokers[node_id].coordinator.config
                return client_error(ErrorCode.KAFKA_STORAGE_ERROR, records, config)
        elif isinstance(records[0], TransactionalRecord):
            # A zombie cannot store offsets in transactions, as in `Transactions`.
            return client_error(ErrorCode.REQUEST_TIMED_OUT, records, self.brokers[node_id].coordinator.config)
        return ErrorCode.NONE  # Records of another zombie are lost.

    def _append_error(self, broker: BrokerNode, partition: Partition, records: Sequence[Record]) -> ErrorCode:
        """Return the error for clients if the log of an offsets partition refuses records, else NONE."""
        config = broker.coordinator.config
        if not self.has_enough_replicas(partition, log_config(self, broker, partition.topic)):
            return client_error(ErrorCode.NOT_ENOUGH_REPLICAS, records, config)
        failure = self.append_failures.pick(OFFSETS_TOPIC, partition.index) if self.append_failures.active else None
        if failure is not None:
            error = client_error(failure.error, records, config)
            failure.hits += bool(error)
            return error
        first = records[0]
        if isinstance(first, TransactionalRecord):
            producer = partition.log.producers.get(first.producer_id)
            if producer is not None and first.producer_epoch < producer.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE

    def _copy_rate(self, partition: Partition, node_id: int) -> float:
        follower, leader = self.brokers[node_id], self.brokers[partition.leader_id]
        return copy_rate(partition, follower, leader, self.broker_configs)

    def append_records(self, partition: Partition, records: Sequence[Record]) -> None:
        """Append group records to a partition of __consumer_offsets, and answer Fetch requests that wait for them."""
        if not self.topics.offsets_topic_is_used:
            self.topics.show_offsets_topic()
        size_bytes = partition.log.size_bytes
        release = self.writer_release(partition)
        append_records(partition.log, records, partition.leader_epoch, self.now_ms, release, self.topics.id_of)
        self.purgatory.wake(partition, max(1, partition.log.size_bytes - size_bytes))

    def writer_release(self, partition: Partition) -> Release:
        """Return the release that the leader of a partition emulates, or the last leader if there is none."""
        broker = self.brokers.get(partition.last_leader_id)
        return NEWEST if broker is None else broker.release

    def offsets_partition(self, index: int) -> Partition:
        """Return a partition of __consumer_offsets."""
        return self.topics.offsets_partition(index)

    def leader_of(self, partition: Partition) -> BrokerNode | None:
        """Return the broker that leads a partition. None if the partition has no leader, or its leader is down."""
        broker = self.brokers.get(partition.leader_id)
        return broker if broker is not None and broker.up else None

    def add_topic(self, name: str, assignment: Assignment, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic, whose name must not be taken.

        If it is __consumer_offsets, the number of its partitions decides from now on which coordinator a group has. In
        Kafka it does when the brokers are started again, since they read the number at their start.
        """
        topic = self.topics.create(name, assignment, configs)
        if name == OFFSETS_TOPIC:
            self._lead_offsets_topic()
            self.requests.settle(self.now_ms)
        elif name == TRANSACTIONS_TOPIC:
            self.transactions.lead(topic)
        self.first_use.created(name, self.now_ms)
        return topic

    def _wanted_replicas(self, name: str) -> int:
        """Return how many replicas an internal topic needs: as many as are set, by default at most one a broker."""
        setting = _REPLICATION_FACTORS[name]
        wanted = self.config.number(setting)
        return wanted if setting in self.config.overrides else min(wanted, len(self.brokers))

    def can_create(self, name: str) -> bool:
        """Return whether there are enough brokers for the replicas of an internal topic."""
        return self._wanted_replicas(name) <= len(self.brokers)

    def _placed_offsets_topic(self) -> Assignment:
        """Return the replicas of a new topic __consumer_offsets; there may be fewer than it needs."""
        factor = min(self._wanted_replicas(OFFSETS_TOPIC), len(self.brokers))
        return self.placement.place(self.config.number("offsets.topic.num.partitions"), factor)

    def _forget_groups(self) -> None:
        """Make all group coordinators resign, because their topic was created or deleted."""
        self.group_moves.clear()
        if self.proposed is not None:
            self.proposed.clear()
        for broker in self.brokers.values():
            self.group_moves.resign_all(broker, self.now_ms)
            broker.coordinator.set_partition_count(len(self.topics.offsets_topic.partitions))

    def _lead_offsets_topic(self) -> None:
        """Make the leaders of a new topic __consumer_offsets the coordinators of its partitions, without groups."""
        self._forget_groups()
        for partition in self.topics.offsets_topic.partitions:
            leader = self.leader_of(partition)
            if leader is not None:
                leader.groups.lead(partition.index, self.now_ms)

    @property
    def controller_id(self) -> int:
        """The node id of the controller: the first broker that is up."""
        return next((broker.node_id for broker in self.brokers.values() if broker.up), NO_LEADER)

    @property
    def default_replication_factor(self) -> int:
        """`default.replication.factor`, but at most the number of brokers."""
        return min(self.config.number("default.replication.factor"), len(self.brokers))

    def in_sync(self, partition: Partition) -> list[int]:
        """Return the node ids of the in-sync replicas: those that are up, because replication is immediate.

        Replicas that a reassignment adds are in sync when they have copied the log. If none is up, the last leader
        remains in sync, as in Kafka.
        """
        return self.controller.eligible(partition) or [
            node_id for node_id in partition.replicas if node_id == partition.last_leader_id
        ]

    def has_enough_replicas(self, partition: Partition, config: LogConfig) -> bool:
        """Return whether an append with acks=all is accepted, by `min.insync.replicas` (Partition.scala)."""
        if config.min_insync_replicas == 1:
            return True
        return len(self.in_sync(partition)) >= config.needed_in_sync(len(partition.replicas))

    def _leader_config(self, partition: Partition) -> LogConfig | None:
        """Return the configs of a partition at its leader or last leader; None if that broker was removed."""
        leader = self.brokers.get(partition.last_leader_id)
        return None if leader is None else log_config(self, leader, partition.topic)

    def create_new_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> Topic:
        """Check the arguments of a command and create a topic.

        Raises:
            ConfigError: The topic exists, or an argument is invalid.
            DiskFullError: There is no space to store it.
        """
        if not is_legal_name(name):
            raise ConfigError.of("topic", name, LEGAL_NAME)
        if name in self.topics:
            raise ConfigError.of("topic", name, "a topic that does not exist yet")
        other = self.topics.colliding(name)
        if other is not None:
            expected = f"a name that differs from topic {other!r} in more than '.' and '_', which are equal in metrics"
            raise ConfigError.of("topic", name, expected)
        where = f"topic {name!r}"
        check_integer("partitions", partitions, least=1, most=MAX_PARTITIONS, where=where)
        if replication_factor is not None:
            check_integer("replication_factor", replication_factor, least=1, most=len(self.brokers), where=where)
        factor = self.default_replication_factor if replication_factor is None else replication_factor
        controller = self.brokers.get(self.controller_id)
        checked = checked_topic_configs(configs or {}, NEWEST if controller is None else controller.release)
        self._require_space_for(partitions)
        return self.add_topic(name, self.placement.place_topic(partitions, factor), checked)

    def create_partitions(self, name: str, total: int) -> None:
        """Check the arguments of a command and add partitions to a topic until it has `total`.

        Raises:
            ConfigError: The topic does not exist or is internal, or `total` is not greater than its partition count.
            DiskFullError: There is no space to store them.
        """
        topic = self.existing_topic(name)
        least = len(topic.partitions) + 1
        check_integer("total", total, least=least, most=MAX_PARTITIONS, where=f"topic {name!r}")
        self._require_space_for(total - len(topic.partitions))
        self.topics.grow(topic, self.placement.place_partitions(topic, total - len(topic.partitions)))

    def _require_space_for(self, partitions: int) -> None:
        """Check that new partitions can be stored.

        Raises:
            DiskFullError: They cannot.
        """
        if self.storage is not None:
            self.storage.require_space(partitions * self.partition_bytes)

    @property
    def partition_bytes(self) -> int:
        """The largest size of what is stored of a new partition."""
        return 16 + 5 * len(self.brokers)

    def existing_topic(self, name: str, field: str = "topic") -> Topic:
        """Return an existing topic that commands may change: one that is not internal.

        Args:
            name: The topic.
            field: The argument, for the error message.

        Raises:
            ConfigError: The topic does not exist or is internal.
        """
        topic = self.topics.get(name)
        if topic is None or topic.is_internal:
            known = one_of((each.name for each in self.topics if not each.is_internal), name, none="but there is none")
            raise ConfigError.of(field, name, f"a topic that is not internal, {known}")
        return topic

    def add_broker(self, emulated: EmulatedRelease, rack: str | None = None) -> BrokerNode:
        """Add a broker, without replicas, under the next node id."""
        broker = self.new_broker(max(self.brokers) + 1, emulated, rack)
        broker.coordinator.set_partition_count(len(self.topics.offsets_topic.partitions))
        self.brokers[broker.node_id] = broker
        return broker

    def upgrade_broker(self, broker: BrokerNode, emulated: EmulatedRelease) -> None:
        """Change the release that a broker emulates. Stop the broker first, because clients use its old versions."""
        broker.release, broker.versions = emulated.release, emulated.versions
        broker.coordinator.configure(self._coordinator_config(emulated))
        self._set_apis(broker, emulated)
        self.transactions.configure()

    def remove_broker(self, broker: BrokerNode, now_ms: float, how: Failover) -> None:
        """Remove a broker and move its replicas to others."""
        if broker.up:
            self.controller.stop_broker(broker, now_ms, how)
        self.controller.evacuate(broker, now_ms, how)
        del self.brokers[broker.node_id]

    def forget(self, peer: Peer) -> None:
        """Drop the delayed Fetch, and the delayed response, of a connection that was closed."""
        self.purgatory.discard(peer)
        self.faults.forget(peer)

    def auto_create_topic(self, name: str) -> Topic:
        """Create a topic that a request refers to, with the default number of partitions (AutoTopicCreationManager)."""
        if name == OFFSETS_TOPIC:
            if name in self.first_use.due_ms and name not in self.topics:
                return self.topics.create(name, self._placed_offsets_topic())  # There may be more brokers by now.
            self.topics.show_offsets_topic()
            return self.topics.offsets_topic
        if name == TRANSACTIONS_TOPIC:
            factor = min(self._wanted_replicas(name), len(self.brokers))
            count = self.config.number("transaction.state.log.num.partitions")
            needed = min(self.config.number("transaction.state.log.min.isr"), factor)
            configs = {**INTERNAL_TOPIC_CONFIGS[name], "min.insync.replicas": str(needed)}
            return self.add_topic(name, self.placement.place(count, factor), configs)
        assignment = self.placement.place_topic(self.config.number("num.partitions"), self.default_replication_factor)
        return self.topics.create(name, assignment)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its records and committed offsets. The next `tick` answers its delayed Fetch requests.

        With an internal topic, all groups or transactional ids are lost. Clients that look for a coordinator create it.
        """
        if topic.is_internal:
            self.first_use.deleted(topic.name, self.now_ms)
        self.topics.delete(topic)
        if topic.name == OFFSETS_TOPIC:
            self.topics.create_offsets_topic(self._placed_offsets_topic())
            self._forget_groups()
            self.requests.settle(self.now_ms)
        elif topic.name == TRANSACTIONS_TOPIC:
            self.transactions.load()
        for partition in topic.partitions:
            self.purgatory.release(partition)
            partition.copying = ()
            self.controller.copies.keep(partition)
        for broker in self.brokers.values():
            broker.coordinator.offsets.delete_topic(topic.name)

    def offsets_partition_of(self, group_id: str) -> Partition:
        """Return the partition of __consumer_offsets that has the records of a group."""
        return _partition_for(self.topics.offsets_topic, group_id)

    def coordinator_of(self, group_id: str) -> BrokerNode | None:
        """Return the broker that coordinates a group: the leader of its offsets partition. None if no leader is up."""
        return self.leader_of(self.offsets_partition_of(group_id))

    def reported_coordinator_of(self, group_id: str) -> BrokerNode | None:
        """Return the broker that FindCoordinator returns for a group: during `stale_ms`, the old coordinator.

        The first call creates __consumer_offsets. Kafka does so in the background, and meanwhile returns
        COORDINATOR_NOT_AVAILABLE. Here the first call returns the coordinator, so that clients need not wait and retry,
        unless they are to notice the first use (`FirstUse`).
        """
        return self.reported_coordinator(self.offsets_partition_of(group_id).index)

    def reported_coordinator(self, index: int) -> BrokerNode | None:
        """Return the broker that FindCoordinator returns for the groups of a partition of __consumer_offsets."""
        if not self.first_use.exists(OFFSETS_TOPIC, self.now_ms):
            return None
        self.topics.show_offsets_topic()
        stale = self.group_moves.stale_leader(index, self.now_ms)
        return self.leader_of(self.topics.offsets_topic.partitions[index]) if stale is None else self.brokers.get(stale)

    def new_producer_id(self) -> int:
        """Return a producer id that is not in use."""
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def expire_producers(self, log: PartitionLog, broker: BrokerNode) -> None:
        """Remove the producers of a log that have expired. Before 3.4 there is no setting of their own (KIP-854)."""
        if self.now_ms >= log.producers.next_check_ms:
            name = "producer.id.expiration.ms" if broker.release >= KIP_854 else "transactional.id.expiration.ms"
            log.producers.expire(self.now_ms, self.dynamic_number(name))

    def dynamic_number(self, name: str) -> int:
        """Return the value of a numeric config that can be changed for the whole cluster."""
        return int(self.broker_configs.get(name) or self.config.number(name))

    def transactions_partition_of(self, transactional_id: str) -> Partition:
        """Return the partition of __transaction_state of a transactional id. The first call creates the topic."""
        topic = self.topics.get(TRANSACTIONS_TOPIC) or self.auto_create_topic(TRANSACTIONS_TOPIC)
        return _partition_for(topic, transactional_id)

    def transaction_coordinator_of(self, transactional_id: str) -> BrokerNode | None:
        """Return the broker that FindCoordinator returns for a transactional id: the leader of its partition.

        The first call creates __transaction_state, as for groups. During `stale_ms` it is the old coordinator.
        """
        if not self.first_use.exists(TRANSACTIONS_TOPIC, self.now_ms):
            return None
        partition = self.transactions_partition_of(transactional_id)
        stale = self.transactions.moves.stale_leader(partition.index, self.now_ms)
        return self.leader_of(partition) if stale is None else self.brokers.get(stale)

    def tick(self, now_ms: float, wire_ms: float | None = None) -> None:
        """Process all that is due: timers of groups, loading coordinators, delayed requests, responses and Fetches.

        Args:
            now_ms: The brokers' time in milliseconds.
            wire_ms: The clients' time in milliseconds, by which Fetch requests wait, if it differs.
        """
        wire_ms = now_ms if wire_ms is None else wire_ms
        # A request that a fault delays is handled at its time, as if the clock had stopped there. But not before the
        # last request or tick: the time of a coordinator never goes back.
        while (late_ms := self.faults.next_request()) <= now_ms:
            self._run_timers(max(late_ms, self.now_ms), wire_ms)
        self._run_timers(now_ms, wire_ms)

    def _run_timers(self, now_ms: float, wire_ms: float) -> None:
        self.now_ms, self.wire_ms = now_ms, wire_ms
        if self.transactions.waiting:
            self.transactions.schedule_retry(now_ms)  # What the markers wait for may have changed.
        self.timers.run(now_ms)
        self.wire_timers.run(wire_ms)
        self.requests.settle(now_ms)

    def next_deadline(self) -> float | None:
        """Return a time, by the brokers' clock, before which `tick` has nothing to do; None if no timer is pending.

        What is due by the clients' clock has its own queue, `wire_timers`.
        """
        return self.timers.next_deadline()


def _partition_for(internal_topic: Topic, key: str) -> Partition:
    return internal_topic.partitions[partition_for(key, len(internal_topic.partitions))]


def _load_groups(coordinator: "Coordinator | ProposedCoordinator", partition: Partition, now_ms: float) -> None:
    coordinator.finish_loading(partition.index, read_records(partition.log, partition.index), now_ms)


def _leader_balance(config: Config) -> LeaderBalance | None:
    """Return when preferred leaders are elected automatically, by the settings."""
    if not config.switch("auto.leader.rebalance.enable"):
        return None
    interval_ms = config.number("leader.imbalance.check.interval.seconds") * 1000
    return LeaderBalance(interval_ms, config.number("leader.imbalance.per.broker.percentage"))


def uuid_text(raw: bytes) -> str:
    """Return the text of a UUID, 36 characters, for its 16 bytes."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
