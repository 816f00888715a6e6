"""Subscriptions of client metrics: resources of the type CLIENT_METRICS and their configs (KIP-714).

A subscription names metrics, how often clients should push them, and which clients. Source: ClientMetricsConfigs,
ClientMetricsManager.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType, items_of
from fakebroker.protocol.records import crc32c
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

KIP_714 = Release(3, 7)
"""The first release with client metrics."""

RESOURCE_TYPE = 16
"""The number of the type CLIENT_METRICS."""

DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"

CLIENT_METRICS_CONFIGS: dict[str, ConfigKey] = {
    "interval.ms": ConfigKey(
        ConfigType.INT, DEFAULT_INTERVAL_MS, 100, 3_600_000, about="How often clients push metrics."
    ),
    "match": ConfigKey(ConfigType.LIST, "", about="Patterns of clients; empty for all."),
    "metrics": ConfigKey(ConfigType.LIST, "", about="Prefixes of the names of metrics; * for all."),
}

_ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern can be about."""


class Subscription(NamedTuple):
    """What one client should push, and the number of this set of metrics, which the client returns."""

    metrics: tuple[str, ...]
    push_interval_ms: int
    number: int


def pattern_error(configs: Mapping[str, str]) -> str | None:
    """Return an error message if a pattern of clients is invalid, else None."""
    for item in items_of(configs.get("match", ""), ConfigType.LIST):
        if _pattern(item) is None:
            return f"match={item!r}: expected NAME=PATTERN with a name out of {', '.join(_ATTRIBUTES)}"
    return None


def subscription_of(cluster: "Cluster", call: Call, instance_id: bytes) -> Subscription:
    """Return what a client should push: the union of the subscriptions whose patterns all match it."""
    metrics: dict[str, None] = {}
    interval_ms = DEFAULT_INTERVAL_MS
    attributes = _attributes(call, instance_id)
    for (resource_type, _), configs in cluster.resource_configs.items():
        if resource_type != RESOURCE_TYPE or not _matches(configs.get("match", ""), attributes):
            continue
        metrics |= dict.fromkeys(items_of(configs.get("metrics", ""), ConfigType.LIST))
        interval_ms = min(interval_ms, int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)))
    requested = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
    crc = crc32c(f"{requested}{interval_ms}".encode(), crc32c(instance_id))
    return Subscription(requested, interval_ms, crc - (1 << 32) if crc >> 31 else crc)


def _attributes(call: Call, instance_id: bytes) -> dict[str, str]:
    """Return the attributes of a client. Its port is not known."""
    software_name, software_version = call.peer.software
    return {
        "client_instance_id": instance_id.hex(),
        "client_id": call.client_id,
        "client_software_name": software_name,
        "client_software_version": software_version,
        "client_source_address": call.peer.client_host.removeprefix("/"),
    }


def _matches(patterns: str, attributes: Mapping[str, str]) -> bool:
    found = [_pattern(item) for item in items_of(patterns, ConfigType.LIST)]
    return all(each is not None and each[1].fullmatch(attributes.get(each[0], "")) for each in found)


def _pattern(item: str) -> tuple[str, re.Pattern[str]] | None:
    """Parse a pattern; None if it is invalid."""
    name, separator, text = item.partition("=")
    if not separator or "=" in text or name.strip() not in _ATTRIBUTES:
        return None
    try:
        return name.strip(), re.compile(text.strip())
    except re.error:
        return None
