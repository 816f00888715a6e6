"""The Kafka release that a broker emulates, and the versions of each API that it supports.

Resolves user settings (`Broker`) with the tables of `protocol/`; has no state.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from fakebroker.errors import ConfigError, check_integer, one_of
from fakebroker.proposals import PROPOSALS, Proposal
from fakebroker.protocol.registry import API_BY_NAME, APIS, Api
from fakebroker.protocol.releases import NEWEST, RELEASES, Release, release
from fakebroker.protocol.schema import Versions

MAX_BROKERS = 1000

NodeId = Annotated[int, Meta(ge=0, le=2**31 - 1 - MAX_BROKERS)]
"""A node id that leaves room for those of the brokers that follow."""

_Version = Annotated[int, Meta(ge=0, le=2**15 - 1)]

VersionCap = Annotated[tuple[_Version, _Version], Meta(examples=[(0, 3)])] | None
"""The first and the last version of an API that a broker supports, or None for no support."""


ReleaseName = Annotated[str, Meta(examples=["2.8"])]
"""The name of a release of Kafka."""


class Broker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a broker. A cluster can have brokers of different releases, as during an upgrade.

    Attributes:
        as_version: A release of Kafka from 0.10.0 on, such as "2.8", whose API versions and behavior the broker has.
            None: the newest behavior, with all versions that are implemented.
        api_versions: The first and the last version to support, by name of the API, or None for no support. Versions
            that the release lacks are left out. APIs that are not named have the versions of the release.
        rack: Kafka's `broker.rack`; None if the broker has none. Replicas of topics are placed in different racks, and
            consumers with a `client.rack` may fetch from a replica in their rack (see `replica.selector.class`).
    """

    as_version: ReleaseName | None = None
    api_versions: Mapping[str, VersionCap] = {}
    rack: Annotated[str, Meta(min_length=1)] | None = None


BrokerSettings = Annotated[Broker, Meta(examples=[{"as_version": "2.8"}])]
"""A `Broker`, with an example for error messages."""


class EmulatedRelease(msgspec.Struct, frozen=True):
    """The behavior and the API versions of one broker.

    Attributes:
        release: The release whose behavior the broker has.
        versions: The versions that the broker supports and reports in ApiVersions, by API key.
        apis: The APIs that proposals have in place of Kafka's, by key and version.
    """

    release: Release
    versions: Mapping[int, Versions]
    apis: Mapping[tuple[int, int], Api] = {}

    @classmethod
    def of(cls, broker: Broker, proposals: Sequence[str] = ()) -> "EmulatedRelease":
        """Resolve the settings of one broker.

        Args:
            broker: The settings.
            proposals: Names of proposals (`fakebroker.proposals`) that brokers of the newest release support in
                addition.

        Raises:
            ConfigError: The release, an API, a version or a proposal is unknown, or two proposals change one API.
        """
        named = None if broker.as_version is None else _release(broker.as_version)
        ranges = {api.name: _range(api, named) for api in APIS} | _proposed(named or NEWEST, proposals)
        for name, cap in broker.api_versions.items():
            if name not in API_BY_NAME:
                raise ConfigError.unknown(f"api_versions.{name}", cap, one_of(API_BY_NAME, name), kind="API")
            ranges[name] = _capped(API_BY_NAME[name], ranges[name], cap)
        versions = {api.key: supported for api in APIS if (supported := ranges[api.name]) is not None}
        return cls(named or NEWEST, versions, _apis(named or NEWEST, proposals, versions))

    @property
    def proposals(self) -> list[Proposal]:
        """The proposals that the broker supports."""
        return [PROPOSALS[name] for name in dict.fromkeys(api.proposal for api in self.apis.values())]


def emulated_releases(
    brokers: int | Sequence[BrokerSettings],
    as_version: str | None,
    api_versions: Mapping[str, VersionCap],
    proposals: Sequence[str] = (),
) -> list[EmulatedRelease]:
    """Resolve the settings of all brokers of a new cluster. Settings of a broker override settings of the cluster.

    Args:
        brokers: The number of brokers, or the settings of each.
        as_version: The release of brokers that do not set one; as `Broker.as_version`.
        api_versions: As `Broker.api_versions`; a broker's setting of an API has precedence.
        proposals: As for `EmulatedRelease.of`.

    Raises:
        ConfigError: A release, API, version or proposal is unknown, or the number of brokers is out of range.
    """
    count = brokers if isinstance(brokers, int) else len(brokers)
    check_integer("brokers", count, least=1, most=MAX_BROKERS)
    if isinstance(brokers, int):
        return [EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions), proposals)] * count
    merged = [
        Broker(as_version=each.as_version or as_version, api_versions={**api_versions, **each.api_versions})
        for each in brokers
    ]
    return [EmulatedRelease.of(each, proposals) for each in merged]


def _proposed(named: Release, proposals: Sequence[str]) -> dict[str, Versions | None]:
    """Return the API versions that proposals change in a release: none except for the newest release."""
    changed: dict[str, Versions | None] = {}
    for index, name in enumerate(dict.fromkeys(proposals)):
        if name not in PROPOSALS:
            raise ConfigError.of(f"proposals[{index}]", name, one_of(PROPOSALS, name))
        for api, versions in PROPOSALS[name].versions.items():
            if api in changed:
                raise ConfigError.of(f"proposals[{index}]", name, f"no other proposal that changes {api}")
            changed[api] = versions
    return changed if named == NEWEST else {}


def _apis(named: Release, proposals: Sequence[str], supported: Mapping[int, Versions]) -> Mapping[tuple[int, int], Api]:
    apis = [api for name in proposals if named == NEWEST for api in PROPOSALS[name].apis if api.key in supported]
    return {(api.key, each): api for api in apis for each in api.versions if each in supported[api.key]}


def _release(as_version: str) -> Release:
    if not isinstance(as_version, str):  # The number 3.10 would become 3.1.
        raise ConfigError.of("as_version", as_version, "a string, such as '2.8'")
    return release(as_version)


def _range(api: Api, named: Release | None) -> Versions | None:
    """Return the versions of an API in a release that are implemented here, or None if there are none."""
    return api.advertised_versions if named is None else RELEASES[named].get(api.name)


def _intersection(one: Versions, other: Versions) -> Versions | None:
    first, last = max(one.first, other.first), min(one.last, other.last)
    return Versions(first, last) if first <= last else None


def _capped(api: Api, available: Versions | None, cap: VersionCap) -> Versions | None:
    if cap is None:
        if api.name == "ApiVersions":
            raise ConfigError.of("api_versions.ApiVersions", None, "versions, because clients send ApiVersions first")
        return None
    capped = None if available is None else _intersection(available, Versions(*cap))
    if capped is None:
        expected = f"versions in {available}" if available else "None, because the release lacks the API"
        raise ConfigError.of(f"api_versions.{api.name}", cap, expected)
    return capped
