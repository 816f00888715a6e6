"""The topic configs that Kafka knows, with its defaults (org.apache.kafka.storage.internals.log.LogConfig).

`retention.bytes` and `max.message.bytes` do what they say; the others are taken and told again. Knows no topic.
"""

Value = int | float | bool | str

_FOREVER = 2**63 - 1
_WEEK_MS = 7 * 24 * 3600 * 1000

TOPIC_CONFIGS: dict[str, Value] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "producer",
    "compression.zstd.level": 3,
    "delete.retention.ms": 24 * 3600 * 1000,
    "file.delete.delay.ms": 60_000,
    "flush.messages": _FOREVER,
    "flush.ms": _FOREVER,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": 4096,
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": _FOREVER,
    "max.message.bytes": 1_048_588,
    "message.timestamp.after.max.ms": 3600 * 1000,
    "message.timestamp.before.max.ms": _FOREVER,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "preallocate": False,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
    "remote.storage.enable": False,
    "retention.bytes": -1,
    "retention.ms": _WEEK_MS,
    "segment.bytes": 1024**3,
    "segment.index.bytes": 10 * 1024**2,
    "segment.jitter.ms": 0,
    "segment.ms": _WEEK_MS,
    "unclean.leader.election.enable": False,
}


def topic_config_fault(name: str, value: str | None) -> str | None:
    """Why a topic may not be created with this config, or None; values are checked for their type alone."""
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if name not in TOPIC_CONFIGS:
        return f"Unknown topic config name: {name}"
    default = TOPIC_CONFIGS[name]
    if isinstance(default, bool):
        return None if value.lower() in ("true", "false") else f"{name}={value!r}: expected true or false"
    try:
        type(default)(value)
    except ValueError:
        return f"{name}={value!r}: expected a number like {default}"
    return None


def topic_config_text(value: Value) -> str:
    """A config's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
