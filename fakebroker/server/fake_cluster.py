"""The public class `FakeCluster`: runs a cluster over TCP; its methods inspect it, change it, and wait for changes."""

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, Unpack, overload

from msgspec import Meta

from fakebroker.cluster.acl_rules import AclOptions, AclRule, OperationName
from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.command import AppendFailureHandle, FaultHandle, Hold, check_type, command
from fakebroker.cluster.commands import ClusterCommands
from fakebroker.cluster.configs.settings import DEFAULT_CONFIG, Config
from fakebroker.cluster.configs.topic_configs import TopicConfigValue
from fakebroker.cluster.emulation import Broker, BrokerSettings, NodeId, ReleaseName, VersionCap, emulated_releases
from fakebroker.cluster.environment import Accept, random_uuids
from fakebroker.cluster.faults.rule import Fault, FaultOptions
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.journal_filters import Filters
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.inspect.record_views import RecordView, batches_of
from fakebroker.cluster.inspect.timeline import Timeline
from fakebroker.cluster.inspect.transaction_timeline import TransactionTimeline, transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import (
    HangingTransaction,
    TransactionView,
    checked_filters,
    hanging_transactions,
    view_transaction,
    view_transactions,
)
from fakebroker.cluster.inspect.views import (
    BrokerView,
    GroupView,
    committed_offsets,
    report,
    timeline_of,
    view_group,
    view_groups,
)
from fakebroker.cluster.journal.journal import JournalMode, new_journal
from fakebroker.cluster.listeners import Listener, SecurityProtocol, listeners_of
from fakebroker.cluster.replication.coordinator_moves import FailoverOptions
from fakebroker.cluster.seeding.producer import Headers, ProducedRecord
from fakebroker.cluster.seeding.seed import MemberSeed, SeedOptions
from fakebroker.cluster.seeding.transaction_seed import TransactionSeedOptions
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError, cut_lines, one_of
from fakebroker.host_port import format_host_port, is_host, unbracketed
from fakebroker.security.credentials import Credentials, checked_passwords
from fakebroker.server.clock import Clock, Scaled, clock_for
from fakebroker.server.connection import Connection
from fakebroker.server.journal_files import JournalExport
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.polling import Polled
from fakebroker.server.reactor import DEFAULT_MAX_UNSENT_BYTES, DEFAULT_PARTIAL_FRAME_TIMEOUT_MS, NO_TLS
from fakebroker.server.response_times import ResponseTimes
from fakebroker.server.seed_tables import Seeds, seeds_from
from fakebroker.server.waits import DEFAULT_TIMEOUT_S, Waits
from fakebroker.validation import Data, Seconds

if TYPE_CHECKING:  # Few clusters need them.
    from fakebroker.server.persistence import Persistence
    from fakebroker.server.tls.certificates import CertificateAuthority
    from fakebroker.server.tls.tls_listener import TlsListener

T = TypeVar("T")

ScaledClock = Annotated[Scaled, Meta(examples=[{"factor": 10}])]
PartitionCounts = Annotated[Mapping[str, int], Meta(examples=[{"orders": 6}])]
"""A clock, and numbers of partitions by topic, with examples for error messages."""


