"""`LogConfig`: the configs of a topic that have an effect, as a broker applies them (Kafka's LogConfig)."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.resolution import ConfigHolder, topic_config
from fakebroker.cluster.configs.settings import MAX_PARTITION_BYTES
from fakebroker.cluster.configs.topic_configs import MAX_DECOMPRESSED, topic_configs
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.releases import Release

_COMPRESSION = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}

FOREVER_MS = 2**63 - 1
"""The value of limits of timestamps that allows all."""

MESSAGE_FORMATS_REMOVED = Release(4, 0)
"""The first release without `message.timestamp.difference.max.ms`, which limits both sides (KIP-937)."""

KIP_966 = Release(3, 7)
"""The first release in which `min.insync.replicas` is at most the number of replicas (KAFKA-15583)."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configs of one topic at one broker.

    Attributes:
        max_message_bytes: The largest record batch (MESSAGE_TOO_LARGE).
        max_decompressed_bytes: The largest record of a compressed batch; None if the release has no limit.
        segment_bytes: The largest record batch (RECORD_LIST_TOO_LARGE).
        keep_bytes: How many bytes a partition keeps; -1 for all.
        retention_ms: How long records are kept; -1 forever. Always -1 if the cleanup policy is only `compact`.
        is_compacted: Whether the cleanup policy includes `compact`.
        delete_retention_ms: How long a compacted topic keeps a tombstone.
        min_compaction_lag_ms: The age from which records are compacted.
        min_insync_replicas: How many in-sync replicas an append with acks=all needs.
        caps_min_insync_replicas: Whether `min_insync_replicas` is at most the number of replicas.
        uses_append_time: Whether the broker sets the timestamps of records.
        timestamp_before_max_ms: How far the timestamp of a produced record may be before the brokers' time.
        timestamp_after_max_ms: How far the timestamp of a produced record may be after the brokers' time.
        compression: The codec of record batches in the log; None to keep the producer's codec.
    """

    max_message_bytes: int
    max_decompressed_bytes: int | None
    segment_bytes: int
    keep_bytes: int
    retention_ms: int
    is_compacted: bool
    delete_retention_ms: int
    min_compaction_lag_ms: int
    min_insync_replicas: int
    caps_min_insync_replicas: bool
    uses_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: Compression | None

    def needed_in_sync(self, replicas: int) -> int:
        """Return how many of a partition's replicas must be in sync for an append with acks=all."""
        return min(self.min_insync_replicas, replicas) if self.caps_min_insync_replicas else self.min_insync_replicas


class CachedLogConfig(msgspec.Struct, frozen=True):
    """A `LogConfig` and the mappings that it was computed from.

    A change of configs replaces the mapping. So the cached value is valid while the mappings are the same objects.
    """

    topic: Mapping[str, str]
    broker: Mapping[str, str]
    cluster: Mapping[str, str]
    release: Release
    config: LogConfig


class ConfiguredTopic(Protocol):
    """A topic: the configs that were set on it, and the cache of its effective configs by node id."""

    @property
    def configs(self) -> Mapping[str, str]: ...

    @property
    def log_configs(self) -> dict[int, CachedLogConfig]: ...


def log_config(cluster: ConfigHolder, broker: BrokerNode, topic: ConfiguredTopic) -> LogConfig:
    """Return the configs of a topic as a broker applies them. Fast, because it is called for each batch."""
    cached = topic.log_configs.get(broker.node_id)
    if (
        cached is None
        or cached.topic is not topic.configs
        or cached.broker is not broker.configs
        or cached.cluster is not cluster.broker_configs
        or cached.release != broker.release
    ):
        config = _resolved(cluster, broker, topic)
        cached = CachedLogConfig(topic.configs, broker.configs, cluster.broker_configs, broker.release, config)
        topic.log_configs[broker.node_id] = cached
    return cached.config


def _resolved(cluster: ConfigHolder, broker: BrokerNode, topic: ConfiguredTopic) -> LogConfig:
    def text(name: str) -> str:
        return topic_config(cluster, broker, topic.configs, name).value or ""

    policies = text("cleanup.policy").split(",")
    either_max_ms = (
        int(text("message.timestamp.difference.max.ms")) if broker.release < MESSAGE_FORMATS_REMOVED else FOREVER_MS
    )
    deletes = "delete" in policies
    limits_bytes = [cluster.config.number(MAX_PARTITION_BYTES)]
    if deletes:
        limits_bytes.append(int(text("retention.bytes")))
    return LogConfig(
        max_message_bytes=int(text("max.message.bytes")),
        max_decompressed_bytes=int(text(MAX_DECOMPRESSED))
        if MAX_DECOMPRESSED in topic_configs(broker.release)
        else None,
        segment_bytes=int(text("segment.bytes")),
        keep_bytes=min((limit for limit in limits_bytes if limit >= 0), default=-1),
        retention_ms=int(text("retention.ms")) if deletes else -1,
        is_compacted="compact" in policies,
        delete_retention_ms=int(text("delete.retention.ms")),
        min_compaction_lag_ms=int(text("min.compaction.lag.ms")),
        min_insync_replicas=int(text("min.insync.replicas")),
        caps_min_insync_replicas=broker.release >= KIP_966,
        uses_append_time=text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=min(either_max_ms, int(text("message.timestamp.before.max.ms"))),
        timestamp_after_max_ms=min(either_max_ms, int(text("message.timestamp.after.max.ms"))),
        compression=_COMPRESSION[text("compression.type")],
    )
