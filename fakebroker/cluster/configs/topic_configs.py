"""All topic configs of Kafka (org.apache.kafka.storage.internals.log.LogConfig), by release, and their valid values.

Those with a description (`ConfigKey.about`) have an effect, see `log_config.py`. The others can only be altered and
described.
"""

from collections.abc import Mapping
from functools import cache

from msgspec.structs import replace

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType, config_text
from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.releases import Release, has_patches_of_4_2

_FOREVER = 2**63 - 1
_LARGEST_RECORD = 2**31 - 9
MAX_DECOMPRESSED = "max.decompressed.message.bytes"
_WEEK_MS = 7 * 24 * 3600 * 1000

_REPLICAS = r"\*|([0-9]+:[0-9]+)?(,([0-9]+:[0-9]+)?)*"  # As in ThrottledReplicaListValidator.
_REPLICAS_EXPECTED = "* or a list of PARTITION:BROKER, such as 0:1,1:2"

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE

TopicConfigValue = str | int | float | bool
"""The value of a topic config in an argument of a command."""

TOPIC_CONFIGS: dict[str, ConfigKey] = {
    "cleanup.policy": ConfigKey(
        _LIST,
        "delete",
        choices=("compact", "delete"),
        about="Whether old records are deleted, compacted, or both.",
        broker_name="log.cleanup.policy",
    ),
    "compression.gzip.level": ConfigKey(_INT, -1, choices=("-1", *"123456789"), broker_name="compression.gzip.level"),
    "compression.lz4.level": ConfigKey(_INT, 9, 1, 17, broker_name="compression.lz4.level"),
    "compression.type": ConfigKey(
        _STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        about="Codec to which the broker converts record batches.",
        broker_name="compression.type",
    ),
    "compression.zstd.level": ConfigKey(_INT, 3, -(2**17), 22, broker_name="compression.zstd.level"),
    "delete.retention.ms": ConfigKey(
        _LONG,
        24 * 3600 * 1000,
        0,
        about="How long a compacted topic keeps a record without a value.",
        broker_name="log.cleaner.delete.retention.ms",
    ),
    "errors.deadletterqueue.group.enable": ConfigKey(_BOOLEAN, False),
    "file.delete.delay.ms": ConfigKey(_LONG, 60_000, 0, broker_name="log.segment.delete.delay.ms"),
    "flush.messages": ConfigKey(_LONG, _FOREVER, 1, broker_name="log.flush.interval.messages"),
    "flush.ms": ConfigKey(_LONG, _FOREVER, 0, broker_name="log.flush.interval.ms"),
    "follower.replication.throttled.replicas": ConfigKey(
        _LIST,
        "",
        pattern=_REPLICAS,
        expected=_REPLICAS_EXPECTED,
        about="Replicas whose copies to their broker are throttled in a reassignment, or *.",
    ),
    "index.interval.bytes": ConfigKey(_INT, 4096, 0, broker_name="log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ConfigKey(
        _LIST,
        "",
        pattern=_REPLICAS,
        expected=_REPLICAS_EXPECTED,
        about="Replicas whose copies from their broker are throttled in a reassignment, or *.",
    ),
    "local.retention.bytes": ConfigKey(_LONG, -2, -2, broker_name="log.local.retention.bytes"),
    "local.retention.ms": ConfigKey(_LONG, -2, -2, broker_name="log.local.retention.ms"),
    "max.compaction.lag.ms": ConfigKey(_LONG, _FOREVER, 1, broker_name="log.cleaner.max.compaction.lag.ms"),
    MAX_DECOMPRESSED: ConfigKey(
        _INT,
        _LARGEST_RECORD,
        1,
        _LARGEST_RECORD,
        about="Largest record of a compressed batch, decompressed. In 4.2, and from 4.4 on.",
        broker_name=MAX_DECOMPRESSED,
    ),
    "max.message.bytes": ConfigKey(_INT, 1_048_588, 0, about="Largest record batch.", broker_name="message.max.bytes"),
    "message.timestamp.after.max.ms": ConfigKey(
        _LONG,
        3600 * 1000,
        0,
        about="How far a record may be ahead of the brokers' clock.",
        broker_name="log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": ConfigKey(
        _LONG,
        _FOREVER,
        0,
        about="How far a record may be behind the brokers' clock.",
        broker_name="log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": ConfigKey(
        _STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        about="Whether the producer or the broker sets the timestamps of records.",
        broker_name="log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": ConfigKey(_DOUBLE, 0.5, 0, 1, broker_name="log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ConfigKey(
        _LONG, 0, 0, about="The age from which records are compacted.", broker_name="log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": ConfigKey(
        _INT,
        1,
        1,
        about="In-sync replicas that a Produce request with acks=all needs, at most all replicas.",
        broker_name="min.insync.replicas",
    ),
    "preallocate": ConfigKey(_BOOLEAN, False, broker_name="log.preallocate"),
    "remote.copy.lag.bytes": ConfigKey(_LONG, -1, -1, broker_name="log.remote.copy.lag.bytes"),
    "remote.copy.lag.ms": ConfigKey(_LONG, 0, -1, broker_name="log.remote.copy.lag.ms"),
    "remote.log.copy.disable": ConfigKey(_BOOLEAN, False),
    "remote.log.delete.on.disable": ConfigKey(_BOOLEAN, False),
    "remote.storage.enable": ConfigKey(_BOOLEAN, False),
    "retention.bytes": ConfigKey(
        _LONG, -1, about="Bytes that a partition keeps; -1 is all.", broker_name="log.retention.bytes"
    ),
    "retention.ms": ConfigKey(
        _LONG,
        _WEEK_MS,
        -1,
        about="How long records are kept, by their timestamps; -1 is forever.",
        broker_name="log.retention.ms",
    ),
    "segment.bytes": ConfigKey(
        _INT,
        1024**3,
        1024**2,
        about="Largest record batch, with another error than max.message.bytes.",
        broker_name="log.segment.bytes",
    ),
    "segment.index.bytes": ConfigKey(_INT, 10 * 1024**2, 4, broker_name="log.index.size.max.bytes"),
    "segment.jitter.ms": ConfigKey(_LONG, 0, 0, broker_name="log.roll.jitter.ms"),
    "segment.ms": ConfigKey(_LONG, _WEEK_MS, 1, broker_name="log.roll.ms"),
    "unclean.leader.election.enable": ConfigKey(_BOOLEAN, False, broker_name="unclean.leader.election.enable"),
}

REMOVED_TOPIC_CONFIGS: dict[str, ConfigKey] = {
    "message.downconversion.enable": ConfigKey(_BOOLEAN, True, broker_name="log.message.downconversion.enable"),
    "message.format.version": ConfigKey(_STRING, None, broker_name="log.message.format.version"),
    "message.timestamp.difference.max.ms": ConfigKey(
        _LONG,
        _FOREVER,
        0,
        about="How far a record may be ahead of or behind the brokers' clock.",
        broker_name="log.message.timestamp.difference.max.ms",
    ),
}
"""Topic configs that Kafka 4.0 has removed."""

ALL_TOPIC_CONFIGS = TOPIC_CONFIGS | REMOVED_TOPIC_CONFIGS

_REMOVED_IN = Release(4, 0)
_LARGER_SEGMENTS = Release(4, 1)
_OLDER_DEFINITIONS = {"segment.bytes": replace(TOPIC_CONFIGS["segment.bytes"], low=14)}
_SINCE = {
    "compression.gzip.level": Release(3, 8),
    "compression.lz4.level": Release(3, 8),
    "compression.zstd.level": Release(3, 8),
    "errors.deadletterqueue.group.enable": Release(4, 4),
    "follower.replication.throttled.replicas": Release(0, 10, 1),
    "leader.replication.throttled.replicas": Release(0, 10, 1),
    "local.retention.bytes": Release(3, 6),
    "local.retention.ms": Release(3, 6),
    "max.compaction.lag.ms": Release(2, 3),
    "message.downconversion.enable": Release(2, 0),
    "message.timestamp.after.max.ms": Release(3, 6),
    "message.timestamp.before.max.ms": Release(3, 6),
    "min.compaction.lag.ms": Release(0, 10, 1),
    "remote.copy.lag.bytes": Release(4, 4),
    "remote.copy.lag.ms": Release(4, 4),
    "remote.log.copy.disable": Release(3, 9),
    "remote.log.delete.on.disable": Release(3, 9),
    "remote.storage.enable": Release(3, 6),
}
"""The first releases with topic configs that 0.10.0 lacks. Source: generated/topic_config.html of each release."""


@cache
def topic_configs(release: Release) -> Mapping[str, ConfigKey]:
    """Return the topic configs of a release by name, sorted."""
    keys = TOPIC_CONFIGS if release >= _REMOVED_IN else ALL_TOPIC_CONFIGS
    if release < _LARGER_SEGMENTS:
        keys = {**keys, **_OLDER_DEFINITIONS}
    return {
        name: key
        for name, key in sorted(keys.items())
        if release >= _SINCE.get(name, release) and (name != MAX_DECOMPRESSED or has_patches_of_4_2(release))
    }


_INTERNAL_SEGMENT_BYTES = str(100 * 1024**2)
INTERNAL_TOPIC_CONFIGS: dict[str, dict[str, str]] = {
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _INTERNAL_SEGMENT_BYTES,
    },
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": _INTERNAL_SEGMENT_BYTES,
        "unclean.leader.election.enable": "false",
    },
}
"""The configs of Kafka's internal topics (GroupCoordinator.groupMetadataTopicConfigs, TransactionStateManager)."""


def topic_configs_error(configs: Mapping[str, str], release: Release) -> str | None:
    """Return an error message if a topic may not have these configs in a release, else None.

    Follows ControllerConfigurationValidator and LogConfig.validate.
    """
    keys = topic_configs(release)
    unknown = [name for name in configs if name not in keys]
    if unknown:
        return f"Unknown topic config name: {unknown[0]}"
    return values_error(configs, keys) or _conflict(configs)


def checked_topic_configs(configs: Mapping[str, TopicConfigValue], release: Release) -> dict[str, str]:
    """Check the topic configs in an argument of a command, and return them as text.

    Raises:
        ConfigError: A config is unknown in this release, or its value is invalid.
    """
    keys = topic_configs(release)
    texts = {name: config_text(value) for name, value in configs.items()}
    for name, text in texts.items():
        field = f"configs.{name}"
        if name not in keys:
            raise ConfigError.unknown(field, configs[name], one_of(keys, name), kind="topic config")
        fault = keys[name].value_error(text)
        if fault is not None:
            expected = one_of(keys[name].choices) if keys[name].choices else fault.removeprefix("expected ")
            raise ConfigError.of(field, configs[name], expected)
    conflict = _conflict(texts)
    if conflict is not None:
        raise ConfigError.of("configs", texts, f"consistent configs: {conflict}")
    return texts


def values_error(configs: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> str | None:
    """Return an error message for the first invalid value, or None. Names that are not in `keys` are ignored."""
    for name, value in configs.items():
        fault = keys[name].value_error(value) if name in keys else None
        if fault is not None:
            return f"Invalid value {value} for configuration {name}: {fault}"
    return None


def _conflict(configs: Mapping[str, str]) -> str | None:
    low, high = (
        int(configs.get(name) or TOPIC_CONFIGS[name].default_text or 0)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if low > high:
        return f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
    if configs.get("remote.storage.enable", "").strip().lower() == "true":
        return "Tiered Storage functionality is disabled in the broker: expected remote.storage.enable=false"
    return None
