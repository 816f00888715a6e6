"""The settings of a cluster: the broker configs that have an effect, with Kafka's names and defaults.

Source: org.apache.kafka.server.config, GroupCoordinatorConfig.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType, Value, items_of
from fakebroker.cluster.configs.listener_settings import (
    AUTHENTICATION_DELAY,
    CERTIFICATE_SETTINGS,
    LISTENER_SETTINGS,
    MAX_CONNECTION_RATE,
    MAX_CONNECTIONS,
    MAX_SESSION,
    SASL_MECHANISMS,
    SASL_SETTINGS,
    SSL_SETTINGS,
    listener_prefix,
    mechanism_prefix,
    without_prefix,
)
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS
from fakebroker.cluster.regular_expressions import compile_regex
from fakebroker.coordinator.classic.extension import GroupExtension, no_extension
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignor
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig, MigrationPolicy, no_group_configs
from fakebroker.coordinator.consumer.subscriptions import NO_TOPICS, TopicImage
from fakebroker.errors import ConfigError, check_integer, one_of
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.security.mechanisms import MECHANISMS

_BOOLEAN, _SHORT, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.SHORT, ConfigType.INT, ConfigType.LONG
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST
_INT32_MAX = 2**31 - 1

OWN_PREFIX = "fakebroker."
"""Settings whose names begin with it are not Kafka's; clients do not see them."""

REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
AUTHORIZER, SUPER_USERS = "authorizer.class.name", "super.users"
MAX_CONNECTIONS_PER_IP, MAX_IDLE = "max.connections.per.ip", "connections.max.idle.ms"
QUEUED_MAX_REQUESTS, QUEUED_MAX_BYTES = "queued.max.requests", "queued.max.request.bytes"
MAX_REQUEST_BYTES = "socket.request.max.bytes"
REQUIRED_SCOPE, CLOCK_SKEW = OWN_PREFIX + "oauthbearer.required.scope", OWN_PREFIX + "oauthbearer.clock.skew.ms"
MAX_PARTITION_BYTES = OWN_PREFIX + "partition.max.bytes"

_SCOPES = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]*")
"""Printable ASCII characters without quotes and backslashes."""

_ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""The names of Kafka's assignors by their classes, which may be named instead."""

