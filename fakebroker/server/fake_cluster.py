"""FakeCluster, the public class: a cluster over TCP, what can be seen of it and what can be done to it."""

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.command import FaultHandle, Hold, check_type, command
from fakebroker.cluster.commands import ClusterCommands
from fakebroker.cluster.configs.settings import DEFAULT_CONFIG, Config
from fakebroker.cluster.controller import FailoverOptions
from fakebroker.cluster.emulation import Broker, VersionCap, emulated_releases
from fakebroker.cluster.environment import Accept, random_uuids
from fakebroker.cluster.faults.rule import Fault, FaultOptions
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.journal_filters import Filters
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.inspect.timeline import Timeline
from fakebroker.cluster.inspect.views import (
    BrokerView,
    GroupView,
    committed_offsets,
    report,
    timeline_of,
    view_group,
    view_groups,
)
from fakebroker.cluster.journal import JournalMode, new_journal
from fakebroker.cluster.seed import GroupSeed, MemberSeed, SeedOptions
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError
from fakebroker.server.clock import Scaled, clock_for
from fakebroker.server.connection import Connection
from fakebroker.server.journal_files import JournalExport
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.reactor import DEFAULT_MAX_UNSENT_BYTES, DEFAULT_PARTIAL_FRAME_TIMEOUT_MS
from fakebroker.server.seed_tables import Table, seeds_from
from fakebroker.server.waits import DEFAULT_TIMEOUT_S, Waits
from fakebroker.validation import Seconds

T = TypeVar("T")


