"""Kafka's broker configs in each release, from the table `broker_configs.txt`: facts without an effect here."""

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import get_data  # importlib.resources takes 10 ms to import
from typing import NamedTuple

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.protocol.releases import RELEASES, Release

READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"
"""Update modes: a config with one of the last two is dynamic (KIP-226)."""


class BrokerConfig(NamedTuple):
    """A broker config of a release: its definition, and how it can be updated."""

    key: ConfigKey
    mode: str

    @property
    def is_dynamic(self) -> bool:
        return self.mode != READ_ONLY


@cache
def kafka_broker_configs(emulated: Release) -> Mapping[str, BrokerConfig]:
    """Return the broker configs of a release by name, sorted."""
    return {
        name: config for name, config, first, last in _table() if first <= emulated and not (last and last < emulated)
    }


@cache
def _table() -> list[tuple[str, BrokerConfig, Release, Release | None]]:
    text = (get_data("fakebroker.cluster.configs", "broker_configs.txt") or b"").decode("ascii")
    return list(_rows(text))


def _rows(text: str) -> Iterator[tuple[str, BrokerConfig, Release, Release | None]]:
    releases_by_name = {str(each): each for each in RELEASES}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, type_, default, mode, valid, releases = line.split()
        first, _, last = releases.partition("-")
        key = _with_valid_values(ConfigType[type_.upper()], _default(default), valid)
        yield name, BrokerConfig(key, mode), releases_by_name[first], releases_by_name.get(last)


def _default(text: str) -> str | None:
    return {"null": None, '""': ""}.get(text, text)


def _with_valid_values(type_: ConfigType, default: str | None, valid: str) -> ConfigKey:
    if valid == "-":
        return ConfigKey(type_, default)
    inner = valid[1:-1]
    if "..." not in inner:
        return ConfigKey(type_, default, choices=tuple(inner.split("|")))
    low, _, high = inner.partition(",...")
    return ConfigKey(type_, default, float(low), float(high.removeprefix(",") or "inf"))
