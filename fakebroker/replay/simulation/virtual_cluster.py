"""A cluster in virtual time, without sockets. It has the commands of a cluster over TCP.

Does not depend on members or on how connections work.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

from fakebroker.cluster import handlers
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import DEFAULT_CONFIG, Config
from fakebroker.cluster.emulation import Broker, emulated_releases
from fakebroker.cluster.handles.conditions import HandleCondition, condition_of
from fakebroker.cluster.handles.definition import perform
from fakebroker.cluster.handles.environment import NetworkConditions, no_tls_error, random_uuids
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.journal.journal import NoJournal
from fakebroker.cluster.topics import OFFSETS_TOPIC, Partition
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import Record
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.replay.simulation.postponed_appends import PostponedAppends
from fakebroker.replay.simulation.scheduler import VirtualClock
from fakebroker.replay.wording import listed
from fakebroker.replay.workload.timeline import Outcome
from fakebroker.replay.workload.workload import Cluster as ClusterSettings

T = TypeVar("T")

HOST = "memory"
"""Host name of all brokers. The port of a broker is its node id."""


class VirtualEnvironment:
    """The `fakebroker.cluster.handles.environment.Environment` of a cluster in virtual time.

    Args:
        clock: The clock of the simulation.
        disconnect: Called with each broker that closes its connections.

    Attributes:
        skips_steps: Whether commands only validate their arguments and have no effect.
    """

    def __init__(self, clock: VirtualClock, disconnect: Callable[[BrokerNode], None]) -> None:
        self.skips_steps = False
        self._clock = clock
        self._disconnect = disconnect

    def run(self, step: Callable[[], T]) -> T:
        return cast(T, None) if self.skips_steps else step()

    def now_ms(self) -> float:
        return self._clock.moment_ms

    def advance(self, seconds: float) -> None:
        raise ConfigError("the clock of a cluster in memory cannot be advanced")

    def closed_connections(self) -> str:
        return ""

    def open_listener(self, broker: BrokerNode) -> None:
        broker.host, broker.port = HOST, broker.node_id

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        self._disconnect(broker)

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        return NetworkConditions()

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        """No effect: network conditions apply to sockets only."""

    def renew_certificates(self, *, expired: bool) -> None:
        raise no_tls_error()

    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> AbstractContextManager[None]:
        return nullcontext()


class VirtualCluster:
    """A cluster in virtual time, configured by a workload. It has no journal, and its groups have no history.

    Args:
        settings: The cluster's settings.
        topics: Partition counts by name.
        seed: Seed of member ids and of faults with a probability.
        environment: The environment of its commands.

    Attributes:
        cluster: The cluster.
        owner: The owner of its handles, which run its commands.
    """

    def __init__(
        self, settings: ClusterSettings, topics: Mapping[str, int], seed: int, environment: VirtualEnvironment
    ) -> None:
        releases = emulated_releases(settings.brokers, settings.as_version, {}, settings.proposals)
        config = Config({**DEFAULT_CONFIG, **settings.config})

        def new_cluster() -> Cluster:
            return Cluster(
                releases=releases,
                topics=topics,
                config=config,
                new_id=random_uuids(random.Random(seed).getrandbits),
                random=random.Random(f"faults {seed}").random,
                journal=NoJournal(),
                now_ms=environment.now_ms(),
                handlers=handlers.BY_NAME,
                keeps_history=False,
                first_node_id=settings.first_node_id,
            )

        self.cluster = new_cluster()
        self.owner = Local(
            self.cluster,
            environment,
            seed=seed,
            new_cluster=new_cluster,
            default_broker=Broker(as_version=settings.as_version),
            proposals=settings.proposals,
        )
        # Each simulation runs one partition, so events must not create the topic with another number of partitions.
        self.cluster.topics.show_offsets_topic()
        for broker in self.cluster.brokers.values():
            environment.open_listener(broker)

    def postpone_appends(self, *, is_truncated: bool) -> None:
        """Postpone the appends to all partitions of __consumer_offsets until their logs are read.

        Args:
            is_truncated: Whether a failover may drop the end of a log.
        """
        cluster = self.cluster
        postponed = [
            PostponedAppends(partition.log, is_truncated=is_truncated)
            for partition in cluster.topics.offsets_topic.partitions
        ]

        def append(partition: Partition, records: Sequence[Record]) -> None:
            appends = postponed[partition.index]
            assert appends.log is partition.log
            appends.add(records, partition.leader_epoch, cluster.now_ms, cluster.writer_release(partition))

        cluster.append_records = append  # type: ignore[method-assign]  # these records are never fetched

    def partitions_of(self, event: Mapping[str, Any]) -> dict[str, int]:
        """Return the offsets partitions of the groups that an event, or its condition, is about."""
        return partitions_of(event, self.cluster.config.number("offsets.topic.num.partitions"))

    def check_condition(self, event: Mapping[str, Any], requests_of: str | None = None) -> None:
        """Check that one simulation can evaluate the condition of an event.

        Args:
            event: A valid event with a condition.
            requests_of: The group whose requests run the event, because it is an action of their fault. Otherwise, the
                event runs at its time.

        Raises:
            ConfigError: The condition concerns several offsets partitions, or what a simulation does not have.
        """
        for leaf in _leaves(event["condition"]):
            if leaf.definition.thing not in ("group", "broker") and leaf.definition.name != "topic.exists":
                expected = (
                    "a condition of groups or brokers, or that a topic exists: a replay in memory has no journal, and "
                    "simulates the records and transactional ids of each partition of __consumer_offsets apart"
                )
                raise ConfigError.of("condition", str(leaf), expected)
        partitions = self.partitions_of(event)
        if requests_of is not None:
            partitions |= self.partitions_of({"group_id": requests_of})
        if len(set(partitions.values())) > 1:
            where = listed([f"{group_id!r} is in partition {index}" for group_id, index in partitions.items()])
            expected = (
                "groups of one partition of __consumer_offsets, because a replay in memory simulates each partition "
                f"apart; {where}"
            )
            raise ConfigError.of("condition", str(condition_of(event["condition"])), expected)

    def affects(self, event: Mapping[str, Any], partition: int) -> bool:
        """Return whether an event may affect groups of an offsets partition."""
        partitions = self.partitions_of(event)
        if partitions:
            return partition in partitions.values()
        is_of_offsets = event["do"] == "partition.move_leader" and event["topic"] == OFFSETS_TOPIC
        return bool(not is_of_offsets or event["partition"] == partition)

    def affects_idle(self, event: Mapping[str, Any], partition: int) -> bool:
        """Return whether an event may affect members whose groups are in an offsets partition and are stable."""
        if event["do"] not in ("broker.start", "broker.stop"):
            return self.affects(event, partition)
        broker = self.cluster.brokers.get(event["node_id"])
        replicas = self.cluster.offsets_partition(partition).replicas
        return broker is None or broker.node_id in replicas or broker.coordinator.leads(partition)

    def may_change_leader(self, partition: int) -> bool:
        """Return whether the controller may change the leader or the replicas of an offsets partition by itself.

        While the coordinator loads the partition, no member of its groups is idle.
        """
        found = self.cluster.offsets_partition(partition)
        return found.leader_id != found.replicas[0] or bool(found.copying) or found.is_reassigning

    def perform(self, event: Mapping[str, Any]) -> Outcome:
        """Run an event.

        Returns:
            The error as text; None if there is none.
        """
        try:
            perform(self.owner, event)
        except FakebrokerError as error:
            return str(error)
        return None


def partitions_of(event: Mapping[str, Any], count: int) -> dict[str, int]:
    """Return the partitions of the groups that an event, or its condition, is about, of `count` offsets partitions."""
    names = [event["group_id"]] if "group_id" in event else []
    if "condition" in event:
        keys = (each.key for each in _leaves(event["condition"]))
        names += [key["group_id"] for key in keys if "group_id" in key]
    return {group_id: partition_for(group_id, count) for group_id in names}


def _leaves(condition: object) -> Iterator[HandleCondition[Any]]:
    """Yield the conditions that the condition of an event is composed of."""
    for leaf in condition_of(condition).leaves():
        assert isinstance(leaf, HandleCondition)  # Predicates cannot be written as JSON.
        yield leaf
