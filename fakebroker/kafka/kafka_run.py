"""A pytest run on a real Kafka: which Kafka each test gets. The plugin imports it only with the option `--kafka`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fakebroker.client.client_config import read_client_config
from fakebroker.cluster.configs.settings import AUTHORIZER, DEFAULT_CONFIG
from fakebroker.errors import ConfigError, NotOnKafka, check_integer
from fakebroker.host_port import expected_host_port, parse_host_port
from fakebroker.kafka.jars import jars, version_of
from fakebroker.kafka.kafka_cluster import KafkaCluster
from fakebroker.kafka.process import ApacheKafka
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

_RELEASE = re.compile(r"\d+(\.\d+)+")
_MOST_RUNNING = 2
"""How many Kafkas of this run exist at once. Each is a Java process per broker."""
_ACL_CONFIG = {
    AUTHORIZER: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_NO_MINIMUMS = {"group.consumer.min.heartbeat.interval.ms": 1, "group.consumer.min.session.timeout.ms": 1}
"""So that tests may set shorter intervals, as on a fake cluster."""


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run.

    Attributes:
        where: "HOST:PORT", several separated by commas, or a release such as "4.4.0", which is started.
        client_config: A file of properties, or None.
        prefix: Begins the names in Kafka.
        clean: Whether topics and groups that exist may be deleted.
        acls: Whether ACLs may be changed.
        brokers: The number of brokers of a Kafka that is started; None for what the test asks for, or one.
        worker: The name of the worker of pytest-xdist, such as "gw0"; it is appended to a prefix.
    """

    where: str
    client_config: str | None = None
    prefix: str = ""
    clean: bool = False
    acls: bool = False
    brokers: int | None = None
    worker: str | None = None

    @property
    def is_release(self) -> bool:
        """Whether the run starts the Kafka."""
        return _RELEASE.fullmatch(self.where) is not None


class KafkaRun:
    """The Kafkas of a run.

    Args:
        options: The options.
        say: Prints a line.

    Raises:
        ConfigError: The address or the release is malformed, or an option has no effect.
    """

    def __init__(self, options: KafkaOptions, say: Callable[[str], None]) -> None:
        if options.brokers is not None:
            check_integer("kafka-brokers", options.brokers, least=1)
            if not options.is_release:
                raise ConfigError.of("kafka-brokers", options.brokers, f"a release with it, not {options.where}")
        if options.is_release:
            try:
                version_of(options.where)
            except ConfigError as error:
                raise ConfigError.of("kafka", options.where, error.expected or "a release") from None
        for each in () if options.is_release else options.where.split(","):
            if parse_host_port(each.strip()) is None:
                expected = expected_host_port(each, "HOST:PORT, or a release such as 4.4.0")
                raise ConfigError.of("kafka", options.where, expected)
        if options.prefix and not is_legal_name(options.prefix):
            raise ConfigError.of("kafka-prefix", options.prefix, LEGAL_NAME)
        if options.client_config is not None:
            try:
                read_client_config(Path(options.client_config))
            except ConfigError as error:
                raise ConfigError(f"kafka-client-config: {str(error).removeprefix('--client-config=')}") from None
        self.options = options
        self._say = say
        self._running: dict[tuple[Any, ...], ApacheKafka] = {}
        self._made: dict[str, set[str]] = {}

    def prepare(self, *, has_workers: bool) -> None:
        """Reach the Kafka, or download and start the release.

        Args:
            has_workers: Whether the tests run in other processes, which start a Kafka each.

        Raises:
            BrokerUnreachable, AuthenticationFailed, KafkaError: There is no Kafka to use.
        """
        if not self.options.is_release:
            KafkaCluster(self.options.where, client_config=self.options.client_config).check()
        elif has_workers:
            jars(self.options.where, say=self._say)
        else:
            self._started({})

    def cluster(self, arguments: Mapping[str, Any]) -> KafkaCluster:
        """Return a cluster for a test, which was not entered yet.

        Args:
            arguments: The arguments of the `FakeCluster` that the test would get.

        Raises:
            ConfigError, TypeError: The arguments are invalid, as for a fake cluster.
        """
        options = self.options
        # The constructor of a fake cluster knows what is wrong with arguments. What it would create is left out.
        FakeCluster(**{name: each for name, each in arguments.items() if name not in ("tls", "data_dir", "fsync")})
        servers = self._started(arguments) if options.is_release else options.where
        cluster = KafkaCluster(
            servers,
            arguments.get("topics"),
            client_config=options.client_config,
            prefix=f"{options.prefix}{options.worker}-" if options.worker and options.prefix else options.prefix,
            acls=options.acls,
            clean=options.clean or options.is_release,
            owned=options.is_release,
        )
        cluster.is_fresh = options.is_release and servers not in self._made
        cluster.earlier = self._made.setdefault(servers, set())
        cluster.required = arguments
        cluster.release = options.where if options.is_release else None
        return cluster

    def _started(self, arguments: Mapping[str, Any]) -> str:
        """Start a Kafka with the brokers and settings that a test asks for, or return the address of a running one."""
        wanted, settings = arguments.get("brokers"), dict(arguments.get("config") or {})
        brokers = self.options.brokers or (wanted if isinstance(wanted, int) else 1)
        for name in settings:
            if name.startswith("fakebroker."):
                raise NotOnKafka.fake(f"the setting {name}")
        key = (brokers, *sorted((name, str(value)) for name, value in settings.items()))
        if key not in self._running:
            while len(self._running) >= _MOST_RUNNING:
                # The first one has the settings of most tests, and stays.
                self._running.pop(list(self._running)[-1]).__exit__(None, None, None)
            # Several controllers wait that long, by default 1 s, before they elect the first leader.
            quick = {"controller.quorum.election.timeout.ms": 300} if brokers > 1 else {}
            config = {
                **quick,
                **DEFAULT_CONFIG,
                **_NO_MINIMUMS,
                **(_ACL_CONFIG if self.options.acls else {}),
                **settings,
            }
            # An authorizer answers followers of a controller only when it has read what they are to fetch.
            controllers = 1 if self.options.acls else None
            made = ApacheKafka(self.options.where, brokers, config, controllers, say=self._say)
            self._running[key] = made.__enter__()
        return self._running[key].bootstrap_servers

    def close(self) -> None:
        """Stop the Kafkas of the run."""
        while self._running:
            self._running.popitem()[1].__exit__(None, None, None)
