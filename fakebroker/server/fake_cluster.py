"""The public class `FakeCluster`: runs a cluster over TCP; its methods inspect it, change it, and wait for changes."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from msgspec import Meta

from fakebroker.cluster import handlers
from fakebroker.cluster.acl_rules import AclRule
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import DEFAULT_CONFIG, Config
from fakebroker.cluster.emulation import Broker, BrokerSettings, NodeId, ReleaseName, VersionCap, emulated_releases
from fakebroker.cluster.first_use import FirstUseMode
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.definition import checked_arguments
from fakebroker.cluster.handles.environment import random_uuids
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.journal.journal import JournalMode, new_journal
from fakebroker.cluster.listeners import Listener, SecurityProtocol, listeners_of
from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.errors import ConditionNotMet, ConfigError, FakebrokerError, one_of
from fakebroker.host_port import format_host_port, is_host, unbracketed
from fakebroker.proposals import PROPOSALS
from fakebroker.security.credentials import Credentials, checked_passwords
from fakebroker.server.clock import Clock, Scaled, clock_for
from fakebroker.server.journal_files import JournalExport
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.reactor import DEFAULT_MAX_UNSENT_BYTES, DEFAULT_PARTIAL_FRAME_TIMEOUT_MS
from fakebroker.server.waits import LocalOwner, WaitingCluster
from fakebroker.validation import Seconds

if TYPE_CHECKING:  # Few clusters need them.
    from fakebroker.server.persistence import Persistence
    from fakebroker.server.tls.certificates import CertificateAuthority
    from fakebroker.server.tls.tls_listeners import TlsListeners

ScaledClock = Annotated[Scaled, Meta(examples=[{"factor": 10}])]
PartitionCounts = Annotated[Mapping[str, int], Meta(examples=[{"orders": 6}])]
"""A clock, and numbers of partitions by topic, with examples for error messages."""


class ClusterJournal(JournalExport):
    """The journal of a cluster in this process: `cluster.journal`."""

    def __init__(self, server: ClusterServer) -> None:
        self._server = server

    def view(self) -> JournalView:
        return self._server.run(lambda: view_journal(self._server.cluster))

    @property
    def dropped(self) -> int:
        """Number of requests that the journal has dropped because of its limits."""
        return self._server.cluster.journal.dropped


class FakeCluster(WaitingCluster, LocalCluster):
    """A fake Kafka cluster that real clients connect to.

    `with` runs it in a new thread. `async with` runs it in a task of the caller's trio loop; under asyncio, in a new
    thread, without blocking the caller's loop. A cluster can be entered once.

    `cluster.group("billing")`, `cluster.topic("orders")`, `cluster.transaction("payments")` and `cluster.broker(1)`
    return handles, with what can be seen of these things, done to them, and waited for. What a handle names need not
    exist yet.

    Methods may be called from any thread while the cluster runs. Its state can be read after it has stopped. Topics,
    groups and faults can be added before it starts. Methods that start, stop or wait for something need a running
    cluster, and raise `FakebrokerError` otherwise; so do addresses of brokers before the start, because brokers have no
    ports then. Methods that change the cluster raise `ConfigError` if an argument has the wrong type or is out of
    range, and then change nothing.

    Args:
        brokers: Number of brokers; or one `Broker` per broker, which sets its release, API versions and rack, such as
            `[Broker(rack="a"), Broker(rack="b")]`.
        topics: Topics that exist from the start: number of partitions by name. As in Kafka, `__consumer_offsets` is not
            among them: it is created with `offsets.topic.num.partitions` when a client first looks for the coordinator
            of a group; so is `__transaction_state` (see `first_use`). If the topic is created before, here or by a
            client, its partitions decide which coordinator a group has.
        config: Broker configs by Kafka's names, such as `{"group.max.size": 100}`.
        seed: Seed for reproducible member ids, topic ids and the cluster id; random if None.
        as_version: The Kafka release to emulate, from "0.10.0" to "4.4". None: the newest behavior, with every
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
            brokers at the listener that they are connected to. `bootstrap_servers` has the addresses of the first
            listener. None: one listener, with SASL_PLAINTEXT if there are users, otherwise with PLAINTEXT; with `tls`,
            SASL_SSL or SSL.
        tls: Whether connections are encrypted, at listeners with SSL or SASL_SSL. The certificates are made for this
            cluster, see the attribute `tls`, which needs the extra `tls`; or the setting `ssl.keystore.location` names
            them. With `ssl.client.auth`, clients have certificates, too (mutual TLS).
        first_use: What clients notice when they first look for a coordinator. "ready": nothing, they get it at once.
            "kafka": the topic of the coordinators is created first, as in a fresh Kafka. FindCoordinator gets
            COORDINATOR_NOT_AVAILABLE for 50 ms of the brokers' clock. Then coordinators answer NOT_COORDINATOR for
            200 ms, and COORDINATOR_LOAD_IN_PROGRESS for 20 ms. Groups and transactions have topics of their own. The
            first InitProducerId of a broker without a transactional id gets COORDINATOR_LOAD_IN_PROGRESS, too, for
            40 ms. Commands that need a coordinator, such as `GroupHandle.seed`, create the topic without these errors.
            `reset` makes the cluster fresh again; so does `restore`, if the snapshot is from before the first use. A
            topic in the `data_dir` can be used at once.
        first_node_id: Node id of the first broker; the other brokers have the next ids. Tests written for Kafka often
            expect 0.
        clock: The brokers' clock. "real"; "manual": time stands still until `advance`; `Scaled(10)`: ten times as fast
            as real time. Clients always use real time. With `async with`, trio's clock is the real time, also if it is
            a `trio.testing.MockClock`.
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
        seed: The seed, also if it was random.
        journal: The requests and responses, with queries and assertions; see `JournalQueries`.

    Raises:
        ConfigError: An argument is invalid.
        DataDirectoryError: The data directory is in use, or cannot be used.
        ListenError: When it starts: an address or port is not available. It can be entered again then.
        FakebrokerError: When it starts: it has been entered before.
    """

    @checked_arguments
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
        first_use: FirstUseMode = "ready",
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
        self._clock = clock_for(clock)
        if advertised_host is not None and not is_host(advertised_host):
            raise ConfigError.of("advertised_host", advertised_host, "a host name or an IP address, without a port")
        self._host = unbracketed(host)
        self._advertised_host = unbracketed(advertised_host or host)
        racks = () if isinstance(brokers, int) else tuple(broker.rack for broker in brokers)
        releases = emulated_releases(brokers, as_version, api_versions or {}, proposals)
        passwords = checked_passwords({} if users is None else users)
        all_listeners = listeners_of(listeners, has_users=users is not None, has_tls=tls)
        first_topics = dict(topics or {})
        if first_use == "kafka" and first_topics.keys() >= {*INTERNAL_TOPICS}:
            expected = f"'ready' with the topics {' and '.join(INTERNAL_TOPICS)}, which then exist from the start"
            raise ConfigError.of("first_use", first_use, expected)
        settings = Config({**DEFAULT_CONFIG, **(config or {})})
        self._authority: CertificateAuthority | None = None
        if tls and not settings.has_own_certificates:
            self._authority = _new_authority(self._advertised_host, self._host)
            settings = Config({**self._authority.settings, **settings.overrides})
        settings.check_listeners([each.name for each in all_listeners])

        if data_dir is None and fsync == "always":
            raise ConfigError.of("fsync", fsync, "a data_dir, too: without one, nothing is on disk")
        persistence = None if data_dir is None else _opened(data_dir, fsync, proposals)
        seed_of_start = _seed_of_start(self.seed, persistence)

        def new_cluster(topics: Mapping[str, int] = first_topics) -> Cluster:
            return Cluster(
                releases=releases,
                topics=topics,
                config=settings,
                new_id=random_uuids(random.Random(seed_of_start).getrandbits),
                random=random.Random(f"faults {self.seed}").random,
                journal=new_journal(journal, journal_calls, journal_bytes),
                now_ms=self._clock.now_ms(),
                handlers=handlers.BY_NAME,
                first_node_id=first_node_id,
                racks=racks,
                acls=None if acls is None else [each.acl for each in acls],
                listeners=all_listeners,
                credentials=Credentials(passwords, random.Random(f"credentials {seed_of_start}").randbytes),
                first_use=first_use,
            )

        try:
            cluster = (
                new_cluster() if persistence is None else _restored(persistence, new_cluster, first_topics, self._clock)
            )
            self._server = ClusterServer(
                cluster,
                self._clock,
                persistence,
                host=self._host,
                port=port,
                advertised_host=self._advertised_host,
                max_unsent_bytes=max_unsent_bytes,
                partial_frame_timeout_ms=partial_frame_timeout_s * 1000,
                tls_listeners=_tls_listeners(settings, all_listeners, self._authority),
            )
        except BaseException:
            if persistence is not None:  # While the exception is handled, it keeps everything alive.
                persistence.give_up()
            raise
        if self._authority is not None:
            self._server.on_stop.append(self._authority.delete)
        owner = LocalOwner(
            self._server,
            seed=self.seed,
            new_cluster=new_cluster,
            default_broker=Broker(as_version=as_version, api_versions=api_versions or {}),
            proposals=proposals,
        )
        super().__init__(owner)
        self._owner_here = owner
        self.journal = ClusterJournal(self._server)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            missed = self._missed_faults(kind)
        finally:
            self._server.__exit__(kind, error, trace)
        if missed:
            raise ConditionNotMet(missed)

    def _missed_faults(self, kind: type[BaseException] | None) -> str:
        """Return why faults were applied to no request; "" after another error, which may be the reason."""
        return "" if kind is not None else "\n".join(fault.missed for fault in self.faults() if fault.missed)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            missed = self._missed_faults(kind)
        finally:
            await self._server.__aexit__(kind, error, trace)
        if missed:
            raise ConditionNotMet(missed)

    # Addresses and certificates

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` for clients: comma-separated host:port of all brokers, IPv6 addresses in brackets."""
        self._server.check_started()
        return ",".join(format_host_port(broker.host, broker.port) for broker in self.brokers)

    @property
    def tls(self) -> "CertificateAuthority":
        """The certificates that were made for this cluster. Clients have to trust the certificate in `ca_file`.

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
        known = {each.name: each for each in self._server.cluster.listeners}
        if listener not in known:
            raise ConfigError.of("listener", listener, one_of(known, listener))
        endpoints = [broker.endpoint(known[listener]) for broker in self._server.cluster.brokers.values()]
        return ",".join(format_host_port(*endpoint) for endpoint in endpoints)


def internals(cluster: FakeCluster) -> LocalOwner:
    """Return the owner of a cluster's handles, with its state: for the control server and tests of this project.

    Use `cluster`, `server.reactor` and their contents in the cluster's thread only: `internals(c).run(function)`.
    """
    return cluster._owner_here


def _opened(data_dir: Any, fsync: Literal["always", "interval"], proposals: Sequence[str]) -> "Persistence":
    """Open a data directory.

    Raises:
        ConfigError: The path is not one, or the state of a proposal would not be stored.
        DataDirectoryError: The directory cannot be used.
    """
    from fakebroker.server.persistence import Persistence  # few clusters have a data directory

    for name in proposals:
        if not PROPOSALS[name].is_stored:
            raise ConfigError.of("data_dir", data_dir, f"None, because groups of the proposal {name!r} are not stored")
    return Persistence.open(data_dir, fsync)


def _seed_of_start(seed: int, persistence: "Persistence | None") -> int | str:
    """Return the seed of ids: another one for each start that continues with a stored state."""
    return f"{seed}, start {persistence.starts}" if persistence is not None and persistence.starts else seed


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
    persistence.store_start(clock.wire.now_ms())
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


def _tls_listeners(
    config: Config, listeners: Sequence[Listener], authority: "CertificateAuthority | None"
) -> "TlsListeners | None":
    """Return the TLS sides of the listeners that have TLS; None if none has.

    Raises:
        ConfigError: A setting is missing, or a file or certificate cannot be used.
    """
    encrypted = [each for each in listeners if each.has_tls]
    if not encrypted:
        return None
    from fakebroker.server.tls.tls_listeners import TlsListeners

    return TlsListeners(config, encrypted, authority)