class FakeCluster(JournalExport):
    """A fake Kafka cluster that real clients connect to.

    As a context manager it runs in a thread of its own, as an asynchronous one in the caller's trio task tree. All
    methods may be called from any thread while it runs; its state can be inspected afterwards, too.

    Methods that change it are those of `fakebroker.cluster.commands.ClusterCommands`, which documents them in detail.
    Members of groups are named by member id, by instance id, or by client id if only one member has it.

    Waits are event-driven. A wait blocks its caller's thread, which must not be the one that the cluster runs in; what
    ends in `_async` does the same in a trio task. Timeouts are wall-clock seconds, also with a manual clock;
    `WaitTimeout` shows the state of the cluster instead.

    Args:
        brokers: Number of brokers; or a `Broker` for each, with what differs from the others. Node ids are 1, 2, 3 ...
        topics: Topics that exist from the start, with their partition counts.
        config: Broker settings under Kafka's names; see `fakebroker.cluster.configs.settings.SETTINGS`.
        seed: Seed for reproducible member ids, topic ids and cluster id; random if not given, and kept in `seed`.
        as_version: The release of Kafka that the brokers emulate, from "0.10.0" to "4.2"; if not given they support all
            versions that are implemented, and behave as the newest release.
        api_versions: For some APIs by name the first and the last version to support, or None for no support.
        proposals: Proposals for Kafka that brokers of the newest release implement: "batch-join" (KAFKA-8397).
        clock: "real"; or "manual": the brokers' time stands still until `cluster.clock.advance(seconds)`; or, such as
            `Scaled(10)`, a multiple of real time. Clients' time is real in any case; inside of trio, real time is
            trio's, so a `trio.testing.MockClock` moves it.
        host: The address to listen on.
        port: The port of the first broker, the others follow; 0 takes free ones.
        advertised_host: The host in responses; `host` if not given.
        journal: What is kept of requests and their responses: "full"; "headers", without messages; "off".
        journal_calls: Number of requests that the journal keeps.
        journal_bytes: Bytes of requests that the journal keeps; with "headers", of the names in them.
        max_unsent_bytes: A connection with more unsent bytes than this is closed.
        partial_frame_timeout_s: A connection that stops in the middle of a request is closed after this time.

    Attributes:
        cluster: The state of the cluster; for the cluster's thread.
        clock: The brokers' clock.
        seed: The seed.
        host: The address to listen on.
        advertised_host: The host in responses.

    Raises:
        ConfigError: An argument is of the wrong type, or a setting, topic, release, version, proposal or the number of
            brokers is out of range.
        ListenError: On entering: an address or port is not available.
    """

    @command
    def __init__(
        self,
        brokers: int | Sequence[Broker] = 3,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, Any] | None = None,
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
        partial_frame_timeout_s: Seconds = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS / 1000,
    ) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.clock = clock_for(clock)
        self.host, self.advertised_host = host, advertised_host or host
        releases = emulated_releases(brokers, as_version, api_versions or {}, proposals)
        first_topics, settings = dict(topics or {}), Config({**DEFAULT_CONFIG, **(config or {})})

        def new_cluster() -> Cluster:
            return Cluster(
                releases=releases,
                topics=first_topics,
                config=settings,
                new_id=random_uuids(random.Random(self.seed).getrandbits),
                random=random.Random(f"faults {self.seed}").random,
                journal=new_journal(journal, journal_calls, journal_bytes),
                now_ms=self.clock.now_ms(),
            )

        self.cluster = new_cluster()
        self._server = ClusterServer(
            self.cluster,
            self.clock,
            host=host,
            port=port,
            advertised_host=self.advertised_host,
            max_unsent_bytes=max_unsent_bytes,
            partial_frame_timeout_ms=partial_frame_timeout_s * 1000,
        )
        self._commands = ClusterCommands(
            self.cluster,
            self._server,
            new_cluster=new_cluster,
            default_broker=Broker(as_version=as_version, api_versions=api_versions or {}),
            proposals=proposals,
        )
        self._waits = Waits(self._server)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    # The cluster's thread

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two requests, in the cluster's thread, then everything that is due."""
        return self._server.run(function)

    async def call_async(self, function: Callable[[], T]) -> T:
        """`call`, for a trio task of another thread."""
        return await self._server.run_async(function)

    @property
    def is_cluster_thread(self) -> bool:
        """Whether the caller's thread is the one that the cluster runs in."""
        return self._server.is_cluster_thread

    def start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the cluster's trio loop; it is canceled when the cluster stops. It must not block."""
        self._server.start_task(task)

    def watch(self, watcher: Callable[[], bool]) -> None:
        """Call a function after each change, in the cluster's thread, until it returns True."""
        self._server.watch(watcher)

    @property
    def connections(self) -> Collection[Connection]:
        """The clients' connections; for the cluster's thread."""
        return self._server.reactor.connections.values()

    # Brokers and groups

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` for clients: host:port of every broker, comma-separated."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """The brokers, by node id."""
        return tuple(BrokerView.of(broker) for broker in self.cluster.brokers.values())

    def coordinator_of(self, group_id: str) -> BrokerView:
        """Return the broker that coordinates a group.

        Raises:
            ConfigError: There is none now.
        """
        check_type("group_id", group_id, str, "a string")
        broker = self.call(lambda: self.cluster.coordinator_of(group_id))
        if broker is None:
            raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
        return BrokerView.of(broker)

    def group(self, group_id: str) -> GroupView:
        """Return a group as it is now; one that does not exist has the state Dead, as Kafka describes it."""
        return self.call(lambda: view_group(self.cluster, group_id, self.clock.now_ms()))

    def groups(self) -> list[GroupView]:
        """Return all groups as they are now, broker by broker."""
        return self.call(lambda: view_groups(self.cluster, self.clock.now_ms()))

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the offsets that a group has committed, by topic and partition."""
        return self.call(lambda: committed_offsets(self.cluster, group_id, self.clock.now_ms()))

    def timeline(self, group_id: str) -> Timeline:
        """Return the transitions of a group with their causes, also of one that is gone; `str()` draws it as text."""
        return self.call(lambda: timeline_of(self.cluster, group_id, self.clock.now_ms()))

    def explain(self, group_id: str) -> str:
        """Explain in words the state of a group, its cause, which members it waits for, and until when."""
        return self.call(lambda: explain(self.cluster, group_id, self.clock.now_ms()))

    def pending_deadlines(self) -> list[Deadline]:
        """Return everything that time alone will bring about, earliest first; each heartbeat changes it."""
        return self.call(lambda: pending_deadlines(self.cluster, self.clock.now_ms()))

    def journal_view(self) -> JournalView:
        """Return the journal as it is now."""
        return self.call(lambda: view_journal(self.cluster))

    @property
    def journal_dropped(self) -> int:
        """Number of requests that the journal has dropped because of its limits."""
        return self.cluster.journal.dropped

    def report(self) -> str:
        """Return the seed, the groups' states and the last requests, as shown for failed tests."""
        return report(self.seed, self.groups(), self.journal_view())

    # Topics

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Create a topic, spread evenly over the brokers."""
        self._commands.create_topic(name, partitions, replication_factor)

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic until it has `total`."""
        self._commands.create_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and the offsets that groups have committed for it."""
        self._commands.delete_topic(name)

    # Coordinators

    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Let another broker coordinate a group, and all groups of its partition of __consumer_offsets.

        Args:
            group_id: The group.
            to: The node id of the broker; None is no coordinator at all (COORDINATOR_NOT_AVAILABLE) until the group is
                moved again, or its last coordinator restarts.
            how: How the new coordinator starts; see `fakebroker.cluster.controller.Failover`.
        """
        self._commands.move_coordinator(group_id, to, **how)

    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Let another broker lead a partition of __consumer_offsets; see `move_coordinator`."""
        self._commands.move_offsets_partition(partition, to, **how)

    def finish_loading(self) -> None:
        """Finish the load of every coordinator that is loading."""
        self._commands.finish_loading()

    def stop_zombies(self) -> None:
        """Make every zombie coordinator resign."""
        self._commands.stop_zombies()

    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None:
        """Make the preferred replica the leader of each partition where it is up, as a preferred election does."""
        self._commands.elect_preferred(**how)

    # Brokers

    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker: its connections are closed, its port refuses.

        Args:
            node_id: The broker.
            elect: Whether the partitions that it leads get other leaders; else they have none until it is back, also if
                other brokers start before.
            how: How coordinators start elsewhere; see `fakebroker.cluster.controller.Failover`.
        """
        self._commands.stop_broker(node_id, elect=elect, **how)

    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Start a broker again, at the port that it had."""
        self._commands.start_broker(node_id, **how)

    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker, let others lead its partitions, and start it again."""
        self._commands.restart_broker(node_id, **how)

    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart every broker that is up, one after the other."""
        self._commands.rolling_restart(**how)

    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older; one that is down stays down."""
        self._commands.upgrade_broker(node_id, as_version, api_versions, **how)

    def add_broker(self, like: Broker | None = None) -> BrokerView:
        """Add a broker, at a free port. It leads nothing until a partition is moved to it or created."""
        return self._commands.add_broker(like)

    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Remove a broker for good; its replicas move to others."""
        self._commands.remove_broker(node_id, **how)

    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: float | None = None,
        round_trip_s: float | None = None,
    ) -> None:
        """Change the network conditions of a broker until it is stopped; what is not given stays as it is.

        Args:
            node_id: The broker.
            accept: How it takes new connections: "normal"; "slow", after `accept_delay_s` wall-clock seconds;
                "half_open", requests are read and never answered; "refuse".
            accept_delay_s: For "slow", more than 0.
            round_trip_s: Latency added to each response, in wall-clock seconds.
        """
        self._commands.set_broker(node_id, accept=accept, accept_delay_s=accept_delay_s, round_trip_s=round_trip_s)

    # Faults

    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> FaultHandle:
        """Inject a fault: `cluster.fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Args:
            api: The API by Kafka's name; None is any.
            options: Which of its requests, and the effect; see `fakebroker.Fault`.

        Raises:
            ConfigError: The fault could never take effect.
        """
        return self._commands.fail(api, **options)

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Inject a fault; see `fail`."""
        return self._commands.add_fault(fault)

    @property
    def faults(self) -> list[FaultHandle]:
        """The faults in force, oldest first, including those that are used up."""
        return self._commands.faults()

    def remove_fault(self, handle: FaultHandle) -> None:
        """Remove a fault, if it is still in force."""
        self._commands.remove_fault(handle)

    def clear_faults(self) -> None:
        """Remove all faults; responses that they delay are still sent when they are due."""
        self._commands.clear_faults()

    # Rebalances

    def hold(self, group_id: str, state: str) -> Hold:
        """Keep a group in a state until `release`: from now on, or from when it enters it; it need not exist yet.

        Args:
            group_id: The group.
            state: "PreparingRebalance", where the join phase does not end, or "CompletingRebalance", where the leader's
                SyncGroup is parked.

        Returns:
            A context manager that releases it.
        """
        return self._commands.hold(group_id, state)

    def release(self, group_id: str, state: str | None = None) -> None:
        """Release a group that is held; by default in any state."""
        self._commands.release(group_id, state)

    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance as the end of a session does, without removing a member: heartbeats tell all to rejoin."""
        self._commands.force_rebalance(group_id)

    def choose_leader(self, group_id: str, member: str) -> None:
        """Make a member the leader of the next generation, if it has joined when the join phase ends."""
        self._commands.choose_leader(group_id, member)

    def evict(self, group_id: str, member: str) -> None:
        """Remove a member, as an administrator does: its next response is UNKNOWN_MEMBER_ID; the others rebalance."""
        self._commands.evict(group_id, member)

    def expire(self, group_id: str, member: str) -> None:
        """End a member's session now. While a response is pending for a member that has no effect."""
        self._commands.expire(group_id, member)

    def fence(self, group_id: str, instance_id: str) -> None:
        """Replace a static member as another process with its instance id does: it gets FENCED_INSTANCE_ID."""
        self._commands.fence(group_id, instance_id)

    def delay_sync(self, group_id: str, member: str, seconds: float | None = None) -> None:
        """Delay the response to a member's next SyncGroup, by the brokers' clock; None is until `release_sync`."""
        self._commands.delay_sync(group_id, member, seconds)

    def release_sync(self, group_id: str, member: str) -> None:
        """Send the response that `delay_sync` delays, and delay no further ones."""
        self._commands.release_sync(group_id, member)

    # Seeding

    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        """Create a group as if clients had created it.

        Args:
            group_id: The group.
            members: Their number; or a client id, a `MemberSeed` or a table of its fields for each, the leader first.
            options: Subscription, state, offsets, lag and assignment; see `fakebroker.GroupSeed`.
        """
        self._commands.seed_group(group_id, members, **options)

    def seed_groups(self, groups: "Iterable[GroupSeed] | Table | str | PathLike[str]") -> None:
        """Create many groups at once; if one of them cannot be created, none is.

        Args:
            groups: Seeds; or a table (pandas.DataFrame, pyarrow.Table) or the path of a Parquet file with the columns
                of `fakebroker.server.seed_tables`.
        """
        self._commands.seed_groups(seeds_from(groups))

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Return a snapshot of topics with their records, brokers, leaders, configs, groups and offsets."""
        return self._commands.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot: groups are loaded from their log; holds, delays and faults end; time and ids go on."""
        self._commands.restore(snapshot)

    def reset(self) -> None:
        """Return the cluster to its start, ids included; connections are closed, ports and the time stay."""
        self._commands.reset()

    # Time

    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock, which must be the manual one; see `fakebroker.server.clock.ManualClock`."""
        self._commands.advance(seconds)

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the manual clock to the next deadline; return those that were reached, or None if none is pending."""
        return self._commands.advance_to_next_deadline()

    # Waits

    def wait_until(
        self, what: str, predicate: Callable[[Cluster], T | None], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> T:
        """Wait until a predicate on the cluster holds.

        Args:
            what: The condition in words, for the error.
            predicate: Evaluated in the cluster's thread after each change: it must be fast and change nothing.
            timeout_s: How long to wait.

        Returns:
            The first true value that the predicate returned.

        Raises:
            WaitTimeout: It never held.
        """
        return self._waits.wait(self._waits.holds(what, predicate), timeout_s)

    async def wait_until_async(
        self, what: str, predicate: Callable[[Cluster], T | None], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> T:
        """`wait_until`, in a trio task."""
        return await self._waits.wait_async(self._waits.holds(what, predicate), timeout_s)

    def wait_for_state(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> GroupView:
        """Wait until a group is in a state, such as "Stable" or "Dead", perhaps with a number of members.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeout: It never was.
            ConfigError: There is no such state.
        """
        return self._waits.wait(self._waits.group_in_state(group_id, state, members), timeout_s)

    async def wait_for_state_async(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> GroupView:
        """`wait_for_state`, in a trio task."""
        return await self._waits.wait_async(self._waits.group_in_state(group_id, state, members), timeout_s)

    def wait_for_generation(self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> GroupView:
        """Wait until a group's generation is above a number, in any state.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeout: It never was.
        """
        return self._waits.wait(self._waits.group_past_generation(group_id, above), timeout_s)

    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> GroupView:
        """`wait_for_generation`, in a trio task."""
        return await self._waits.wait_async(self._waits.group_past_generation(group_id, above), timeout_s)

    def wait_for_commit(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> CommittedOffset:
        """Wait until a group has committed an offset, or a higher one, for a partition such as "orders-0".

        Returns:
            The committed offset at that moment.

        Raises:
            WaitTimeout: It never did.
            ConfigError: The partition is malformed.
        """
        return self._waits.wait(self._waits.committed(group_id, partition, at_least), timeout_s)

    async def wait_for_commit_async(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> CommittedOffset:
        """`wait_for_commit`, in a trio task."""
        return await self._waits.wait_async(self._waits.committed(group_id, partition, at_least), timeout_s)

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **filters: Unpack[Filters],
    ) -> list[Call]:
        """Wait until requests have come. Those that the journal has already count as well.

        Args:
            api: Of this API, by Kafka's name, such as "JoinGroup".
            client_id: Of this client.
            count: How many; to wait for another one, `cluster.count(...) + 1`.
            timeout_s: How long to wait.
            filters: Only requests that match all of these filters; see `Filters`. `since` excludes older ones.

        Returns:
            All matching requests, oldest first; some may have no response yet.

        Raises:
            WaitTimeout: They never came.
            ConfigError: There is no such API, broker, error or filter, or the count is below 1; or no journal is kept.
        """
        condition = self._waits.requested(api, {"client_id": client_id, **filters}, count)
        return self._waits.wait(condition, timeout_s)

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **filters: Unpack[Filters],
    ) -> list[Call]:
        """`wait_for_request`, in a trio task."""
        condition = self._waits.requested(api, {"client_id": client_id, **filters}, count)
        return await self._waits.wait_async(condition, timeout_s)
