"""FakeCluster: the public object. What a test sees of a cluster, and what it can do to it."""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import SETTINGS, Config
from fakebroker.cluster.controller import Failover, check_flag, is_integer
from fakebroker.cluster.emulation import Broker, EmulatedRelease, VersionCap, emulated_releases
from fakebroker.cluster.journal import JournalMode, new_journal
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError
from fakebroker.server.clock import Scaled, clock_for
from fakebroker.server.faulting import Faulting
from fakebroker.server.journaling import Journaling
from fakebroker.server.reactor import DEFAULT_MAX_UNSENT_BYTES, DEFAULT_PARTIAL_FRAME_TIMEOUT_MS
from fakebroker.server.scripting import Scripting
from fakebroker.server.seeding import Seeding
from fakebroker.server.snapshots import Snapshots
from fakebroker.server.timekeeping import Timekeeping
from fakebroker.server.views import BrokerView, GroupView, report, timeline_of, view_group
from fakebroker.server.waits import Waiting

DEFAULT_CONFIG: Mapping[str, object] = {"group.initial.rebalance.delay.ms": 0}
"""Where a cluster for tests differs from Kafka's defaults: the first member does not wait for others."""

KAFKA_DEFAULTS: Mapping[str, object] = {name: SETTINGS[name].default for name in DEFAULT_CONFIG}
"""Where a cluster for people, in a process of its own or in a replay, differs from one for tests."""


class FailoverOptions(TypedDict, total=False):
    """How coordinators come up at another broker; see `fakebroker.cluster.controller.Failover`."""

    load_ms: float | None
    load_fails: bool
    lose_tail: int
    lose_all: bool
    zombie: bool
    stale_ms: float