class FakeCluster(JournalExport):
    """A fake Kafka cluster that real clients connect to.

    `with` runs it in a new thread. `async with` runs it in a task of the caller's trio loop; under asyncio, in a new
    thread, without blocking the caller's loop. A cluster can be entered once.

    Methods may be called from any thread while it runs. Its state can be read after it has stopped. Topics, groups and
    faults can be added before it starts. Methods that start, stop or wait for something need a running cluster, and
    raise `FakebrokerError` otherwise; so do views of brokers before the start, because brokers have no ports then.

    Members of a group are identified by member id, by instance id, or by client id if only one member has it. A parked
    request is a JoinGroup or SyncGroup whose response waits, for example for other members.

    Waits are event-driven. A wait blocks the calling thread, which must not be the cluster's thread; `..._async`
    methods wait in a task of trio or asyncio instead. Timeouts are wall-clock seconds, also with a manual clock. A
    `WaitTimeout` contains the state of the cluster at that time. If the cluster stops, waits raise `ClusterStopped`.

    With `polling=[one, two]`, a wait polls these consumers, so that a test needs no threads and no loops, and returns
    a `Polled`: its `value` is what the wait returns otherwise, its `records` are what the consumers returned. Consumers
    are objects with `poll(seconds)` (confluent-kafka), `poll(timeout_ms=...)` (kafka-python), in `..._async` methods
    also with coroutines (`getmany` of aiokafka, `poll` of `fakebroker.Consumer`); or functions without arguments that
    poll in another way. They are polled in turn in the calling thread, but those of kafka-python, and in `..._async`
    methods all without coroutines, in a thread for each, which ends with the wait. If a consumer fails, the wait raises
    `PollError`. `PollError`, `WaitTimeout` and `ClusterStopped` have the `records` read so far; a wait that is canceled
    drops them.

    Methods that change the cluster raise `ConfigError` if an argument has the wrong type or is out of range, and then
    change nothing.

    Args:
        brokers: Number of brokers; or one `Broker` per broker, which sets its release, API versions and rack, such as
            `[Broker(rack="a"), Broker(rack="b")]`.
        topics: Topics that exist from the start: number of partitions by name. As in Kafka, `__consumer_offsets` is not
            among them: it is created with `offsets.topic.num.partitions` when a client first looks for the coordinator
            of a group. Kafka then returns COORDINATOR_NOT_AVAILABLE once, this cluster returns the coordinator. If the
            topic is created before, here or by a client, its partitions decide which coordinator a group has.
        config: Broker configs by Kafka's names, such as `{"group.max.size": 100}`.
        seed: Seed for reproducible member ids, topic ids and the cluster id; random if None.
        as_version: The Kafka release to emulate, from "0.10.0" to "4.2". None: the newest behavior, with every
            implemented version of each API.
        api_versions: Maps the name of an API to its first and last supported version, or to None if the API is not
            supported.
        proposals: Proposals that brokers of the newest release implement: "batch-join" (KAFKA-8397), or "rewrite", the
            consumer rewrite design.
        acls: What clients may do, as a list of `AclRule` or of equal tables, such as
            `[{"principal": "ANONYMOUS", "operation": "READ", "topic": "orders"}]`. Everything else is denied, also if
            the list is empty. None: everything is allowed, unless the setting `authorizer.class.name` is given.
        users: Passwords by user, with which clients authenticate: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. The principal
            of user "alice" is "User:alice". With OAUTHBEARER (`sasl.enabled.mechanisms`), tokens have the names.
        listeners: Security protocols by the name of the listener, such as
            `{"INTERNAL": "PLAINTEXT", "CLIENTS": "SASL_PLAINTEXT"}`. Each broker has all of them, and clients find
            brokers at the listener that they are connected to. `bootstrap_servers` is that of the first one. None: one
            listener, with SASL_PLAINTEXT if there are users, otherwise with PLAINTEXT; with `tls`, SASL_SSL or SSL.
        tls: Whether connections are encrypted, at listeners with SSL or SASL_SSL. The certificates are made for this
            cluster, see the attribute `tls`, which needs the extra `tls`; or they are those of the setting
            `ssl.keystore.location`. With `ssl.client.auth`, clients have certificates, too (mutual TLS).
        first_node_id: Node id of the first broker; those of the others follow. Tests written for Kafka often expect 0.
        clock: The brokers' clock. "real"; "manual": time stands still until `advance`; `Scaled(10)`: ten times as fast
            as real time. Clients always use real time. With `async with`, real time is that of trio's clock, such as a
            `trio.testing.MockClock`.
        host: Address to listen on, such as "127.0.0.1", "0.0.0.0" or "::1".
        port: Port of the first broker, the others use the ports that follow, further listeners those after; 0 selects
            free ports.
        advertised_host: Host that brokers report to clients; `host` if None.
        journal: What to record of requests: "full"; "headers": everything but messages; "off": nothing.
        journal_calls: Maximum number of requests in the journal; older ones are dropped.
        journal_bytes: Maximum memory in bytes of the requests and responses in the journal, estimated: record batches
            and other binary data count as on the wire, everything else eight times. A request that exceeds it alone,
            with its response, is kept without messages. With "headers", only the ids of clients, groups, members and
            instances and the names of topics count.
        max_unsent_bytes: A connection with more unsent bytes than this is closed.
        partial_frame_timeout_s: A connection that has sent an incomplete request is closed after this many wall-clock
            seconds without further bytes.
        data_dir: Directory in which the state is kept, so that a later cluster continues with it: topics with their
            records, groups, transactions, configs, ACLs, SCRAM credentials and quotas. It is created if it is missing;
            one cluster at a time can use it, until it has stopped. As after a start of Kafka, all brokers are up, and
            sessions and rebalances start again. `topics` that exist keep their records; `acls` count only for a new
            directory. None: the state is in memory.
        fsync: When changes are forced to the disk: "always", before they are answered, so that they survive a failure
            of the machine; "interval", every second. They survive the end of the process in any case.

    Attributes:
        cluster: The state of the cluster. Use it only in the cluster's thread, see `call`.
        clock: The brokers' clock.
        seed: The seed, also if it was random.
        host: Address to listen on.
        advertised_host: Host that brokers report to clients.
        waits: The conditions and waits behind the `wait_...` methods, for the control server.

    Raises:
        ConfigError: An argument is invalid.
        DataDirectoryError: The data directory is in use, or cannot be used.
        ListenError: When it starts: an address or port is not available. It can be entered again then.
        FakebrokerError: When it starts: it has been entered before.
    """

    @command
    def __init__(
        self,
        brokers: int | Sequence[BrokerSettings] = 3,
        topics: PartitionCounts | None = None,
        config: Mapping[str, Any] | None = None,
        seed: int | None = None,
        *,
        as_version: ReleaseName | None = None,
        api_versions: Mapping[str, VersionCap] | None = None,
        proposals: Sequence[str] = (),
        acls: Sequence[AclRule] | None = None,
        users: Any = None,
        listeners: Mapping[str, SecurityProtocol] | None = None,
        tls: bool = False,
        first_node_id: NodeId = 1,
        clock: Literal["real", "manual"] | ScaledClock = "real",
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        journal: JournalMode = "full",
        journal_calls: int = 10_000,
        journal_bytes: int = 64 * 1024 * 1024,
        max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
        partial_frame_timeout_s: Seconds = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS / 1000,
        data_dir: Any = None,
        fsync: Literal["always", "interval"] = "interval",
    ) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.clock = clock_for(clock)
        if advertised_host and not is_host(advertised_host):
            raise ConfigError.of("advertised_host", advertised_host, "a host name or an IP address, without a port")
        self.host = unbracketed(host)
        self.advertised_host = unbracketed(advertised_host or host)
        racks = () if isinstance(brokers, int) else tuple(broker.rack for broker in brokers)
        releases = emulated_releases(brokers, as_version, api_versions or {}, proposals)
        passwords, all_listeners = (
            checked_passwords({} if users is None else users),
            listeners_of(listeners, has_users=users is not None, has_tls=tls),
        )
        first_topics, settings = dict(topics or {}), Config({**DEFAULT_CONFIG, **(config or {})})
        self._authority: CertificateAuthority | None = None
        if tls and not settings.has_own_certificates:
            self._authority = _new_authority(self.advertised_host, self.host)
            settings = Config({**self._authority.settings, **settings.overrides})
        settings.check_listeners([each.name for each in all_listeners])

        if data_dir is None and fsync == "always":
            raise ConfigError.of("fsync", fsync, "a data_dir, too: without one, nothing is on disk")
        persistence = None if data_dir is None else _opened(data_dir, fsync, proposals)
        # With the same seed, ids are other ones after each start that continues with a stored state.
        seed_of_start: int | str = self.seed
        if persistence is not None and persistence.starts:
            seed_of_start = f"{self.seed}, start {persistence.starts}"

        def new_cluster(topics: Mapping[str, int] = first_topics) -> Cluster:
            return Cluster(
                releases=releases,
                topics=topics,
                config=settings,
                new_id=random_uuids(random.Random(seed_of_start).getrandbits),
                random=random.Random(f"faults {self.seed}").random,
                journal=new_journal(journal, journal_calls, journal_bytes),
                now_ms=self.clock.now_ms(),
                first_node_id=first_node_id,
                racks=racks,
                acls=None if acls is None else [each.acl for each in acls],
                listeners=all_listeners,
                credentials=Credentials(passwords, random.Random(f"credentials {seed_of_start}").randbytes),
            )

        try:
            self.cluster = (
                new_cluster() if persistence is None else _restored(persistence, new_cluster, first_topics, self.clock)
            )
            self._server = ClusterServer(
                self.cluster,
                self.clock,
                persistence,
                host=self.host,
                port=port,
                advertised_host=self.advertised_host,
                max_unsent_bytes=max_unsent_bytes,
                partial_frame_timeout_ms=partial_frame_timeout_s * 1000,
                tls_listeners=_tls_listeners(settings, all_listeners),
            )
        except BaseException:
            if persistence is not None:  # While the exception is handled, it keeps everything alive.
                persistence.give_up()
            raise
        if self._authority is not None:
            self._server.on_stop.append(self._authority.delete)
        self._commands = ClusterCommands(
            self.cluster,
            self._server,
            new_cluster=new_cluster,
            default_broker=Broker(as_version=as_version, api_versions=api_versions or {}),
            proposals=proposals,
        )
        self.waits = Waits(self._server)

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
        """Run a function in the cluster's thread, between two requests.

        Afterwards timers that are due expire, and waits are evaluated. If the cluster is not running, the function runs
        in the calling thread.

        Args:
            function: A function without arguments, which must not block.

        Returns:
            The function's result. Its exceptions are raised here.
        """
        return self._server.run(function)

    async def call_async(self, function: Callable[[], T]) -> T:
        """Run a function in the cluster's thread, like `call`, from a task of trio or asyncio in any thread."""
        return await self._server.run_async(function)

    @property
    def is_cluster_thread(self) -> bool:
        """Whether the calling thread is the one that the cluster runs in."""
        return self._server.is_cluster_thread

    def start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the cluster's trio loop; it is canceled when the cluster stops.

        Args:
            task: An async function without arguments. It must not block the loop.

        Raises:
            FakebrokerError: The cluster is not running.
        """
        self._server.start_task(task)

    def watch(self, watcher: Callable[[], bool]) -> None:
        """Call a function in the cluster's thread after each change, until it returns True.

        Args:
            watcher: A function without arguments, which must be fast and must not block.

        Raises:
            FakebrokerError: The cluster has not been started.
        """
        self._server.watch(watcher)

    def when_stopped(self, function: Callable[[], None]) -> None:
        """Call a function in the cluster's thread when the cluster has stopped, also if it stops because of an error.

        Args:
            function: A function without arguments.
        """
        self._server.on_stop.append(function)

    @property
    def connections(self) -> Collection[Connection]:
        """The clients' open connections. Use them only in the cluster's thread, see `call`."""
        self._server.check_started()
        return self._server.reactor.connections.values()

    @property
    def response_times(self) -> ResponseTimes:
        """The times until responses are sent, for statistics. Use them only in the cluster's thread, see `call`."""
        self._server.check_started()
        return self._server.reactor.response_times

    # Brokers and groups

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` for clients: comma-separated host:port of all brokers, IPv6 addresses in brackets."""
        return ",".join(format_host_port(broker.host, broker.port) for broker in self.brokers)

    @property
    def tls(self) -> "CertificateAuthority":
        """The certificates that were made for this cluster: clients have to trust that of the path `ca_file`.

        `client_certificate("alice")` returns the paths of a certificate and its key, with which a client is
        "User:CN=alice" if the setting `ssl.client.auth` asks for certificates. The files are deleted when the cluster
        stops.

        Raises:
            FakebrokerError: The cluster has no certificates of its own.
        """
        if self._authority is None:
            raise FakebrokerError("no certificates were made: expected tls=True, without ssl.keystore.location")
        return self._authority

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `bootstrap.servers` for clients of a listener.

        Args:
            listener: The name of the listener.

        Raises:
            ConfigError: There is no such listener.
        """
        self._server.check_started()
        known = {each.name: each for each in self.cluster.listeners}
        if listener not in known:
            raise ConfigError.of("listener", listener, one_of(known, listener))
        endpoints = [broker.endpoint(known[listener]) for broker in self.cluster.brokers.values()]
        return ",".join(format_host_port(*endpoint) for endpoint in endpoints)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """All brokers, ordered by node id. They have ports from the start of the cluster on, also after its end."""
        self._server.check_started()
        return tuple(BrokerView.of(broker) for broker in self.cluster.brokers.values())

    def coordinator_of(self, group_id: str) -> BrokerView:
        """Return the broker that coordinates a group.

        Args:
            group_id: The group, which need not exist.

        Raises:
            ConfigError: The group has no coordinator now.
        """
        self._server.check_started()
        check_type("group_id", group_id, str, "a string")
        broker = self.call(lambda: self.cluster.coordinator_of(group_id))
        if broker is None:
            raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
        return BrokerView.of(broker)

    def group(self, group_id: str) -> GroupView:
        """Return the current state of a group.

        Its `type` is "classic" or, with the protocol of KIP-848, "consumer". Consumers have `assigned_partitions`,
        `owned_partitions` and `subscribed_topics`. For other members these are None, and only the bytes are known:
        `assignment` and `metadata`. In a group of type "consumer", members also have `member_epoch`, `state`, `target`,
        `pending_revocation`, and in `awaited` the partitions that other members still hold.

        Args:
            group_id: The group. If it does not exist, its state is "Dead", as in a DescribeGroups response.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self.call(lambda: view_group(self.cluster, group_id, self.clock.now_ms()))

    def groups(self) -> list[GroupView]:
        """Return the current state of all groups, ordered by the node id of their coordinator."""
        return self.call(lambda: view_groups(self.cluster, self.clock.now_ms()))

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the committed offsets of a group by (topic, partition).

        Args:
            group_id: The group. If it does not exist, the result is empty.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self.call(lambda: committed_offsets(self.cluster, group_id, self.clock.now_ms()))

    def timeline(self, group_id: str) -> Timeline:
        """Return the state transitions of a group with their causes; `str()` of the result is a text diagram.

        Of a consumer group (KIP-848) it has all changes of members: epochs, and what they have and have to give up.

        The history is limited: it has the newest 256 changes of a group, fewer if the group is large, and 20,000
        changes in all. `Timeline.dropped` counts those that were dropped; the diagram mentions them.

        Args:
            group_id: The group, which may have been deleted since.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self.call(lambda: timeline_of(self.cluster, group_id, self.clock.now_ms()))

    def explain(self, group_id: str) -> str:
        """Explain in a few sentences why a group is in its state, which members it waits for, and until when.

        Args:
            group_id: The group, which need not exist.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self.call(lambda: explain(self.cluster, group_id, self.clock.now_ms()))

    def transaction(self, transactional_id: str) -> TransactionView:
        """Return the current state of a transactional id, as its coordinator knows it.

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist, or its coordinator does not know it: it is loading, or there is none.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self.call(lambda: view_transaction(self.cluster, transactional_id, self.clock.now_ms()))

    def transactions(
        self, *, state: str | None = None, producer_id: int | None = None, longer_than_s: float | None = None
    ) -> list[TransactionView]:
        """Return the current state of the transactional ids that match all filters, ordered by their coordinators.

        Args:
            state: Only ids in this state, by Kafka's name, such as "Ongoing".
            producer_id: Only the id with this producer id.
            longer_than_s: Only ids whose transaction has begun more than this number of seconds ago and has not ended.

        Raises:
            ConfigError: There is no such state, or a number has the wrong type or is negative.
        """
        filters = checked_filters(state, producer_id, longer_than_s)
        return self.call(lambda: view_transactions(self.cluster, self.clock.now_ms(), **filters))

    def hanging_transactions(self) -> list[HangingTransaction]:
        """Return the transactions that are open in partitions, but not at a coordinator (KIP-664).

        Their records, and later ones of their partitions, stay invisible to read_committed consumers until an admin
        client aborts them. While a coordinator is loading, its open transactions are among them.
        """
        return self.call(lambda: hanging_transactions(self.cluster))

    def transaction_timeline(self, transactional_id: str) -> TransactionTimeline:
        """Return the transitions of a transactional id with their causes; `str()` of the result is a text diagram.

        The history is limited as that of groups; see `timeline`.

        Args:
            transactional_id: The transactional id, which may have expired since.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self.call(lambda: transaction_timeline_of(self.cluster, transactional_id, self.clock.now_ms()))

    def explain_transaction(self, transactional_id: str) -> str:
        """Explain in a few sentences why a transactional id is in its state, what it waits for, and until when.

        Args:
            transactional_id: The transactional id, which need not exist.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self.call(lambda: explain_transaction(self.cluster, transactional_id, self.clock.now_ms()))

    def pending_deadlines(self) -> list[Deadline]:
        """Return the pending timers of all groups, transactional ids and brokers, earliest first.

        Each heartbeat changes them, since it extends a session.
        """
        return self.call(lambda: pending_deadlines(self.cluster, self.clock.now_ms()))

    def journal_view(self) -> JournalView:
        """Return the journal as it is now."""
        return self.call(lambda: view_journal(self.cluster))

    @property
    def journal_dropped(self) -> int:
        """Number of requests that the journal has dropped because of its limits."""
        return self.cluster.journal.dropped

    def report(self) -> str:
        """Return seed, groups, transactional ids and the last requests as text, as shown for a failed test.

        It has the 20 groups and 20 transactional ids that changed last, the first 20 members of each, the last 20
        requests, and the first 200 characters of each line, and says what it leaves out.
        """
        text = report(self.seed, self.groups(), self.transactions(), self.journal_view())
        errors = [cut_lines(f"an action of a fault failed: {error}") for error in self.action_errors]
        return "\n".join([text, *errors])

    @property
    def action_errors(self) -> tuple[str, ...]:
        """The last errors of actions of faults (see `Fault.before` and `Fault.then`) since the last reset, as text."""
        return tuple(self.cluster.faults.actions.errors)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> None:
        """Create a topic, with leaders and replicas spread evenly over the brokers.

        Each topic starts at the next broker, so that topics with one partition have different leaders.

        Args:
            name: The topic.
            partitions: Number of partitions.
            replication_factor: Replicas per partition; the config `default.replication.factor` if None.
            configs: Topic configs by Kafka's names, such as `{"cleanup.policy": "compact"}`.

        Raises:
            ConfigError: The topic exists, or its name is not legal, or differs from that of another topic only in dots
                and underscores, as in CreateTopics.
        """
        self._commands.create_topic(name, partitions, replication_factor, configs)

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic.

        Args:
            name: The topic.
            total: The new number of partitions.

        Raises:
            ConfigError: There is no such topic, or it already has that many partitions.
        """
        self._commands.create_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        Args:
            name: The topic.

        Raises:
            ConfigError: There is no such topic, or it is internal.
        """
        self._commands.delete_topic(name)

    # Records

    def produce(
        self,
        topic: str,
        values: Sequence[Data],
        *,
        key: Data = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> list[ProducedRecord]:
        """Append records to a topic, without a client.

        They pass the checks of a Produce request with `acks=all`, and consumers that wait for records get them. If one
        of them is not accepted, none is appended. Faults do not apply, and the journal has no request.

        Args:
            topic: The topic, which must exist.
            values: The values: strings, which are encoded as UTF-8, bytes, or None for a tombstone.
            key: The key of all records: a string, bytes, or None.
            partition: The partition. None: with a key, the partition that Kafka's default partitioner chooses
                (murmur2); without a key, the records go in turn to the partitions that have a leader.
            headers: The headers of all records: a mapping from names to strings, bytes or None; or a list of pairs.
            timestamp: The timestamp of all records, in milliseconds since the Unix epoch. None: the time of the
                brokers' clock.

        Returns:
            A pair (partition, offset) for each record, with these attributes, in the order of the values.

        Raises:
            ConfigError: The topic or partition does not exist or has no leader, or its leader does not accept the
                records. The error names Kafka's error, such as MESSAGE_TOO_LARGE.
        """
        return self._commands.produce(topic, values, key=key, partition=partition, headers=headers, timestamp=timestamp)

    def records(self, topic: str, partition: int | None = None) -> list[RecordView]:
        """Return the records of a topic: those that a consumer could read now, ordered by partition and offset.

        Records that retention, compaction or DeleteRecords have removed are missing, as are control records.

        Args:
            topic: The topic. Internal topics can be read, too.
            partition: The partition; None for all.

        Raises:
            ConfigError: There is no such topic or partition.
        """
        check_type("topic", topic, str, "a string")
        found = self.call(lambda: batches_of(self.cluster, topic, partition))
        return [record for each in found for record in each.records()]

    # Coordinators

    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a group, and all groups of the same partition of __consumer_offsets, to another coordinator.

        The old coordinator resigns: its parked requests get NOT_COORDINATOR. The new one loads the groups from the log.

        Args:
            group_id: The group.
            to: Node id of the new coordinator. None: no coordinator (COORDINATOR_NOT_AVAILABLE) until the group is
                moved again or its previous coordinator restarts.
            how: Options of the failover. `load_ms`: how long the new coordinator loads, in milliseconds of the brokers'
                clock; None is until `finish_loading`. `load_fails`: it cannot load, and responds with NOT_COORDINATOR
                until the next move. `lose_tail`: how many of the newest records are lost. `lose_all`: all records are
                lost. `zombie`: the old coordinator keeps responding until `stop_zombies`. `stale_ms`: how long
                FindCoordinator still returns the old coordinator, in milliseconds of the brokers' clock.

        Raises:
            ConfigError: There is no such broker, or it is down.
        """
        self._commands.move_coordinator(group_id, to, **how)

    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        """Move a partition of __consumer_offsets, with all groups in it, to another leader; see `move_coordinator`.

        Args:
            partition: Index of the partition.
            to: Node id of the new leader, or None, as in `move_coordinator`.
            how: Options of the failover; see `move_coordinator`.

        Raises:
            ConfigError: There is no such partition or broker, or the broker is down.
        """
        self._commands.move_offsets_partition(partition, to, **how)

    def move_transaction_coordinator(
        self, transactional_id: str, to: int | None, **how: Unpack[FailoverOptions]
    ) -> None:
        """Move a transactional id, and all ids of the same partition of __transaction_state, to another coordinator.

        The old coordinator resigns. The new one loads the ids from the log, and writes the markers of transactions that
        are prepared.

        Args:
            transactional_id: The transactional id, which need not exist.
            to: Node id of the new coordinator. None: no coordinator (COORDINATOR_NOT_AVAILABLE) until the id is moved
                again or its previous coordinator restarts.
            how: Options of the failover; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, or it is down.
        """
        self._commands.move_transaction_coordinator(transactional_id, to, **how)

    def finish_loading(self) -> None:
        """Finish loading at once at every coordinator that is still loading groups or transactional ids."""
        self._commands.finish_loading()

    def stop_zombies(self) -> None:
        """Make every zombie coordinator resign."""
        self._commands.stop_zombies()

    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None:
        """Elect the preferred (first) replica of every partition as its leader, if the replica's broker is up.

        Coordinators move with their partitions of __consumer_offsets. Undoes what a broker has lost by a stop:
        `start_broker` does not move leaders back.

        Args:
            how: Options of the failovers; see `move_coordinator`.
        """
        self._commands.elect_preferred(**how)

    # Reassignments

    def hold_reassignments(self, topic: str | None = None) -> Hold:
        """Hold reassignments before they complete: replicas that they add do not get in sync until the release.

        AlterPartitionReassignments succeeds, and Metadata and ListPartitionReassignments show the added and removed
        replicas. Applies to reassignments in progress and to later ones. Without a hold, a reassignment completes at
        once, unless a broker is down, or it is throttled by `leader.replication.throttled.rate` or
        `follower.replication.throttled.rate` of brokers and `leader.replication.throttled.replicas` or
        `follower.replication.throttled.replicas` of the topic. Throttled copies take the size of the log divided by
        the rate, by the brokers' clock; those from or to one broker run one after the other.

        Args:
            topic: The topic, which need not exist yet; None for all.

        Returns:
            A context manager that releases the reassignments on exit.
        """
        return self._commands.hold_reassignments(topic)

    def release_reassignments(self, topic: str | None = None) -> None:
        """Release held reassignments. Those that are not throttled have completed when this returns.

        Args:
            topic: As for `hold_reassignments`.

        Raises:
            ConfigError: The reassignments of the topic are not held.
        """
        self._commands.release_reassignments(topic)

    def finish_reassignments(self) -> None:
        """Complete all reassignments in progress, held and throttled ones included.

        Those that wait for a broker that is down continue to wait. Holds apply to later reassignments.
        """
        self._commands.finish_reassignments()

    # Brokers

    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker: its connections are closed, and its port refuses connections.

        Args:
            node_id: The broker.
            elect: Whether other replicas become leaders of its partitions. Otherwise these have no leader until the
                broker starts again, even if other replicas start earlier.
            how: Options of the failovers; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, or it is down.
        """
        self._commands.stop_broker(node_id, elect=elect, **how)

    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Start a stopped broker, on its previous port.

        What it has again: its replicas, which are in sync at once; and the leadership of partitions without a leader,
        with their coordinators, except partitions that await another broker (`stop_broker` with `elect=False`).
        Reassignments that have waited for it complete.

        What does not move back: partitions that have elected another leader, the coordinators of groups among them,
        and network conditions. `elect_preferred` moves leaders and coordinators back. With the config
        `auto.leader.rebalance.enable` (false by default, unlike in Kafka), the brokers do so when
        `leader.imbalance.check.interval.seconds` (300) have passed by their clock since the leader changed.

        Args:
            node_id: The broker.
            how: Options of the failovers; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, or it is up.
        """
        self._commands.start_broker(node_id, **how)

    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker, elect new leaders for its partitions, and start it again. The leaders do not move back.

        Args:
            node_id: The broker.
            how: Options of the failovers; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, or it is down.
        """
        self._commands.restart_broker(node_id, **how)

    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart every broker that is up, one after the other. Leaders do not move back; see `start_broker`.

        Args:
            how: Options of the failovers; see `move_coordinator`.
        """
        self._commands.rolling_restart(**how)

    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another Kafka release, newer or older. A broker that is down stays down.

        Args:
            node_id: The broker.
            as_version: The release to emulate; None is the newest behavior, as in the constructor.
            api_versions: Maps the name of an API to its first and last supported version, or to None if the API is not
                supported.
            how: Options of the failovers; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, release, API or version.
        """
        self._commands.upgrade_broker(node_id, as_version, api_versions, **how)

    def add_broker(self, like: Broker | None = None) -> BrokerView:
        """Add a broker on a free port. It leads no partition until partitions are created on it or moved to it.

        Args:
            like: Release, API versions and rack of the broker. None: those of the cluster, and no rack.

        Returns:
            The new broker.

        Raises:
            ConfigError: There is no such release, API or version.
            ListenError: No port is available.
        """
        return self._commands.add_broker(like)

    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Remove a broker permanently; its replicas are moved to other brokers.

        Args:
            node_id: The broker.
            how: Options of the failovers; see `move_coordinator`.

        Raises:
            ConfigError: There is no such broker, or it is the last one.
        """
        self._commands.remove_broker(node_id, **how)

    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: float | None = None,
        round_trip_s: float | None = None,
    ) -> None:
        """Change the network conditions of a broker until it is stopped. Arguments that are None change nothing.

        Args:
            node_id: The broker.
            accept: How new connections are accepted. "normal": immediately; "slow": requests are read after
                `accept_delay_s`; "half_open": requests on connections accepted in this state are never answered, even
                if `accept` is "normal" later; "refuse": connections are refused. Existing connections remain.
            accept_delay_s: Wall-clock seconds, above 0; required for "slow" only.
            round_trip_s: Latency added to each response, in wall-clock seconds.

        Raises:
            ConfigError: There is no such broker, or it is down.
        """
        self._commands.set_broker(node_id, accept=accept, accept_delay_s=accept_delay_s, round_trip_s=round_trip_s)

    # Faults

    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> FaultHandle:
        """Inject a fault: `cluster.fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Commands or functions can also run before or after a request is handled:
        `cluster.fail("OffsetCommit", nth=3, then={"do": "stop_broker", "node_id": 1})`. Their errors are logged, and
        are in the journal, in `FaultHandle.errors` and in `action_errors`; the pytest plugin fails the test.

        A request can also be handled late: `cluster.fail("Heartbeat", client_id="a", nth=2, delay_before_s=60)` expires
        the session of a member, whose heartbeat then gets UNKNOWN_MEMBER_ID.

        If several faults match a request, only the oldest of them applies.

        Args:
            api: The API by Kafka's name; None matches every API.
            options: Which requests of the API match, and what happens to them; see `fakebroker.Fault`.

        Returns:
            A handle with the number of affected requests, `hits`, and a method `remove`; also a context manager that
            removes the fault on exit.

        Raises:
            ConfigError: The fault can never apply: an API, version, broker, error or filter is unknown, or options
                contradict each other.
        """
        return self._commands.fail(api, **options)

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Inject a fault; see `fail`.

        Args:
            fault: The fault.

        Returns:
            As `fail`.

        Raises:
            ConfigError: As `fail`.
        """
        return self._commands.add_fault(fault)

    @property
    def faults(self) -> list[FaultHandle]:
        """The faults that have not been removed, oldest first, including those that no longer apply."""
        return self._commands.faults()

    def remove_fault(self, handle: FaultHandle) -> None:
        """Remove a fault. Has no effect if it has been removed already.

        Args:
            handle: What `fail` or `add_fault` returned.
        """
        self._commands.remove_fault(handle)

    def fail_append(
        self, group_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: int | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a group fail, such as those of JoinGroup, SyncGroup and OffsetCommit.

        The log is the group's partition of __consumer_offsets, and all groups of the partition are affected. Requests
        get the errors that Kafka returns. For NOT_ENOUGH_REPLICAS: OffsetCommit, and the JoinGroup that creates a
        group, get COORDINATOR_NOT_AVAILABLE; so does SyncGroup, and then the members rejoin. If the JoinGroup that
        creates a group gets MEMBER_ID_REQUIRED, as from most clients, its append fails after that response: the
        group is removed, and the member's next JoinGroup gets UNKNOWN_MEMBER_ID.

        Args:
            group_id: The group, which need not exist.
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail; None for all until the failure is removed.

        Returns:
            A handle with the number of failed appends, `hits`, and a method `remove`; also a context manager that
            removes the failure on exit.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        return self._commands.fail_append(group_id, error, times)

    def fail_transaction_append(
        self, transactional_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: int | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of a transactional id fail, so that its transitions are not stored.

        The log is the id's partition of __transaction_state, and all ids of the partition are affected. Requests get
        the errors that Kafka returns: for NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE. If the end of a transaction
        cannot be stored after its markers were written, the coordinator tries again.

        Args:
            transactional_id: The transactional id, which need not exist.
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail; None for all until the failure is removed.

        Returns:
            A handle, as of `fail_append`.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        return self._commands.fail_transaction_append(transactional_id, error, times)

    def clear_faults(self) -> None:
        """Remove all faults, and failures of appends. Requests and responses that they delay still arrive when due."""
        self._commands.clear_faults()

    # Permissions

    def allow(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        """Allow something to a client: add an ACL, and remove the one that denies the same.

        The next request of the client meets the new ACLs. Other ACLs that deny it still do.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is allowed, such as "READ".
            resource: The resource: `topic`, `group`, `transactional_id` or `cluster=True`; also `prefixed` and `host`.
                See `AclRule`.

        Returns:
            A context manager that removes the ACL.

        Raises:
            ConfigError: The cluster has no authorizer, so that everything is allowed: it needs `acls`, which may be
                empty, or the setting `authorizer.class.name`. Or an argument is invalid.
        """
        return self._commands.allow(principal, operation, **resource)

    def deny(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        """Deny something to a client: add an ACL, which has precedence over all that allow it.

        The next request of the client meets the new ACLs; requests that wait are not checked again. A cluster without
        authorizer gets one, with ACLs that allow everything else to everyone.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is denied, such as "READ".
            resource: As for `allow`.

        Returns:
            A context manager that removes the ACL at its end. `remove_acl` and `allow` remove it, too.

        Raises:
            ConfigError: An argument is invalid.
        """
        return self._commands.deny(principal, operation, **resource)

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
            resource: As for `allow`.

        Raises:
            ConfigError: There is no such ACL, or an argument is invalid.
        """
        self._commands.remove_acl(principal, operation, permission, **resource)

    # Rebalances and transactions

    def hold(self, group_id: str, state: str, member: str | None = None) -> Hold:
        """Hold a group in a state, or a transactional id before a state, until `release`.

        If the group is not in this state now, the hold begins when the group enters the state. A transactional id does
        not enter the state: its record is not written to __transaction_state, the request that causes the transition is
        not answered, and others get CONCURRENT_TRANSACTIONS.

        Args:
            group_id: The group, or the transactional id; it need not exist yet.
            state: Of a group, "PreparingRebalance": the join phase does not complete; "CompletingRebalance": the
                leader's SyncGroup is parked. Of a consumer group (KIP-848), "Assigning": the assignor does not run,
                except for the first assignment; "Reconciling": a member is not believed to have given up partitions, so
                they stay with it until it is released, or its rebalance timeout removes it. Of a transactional id, the
                next state: "Empty" (InitProducerId), "Ongoing" (a partition is added), "PrepareCommit" or
                "PrepareAbort" (the outcome is decided), "CompleteCommit" or "CompleteAbort" (all markers were written),
                "Dead" (the id expires).
            member: The member, by member id, instance id or client id, that alone is held in Reconciling; None for all.

        Returns:
            A context manager that releases the group or the id on exit.

        Raises:
            ConfigError: The state is none of these; there is no such member, or members cannot be held in the state.
        """
        return self._commands.hold(group_id, state, member)

    def release(self, group_id: str, state: str | None = None, member: str | None = None) -> None:
        """Release a held group or transactional id. What became due meanwhile has happened when this returns.

        Consumer groups (KIP-848) continue with the next heartbeats of their members.

        Args:
            group_id: The group, or the transactional id.
            state: The state in which it is held; None releases it in all states.
            member: The member that alone is held; None releases the whole group, and all of its members.

        Raises:
            ConfigError: The group, id or member is not held.
        """
        self._commands.release(group_id, state, member)

    def force_rebalance(self, group_id: str) -> None:
        """Start a rebalance as an expired session does, but without removing a member.

        Heartbeats then get REBALANCE_IN_PROGRESS, and members rejoin. A consumer group (KIP-848) gets its next epoch,
        and the next heartbeat of a member runs the assignor.

        Args:
            group_id: The group.

        Raises:
            ConfigError: There is no such group, or its state is not Stable, CompletingRebalance or Reconciling.
        """
        self._commands.force_rebalance(group_id)

    def choose_leader(self, group_id: str, member: str) -> None:
        """Make a member the leader of the next generation, provided that it has rejoined when the join phase completes.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: There is no such group or member, or it is a consumer group (KIP-848).
        """
        self._commands.choose_leader(group_id, member)

    def choose_assignment(self, group_id: str, assignment: Mapping[str, Sequence[str]]) -> None:
        """Choose what the assignor of a consumer group (KIP-848) returns when it runs next, once.

        It runs after a change of members, subscriptions or topics, and after `force_rebalance`.

        Args:
            group_id: The group, which need not exist yet.
            assignment: Partitions such as "orders-0" by member id, instance id or client id. Members that are not named
                get none, and other names are ignored.

        Raises:
            ConfigError: A partition is malformed, or belongs to two members.
        """
        self._commands.choose_assignment(group_id, assignment)

    def evict(self, group_id: str, member: str) -> None:
        """Remove a member, as an administrator does: its next request gets UNKNOWN_MEMBER_ID, and the others rebalance.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._commands.evict(group_id, member)

    def expire(self, group_id: str, member: str) -> None:
        """Expire a member's session now. Has no effect while a response is pending for the member.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._commands.expire(group_id, member)

    def fence(self, group_id: str, instance_id: str) -> None:
        """Replace a static member, as if a second process with its instance id had joined.

        The replaced member gets FENCED_INSTANCE_ID. The imagined process sends nothing more, so the session of the
        new member expires. In a consumer group (KIP-848) the member leaves for a while before.

        Args:
            group_id: The group.
            instance_id: The member's `group.instance.id`.

        Raises:
            ConfigError: There is no such group or instance id.
        """
        self._commands.fence(group_id, instance_id)

    def fence_epoch(self, group_id: str, member: str) -> None:
        """Let the next heartbeat of a member of a consumer group (KIP-848) get FENCED_MEMBER_EPOCH.

        The coordinator forgets the member's epoch, as one that has lost records. The member then loses its partitions,
        and rejoins. Until then a dynamic member has no partitions; a static one keeps them.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: There is no such group or member, or it is a classic group.
        """
        self._commands.fence_epoch(group_id, member)

    def delay_sync(self, group_id: str, member: str, seconds: float | None = None) -> None:
        """Delay the response to a member's next SyncGroup request, or to the one that is parked now.

        The group treats the member as synced, and other members get their responses.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.
            seconds: The delay by the brokers' clock; None delays it until `release_sync`.

        Raises:
            ConfigError: There is no such group or member.
        """
        self._commands.delay_sync(group_id, member, seconds)

    def release_sync(self, group_id: str, member: str) -> None:
        """Send the SyncGroup response that `delay_sync` delays; cancel the delay if there is no response yet.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.

        Raises:
            ConfigError: There is no such group or member, or no SyncGroup response to the member is delayed.
        """
        self._commands.release_sync(group_id, member)

    # Transactions

    def hold_markers(self, transactional_id: str, partition: str | None = None) -> Hold:
        """Hold the markers of a transactional id until `release_markers`.

        Its transactions stay in PrepareCommit or PrepareAbort, and read_committed consumers do not get their records in
        the held partitions. The markers of other partitions are written.

        Args:
            transactional_id: The transactional id, which need not exist yet.
            partition: The partition, such as "orders-0"; None for all partitions.

        Returns:
            A context manager that releases the markers on exit.

        Raises:
            ConfigError: The partition is malformed.
        """
        return self._commands.hold_markers(transactional_id, partition)

    def release_markers(self, transactional_id: str, partition: str | None = None) -> None:
        """Release held markers. Those whose partitions can take them have been written when this returns.

        Args:
            transactional_id: The transactional id.
            partition: The partition that was given to `hold_markers`, or None if it was None.

        Raises:
            ConfigError: The markers are not held, or the partition is malformed.
        """
        self._commands.release_markers(transactional_id, partition)

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id at its coordinator, as its timeout does.

        The epoch is raised, so that the producer is fenced; with the feature `transaction.version` 2 it recovers if it
        aborts, too. A hanging transaction is aborted by an admin client instead (`abortTransaction`).

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist, has no open transaction or no coordinator, a transition is pending, or
                the record could not be stored.
        """
        self._commands.abort_transaction(transactional_id)

    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as Admin.fenceProducers does: its epoch is raised.

        An open transaction is aborted. The next request of the producer gets PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist or has no coordinator, a transition is pending, or the record could not
                be stored.
        """
        self._commands.fence_producer(transactional_id)

    # Seeding

    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        """Create a group as if clients had created it.

        Args:
            group_id: The group.
            members: A number, or a list with one entry per member, leader first. An entry is a client id, a
                `fakebroker.MemberSeed`, or a mapping with its fields.
            options: Subscription, state, offsets, lag, assignment, and type "consumer" for a group of KIP-848; see
                `fakebroker.GroupSeed`.

        Raises:
            ConfigError: The group exists, or options contradict each other.
        """
        self._commands.seed_group(group_id, members, **options)

    def seed_groups(self, groups: Seeds) -> None:
        """Create many groups at once. If one of them cannot be created, none is.

        Args:
            groups: Seeds, or mappings with their fields; or a table (pandas.DataFrame, pyarrow.Table) or the path of a
                Parquet file. Each row is about a group, and has a committed offset, a member, both or neither. Columns:
                `group_id`; `topic`, `partition`, and `offset` or `lag`; `client_id` and `instance_id` of a member; and
                `topics`, `members` (a number), `generation`, `state`, `protocol`, `type` as in a
                `fakebroker.GroupSeed`.

        Raises:
            ConfigError: A group exists, or a value or column is invalid; or the file is missing, or pyarrow is not
                installed.
        """
        self._commands.seed_groups(seeds_from(groups))

    def seed_transaction(self, transactional_id: str, **options: Unpack[TransactionSeedOptions]) -> None:
        """Create a transactional id as if a producer had used it; by default with an open transaction.

        Args:
            transactional_id: The transactional id, which must not exist.
            options: State, producer id, epoch, records and age; see `fakebroker.TransactionSeed`.

        Raises:
            ConfigError: The id exists or has no coordinator, the producer id is in use, a partition does not exist or
                has no leader, or options contradict each other.
        """
        self._commands.seed_transaction(transactional_id, **options)

    def seed_hanging_transaction(
        self,
        partition: str,
        *,
        offset: int | None = None,
        records: int = 1,
        producer_id: int | None = None,
        epoch: int = 0,
    ) -> None:
        """Leave a transaction open in a partition that no coordinator knows, and so does not end (KIP-664).

        Args:
            partition: The partition, such as "orders-0".
            offset: The offset of its first record; other records are appended up to it. None: the end of the log.
            records: Number of its records. Their values are their offsets, as text.
            producer_id: The producer id; None for the next one that is not in use.
            epoch: The producer epoch.

        Raises:
            ConfigError: The partition does not exist or has no leader, or its log ends after the offset.
        """
        self._commands.seed_hanging_transaction(
            partition, offset=offset, records=records, producer_id=producer_id, epoch=epoch
        )

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the cluster for `restore`.

        It contains topics with their records, brokers, leaders, configs, groups, committed offsets and transactional
        ids. Groups and ids are saved as their last record describes them: an open transaction is saved, a rebalance in
        progress is not.
        """
        return self._commands.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot.

        Groups are loaded from their log, with full session timeouts; parked joins and syncs get NOT_COORDINATOR.
        Transactional ids are loaded, too: the timeouts of open transactions count from their start. Holds, delays and
        faults end. Connections remain, except those to brokers that are missing or stopped in the snapshot.
        The clock and the sequences of ids continue.

        Args:
            snapshot: A snapshot of this cluster.

        Raises:
            ConfigError: The snapshot is another cluster's.
            ListenError: The port of a broker that was removed after the snapshot is not available.
        """
        self._commands.restore(snapshot)

    def reset(self) -> None:
        """Return the cluster to its state at the start: the same topics, brokers and sequences of ids.

        Removes groups, offsets, records, holds and faults, empties the journal, and closes all connections. Ports and
        the clock do not change.
        """
        self._commands.reset()

    # Time

    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock, which must be manual.

        When this returns, everything that is due at the new time has happened. No request is handled meanwhile, so
        every session that is shorter expires, except those of members with a pending response. If the expiry of a timer
        starts another timer, the new timer counts from the new time. To avoid that, use `advance_to_next_deadline`.

        Args:
            seconds: Seconds to advance by, 0 or more.

        Raises:
            ConfigError: The clock is not manual, or would pass the year 9999.
        """
        self._commands.advance(seconds)

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the brokers' clock, which must be manual, to the next deadline.

        Returns:
            The deadlines that were reached; all have the same due time. Their `in_s` is the number of seconds by which
            the clock was advanced. None if no timer was pending.

        Raises:
            ConfigError: The clock is not manual.
        """
        return self._commands.advance_to_next_deadline()

    # Waits

    @overload
    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> T: ...

    @overload
    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[T]: ...

    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> T | Polled[T]:
        """Wait until a predicate on the cluster returns a true value.

        Args:
            what: Describes the condition in error messages.
            predicate: Evaluated in the cluster's thread after each change, or after several that arrived together, and
                whenever consumers have been polled. It must be fast and change nothing, but may use consumers, such as
                `lambda _: len(consumer.assignment()) == 6`, and methods of the `FakeCluster`, such as
                `lambda _: len(fake_cluster.records("orders")) == 5`. Its argument is the `Cluster` inside.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The first true value; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The predicate did not return a true value in time.
            ClusterStopped: The cluster stopped meanwhile.
            PollError: A consumer failed.
            ConfigError: The cluster is not running, the calling thread is the cluster's thread, or an entry of
                `polling` cannot be polled. The other blocking waits raise these four errors in these cases, too.
        """
        condition = self.waits.holds(what, predicate)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> T: ...

    @overload
    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[T]: ...

    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> T | Polled[T]:
        """Wait like `wait_until`, in a task of trio or asyncio."""
        condition = self.waits.holds(what, predicate)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait until a group is in a state, or has been since the call, however short.

        With `polling`, a wait for "Stable" lasts until the consumers have received the partitions assigned to them, but
        at most 2 s longer.

        Args:
            group_id: The group, which need not exist yet.
            state: The state, such as "Stable", or of a consumer group (KIP-848) "Assigning" or "Reconciling"; "Dead"
                for a group that does not exist.
            members: Number of members that the group must have while it is in the state; None for any number.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group when it was in the state; with `polling`, a `Polled` with it and the records. If a single request
            or timer started and ended the state, then state, generation, leader and member ids are those of the state,
            and everything else is as it was after that request or timer. A member that it removed has only its id.

        Raises:
            WaitTimeout: The group did not reach the state in time.
            ConfigError: There is no such state, or the group id is not a string.
        """
        condition = self.waits.group_in_state(group_id, state, members)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_state`, in a task of trio or asyncio."""
        condition = self.waits.group_in_state(group_id, state, members)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: None = None
    ) -> GroupView: ...

    @overload
    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any]
    ) -> Polled[GroupView]: ...

    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any] | None = None
    ) -> GroupView | Polled[GroupView]:
        """Wait until a group's generation is above a number, in any state, or has been since the call.

        Args:
            group_id: The group, which need not exist yet.
            above: A generation id; of a consumer group (KIP-848), a group epoch.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group at that moment, as in `wait_for_state`; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The group did not reach a higher generation in time.
            ConfigError: The generation is not an integer, or the group id is not a string.
        """
        condition = self.waits.group_past_generation(group_id, above)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: None = None
    ) -> GroupView: ...

    @overload
    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any]
    ) -> Polled[GroupView]: ...

    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any] | None = None
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_generation`, in a task of trio or asyncio."""
        condition = self.waits.group_past_generation(group_id, above)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    def wait_for_member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    def wait_for_member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait until a member of a consumer group (KIP-848) is in a state or epoch, or has been since the call.

        Args:
            group_id: The group, which need not exist yet.
            member: Member id, instance id or client id.
            state: The state: "STABLE", "UNREVOKED_PARTITIONS" (it has to give up partitions) or "UNRELEASED_PARTITIONS"
                (it waits for partitions of others). None: any state.
            above: A member epoch, which that of the member must exceed. None: any epoch.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group at that moment, as in `wait_for_state`; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The member did not reach the state or epoch in time.
            ConfigError: There is no such state, the epoch is not an integer, or an id is not a string.
        """
        condition = self.waits.member(group_id, member, state, above=above)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_member`, in a task of trio or asyncio."""
        condition = self.waits.member(group_id, member, state, above=above)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> TransactionView: ...

    @overload
    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[TransactionView]: ...

    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> TransactionView | Polled[TransactionView]:
        """Wait until a transactional id is in a state, or has been since the call, however short.

        Args:
            transactional_id: The transactional id, which need not exist yet.
            state: The state, such as "CompleteCommit"; "Dead" for an id that does not exist. None: any state.
            pending_state: The next state that must be pending, such as "PrepareCommit" while it is held, or
                "CompleteCommit" while markers are missing. Only the present is looked at then.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The id when it was in the state; with `polling`, a `Polled` with it and the records. If the state has ended
            since, then state, producer and partitions are those of the state, and everything else is the present.

        Raises:
            WaitTimeout: The id did not reach the state in time.
            ConfigError: There is no such state, no state is given, or the id is not a string.
        """
        condition = self.waits.transaction_in_state(transactional_id, state, pending_state)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> TransactionView: ...

    @overload
    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[TransactionView]: ...

    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> TransactionView | Polled[TransactionView]:
        """Wait like `wait_for_transaction`, in a task of trio or asyncio."""
        condition = self.waits.transaction_in_state(transactional_id, state, pending_state)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> CommittedOffset: ...

    @overload
    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[CommittedOffset]: ...

    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> CommittedOffset | Polled[CommittedOffset]:
        """Wait until a group has committed an offset of a partition, or had since the call.

        Args:
            group_id: The group, which need not exist yet.
            partition: Topic and partition, such as "orders-0".
            at_least: The offset to reach, or exceed.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The committed offset at that moment; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The offset was not reached in time.
            ConfigError: The partition is malformed, or the group id is not a string.
        """
        condition = self.waits.committed(group_id, partition, at_least)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> CommittedOffset: ...

    @overload
    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[CommittedOffset]: ...

    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> CommittedOffset | Polled[CommittedOffset]:
        """Wait like `wait_for_commit`, in a task of trio or asyncio."""
        condition = self.waits.committed(group_id, partition, at_least)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
        **filters: Unpack[Filters],
    ) -> list[Call]: ...

    @overload
    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
        **filters: Unpack[Filters],
    ) -> Polled[list[Call]]: ...

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
        **filters: Unpack[Filters],
    ) -> list[Call] | Polled[list[Call]]:
        """Wait until the brokers have received matching requests, including those that the journal already has.

        Args:
            api: API by Kafka's name, such as "JoinGroup"; None for any.
            client_id: The client; None for any.
            count: Number of requests; to wait for one more, pass `len(cluster.requests(...)) + 1`.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.
            filters: Further filters, all of which must match, as in `requests`: `group`, `member`, `broker`,
                `connection`, `error`, `instance_id`, `transactional_id`, `producer_id`, `topic`, `partition`,
                `version`, `fault`, `since` (which excludes older requests).

        Returns:
            All matching requests, oldest first, also those that the journal has dropped since the call; the response to
            some may be pending. With `polling`, a `Polled` with them and the records.

        Raises:
            WaitTimeout: There were fewer matching requests before the timeout.
            ConfigError: An API, broker, error or filter is unknown; the count is below 1; or no journal is kept.
        """
        condition = self.waits.requested(api, {"client_id": client_id, **filters}, count)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
        **filters: Unpack[Filters],
    ) -> list[Call]: ...

    @overload
    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
        **filters: Unpack[Filters],
    ) -> Polled[list[Call]]: ...

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
        **filters: Unpack[Filters],
    ) -> list[Call] | Polled[list[Call]]:
        """Wait like `wait_for_request`, in a task of trio or asyncio."""
        condition = self.waits.requested(api, {"client_id": client_id, **filters}, count)
        return await self.waits.wait_async(condition, timeout_s, polling)


def _opened(data_dir: Any, fsync: Literal["always", "interval"], proposals: Sequence[str]) -> "Persistence":
    """Open a data directory.

    Raises:
        ConfigError: The path is not one, or the state of a proposal would not be stored.
        DataDirectoryError: The directory cannot be used.
    """
    from fakebroker.server.persistence import Persistence  # few clusters have a data directory

    if "rewrite" in proposals:
        raise ConfigError.of("data_dir", data_dir, "None, because groups of the proposal 'rewrite' are not stored")
    return Persistence.open(data_dir, fsync)


def _restored(
    persistence: "Persistence",
    new_cluster: Callable[[Mapping[str, int]], Cluster],
    topics: Mapping[str, int],
    clock: Clock,
) -> Cluster:
    """Return a cluster with the state of a data directory, and with these topics, by number of partitions.

    Raises:
        ConfigError: The cluster lacks a stored broker, or a topic is stored with another number of partitions.
    """
    cluster = new_cluster({})
    persistence.attach(cluster, clock.now_ms())
    for name, partitions in topics.items():
        stored = cluster.topics.get(name)
        if stored is None:
            cluster.create_new_topic(name, partitions)
        elif len(stored.partitions) != partitions:
            expected = f"{len(stored.partitions)}, the number of partitions that are stored in data_dir"
            raise ConfigError.of(f"topics.{name}", partitions, expected)
    persistence.flush(clock.wire.now_ms())
    return cluster


def _new_authority(*hosts: str) -> "CertificateAuthority":
    """Make the certificates of a cluster.

    Raises:
        FakebrokerError: The extra `tls` is not installed.
    """
    try:
        from fakebroker.server.tls.certificates import CertificateAuthority
    except ImportError:
        raise FakebrokerError("tls=True requires the extra 'tls': pip install 'fakebroker[tls]'") from None
    return CertificateAuthority((*hosts, "localhost", "127.0.0.1", "::1"))


def _tls_listeners(config: Config, listeners: Sequence[Listener]) -> "Mapping[str, TlsListener]":
    """Return the TLS sides of the listeners that have TLS, by name.

    Raises:
        ConfigError: A setting is missing, or a file or certificate cannot be used.
    """
    if not any(each.has_tls for each in listeners):
        return NO_TLS
    from fakebroker.server.tls.tls_listener import TlsListener

    return {each.name: TlsListener(config, each) for each in listeners if each.has_tls}