_AUTHORIZER_CLASSES = (
    "StandardAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""The names of Kafka's authorizers, from the newest to the oldest, and a short one. They decide alike."""

SETTINGS: dict[str, ConfigKey] = {
    "add.partitions.to.txn.retry.backoff.max.ms": ConfigKey(
        _INT, 100, 0, about="How long Produce waits for the end of the last transaction (KIP-890)."
    ),
    "add.partitions.to.txn.retry.backoff.ms": ConfigKey(
        _INT, 20, 1, about="How often it asks the transaction coordinator meanwhile."
    ),
    "allow.everyone.if.no.acl.found": ConfigKey(
        _BOOLEAN, False, about="The authorizer allows operations on resources that no ACL is about."
    ),
    AUTHORIZER: ConfigKey(
        _STRING,
        "",
        pattern="|".join(("", *(name.replace(".", r"\.") for name in _AUTHORIZER_CLASSES))),
        expected=f"empty, or {', '.join(_AUTHORIZER_CLASSES[:-1])} or {_AUTHORIZER_CLASSES[-1]}",
        about="The authorizer, by any name that Kafka has given it: ACLs decide what clients may do.",
    ),
    "auto.create.topics.enable": ConfigKey(_BOOLEAN, True, about="Metadata for an unknown topic creates it."),
    "auto.leader.rebalance.enable": ConfigKey(
        _BOOLEAN, False, about="Preferred leaders are elected without a request for it; Kafka: true."
    ),
    MAX_IDLE: ConfigKey(
        _LONG, 600_000, about="Connections without traffic for this long are closed, in real time; -1 is never."
    ),
    "default.replication.factor": ConfigKey(
        _INT, 3, 1, about="Replicas of topics created without a number, at most one a broker; Kafka: 1."
    ),
    "delete.topic.enable": ConfigKey(_BOOLEAN, True, about="DeleteTopics works."),
    CLOCK_SKEW: ConfigKey(
        _INT,
        0,
        0,
        about="How long tokens are valid before and after their times (option unsecuredValidatorAllowableClockSkewMs).",
    ),
    REQUIRED_SCOPE: ConfigKey(
        _STRING,
        "",
        about="Scopes that tokens must have, separated by spaces (option unsecuredValidatorRequiredScope).",
    ),
    MAX_PARTITION_BYTES: ConfigKey(
        _LONG, 64 * 1024 * 1024, -1, about="Memory for the records of one partition: the oldest go first; -1 is all."
    ),
    "fetch.max.bytes": ConfigKey(_INT, 55 * 1024 * 1024, 1024, about="Most bytes in one Fetch response."),
    "group.consumer.assignment.interval.ms": ConfigKey(
        _INT, 1000, 0, about="Least time between two target assignments of a consumer group, from 4.3 on (KIP-1263)."
    ),
    "group.consumer.assignors": ConfigKey(
        _LIST,
        ",".join(ASSIGNORS),
        choices=(*ASSIGNORS, *_ASSIGNOR_CLASSES),
        about="Assignors that members of consumer groups may name; the first one is the default (KIP-848).",
    ),
    "group.consumer.heartbeat.interval.ms": ConfigKey(
        _INT, 5000, 1, about="Time between two heartbeats of a member of a consumer group."
    ),
    "group.consumer.max.assignment.interval.ms": ConfigKey(
        _INT, 15_000, 0, about="Longest `consumer.assignment.interval.ms` of a group; at least that of the brokers."
    ),
    "group.consumer.max.heartbeat.interval.ms": ConfigKey(
        _INT, 15_000, 1, about="Longest `consumer.heartbeat.interval.ms` of a group; at least that of the brokers."
    ),
    "group.consumer.max.session.timeout.ms": ConfigKey(
        _INT, 60_000, 1, about="Longest `consumer.session.timeout.ms` of a group; at least that of the brokers."
    ),
    "group.consumer.max.size": ConfigKey(_INT, _INT32_MAX, 1, about="Most members of a consumer group."),
    "group.consumer.migration.policy": ConfigKey(
        _STRING,
        MigrationPolicy.BIDIRECTIONAL.value,
        choices=tuple(policy.value for policy in MigrationPolicy),
        ignores_case=True,
        about="Which groups change between classic and consumer groups while they have members.",
    ),
    "group.consumer.min.assignment.interval.ms": ConfigKey(
        _INT, 0, 0, about="Shortest `consumer.assignment.interval.ms` of a group; at most that of the brokers."
    ),
    "group.consumer.min.heartbeat.interval.ms": ConfigKey(
        _INT, 5000, 1, about="Shortest `consumer.heartbeat.interval.ms` of a group; at most that of the brokers."
    ),
    "group.consumer.min.session.timeout.ms": ConfigKey(
        _INT, 45_000, 1, about="Shortest `consumer.session.timeout.ms` of a group; at most that of the brokers."
    ),
    "group.consumer.regex.refresh.interval.ms": ConfigKey(
        _INT,
        600_000,
        10_000,
        about="How often the topics of regular expressions are looked for; new ones are 10 s after the last time.",
    ),
    "group.consumer.session.timeout.ms": ConfigKey(
        _INT, 45_000, 1, about="Time without heartbeats after which a member of a consumer group is removed."
    ),
    REBALANCE_PROTOCOLS: ConfigKey(
        _LIST,
        "classic,consumer,streams",
        choices=("classic", "consumer", "share", "streams"),
        about="Without consumer, ConsumerGroupHeartbeat and ConsumerGroupDescribe get UNSUPPORTED_VERSION.",
    ),
    "group.initial.rebalance.delay.ms": ConfigKey(_INT, 3000, 0, about="Wait of an empty group for further members."),
    "group.max.session.timeout.ms": ConfigKey(
        _INT, 1_800_000, 0, about="Longest session timeout a member may ask for."
    ),
    "group.max.size": ConfigKey(_INT, _INT32_MAX, 1, about="Most members of a group."),
    "group.min.session.timeout.ms": ConfigKey(_INT, 6000, 0, about="Shortest session timeout a member may ask for."),
    "leader.imbalance.check.interval.seconds": ConfigKey(
        _LONG, 300, 1, 10**9, about="Time from the loss of a preferred leader to the automatic election."
    ),
    "leader.imbalance.per.broker.percentage": ConfigKey(
        _INT, 10, 0, about="Share of a broker's lost leaderships above which it is elected, in releases before 4.0."
    ),
    "log.cleaner.backoff.ms": ConfigKey(_LONG, 15_000, 0, about="How often topics are compacted."),
    "log.retention.check.interval.ms": ConfigKey(_LONG, 300_000, 1, about="How often expired records are looked for."),
    MAX_CONNECTION_RATE: ConfigKey(
        _INT, _INT32_MAX, 0, about="New connections per second to a broker, or to one listener; others wait."
    ),
    MAX_CONNECTIONS: ConfigKey(
        _INT,
        _INT32_MAX,
        0,
        about="Most connections to a broker, or to one listener; others wait. A lower value for a broker closes those "
        "that were used least recently.",
    ),
    MAX_CONNECTIONS_PER_IP: ConfigKey(
        _INT, _INT32_MAX, 0, about="Most connections from one address to a broker; others are closed."
    ),
    MAX_CONNECTIONS_PER_IP + ".overrides": ConfigKey(
        _STRING,
        "",
        pattern=r"([^,]+:[0-9]{1,10}(,\s*[^,]+:[0-9]{1,10})*)?",
        expected="addresses and numbers, such as 127.0.0.1:10,10.0.0.7:2",
        about="The same for single addresses; names are not looked up, except localhost.",
    ),
    "max.incremental.fetch.session.cache.slots": ConfigKey(_INT, 1000, 0, about="Fetch sessions kept per broker."),
    "num.partitions": ConfigKey(_INT, 1, 1, about="Partitions of topics created without a number."),
    "offset.metadata.max.bytes": ConfigKey(_INT, 4096, 0, about="Longest metadata of a committed offset."),
    "offsets.retention.check.interval.ms": ConfigKey(
        _LONG, 600_000, 1, about="How often expired offsets are looked for."
    ),
    "offsets.retention.minutes": ConfigKey(
        _INT, 7 * 24 * 60, 1, about="How long offsets of groups without members are kept."
    ),
    "offsets.topic.num.partitions": ConfigKey(
        _INT, 50, 1, 10_000, about="Partitions of __consumer_offsets, unless it is created with another number."
    ),
    "offsets.topic.replication.factor": ConfigKey(
        _SHORT,
        3,
        1,
        about="Replicas of __consumer_offsets. The default, but no set value, is at most the number of brokers.",
    ),
    "producer.id.expiration.ms": ConfigKey(
        _INT, 86_400_000, 1, about="How long the last sequence number of a producer is kept (KIP-854)."
    ),
    QUEUED_MAX_BYTES: ConfigKey(
        _LONG, -1, about="Bytes of incomplete requests above which no others are read; -1 is unlimited."
    ),
    QUEUED_MAX_REQUESTS: ConfigKey(
        _INT,
        500,
        1,
        about="Requests of a connection that wait for the response to an earlier one; above, it is not read. In Kafka: "
        "of all connections, which wait for a thread; here, none has to.",
    ),
    "replica.selector.class": ConfigKey(
        _STRING,
        None,
        choices=(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        about="Replica that consumers read from: that of the leader by default, or one in their rack (KIP-392).",
    ),
    MAX_REQUEST_BYTES: ConfigKey(_INT, 100 * 1024 * 1024, 1, about="Largest request."),
    SUPER_USERS: ConfigKey(
        _STRING, "", about="Principals that may do everything, such as User:admin, separated by semicolons."
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ConfigKey(
        _INT, 10_000, 1, about="How often transactions that have timed out are looked for."
    ),
    "transaction.max.timeout.ms": ConfigKey(_INT, 900_000, 1, about="Longest timeout a transaction may ask for."),
    "transaction.partition.verification.enable": ConfigKey(
        _BOOLEAN, True, about="Produce checks that a partition was added to the transaction."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ConfigKey(
        _INT, 3_600_000, 1, about="How often expired transactional ids are looked for."
    ),
    "transaction.state.log.min.isr": ConfigKey(
        _INT, 2, 1, about="In-sync replicas that appends to __transaction_state need, at most all replicas."
    ),
    "transaction.state.log.num.partitions": ConfigKey(
        _INT, 50, 1, 10_000, about="Partitions of __transaction_state, unless it is created with another number."
    ),
    "transaction.state.log.replication.factor": ConfigKey(
        _SHORT,
        3,
        1,
        about="Replicas of __transaction_state. The default, but no set value, is at most the number of brokers.",
    ),
    "transactional.id.expiration.ms": ConfigKey(
        _INT, 604_800_000, 1, about="How long a transactional id without a transaction is kept."
    ),
}
SETTINGS |= SASL_SETTINGS | SSL_SETTINGS
SETTINGS |= {key.broker_name: key for key in TOPIC_CONFIGS.values() if key.about and key.broker_name}
SETTINGS = dict(sorted(SETTINGS.items()))

# Older defaults: the release in which the default changed, the setting, and its default before. Of several defaults of
# one setting, the oldest comes last.
_OLDER_DEFAULTS: tuple[tuple[Release, str, Value], ...] = (
    (Release(0, 11), "group.initial.rebalance.delay.ms", 0),
    (Release(2, 0), "offsets.retention.minutes", 24 * 60),
    (Release(2, 3), "group.max.session.timeout.ms", 300_000),
    (Release(2, 5), "message.max.bytes", 1_000_012),
    (Release(2, 5), "transaction.abort.timed.out.transaction.cleanup.interval.ms", 60_000),
    (Release(4, 1), REBALANCE_PROTOCOLS, "classic,consumer"),
    (Release(4, 0), REBALANCE_PROTOCOLS, "classic"),
    (Release(4, 0), "group.consumer.migration.policy", MigrationPolicy.DISABLED.value),
    (Release(4, 0), "log.message.timestamp.after.max.ms", 2**63 - 1),  # KIP-1030
)

KIP_211, PREVIEW_OF_KIP_848, KIP_848 = Release(2, 1), Release(3, 7), Release(4, 0)
"""The first releases that keep the offsets of non-empty groups, have the new group coordinator, and always use it."""

_GROUP_LIMITS = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
"""The configs of consumer groups that have limits: `group.consumer.min.` and `group.consumer.max.`."""

_ASCENDING = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *(
        (f"group.consumer.{low}{name}", f"group.consumer.{high}{name}")
        for name in _GROUP_LIMITS
        for low, high in (("min.", "max."), ("min.", ""), ("", "max."))
    ),
)
"""Pairs of settings of which the first must not be greater than the second."""


class Config:
    """The settings of one cluster.

    Attributes:
        overrides: The settings that differ from the defaults.

    Args:
        overrides: Values of settings: numbers and booleans, or their text.

    Raises:
        ConfigError: A name is unknown, or a value is of the wrong type or out of range.
    """

    def __init__(self, overrides: Mapping[str, object] | None = None) -> None:
        self.overrides: dict[str, Value] = {}
        mistakes = []
        for name, value in (overrides or {}).items():
            try:
                self.overrides[name] = _checked(name, value)
            except ConfigError as error:
                mistakes.append(error)
        if mistakes:
            raise ConfigError.all_of(mistakes)
        self._values: dict[str, Value | None] = {
            name: None if setting.default is None else _checked(name, setting.default)
            for name, setting in SETTINGS.items()
        }
        self._values |= self.overrides
        self._items: dict[str, tuple[str, ...]] = {}
        self._of_listeners: dict[str, Config] = {}
        self._widen_limits()
        self._check()

    def _widen_limits(self) -> None:
        """Let limits that were not set include the value of the brokers, so that it can be set alone."""
        for name in _GROUP_LIMITS:
            value = self.number(f"group.consumer.{name}")
            for limit, choose in (("min", min), ("max", max)):
                limit_name = f"group.consumer.{limit}.{name}"
                if limit_name not in self.overrides:
                    self._values[limit_name] = choose(self.number(limit_name), value)

    def _check(self) -> None:
        """Check settings that depend on each other."""
        for name, other in _ASCENDING:
            if self.number(name) > self.number(other):
                raise ConfigError.of(name, self.number(name), f"an integer <= {other}, which is {self.number(other)}")
        interval, timeout = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
        if self.number(interval) >= self.number(timeout):
            expected = f"an integer < {timeout}, which is {self.number(timeout)}"
            raise ConfigError.of(interval, self.number(interval), expected)
        self._check_limits_of_connections()
        for mechanism in self.items(SASL_MECHANISMS):
            if mechanism not in MECHANISMS:
                raise ConfigError.of(SASL_MECHANISMS, mechanism, one_of(MECHANISMS).replace("one of", "one or more of"))
        if not _SCOPES.fullmatch(self.text(REQUIRED_SCOPE) or ""):
            raise ConfigError.of(REQUIRED_SCOPE, self.text(REQUIRED_SCOPE), "scopes of RFC 6749, separated by spaces")
        if "classic" not in self.items(REBALANCE_PROTOCOLS):
            expected = "a list with classic, which cannot be disabled"
            raise ConfigError.of(REBALANCE_PROTOCOLS, self.text(REBALANCE_PROTOCOLS), expected)
        if not self.items("group.consumer.assignors"):
            raise ConfigError.of("group.consumer.assignors", "", one_of(ASSIGNORS).replace("one of", "one or more of"))

    def _check_limits_of_connections(self) -> None:
        idle_ms, delay_ms = self.number(MAX_IDLE), self.number(AUTHENTICATION_DELAY)
        if 0 <= idle_ms <= delay_ms:
            raise ConfigError.of(MAX_IDLE, idle_ms, f"an integer > {AUTHENTICATION_DELAY}, which is {delay_ms}, or -1")
        queued, request = self.number(QUEUED_MAX_BYTES), self.number(MAX_REQUEST_BYTES)
        if 0 < queued < request:
            raise ConfigError.of(QUEUED_MAX_BYTES, queued, f"an integer >= {MAX_REQUEST_BYTES}, which is {request}")
        if not self.number(MAX_CONNECTIONS_PER_IP) and not self.text(MAX_CONNECTIONS_PER_IP + ".overrides"):
            expected = f"an integer >= 1, unless {MAX_CONNECTIONS_PER_IP}.overrides is set"
            raise ConfigError.of(MAX_CONNECTIONS_PER_IP, 0, expected)

    def number(self, name: str) -> int:
        """Return the value of a numeric setting."""
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str | None:
        """Return the value of a setting that is a text; None if it was not given and has no default."""
        value = self._values[name]
        return None if value is None else str(value)

    def switch(self, name: str) -> bool:
        """Return the value of a boolean setting."""
        return bool(self._values[name])

    def items(self, name: str) -> tuple[str, ...]:
        """Return the items of a setting that is a list."""
        items = self._items.get(name)
        if items is None:
            items = self._items[name] = tuple(items_of(self.text(name) or "", _LIST))
        return items

    @property
    def has_own_certificates(self) -> bool:
        """Whether the certificates of the brokers are given, for all listeners or for one."""
        return any(without_prefix(name) in CERTIFICATE_SETTINGS for name in self.overrides)

    def of_listener(self, listener: str) -> "Config":
        """Return these settings with those that have the prefix of a listener, such as `listener.name.clients.`."""
        config = self._of_listeners.get(listener)
        if config is None:
            prefix = listener_prefix(listener)
            own = {
                name: value for name in LISTENER_SETTINGS if (value := self.overrides.get(prefix + name)) is not None
            }
            config = self._of_listeners[listener] = Config({**self.overrides, **own}) if own else self
        return config

    def max_session_ms(self, listener: str, mechanism: str) -> int:
        """Return after which time clients of a listener have to authenticate again with a mechanism; 0 if never."""
        own = self.overrides.get(listener_prefix(listener) + mechanism_prefix(mechanism) + MAX_SESSION)
        return self.of_listener(listener).number(MAX_SESSION) if own is None else int(own)

    def check_listeners(self, listeners: Collection[str]) -> None:
        """Check the settings that have the prefix of a listener.

        Raises:
            ConfigError: There is no such listener, or a value is invalid together with others.
        """
        prefixes = tuple(map(listener_prefix, listeners))
        for listener in listeners:
            self.of_listener(listener)  # Checks the values together.
        for name, value in self.overrides.items():
            if without_prefix(name) != name and not name.startswith(prefixes):
                raise ConfigError.of(name, value, f"the prefix of a listener: {', '.join(prefixes)}")

    def coordinator(
        self,
        release: Release = NEWEST,
        extension: Callable[[Any], GroupExtension] = no_extension,
        topics: TopicImage = NO_TOPICS,
        group_config: Callable[[str, str], int | None] = no_group_configs,
    ) -> CoordinatorConfig:
        """Return the settings of the group coordinator.

        Args:
            release: The release that the broker emulates.
            extension: Creates the protocol extension of a group.
            topics: The topics of the cluster.
            group_config: See `ConsumerGroupConfig`.
        """
        config = self.of_release(release)._coordinator(release, extension)
        config.consumer.topics, config.consumer.group_config = topics, group_config
        config.consumer.compile_regex = compile_regex
        return config

    def _assignors(self) -> dict[str, Assignor]:
        names = (_ASSIGNOR_CLASSES.get(item, item) for item in self.items("group.consumer.assignors"))
        return {name: ASSIGNORS[name] for name in names}

    def of_release(self, release: Release) -> "Config":
        """Return these settings with the defaults of a release."""
        older = older_defaults(release)
        return Config({**older, **self.overrides}) if older else self

    def _coordinator(self, release: Release, extension: Callable[[Any], GroupExtension]) -> CoordinatorConfig:
        has_consumer_protocol = "consumer" in self.items(REBALANCE_PROTOCOLS)
        return CoordinatorConfig(
            extension=extension,
            is_before_kip_211=release < KIP_211,
            # In 3.7 to 3.9, the consumer protocol is a preview, and the setting starts the new group coordinator.
            is_before_kip_848=release < KIP_848 and not (has_consumer_protocol and release >= PREVIEW_OF_KIP_848),
            group_min_session_timeout_ms=self.number("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=self.number("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=self.number("group.initial.rebalance.delay.ms"),
            group_max_size=self.number("group.max.size"),
            offset_metadata_max_bytes=self.number("offset.metadata.max.bytes"),
            offsets_retention_ms=self.number("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=self.number("offsets.retention.check.interval.ms"),
            offsets_topic_num_partitions=self.number("offsets.topic.num.partitions"),
            consumer=ConsumerGroupConfig(
                release=release,
                is_enabled=has_consumer_protocol,
                session_timeout_ms=self.number("group.consumer.session.timeout.ms"),
                heartbeat_interval_ms=self.number("group.consumer.heartbeat.interval.ms"),
                max_size=self.number("group.consumer.max.size"),
                classic_max_size=self.number("group.max.size"),
                migration_policy=MigrationPolicy(str(self.text("group.consumer.migration.policy")).lower()),
                assignment_interval_ms=self.number("group.consumer.assignment.interval.ms"),
                assignors=self._assignors(),
                regex_refresh_interval_ms=self.number("group.consumer.regex.refresh.interval.ms"),
            ),
        )


def older_defaults(release: Release) -> dict[str, Value]:
    """Return the defaults of a release that differ from the defaults of the newest release."""
    return {name: default for before, name, default in _OLDER_DEFAULTS if release < before}


def _checked(name: str, value: object) -> Value:
    setting = SETTINGS.get(without_prefix(name))
    if setting is None:
        raise ConfigError.unknown(name, value, one_of(SETTINGS, name), kind="setting")
    if setting.type is ConfigType.PASSWORD and not isinstance(value, str):
        raise ConfigError(f"{name}: expected a string", field=name, expected="a string")  # Without the value.
    if setting.type is _BOOLEAN:
        switch = {"true": True, "false": False}.get(str(value).lower())
        if switch is None:
            raise ConfigError.of(name, value, "true or false")
        return switch
    if not setting.is_number:
        return _text(name, value, setting)
    number = _number(name, value)
    low, high = setting.bounds
    check_integer(name, number, least=int(low), most=int(high))
    return number


def _text(name: str, value: object, setting: ConfigKey) -> str:
    """Return the value of a setting that is a text or a list, such as "compact,delete"."""
    if isinstance(value, str) and setting.value_error(value) is None:
        return setting.normalized(value)
    expected = setting.expected or one_of(setting.choices, str(value))
    if setting.type is ConfigType.LIST:
        expected = expected.replace("one of", "one or more of", 1)
    raise ConfigError.of(name, value, expected)


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError.of(name, value, "an integer") from None


DEFAULT_CONFIG: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}
"""Settings that `FakeCluster` and simulations override: groups do not wait for more members or changes."""

KAFKA_DEFAULTS: Mapping[str, object] = {name: SETTINGS[name].default for name in DEFAULT_CONFIG}
"""Kafka's defaults of the same settings, for `fakebroker serve` and replays."""