class FakeCluster(Scripting, Seeding, Snapshots, Faulting, Waiting, Journaling, Timekeeping):
    """A fake Kafka cluster that real clients connect to.

    As a context manager it runs in a thread of its own; as an async one in the caller's trio task tree. Everything may
    be called from any thread while it runs, and looked at afterwards.

    Args:
        brokers: How many brokers; or a `Broker` for each, which says how it differs from the others. Their node ids are
            1, 2, 3 ...
        topics: Topics that exist from the start, with their partition counts.
        config: Broker settings under Kafka's names; see `fakebroker.cluster.configs.settings.SETTINGS`.
        seed: Makes member ids, topic ids and the cluster id repeat; drawn, and kept in `seed`, if not given.
        as_version: The release of Kafka that the brokers pass for, from "0.10.0" to "4.2"; if not given they answer all
            versions that there are, and behave as the newest.
        api_versions: For some APIs by name the first and the last version to answer, or None to lack it.
        proposals: What no Kafka has, and brokers of the newest release are to have: "batch-join" (KAFKA-8397).
        clock: "real"; or "manual": the brokers' time stands still until `cluster.clock.advance(seconds)`; or, such as
            `Scaled(10)`, so many times as fast as real time. Clients' time is real whatever this is; inside of trio,
            real time is trio's, so a `trio.testing.MockClock` moves it.
        host: The address to listen on.
        port: The port of the first broker, the others follow; 0 takes free ones.
        advertised_host: The host that clients are told; `host` if not given.
        journal: What is kept of requests and their responses: "full", all; "headers", all but the messages; "off".
        journal_calls: How many requests the journal keeps.
        journal_bytes: How many bytes of requests the journal keeps; with "headers", of the names in them.
        max_unsent_bytes: A client that leaves this much unread is closed.
        partial_frame_timeout_s: A client that stops in the middle of a request is closed after so long.

    Raises:
        ConfigError: A setting, topic, release, version, proposal or number of brokers cannot be.
        ListenError: On entering: an address or port cannot be had.
    """

    def __init__(
        self,
        brokers: int | Sequence[Broker] = 3,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, object] | None = None,
        seed: int | None = None,
        *,
        as_version: str | None = None,
        api_versions: Mapping[str, VersionCap] | None = None,
        proposals: Sequence[str] = (),
        clock: Literal["real", "manual"] | Scaled = "real",
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        journal: JournalMode = "full",
        journal_calls: int = 10_000,
        journal_bytes: int = 64 * 1024 * 1024,
        max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
        partial_frame_timeout_s: float = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS / 1000,
    ) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.clock = clock_for(clock)
        self._like = Broker(as_version=as_version, api_versions=api_versions or {})
        self._proposals = tuple(proposals)
        releases = emulated_releases(brokers, as_version, api_versions or {}, proposals)
        first_topics, settings = dict(topics or {}), Config({**DEFAULT_CONFIG, **(config or {})})

        def new_cluster() -> Cluster:
            return Cluster(
                releases=releases,
                topics=first_topics,
                config=settings,
                new_id=_id_maker(self.seed),
                random=random.Random(f"faults {self.seed}").random,
                journal=new_journal(journal, journal_calls, journal_bytes),
                now_ms=self.clock.now_ms(),
            )

        self._new_cluster = new_cluster
        super().__init__(
            new_cluster(),
            self.clock,
            host=host,
            port=port,
            advertised_host=advertised_host or host,
            max_unsent_bytes=max_unsent_bytes,
            partial_frame_timeout_ms=partial_frame_timeout_s * 1000,
        )

    # Looking

    @property
    def bootstrap_servers(self) -> str:
        """What clients call `bootstrap.servers`: host:port of every broker, comma-separated."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """The brokers, by node id."""
        return tuple(BrokerView.of(broker) for broker in self.cluster.brokers.values())

    def coordinator_of(self, group_id: str) -> BrokerView:
        """The broker that coordinates a group.

        Raises:
            ConfigError: None does now.
        """
        broker = self._call(lambda: self.cluster.coordinator_of(group_id))
        if broker is None:
            raise ConfigError(f"group {group_id!r} has no coordinator now")
        return BrokerView.of(broker)

    def group(self, group_id: str) -> GroupView:
        """A group as it is now; one that does not exist has the state Dead, as Kafka describes it."""
        return self._call(lambda: view_group(self.cluster, group_id, self.clock.now_ms()))

    def groups(self) -> list[GroupView]:
        """All groups as they are now, broker by broker."""

        def view() -> list[GroupView]:
            return [
                GroupView.of(group.group_id, group, timeline_of(self.cluster, group.group_id, self.clock.now_ms()))
                for broker in self.cluster.brokers.values()
                for group in broker.coordinator.groups()
            ]

        return self._call(view)

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """What a group has committed, by topic and partition."""

        def view() -> dict[tuple[str, int], CommittedOffset]:
            broker = self.cluster.coordinator_of(group_id)
            offsets = broker.coordinator.fetch_offsets(group_id, None, self.clock.now_ms())[1] if broker else []
            return {(topic, partition): offset for topic, partition, offset in offsets if offset is not None}

        return self._call(view)

    def report(self) -> str:
        """The groups' states and the last requests, for a person whose test has failed."""
        return report(self.seed, self.groups(), self.journal_view())

    # Topics

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Create a topic.

        Raises:
            ConfigError: It is there already, or cannot be.
        """
        self._call(lambda: self.cluster.create_new_topic(name, partitions, replication_factor))

    def create_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions.

        Raises:
            ConfigError: There is no such topic, or it has as many already.
        """
        self._call(lambda: self.cluster.create_partitions(name, total))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, and what groups have committed to it.

        Raises:
            ConfigError: There is no such topic, or it is Kafka's own.
        """
        self._call(lambda: self.cluster.delete_named_topic(name))

    # Coordinators

    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Let another broker coordinate a group, and all groups of its offsets partition.

        The old one gives up: parked requests get NOT_COORDINATOR. The new one loads the partition's log and goes on
        from there, as Kafka does.

        Args:
            group_id: The group.
            to: The node id of the broker; None is no coordinator at all (COORDINATOR_NOT_AVAILABLE) until the group is
                moved again, or its last coordinator restarts.
            how: What goes wrong, or takes its time: see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is down; or an option cannot be.
        """
        if not isinstance(group_id, str):
            raise ConfigError(f"group_id={group_id!r}: expected a string")
        self.move_offsets_partition(self.cluster.offsets_partition_of(group_id).index, to, **how)

    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Let another broker lead a partition of __consumer_offsets; see `move_coordinator`."""
        options = Failover(**how)

        def move() -> None:
            count = self.cluster.config.number("offsets.topic.num.partitions")
            if not is_integer(partition) or not 0 <= partition < count:
                raise ConfigError(f"partition={partition!r}: expected 0 to {count - 1}")
            leader_id = NO_LEADER if to is None else self._broker(to, up=True).node_id
            target = self.cluster.offsets_partition(partition)
            self.cluster.controller.set_leader(target, leader_id, self.clock.now_ms(), options)

        self._call(move)

    def finish_loading(self) -> None:
        """Let every coordinator that is loading be done with it."""
        self._call(lambda: self.cluster.controller.finish_loading(self.clock.now_ms()))

    def stop_zombies(self) -> None:
        """Let every old coordinator that still answers give up."""
        self._call(lambda: self.cluster.controller.stop_zombies(self.clock.now_ms()))

    # Brokers

    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Take a broker down: its connections are cut, its port refuses.

        Args:
            node_id: The broker.
            elect: Whether the partitions that it leads get other leaders; else they have none until it is back, also if
                other brokers start before. A move, an ElectLeaders request, or its removal gives them one earlier.
            how: How coordinators come up elsewhere; see `Failover`.

        Raises:
            ConfigError: There is no such broker, or it is down already; or an option cannot be.
        """
        options = Failover(**how)
        check_flag("elect", elect)

        def stop() -> None:
            broker = self._broker(node_id, up=True)
            self._shut(broker, keep_port=True)
            self.cluster.controller.stop_broker(broker, self.clock.now_ms(), options, elect=elect)

        self._call(stop)

    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Bring a broker up again, at the port that it had.

        Raises:
            ConfigError: There is no such broker, or it is up already; or an option cannot be.
        """
        options = Failover(**how)

        def start() -> None:
            broker = self._broker(node_id, up=False)
            self._open(broker)
            self.cluster.controller.start_broker(broker, self.clock.now_ms(), options)

        self._call(start)

    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Take a broker down, let others lead, and bring it up again."""
        self.stop_broker(node_id, **how)
        self.start_broker(node_id, **how)

    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart every broker that is up, one after the other."""
        Failover(**how)  # Raises ConfigError for invalid options also if no broker is up.
        for broker in self.brokers:
            if broker.up:
                self.restart_broker(broker.node_id, **how)

    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older; one that is down stays down.

        Args:
            node_id: The broker.
            as_version: The release; None is the newest behavior with every version that there is.
            api_versions: For some APIs by name the first and the last version to answer, or None to lack it.
            how: How coordinators come up elsewhere, and here again; see `Failover`.

        Raises:
            ConfigError: There is no such broker, release, API or version; or an option cannot be.
        """
        Failover(**how)  # Raises ConfigError for invalid options also if the broker is down.
        release = EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions or {}), self._proposals)
        broker = self._call(lambda: self._broker(node_id))
        if was_up := broker.up:
            self.stop_broker(node_id, **how)
        self._call(lambda: self.cluster.upgrade_broker(broker, release))
        if was_up:
            self.start_broker(node_id, **how)

    def add_broker(self, like: Broker | None = None) -> BrokerView:
        """Add a broker, at a free port. It leads nothing until something is moved to it or created.

        Args:
            like: How it is to be; as the cluster as a whole if not given.

        Raises:
            ConfigError: There is no such release, API or version.
        """
        release = EmulatedRelease.of(like or self._like, self._proposals)

        def add() -> BrokerView:
            broker = self.cluster.add_broker(release)
            self._open(broker)
            return BrokerView.of(broker)

        return self._call(add)

    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Take a broker away for good; its replicas move to others.

        Raises:
            ConfigError: There is no such broker, or it is the last one; or an option cannot be.
        """
        options = Failover(**how)

        def remove() -> None:
            broker = self._broker(node_id)
            if len(self.cluster.brokers) == 1:
                raise ConfigError(f"broker {node_id} is the last one")
            self._shut(broker, keep_port=False)
            self.cluster.remove_broker(broker, self.clock.now_ms(), options)

        self._call(remove)

    def _broker(self, node_id: int, *, up: bool | None = None) -> BrokerNode:
        broker = self.cluster.brokers.get(node_id) if is_integer(node_id) else None
        if broker is None:
            raise ConfigError(f"no broker {node_id!r}: expected one of {', '.join(map(str, self.cluster.brokers))}")
        if up is not None and broker.up is not up:
            raise ConfigError(f"broker {node_id} is {'up' if broker.up else 'down'} already")
        return broker


def _id_maker(seed: int) -> Callable[[], bytes]:
    """Makes the bytes of version 4 UUIDs that repeat with the seed."""
    source = random.Random(seed)
    return lambda: uuid.UUID(int=source.getrandbits(128), version=4).bytes
